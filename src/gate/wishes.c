/*
 * What programs in sandboxes want of us, through http://atoll.internal/ (egress/self.c): that
 * somebody allows a host, what became of that, and the hub. The egress process has read the
 * request; what it says is checked and small, and whose it is, is its word alone. A sandbox sees
 * its own questions and decides nothing.
 */
#include <stdio.h>
#include <string.h>

#include "gate/own.h"

struct wish_job {
    struct store_job job;
    struct gate *gate;
    uint32_t number;
    char tenant[GATE_TENANT_MAX + 1], sandbox[ID_SIZE], id[ID_SIZE];
    struct buf body;
    struct json_out out;
    unsigned count;
};

static void fail(struct gate *gate, uint32_t number, unsigned status, const char *code,
                 const char *message)
{
    autobuf struct buf body = { 0 };
    struct json_out out = json_to(&body);

    json_open(&out, '{');
    json_key(&out, "error");
    json_open(&out, '{');
    json_kv_text(&out, "code", code);
    json_kv_text(&out, "message", message);
    json_close(&out, '}');
    json_close(&out, '}');
    buf_putc(&body, '\n');
    peer_told(gate, number, status, buf_view(&body));
}

static void put_ask(struct json_out *out, const struct ask_row *row)
{
    json_open(out, '{');
    json_kv_text(out, "id", row->id);
    json_kv_text(out, "state", row->state);
    json_key(out, "action");
    json_put_raw(out, str_of(row->action));
    json_kv_int(out, "created_ms", row->created_ms);
    json_kv_int(out, "expires_ms", row->expires_ms);
    json_kv_int(out, "decided_ms", row->decided_ms);
    json_kv_text(out, "note", row->note && row->note[0] ? row->note : NULL);
    json_close(out, '}');
}

/* ---- what became of it ---- */

static void take(void *ctx, const struct ask_row *row)
{
    struct wish_job *one = ctx;

    one->count++;
    put_ask(&one->out, row);
}

static int read_run(struct store_job *job, struct db *db, struct err *err)
{
    struct wish_job *one = container_of(job, struct wish_job, job);
    bool all = !one->id[0];

    one->out = json_to(&one->body);
    if (all) {
        json_open(&one->out, '{');
        json_key(&one->out, "items");
        json_open(&one->out, '[');
    }
    if (ask_of_box(db, one->tenant, one->sandbox, one->id, take, one, err) < 0)
        return -1;
    if (all) {
        json_close(&one->out, ']');
        json_close(&one->out, '}');
    }
    buf_putc(&one->body, '\n');
    return 0;
}

static void read_done(struct store_job *job)
{
    struct wish_job *one = container_of(job, struct wish_job, job);

    if (job->rc < 0)
        fail(one->gate, one->number, 503, "unavailable", "it cannot be read now; try again");
    else if (one->id[0] && !one->count)
        fail(one->gate, one->number, 404, "not_found", "no such ask of this sandbox");
    else
        peer_told(one->gate, one->number, 200, buf_view(&one->body));
    buf_free(&one->body);
    free(one);
}

static void read_asks(struct gate *gate, const struct gate_box *box, uint32_t number,
                      const char *id)
{
    struct wish_job *one = xnew(struct wish_job);

    one->gate = gate;
    one->number = number;
    snprintf(one->tenant, sizeof(one->tenant), "%s", box->tenant);
    snprintf(one->sandbox, sizeof(one->sandbox), "%s", box->id);
    snprintf(one->id, sizeof(one->id), "%.*s", (int)sizeof(one->id) - 1, id);
    one->job = (struct store_job){ .run = read_run, .done = read_done };
    store_read(gate->store, &one->job);
}

/* ---- asking ---- */

void wishes_asked(struct gate *gate, uint32_t number, const struct ask_row *row)
{
    autobuf struct buf body = { 0 };
    struct json_out out = json_to(&body);

    if (!row) {
        fail(gate, number, 503, "unavailable", "it could not be stored; try again");
        return;
    }
    put_ask(&out, row);
    buf_putc(&body, '\n');
    peer_told(gate, number, 202, buf_view(&body));
}

static void ask(struct gate *gate, const struct gate_box *box, uint32_t number,
                const struct egress_own *own)
{
    autobuf struct buf action = { 0 };
    struct json_out out = json_to(&action);
    char id[ID_SIZE];
    struct host host;

    if (host_parse_name(str_of(own->host), &host, NULL) < 0) {
        fail(gate, number, 400, "invalid", "host: a name such as api.example.org, and no address");
        return;
    }
    json_open(&out, '{');
    json_kv_text(&out, "do", "allow");
    json_kv_text(&out, "sandbox", box->id);
    json_kv_str(&out, "host", host_str(&host));
    if (own->port)
        json_kv_int(&out, "port", own->port);
    if (own->reason[0])
        json_kv_text(&out, "reason", own->reason);
    json_close(&out, '}');
    switch (questions_wished(gate, box, buf_cstr(&action), number, id)) {
    case WISHED:
        return;
    case WISHED_BEFORE:
        read_asks(gate, box, number, id);
        return;
    case WISHED_TOO_MUCH:
        fail(gate, number, 429, "too_many_requests", "too many questions of this sandbox are open");
        return;
    }
}

void wishes_heard(struct gate *gate, uint32_t number, const struct egress_own *own)
{
    const struct gate_box *box = map_get(
        &gate->known, (struct str){ own->name.id, strnlen(own->name.id, sizeof(own->name.id)) });

    if (!box)
        fail(gate, number, 503, "unavailable", "this sandbox is not known yet; try again");
    else if (own->wish == EGRESS_WISH_ASK)
        ask(gate, box, number, own);
    else
        read_asks(gate, box, number, own->wish == EGRESS_WISH_READ ? own->id : "");
}

/* ---- the hub ---- */

void wishes_hub(struct gate *gate, uint32_t number, const struct egress_hub *hub, const char *tail)
{
    struct box *box = boxes_by_id(gate->boxes, hub->name.id);
    const struct gate_box *known = map_get(&gate->known, str_of(hub->name.id));
    struct sandbox_view view;
    const char *agent;

    if (!box || !known || !gate->hub) {
        fail(gate, number, 503, "unavailable", "this sandbox is not known yet; try again");
        return;
    }
    box_view(box, &view);
    agent = view.egress && view.egress->agent ? view.egress->agent : "";
    gate->hub(gate->hub_ctx,
              &(struct gate_hub_ask){ .number = number,
                                      .sandbox = known->id,
                                      .tenant = known->tenant,
                                      .agent = agent[0] ? agent : NULL,
                                      .method = str_of(hub->method),
                                      .path = { tail, hub->path_size },
                                      .body = { tail + hub->path_size, hub->body_size } });
}

void gate_hub_told(struct gate *gate, uint32_t number, int status, struct str body)
{
    if (body.n > EGRESS_TOLD_MAX)
        fail(gate, number, 413, "too_large",
             "the answer has more than 65536 bytes; ask for less, with limit= where there is one");
    else
        peer_told(gate, number, (unsigned)status, body);
}
