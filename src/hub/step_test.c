/*
 * Every way in which an agent can take or move a task, in every mode, with each thing that may
 * stand in its way: what one way refuses no other one allows.
 */
#include "hub/hub_rig.h"

#include "gate/gate.h"

enum way { CLAIM, BEGIN, REVIEW, FINISH, CREATE, ASSIGN, OWN, GIVE_BACK, WAYS };
static const char *const ways[] = { "claim",  "begin",  "review", "finish",
                                    "create", "assign", "own",    "give back" };
static const char *const modes[] = { "fully_autonomous", "advisory", "manual" };
enum obstacle { NONE, CAPABILITY, WIP, PAUSED, REVOKED, OTHERS, OBSTACLES };
static const char *const obstacles[] = {
    "none", "capability", "wip", "paused", "revoked", "others"
};

#define DONE ERR_NONE
#define PROPOSED 1000
#define INVALID ERR_INVALID
#define FORBIDDEN ERR_FORBIDDEN
#define CONFLICT ERR_CONFLICT

/* clang-format off */
static const int expected[WAYS][ARRAY_LEN(modes)][OBSTACLES] = {
    /*              none       capability wip        paused    revoked   others */
    [CLAIM]     = { { DONE,      INVALID,   INVALID,   CONFLICT, CONFLICT, CONFLICT },
                    { PROPOSED,  INVALID,   INVALID,   CONFLICT, CONFLICT, CONFLICT },
                    { FORBIDDEN, FORBIDDEN, FORBIDDEN, CONFLICT, CONFLICT, FORBIDDEN } },
    [BEGIN]     = { { DONE,      INVALID,   INVALID,   CONFLICT, CONFLICT, FORBIDDEN },
                    { PROPOSED,  INVALID,   INVALID,   CONFLICT, CONFLICT, FORBIDDEN },
                    { FORBIDDEN, FORBIDDEN, FORBIDDEN, CONFLICT, CONFLICT, FORBIDDEN } },
    [REVIEW]    = { { DONE,      INVALID,   INVALID,   CONFLICT, CONFLICT, FORBIDDEN },
                    { PROPOSED,  INVALID,   INVALID,   CONFLICT, CONFLICT, FORBIDDEN },
                    { FORBIDDEN, FORBIDDEN, FORBIDDEN, CONFLICT, CONFLICT, FORBIDDEN } },
    [FINISH]    = { { DONE,      INVALID,   INVALID,   CONFLICT, CONFLICT, FORBIDDEN },
                    { PROPOSED,  INVALID,   INVALID,   CONFLICT, CONFLICT, FORBIDDEN },
                    { FORBIDDEN, FORBIDDEN, FORBIDDEN, CONFLICT, CONFLICT, FORBIDDEN } },
    [CREATE]    = { { DONE,      INVALID,   INVALID,   CONFLICT, CONFLICT, FORBIDDEN },
                    { FORBIDDEN, FORBIDDEN, FORBIDDEN, CONFLICT, CONFLICT, FORBIDDEN },
                    { FORBIDDEN, FORBIDDEN, FORBIDDEN, CONFLICT, CONFLICT, FORBIDDEN } },
    [ASSIGN]    = { { DONE,      INVALID,   INVALID,   CONFLICT, CONFLICT, CONFLICT },
                    { FORBIDDEN, FORBIDDEN, FORBIDDEN, CONFLICT, CONFLICT, FORBIDDEN },
                    { FORBIDDEN, FORBIDDEN, FORBIDDEN, CONFLICT, CONFLICT, FORBIDDEN } },
    /* What people gave it: they answer for its capabilities. */
    [OWN]       = { { DONE,      DONE,      INVALID,   CONFLICT, CONFLICT, FORBIDDEN },
                    { PROPOSED,  PROPOSED,  INVALID,   CONFLICT, CONFLICT, FORBIDDEN },
                    { DONE,      DONE,      INVALID,   CONFLICT, CONFLICT, FORBIDDEN } },
    [GIVE_BACK] = { { DONE,      DONE,      DONE,      CONFLICT, CONFLICT, FORBIDDEN },
                    { DONE,      DONE,      DONE,      CONFLICT, CONFLICT, FORBIDDEN },
                    { DONE,      DONE,      DONE,      CONFLICT, CONFLICT, FORBIDDEN } },
};
/* clang-format on */

