/* Boards: claims, limits, columns, reviews, blockers; against the table of the hub's own rules. */
#include "hub/hub_rig.h"

static void hundred(struct hub_by *by)
{
    const char *project = add_project(by), *task = add_task(by, project, NULL);
    int won = 0, lost = 0;

    for (int i = 0; i < 100; i++) {
        const char *name = arena_printf(by->arena, "agent-%d", i);
        int code = CODE(claim(by, project, task, name, &err));

        won += code == ERR_NONE;
        lost += code == ERR_CONFLICT;
    }
    CHECK_INT(won, 1);
    CHECK_INT(lost, 99);
    WELL(claim(by, project, task, "agent-0", &err)); /* again: its own */
}

TEST(board_gives_a_task_to_one_of_a_hundred)
{
    rig(hundred);
}

static void ids(struct hub_by *by)
{
    struct map seen = { 0 };

    for (int i = 0; i < 1000; i++) {
        struct str id = str_of(hub_uuid(by)), tail = str_from(id, 15); /* behind time and version */

        CHECK(uuid_shaped(id) && id.p[14] == '7');
        CHECK(map_get(&seen, tail) == NULL);
        map_put(&seen, tail, by);
    }
    map_free(&seen);
}

TEST(board_ids_share_no_random_bytes)
{
    rig(ids);
}

static void missing(struct hub_by *by)
{
    const char *project = add_project(by);
    struct hub_task_wish good = { .title = "t" }, bad = { .title = "" };
    struct hub_task out;

    FAILS(hub_task_create(by, "nowhere", &good, false, &out, &err), ERR_NOT_FOUND);
    FAILS(hub_task_create(by, "nowhere", &bad, false, &out, &err), ERR_NOT_FOUND);
    FAILS(hub_task_create(by, project, &bad, false, &out, &err), ERR_INVALID);
    WELL(hub_task_create(by, project, &good, false, &out, &err));
}

TEST(board_that_is_not_there_is_told_before_anything_else)
{
    rig(missing);
}

static void capabilities(struct hub_by *by)
{
    const char *project = add_project(by), *task = add_task(by, project, "Code");

    add_agent(by, "none", NULL);
    add_agent(by, "other", "review");
    add_agent(by, "able", " CODE ");
    FAILS(claim(by, project, task, "none", &err), ERR_INVALID);
    FAILS(claim(by, project, task, "stranger", &err), ERR_INVALID);
    FAILS(claim(by, project, task, "other", &err), ERR_INVALID);
    WELL(claim(by, project, task, "able", &err));
}

TEST(board_wants_capabilities_that_an_empty_profile_has_not)
{
    rig(capabilities);
}

static void limits(struct hub_by *by)
{
    const char *project = add_project(by), *last = NULL;
    struct json limit = { .type = JSON_INT, .num = 4 };
    struct hub_wip_wish wish = { .status = "TaskStatus.IN_PROGRESS", .limit = &limit };

    for (int i = 0; i < 3; i++) {
        last = add_task(by, project, NULL);
        WELL(claim(by, project, last, "a", &err));
        WELL(move_to(by, project, last, "in_progress", &err));
    }
    const char *fourth = add_task(by, project, NULL);
    FAILS(claim(by, project, fourth, "a", &err), ERR_INVALID);
    WELL(claim(by, project, fourth, "b", &err)); /* each has its own limit */
    WELL(hub_wip_set(by, project, &wish, &err));
    const char *fifth = add_task(by, project, NULL);
    WELL(claim(by, project, fifth, "a", &err));
    WELL(move_to(by, project, fifth, "in_progress", &err));
    FAILS(claim(by, project, add_task(by, project, NULL), "a", &err), ERR_INVALID);
    wish.status = "ready";
    limit.num = 1;
    WELL(hub_wip_set(by, project, &wish, &err));
    WELL(claim(by, project, add_task(by, project, NULL), "c", &err));
    FAILS(claim(by, project, add_task(by, project, NULL), "c", &err), ERR_INVALID);
    const char *other = add_project(by); /* each project too */
    WELL(claim(by, other, add_task(by, other, NULL), "c", &err));
    wish.status = "in_review";
    limit = (struct json){ .type = JSON_STRING, .text = STR("0") };
    WELL(hub_wip_set(by, project, &wish, &err));
    FAILS(move_to(by, project, last, "in_review", &err), ERR_INVALID);
    limit.text = STR("1");
    WELL(hub_wip_set(by, project, &wish, &err));
    WELL(move_to(by, project, last, "in_review", &err));
    limit.text = STR("x");
    FAILS(hub_wip_set(by, project, &wish, &err), ERR_INVALID);
    limit = (struct json){ .type = JSON_INT, .num = HUB_WIP_MAX };
    WELL(hub_wip_set(by, project, &wish, &err));
    limit.num++;
    FAILS(hub_wip_set(by, project, &wish, &err), ERR_INVALID);
    wish.status = "nowhere";
    FAILS(hub_wip_set(by, project, &wish, &err), ERR_INVALID);
}

