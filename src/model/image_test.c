/* Names and words of images. */
#include "base/test.h"
#include "model/image.h"

TEST(names_of_images)
{
    static const char *const good[] = { "a",
                                        "debian",
                                        "debian:12",
                                        "a.b_c-d:1.2-3_x",
                                        "0:0",
                                        "agentic/claude:latest",
                                        "a/b/c",
                                        "localhost:5000/a:1",
                                        "registry.example/team/tool" };
    static const char *const bad[] = {
        "",      ":",    "a:",       ":a",    "A",    "a b",        "-a",      "a-",
        "a:b:c", "a:-b", "\xc3\xa9", "a\n",   "/a",   "a/",         "a//b",    "a/../b",
        "./a",   "a/:1", "a:1/",     "a:x/b", "a:/b", "a:123456/b", "a/b:1/c", "a:5000/b:5000/c"
    };
    char text[IMAGE_NAME_MAX + 2];
    struct err err = { 0 };

    for (size_t i = 0; i < ARRAY_LEN(good); i++)
        CHECK_OK(image_name_check(good[i], &err), &err);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        CHECK(image_name_check(bad[i], &err) < 0);
        CHECK_STR(err.field, "name");
    }
    memset(text, 'a', sizeof(text));
    text[IMAGE_NAME_MAX] = 0;
    CHECK_OK(image_name_check(text, &err), &err);
    text[IMAGE_NAME_MAX] = 'a';
    text[IMAGE_NAME_MAX + 1] = 0;
    CHECK(image_name_check(text, &err) < 0);
}

TEST(only_root_is_root)
{
    static const char *const roots[] = { "root", "0", "0:0", "root:staff" };
    static const char *const others[] = { "", "1000", "00", "web", "0x0", "rooty", ":0" };

    for (size_t i = 0; i < ARRAY_LEN(roots); i++)
        CHECK_STR(image_user(&(struct image_config){ .user = roots[i] }), "root");
    for (size_t i = 0; i < ARRAY_LEN(others); i++)
        CHECK(image_user(&(struct image_config){ .user = others[i] }) == NULL);
}

#define DIGEST "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

TEST(what_no_table_can_say)
{
    struct image_part part = { .diff_id = DIGEST };
    const char *env[] = { "A=1", "B=", NULL }, *bad_env[] = { "=1", NULL },
               *no_env[] = { "A", NULL };
    struct image_config config = { .env = env, .workdir = "/srv" };
    struct image_told told = { .digest = DIGEST, .config = &config, .layers = { &part, 1 } };
    struct err err = { 0 };

    CHECK_OK(image_told_check(&told, &err), &err);
    config.workdir = "srv";
    CHECK(image_told_check(&told, &err) < 0);
    config.workdir = "";
    config.env = bad_env;
    CHECK(image_told_check(&told, &err) < 0);
    config.env = no_env;
    CHECK(image_told_check(&told, &err) < 0);
    config.env = env;
    part.diff_id = "sha256:0123456789ABCDEF0123456789abcdef0123456789abcdef0123456789abcdef";
    CHECK(image_told_check(&told, &err) < 0);
    part.diff_id = DIGEST;
    told.digest = "md5";
    CHECK(image_told_check(&told, &err) < 0);
}
