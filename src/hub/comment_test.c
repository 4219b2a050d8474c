/* Comments of tasks: whose they are, in which order, how many, and what ends with what. */
#include "hub/hub_rig.h"

struct heard {
    int count;
    int64_t first;
    char last[64];
};

static void hear(void *ctx, const void *item)
{
    const struct hub_comment *one = item;
    struct heard *heard = ctx;

    if (!heard->count++)
        heard->first = one->number;
    snprintf(heard->last, sizeof(heard->last), "%s: %s", one->author, one->text);
}

static struct heard read_all(struct hub_by *by, const char *project, const char *task,
                             int64_t after, int64_t limit)
{
    struct heard heard = { 0 };

    WELL(hub_comments(by, project, task, after, limit, hear, &heard, &err));
    return heard;
}

static void order(struct hub_by *by)
{
    const char *project = add_project(by), *task = add_task(by, project, NULL);
    struct hub_comment out;

    WELL(hub_comment_add(by, project, task, &(struct hub_comment){ .text = "one" }, &out, &err));
    CHECK_STR(out.author, HUB_HUMAN);
    CHECK_INT(out.number, 1);
    WELL(hub_comment_add(by, project, task, &(struct hub_comment){ .author = "a", .text = "two" },
                         &out, &err));
    struct heard heard = read_all(by, project, task, 0, 10);
    CHECK_INT(heard.count, 2);
    CHECK_STR(heard.last, "a: two");
    heard = read_all(by, project, task, 1, 10);
    CHECK(heard.count == 1 && heard.first == 2);
    CHECK_STR(read_all(by, project, task, 0, 1).last, "human: one");

    struct heard none = { 0 };
    const char *other = add_project(by);
    FAILS(hub_comments(by, other, task, 0, 10, hear, &none, &err), ERR_NOT_FOUND);
    FAILS(hub_comment_add(by, other, task, &(struct hub_comment){ .text = "x" }, &out, &err),
          ERR_NOT_FOUND);
    CHECK_INT(none.count, 0);
}

TEST(comments_have_an_order_and_a_place)
{
    rig(order);
}

static void authors(struct hub_by *by)
{
    const char *project = add_project(by), *task = add_task(by, project, NULL);
    const struct hub_comment mine = { .text = "x" }, others = { .author = "bob", .text = "x" };
    struct hub_by agent = *by;
    struct hub_comment out;

    add_agent(by, "ada", NULL);
    agent.agent = "ada";
    WELL(hub_comment_add(&agent, project, task, &mine, &out, &err));
    CHECK_STR(out.author, "ada");
    FAILS(hub_comment_add(&agent, project, task, &others, &out, &err), ERR_FORBIDDEN);
    WELL(hub_pause(by, "ada", "", &err));
    FAILS(hub_comment_add(&agent, project, task, &mine, &out, &err), ERR_CONFLICT);
    FAILS(hub_comment_add(by, project, task, &(struct hub_comment){ .author = "a/b", .text = "x" },
                          &out, &err),
          ERR_INVALID);
    CHECK_INT(read_all(by, project, task, 0, 10).count, 1);
}

TEST(comments_are_their_authors)
{
    rig(authors);
}

static void most(struct hub_by *by)
{
    const char *project = add_project(by), *task = add_task(by, project, NULL);
    const struct hub_comment wish = { .text = "x" };
    struct hub_comment out;

    autoquery struct query *q = db_query(
        by->db, "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $1)"
                " INSERT INTO hub_comment (tenant, task, number, author, text, at_ms)"
                " SELECT 'default', $2, i, 'a', 'x', 1 FROM n");
    query_i64(q, 1, HUB_COMMENTS_MAX - 1);
    query_text(q, 2, task);
    WELL(query_run(q, &err));
    WELL(hub_comment_add(by, project, task, &wish, &out, &err));
    CHECK_INT(out.number, HUB_COMMENTS_MAX);
    FAILS(hub_comment_add(by, project, task, &wish, &out, &err), ERR_CONFLICT);

    WELL(hub_project_delete(by, project, &err));
    autoquery struct query *left = db_query(by->db, "SELECT count(*) FROM hub_comment");
    int64_t count;
    WELL(hub_number(left, -1, &count, &err));
    CHECK_INT(count, 0);
}

TEST(comments_have_a_limit_and_go_with_their_project)
{
    rig(most);
}