TEST(board_limits_what_one_agent_has_in_a_column)
{
    rig(limits);
}

/* As the table of the original stands, row by row. */
static bool in_table(const char *from, const char *to)
{
    static const char *const rows[][2] = {
        { "backlog", "ready" },         { "backlog", "blocked" },
        { "ready", "backlog" },         { "ready", "in_progress" },
        { "ready", "blocked" },         { "in_progress", "ready" },
        { "in_progress", "in_review" }, { "in_progress", "blocked" },
        { "in_review", "in_progress" }, { "in_review", "done" },
        { "blocked", "backlog" },       { "blocked", "ready" },
        { "done", "backlog" },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (strcmp(rows[i][0], from) == 0 && strcmp(rows[i][1], to) == 0)
            return true;
    return false;
}

static void columns(struct hub_by *by)
{
    const char *project = add_project(by), *task = add_task(by, project, NULL);
    const char *now = "backlog";
    int moved = 0;

    for (int i = 0; i < 3000; i++) {
        const char *to = hub_statuses[test_rand(6)];
        int code = CODE(move_to(by, project, task, to, &err));

        CHECK_INT(code, in_table(now, to) ? ERR_NONE : ERR_INVALID);
        if (code == ERR_NONE)
            now = to, moved++;
        CHECK_STR(status_of(by, task), now);
    }
    struct hub_task whole;
    WELL(hub_task_get(by, project, task, &whole, &err));
    CHECK_INT(whole.transitions.count, moved);
    FAILS(move_to(by, project, task, "nowhere", &err), ERR_INVALID);
    FAILS(move_to(by, project, "no-such-task", "ready", &err), ERR_NOT_FOUND);
    FAILS(move_to(by, add_project(by), task, "ready", &err), ERR_INVALID);
}

TEST(board_moves_as_its_table_says)
{
    rig(columns);
}

static void blockers(struct hub_by *by)
{
    const char *project = add_project(by), *first = add_task(by, project, NULL);
    const char *second = add_task(by, project, NULL), *waits = add_task(by, project, NULL);
    struct json b = { .type = JSON_STRING, .text = str_of(second) };
    struct json a = { .type = JSON_STRING, .text = str_of(first), .next = &b };
    struct json both = { .type = JSON_ARRAY, .count = 2, .first = &a };
    struct hub_patch wish = { .status = "blocked", .blocked_by = &both, .blocked_reason = "why" };
    static const char *const way[] = { "ready", "in_progress", "in_review", "done" };
    struct hub_task out;

    WELL(move_to(by, project, waits, "ready", &err));
    WELL(hub_patch(by, project, waits, &wish, 1, &out, NULL, &err));
    for (size_t i = 0; i < ARRAY_LEN(way); i++)
        WELL(move_to(by, project, first, way[i], &err));
    CHECK_STR(status_of(by, waits), "blocked"); /* by the other one */
    for (size_t i = 0; i < ARRAY_LEN(way); i++)
        WELL(move_to(by, project, second, way[i], &err));
    CHECK_STR(status_of(by, waits), "ready");
    WELL(hub_task_get(by, project, waits, &out, &err));
    CHECK_STR(out.blocked_reason, "");
    CHECK(out.blocked_by == NULL || out.blocked_by->type == JSON_NULL);
    a.text = str_of(waits);
    FAILS(hub_patch(by, project, waits, &wish, 1, &out, NULL, &err), ERR_INVALID); /* for itself */
}

TEST(board_unblocks_when_the_last_blocker_is_done)
{
    rig(blockers);
}

static void reviews(struct hub_by *by)
{
    const char *project = add_project(by), *task = add_task(by, project, NULL);
    struct hub_verdict wish = { .reviewer = "rev" };
    struct hub_task out;

    WELL(claim(by, project, task, "own", &err));
    WELL(hub_reviewer_add(by, project, task, "rev", &err));
    WELL(hub_reviewer_add(by, project, task, "own", &err));
    WELL(move_to(by, project, task, "in_progress", &err));
    FAILS(hub_review(by, project, task, &wish, true, &out, &err), ERR_CONFLICT); /* not yet */
    WELL(move_to(by, project, task, "in_review", &err));
    FAILS(move_to(by, project, task, "done", &err), ERR_CONFLICT);
    wish.reviewer = "own";
    FAILS(hub_review(by, project, task, &wish, true, &out, &err), ERR_FORBIDDEN);
    wish.reviewer = "stranger";
    FAILS(hub_review(by, project, task, &wish, true, &out, &err), ERR_FORBIDDEN);
    wish.reviewer = "rev";
    WELL(hub_review(by, project, task, &wish, true, &out, &err));
    WELL(hub_review(by, project, task, &wish, false, &out, &err)); /* thought better of it */
    CHECK_STR(status_of(by, task), "in_progress");
    WELL(move_to(by, project, task, "in_review", &err));
    FAILS(move_to(by, project, task, "done", &err), ERR_CONFLICT); /* that was another round */
    WELL(hub_review(by, project, task, &wish, true, &out, &err));
    WELL(move_to(by, project, task, "done", &err));
}

TEST(board_is_done_only_with_approvals)
{
    rig(reviews);
}

static void modes(struct hub_by *by)
{
    const char *project = add_project(by), *task = add_task(by, project, NULL);
    struct hub_proposal one = { 0 }, again = { 0 };
    struct hub_register wish = { .name = "a", .autonomy_mode = "fully_autonomous" };
    struct hub_agent out;

    add_agent(by, "a", NULL);
    WELL(hub_set_mode(by, "a", "manual", &err));
    FAILS(claim(by, project, task, "a", &err), ERR_FORBIDDEN);
    by->agent = "a"; /* it does not free itself */
    FAILS(hub_set_mode(by, "a", "advisory", &err), ERR_FORBIDDEN);
    WELL(hub_register(by, &wish, &out, &err));
    CHECK_STR(out.autonomy_mode, "manual");
    FAILS(hub_unregister(by, "a", &err), ERR_FORBIDDEN);
    by->agent = NULL;
    WELL(hub_set_mode(by, "a", "advisory", &err));
    WELL(hub_claim(by, project, task, "a", &one, &err));
    WELL(hub_claim(by, project, task, "a", &again, &err));
    CHECK(one.id && strcmp(one.id, again.id) == 0);
    CHECK_STR(status_of(by, task), "backlog");
    WELL(hub_decided(by, one.id,
                     arena_printf(by->arena, "{\"project\":\"%s\",\"task\":\"%s\",\"agent\":\"a\"}",
                                  project, task),
                     true, &err));
    CHECK_STR(status_of(by, task), "ready");
    FAILS(
        hub_decided(by, one.id,
                    arena_printf(by->arena, "{\"project\":\"%s\",\"task\":\"%s\",\"agent\":\"b\"}",
                                 project, task),
                    true, &err),
        ERR_CONFLICT);
}

TEST(board_does_as_modes_say)
{
    rig(modes);
}

static void task_count(struct hub_by *by)
{
    const char *project = add_project(by);
    struct hub_task_wish wish = { .title = "t" };
    struct hub_task out;
    autoquery struct query *q = db_query(by->db, "UPDATE hub_project SET tasks = $1 WHERE id = $2");

    query_i64(q, 1, HUB_TASKS_MAX - 1);
    query_text(q, 2, project);
    WELL(query_run(q, &err));
    WELL(hub_task_create(by, project, &wish, false, &out, &err));
    FAILS(hub_task_create(by, project, &wish, false, &out, &err), ERR_CONFLICT);
    FAILS(hub_task_create(by, "no-project", &wish, false, &out, &err), ERR_NOT_FOUND);
}

TEST(board_has_a_limit)
{
    rig(task_count);
}