static const char *const targets[] = { [BEGIN] = "in_progress",
                                       [REVIEW] = "in_review",
                                       [FINISH] = "done",
                                       [OWN] = "in_progress",
                                       [GIVE_BACK] = "backlog" };

/* As a person would, through every column up to this one. */
static void bring_to(struct hub_by *by, const char *project, const char *task, const char *column)
{
    static const char *const path[] = { "ready", "in_progress", "in_review", "done" };

    for (size_t i = 0; strcmp(path[i], column) != 0; i++)
        WELL(move_to(by, project, task, path[i], &err));
}

static void limit_to(struct hub_by *by, const char *project, const char *column, int64_t most)
{
    struct json limit = { .type = JSON_INT, .num = most };
    struct hub_wip_wish wish = { .status = column, .limit = &limit };

    WELL(hub_wip_set(by, project, &wish, &err));
}

static int attempt(struct hub_by *by, enum way way, const char *project, const char *task,
                   const char *agent, const char *holder)
{
    const char *tags[] = { "code", NULL };
    struct hub_task_wish create = { .title = "t",
                                    .required_capabilities = tags,
                                    .assigned_to = holder };
    struct hub_agent_named assign = { .agent = agent, .assigned_by = agent };
    struct hub_patch move = { .status = targets[way], .agent = agent };
    struct hub_proposal proposal;
    struct hub_task out;
    struct err err = { 0 };
    int rc;

    if (way == CLAIM)
        rc = hub_claim(by, project, task, agent, &proposal, &err);
    else if (way == CREATE)
        rc = hub_task_create(by, project, &create, false, &out, &err);
    else if (way == ASSIGN)
        rc = hub_assign(by, project, task, &assign, &err);
    else
        rc = hub_patch(by, project, task, &move, 3, &out, &proposal, &err);
    return rc < 0 ? (int)err.code : rc > 0 ? PROPOSED : DONE;
}

static void one(struct hub_by *by, enum way way, size_t mode, enum obstacle obstacle, bool token)
{
    const char *agent = hub_uuid(by), *project = add_project(by),
               *task = add_task(by, project, "code");
    const char *holder = obstacle == OTHERS ? "other" : way >= OWN ? agent : NULL;
    const struct hub_reason reason = { 0 };
    struct hub_revocation revocation;

    add_agent(by, agent, obstacle == CAPABILITY ? "data" : "code");
    if (way == REVIEW || way == FINISH || way == OWN || way == BEGIN)
        bring_to(by, project, task, targets[way]);
    if (way == GIVE_BACK)
        WELL(move_to(by, project, task, "ready", &err));
    if (holder)
        WELL(hub_set(by, "UPDATE hub_task SET assigned_to = $1 WHERE tenant = $2 AND id = $3",
                     holder, task, &err));
    for (const char *const *column =
             (const char *const[]){ "in_progress", "in_review", "done", NULL };
         obstacle == WIP && *column; column++)
        limit_to(by, project, *column, 0);
    WELL(hub_set_mode(by, agent, modes[mode], &err));
    if (obstacle == PAUSED)
        WELL(hub_pause(by, agent, NULL, &err));
    if (obstacle == REVOKED)
        WELL(hub_revoke(by, agent, &reason, &revocation, &err));
    by->agent = token ? agent : NULL;
    int found = attempt(by, way, project, task, agent,
                        way == CREATE && obstacle == OTHERS ? "other" : agent);
    by->agent = NULL;
    if (found != expected[way][mode][obstacle])
        test_fail(__FILE__, __LINE__, "%s, %s, %s, token %d: %d, not %d", ways[way], modes[mode],
                  obstacles[obstacle], token, found, expected[way][mode][obstacle]);
}

static void table(struct hub_by *by)
{
    for (int way = 0; way < WAYS; way++)
        for (size_t mode = 0; mode < ARRAY_LEN(modes); mode++)
            for (int obstacle = 0; obstacle < OBSTACLES; obstacle++) {
                one(by, (enum way)way, mode, (enum obstacle)obstacle, true);
                /* People act for it; a name of somebody else is then theirs to give. */
                if ((way != CREATE))
                    one(by, (enum way)way, mode, (enum obstacle)obstacle, false);
            }
}

