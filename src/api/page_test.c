/* page: its four bounds, and that pages together are the list. */
#include "api/page.h"

#include <stdio.h>

#include "base/test.h"

struct row {
    const char *id;
};
static const struct field row_fields[] = {
    FIELD(row, id, F_STRING, F_READONLY, .help = "Its id"),
    { 0 },
};
static const struct route route = { .name = "row.list", .items = row_fields };

struct seen {
    size_t rows, pages;
    char first[ID_SIZE], last[ID_SIZE], next[ID_SIZE];
};

static void name(char out[ID_SIZE], unsigned number)
{
    snprintf(out, ID_SIZE, "sb%026u", number);
}

/* One page of `count` rows, of which every `fits`th fits. */
static void page_of(unsigned count, unsigned fits, const char *after, const char *limit,
                    struct seen *seen)
{
    struct call call = { .route = &route };
    struct json *root;
    struct page page;
    struct err err;

    call.queries[call.query_count++] = (struct call_param){ "limit", limit };
    if (after[0])
        call.queries[call.query_count++] = (struct call_param){ "after", after };
    CHECK_OK(page_open(&page, &call, "sb", &err), &err);
    for (unsigned i = 0; i < count; i++) {
        char id[ID_SIZE];

        name(id, i);
        if (page.after && strcmp(id, page.after) <= 0)
            continue;
        if (!page_take(&page, id, i % fits == 0, &(struct row){ id }))
            break;
    }
    page_close(&page);
    CHECK_OK(json_parse(&call.arena, buf_view(&call.reply), &root, &err), &err);
    const struct json *items = json_get(root, "items");
    snprintf(seen->next, ID_SIZE, "%.*s", STR_FMT(json_text(root, "next")));
    seen->rows = items->count;
    json_each(item, items)
    {
        struct str id = json_text(item, "id");

        snprintf(items->first == item ? seen->first : seen->last, ID_SIZE, "%.*s", STR_FMT(id));
    }
    buf_free(&call.reply);
    arena_free(&call.arena);
}

static size_t all(unsigned count, unsigned fits, const char *limit, size_t *pages)
{
    struct seen seen = { 0 };
    size_t rows = 0;

    *pages = 0;
    do {
        page_of(count, fits, seen.next, limit, &seen);
        rows += seen.rows;
        ++*pages;
    } while (seen.next[0]);
    return rows;
}

TEST(a_page_ends_at_its_limit)
{
    struct seen seen;
    size_t pages;

    page_of(10, 1, "", "10", &seen);
    CHECK(seen.rows == 10 && !seen.next[0]);
    page_of(11, 1, "", "10", &seen);
    CHECK(seen.rows == 10);
    CHECK_STR(seen.next, seen.last);
    CHECK(all(11, 1, "10", &pages) == 11 && pages == 2);
    CHECK(all(0, 1, "10", &pages) == 0 && pages == 1);
    CHECK(all(1000, 1, "1", &pages) == 1000 && pages == 1000);
}

TEST(behind_the_last_that_fits_there_is_no_page)
{
    size_t pages;

    CHECK(all(19, 10, "2", &pages) == 2 && pages == 1); /* 0 and 10 fit */
    CHECK(all(21, 10, "2", &pages) == 3 && pages == 2); /* 20, too */
}

TEST(a_filter_that_fits_little_does_not_look_at_everything)
{
    struct seen seen;
    size_t pages;

    page_of(PAGE_LOOK_MAX, PAGE_LOOK_MAX, "", "10", &seen);
    CHECK(seen.rows == 1 && !seen.next[0]);
    page_of(PAGE_LOOK_MAX + 1, PAGE_LOOK_MAX, "", "10", &seen);
    CHECK(seen.rows == 1 && seen.next[0]);
    CHECK(all(PAGE_LOOK_MAX * 3 + 1, PAGE_LOOK_MAX, "10", &pages) == 4 && pages == 4);
}

TEST(a_page_ends_at_its_bytes)
{
    static char big[PAGE_BYTES / 2];
    struct call call = { .route = &route };
    struct page page;
    struct err err;

    memset(big, 'x', sizeof(big) - 1);
    CHECK_OK(page_open(&page, &call, "sb", &err), &err);
    CHECK(page_take(&page, "a", true, &(struct row){ big }));
    CHECK(page_take(&page, "b", true, &(struct row){ big }));
    CHECK(!page_take(&page, "c", true, &(struct row){ big }));
    page_close(&page);
    CHECK(strstr(buf_cstr(&call.reply), "\"next\":\"b\""));
    buf_free(&call.reply);
    arena_free(&call.arena);
}

TEST(what_is_no_id_is_refused)
{
    static const char *const bad[] = { "", "x", "tok00000000000000000000000000" };
    struct page page;

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct call call = { .route = &route,
                             .queries = { { "after", bad[i] } },
                             .query_count = 1 };
        struct err err;

        CHECK(page_open(&page, &call, "sb", &err) < 0);
        CHECK_STR(err.field, "after");
    }
}
