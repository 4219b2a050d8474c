/* Agents: who may act as whom, what pausing and revoking stop, and who is silent. */
#include "hub/hub_rig.h"

static int send(struct hub_by *by, const char *from, const char *to, struct err *err)
{
    struct hub_send wish = { .from = from, .to = to, .content = "x" };
    struct hub_message out;

    return hub_message_send(by, &wish, &out, err);
}

static int upload(struct hub_by *by, const char *project, const char *who, struct err *err)
{
    struct hub_file out;

    return hub_file_put(by, project, STR("f"), who, STR("x"), &out, err);
}

static int lease(struct hub_by *by, const char *project, const char *who, struct err *err)
{
    const char *paths[] = { "src", NULL };
    struct hub_lease_wish wish = { .agent = who, .paths = paths };
    struct hub_lease out;

    return hub_lease_take(by, project, &wish, &out, err);
}

/* Everything an agent does, by itself. */
static void tries(struct hub_by *by, const char *project, const char *task, int code)
{
    struct hub_patch patch = { .status = "blocked", .agent = "a" };
    struct hub_task out;

    FAILS(send(by, "a", "b", &err), code);
    FAILS(claim(by, project, task, "a", &err), code);
    FAILS(hub_patch(by, project, task, &patch, 3, &out, NULL, &err), code);
    FAILS(upload(by, project, "a", &err), code);
    FAILS(lease(by, project, "a", &err), code);
}

static void stopped(struct hub_by *by)
{
    const char *project = add_project(by), *task = add_task(by, project, NULL);
    struct hub_reason why = { .reason = "stop", .flush_required = true };
    struct hub_revocation one;
    bool pending;

    add_agent(by, "a", NULL);
    WELL(lease(by, project, "a", &err));
    WELL(hub_pause(by, "a", "r", &err));
    tries(by, project, task, ERR_CONFLICT);
    add_agent(by, "a", NULL); /* registering again lifts nothing */
    tries(by, project, task, ERR_CONFLICT);
    WELL(hub_resume(by, "a", &err));
    WELL(hub_revoke(by, "a", &why, &one, &err));
    tries(by, project, task, ERR_CONFLICT);
    add_agent(by, "a", NULL);
    tries(by, project, task, ERR_CONFLICT);
    for (int i = 0; i < 2; i++) { /* looking takes nothing away */
        WELL(hub_revocation_get(by, "a", &pending, &one, &err));
        CHECK(pending);
    }
    FAILS(hub_revocation_ack(by, "a", "no-such-id", &err), ERR_NOT_FOUND);
    by->agent = "a";
    FAILS(hub_unregister(by, "a", &err), ERR_CONFLICT);
    WELL(hub_revocation_ack(by, "a", one.id, &err));
    by->agent = NULL;
    tries(by, project, task, ERR_NONE);
    FAILS(hub_revoke(by, "nobody", &why, &one, &err), ERR_NOT_FOUND);
}

TEST(agent_is_stopped_at_once_and_until_somebody_lifts_it)
{
    rig(stopped);
}

static void itself(struct hub_by *by)
{
    const char *project = add_project(by), *task = add_task(by, project, NULL);
    struct hub_register wish = { .name = "b" };
    struct hub_checkpoint checkpoint = { 0 };
    struct hub_agent out;
    struct hub_page page;
    const struct hub_inbox inbox = { .name = "b", .limit = 10 };

    add_agent(by, "a", NULL);
    add_agent(by, "b", NULL);
    WELL(send(by, "a", "b", &err));
    by->agent = "a";
    FAILS(send(by, "b", "a", &err), ERR_FORBIDDEN);
    FAILS(hub_register(by, &wish, &out, &err), ERR_FORBIDDEN);
    FAILS(claim(by, project, task, "b", &err), ERR_FORBIDDEN);
    FAILS(upload(by, project, "b", &err), ERR_FORBIDDEN);
    FAILS(lease(by, project, "b", &err), ERR_FORBIDDEN);
    FAILS(hub_unregister(by, "b", &err), ERR_FORBIDDEN);
    FAILS(hub_checkpoint_put(by, "b", &checkpoint, &err), ERR_FORBIDDEN);
    FAILS(hub_set_mode(by, "b", "manual", &err), ERR_FORBIDDEN);
    FAILS(hub_inbox(by, &inbox, &page, &err), ERR_FORBIDDEN);
    FAILS(hub_project_join(by, project, "b", &err), ERR_FORBIDDEN);
    FAILS(hub_project_delete(by, project, &err), ERR_FORBIDDEN);
    FAILS(hub_unregister(by, "nobody", &err), ERR_NOT_FOUND);
    WELL(claim(by, project, task, "a", &err));
    by->agent = "b";
    FAILS(move_to(by, project, task, "in_progress", &err), ERR_FORBIDDEN);
    FAILS(hub_unassign(by, project, task, &err), ERR_FORBIDDEN);
    by->agent = "a";
    WELL(move_to(by, project, task, "in_progress", &err));
}

