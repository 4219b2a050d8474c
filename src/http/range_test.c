/* A table of ranges, and random ones against plain arithmetic. */
#include "http/range.h"

#include <stdio.h>

#include "base/test.h"

TEST(ranges)
{
    static const struct {
        const char *value;
        uint64_t size;
        enum http_range want;
        uint64_t first, last;
    } cases[] = {
        { NULL, 10, HTTP_RANGE_NONE, 0, 0 },
        { "", 10, HTTP_RANGE_NONE, 0, 0 },
        { "bytes=", 10, HTTP_RANGE_NONE, 0, 0 },
        { "bytes=-", 10, HTTP_RANGE_NONE, 0, 0 },
        { "bytes=a-b", 10, HTTP_RANGE_NONE, 0, 0 },
        { "bytes=5-2", 10, HTTP_RANGE_NONE, 0, 0 },
        { "bytes=0-1,3-4", 10, HTTP_RANGE_NONE, 0, 0 },
        { "items=0-1", 10, HTTP_RANGE_NONE, 0, 0 },
        { "bytes=+1-2", 10, HTTP_RANGE_NONE, 0, 0 },
        { "bytes=--1", 10, HTTP_RANGE_NONE, 0, 0 },
        { "bytes=0-0", 10, HTTP_RANGE_PART, 0, 0 },
        { "BYTES=0-0", 10, HTTP_RANGE_PART, 0, 0 },
        { "bytes= 3-4 ", 10, HTTP_RANGE_PART, 3, 4 },
        { "bytes=9-", 10, HTTP_RANGE_PART, 9, 9 },
        { "bytes=10-", 10, HTTP_RANGE_BAD, 0, 0 },
        { "bytes=0-9", 10, HTTP_RANGE_PART, 0, 9 },
        { "bytes=0-10", 10, HTTP_RANGE_PART, 0, 9 },
        { "bytes=-1", 10, HTTP_RANGE_PART, 9, 9 },
        { "bytes=-10", 10, HTTP_RANGE_PART, 0, 9 },
        { "bytes=-11", 10, HTTP_RANGE_PART, 0, 9 },
        { "bytes=-0", 10, HTTP_RANGE_BAD, 0, 0 },
        { "bytes=0-", 0, HTTP_RANGE_BAD, 0, 0 },
        { "bytes=-5", 0, HTTP_RANGE_BAD, 0, 0 },
        { "bytes=0-99999999999999999999999999", 10, HTTP_RANGE_PART, 0, 9 },
        { "bytes=99999999999999999999999999-", 10, HTTP_RANGE_BAD, 0, 0 },
        { "bytes=-99999999999999999999999999", 10, HTTP_RANGE_PART, 0, 9 },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        uint64_t first = 0, last = 0;
        enum http_range got =
            http_range_parse(str_of(cases[i].value), cases[i].size, &first, &last);

        if (got != cases[i].want || first != cases[i].first || last != cases[i].last)
            test_fail(__FILE__, __LINE__, "\"%s\" of %llu gave %d %llu-%llu", cases[i].value,
                      (unsigned long long)cases[i].size, (int)got, (unsigned long long)first,
                      (unsigned long long)last);
    }
}

TEST(random_ranges_agree_with_arithmetic)
{
    for (int round = 0; round < 20000; round++) {
        uint64_t size = test_rand(20), from = test_rand(22), to = test_rand(22), first, last;
        char text[64];

        snprintf(text, sizeof(text), "bytes=%llu-%llu", (unsigned long long)from,
                 (unsigned long long)to);
        enum http_range got = http_range_parse(str_of(text), size, &first, &last);
        if (to < from)
            CHECK_INT(got, HTTP_RANGE_NONE);
        else if (from >= size)
            CHECK_INT(got, HTTP_RANGE_BAD);
        else
            CHECK(got == HTTP_RANGE_PART && first == from && last == MIN(to, size - 1));
    }
}

TEST(content_range_text)
{
    char text[HTTP_RANGE_TEXT_SIZE];

    CHECK(str_is(http_range_text(text, HTTP_RANGE_PART, 1, 2, 30), "bytes 1-2/30"));
    CHECK(str_is(http_range_text(text, HTTP_RANGE_BAD, 0, 0, 30), "bytes */30"));
    CHECK(http_range_text(text, HTTP_RANGE_PART, UINT64_MAX, UINT64_MAX, UINT64_MAX).n <
          HTTP_RANGE_TEXT_SIZE);
}
