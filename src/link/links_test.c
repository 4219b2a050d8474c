/* The registry against agents that are played: who gets in, what is believed, what outlives whom.
 */
#include <fcntl.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "link/own.h"
#include "store/testing.h"

/* ---- an agent that is played ---- */

struct played {
    struct link_peer peer;
    unsigned sent, acks, commands, ends;
    V1(ManagementMessage__PayloadCase) last;
    uint64_t out, errs;
    bool ended;
    char command[UUID_SIZE];
    size_t keeps, kills;
    enum err_code end;
    bool full; /* it takes nothing */
};

static struct links *links;
static char *db_path, *spool_path; /* until the program ends */
static bool deaf;                  /* peers take nothing */

static bool played_send(struct link_peer *peer, const ProtobufCMessage *bytes)
{
    struct played *played = container_of(peer, struct played, peer);
    const V1(ManagementMessage) *message = (const V1(ManagementMessage) *)(const void *)bytes;

    if (deaf)
        return false;
    played->sent++;
    played->last = message->payload_case;
    if (message->payload_case == AGENTIC__SANDBOX__V1__MANAGEMENT_MESSAGE__PAYLOAD_COMMAND) {
        played->commands++;
        snprintf(played->command, sizeof(played->command), "%s", message->command->command_id);
    }
    if (message->payload_case == AGENTIC__SANDBOX__V1__MANAGEMENT_MESSAGE__PAYLOAD_OUTPUT_ACK) {
        played->acks++;
        played->out = message->output_ack->stdout_position;
        played->errs = message->output_ack->stderr_position;
        played->ended = message->output_ack->ended;
    }
    if (message->payload_case ==
        AGENTIC__SANDBOX__V1__MANAGEMENT_MESSAGE__PAYLOAD_SESSION_RECONCILE) {
        played->keeps = message->session_reconcile->n_keep_session_ids;
        played->kills = message->session_reconcile->n_kill_session_ids;
    }
    return !played->full;
}

static void played_end(struct link_peer *peer, const struct err *why)
{
    struct played *played = container_of(peer, struct played, peer);

    CHECK(!peer->agent); /* closed before it is told */
    played->ends++;
    played->end = why->code;
}

static struct played *played_new(void)
{
    struct played *played = xnew(struct played);

    played->peer.send = played_send;
    played->peer.end = played_end;
    return played;
}

/* ---- the stage ---- */

static int nothing(struct db *db, void *ctx, struct err *err)
{
    (void)db, (void)ctx, (void)err;
    return 0;
}

/* Everything that was to be stored is, and has come back. */
static void settle(void)
{
    struct err err;

    for (int i = 0; i < 3; i++)
        CHECK_OK(test_write(nothing, NULL, &err), &err);
}

static int load(struct db *db, void *ctx, struct err *err)
{
    (void)ctx;
    return links_load(links, db, err);
}

