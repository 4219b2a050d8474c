/* event: numbers without gaps, pages, the floor, filters, limits; and sweeping what is old. */
#include "store/store.h"

#include "base/limits.h"
#include "store/engine.h"
#include "store/testing.h"

static struct db *fresh(void)
{
    autofree char *path = test_path("db");
    struct db *db;
    struct err err;

    CHECK_OK(store_open_alone(&db, path, true, &err), &err);
    return db;
}

static void sql(struct db *db, const char *text)
{
    struct err err;

    CHECK_OK(db->engine->script(db, text, &err), &err);
}

static int add_some(struct db *db, void *ctx, struct err *err)
{
    for (int i = 0; i < *(int *)ctx; i++) {
        autofree char *body = xprintf("{\"i\":%d}", i);

        if (event_add(db, "default", "test.some", "thing/1", str_of(body), err) < 0)
            return -1;
    }
    return 0;
}

static void add(struct db *db, int count)
{
    struct err err;

    CHECK_OK(test_alone(db, add_some, &count, &err), &err);
}

static unsigned page_len(struct db *db, int64_t since, unsigned limit, struct event_page *page)
{
    struct err err;
    unsigned count = 0;

    *page = (struct event_page){ 0 };
    CHECK_OK(event_page(db, "default", since, limit, page, &err), &err);
    for (const struct event *event = page->first; event; event = event->next)
        CHECK_INT(event->seq, since + ++count);
    event_list_free(page->first);
    return count;
}

TEST(pages_follow_each_other)
{
    struct db *db = fresh();
    struct event_page page;

    CHECK_INT(page_len(db, 0, 10, &page), 0);
    CHECK_INT(page.head, 0);
    CHECK_INT(page.floor, 1);
    add(db, 25);
    CHECK_INT(page_len(db, 0, 10, &page), 10);
    CHECK_INT(page_len(db, 10, 10, &page), 10);
    CHECK_INT(page_len(db, 20, 10, &page), 5);
    CHECK_INT(page.head, 25);
    CHECK_INT(page.floor, 1);
    CHECK_INT(page_len(db, 25, 10, &page), 0);
    CHECK_INT(page_len(db, 26, 10, &page), 0);
    CHECK_INT(page_len(db, INT64_MAX, 10, &page), 0);
    CHECK_INT(page_len(db, 0, 25, &page), 25);
    CHECK_INT(page_len(db, 0, 26, &page), 25);
    CHECK_INT(event_last_seq(db), 25);
    store_close_alone(db);
}

TEST(an_event_comes_back_as_it_was_made)
{
    struct db *db = fresh();
    struct event_page page = { 0 };
    struct err err;

    CHECK_OK(event_add(db, "default", "a.b", "", STR("{\"x\":\"\\u0000\"}"), &err), &err);
    CHECK_OK(event_page(db, "default", 0, 1, &page, &err), &err);
    CHECK_STR(page.first->tenant, "default");
    CHECK_STR(page.first->type, "a.b");
    CHECK_STR(page.first->object, "");
    CHECK(str_is(page.first->body, "{\"x\":\"\\u0000\"}"));
    CHECK(page.first->at_ms > 1600000000000);
    struct event *copy = event_copy(page.first);
    CHECK(copy != page.first && copy->body.p != page.first->body.p);
    CHECK_INT(copy->seq, 1);
    CHECK(copy->at_ms == page.first->at_ms && str_eq(copy->body, page.first->body));
    CHECK_STR(copy->type, "a.b");
    event_list_free(copy);
    event_list_free(page.first);
    store_close_alone(db);
}

TEST(tenants_have_numbers_of_their_own)
{
    struct db *db = fresh();
    struct event_page page = { 0 };
    struct err err;

    sql(db, "INSERT INTO tenant (id) VALUES ('other')");
    add(db, 3);
    CHECK_OK(event_add(db, "other", "t", "", STR("{}"), &err), &err);
    CHECK_INT(event_last_seq(db), 1);
    CHECK_OK(event_page(db, "other", 0, 10, &page, &err), &err);
    CHECK(page.head == 1 && page.first && !page.first->next);
    event_list_free(page.first);
    CHECK_INT(event_add(db, "nobody", "t", "", STR("{}"), &err), -1);
    CHECK_INT(err.code, ERR_NOT_FOUND);
    CHECK_OK(event_page(db, "nobody", 0, 10, &page, &err), &err);
    CHECK(page.head == 0 && page.floor == 1 && !page.first);
    store_close_alone(db);
}

