/*
 * The proxy for clients outside of sandboxes (`atoll proxy`): whoever brings a signed token may
 * reach what it says. The way out is the one of sandboxes; what differs is where a policy comes
 * from. One listener, one lobby in which connections have proven nothing, and a pass for each token
 * that is in use: a sandbox to everything else in this room. Each request brings its token and is
 * judged by it, also on a connection that brought another one before. When a token ends, so do its
 * tunnels.
 *
 * There is nobody to tell records to: they are lines of the log.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "egress/own.h"
#include "http/h1.h"
#include "policy/grant.h"

struct pass {
    struct box box;
    struct grant grant;
    struct timer end;
    bool ending;
};

struct signer {
    struct egress *egress;
    struct watch listener;
    struct timer hold;
    struct str key;
    int64_t life_s;
    struct box lobby;
};

/* ---- passes ---- */

static void pass_free(struct pass *pass)
{
    struct egress *egress = pass->box.egress;

    timer_cancel(egress->loop, &pass->end);
    map_del(&egress->by_id, str_of(pass->box.id));
    grant_free(&pass->grant);
    free(pass);
}

void signed_idle(struct box *box)
{
    struct signer *signer = box->egress->signer;
    struct pass *pass = container_of(box, struct pass, box);

    if (signer && box != &signer->lobby && !box->conn_count && !pass->ending)
        pass_free(pass);
}

static void pass_close(struct pass *pass)
{
    pass->ending = true;
    list_each_safe (node, &pass->box.conns)
        conn_close(list_entry(node, struct conn, link));
    pass_free(pass);
}

static void on_end(struct timer *timer)
{
    pass_close(container_of(timer, struct pass, end));
}

/* The same token is the same pass: its name is what the token's bytes come to. */
static void pass_name(struct str credentials, char out[BOX_ID_SIZE])
{
    unsigned char digest[SHA256_SIZE];
    char text[SHA256_HEX_SIZE];

    sha256(credentials.p, credentials.n, digest);
    hex_text(digest, sizeof(digest), text);
    memcpy(out, text, BOX_ID_SIZE - 1);
    out[BOX_ID_SIZE - 1] = 0;
}

/* NULL with *err: the credentials are not good. */
static struct box *pass_get(struct signer *signer, struct str credentials, struct err *err)
{
    struct egress *egress = signer->egress;
    const struct grant_terms terms = { signer->key, clock_wall_ms() / 1000, signer->life_s };
    char name[BOX_ID_SIZE];
    struct grant grant = { 0 };

    pass_name(credentials, name);
    struct box *known = map_get(&egress->by_id, str_of(name));
    if (known)
        return known; /* its timer ends it in time */
    if (grant_read(credentials, &terms, &grant, err) < 0)
        return NULL;
    struct pass *pass = xnew(struct pass);
    pass->grant = grant;
    box_init(&pass->box, egress, name);
    pass->box.said = true;
    pass->end.fn = on_end;
    if (policy_open(&pass->box.policy, grant.policy.data, grant.policy.len, err) < 0) {
        pass_free(pass);
        return NULL;
    }
    map_put(&egress->by_id, str_of(name), &pass->box);
    timer_set(egress->loop, &pass->end, (grant.ends_s - terms.now_s) * 1000);
    return &pass->box;
}

/* ---- a request ---- */

static void challenge(struct conn *conn, const char *text)
{
    autobuf struct buf body = { 0 };
    struct json_out out = json_to(&body);

    log_info("no pass, answered 407", kv_str("error", text));
    json_open(&out, '{');
    json_key(&out, "error");
    json_open(&out, '{');
    json_kv_text(&out, "code", "unauthenticated");
    json_kv_text(&out, "message", text);
    json_close(&out, '}');
    json_close(&out, '}');
    buf_putc(&body, '\n');
    buf_printf(&conn->out,
               "HTTP/1.1 407 Proxy Authentication Required\r\n"
               "Proxy-Authenticate: Basic realm=\"atoll\"\r\nContent-Type: application/json\r\n"
               "Content-Length: %zu\r\nConnection: close\r\n\r\n",
               body.len);
    buf_str(&conn->out, buf_view(&body));
    conn_end(conn);
}

/* The one there is; false when there is none, or more than one. */
static bool credentials_of(const struct h1_head *head, struct str *out)
{
    unsigned count = 0;

    for (size_t i = 0; i < head->count; i++)
        if (str_eq_nocase(head->headers[i].name, STR("proxy-authorization"))) {
            *out = str_trim(head->headers[i].value); /* only lines were checked so far */
            count++;
        }
    return count == 1;
}

static void move(struct conn *conn, struct box *box)
{
    struct box *from = conn->box;

    if (from == box)
        return;
    list_remove(&conn->link);
    from->conn_count--;
    conn->box = box;
    list_append(&box->conns, &conn->link);
    box->conn_count++;
    signed_idle(from);
}