static void open_links(struct links_options options)
{
    struct err err;

    mkdir(spool_path, 0700);
    test_open(db_path, NULL, NULL);
    options.loop = test_loop;
    options.store = test_store;
    options.spool_dir = open(spool_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    links = links_new(&options);
    CHECK_OK(test_write(load, NULL, &err), &err);
}

static void close_links(void)
{
    settle();
    links_free(links);
    test_close();
}

struct secret {
    const char *agent;
    char plain[AGENT_SECRET_SIZE];
    struct secret_row row;
    bool rotate;
};

static int make_secret(struct db *db, void *ctx, struct err *err)
{
    struct secret *secret = ctx;

    return secret->rotate
               ? agent_secret_rotate(db, "default", secret->agent, clock_wall_ms() + 60000,
                                     &secret->row, secret->plain, err)
               : agent_secret_create(db, "default", secret->agent, "t", &secret->row, secret->plain,
                                     err);
}

static struct secret secret_for(const char *agent, bool rotate)
{
    struct secret secret = { .agent = agent, .rotate = rotate };
    struct err err;

    CHECK_OK(test_write(make_secret, &secret, &err), &err);
    links_secret(links, &secret.row);
    return secret;
}

static void begin(const char *name, struct links_options options)
{
    free(db_path);
    free(spool_path);
    db_path = test_path(name);
    spool_path = test_path("spool");
    deaf = false;
    open_links(options);
}

static void come(struct played *played, const char *agent, const char *secret)
{
    struct err err;

    CHECK_OK(links_open(links, str_of(agent), str_of(secret), &played->peer, &err), &err);
}

static int say_registration(struct played *played, const char *agent, uint32_t version,
                            struct err *err)
{
    V1(AgentRegistration) said = AGENTIC__SANDBOX__V1__AGENT_REGISTRATION__INIT;
    V1(AgentMessage) message = AGENTIC__SANDBOX__V1__AGENT_MESSAGE__INIT;

    said.agent_id = (char *)(uintptr_t)agent;
    said.atoll_link = version;
    message.payload_case = AGENTIC__SANDBOX__V1__AGENT_MESSAGE__PAYLOAD_REGISTRATION;
    message.registration = &said;
    return links_hear(&played->peer, &message, err);
}

static void say_report(struct played *played, char *const *ids, size_t count)
{
    V1(SessionReport) report = AGENTIC__SANDBOX__V1__SESSION_REPORT__INIT;
    V1(AgentMessage) message = AGENTIC__SANDBOX__V1__AGENT_MESSAGE__INIT;
    V1(ActiveSession) sessions[4], *all[4];
    struct err err;

    for (size_t i = 0; i < count; i++) {
        agentic__sandbox__v1__active_session__init(&sessions[i]);
        sessions[i].command_id = ids[i];
        all[i] = &sessions[i];
    }
    report.n_sessions = count;
    report.sessions = all;
    message.payload_case = AGENTIC__SANDBOX__V1__AGENT_MESSAGE__PAYLOAD_SESSION_REPORT;
    message.session_report = &report;
    CHECK_OK(links_hear(&played->peer, &message, &err), &err);
}

static void say_output(struct played *played, const char *id, uint64_t position, const char *text)
{
    V1(OutputChunk) chunk = AGENTIC__SANDBOX__V1__OUTPUT_CHUNK__INIT;
    V1(AgentMessage) message = AGENTIC__SANDBOX__V1__AGENT_MESSAGE__INIT;
    struct err err;

    chunk.stream_id = (char *)(uintptr_t)id;
    chunk.data = (ProtobufCBinaryData){ strlen(text), (uint8_t *)(uintptr_t)text };
    chunk.position = position;
    message.payload_case = AGENTIC__SANDBOX__V1__AGENT_MESSAGE__PAYLOAD_STDOUT;
    message.stdout = &chunk;
    CHECK_OK(links_hear(&played->peer, &message, &err), &err);
}

static void say_result(struct played *played, const char *id, int code)
{
    V1(CommandResult) result = AGENTIC__SANDBOX__V1__COMMAND_RESULT__INIT;
    V1(AgentMessage) message = AGENTIC__SANDBOX__V1__AGENT_MESSAGE__INIT;
    struct err err;

    result.command_id = (char *)(uintptr_t)id;
    result.exit_code = code;
    message.payload_case = AGENTIC__SANDBOX__V1__AGENT_MESSAGE__PAYLOAD_COMMAND_RESULT;
    message.command_result = &result;
    CHECK_OK(links_hear(&played->peer, &message, &err), &err);
}

static struct linked *agent_named(const char *id)
{
    struct linked *agent;
    struct err err;

    CHECK_OK(links_find(links, reach_all("default"), id, &agent, &err), &err);
    return agent;
}

static unsigned ops_done;
static enum err_code op_code;

static void op_done(struct link_op *op, const struct err *err)
{
    (void)op;
    ops_done++;
    op_code = err ? err->code : ERR_NONE;
}

static struct link_op op = { .tenant = "default", .by = "tok1", .done = op_done };

static void run(const char *agent)
{
    struct command_wish wish = { .command = "x", .pty_cols = 80, .pty_rows = 24 };
    struct err err;

    CHECK_OK(linked_run(agent_named(agent), &wish, &op, &err), &err);
    settle();
}

static struct command_view view_of(const char *agent, const char *id)
{
    struct link_command *command;
    struct command_view view;
    struct err err;

    CHECK_OK(linked_command(agent_named(agent), id, &command, &err), &err);
    command_view(command, &view);
    return view;
}

static void check_output(const char *agent, const char *id, const char *want)
{
    struct link_command *command;
    struct err err;
    char text[256] = "";

    CHECK_OK(linked_command(agent_named(agent), id, &command, &err), &err);
    CHECK_INT(command_read(command, 0, 0, text, sizeof(text) - 1, &err), strlen(want));
    CHECK_STR(text, want);
}

/* ---- getting in ---- */

TEST(only_the_agents_own_secret_lets_it_in)
{
    struct played *played = played_new();
    struct err err;

    begin("in.db", (struct links_options){ 0 });
    struct secret a = secret_for("a", false), b = secret_for("b", false);
    CHECK(links_open(links, STR("a"), str_of(b.plain), &played->peer, &err) < 0);
    CHECK_INT(err.code, ERR_UNAUTHENTICATED);
    CHECK(links_open(links, STR("a"), STR(""), &played->peer, &err) < 0);
    CHECK(links_open(links, STR("c"), str_of(a.plain), &played->peer, &err) < 0);
    come(played, "a", a.plain);
    CHECK_INT(links_connected(links), 1);
    links_secret_gone(links, "a");
    CHECK(played->ends == 1 && played->end == ERR_UNAUTHENTICATED);
    CHECK(links_open(links, STR("a"), str_of(a.plain), &played->peer, &err) < 0);
    CHECK(links_open(links, STR("a"), STR_NONE, &played->peer, &err) < 0);
    close_links();
    free(played);
}

TEST(a_rotated_secret_takes_the_place_of_the_old_when_used)
{
    struct played *one = played_new(), *two = played_new();
    struct err err;

    begin("rotate.db", (struct links_options){ 0 });
    struct secret old = secret_for("a", false), next = secret_for("a", true);
    come(one, "a", old.plain); /* both hold */
    come(two, "a", next.plain);
    CHECK(one->ends == 1 && one->end == ERR_CONFLICT); /* taken over */
    links_close(&two->peer);
    CHECK(links_open(links, STR("a"), str_of(old.plain), &one->peer, &err) < 0);
    close_links();
    open_links((struct links_options){ 0 }); /* and it is on disk */
    CHECK(links_open(links, STR("a"), str_of(old.plain), &one->peer, &err) < 0);
    come(two, "a", next.plain);
    links_close(&two->peer);
    next.row.next_until_ms = clock_wall_ms() - 1; /* a rotation whose time is over */
    struct secret late = secret_for("a", true);
    late.row.next_until_ms = clock_wall_ms() - 1;
    links_secret(links, &late.row);
    CHECK(links_open(links, STR("a"), str_of(late.plain), &two->peer, &err) < 0);
    close_links();
    free(one);
    free(two);
}

TEST(who_has_not_registered_says_nothing_and_is_told_nothing)
{
    struct played *played = played_new();
    V1(AgentMessage) message = AGENTIC__SANDBOX__V1__AGENT_MESSAGE__INIT;
    V1(Heartbeat) heartbeat = AGENTIC__SANDBOX__V1__HEARTBEAT__INIT;
    struct err err;

    begin("first.db", (struct links_options){ 0 });
    struct secret secret = secret_for("a", false);
    come(played, "a", secret.plain);
    message.payload_case = AGENTIC__SANDBOX__V1__AGENT_MESSAGE__PAYLOAD_HEARTBEAT;
    message.heartbeat = &heartbeat;
    CHECK(links_hear(&played->peer, &message, &err) < 0);
    CHECK(!linked_tell_secret(agent_named("a"), "x") && played->sent == 0);
    CHECK(say_registration(played, "b", 0, &err) < 0);
    CHECK_STR(err.field, "agent_id");
    CHECK_OK(say_registration(played, "a", 0, &err), &err);
    CHECK(say_registration(played, "a", 0, &err) < 0);
    for (int i = 0; i < LINK_CONTROL_PER_SECOND - 4; i++)
        CHECK_OK(links_hear(&played->peer, &message, &err), &err);
    CHECK(links_hear(&played->peer, &message, &err) < 0);
    CHECK_INT(err.code, ERR_RATE);
    links_close(&played->peer);
    CHECK(links_hear(&played->peer, &message, &err) < 0);
    close_links();
    free(played);
}

/* ---- commands ---- */

TEST(positions_make_again_out_of_twice)
{
    struct played *played = played_new();
    struct err err;

    begin("twice.db", (struct links_options){ 0 });
    struct secret secret = secret_for("a", false);
    come(played, "a", secret.plain);
    CHECK_OK(say_registration(played, "a", 1, &err), &err);
    say_report(played, NULL, 0);
    run("a");
    CHECK_INT(played->commands, 1);
    say_output(played, played->command, 0, "hello");
    CHECK(played->acks == 1 && played->out == 5 && !played->ended);
    say_output(played, played->command, 0, "hello");  /* all of it again */
    say_output(played, played->command, 3, "lo you"); /* some of it */
    CHECK(played->out == 9);
    check_output("a", played->command, "hello you");
    CHECK(!view_of("a", played->command).gap);
    say_output(played, played->command, 20, "!");
    CHECK(view_of("a", played->command).gap);
    say_result(played, played->command, 4);
    CHECK_STR(view_of("a", played->command).state, "running"); /* not before it is stored */
    settle();
    CHECK_STR(view_of("a", played->command).state, "exited");
    CHECK(played->ended);
    played->ended = false;
    say_result(played, played->command, 5); /* said again: acknowledged again, and not believed */
    CHECK(played->ended && view_of("a", played->command).exit_code == 4);
    say_output(played, played->command, 10, "late");
    CHECK_INT(view_of("a", played->command).stdout_bytes, 10);
    close_links();
    free(played);
}

TEST(who_says_no_positions_is_believed_each_time)
{
    struct played *played = played_new();
    struct err err;

    begin("plain.db", (struct links_options){ 0 });
    struct secret secret = secret_for("a", false);
    come(played, "a", secret.plain);
    CHECK_OK(say_registration(played, "a", 0, &err), &err);
    say_report(played, NULL, 0);
    run("a");
    say_output(played, played->command, 0, "ab");
    say_output(played, played->command, 0, "ab");
    check_output("a", played->command, "abab");
    CHECK_INT(played->acks, 0); /* nor does it know what that is */
    close_links();
    free(played);
}

TEST(a_command_outlives_us_and_the_connection)
{
    struct played *one = played_new(), *two = played_new();
    char id[UUID_SIZE];
    struct err err;

    begin("outlive.db", (struct links_options){ 0 });
    struct secret secret = secret_for("a", false);
    come(one, "a", secret.plain);
    CHECK_OK(say_registration(one, "a", 1, &err), &err);
    say_report(one, NULL, 0);
    run("a");
    memcpy(id, one->command, sizeof(id));
    say_output(one, id, 0, "before ");
    links_close(&one->peer);
    CHECK_STR(view_of("a", id).state, "running");
    close_links();
    open_links((struct links_options){ 0 });
    CHECK_STR(view_of("a", id).state, "running");
    come(two, "a", secret.plain);
    CHECK_OK(say_registration(two, "a", 1, &err), &err);
    say_report(two, (char *[]){ id }, 1);
    CHECK(two->out == 7 && two->keeps == 1 && two->kills == 0);
    say_output(two, id, 7, "after");
    say_result(two, id, 0);
    settle();
    check_output("a", id, "before after");
    CHECK_STR(view_of("a", id).state, "exited");
    close_links();
    free(one);
    free(two);
}

TEST(what_is_not_named_is_lost_and_what_was_given_up_is_killed)
{
    struct played *one = played_new(), *two = played_new();
    char lost[UUID_SIZE], other[UUID_SIZE];
    struct err err;

    begin("lost.db", (struct links_options){ 0 });
    struct secret secret = secret_for("a", false);
    come(one, "a", secret.plain);
    CHECK_OK(say_registration(one, "a", 1, &err), &err);
    say_report(one, NULL, 0);
    run("a");
    memcpy(lost, one->command, sizeof(lost));
    links_close(&one->peer);
    uuid_v4(other);
    come(two, "a", secret.plain);
    CHECK_OK(say_registration(two, "a", 1, &err), &err);
    say_report(two, (char *[]){ other, (char *)(uintptr_t) "../x" }, 2);
    settle();
    CHECK_STR(view_of("a", lost).state, "lost");
    CHECK_INT(view_of("a", lost).exit_code, -1);
    CHECK_STR(view_of("a", other).state, "running"); /* taken in */
    CHECK(two->keeps == 1 && two->kills == 0);
    links_close(&two->peer);
    come(one, "a", secret.plain);
    one->peer.registered = one->peer.reported = false;
    CHECK_OK(say_registration(one, "a", 1, &err), &err);
    say_report(one, (char *[]){ other, lost }, 2);
    CHECK(one->keeps == 1 && one->kills == 1 && one->ended);
    close_links();
    free(one);
    free(two);
}

TEST(the_number_of_commands_has_a_limit)
{
    struct command_wish wish = { .command = "x" };
    struct played *played = played_new();
    struct err err;

    begin("many.db", (struct links_options){ 0 });
    struct secret secret = secret_for("a", false);
    come(played, "a", secret.plain);
    CHECK_OK(say_registration(played, "a", 1, &err), &err);
    for (int i = 0; i < LINK_RUNNING_MAX; i++)
        run("a");
    CHECK(linked_run(agent_named("a"), &wish, &op, &err) < 0);
    CHECK_INT(err.code, ERR_RATE);
    say_result(played, played->command, 0);
    settle();
    CHECK_OK(linked_run(agent_named("a"), &wish, &op, &err), &err);
    settle();
    links_close(&played->peer);
    CHECK(linked_run(agent_named("a"), &wish, &op, &err) < 0);
    CHECK_INT(err.code, ERR_CONFLICT);
    close_links();
    free(played);
}

TEST(who_takes_nothing_is_not_said_to_be_away)
{
    struct played *played = played_new();
    struct link_command *command;
    struct err err;

    begin("full.db", (struct links_options){ 0 });
    struct secret secret = secret_for("a", false);
    come(played, "a", secret.plain);
    CHECK_OK(say_registration(played, "a", 1, &err), &err);
    run("a");
    CHECK_OK(linked_command(agent_named("a"), played->command, &command, &err), &err);
    CHECK_OK(command_input(command, STR("x"), false, &err), &err);
    played->full = true;
    CHECK(command_input(command, STR("x"), false, &err) < 0);
    CHECK_INT(err.code, ERR_RATE);
    links_close(&played->peer);
    CHECK(command_input(command, STR("x"), false, &err) < 0);
    CHECK_INT(err.code, ERR_CONFLICT);
    close_links();
    free(played);
}

TEST(the_oldest_that_ended_makes_room)
{
    struct played *played = played_new();
    char first[UUID_SIZE];
    struct err err;
    unsigned count = 0;

    begin("kept.db", (struct links_options){ 0 });
    struct secret secret = secret_for("a", false);
    come(played, "a", secret.plain);
    CHECK_OK(say_registration(played, "a", 1, &err), &err);
    for (int i = 0; i < LINK_KEPT_MAX + 1; i++) {
        run("a");
        if (i == 0) {
            memcpy(first, played->command, sizeof(first));
            say_output(played, first, 0, "x");
            autofree char *made = xprintf("%s/%s.out", spool_path, first);
            struct stat there;
            CHECK(stat(made, &there) == 0);
        }
        say_result(played, played->command, 0);
        settle();
    }
    struct link_command *command = NULL;
    while ((command = linked_next(agent_named("a"), command)))
        count++;
    CHECK_INT(count, LINK_KEPT_MAX);
    CHECK(linked_command(agent_named("a"), first, &command, &err) < 0);
    autofree char *file = xprintf("%s/%s.out", spool_path, first);
    struct stat st;
    CHECK(stat(file, &st) < 0 && stat(spool_path, &st) == 0);
    close_links();
    free(played);
}

TEST(a_command_that_cannot_be_sent_is_lost_at_once)
{
    struct played *played = played_new();
    struct err err;

    begin("deaf.db", (struct links_options){ 0 });
    struct secret secret = secret_for("a", false);
    come(played, "a", secret.plain);
    CHECK_OK(say_registration(played, "a", 1, &err), &err);
    deaf = true;
    run("a");
    struct link_command *command = linked_next(agent_named("a"), NULL);
    CHECK_STR(view_of("a", command->id).state, "lost");
    close_links();
    free(played);
}

/* ---- time ---- */

static void pause_over(struct timer *timer)
{
    (void)timer;
    loop_stop(test_loop);
}

static void turn(int64_t ms)
{
    struct timer timer = { .fn = pause_over };

    timer_set(test_loop, &timer, ms);
    loop_run(test_loop);
}

static enum agent_status status_named(const char *id)
{
    struct agent_view view;

    linked_view(agent_named(id), &view);
    return view.status;
}

TEST(the_silent_are_stale_then_gone_and_those_who_left_lose_their_commands)
{
    struct played *played = played_new();
    struct linked *agent;
    char id[UUID_SIZE];
    struct err err;

    begin("time.db", (struct links_options){
                         .check_ms = 20, .stale_ms = 150, .gone_ms = 400, .remove_ms = 300 });
    links_start(links);
    struct secret secret = secret_for("a", false);
    come(played, "a", secret.plain);
    CHECK_OK(say_registration(played, "a", 1, &err), &err);
    CHECK_INT(status_named("a"), AGENT_STARTING);
    run("a");
    memcpy(id, played->command, sizeof(id));
    turn(250);
    CHECK_INT(status_named("a"), AGENT_STALE);
    CHECK_INT(played->last, AGENTIC__SANDBOX__V1__MANAGEMENT_MESSAGE__PAYLOAD_PING);
    say_output(played, id, 0, "x"); /* a word brings it back */
    CHECK_INT(status_named("a"), AGENT_STARTING);
    turn(600);
    CHECK_INT(status_named("a"), AGENT_DISCONNECTED);
    CHECK_STR(view_of("a", id).state, "running"); /* its stream is open: never removed */
    say_output(played, id, 1, "y");
    links_close(&played->peer);
    turn(500);
    settle();
    CHECK_STR(view_of("a", id).state, "lost");
    CHECK(!links_next(links, reach_all("default"), NULL));
    CHECK(links_find(links, reach_all("other"), "a", &agent, &err) < 0);
    close_links();
    free(played);
}