TEST(limits_hold_at_the_limit_and_one_past_it)
{
    struct db *db = fresh();
    struct err err = { 0 };
    static char big[EVENT_BODY_MAX + 1];
    char name[EVENT_NAME_MAX + 2];

    memset(big, ' ', sizeof(big));
    memset(name, 'n', sizeof(name));
    name[EVENT_NAME_MAX] = 0;
    struct str most = { big, EVENT_BODY_MAX }, more = { big, EVENT_BODY_MAX + 1 };
    CHECK_OK(event_add(db, "default", "t", "", most, &err), &err);
    CHECK_INT(event_add(db, "default", "t", "", more, &err), -1);
    CHECK_INT(err.code, ERR_LIMIT);
    CHECK_OK(event_add(db, "default", name, name, STR("{}"), &err), &err);
    name[EVENT_NAME_MAX] = 'n', name[EVENT_NAME_MAX + 1] = 0;
    CHECK_INT(event_add(db, "default", name, "", STR("{}"), &err), -1);
    CHECK_INT(err.code, ERR_LIMIT);
    CHECK_INT(event_add(db, "default", "t", name, STR("{}"), &err), -1);
    CHECK_INT(test_number(db, "SELECT event_seq FROM tenant WHERE id = 'default'"), 2);
    store_close_alone(db);
}

TEST(a_page_of_large_bodies_ends_early_and_is_not_empty)
{
    struct db *db = fresh();
    struct event_page page;
    struct err err;
    static char big[EVENT_BODY_MAX];

    memset(big, ' ', sizeof(big));
    for (int i = 0; i < 40; i++)
        CHECK_OK(event_add(db, "default", "t", "", (struct str){ big, sizeof(big) }, &err), &err);
    unsigned fits = EVENT_PAGE_BYTES / EVENT_BODY_MAX;
    CHECK_INT(page_len(db, 0, 1000, &page), fits);
    CHECK_INT(page_len(db, fits, 1000, &page), fits);
    store_close_alone(db);
}

TEST(events_are_never_changed_and_a_hole_is_an_error)
{
    struct db *db = fresh();
    struct event_page page = { 0 };
    struct err err = { 0 };

    add(db, 10);
    CHECK_INT(db->engine->script(db, "UPDATE event SET body = '{}' WHERE seq = 3", &err), -1);
    CHECK(strstr(err.msg, "never changed") != NULL);
    CHECK_INT(db->engine->script(db, "REPLACE INTO event SELECT * FROM event WHERE seq = 3", &err),
              -1);
    CHECK(strstr(err.msg, "only added") != NULL);
    CHECK_INT(db->engine->script(db, "DELETE FROM event WHERE seq = 5", &err), -1);
    CHECK(strstr(err.msg, "only added") != NULL);
    sql(db, "DROP TRIGGER event_no_delete");
    sql(db, "DELETE FROM event WHERE seq = 5");
    CHECK_INT(event_page(db, "default", 2, 10, &page, &err), -1);
    CHECK(strstr(err.msg, "event 5 of default is missing") != NULL);
    CHECK(page.first == NULL);
    store_close_alone(db);
}

/* A number that was taken and given back wrongly. */
static int add_with_a_gap(struct db *db, void *ctx, struct err *err)
{
    if (event_add(db, "default", "t", "", STR("{}"), err) < 0)
        return -1;
    ((struct event_head *)map_get(&db->event_heads, STR("default")))->seq += *(int *)ctx;
    return event_add(db, "default", "t", "", STR("{}"), err);
}

static int take_a_number(struct db *db, void *ctx, struct err *err)
{
    (void)ctx;
    if (event_add(db, "default", "t", "", STR("{}"), err) < 0)
        return -1;
    ((struct event_head *)map_get(&db->event_heads, STR("default")))->seq++;
    return 0;
}

static int add_behind_its_back(struct db *db, void *ctx, struct err *err)
{
    (void)ctx;
    if (event_add(db, "default", "t", "", STR("{}"), err) < 0)
        return -1;
    return db->engine->script(db, "UPDATE tenant SET event_seq = event_seq + 1", err);
}

TEST(events_are_added_at_the_end_and_nowhere_else)
{
    struct db *db = fresh();
    struct event_page page;
    struct err err = { 0 };

    add(db, 3);
    for (int gap = -1; gap <= 1; gap += 2) {
        CHECK_INT(test_alone(db, add_with_a_gap, &gap, &err), -1);
        CHECK(strstr(err.msg, "is not the next one") != NULL);
    }
    CHECK_INT(test_alone(db, take_a_number, NULL, &err), -1);
    CHECK(strstr(err.msg, "has moved") != NULL);
    CHECK_INT(test_alone(db, add_behind_its_back, NULL, &err), -1);
    CHECK(strstr(err.msg, "has moved") != NULL);
    sql(db, "UPDATE tenant SET event_seq = 2"); /* by somebody else: no row is written over */
    CHECK_INT(test_alone(db, add_some, &(int){ 1 }, &err), -1);
    sql(db, "UPDATE tenant SET event_seq = 3");
    add(db, 1);
    CHECK_INT(page_len(db, 0, 10, &page), 4);
    store_close_alone(db);
}

