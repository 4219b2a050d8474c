/* What there may be of each thing: the last one fits, and the next does not. */
#include "hub/hub_rig.h"

/* Rows 1 to $1 of a table, made by the store itself. */
#define MANY "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $1)"

static void fill(struct hub_by *by, const char *literal_sql, int64_t count, const char *project)
{
    autoquery struct query *q = db_query(by->db, literal_sql);

    query_i64(q, 1, count);
    if (project)
        query_text(q, 2, project);
    WELL(query_run(q, &err));
}

static void agents(struct hub_by *by)
{
    struct hub_register wish = { .name = "one too many" };
    struct hub_agent out;

    fill(by,
         MANY " INSERT INTO hub_agent (tenant, name, seq, type, registered_ms, heartbeat_ms,"
              " metadata, mode, capabilities) SELECT 'default', 'agent-' || i, -i, 'x', 1, 1, '{}',"
              " 'manual', '[]' FROM n",
         HUB_AGENTS_MAX - 1, NULL);
    fill(by,
         "INSERT INTO hub_state (tenant, default_mode, agents)"
         " VALUES ('default', 'fully_autonomous', $1)",
         HUB_AGENTS_MAX - 1, NULL);
    add_agent(by, "the last", NULL);
    FAILS(hub_register(by, &wish, &out, &err), ERR_CONFLICT);
    add_agent(by, "the last", NULL); /* again is not another */
    WELL(hub_unregister(by, "agent-1", &err));
    CHECK_INT(
        test_number(by->db, "SELECT agents - (SELECT count(*) FROM hub_agent) FROM hub_state"), 0);
    add_agent(by, "one too many", NULL);
    FAILS(hub_register(by, &(struct hub_register){ .name = "two" }, &out, &err), ERR_CONFLICT);
}

TEST(limits_of_agents)
{
    rig(agents);
}

static void projects(struct hub_by *by)
{
    struct hub_project project = { .name = "p", .creator = "maker" };

    fill(by,
         MANY " INSERT INTO hub_project (tenant, id, seq, name, creator, created_ms)"
              " SELECT 'default', 'p-' || i, -i, 'x', 'y', 1 FROM n",
         HUB_PROJECTS_MAX - 1, NULL);
    add_project(by);
    FAILS(hub_project_create(by, &project, &err), ERR_CONFLICT);
}

TEST(limits_of_projects)
{
    rig(projects);
}

static void channels(struct hub_by *by)
{
    add_agent(by, "a", NULL);
    fill(by,
         MANY " INSERT INTO hub_channel (tenant, name, created_ms)"
              " SELECT 'default', 'c-' || i, 1 FROM n",
         HUB_CHANNELS_MAX - 1, NULL);
    WELL(hub_channel_join(by, "last", "a", &err));
    FAILS(hub_channel_join(by, "over", "a", &err), ERR_CONFLICT);
    WELL(hub_channel_join(by, "last", "a", &err));
}

TEST(limits_of_channels)
{
    rig(channels);
}

static void leases(struct hub_by *by)
{
    const char *project = add_project(by), *paths[] = { "last", NULL };
    struct hub_lease_wish wish = { .agent = "a", .paths = paths };
    struct hub_lease out;

    fill(by,
         MANY " INSERT INTO hub_lease (tenant, id, project, agent, mode, paths, reason, created_ms,"
              " expires_ms) SELECT 'default', 'l-' || i, $2, 'b', 'shared', '[\"x\"]', '', 1,"
              " 9000000000000 FROM n",
         HUB_LEASES_MAX - 1, project);
    WELL(hub_lease_take(by, project, &wish, &out, &err));
    FAILS(hub_lease_take(by, project, &wish, &out, &err), ERR_CONFLICT);
}

TEST(limits_of_leases)
{
    rig(leases);
}

static void of_tasks(struct hub_by *by)
{
    const char *project = add_project(by), *task = add_task(by, project, NULL);
    struct json items[HUB_BLOCKERS_MAX + 1];
    struct json list = { .type = JSON_ARRAY, .count = HUB_BLOCKERS_MAX + 1, .first = items };
    struct hub_patch wish = { .status = "blocked", .blocked_by = &list };
    struct hub_task out;

    for (int i = 0; i < HUB_REVIEWERS_MAX; i++)
        WELL(hub_reviewer_add(by, project, task, arena_printf(by->arena, "r%d", i), &err));
    FAILS(hub_reviewer_add(by, project, task, "over", &err), ERR_CONFLICT);
    WELL(hub_reviewer_add(by, project, task, "r0", &err));
    for (size_t i = 0; i < ARRAY_LEN(items); i++)
        items[i] = (struct json){ .type = JSON_STRING,
                                  .text = STR("x"),
                                  .next = i + 1 < ARRAY_LEN(items) ? &items[i + 1] : NULL };
    FAILS(hub_patch(by, project, task, &wish, 9, &out, NULL, &err), ERR_INVALID);
    list.count--;
    items[HUB_BLOCKERS_MAX - 1].next = NULL;
    WELL(hub_patch(by, project, task, &wish, 9, &out, NULL, &err));
}

TEST(limits_of_a_task)
{
    rig(of_tasks);
}

static void files(struct hub_by *by)
{
    const char *project = add_project(by);
    struct hub_file out;

    fill(by,
         MANY " INSERT INTO hub_file (tenant, project, name, version, newest, hash, size, uploader,"
              " at_ms) SELECT 'default', $2, 'f-' || i, 1, 1, 'x', 1, 'a', 1 FROM n",
         HUB_FILES_MAX - 1, project);
    WELL(hub_file_put(by, project, STR("last"), "a", STR("x"), &out, &err));
    FAILS(hub_file_put(by, project, STR("over"), "a", STR("x"), &out, &err), ERR_CONFLICT);
    WELL(hub_file_put(by, project, STR("last"), "a", STR("y"), &out, &err));
    fill(by, "UPDATE hub_state SET bytes = $1", HUB_TENANT_BYTES - 1, NULL);
    WELL(hub_file_put(by, project, STR("last"), "a", STR("z"), &out, &err));
    FAILS(hub_file_put(by, project, STR("last"), "a", STR("z"), &out, &err), ERR_CONFLICT);
}

TEST(limits_of_files)
{
    rig(files);
}

static void words(struct hub_by *by)
{
    const char *project = add_project(by);
    struct hub_task_wish wish = { .title = "see http://evil.com" };
    struct hub_project named = { .name = "http://evil.com", .creator = "a" };
    struct hub_checkpoint checkpoint = { .state = "http://evil.com" };
    struct hub_task out;

    WELL(hub_task_create(by, project, &wish, false, &out, &err)); /* messages alone, unless said */
    rig_hub->filter = HUB_FILTER_ALL;
    FAILS(hub_task_create(by, project, &wish, false, &out, &err), ERR_INVALID);
    FAILS(hub_project_create(by, &named, &err), ERR_INVALID);
    FAILS(hub_checkpoint_put(by, "a", &checkpoint, &err), ERR_INVALID);
    FAILS(hub_pause(by, "nobody", "http://evil.com", &err), ERR_NOT_FOUND);
}

TEST(limits_of_words_that_lead_away)
{
    rig(words);
}
