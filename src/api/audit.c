/* The audit log: read it, and have its chain checked. */
#include "api/own.h"

#include "base/clock.h"

static void audit_one(void *ctx, const struct audit *row, const char *hash_hex)
{
    struct json_out *json = ctx;
    char when[CLOCK_TEXT_SIZE];

    clock_text(row->at_ms, when);
    json_open(json, '{');
    json_kv_int(json, "seq", row->seq);
    json_kv_text(json, "time", when);
    json_kv_text(json, "tenant", row->tenant);
    json_kv_text(json, "actor", row->actor);
    json_kv_text(json, "role", row->role);
    json_kv_text(json, "action", row->action);
    json_kv_text(json, "object", row->object);
    json_kv_text(json, "outcome", row->outcome);
    json_kv_text(json, "request_id", row->request_id);
    json_kv_text(json, "peer", row->peer);
    json_key(json, "detail");
    json_put_raw(json, str_of(row->detail));
    json_kv_text(json, "hash", hash_hex);
    json_close(json, '}');
}

static int audit_get(struct call *call, struct err *err)
{
    struct json_out json = call_json(call);
    int64_t since, limit;

    if (call_query_int(call, "since", 0, INT64_MAX, -1, &since, err) < 0 ||
        call_query_int(call, "limit", 1, PAGE_MAX, PAGE_DEFAULT, &limit, err) < 0)
        return -1;
    json_open_list(&json, "items");
    if (audit_list(call->db, call->who.tenant, since, (unsigned)limit, audit_one, &json, err) < 0)
        return -1;
    json_close_list(&json);
    return 0;
}

struct verdict_view {
    bool ok;
    int64_t rows;
    int64_t bad_seq;
    const char *why, *head;
};

static const struct field verdict_fields[] = {
    FIELD(verdict_view, ok, F_BOOL, F_READONLY, .help = "Whether every row fits"),
    FIELD(verdict_view, rows, F_INT, F_READONLY, .help = "Rows checked"),
    FIELD(verdict_view, bad_seq, F_INT, F_READONLY,
          .help = "The first row that does not fit; 0 when all do"),
    FIELD(verdict_view, why, F_STRING, F_READONLY, .help = "What is wrong with it"),
    FIELD(verdict_view, head, F_STRING, F_READONLY,
          .help = "Hash of the last row; note it elsewhere to detect a rollback"),
    { 0 },
};

static int verify_get(struct call *call, struct err *err)
{
    struct audit_verdict verdict = { 0 };

    if (audit_verify(call->db, &verdict, err) < 0)
        return -1;
    struct verdict_view view = { verdict.bad_seq == 0, verdict.rows, verdict.bad_seq, verdict.why,
                                 verdict.head };
    return call_reply(call, &view);
}

const struct route audit_routes[] = {
    { .name = "audit.read",
      .method = "GET",
      .path = "/api/v1/audit",
      .on = ON_READER,
      .roles = ROLE_STEER,
      .fn = audit_get,
      .query = "since:int,limit:int",
      .flags = ROUTE_AFTER,
      .summary = "Audit rows after number `since`, oldest first; without it the newest." },
    { .name = "audit.verify",
      .method = "GET",
      .path = "/api/v1/audit/verify",
      .on = ON_READER,
      .roles = ROLE_STEER,
      .fn = verify_get,
      .flags = ROUTE_NODE,
      .gives = verdict_fields,
      .summary = "Check the hash chain from the first row to the last." },
    { 0 },
};
