#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "gate/own.h"
#include "store/testing.h"

/* ---- two sandboxes out of rows, and an egress process that is played ---- */

static struct gate *gate;
static struct boxes *boxes;
static char one[ID_SIZE], two[ID_SIZE];
static int egress = -1; /* its end of the link */
static struct egress_in told;
static unsigned events;
static char last_event[4096];

static int no_send(void *ctx, const struct wire_msg *msg)
{
    (void)ctx, (void)msg;
    return 0;
}

static void on_event(void *ctx, const struct event *event)
{
    (void)ctx;
    events++;
    snprintf(last_event, sizeof(last_event), "%s %s %.*s", event->type, event->object,
             STR_FMT(event->body));
    if (gate)
        gate_heard(gate, event);
}

static int add_sandbox(struct db *db, const char *id, int64_t slot, const char *spec,
                       struct err *err)
{
    autoquery struct query *q =
        db_query(db, "INSERT INTO sandbox (id, tenant, name, slot, state, reason, spec, by,"
                     " created_ms, changed_ms) VALUES ($1, 'default', '', $2, 'stopped', '', $3,"
                     " 'me', 1, 1)");

    query_text(q, 1, id);
    query_i64(q, 2, slot);
    query_text(q, 3, spec);
    return query_run(q, err) < 0 ? -1 : 0;
}

static int rows_run(struct db *db, void *ctx, struct err *err)
{
    (void)ctx;
    if (add_sandbox(db, one, 1, "{\"egress\":{\"allow\":[\"one.test\"],\"mode\":\"ask\"}}", err) <
            0 ||
        add_sandbox(db, two, 2, "{}", err) < 0)
        return -1;
    return 0;
}

static int load_run(struct db *db, void *ctx, struct err *err)
{
    (void)ctx;
    return boxes_load(boxes, db, err) < 0 ? -1 : gate_load(gate, db, err);
}

static void run(int (*fn)(struct db *, void *, struct err *), void *ctx)
{
    struct err err = { 0 };

    CHECK_OK(test_write(fn, ctx, &err), &err);
}

static struct timer pause_timer;

static void pause_over(struct timer *timer)
{
    (void)timer;
    loop_stop(test_loop);
}

static void turn(int64_t ms)
{
    pause_timer = (struct timer){ .fn = pause_over };
    timer_set(test_loop, &pause_timer, ms);
    loop_run(test_loop);
}

static void link_up(void)
{
    int pair[2];

    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) == 0);
    if (egress >= 0)
        close(egress);
    egress = pair[1];
    if (!told.space)
        egress_in_init(&told);
    egress_in_reset(&told);
    gate_peer(gate, pair[0]);
}

