#include "base/bytes.h"

#include <string.h>

#include "base/test.h"

TEST(bytes_have_the_unit_that_reads_best)
{
    static const struct {
        int64_t bytes;
        const char *text;
    } cases[] = { { 0, "0 bytes" },
                  { 1, "1 byte" },
                  { 1023, "1023 bytes" },
                  { 1024, "1 KiB" },
                  { 1536, "1.5 KiB" },
                  { 16 << 20, "16 MiB" },
                  { (1 << 20) - 1, "1.0 MiB" },
                  { 900ll << 30, "900 GiB" },
                  { 4ll << 40, "4 TiB" },
                  { INT64_MAX, "8.0 EiB" } };
    char text[BYTES_TEXT_SIZE];

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        CHECK_STR(bytes_text(cases[i].bytes, text), cases[i].text);
}
