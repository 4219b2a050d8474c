/* id: sortable by age, checked exactly. */
#include "base/id.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/test.h"

TEST(ids_are_valid_unique_and_sort_by_age)
{
    char last[ID_SIZE] = "";
    int64_t began = clock_mono_ms();
    unsigned made = 0;

    while (clock_mono_ms() - began < 20) {
        char id[ID_SIZE];

        id_make(id, "tok");
        CHECK(id_valid(str_of(id), "tok") && strlen(id) == 29 && !strchr(id, '-'));
        CHECK(strncmp(last, id, 13) <= 0); /* "tok" and the 48 bits of time */
        CHECK(strcmp(last, id) != 0);
        snprintf(last, sizeof(last), "%s", id);
        made++;
    }
    CHECK(made > 10);
}

TEST(only_what_could_have_been_made_is_valid)
{
    char id[ID_SIZE];

    id_make(id, "sb");
    CHECK(id_valid(str_of(id), "sb") && !id_valid(str_of(id), "tok") && !id_valid(str_of(id), "s"));
    for (size_t i = 2; id[i]; i++) {
        static const char bad[] = { 'i', 'l', 'o', 'u', 'A', '-', '/', ' ', '\0', '\x80' };
        char kept = id[i];

        for (size_t k = 0; k < sizeof(bad); k++) {
            id[i] = bad[k];
            CHECK(!id_valid((struct str){ id, 28 }, "sb"));
        }
        id[i] = kept;
    }
    id[2] = '8'; /* would be bit 128 */
    CHECK(!id_valid(str_of(id), "sb"));
    id[2] = '7';
    CHECK(id_valid(str_of(id), "sb"));
    CHECK(!id_valid((struct str){ id, 27 }, "sb") && !id_valid(STR_NONE, "sb") &&
          !id_valid(STR("sb"), "sb"));
}

TEST(prefixes_are_cut_at_eight)
{
    char id[ID_SIZE];

    id_make(id, "eightlet");
    CHECK(id_valid(str_of(id), "eightlet"));
    id_make(id, "ninelette");
    CHECK(id_valid(str_of(id), "ninelett"));
    id_make(id, "");
    CHECK(id_valid(str_of(id), ""));
}

TEST(random_bytes_fill_exactly_what_is_asked)
{
    unsigned char bytes[600] = { 0 };
    unsigned zeros = 0;

    random_bytes(bytes + 1, 0);
    CHECK(bytes[1] == 0);
    random_bytes(bytes + 1, sizeof(bytes) - 2); /* more than one getrandom promises at once */
    for (size_t i = 1; i < sizeof(bytes) - 1; i++)
        zeros += bytes[i] == 0;
    CHECK(bytes[0] == 0 && bytes[sizeof(bytes) - 1] == 0 && zeros < 30);
}
