/* Leases and files: who stands in whose way, and names that lead nowhere. */
#include "hub/hub_rig.h"

static int take(struct hub_by *by, const char *project, const char *agent, const char *path,
                const char *mode, struct hub_lease *out, struct err *err)
{
    const char *paths[] = { path, NULL };
    struct hub_lease_wish wish = {
        .agent = agent, .paths = paths, .mode = mode, .ttl_seconds = 10
    };

    return hub_lease_take(by, project, &wish, out, err);
}

static void ways(struct hub_by *by)
{
    static const struct {
        const char *held, *held_mode, *wanted, *wanted_mode;
        int free;
    } table[] = {
        { "src", NULL, "src", NULL, 0 },          { "src", NULL, "src/a.c", NULL, 0 },
        { "src/a.c", NULL, "src", NULL, 0 },      { "src/a", NULL, "src/ab", NULL, 1 },
        { "src", NULL, "docs", NULL, 1 },         { ".", NULL, "docs", NULL, 0 },
        { "./src/", NULL, "src", NULL, 0 },       { "src", "shared", "src", "shared", 1 },
        { "src", "shared", "src", NULL, 0 },      { "src", NULL, "src", "shared", 0 },
        { "src//a", NULL, "src/./a/b", NULL, 0 },
    };

    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        const char *project = add_project(by);
        struct hub_lease held, wanted;

        WELL(take(by, project, "a", table[i].held, table[i].held_mode, &held, &err));
        struct err why = { 0 };
        int rc = take(by, project, "b", table[i].wanted, table[i].wanted_mode, &wanted, &why);
        CHECK_INT(rc, table[i].free ? 0 : 1);
        if (!table[i].free)
            CHECK_STR(wanted.id, held.id); /* who stands in the way */
        if (!table[i].free)                /* but never in one's own */
            CHECK_INT(take(by, project, "a", table[i].wanted, NULL, &wanted, &why), 0);
        if (!table[i].free && !table[i].held_mode) {
            by->now_ms += 10000; /* its time is over, to the millisecond */
            CHECK_INT(take(by, project, "b", table[i].held, NULL, &wanted, &why), 0);
            FAILS(hub_lease_renew(by, project, held.id, 10, &held, &err), ERR_NOT_FOUND);
        }
    }
}

TEST(lease_stands_in_the_way_of_what_it_covers)
{
    rig(ways);
}

static void later(struct hub_by *by)
{
    const char *project = add_project(by);
    static const char *const bad[] = { "", "/etc", "..", "a/../b", "a\\b", "a\nb" };
    struct hub_lease one, other;

    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        FAILS(take(by, project, "a", bad[i], NULL, &one, &err), ERR_INVALID);
    WELL(take(by, project, "a", "src", NULL, &one, &err));
    by->agent = "b";
    FAILS(hub_lease_renew(by, project, one.id, 10, &one, &err), ERR_FORBIDDEN);
    FAILS(hub_lease_release(by, project, one.id, &err), ERR_FORBIDDEN);
    by->agent = NULL;
    by->now_ms += 9999;
    WELL(hub_lease_renew(by, project, one.id, 10, &one, &err));
    by->now_ms += 9999;
    struct err why = { 0 };
    CHECK_INT(take(by, project, "b", "src", NULL, &other, &why), 1);
    WELL(hub_lease_release(by, project, one.id, &err));
    CHECK_INT(take(by, project, "b", "src", NULL, &other, &why), 0);
    CHECK_INT(hub_leases_sweep(by->db, by->now_ms, &why), 1); /* that one stays */
    CHECK_INT(hub_leases_sweep(by->db, by->now_ms + 10000, &why), 0);
    FAILS(hub_lease_release(by, project, other.id, &err), ERR_NOT_FOUND);
}

TEST(lease_is_renewed_released_and_ends)
{
    rig(later);
}

static int put(struct hub_by *by, const char *project, const char *name, struct str data,
               struct hub_file *out, struct err *err)
{
    return hub_file_put(by, project, str_of(name), "a", data, out, err);
}

static void files(struct hub_by *by)
{
    const char *project = add_project(by);
    static const char *const bad[] = { "",     "/etc/passwd", "../etc/passwd", "a..b",
                                       "a//b", "./a",         "a/./b",         "a/",
                                       "a b",  "a\\b",        "\xc3\xa9" };
    char longest[HUB_FILE_NAME_MAX + 2];
    struct hub_file file;
    struct str data;

    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        FAILS(put(by, project, bad[i], STR("x"), &file, &err), ERR_INVALID);
    memset(longest, 'x', sizeof(longest));
    longest[HUB_FILE_NAME_MAX] = 0;
    WELL(put(by, project, longest, STR("x"), &file, &err));
    longest[HUB_FILE_NAME_MAX] = 'x';
    longest[HUB_FILE_NAME_MAX + 1] = 0;
    FAILS(put(by, project, longest, STR("x"), &file, &err), ERR_INVALID);
    for (int i = 1; i <= HUB_VERSIONS_MAX + 1; i++) {
        WELL(put(by, project, "d/e.txt", str_of(arena_printf(by->arena, "v%d", i)), &file, &err));
        CHECK_INT(file.version, i);
    }
    FAILS(hub_file_get(by, project, "d/e.txt", 1, &file, &data, &err), ERR_NOT_FOUND);
    WELL(hub_file_get(by, project, "d/e.txt", 2, &file, &data, &err));
    CHECK(str_is(data, "v2"));
    WELL(hub_file_get(by, project, "d/e.txt", 0, &file, &data, &err));
    CHECK(str_is(data, "v11"));
    CHECK_INT(test_number(by->db, "SELECT bytes FROM hub_project"), 1 + 2 * 8 + 3 * 2);
    CHECK_INT(test_number(by->db, "SELECT bytes FROM hub_state"), 1 + 2 * 8 + 3 * 2);
    WELL(hub_file_delete(by, project, "d/e.txt", &err));
    FAILS(hub_file_get(by, project, "d/e.txt", 0, &file, NULL, &err), ERR_NOT_FOUND);
    WELL(hub_project_delete(by, project, &err));
    CHECK_INT(test_number(by->db, "SELECT count(*) FROM hub_blob"), 0);
    CHECK_INT(test_number(by->db, "SELECT bytes FROM hub_state"), 0);
}

TEST(lease_files_have_versions_and_names_that_lead_nowhere)
{
    rig(files);
}

static void quota(struct hub_by *by)
{
    const char *project = add_project(by);
    char *most = arena_alloc(by->arena, HUB_FILE_MAX + 1);
    struct hub_file file;
    struct str data;
    autoquery struct query *q = db_query(by->db, "UPDATE hub_project SET bytes = $1");
    autoquery struct query *spoil = db_query(by->db, "UPDATE hub_blob SET data = $1");

    WELL(put(by, project, "most", (struct str){ most, HUB_FILE_MAX }, &file, &err));
    FAILS(put(by, project, "more", (struct str){ most, HUB_FILE_MAX + 1 }, &file, &err),
          ERR_INVALID);
    query_i64(q, 1, HUB_PROJECT_BYTES - 1);
    WELL(query_run(q, &err));
    WELL(put(by, project, "last", STR("x"), &file, &err));
    FAILS(put(by, project, "over", STR("y"), &file, &err), ERR_CONFLICT);
    query_blob(spoil, 1, "other", 5);
    WELL(query_run(spoil, &err));
    FAILS(hub_file_get(by, project, "most", 0, &file, &data, &err), ERR_NOT_FOUND);
}

TEST(lease_files_have_a_quota_and_are_what_they_were)
{
    rig(quota);
}
