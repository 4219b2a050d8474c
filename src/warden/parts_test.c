/* The warden's decisions that need no process. */
#include <stdio.h>

#include "base/limits.h"
#include "base/test.h"
#include "warden/box.h"
#include "warden/warden.h"
#include "wire/layout.h"

static int parse(struct warden_args *out, const char *const *words)
{
    static char text[64][64], *argv[64];
    int argc = 0;

    for (; words[argc]; argc++) {
        snprintf(text[argc], sizeof(text[argc]), "%s", words[argc]);
        argv[argc] = text[argc];
    }
    argv[argc] = NULL;
    return warden_args_parse(out, argc, argv);
}

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)
#define LAYOUT TEXT(WARDEN_LAYOUT)
#define PARSE(out, ...) parse(out, (const char *const[]){ "atoll-warden", __VA_ARGS__, NULL })

TEST(the_arguments_that_serve_writes_are_read)
{
    struct warden_args args;

    CHECK_INT(
        PARSE(&args, LAYOUT, "64200", "64201", "3", "1", "1", "12000", "-1", "0", "serve", "--x"),
        0);
    CHECK_INT(args.api_uid, 64200);
    CHECK_INT(args.api_gid, 64201);
    CHECK_INT(args.listeners, 3);
    CHECK_INT(args.log_level, LOG_INFO);
    CHECK_INT(args.log_format, LOG_JSON);
    CHECK_INT(args.drain_ms, 12000);
    CHECK_STR(args.serve[0], "serve");
    CHECK_STR(args.serve[1], "--x");
    CHECK(!args.serve[2]);
    CHECK_INT(PARSE(&args, LAYOUT, "-1", "-1", "33", "0", "0", "0", "-1", "0", "serve"), 0);
    CHECK_INT(args.api_uid, -1);
}

TEST(other_arguments_are_refused)
{
    struct warden_args args;

    CHECK_INT(PARSE(&args, "1"), -1);
    CHECK_INT(PARSE(&args, LAYOUT, "-1", "-1", "1", "0", "0", "0", "-1"), -1);
    CHECK_INT(PARSE(&args, LAYOUT, "-1", "-1", "1", "0", "0", "0", "-1", "0", "served"), -1);
    CHECK_INT(PARSE(&args, "3", "-1", "-1", "1", "0", "0", "0", "-1", "0", "serve"),
              -1); /* layout */
    CHECK_INT(PARSE(&args, LAYOUT, "-1", "-1", "1", "0", "0", "0", "0", "serve"), -1);
    CHECK_INT(PARSE(&args, LAYOUT, "0", "5", "1", "0", "0", "0", "-1", "0", "serve"),
              -1); /* root is no api */
    CHECK_INT(PARSE(&args, LAYOUT, "5", "0", "1", "0", "0", "0", "-1", "0", "serve"), -1);
    CHECK_INT(PARSE(&args, LAYOUT, "-1", "5", "1", "0", "0", "0", "-1", "0", "serve"), -1);
    CHECK_INT(PARSE(&args, LAYOUT, "-2", "-2", "1", "0", "0", "0", "-1", "0", "serve"), -1);
    CHECK_INT(PARSE(&args, LAYOUT, "4294967295", "5", "1", "0", "0", "0", "-1", "0", "serve"), -1);
    CHECK_INT(PARSE(&args, LAYOUT, "-1", "-1", "0", "0", "0", "0", "-1", "0", "serve"), -1);
    CHECK_INT(PARSE(&args, LAYOUT, "-1", "-1", "34", "0", "0", "0", "-1", "0", "serve"),
              -1); /* LISTENERS_MAX+1 */
    CHECK_INT(PARSE(&args, LAYOUT, "-1", "-1", "1x", "0", "0", "0", "-1", "0", "serve"), -1);
    CHECK_INT(PARSE(&args, LAYOUT, "-1", "-1", "1", "4", "0", "0", "-1", "0", "serve"), -1);
    CHECK_INT(PARSE(&args, LAYOUT, "-1", "-1", "1", "0", "2", "0", "-1", "0", "serve"), -1);
    CHECK_INT(PARSE(&args, LAYOUT, "-1", "-1", "1", "0", "0", "700001", "-1", "0", "serve"), -1);
    CHECK_INT(PARSE(&args, LAYOUT, "-1", "-1", "1", "0", "0", "700000", "-1", "0", "serve"), 0);
    CHECK_INT(PARSE(&args, LAYOUT, "-1", "-1", "1", "0", "0", "0", "-2", "0", "serve"), -1);
    CHECK_INT(PARSE(&args, LAYOUT, "-1", "-1", "1", "0", "0", "0", "4294967295", "0", "serve"), -1);
    CHECK_INT(PARSE(&args, LAYOUT, "5", "5", "1", "0", "0", "0", "65536", "0", "serve"),
              -1); /* or root */
    CHECK_INT(PARSE(&args, LAYOUT, "-1", "-1", "1", "0", "0", "0", "65536", "0", "serve"), 0);
    CHECK_INT(args.ids, 65536);
    CHECK_INT(PARSE(&args, LAYOUT, "-1", "-1", "1", "0", "0", "0", "-1", "-1", "serve"), -1);
    CHECK_INT(PARSE(&args, LAYOUT, "-1", "-1", "1", "0", "0", "0", "-1", "2147483648", "serve"), 0);
    CHECK_INT(args.disks_size, 2147483648);
}