TEST(step_refuses_on_every_way_what_it_refuses_on_one)
{
    rig(table);
}

/* ---- limits count every card ---- */

static void unowned(struct hub_by *by)
{
    const char *project = add_project(by), *first = add_task(by, project, NULL);
    const char *second = add_task(by, project, NULL);

    limit_to(by, project, "in_progress", 1);
    WELL(move_to(by, project, first, "ready", &err));
    WELL(move_to(by, project, second, "ready", &err));
    WELL(move_to(by, project, first, "in_progress", &err));
    FAILS(move_to(by, project, second, "in_progress", &err), ERR_INVALID); /* people too */
    limit_to(by, project, "in_progress", 2);
    WELL(move_to(by, project, second, "in_progress", &err));
    /* In the columns where tasks wait, only those of an owner count. */
    limit_to(by, project, "ready", 0);
    WELL(move_to(by, project, add_task(by, project, NULL), "ready", &err));
    WELL(hub_set(by, "UPDATE hub_task SET assigned_to = $1 WHERE tenant = $2 AND id = $3", "a",
                 first, &err));
    FAILS(move_to(by, project, first, "ready", &err), ERR_INVALID);
}

TEST(step_counts_cards_that_nobody_owns)
{
    rig(unowned);
}

static void rework(struct hub_by *by)
{
    const char *project = add_project(by), *task = add_task(by, project, NULL);
    const struct hub_verdict verdict = { 0 };
    struct hub_task out;

    WELL(claim(by, project, task, "a", &err));
    WELL(move_to(by, project, task, "in_progress", &err));
    WELL(move_to(by, project, task, "in_review", &err));
    limit_to(by, project, "in_progress", 0);
    WELL(hub_review(by, project, task, &verdict, false, &out, &err));
    CHECK_STR(out.status, "in_review"); /* said, and it waits for room */
    CHECK_STR(status_of(by, task), "in_review");
    limit_to(by, project, "in_progress", 1);
    WELL(hub_review(by, project, task, &verdict, false, &out, &err));
    CHECK_STR(status_of(by, task), "in_progress");
}

TEST(step_back_from_a_review_keeps_the_limit)
{
    rig(rework);
}

/* ---- whose a task was ---- */

static void reassigned(struct hub_by *by)
{
    const char *project = add_project(by), *task = add_task(by, project, NULL);
    const struct hub_agent_named to_b = { .agent = "b" };
    const struct hub_patch wish = { .status = "in_progress" };
    struct hub_proposal proposal;
    struct hub_task out;

    WELL(claim(by, project, task, "a", &err));
    WELL(hub_assign(by, project, task, &to_b, &err));
    by->agent = "a";
    FAILS(hub_patch(by, project, task, &wish, 1, &out, &proposal, &err), ERR_FORBIDDEN);
    FAILS(hub_unassign(by, project, task, &err), ERR_FORBIDDEN);
    by->agent = "b";
    WELL(hub_patch(by, project, task, &wish, 1, &out, &proposal, &err));
}

TEST(step_of_a_former_owner_is_refused)
{
    rig(reassigned);
}

static void taking(struct hub_by *by)
{
    const char *project = add_project(by), *task = add_task(by, project, NULL);
    const struct hub_patch wish = { .status = "in_progress" };
    struct hub_proposal proposal;
    struct hub_task out;

    WELL(move_to(by, project, task, "ready", &err));
    by->agent = "a";
    WELL(hub_patch(by, project, task, &wish, 1, &out, &proposal, &err));
    WELL(hub_task_find(by, project, task, &out, &err));
    CHECK_STR(out.assigned_to, "a");
    CHECK_STR(out.claimed_by, "a");
    CHECK_STR(out.status, "in_progress");
}

TEST(step_into_work_makes_the_agent_the_owner)
{
    rig(taking);
}

