/* Passes: good for what they were made for, until then, and as long as who made them lives. */
#include "auth/auth_fake.h"

static const struct pass eight = { PASS_SHOWN, "sb1", 8000, 2000000 };

static int check(const struct fake *fake, struct pass pass, const char *text, struct principal *who)
{
    struct err err;

    return auth_pass_check(fake->auth, &pass, str_of(text), who, &err);
}

TEST(a_pass_is_good_for_what_it_was_made_for)
{
    autofake struct fake fake;
    struct principal who = { 0 }, found;
    char text[PASS_TEXT_SIZE];

    fake_open(&fake);
    fake_wall_ms = 1000000;
    char bearer[7 + TOKEN_TEXT_SIZE];
    struct token_row wish = { .name = "t", .tenant = "default", .role = ROLE_OPERATOR };
    struct token_row row = fake_token(&fake, &wish, bearer);
    memcpy(who.id, row.id, sizeof(who.id));
    auth_pass_make(fake.auth, &eight, &who, text);
    CHECK_INT(check(&fake, eight, text, &found), 0);
    CHECK_STR(found.id, row.id);
    CHECK_INT(found.role, ROLE_OPERATOR);

    CHECK_INT(check(&fake, (struct pass){ PASS_LINK, "sb1", 8000, 0 }, text, &found), -1);
    CHECK_INT(check(&fake, (struct pass){ PASS_SHOWN, "sb2", 8000, 0 }, text, &found), -1);
    CHECK_INT(check(&fake, (struct pass){ PASS_SHOWN, "sb1", 8001, 0 }, text, &found), -1);
    for (size_t i = 0; text[i]; i++) { /* no byte of it can be changed */
        text[i] ^= 1;
        CHECK_INT(check(&fake, eight, text, &found), -1);
        text[i] ^= 1;
    }
    CHECK_INT(check(&fake, eight, "", &found), -1);
    CHECK_INT(check(&fake, eight, "..", &found), -1);

    fake_wall_ms = 2000000 - 1;
    CHECK_INT(check(&fake, eight, text, &found), 0);
    fake_wall_ms = 2000000;
    CHECK_INT(check(&fake, eight, text, &found), -1);
    fake_wall_ms = 1000000;
    auth_token_revoked(fake.auth, row.id);
    CHECK_INT(check(&fake, eight, text, &found), -1);
}

TEST(who_came_by_an_open_door_needs_it_to_be_open)
{
    autofake struct fake fake;
    struct principal who = { .id = "open" }, found;
    char text[PASS_TEXT_SIZE];

    fake_open(&fake);
    auth_reload(fake.auth, &(struct auth_options){ .open = true });
    fake_wall_ms = 1000000;
    auth_pass_make(fake.auth, &eight, &who, text);
    CHECK_INT(check(&fake, eight, text, &found), 0);
    CHECK_INT(found.role, ROLE_ADMIN);
    auth_reload(fake.auth, &(struct auth_options){ 0 });
    CHECK_INT(check(&fake, eight, text, &found), -1);
    memcpy(who.id, "unix:0", 7);
    auth_pass_make(fake.auth, &eight, &who, text);
    CHECK_INT(check(&fake, eight, text, &found), 0);
}

TEST(another_process_makes_other_passes)
{
    autofake struct fake one;
    struct principal who = { .id = "unix:0" }, found;
    char text[PASS_TEXT_SIZE];

    fake_open(&one);
    auth_pass_make(one.auth, &eight, &who, text);
    fake_wall_ms = 1000000;
    CHECK_INT(check(&one, eight, text, &found), 0);
    fake_stop(&one);
    fake_start(&one, &(struct auth_options){ 0 });
    CHECK_INT(check(&one, eight, text, &found), -1);
}