bool signed_enter(struct conn *conn, const struct h1_head *head)
{
    struct signer *signer = conn->box->egress->signer;
    struct str credentials = STR_NONE;
    struct err err = { 0 };

    if (!credentials_of(head, &credentials)) {
        challenge(conn, "one Proxy-Authorization is needed: a signed token");
        return false;
    }
    struct box *box = pass_get(signer, credentials, &err);
    if (!box) {
        challenge(conn, err.msg);
        return false;
    }
    if (conn->box != box && box->conn_count >= EGRESS_CONNS_MAX) {
        conn_refuse(conn, EGRESS_LIMITED, NULL, "too many connections with this token");
        signed_idle(box);
        return false;
    }
    move(conn, box);
    return true;
}

const char *signed_session(const struct box *box)
{
    const struct signer *signer = box->egress->signer;

    if (!signer || box == &signer->lobby)
        return NULL;
    return container_of(box, const struct pass, box)->grant.session;
}

/* ---- records ---- */

/* clang-format off */
static const char *const verdict_names[EGRESS_VERDICTS] = {
    [EGRESS_ALLOWED] = "allowed", [EGRESS_DENIED] = "denied", [EGRESS_REFUSED] = "refused",
    [EGRESS_MALFORMED] = "malformed", [EGRESS_MISLED] = "misled",
    [EGRESS_UNRESOLVED] = "unresolved", [EGRESS_UNREACHED] = "unreached",
    [EGRESS_LIMITED] = "limited", [EGRESS_DISTRUSTED] = "distrusted",
};
/* clang-format on */

void signed_record(const struct box *box, const struct egress_msg *msg)
{
    const char *session = signed_session(box);
    const struct egress_decision *one = &msg->body.decision;
    const struct egress_flow *flow = &msg->body.flow;

    if (msg->head.verb == EGRESS_DECISION)
        log_info("decided", kv_str("session", session),
                 kv_str("verdict", verdict_names[one->verdict]), kv_str("host", one->host),
                 kv_int("port", one->port), kv_str("rule", one->rule), kv_str("why", one->text));
    else if (msg->head.verb == EGRESS_FLOW)
        log_info("flow ended", kv_str("session", session), kv_str("host", flow->host),
                 kv_int("port", flow->addr.port), kv_int("sent", (int64_t)flow->sent),
                 kv_int("received", (int64_t)flow->received),
                 kv_int("ms", flow->ended_ms - flow->started_ms));
}

/* ---- the door ---- */

static void hold(struct signer *signer)
{
    loop_change(signer->egress->loop, &signer->listener, 0);
    timer_set(signer->egress->loop, &signer->hold, EGRESS_HOLD_MS);
}

static void on_hold(struct timer *timer)
{
    struct signer *signer = container_of(timer, struct signer, hold);

    if (signer->lobby.conn_count >= EGRESS_CONNS_MAX)
        timer_set(signer->egress->loop, &signer->hold, EGRESS_HOLD_MS);
    else
        loop_change(signer->egress->loop, &signer->listener, EPOLLIN);
}

static void on_listener(struct watch *watch, uint32_t events)
{
    struct signer *signer = container_of(watch, struct signer, listener);
    int fd = accept4(watch->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    (void)events;
    if (fd >= 0)
        conn_proxy(&signer->lobby, fd);
    else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
        hold(signer);
    if (signer->lobby.conn_count >= EGRESS_CONNS_MAX)
        hold(signer);
}

int signed_open(struct egress *egress, const struct egress_signed *how, struct err *err)
{
    struct signer *signer = xnew(struct signer);
    const int on = 1;

    egress->signer = signer;
    signer->egress = egress;
    signer->key = how->key;
    signer->life_s = how->life_s;
    signer->hold.fn = on_hold;
    box_init(&signer->lobby, egress, "");
    signer->lobby.said = true;
    (void)setsockopt(how->listener, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    signer->listener = (struct watch){ .fd = how->listener, .events = EPOLLIN, .fn = on_listener };
    return loop_watch(egress->loop, &signer->listener, err);
}

void signed_close(struct egress *egress)
{
    struct signer *signer = egress->signer;
    struct map_slot *slot;

    if (!signer)
        return;
    for (size_t at = 0; (slot = map_next(&egress->by_id, &at)); at = 0)
        pass_close(container_of((struct box *)slot->value, struct pass, box));
    list_each_safe (node, &signer->lobby.conns)
        conn_close(list_entry(node, struct conn, link));
    timer_cancel(egress->loop, &signer->hold);
    loop_unwatch(egress->loop, &signer->listener);
    free(signer);
    egress->signer = NULL;
}