/* An operator's client says its own name with each move; no agent has that name. */
static void by_people(struct hub_by *by)
{
    const char *project = add_project(by), *task = add_task(by, project, "code");
    const struct hub_patch wish = { .status = "in_progress", .agent = "olga" };
    struct hub_proposal proposal;
    struct hub_task out;

    add_agent(by, "a", "code");
    WELL(claim(by, project, task, "a", &err));
    WELL(hub_patch(by, project, task, &wish, 3, &out, &proposal, &err));
    CHECK_STR(status_of(by, task), "in_progress");
    CHECK_STR(out.assigned_to, "a"); /* whose it stays */
    add_agent(by, "olga", NULL);
    FAILS(hub_patch(by, project, task,
                    &(struct hub_patch){ .status = "in_review", .agent = "olga" }, 3, &out,
                    &proposal, &err),
          ERR_FORBIDDEN);
}

TEST(step_of_people_under_their_own_name_is_theirs)
{
    rig(by_people);
}

/* ---- proposals of moves ---- */

static int decide(struct hub_by *by, const struct hub_proposal *one, bool allow, struct err *err)
{
    struct ask_decision decision = { .allow = allow, .by = "somebody" };
    struct ask_row row;

    by->agent = NULL;
    int rc = ask_decide(by->db, by->tenant, one->id, &decision, by->arena, &row, err);
    return rc < 0 ? -1 : hub_decided(by, row.id, row.action, allow, err);
}

static int propose(struct hub_by *by, const char *project, const char *task, const char *status,
                   struct hub_proposal *out)
{
    const struct hub_patch wish = { .status = status, .note = "why" };
    struct hub_task changed;
    struct err err = { 0 };

    by->agent = "adviser";
    int rc = hub_patch(by, project, task, &wish, 1, &changed, out, &err);
    by->agent = NULL;
    return rc < 0 ? (int)err.code : rc;
}

static void proposals(struct hub_by *by)
{
    static const char *const columns[] = { "in_progress", "in_review", "done" };
    const char *project = add_project(by), *task = add_task(by, project, NULL);
    struct hub_proposal one, again;

    add_agent(by, "adviser", NULL);
    WELL(hub_set_mode(by, "adviser", "advisory", &err));
    WELL(move_to(by, project, task, "ready", &err));
    for (size_t i = 0; i < ARRAY_LEN(columns); i++) {
        const char *was = status_of(by, task);

        CHECK_INT(propose(by, project, task, columns[i], &one), 1);
        CHECK_STR(one.status, columns[i]);
        CHECK_INT(propose(by, project, task, columns[i], &again), 1);
        CHECK_STR(again.id, one.id);
        CHECK_STR(status_of(by, task), was); /* nothing has happened yet */
        WELL(decide(by, &one, true, &err));
        CHECK_STR(status_of(by, task), columns[i]);
    }
}

TEST(step_of_an_adviser_waits_for_people)
{
    rig(proposals);
}

static void outdated(struct hub_by *by)
{
    const char *project = add_project(by), *task = add_task(by, project, NULL);
    struct hub_proposal one;

    add_agent(by, "adviser", NULL);
    WELL(hub_set_mode(by, "adviser", "advisory", &err));
    WELL(move_to(by, project, task, "ready", &err));
    CHECK_INT(propose(by, project, task, "in_progress", &one), 1);
    WELL(move_to(by, project, task, "in_progress", &err));
    WELL(move_to(by, project, task, "in_review", &err));
    FAILS(decide(by, &one, true, &err),
          ERR_CONFLICT); /* in_review → in_progress was not asked for */
    CHECK_STR(status_of(by, task), "in_review");
}

TEST(step_that_was_proposed_is_not_another_one_later)
{
    rig(outdated);
}

static void full_by_then(struct hub_by *by)
{
    const char *project = add_project(by), *task = add_task(by, project, NULL);
    struct hub_proposal one;

    add_agent(by, "adviser", NULL);
    WELL(hub_set_mode(by, "adviser", "advisory", &err));
    WELL(move_to(by, project, task, "ready", &err));
    CHECK_INT(propose(by, project, task, "in_progress", &one), 1);
    limit_to(by, project, "in_progress", 0);
    FAILS(decide(by, &one, true, &err), ERR_CONFLICT);
    CHECK_STR(status_of(by, task), "ready");
}

TEST(step_that_was_proposed_needs_room_when_it_is_approved)
{
    rig(full_by_then);
}
