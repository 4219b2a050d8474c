#include "host/subid.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/test.h"

static bool find(const char *text, const char *name, uid_t uid, struct subid_range *out)
{
    autofree char *path = xprintf("%s/subuid", test_dir());
    FILE *file = fopen(path, "we");

    CHECK(file && fputs(text, file) >= 0 && fclose(file) == 0);
    return subid_find(path, name, uid, out);
}

TEST(a_range_is_found_by_name_or_number)
{
    struct subid_range range;

    CHECK(find("other:1:2\nann:100000:65536\n", "ann", 1001, &range));
    CHECK_INT(range.first, 100000);
    CHECK_INT(range.count, 65536);
    CHECK(find("1001:200000:70000", NULL, 1001, &range));
    CHECK_INT(range.first, 200000);
    CHECK_INT(range.count, 70000);
    CHECK(!find("ann:100000:65536\n", "an", 1001, &range));
    CHECK(!find("ann:100000:65536\n", NULL, 1001, &range));
    CHECK(!find("", "ann", 1001, &range));
    CHECK(!subid_find("/nowhere", "ann", 1001, &range));
}

TEST(the_largest_range_counts_up_to_what_can_be_used)
{
    struct subid_range range;

    CHECK(find("ann:100:10\nann:5000:2000\nann:90000:300\n", "ann", 1001, &range));
    CHECK_INT(range.first, 5000);
    CHECK_INT(range.count, 2000);
    CHECK(find("ann:100:4000000000\n", "ann", 1001, &range));
    CHECK_INT(range.count, SUBID_MAX);
}

TEST(a_line_that_makes_no_sense_gives_nothing)
{
    static const char *const lines[] = {
        "ann",
        "ann:",
        "ann:1",
        "ann:x:5",
        "ann:5:x",
        "ann:0:65536",
        "ann:5:0",
        "ann:-5:10",
        "ann:4294967295:1",
        "ann:4294967290:6",
        "ann:1:99999999999999999999999",
        "ann:1:2:3",
        "# ann:1:2",
        ":1:2",
    };
    struct subid_range range;

    for (size_t i = 0; i < ARRAY_LEN(lines); i++)
        if (find(lines[i], "ann", 1001, &range))
            test_fail(__FILE__, __LINE__, "%s was taken", lines[i]);
    CHECK(find("ann:4294967290:5", "ann", 1001, &range));
}
