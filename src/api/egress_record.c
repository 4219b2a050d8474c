/*
 * What sandboxes reached, or tried to: pages of records and counts by host. Records stay after
 * their sandbox, so an id is taken as it is; a name is looked up among those that are there.
 */
#include "api/egress.h"

static const struct field record_fields[] = {
    FIELD(gate_record, seq, F_INT, F_READONLY, .help = "Its number; rises"),
    FIELD(gate_record, at_ms, F_TIME, F_READONLY, .help = "When it was decided"),
    FIELD(gate_record, sandbox, F_STRING, F_READONLY, .help = "Who wanted it"),
    FIELD(gate_record, run, F_STRING, F_READONLY, .help = "The run it belongs to; empty for none"),
    FIELD(gate_record, kind, F_ENUM, F_READONLY, .choices = "http|connect|tls|tcp|self",
          .help = "How: a request, a tunnel by the proxy, TLS, another connection, atoll.internal"),
    FIELD(gate_record, verdict, F_ENUM, F_READONLY,
          .choices = "allowed|denied|refused|malformed|misled|unresolved|unreached|limited|"
                     "distrusted|timeout|"
                     "asked",
          .help = "What came of it"),
    FIELD(gate_record, why, F_STRING, F_READONLY, .help = "As in explain"),
    FIELD(gate_record, host, F_STRING, F_READONLY, .help = "The host; empty when none was read"),
    FIELD(gate_record, port, F_INT, F_READONLY, .help = "The port"),
    FIELD(gate_record, rule, F_STRING, F_READONLY, .help = "The rule that decided; empty for none"),
    FIELD(gate_record, reason, F_STRING, F_READONLY, .help = "For people"),
    FIELD(gate_record, method, F_STRING, F_READONLY, .help = "Of a request that was seen"),
    FIELD(gate_record, path, F_STRING, F_READONLY, .help = "Likewise, cut off"),
    FIELD(gate_record, version, F_INT, F_READONLY, .help = "Of the policy that decided"),
    FIELD(gate_record, ended_ms, F_TIME, F_READONLY, .help = "When it ended; null while it lasts"),
    FIELD(gate_record, sent, F_INT, F_READONLY, .help = "Bytes from the sandbox"),
    FIELD(gate_record, received, F_INT, F_READONLY, .help = "Bytes to it"),
    FIELD(gate_record, addr, F_STRING, F_READONLY, .help = "Where it went; empty for nowhere"),
    FIELD(gate_record, revoked, F_BOOL, F_READONLY,
          .help = "It was closed because its rule was taken back"),
    { 0 },
};

static const struct field host_fields[] = {
    FIELD(gate_host, host, F_STRING, F_READONLY, .help = "The host"),
    FIELD(gate_host, port, F_INT, F_READONLY, .help = "The port"),
    FIELD(gate_host, allowed, F_INT, F_READONLY, .help = "How often it was let out"),
    FIELD(gate_host, denied, F_INT, F_READONLY, .help = "…and not"),
    FIELD(gate_host, sent, F_INT, F_READONLY, .help = "Bytes from the sandbox"),
    FIELD(gate_host, received, F_INT, F_READONLY, .help = "Bytes to it"),
    FIELD(gate_host, first_ms, F_TIME, F_READONLY, .help = "The first time"),
    FIELD(gate_host, last_ms, F_TIME, F_READONLY, .help = "The last time"),
    { 0 },
};

struct page {
    struct json_out json;
    int64_t last;
};

static void put_record(void *ctx, const struct gate_record *row)
{
    struct page *page = ctx;

    page->last = row->seq;
    field_encode(record_fields, row, &page->json);
}