/* ---- retention ---- */

static int sweep(struct db *db, int64_t now_ms)
{
    struct err err;
    int rows = store_sweep_at(db, now_ms, &err);

    CHECK_OK(rows, &err);
    return rows;
}

TEST(old_events_go_from_the_floor_up_and_who_asks_for_them_is_told)
{
    struct db *db = fresh();
    struct event_page page = { 0 };
    struct err err = { 0 };
    const int64_t now = 1000 * EVENT_KEEP_MS;

    add(db, 30);
    sql(db, "DROP TRIGGER event_no_update");
    /* check-style: allow sql: a number of our own */
    autofree char *age = xprintf("UPDATE event SET at_ms = %lld + seq", (long long)now);
    sql(db, age);
    CHECK_INT(sweep(db, now + EVENT_KEEP_MS), 0);
    CHECK_INT(sweep(db, now + EVENT_KEEP_MS + 11), 10); /* 1..10 are older than that */
    CHECK_INT(event_page(db, "default", 9, 5, &page, &err), -1);
    CHECK_INT(err.code, ERR_GONE);
    CHECK_INT(page_len(db, 10, 5, &page), 5);
    CHECK_INT(page.floor, 11);
    CHECK_INT(sweep(db, now + 2 * EVENT_KEEP_MS), 20);
    CHECK_INT(event_page(db, "default", 29, 5, &page, &err), -1);
    CHECK_INT(page_len(db, 30, 5, &page), 0);
    CHECK_INT(page.floor, page.head + 1);
    CHECK_INT(sweep(db, now + 3 * EVENT_KEEP_MS), 0);
    add(db, 1); /* the numbers go on */
    CHECK_INT(page_len(db, 30, 5, &page), 1);
    store_close_alone(db);
}

/* Against a look at every event: times that repeat, gaps between them, a floor above 1. */
TEST(the_last_event_before_a_time_is_found)
{
    struct db *db = fresh();
    int64_t times[40], at = 1000, got;
    struct err err = { 0 };

    CHECK_OK(event_before(db, "default", 5, &got, &err), &err);
    CHECK_INT(got, 0);
    add(db, (int)ARRAY_LEN(times));
    sql(db, "DROP TRIGGER event_no_update");
    for (size_t i = 0; i < ARRAY_LEN(times); i++) {
        autofree char *set = xprintf("UPDATE event SET at_ms = %lld WHERE seq = %zu",
                                     (long long)(times[i] = at += test_rand(3)), i + 1);
        sql(db, set);
    }
    for (int floor = 1; floor <= 11; floor += 10) {
        autofree char *set = xprintf("UPDATE tenant SET event_floor = %d;"
                                     "DELETE FROM event WHERE seq < %d",
                                     floor, floor);
        sql(db, set);
        for (int64_t ask = 998; ask < at + 3; ask++) {
            int64_t want = floor - 1;

            for (size_t i = (size_t)floor - 1; i < ARRAY_LEN(times); i++)
                want = times[i] < ask ? (int64_t)i + 1 : want;
            CHECK_OK(event_before(db, "default", ask, &got, &err), &err);
            CHECK_INT(got, want);
        }
    }
    store_close_alone(db);
}

/* Numbers are moved instead of writing a million rows. */
TEST(too_many_events_go_too)
{
    struct db *db = fresh();
    struct event_page page;

    add(db, 20);
    sql(db, "DROP TRIGGER event_no_update");
    /* check-style: allow sql: numbers of our own */
    autofree char *move = xprintf("UPDATE event SET seq = seq + %d WHERE seq > 10;"
                                  "UPDATE tenant SET event_seq = %d;",
                                  EVENT_KEEP_ROWS - 10, EVENT_KEEP_ROWS + 10);
    sql(db, move);
    CHECK_INT(sweep(db, 0), 10); /* 1..10; what follows is within the newest million */
    CHECK_INT(page_len(db, EVENT_KEEP_ROWS, 100, &page), 10);
    CHECK_INT(page.floor, 11);
    store_close_alone(db);
}

