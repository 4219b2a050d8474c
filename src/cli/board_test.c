/* The board: what stands where, that nothing is wider than asked for, and that text stays text. */
#include "cli/board.h"

#include <locale.h>
#include <stdio.h>

#include "base/mem.h"
#include "base/test.h"
#include "cli/text.h"

static const char *const statuses[] = { "backlog",   "ready",   "in_progress",
                                        "in_review", "blocked", "done" };

/* Draws JSON text; gives. */
static char *drawn(const char *text, size_t width, bool colour)
{
    autoarena struct arena arena = { 0 };
    autobuf struct buf out = { 0 };
    struct json *board;
    struct err err = { 0 };

    setlocale(LC_CTYPE, "C.UTF-8");
    CHECK_OK(json_parse(&arena, str_of(text), &board, &err), &err);
    board_put(&out, board, width, colour);
    return buf_take(&out, NULL);
}

static void check_fits(const char *text, size_t width)
{
    struct str rest = str_of(text);

    while (rest.n) {
        struct str line = str_cut(&rest, '\n');

        if (text_width(line) > width)
            test_fail(__FILE__, __LINE__, "%zu columns of %zu: %.*s", text_width(line), width,
                      STR_FMT(line));
        CHECK(!line.n || line.p[line.n - 1] != ' ');
    }
}

#define COLUMNS                                                                                    \
    "\"columns\":[{\"status\":\"backlog\",\"limit\":null,\"count\":1},"                            \
    "{\"status\":\"ready\",\"limit\":null,\"count\":0},"                                           \
    "{\"status\":\"in_progress\",\"limit\":3,\"count\":2},"                                        \
    "{\"status\":\"in_review\",\"limit\":5,\"count\":1},"                                          \
    "{\"status\":\"blocked\",\"limit\":null,\"count\":1},"                                         \
    "{\"status\":\"done\",\"limit\":null,\"count\":0}]"
#define TASKS                                                                                      \
    "\"backlog\":[{\"priority\":\"P2\",\"title\":\"write\"}],\"in_progress\":["                    \
    "{\"priority\":\"P0\",\"title\":\"first\",\"assigned_to\":\"ada\"},"                           \
    "{\"priority\":\"P1\",\"title\":\"second\",\"assigned_to\":\"eve\"}],"                         \
    "\"in_review\":[{\"priority\":\"P2\",\"title\":\"look\",\"status\":\"in_review\","             \
    "\"approvals\":1,\"approvals_required\":2}],"                                                  \
    "\"blocked\":[{\"priority\":\"P3\",\"title\":\"wait\",\"blocked_reason\":\"rain\"}]"

TEST(columns_stand_beside_each_other)
{
    autofree char *out = drawn("{\"name\":\"p\",\"lanes_by\":\"none\"," COLUMNS
                               ",\"lanes\":[{\"lane\":\"\",\"columns\":{" TASKS "}}]}",
                               120, false);

    CHECK_STR(out, "p\n\n"
                   "BACKLOG 1           READY 0             IN PROGRESS 2 (≤3)  IN REVIEW 1 (≤5)"
                   "    BLOCKED 1           DONE 0\n"
                   "──────────────────  ──────────────────  ──────────────────  ──────────────────"
                   "  ──────────────────  ──────────────────\n"
                   "P2 write                                P0 first            P2 look"
                   "             P3 wait\n"
                   "                                           @ada                1/2 approved"
                   "        ! rain\n"
                   "                                        P1 second\n"
                   "                                           @eve\n\n");
}

TEST(what_has_no_room_stands_below)
{
    static const char board[] = "{\"name\":\"p\",\"lanes_by\":\"agent\"," COLUMNS
                                ",\"lanes\":[{\"lane\":\"ada\",\"columns\":{" TASKS "}},"
                                "{\"lane\":\"\",\"columns\":{}}],\"leases\":[{\"agent\":\"ada\","
                                "\"mode\":\"shared\",\"paths\":[\"src\",\"docs\"],"
                                "\"expires_at\":\"2026-01-01T00:00:00\"}]}";

    for (size_t width = 1; width <= 200; width++) {
        autofree char *out = drawn(board, width, false);

        check_fits(out, MAX(width, (size_t)BOARD_WIDTH_MIN));
        for (size_t i = 0; i < ARRAY_LEN(statuses); i++)
            CHECK(strstr(out, i == 2 ? "IN PROGRESS" : i == 3 ? "IN REVIEW" : "BLOCKED"));
        CHECK(strstr(out, "P0 first") && strstr(out, "@eve") && strstr(out, "agent: ada\n"));
        CHECK(strstr(out, "agent: -\n") && strstr(out, "LEASES\n@ada shared"));
    }
    autofree char *narrow = drawn(board, 20, false), *wide = drawn(board, 200, false);
    CHECK(strstr(narrow, "READY 0\n") && !strstr(wide, "READY 0\n"));
}

TEST(text_of_others_is_text)
{
    static const char board[] =
        "{\"name\":\"\\u001b[2J\",\"lanes_by\":\"agent\"," COLUMNS ",\"lanes\":[{\"lane\":"
        "\"\\u202eada\",\"columns\":{\"ready\":[{\"priority\":\"P0\",\"title\":"
        "\"a\\u001b]0;x\\u0007\\nb\",\"assigned_to\":\"\\u009b31m\",\"blocked_reason\":"
        "\"\\u200b\"}],\"done\":[{\"title\":\"日本日本日本日本日本日本日本日本\"},{},null,7]}}],"
        "\"leases\":[{\"agent\":\"\\u0007\",\"paths\":[\"\\u001b\"]}]}";

    for (size_t width = 20; width < 150; width++) {
        autofree char *plain = drawn(board, width, false), *bold = drawn(board, width, true);

        check_fits(plain, width);
        CHECK(!strchr(plain, 0x1b) && !strchr(plain, 7) && !strstr(plain, "\xe2\x80\xae"));
        CHECK(strstr(plain, "\\x1b[2J") && strstr(plain, "agent: \\u{202e}ada"));
        CHECK(strstr(bold, "\x1b[1m\\x1b[2J\x1b[0m"));
    }
}

TEST(a_board_that_is_none)
{
    static const char *const none[] = { "{}", "[]", "7", "{\"columns\":7,\"lanes\":{}}",
                                        "{\"columns\":[7],\"lanes\":[7]}" };

    for (size_t i = 0; i < ARRAY_LEN(none); i++) {
        autofree char *out = drawn(none[i], 80, false);

        check_fits(out, 80);
    }
}
