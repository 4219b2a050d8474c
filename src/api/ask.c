/*
 * Asks: questions to people, each decided at most once. What is asked for is shown as it is stored,
 * with its digest; a decision may name the digest and is refused when it is about anything else.
 * Only operators decide: whoever asks is a sandbox or an agent, and neither has that role. What is
 * allowed to an agent (hub/proposal.c) happens together with the decision.
 */
#include "api/own.h"

#include "api/egress.h"
#include "api/hub_call.h"
#include "gate/gate.h"

struct ask_view {
    const char *id, *kind, *sandbox, *state, *hash, *by, *note;
    const struct json *action;
    int64_t created_at, expires_at, decided_at;
};

static const struct field ask_fields[] = {
    FIELD(ask_view, id, F_STRING, F_READONLY, .help = "ask…"),
    FIELD(ask_view, kind, F_STRING, F_READONLY,
          .help = "egress: a connection waits; rule: a program inside wants a host allowed; "
                  "claim: an agent proposes to take a task"),
    FIELD(ask_view, sandbox, F_STRING, F_READONLY, .help = "Who asks"),
    FIELD(ask_view, state, F_ENUM, F_READONLY,
          .choices = "pending|allowed|denied|expired|withdrawn", .help = "What came of it"),
    FIELD(ask_view, action, F_JSON, F_READONLY, .help = "Exactly what is asked for"),
    FIELD(ask_view, hash, F_STRING, F_READONLY, .help = "SHA-256 of the action's text"),
    FIELD(ask_view, created_at, F_TIME, F_READONLY, .help = "When it was asked"),
    FIELD(ask_view, expires_at, F_TIME, F_READONLY,
          .help = "When it is denied for want of an answer"),
    FIELD(ask_view, decided_at, F_TIME, F_READONLY, .help = "When it was decided; null before"),
    FIELD(ask_view, by, F_STRING, F_READONLY, .help = "Who decided; null for nobody"),
    FIELD(ask_view, note, F_STRING, F_READONLY, .help = "What they said about it"),
    { 0 },
};

struct decision_wish {
    const char *verdict, *hash, *note;
};

static const struct field decision_fields[] = {
    FIELD(decision_wish, verdict, F_ENUM, F_REQUIRED, .choices = "allow|deny",
          .help = "Of kind egress: allows the connections that wait; of kind rule: adds the rule"),
    FIELD(decision_wish, hash, F_STRING, 0, .min = 64, .max = 64,
          .help = "Of the action that was seen; another one is not decided"),
    FIELD(decision_wish, note, F_STRING, 0, .max = ASK_NOTE_MAX, .help = "Why"),
    { 0 },
};

static struct ask_view view_of(const struct ask_row *row, struct arena *arena)
{
    struct json *action = NULL;

    if (json_parse(arena, str_of(row->action), &action, &(struct err){ 0 }) < 0)
        action = NULL;
    return (struct ask_view){ .id = row->id,
                              .kind = row->kind,
                              .sandbox = row->sandbox,
                              .state = row->state,
                              .hash = row->hash,
                              .by = row->by[0] ? row->by : NULL,
                              .note = row->note[0] ? row->note : NULL,
                              .action = action,
                              .created_at = row->created_ms,
                              .expires_at = row->expires_ms,
                              .decided_at = row->decided_ms };
}

struct page {
    struct json_out json;
    unsigned count, limit;
    char last[ID_SIZE];
};

static void put_ask(void *ctx, const struct ask_row *row)
{
    autoarena struct arena arena = { 0 };
    struct ask_view view = view_of(row, &arena);
    struct page *page = ctx;

    page->count++;
    memcpy(page->last, row->id, MIN(strlen(row->id), sizeof(page->last) - 1));
    field_encode(ask_fields, &view, &page->json);
}

static int ask_list(struct call *call, struct err *err)
{
    struct page page = { .json = call_json(call) };
    const char *state = call_query(call, "state"), *after = call_query(call, "after");
    int64_t limit;

    if (state && !ask_state_ok(state))
        return err_field(err, "state", "pending, allowed, denied, expired or withdrawn");
    if (after && !id_valid(str_of(after), "ask"))
        return err_field(err, "after", "the id that another page ended with");
    if (call_query_int(call, "limit", 1, PAGE_MAX, PAGE_DEFAULT, &limit, err) < 0)
        return -1;
    json_open(&page.json, '{');
    json_key(&page.json, "items");
    json_open(&page.json, '[');
    if (ask_each(call->db, call->who.tenant, state, after, (unsigned)limit, put_ask, &page, err) <
        0)
        return -1;
    json_close(&page.json, ']');
    json_kv_text(&page.json, "next", page.count == limit ? page.last : NULL);
    json_close(&page.json, '}');
    return 0;
}