TEST(a_sweep_removes_a_bounded_number_of_rows)
{
    struct db *db = fresh();
    struct event_page page;
    const int64_t far = INT64_MAX / 2;

    add(db, STORE_SWEEP_ROWS + 1);
    CHECK_INT(sweep(db, far), STORE_SWEEP_ROWS);
    CHECK_INT(page_len(db, STORE_SWEEP_ROWS, 10, &page), 1);
    CHECK_INT(sweep(db, far), 1);
    CHECK_INT(sweep(db, far), 0);
    store_close_alone(db);
}

static void check_swept(const char *insert, const char *count, int64_t keep_ms)
{
    struct db *db = fresh();
    const int64_t at = 1000000000000;

    sql(db, insert); /* with time 1000000000000 */
    CHECK_INT(test_number(db, count), 1);
    CHECK_INT(sweep(db, at + keep_ms), 0);
    CHECK_INT(test_number(db, count), 1);
    CHECK_INT(sweep(db, at + keep_ms + 1), 1);
    CHECK_INT(test_number(db, count), 0);
    store_close_alone(db);
}

TEST(nonces_keys_sessions_and_codes_end_with_their_time)
{
    check_swept("INSERT INTO nonce VALUES ('k', 1000000000000)", "SELECT count(*) FROM nonce",
                2ll * AUTH_SKEW_MS);
    check_swept("INSERT INTO idempotency VALUES ('default', 'p', 'k', 'r', 'h', 201, '{}',"
                " 1000000000000)",
                "SELECT count(*) FROM idempotency", IDEMPOTENCY_KEEP_MS);
    check_swept("INSERT INTO session (id, tenant, role, hash, csrf, created_ms, expires_ms) VALUES"
                " ('s', 'default', 'admin', 'h', 'c', 1, 1000000000000)",
                "SELECT count(*) FROM session", 0);
    check_swept("INSERT INTO login_code (hash, tenant, role, expires_ms) VALUES"
                " ('h', 'default', 'admin', 1000000000000)",
                "SELECT count(*) FROM login_code", 0);
}

/* ---- parsing and filters ---- */

TEST(since_is_digits_and_nothing_else)
{
    int64_t out = -7;

    CHECK(event_since_parse(STR("0"), &out) && out == 0);
    CHECK(event_since_parse(STR("41"), &out) && out == 41);
    CHECK(event_since_parse(STR("9223372036854775807"), &out) && out == INT64_MAX);
    static const char *const wrong[] = { "",
                                         "-1",
                                         "+1",
                                         " 1",
                                         "1 ",
                                         "01",
                                         "1.0",
                                         "0x1",
                                         "1e3",
                                         "-0",
                                         "١",
                                         "1\n",
                                         "9223372036854775808",
                                         "99999999999999999999999999" };
    out = 5;
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++)
        CHECK(!event_since_parse(str_of(wrong[i]), &out));
    CHECK(!event_since_parse((struct str){ "1\0", 2 }, &out));
    CHECK_INT(out, 5);
}

TEST(filters_by_type_and_object)
{
    static const struct {
        const char *type, *object, *types, *wanted;
        bool fits;
    } cases[] = {
        { "token.created", "token/t1", NULL, NULL, true },
        { "token.created", "token/t1", "", "", true },
        { "token.created", "token/t1", "token.created", NULL, true },
        { "token.created", "token/t1", "token.revoked", NULL, false },
        { "token.created", "token/t1", "token.revoked,token.created", NULL, true },
        { "token.created", "token/t1", "token.revoked, token.created ", NULL, true },
        { "token.created", "token/t1", "token.*", NULL, true },
        { "token.created", "token/t1", "tok*", NULL, false }, /* a prefix ends with a dot */
        { "tokens", "", "token.*", NULL, false },
        { "token", "", "token.*", NULL, false },
        { "token.created", "token/t1", "*", NULL, true },
        { "token.created", "token/t1", ",", NULL, false },
        { "token.created", "token/t1", "note.*,,token.*", NULL, true },
        { "token.created", "token/t1", "token.create", NULL, false },
        { "token.created", "token/t1", NULL, "token/t1", true },
        { "token.created", "token/t1", NULL, "token/t", false },
        { "token.created", "token/t1", NULL, "token/", true },
        { "token.created", "token/t1", NULL, "tok/", false },
        { "note.created", "", NULL, "note/", false },
        { "token.created", "token/t1", "token.*", "token/t2", false },
        { "token.created", "token/t1", "note.*", "token/t1", false },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct event event = { .type = (char *)cases[i].type, .object = (char *)cases[i].object };
        struct event_filter filter = { cases[i].types, cases[i].wanted };

        if (event_matches(&event, &filter) != cases[i].fits)
            test_fail(__FILE__, __LINE__, "case %zu: %s %s", i, cases[i].type, cases[i].types);
    }
}
