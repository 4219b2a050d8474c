/* err: stories are cut, never overflowed, and every code has a meaning on each surface. */
#include "base/err.h"

#include <errno.h>
#include <string.h>

#include "base/test.h"

TEST(every_code_has_a_name_of_its_own_and_a_status)
{
    for (int i = 0; i < ERR_CODES; i++) {
        const struct err_info *info = err_info((enum err_code)i);

        CHECK(info->name && info->http >= 200 && info->http < 600 && info->grpc >= 0 &&
              info->grpc <= 16);
        CHECK(i == ERR_NONE || (info->http >= 400 && info->exit > 0 && info->grpc > 0));
        CHECK_INT(err_from_name(info->name), i);
        CHECK_INT(err_info(err_from_http(info->http))->http, info->http);
    }
    CHECK_INT(err_from_http(429), ERR_RATE); /* without a code: not a quota */
    CHECK_INT(err_info((enum err_code)999)->http, 500);
    CHECK_INT(err_from_name("whatever"), ERR_INTERNAL);
    CHECK_INT(err_from_http(418), ERR_INVALID);
    CHECK_INT(err_from_http(599), ERR_INTERNAL);
}

TEST(every_reason_has_a_name_of_its_own)
{
    struct err err = { 0 };

    for (int i = REASON_NONE + 1; i < REASONS; i++)
        CHECK_INT(err_reason_from(err_reason_name((enum err_reason)i)), i);
    CHECK(!err_reason_name(REASON_NONE) && !err_reason_name((enum err_reason)999));
    CHECK_INT(err_reason_from("whatever"), REASON_NONE);
    CHECK_INT(err_role(&err, "role %s may not", "user"), -1);
    CHECK(err.code == ERR_FORBIDDEN && err.reason == REASON_ROLE);
    err_wrap(&err, "there");
    CHECK(err.reason == REASON_ROLE);
    err_set(&err, ERR_FORBIDDEN, "a file");
    CHECK(err.reason == REASON_NONE);
}

TEST(setting_replaces_everything)
{
    struct err err = { 0 };

    CHECK_INT(err_field(&err, "limits.memory", "too %s", "large"), -1);
    CHECK(err.code == ERR_INVALID);
    CHECK_STR(err.field, "limits.memory");
    CHECK_STR(err.msg, "too large");
    err.retry_after = 5;
    CHECK_INT(err_set(&err, ERR_NOT_FOUND, "no %d", 7), -1);
    CHECK(err.code == ERR_NOT_FOUND && !err.field[0] && err.retry_after == 0);
    CHECK_STR(err.msg, "no 7");
}

TEST(an_error_may_be_made_from_its_own_parts)
{
    struct err err = { 0 };

    err_field(&err, "name", "old story");
    err_set(&err, ERR_CONFLICT, "again: %s (%s)", err.msg, err.field);
    CHECK_STR(err.msg, "again: old story (name)");
    err_field(&err, err.msg, "%s", err.msg);
    CHECK_STR(err.field, "again: old story (name)");
    CHECK_STR(err.msg, "again: old story (name)");
}

TEST(wrapping_adds_context_in_front_and_keeps_the_rest)
{
    struct err err = { 0 };

    err_field(&err, "f", "reason");
    err.retry_after = 3;
    CHECK_INT(err_wrap(&err, "open %s", "store"), -1);
    CHECK_STR(err.msg, "open store: reason");
    CHECK(err.code == ERR_INVALID && err.retry_after == 3);
    CHECK_STR(err.field, "f");
    err_wrap(&err, "%s", err.msg);
    CHECK_STR(err.msg, "open store: reason: open store: reason");
}

TEST(long_stories_lose_their_tail)
{
    struct err err = { 0 };
    char text[ERR_MSG_SIZE * 2];

    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = 0;
    err_set(&err, ERR_INTERNAL, "%s", text);
    CHECK_INT(strlen(err.msg), ERR_MSG_SIZE - 1);
    err_wrap(&err, "context");
    CHECK(strlen(err.msg) == ERR_MSG_SIZE - 1 && strncmp(err.msg, "context: xxx", 12) == 0);
    err_wrap(&err, "%s", text);
    CHECK_INT(strlen(err.msg), ERR_MSG_SIZE - 1);
    err_field(&err, text, "m");
    CHECK_INT(strlen(err.field), ERR_FIELD_SIZE - 1);
    text[ERR_MSG_SIZE - 4] = 0;
    errno = ENOENT;
    err_sys(&err, "%s", text);
    CHECK_INT(strlen(err.msg), ERR_MSG_SIZE - 1);
}

TEST(errno_decides_the_code)
{
    struct err err = { 0 };

    errno = ENOENT;
    CHECK_INT(err_sys(&err, "open %s", "x"), -1);
    CHECK(err.code == ERR_INTERNAL && err.sys == ENOENT);
    CHECK_STR(err.msg, "open x: No such file or directory");
    errno = ENOSPC;
    err_sys(&err, "write");
    CHECK_INT(err.code, ERR_NO_SPACE);
    errno = EDQUOT;
    err_sys(&err, "write");
    CHECK_INT(err.code, ERR_NO_SPACE);
    errno = 99999;
    err_sys(&err, "odd");
    CHECK_STR(err.msg, "odd: unknown error");
}

TEST(nobody_needs_to_care)
{
    CHECK(err_set(NULL, ERR_LIMIT, "x") == -1 && err_field(NULL, "f", "x") == -1 &&
          err_sys(NULL, "x") == -1 && err_wrap(NULL, "x") == -1);
}