TEST(ids_are_shared_out_so_that_many_boxes_have_enough)
{
    static const struct {
        uint32_t ids, each, slots;
    } plans[] = {
        { 0, 1, 64 },
        { 1023, 1, 64 },
        { 1024, 1024, 1 },
        { 65536, 1024, 64 },
        { 65535, 1024, 63 },
        { 131072, 2048, 64 },
        { 1u << 22, 65536, 64 },
        { 1u << 24, 65536, 256 },
        { UINT32_MAX, 65536, BOX_SLOTS },
    };

    for (size_t i = 0; i < ARRAY_LEN(plans); i++) {
        uint32_t each, slots;

        rootless_plan(plans[i].ids, &each, &slots);
        CHECK_INT(each, plans[i].each);
        CHECK_INT(slots, plans[i].slots);
        CHECK(each == 1 || (uint64_t)each * slots <= plans[i].ids);
    }
}

TEST(as_many_words_as_can_be_repeated_on_reload)
{
    static char *argv[WARDEN_ARGS + SERVE_ARGS_MAX + 2];
    static char words[][8] = { "atoll-w", LAYOUT, "-1", "-1", "1",     "0",
                               "0",       "0",    "-1", "0",  "serve", "--x" };
    struct warden_args args;
    int argc = 0;

    while (argc < WARDEN_ARGS + SERVE_ARGS_MAX + 1) {
        argv[argc] = words[MIN(argc, 11)];
        argc++;
    }
    CHECK_INT(warden_args_parse(&args, argc, argv), -1);
    argv[--argc] = NULL;
    CHECK_INT(warden_args_parse(&args, argc, argv), 0);
}

TEST(the_wait_after_a_death_doubles_to_its_maximum)
{
    CHECK_INT(restart_delay_ms(0), API_RESTART_MIN_MS);
    CHECK_INT(restart_delay_ms(1), API_RESTART_MIN_MS);
    CHECK_INT(restart_delay_ms(2), 2 * API_RESTART_MIN_MS);
    CHECK_INT(restart_delay_ms(5), 16 * API_RESTART_MIN_MS);
    CHECK_INT(restart_delay_ms(100), API_RESTART_MAX_MS);
    CHECK_INT(restart_delay_ms(UINT32_MAX), API_RESTART_MAX_MS);
    for (unsigned n = 1; n < 40; n++)
        CHECK(restart_delay_ms(n + 1) >= restart_delay_ms(n));
}

TEST(a_second_holds_so_many_messages_and_not_one_more)
{
    struct wire_budget budget = { 0 };

    for (int round = 1; round <= 3; round++) {
        for (int i = 0; i < WIRE_PER_SECOND_MAX; i++)
            CHECK(wire_budget_take(&budget, WIRE_PER_SECOND_MAX, round * 1000 + i));
        CHECK(!wire_budget_take(&budget, WIRE_PER_SECOND_MAX, round * 1000 + 999));
    }
}