static int ask_get(struct call *call, struct err *err)
{
    struct ask_row row;

    if (ask_read(call->db, call->who.tenant, call_param(call, "ask"), &call->arena, &row, err) < 0)
        return -1;
    struct ask_view view = view_of(&row, &call->arena);
    return call_reply(call, &view);
}

/* ---- deciding ---- */

struct deciding {
    struct store_job job;
    struct call *call;
    struct ask_decision what;
    struct ask_row row;
    bool now; /* and not before, with the same words */
};

static void decided(struct call *call)
{
    const struct deciding *one = call->state;

    if (one->now)
        gate_ask_decided(call->api->gate, one->row.id, strcmp(one->row.state, "allowed") == 0);
}

/* On the writer thread: all of it, or nothing. */
static int decide(struct deciding *one, struct db *db, struct err *err)
{
    struct call *call = one->call;
    int rc = ask_decide(db, call->who.tenant, call_param(call, "ask"), &one->what, &call->arena,
                        &one->row, err);

    if (rc < 0)
        return -1;
    one->now = rc > 0;
    struct hub_by by = hub_by_db(call, db);
    if (one->now && hub_ask_is(one->row.kind) &&
        hub_decided(&by, one->row.id, one->row.action, one->what.allow, err) < 0)
        return -1;
    call->object = arena_printf(&call->arena, "ask/%s", one->row.id);
    call->detail = one->row.action;
    struct ask_view view = view_of(&one->row, &call->arena);
    buf_clear(&call->reply);
    if (call_reply(call, &view) < 0)
        return -1;
    return call_record(call, db, err);
}

static int decide_run(struct store_job *job, struct db *db, struct err *err)
{
    return decide(container_of(job, struct deciding, job), db, err);
}

/*
 * Of a program's question that is allowed: the decision is a part of the change that adds the rule,
 * so either both are stored or neither is, and the sandbox has the rule once they are.
 */
static int rule_record(struct box_op *op, struct db *db, struct err *err)
{
    struct deciding *one = call_of(op)->state;

    if (decide(one, db, err) < 0)
        return -1;
    return one->now ? 0 : err_set(err, ERR_CONFLICT, "it is allowed already");
}

static int rule_add(struct call *call, const char *sandbox, const char *rule, struct err *err)
{
    struct box *box = boxes_by_id(call->api->boxes, sandbox);

    if (!box)
        return err_set(err, ERR_CONFLICT, "its sandbox is gone");
    return own_rule_add(call, box, rule, rule_record, err);
}

static void decide_done(struct store_job *job)
{
    struct deciding *one = container_of(job, struct deciding, job);

    call_finish(one->call, job->rc < 0 ? &job->err : NULL);
}

static int decision_post(struct call *call, struct err *err)
{
    struct deciding *one = arena_new(&call->arena, struct deciding);
    struct decision_wish wish = { 0 };
    const char *sandbox, *rule;

    if (call_decode(call, &wish, err) < 0)
        return -1;
    one->call = call;
    one->what = (struct ask_decision){
        .allow = wish.verdict[0] == 'a', .hash = wish.hash, .by = call->who.id, .note = wish.note
    };
    call->state = one;
    call->committed = decided;
    rule = one->what.allow
               ? gate_ask_rule(call->api->gate, call->who.tenant, call_param(call, "ask"), &sandbox)
               : NULL;
    if (rule)
        return rule_add(call, arena_strdup(&call->arena, sandbox), arena_strdup(&call->arena, rule),
                        err);
    one->job = (struct store_job){ .run = decide_run, .done = decide_done };
    store_write(call->api->store, &one->job);
    return 0;
}

/* clang-format off: a table */
const struct route ask_routes[] = {
    { .name = "ask.list",
      .method = "GET",
      .path = "/api/v1/asks",
      .on = ON_READER,
      .roles = ROLE_PEOPLE,
      .fn = ask_list,
      .items = ask_fields,
      .query = "state:string,after:string,limit:int",
      .summary = "Questions to people, oldest first: all, or those in a `state`; a page of at most "
                 "`limit` behind the id `after`." },
    { .name = "ask.read",
      .method = "GET",
      .path = "/api/v1/asks/{ask}",
      .on = ON_READER,
      .roles = ROLE_PEOPLE,
      .fn = ask_get,
      .gives = ask_fields,
      .summary = "One of them." },
    { .name = "ask.decide",
      .method = "POST",
      .path = "/api/v1/asks/{ask}/decision",
      .on = ON_LATER,
      .roles = ROLE_STEER,
      .fn = decision_post,
      .takes = decision_fields,
      .gives = ask_fields,
      .summary = "Allow or deny it, once. Saying the same again changes nothing; saying otherwise, "
                 "or too late, is 409." },
    { 0 },
};
/* clang-format on */
