/* Forms of RFC 9562, section 5.4 and 5.7. */
#include "base/uuid.h"

#include <string.h>

#include "base/test.h"

TEST(versions_and_variant_are_in_their_places)
{
    char a[UUID_SIZE], b[UUID_SIZE];

    for (int i = 0; i < 1000; i++) {
        uuid_v4(a);
        uuid_v7(b);
        CHECK(uuid_shaped(str_of(a)) && uuid_shaped(str_of(b)));
        CHECK(a[14] == '4' && b[14] == '7');
        CHECK(strchr("89ab", a[19]) && strchr("89ab", b[19]));
        CHECK(strcmp(a, b) != 0);
    }
}

TEST(what_is_no_uuid)
{
    char good[UUID_SIZE];

    uuid_v4(good);
    for (size_t i = 0; i < UUID_SIZE - 1; i++) {
        char bad[UUID_SIZE];

        memcpy(bad, good, sizeof(bad));
        bad[i] = bad[i] == '-' ? '0' : '/';
        CHECK(!uuid_shaped(str_of(bad)));
        CHECK(!uuid_shaped((struct str){ good, i }));
    }
    CHECK(!uuid_shaped(STR("00000000-0000-4000-8000-00000000000A")));
    CHECK(!uuid_shaped(STR("00000000-0000-4000-8000-0000000000000")));
}