TEST(agent_acts_only_as_itself)
{
    rig(itself);
}

static void names(struct hub_by *by)
{
    static const char *const bad[] = { "register",
                                       "human",
                                       ".",
                                       "..",
                                       "a/b",
                                       "a\\b",
                                       " a",
                                       "a ",
                                       "a\nb",
                                       "a\x1b[0m",
                                       "a\xe2\x80\xae"
                                       "b",
                                       "a\xe2\x80\x8b" };
    char longest[HUB_NAME_MAX + 2];
    struct hub_agent out;

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct hub_register wish = { .name = bad[i] };

        FAILS(hub_register(by, &wish, &out, &err), ERR_INVALID);
    }
    memset(longest, 'x', sizeof(longest));
    longest[HUB_NAME_MAX] = 0;
    add_agent(by, longest, NULL);
    add_agent(by, "<b>bold<b>", NULL); /* text, wherever it is shown */
    longest[HUB_NAME_MAX] = 'x';
    longest[HUB_NAME_MAX + 1] = 0;
    struct hub_register wish = { .name = longest };
    FAILS(hub_register(by, &wish, &out, &err), ERR_INVALID);
}

TEST(agent_names_hide_nothing)
{
    rig(names);
}

static void mailbox(struct hub_by *by)
{
    struct hub_page page;
    struct hub_inbox wish = { .name = "b", .limit = 10, .unread = true };
    autoquery struct query *q =
        db_query(by->db, "UPDATE hub_mailbox SET unacked = $1 WHERE name = 'b'");

    for (int i = 0; i < 3; i++)
        WELL(send(by, "a", "b", &err));
    for (int i = 0; i < 2; i++) { /* unread is not marked by looking */
        WELL(hub_inbox(by, &wish, &page, &err));
        CHECK_INT(page.count, 3);
        CHECK(!page.mark && !page.items[0].delivered);
    }
    WELL(hub_message_ack(by, page.items[0].id, &err));
    const char *second = page.items[1].id;
    WELL(hub_inbox(by, &wish, &page, &err));
    CHECK_INT(page.count, 2); /* what was acknowledged is not unread */
    wish.after = second;
    WELL(hub_inbox(by, &wish, &page, &err));
    CHECK_INT(page.count, 1);
    wish = (struct hub_inbox){ .name = "b", .limit = 2 };
    WELL(hub_inbox(by, &wish, &page, &err));
    CHECK(page.count == 2 && page.mark && page.items[0].delivered);
    WELL(hub_inbox_mark(by, "b", &page, &err));
    wish = (struct hub_inbox){ .name = "b", .limit = 10, .unread = true };
    WELL(hub_inbox(by, &wish, &page, &err));
    CHECK_INT(page.count, 1);
    query_i64(q, 1, HUB_MAILBOX_MAX - 1);
    WELL(query_run(q, &err));
    WELL(send(by, "a", "b", &err));
    FAILS(send(by, "a", "b", &err), ERR_CONFLICT);
}

TEST(agent_mailbox_gives_what_is_unread_until_it_is_dealt_with)
{
    rig(mailbox);
}