static int sandbox_id(struct call *call, const char *text, const char **out, struct err *err)
{
    autoquery struct query *q =
        db_query(call->db, "SELECT id FROM sandbox WHERE tenant = $1 AND (id = $2 OR name = $2)");

    query_text(q, 1, call->who.tenant);
    query_text(q, 2, text);
    int rc = query_step(q, err);
    if (rc < 0)
        return -1;
    *out = rc ? query_col_dup(q, 0, &call->arena) : text;
    if ((rc == 0 && !id_valid(str_of(text), "sb")) ||
        (call->within && !within_has(call->within, str_of(*out))))
        return err_set(err, ERR_NOT_FOUND, "no sandbox %.64s", text);
    return 0;
}

static int list(struct call *call, const char *sandbox, struct err *err)
{
    struct gate_filter filter = { .tenant = call->who.tenant, .within = call->within };
    struct page page = { .json = call_json(call) };
    const char *denied = call_query(call, "denied");
    int64_t limit;

    if (sandbox && sandbox_id(call, sandbox, &filter.sandbox, err) < 0)
        return -1;
    if (denied && strcmp(denied, "true") != 0 && strcmp(denied, "false") != 0)
        return err_field(err, "denied", "true or false");
    filter.denied = denied && denied[0] == 't';
    if (call_query_int(call, "since", 0, INT64_MAX, -1, &filter.since, err) < 0 ||
        call_query_int(call, "limit", 1, PAGE_MAX, PAGE_DEFAULT, &limit, err) < 0)
        return -1;
    filter.limit = (unsigned)limit;
    page.last = filter.since < 0 ? 0 : filter.since;
    json_open(&page.json, '{');
    json_key(&page.json, "items");
    json_open(&page.json, '[');
    if (gate_records(call->db, &filter, put_record, &page, err) < 0)
        return -1;
    json_close(&page.json, ']');
    json_kv_int(&page.json, "next", page.last);
    json_close(&page.json, '}');
    return 0;
}

static int records_get(struct call *call, struct err *err)
{
    return list(call, call_query(call, "sandbox"), err);
}

static int box_records_get(struct call *call, struct err *err)
{
    return list(call, call_param(call, "id"), err);
}

static void put_host(void *ctx, const struct gate_host *row)
{
    field_encode(host_fields, row, ctx);
}

static int hosts_get(struct call *call, struct err *err)
{
    struct json_out json = call_json(call);
    const char *id;

    if (sandbox_id(call, call_param(call, "id"), &id, err) < 0)
        return -1;
    json_open(&json, '{');
    json_key(&json, "items");
    json_open(&json, '[');
    if (gate_hosts(call->db, call->who.tenant, id, put_host, &json, err) < 0)
        return -1;
    json_close(&json, ']');
    json_close(&json, '}');
    return 0;
}

#define PAGES                                                                                      \
    "The newest, or those after number `since`, oldest first; `denied=true` for what was not let " \
    "out. `next` is the `since` of the next page; an event egress.recorded says that there is "    \
    "one."

/* clang-format off: a table */
const struct route egress_record_routes[] = {
    { .name = "egress.records",
      .method = "GET",
      .path = "/api/v1/egress/records",
      .on = ON_READER,
      .roles = ROLE_LOOK,
      .fn = records_get,
      .items = record_fields,
      .query = "sandbox:string,denied:string,since:int,limit:int",
      .flags = ROUTE_WITHIN,
      .summary = "What the tenant's sandboxes reached or tried to. " PAGES },
    { .name = "egress.sandbox.records",
      .method = "GET",
      .path = "/api/v1/sandboxes/{id}/egress/records",
      .on = ON_READER,
      .roles = ROLE_LOOK,
      .fn = box_records_get,
      .items = record_fields,
      .query = "denied:string,since:int,limit:int",
      .flags = ROUTE_WITHIN,
      .summary = "What a sandbox reached or tried to. " PAGES },
    { .name = "egress.sandbox.hosts",
      .method = "GET",
      .path = "/api/v1/sandboxes/{id}/egress/hosts",
      .on = ON_READER,
      .roles = ROLE_LOOK,
      .fn = hosts_get,
      .items = host_fields,
      .flags = ROUTE_WITHIN,
      .summary = "The same counted by host and port, the most denied first." },
    { 0 },
};
/* clang-format on */