static void life(void)
{
    int spool = open(test_dir(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    CHECK(spool >= 0);
    boxes = boxes_new(&(struct boxes_options){ .loop = test_loop,
                                               .store = test_store,
                                               .spool_dir = spool,
                                               .sandboxes_max = 10,
                                               .send = no_send });
    gate =
        gate_new(&(struct gate_options){ .loop = test_loop, .store = test_store, .boxes = boxes });
    run(load_run, NULL);
    gate_start(gate);
    link_up();
}

static void end(void)
{
    gate_free(gate);
    gate = NULL;
    boxes_free(boxes);
    close(egress);
    egress = -1;
    egress_in_free(&told);
}

static void set_up(void)
{
    static unsigned number;
    autofree char *name = xprintf("gate-%u.db", number++);
    autofree char *path = test_path(name);

    id_make(one, "sb");
    id_make(two, "sb");
    events = 0;
    test_open(path, on_event, NULL);
    run(rows_run, NULL);
    life();
}

static void tear_down(void)
{
    end();
    test_close();
}

/* The next message to the egress process; false: none. */
static bool heard_any(struct egress_msg *msg)
{
    int got = egress_recv(egress, &told, msg);

    CHECK(got == 1 || (got < 0 && errno == EAGAIN));
    return got == 1;
}

/* What follows each policy is for tests of credentials. */
static bool heard(struct egress_msg *msg)
{
    while (heard_any(msg))
        if (msg->head.verb != EGRESS_INJECT)
            return true;
    return false;
}

static void drain(void)
{
    struct egress_msg msg;

    while (heard(&msg))
        ;
}

static struct egress_decision decision(const char *id, const char *host, uint8_t verdict)
{
    static uint64_t serial;
    struct egress_decision what = { .serial = serial,
                                    .pid = 7,
                                    .request = 1,
                                    .version = 3,
                                    .time_ms = clock_wall_ms(),
                                    .port = 443,
                                    .kind = EGRESS_KIND_TLS,
                                    .verdict = verdict,
                                    .reason = WHY_NO_RULE };

    serial++;
    snprintf(what.name.id, sizeof(what.name.id), "%s", id);
    snprintf(what.host, sizeof(what.host), "%s", host);
    snprintf(what.rule, sizeof(what.rule), "a rule");
    snprintf(what.text, sizeof(what.text), "for people");
    return what;
}

static void say(uint16_t verb, uint32_t number, const struct egress_decision *what)
{
    struct egress_msg msg = { .head = { .verb = verb, .number = number } };

    if (what)
        msg.body.decision = *what;
    CHECK(egress_send(egress, &msg) == 0);
}

/* Until what was said is stored. */
static void stored(void)
{
    turn(EGRESS_FLUSH_MS + 60);
    turn(60);
}

static int64_t number_of(const char *id, const char *what)
{
    struct gate_totals totals = gate_totals(gate, boxes_by_id(boxes, id));

    return strcmp(what, "allowed") == 0  ? totals.allowed
           : strcmp(what, "denied") == 0 ? totals.denied
           : strcmp(what, "sent") == 0   ? totals.sent
           : strcmp(what, "used") == 0   ? totals.used
                                         : totals.lost;
}

/* ---- policies ---- */

TEST(a_link_begins_with_everything)
{
    struct egress_msg msg;
    unsigned policies = 0;
    bool asked_one = false;

    set_up();
    CHECK(heard(&msg) && msg.head.verb == EGRESS_CONFIG);
    while (heard(&msg) && msg.head.verb == EGRESS_POLICY) {
        struct policy policy;
        struct policy_answer answer;
        struct host host;
        struct err err = { 0 };

        CHECK_OK(policy_open(&policy, msg.tail, msg.body.policy.size, &err), &err);
        CHECK(policy.version == msg.body.policy.version);
        CHECK(host_parse(STR("one.test"), &host, NULL) == 0);
        policy_decide(&policy, &(struct policy_question){ .host = &host, .port = 443 }, &answer);
        bool is_one = strcmp(msg.body.policy.name.id, one) == 0;
        CHECK_INT(answer.verdict, is_one ? POLICY_ALLOW : POLICY_DENY);
        asked_one |= is_one && policy.mode == POLICY_MODE_ASK;
        policies++;
    }
    CHECK_INT(policies, 2);
    CHECK(asked_one);
    CHECK_INT(msg.head.verb, EGRESS_SYNCED);
    CHECK(gate_linked(gate));
    tear_down();
}

TEST(a_change_is_said_at_once_to_whom_it_concerns)
{
    const char *allow[] = { "x.test", NULL };
    struct egress_spec spec = { .allow = allow, .version = 1 };
    struct gate_layer layer = {
        .level = LEVEL_TENANT, .tenant = "default", .name = "", .spec = &spec, .by = "me"
    };
    struct egress_msg msg;
    unsigned said = 0;
    uint64_t before;

    set_up();
    before = gate_policy(gate, boxes_by_id(boxes, one), NULL)->version;
    drain();
    gate_layer_set(gate, &layer);
    while (heard(&msg)) {
        CHECK_INT(msg.head.verb, EGRESS_POLICY);
        CHECK(msg.body.policy.version > before);
        said++;
    }
    CHECK_INT(said, 2);
    layer.tenant = "other";
    gate_layer_set(gate, &layer);
    CHECK(!heard(&msg));
    layer.level = LEVEL_PROJECT;
    layer.name = "shop";
    layer.tenant = "default";
    gate_layer_set(gate, &layer);
    CHECK(!heard(&msg)); /* neither belongs to it */
    autofree char *object = xprintf("sandbox/%s", two);
    gate_heard(gate,
               &(struct event){ .type = (char *)(uintptr_t) "sandbox.deleted", .object = object });
    CHECK(heard(&msg) && msg.head.verb == EGRESS_FORGET);
    CHECK_STR(msg.body.forget.id, two);
    tear_down();
}

/* ---- credentials ---- */

#define HELD_ONE INJECT_PLACEHOLDER_PREFIX "0123456789abcdef0123456789abc"

static void set_secret(const char *tenant, const char *name, const char *hosts, const char *held,
                       const char *sealed)
{
    gate_secret_set(gate, &(struct gate_secret){ .tenant = tenant,
                                                 .name = name,
                                                 .hosts = hosts,
                                                 .placeholder = held,
                                                 .sealed = str_of(sealed) });
}

/* What was last said to go into the requests of this one; the number of rules, -1: nothing was. */
static int last_said(const char *id, struct inject_set *out)
{
    static char kept[EGRESS_POLICY_MAX];
    struct egress_msg msg;
    int rules = -1;
    bool policy = false;

    while (heard_any(&msg)) {
        if (msg.head.verb == EGRESS_POLICY)
            policy = strcmp(msg.body.policy.name.id, id) == 0;
        if (msg.head.verb != EGRESS_INJECT || strcmp(msg.body.inject.name.id, id) != 0)
            continue;
        CHECK(policy); /* right behind it */
        memcpy(kept, msg.tail, msg.body.inject.size);
        *out = (struct inject_set){ 0 };
        if (msg.body.inject.size)
            CHECK(inject_parse((struct str){ kept, msg.body.inject.size }, out, NULL) == 0);
        rules = (int)out->rule_count;
    }
    return rules;
}

static void set_tenant(const char **inject, const char **secrets, bool locked)
{
    static int64_t version;
    version++;
    struct egress_spec spec = {
        .inject = inject, .secrets = secrets, .locked = locked, .version = version
    };

    gate_layer_set(
        gate,
        &(struct gate_layer){
            .level = LEVEL_TENANT, .tenant = "default", .name = "", .spec = &spec, .by = "me" });
}

TEST(credentials_follow_the_policy_and_every_change)
{
    const char *rules[] = { "api.test => X-Key: {secret:KEY}", "b.test => X-B: {secret:GONE}",
                            NULL };
    const char *held[] = { "TOKEN=KEY", NULL };
    struct inject_set *set = xnew(struct inject_set);
    struct gate_credential shown[8];
    struct box *box;

    set_up();
    box = boxes_by_id(boxes, two);
    CHECK_INT(last_said(two, set), 0); /* nothing is said too: an earlier life may have said some */
    set_secret("other", "KEY", "api.test", HELD_ONE, "of another tenant");
    set_tenant(rules, held, false);
    CHECK_INT(last_said(two, set), 0); /* there is no secret of ours yet */
    CHECK(!policy_intercepts(gate_policy(gate, box, NULL)));
    set_secret("default", "KEY", "api.test\nc.test:8443", HELD_ONE, "sealed one");
    CHECK_INT(last_said(two, set), 3); /* the rule, and the placeholder to both hosts */
    CHECK(str_is(set->rules[0].header, "X-Key") && str_is(set->rules[2].match, "c.test:8443"));
    CHECK(set->secret_count == 1 && str_is(set->secrets[0].sealed, "sealed one"));
    CHECK(str_is(set->secrets[0].placeholder, HELD_ONE));
    CHECK(policy_intercepts(gate_policy(gate, box, NULL)));
    CHECK_INT(gate_credential_list(gate, box, shown, ARRAY_LEN(shown)), 3);
    CHECK(!shown[0].missing && shown[1].missing && strcmp(shown[2].list, "secret") == 0);
    set_secret("other", "KEY", "evil.test", HELD_ONE, "of another tenant, changed");
    CHECK_INT(last_said(two, set), -1);
    set_secret("default", "KEY", "api.test", HELD_ONE, "sealed two");
    CHECK_INT(last_said(two, set), 2);
    CHECK(str_is(set->secrets[0].sealed, "sealed two"));
    link_up(); /* another egress process */
    turn(30);
    CHECK_INT(last_said(two, set), 2);
    set_secret("default", "KEY", "", "", "");
    CHECK_INT(last_said(two, set), 0);
    free(set);
    tear_down();
}

TEST(a_lock_and_too_many_leave_none)
{
    const char *one_rule[] = { "api.test => X-Key: {secret:KEY}", NULL };
    const char *many[INJECT_RULES_MAX + 1] = { NULL };
    struct egress_spec own = { .inject = one_rule };
    struct inject_set *set = xnew(struct inject_set);
    struct err err = { 0 };
    struct box *box;

    set_up();
    box = boxes_by_id(boxes, two);
    set_secret("default", "KEY", "api.test", HELD_ONE, "sealed");
    for (size_t i = 0; i < INJECT_RULES_MAX; i++)
        many[i] = one_rule[0];
    set_tenant(many, NULL, false);
    CHECK_INT(last_said(two, set), INJECT_RULES_MAX);
    CHECK(!gate_credentials(gate, box));
    CHECK(gate_try(gate, box, &own, &err) < 0 && err.code == ERR_LIMIT); /* one more */
    set_tenant(NULL, NULL, true);
    CHECK_OK(gate_try(gate, box, &own, &err), &err);
    struct layer_ref layers[LEVELS];
    CHECK_INT(layers_of(gate, "default", &own, layers), 1); /* not the sandbox's own */
    CHECK(layers[0].level == LEVEL_TENANT);
    CHECK_INT(last_said(two, set), 0);
    free(set);
    tear_down();
}

TEST(nonsense_ends_the_link_and_another_begins_anew)
{
    struct egress_msg msg;

    set_up();
    drain();
    CHECK(send(egress, "nonsense", 8, 0) == 8);
    turn(20);
    CHECK(!gate_linked(gate));
    link_up();
    CHECK(heard(&msg) && msg.head.verb == EGRESS_CONFIG);
    CHECK(gate_linked(gate));
    tear_down();
}

/* ---- records ---- */

struct seen {
    unsigned count;
    struct gate_record last;
    char addr[64], verdict[16], host[64];
    struct gate_host hosts[4];
    unsigned host_count;
};

static void see(void *ctx, const struct gate_record *row)
{
    struct seen *seen = ctx;

    seen->count++;
    seen->last = *row;
    snprintf(seen->addr, sizeof(seen->addr), "%s", row->addr);
    snprintf(seen->verdict, sizeof(seen->verdict), "%s", row->verdict);
    snprintf(seen->host, sizeof(seen->host), "%s", row->host);
}

static void see_host(void *ctx, const struct gate_host *row)
{
    struct seen *seen = ctx;

    if (seen->host_count < ARRAY_LEN(seen->hosts))
        seen->hosts[seen->host_count] = *row;
    seen->host_count++;
}

static struct gate_filter filter = { .tenant = "default", .since = 0, .limit = 1000 };

static int look_run(struct db *db, void *ctx, struct err *err)
{
    if (gate_records(db, &filter, see, ctx, err) < 0)
        return -1;
    return gate_hosts(db, "default", one, see_host, ctx, err);
}

TEST(decisions_and_their_ends_are_kept_and_counted)
{
    struct egress_decision allowed, denied, stranger;
    struct seen seen = { 0 }, only = { 0 };

    set_up();
    drain();
    allowed = decision(one, "one.test", EGRESS_ALLOWED);
    denied = decision(one, "evil.test", EGRESS_DENIED);
    stranger = decision(one, "evil.test", EGRESS_DENIED);
    memcpy(stranger.name.id, "sb0000", 6);
    say(EGRESS_DECISION, 0, &allowed);
    say(EGRESS_DECISION, 0, &denied);
    say(EGRESS_DECISION, 0, &stranger);
    stored();
    run(look_run, &seen);
    CHECK_INT(seen.count, 2);
    CHECK_STR(seen.verdict, "denied");
    CHECK_STR(seen.host, "evil.test");
    CHECK_INT(seen.last.port, 443);
    CHECK_INT(seen.host_count, 2);
    CHECK(strncmp(last_event,
                  "egress.recorded egress/records {\"first\":1,\"last\":2,\"denied\":1}", 60) == 0);
    struct egress_msg flow = { .head.verb = EGRESS_FLOW };
    flow.body.flow =
        (struct egress_flow){ .name = allowed.name,
                              .serial = allowed.serial,
                              .pid = 7,
                              .request = 1,
                              .started_ms = 1,
                              .ended_ms = clock_wall_ms(),
                              .sent = 10,
                              .received = 20,
                              .kind = EGRESS_KIND_TLS,
                              .revoked = 1,
                              .addr = { .family = 4, .port = 443, .bytes = { 9, 9, 9, 9 } } };
    snprintf(flow.body.flow.host, sizeof(flow.body.flow.host), "one.test");
    CHECK(egress_send(egress, &flow) == 0);
    stored();
    filter.limit = 1;
    run(look_run, &only);
    filter.limit = 1000;
    CHECK_STR(only.addr, "9.9.9.9:443");
    CHECK(only.last.sent == 10 && only.last.received == 20 && only.last.revoked &&
          only.last.ended_ms);
    CHECK_INT(only.hosts[1].sent, 10); /* most denied first */
    CHECK_INT(number_of(one, "allowed"), 1);
    CHECK_INT(number_of(one, "denied"), 1);
    CHECK_INT(number_of(one, "sent"), 10);
    filter.denied = true;
    seen = (struct seen){ 0 };
    run(look_run, &seen);
    filter.denied = false;
    CHECK_INT(seen.count, 1);
    filter.tenant = "other";
    seen = (struct seen){ 0 };
    run(look_run, &seen);
    filter.tenant = "default";
    CHECK_INT(seen.count, 0);
    end(); /* and another life knows what was counted */
    life();
    CHECK_INT(number_of(one, "allowed"), 1);
    CHECK_INT(number_of(one, "sent"), 10);
    tear_down();
}

static void say_used(const char *id, uint64_t bytes)
{
    struct egress_msg msg = { .head.verb = EGRESS_USED, .body.used.bytes = bytes };

    memcpy(msg.body.used.name.id, id, strlen(id));
    CHECK(egress_send(egress, &msg) == 0);
    stored();
}

TEST(what_was_used_is_kept_though_nothing_else_of_the_sandbox_is)
{
    set_up();
    drain();
    say_used(one, 500);
    end();
    life();
    CHECK_INT(number_of(one, "used"), 500);
    say_used(one, 400); /* it only ever rises */
    end();
    life();
    CHECK_INT(number_of(one, "used"), 500);
    say_used(one, 600);
    end();
    life();
    CHECK_INT(number_of(one, "used"), 600);
    tear_down();
}

/* A turn that ends in the middle of a datagram: no descriptor tells of its rest. */
TEST(what_comes_together_is_read_to_its_end)
{
    static struct egress_msg many[31];
    uint64_t bytes = 0;

    set_up();
    drain();
    for (int packs = 0; packs < 9; packs++) { /* more than are read in a turn */
        for (unsigned i = 0; i < ARRAY_LEN(many); i++) {
            many[i] = (struct egress_msg){ .head.verb = EGRESS_USED, .body.used.bytes = ++bytes };
            memcpy(many[i].body.used.name.id, one, strlen(one));
        }
        CHECK(egress_send_many(egress, many, ARRAY_LEN(many)) == 0);
    }
    stored();
    CHECK_INT(number_of(one, "used"), (int64_t)bytes);
    tear_down();
}

TEST(of_one_sandbox_so_many_records_are_kept_in_a_second)
{
    struct egress_decision what;
    struct seen seen = { 0 };

    set_up();
    drain();
    for (int i = 0; i <= EGRESS_RECORDS_PER_SECOND; i++) {
        what = decision(one, "evil.test", EGRESS_DENIED);
        records_decision(gate, &what);
    }
    what = decision(two, "evil.test", EGRESS_DENIED);
    records_decision(gate, &what); /* another has its own */
    CHECK_INT(number_of(one, "lost"), 1);
    stored();
    stored();
    run(look_run, &seen);
    CHECK_INT(seen.count, EGRESS_RECORDS_PER_SECOND + 1);
    CHECK_INT(seen.hosts[0].denied, EGRESS_RECORDS_PER_SECOND + 1); /* counted all the same */
    CHECK_INT(number_of(two, "lost"), 0);
    tear_down();
}

TEST(what_waits_for_the_store_is_bounded)
{
    struct egress_decision what;

    set_up();
    drain();
    for (int i = 0; i < EGRESS_WAITING_MAX; i++) {
        what = decision(one, "evil.test", EGRESS_DENIED);
        records_decision(gate, &what);
    }
    CHECK_INT(number_of(two, "lost"), 0);
    what = decision(two, "evil.test", EGRESS_DENIED);
    records_decision(gate, &what);
    CHECK_INT(number_of(two, "lost"), 1);
    tear_down();
}

/* ---- asks ---- */

struct looked {
    struct arena arena;
    struct ask_row row;
    struct ask_decision what;
    unsigned count;
    int rc;
    struct err err;
    const char *id;
};

static void take_ask(void *ctx, const struct ask_row *row)
{
    struct looked *looked = ctx;

    looked->count++;
    looked->row = *row;
    looked->row.id = arena_strdup(&looked->arena, row->id);
    looked->row.hash = arena_strdup(&looked->arena, row->hash);
    looked->row.state = arena_strdup(&looked->arena, row->state);
    looked->row.action = arena_strdup(&looked->arena, row->action);
}

static int asks_run(struct db *db, void *ctx, struct err *err)
{
    return ask_each(db, "default", NULL, NULL, 1000, take_ask, ctx, err);
}

static int decide_run(struct db *db, void *ctx, struct err *err)
{
    struct looked *looked = ctx;

    (void)err;
    looked->rc = ask_decide(db, "default", looked->id, &looked->what, &looked->arena, &looked->row,
                            &looked->err);
    return 0;
}

static int decide(struct looked *looked, bool allow, const char *hash)
{
    looked->id = looked->row.id;
    looked->what = (struct ask_decision){ .allow = allow, .hash = hash, .by = "me" };
    run(decide_run, looked);
    if (looked->rc > 0)
        gate_ask_decided(gate, looked->id, allow);
    return looked->rc;
}

static int answer_to(uint32_t number)
{
    struct egress_msg msg;

    if (!heard(&msg))
        return -1;
    CHECK_INT(msg.head.verb, EGRESS_ANSWER);
    CHECK_INT(msg.head.number, number);
    return (int)msg.body.answer.allow;
}

TEST(an_ask_is_decided_once_for_all_who_wait)
{
    struct egress_decision what;
    struct looked looked = { 0 };

    set_up();
    drain();
    what = decision(one, "new.test", EGRESS_ASKED);
    say(EGRESS_ASK, 11, &what);
    say(EGRESS_ASK, 12, &what);
    stored();
    CHECK(strncmp(last_event, "ask.created ", 12) == 0);
    run(asks_run, &looked);
    CHECK_INT(looked.count, 1);
    CHECK_STR(looked.row.state, "pending");
    CHECK(strstr(looked.row.action, "\"host\":\"new.test\",\"port\":443"));
    CHECK_INT(gate_ask_waiting(gate, looked.row.id), 2);
    CHECK_INT(answer_to(0), -1);
    CHECK_INT(decide(&looked, true, "not the digest"), -1);
    CHECK_INT(looked.err.code, ERR_CONFLICT);
    CHECK_INT(decide(&looked, true, looked.row.hash), 1);
    CHECK_INT(answer_to(11), 1);
    CHECK_INT(answer_to(12), 1);
    CHECK_INT(decide(&looked, true, NULL), 0);   /* a second click */
    CHECK_INT(decide(&looked, false, NULL), -1); /* and another mind */
    CHECK_INT(looked.err.code, ERR_CONFLICT);
    say(EGRESS_ASK, 12, &what); /* repeated: it has waited since before the decision */
    turn(20);
    CHECK_INT(answer_to(12), 1);
    what.time_ms = clock_wall_ms() + 1;
    say(EGRESS_ASK, 13, &what); /* allowed were those who waited */
    stored();
    run(asks_run, &looked);
    CHECK_INT(looked.count, 3);
    arena_free(&looked.arena);
    tear_down();
}

TEST(an_allowance_that_nobody_got_is_for_the_next_one)
{
    struct egress_decision what;
    struct looked looked = { 0 };

    set_up();
    drain();
    what = decision(one, "new.test", EGRESS_ASKED);
    say(EGRESS_ASK, 31, &what);
    say(EGRESS_ASK, 31, &what); /* repeated, it still waits once */
    stored();
    run(asks_run, &looked);
    CHECK_INT(gate_ask_waiting(gate, looked.row.id), 1);
    say(EGRESS_UNASK, 31, &what);
    turn(20);
    CHECK_INT(gate_ask_waiting(gate, looked.row.id), 0);
    CHECK_INT(decide(&looked, true, NULL), 1);
    what.time_ms = clock_wall_ms() + 1;
    say(EGRESS_ASK, 32, &what);
    turn(20);
    CHECK_INT(answer_to(32), 1);
    say(EGRESS_ASK, 33, &what); /* and no more */
    stored();
    CHECK_INT(answer_to(0), -1);
    run(asks_run, &looked);
    CHECK_INT(looked.count, 3);
    arena_free(&looked.arena);
    tear_down();
}

TEST(a_denial_holds_until_the_ask_would_have_ended)
{
    struct egress_decision what;
    struct looked looked = { 0 };

    set_up();
    drain();
    what = decision(one, "new.test", EGRESS_ASKED);
    say(EGRESS_ASK, 21, &what);
    stored();
    run(asks_run, &looked);
    CHECK_INT(decide(&looked, false, NULL), 1);
    CHECK_INT(answer_to(21), 0);
    say(EGRESS_ASK, 22, &what);
    turn(20);
    CHECK_INT(answer_to(22), 0);
    run(asks_run, &looked);
    CHECK_INT(looked.count, 2); /* the same one, seen twice */
    arena_free(&looked.arena);
    tear_down();
}

static int hurry_run(struct db *db, void *ctx, struct err *err)
{
    autoquery struct query *q = db_query(db, "UPDATE ask SET expires_ms = $1");

    (void)ctx;
    query_i64(q, 1, clock_wall_ms() - 1);
    return query_run(q, err) < 0 ? -1 : 0;
}

TEST(nobody_answers_and_it_is_refused)
{
    struct egress_decision what;
    struct looked looked = { 0 };

    set_up();
    drain();
    what = decision(one, "new.test", EGRESS_ASKED);
    say(EGRESS_ASK, 31, &what);
    stored();
    run(hurry_run, NULL);
    run(asks_run, &looked);
    CHECK_INT(decide(&looked, true, NULL), -1); /* too late, though nobody has noticed yet */
    CHECK_INT(looked.err.code, ERR_CONFLICT);
    end();
    life(); /* what was open is known again, and its end comes */
    drain();
    turn(1100);
    stored();
    looked.count = 0;
    run(asks_run, &looked);
    CHECK_STR(looked.row.state, "expired");
    CHECK(strncmp(last_event, "ask.expired ", 12) == 0);
    arena_free(&looked.arena);
    tear_down();
}

TEST(only_in_mode_ask_and_only_so_many)
{
    struct egress_decision what;
    struct looked looked = { 0 };

    set_up();
    drain();
    what = decision(two, "new.test", EGRESS_ASKED); /* its mode is deny */
    say(EGRESS_ASK, 41, &what);
    turn(20);
    CHECK_INT(answer_to(41), 0);
    for (uint32_t i = 0; i < ASKS_PENDING_MAX; i++) {
        what = decision(one, "", EGRESS_ASKED);
        snprintf(what.host, sizeof(what.host), "h%u.test", i);
        say(EGRESS_ASK, 100 + i, &what);
        turn(1);
    }
    turn(20);
    CHECK_INT(answer_to(0), -1);
    what = decision(one, "more.test", EGRESS_ASKED);
    say(EGRESS_ASK, 99, &what);
    turn(20);
    CHECK_INT(answer_to(99), 0);
    what = decision(one, "h0.test", EGRESS_ASKED);
    for (uint32_t i = 1; i < ASKS_WAITING_MAX; i++)
        questions_asked(gate, 1000 + i, &what);
    CHECK_INT(answer_to(0), -1);
    questions_asked(gate, 5000, &what);
    CHECK_INT(answer_to(5000), 0);
    questions_unasked(gate, 1001); /* one leaves, another fits */
    questions_asked(gate, 5001, &what);
    CHECK_INT(answer_to(0), -1);
    stored();
    run(asks_run, &looked);
    CHECK_INT(looked.count, ASKS_PENDING_MAX);
    arena_free(&looked.arena);
    tear_down();
}