static void history(struct hub_by *by)
{
    struct hub_page page;

    for (int i = 0; i < 10; i++)
        WELL(i % 2 ? send(by, "a", "b", &err) : send(by, "b", "a", &err));
    WELL(send(by, "a", "c", &err));
    WELL(hub_history(by, "a", "b", NULL, 50, &page, &err));
    CHECK_INT(page.count, 10);
    for (size_t i = 1; i < page.count; i++)
        CHECK(page.items[i].seq < page.items[i - 1].seq);
    CHECK_STR(page.items[0].from, "a");
    CHECK_STR(page.items[1].from, "b");
    const char *third = page.items[2].id, *fourth = page.items[3].id;
    WELL(hub_history(by, "b", "a", third, 3, &page, &err));
    CHECK_INT(page.count, 3);
    CHECK_STR(page.items[0].id, fourth);
    WELL(hub_history(by, "a", "b", NULL, 0, &page, &err));
    CHECK_INT(page.count, 0);
    by->agent = "c";
    FAILS(hub_history(by, "a", "b", NULL, 50, &page, &err), ERR_FORBIDDEN);
}

TEST(agent_history_is_of_two_and_newest_first)
{
    rig(history);
}

static void too_many(struct hub_by *by)
{
    for (int i = 0; i < 60; i++)
        WELL(send(by, "a", "b", &err));
    FAILS(send(by, "a", "b", &err), ERR_RATE);
    WELL(send(by, "c", "b", &err));
}

TEST(agent_sends_sixty_a_minute)
{
    rig(too_many);
}

static void old_mail(struct hub_by *by)
{
    struct hub_page page;
    const struct hub_inbox wish = { .name = "b", .limit = 10 };
    autobuf struct buf text = { 0 };
    struct json_out json = json_to(&text);

    add_agent(by, "a", NULL);
    add_agent(by, "b", NULL);
    by->now_ms = 1000;
    WELL(send(by, "a", "b", &err));
    WELL(send(by, "a", "b", &err));
    WELL(hub_inbox(by, &wish, &page, &err));
    WELL(hub_message_ack(by, page.items[0].id, &err));
    CHECK_INT(hub_messages_sweep(by->db, 1000, NULL), 0);
    CHECK_INT(hub_messages_sweep(by->db, 1001, NULL), 1); /* and not what waits */
    WELL(hub_inbox(by, &wish, &page, &err));
    CHECK_INT(page.count, 1);
    WELL(hub_graph(by, &json, &err));
    CHECK(strstr(buf_cstr(&text), "\"count\":1"));
}

TEST(agent_mail_is_forgotten_when_it_is_old_and_acknowledged)
{
    rig(old_mail);
}

/* ---- heartbeats ---- */

static void two(struct hub_by *by)
{
    add_agent(by, "a", NULL);
    add_agent(by, "b", NULL);
}

static void pause_a(struct hub_by *by)
{
    WELL(hub_pause(by, "a", "", &err));
}

static void checkpoint_a(struct hub_by *by)
{
    struct hub_checkpoint one = { 0 };

    WELL(hub_checkpoint_put(by, "a", &one, &err));
    CHECK_INT(one.sequence, 1);
}

static void is_stalled(struct hub_by *by)
{
    struct hub_agent agent;

    WELL(hub_agent_get(by, "a", &agent, &err));
    CHECK_STR(agent.status, "stalled");
}

TEST(agent_heartbeats_count_and_stall_and_lift_nothing)
{
    struct hub_beat beat;
    struct err err;

    rig_open();
    rig_job(two);
    CHECK(hub_heartbeat(rig_hub, "default", "nobody", &beat, &err) < 0);
    for (int i = 1; i <= 18; i++) {
        CHECK_OK(hub_heartbeat(rig_hub, "default", "a", &beat, &err), &err);
        CHECK_INT(beat.tick, i);
        CHECK(beat.due == (i >= HUB_CHECKPOINT_TICKS));
        CHECK_STR(beat.status, i < 18 ? "online" : "stalled");
    }
    rig_job(is_stalled); /* and written down */
    rig_job(checkpoint_a);
    CHECK_OK(hub_heartbeat(rig_hub, "default", "a", &beat, &err), &err);
    CHECK(beat.tick == 1 && !beat.due);
    rig_job(pause_a);
    CHECK_OK(hub_heartbeat(rig_hub, "default", "a", &beat, &err), &err);
    CHECK_STR(beat.status, "busy");
    for (int i = 0; i < 100; i++)
        CHECK_OK(hub_heartbeat(rig_hub, "default", "a", &beat, &err), &err);
    CHECK(hub_heartbeat(rig_hub, "default", "a", &beat, &err) < 0 && err.code == ERR_RATE);
    CHECK(err.retry_after > 0);
    rig_close();
}
