/*
 * What a sandbox trusts besides what its image does: the authority with which the egress process
 * stands in for hosts whose TLS is opened (egress/mint.h). It is put into the sandbox by an
 * operation of its init (init/builtin_trust.c) as soon as it is known, warm sandboxes included, and
 * again whenever it changes or the sandbox starts anew. Who wants to use the sandbox meanwhile
 * waits for it, TRUST_WAIT_MS at most: programs read what they trust once.
 *
 * The certificate comes from the egress process and goes only where that sandbox looks.
 */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "box/job.h"
#include "box/own.h"

static void done(struct box_job *job, const struct err *err);

static void tell(struct box *box, const struct err *err)
{
    struct list waiting, *node;

    timer_cancel(box->boxes->loop, &box->trust.late);
    list_init(&waiting);
    while ((node = list_pop(&box->trust.waiters)))
        list_append(&waiting, node);
    while ((node = list_pop(&waiting))) {
        struct box_op *op = list_entry(node, struct box_op, node);

        op->done(op, err);
    }
}

static void on_late(struct timer *timer)
{
    struct box *box = container_of(timer, struct box, trust.late);

    log_warn("a sandbox goes on without the authority it should trust", kv_str("sandbox", box->id));
    box->trust.given_up = true;
    tell(box, NULL);
}

void trusted_init(struct box *box)
{
    box->trust.late.fn = on_late;
    list_init(&box->trust.waiters);
}

void trusted_free(struct box *box, const struct err *err)
{
    box_job_drop(&box->trust.job);
    tell(box, err);
    buf_free(&box->trust.pem);
    free(box->trust.env);
}

void trusted_try(struct box *box)
{
    struct box_trust *trust = &box->trust;
    char hash[16];
    const char *const args[] = { "trust", hash, NULL };
    const struct box_job_spec spec = { .user = "root", .ours = true, .args = args, .input = true };
    struct err err = { 0 };

    if (!trust->wanted || trust->in || trust->putting || !trust->pem.len ||
        box->state != SANDBOX_RUNNING || box->busy || box->link.fd < 0)
        return;
    snprintf(hash, sizeof(hash), "%08x", trust->hash);
    trust->job = (struct box_job){ .done = done };
    if (box_job_start(box, &trust->job, &spec, &err) < 0) {
        log_warn("a sandbox cannot be told what to trust", kv_str("sandbox", box->id),
                 kv_str("error", err.msg));
        return;
    }
    trust->putting = true;
    trust->changed = false;
    if (box_job_put(&trust->job, buf_view(&trust->pem)) < trust->pem.len)
        log_warn("an authority's certificate was cut", kv_str("sandbox", box->id));
    box_job_eof(&trust->job);
}

static void done(struct box_job *job, const struct err *err)
{
    struct box *box = container_of(job, struct box, trust.job);

    box->trust.putting = false;
    if (err) {
        log_warn("a sandbox does not trust what it should", kv_str("sandbox", box->id),
                 kv_str("error", err->msg));
        box->trust.given_up = true;
    } else {
        box->trust.in = !box->trust.changed;
    }
    if (box->trust.changed)
        trusted_try(box);
    if (!box->trust.putting && !box->boxes->stopping) /* then trusted_free tells them */
        tell(box, NULL);
}

void box_trust_expect(struct box *box, bool wanted)
{
    box->trust.wanted = wanted;
    if (wanted)
        trusted_try(box);
    else
        tell(box, NULL);
}

void box_trust(struct box *box, struct str pem, uint32_t hash)
{
    struct box_trust *trust = &box->trust;

    if (str_eq(pem, buf_view(&trust->pem)) && (trust->in || trust->putting))
        return;
    buf_clear(&trust->pem);
    buf_str(&trust->pem, pem);
    trust->hash = hash;
    trust->in = trust->given_up = false;
    trust->changed = trust->putting;
    trusted_try(box);
}

void trusted_ended(struct box *box)
{
    box->trust.in = box->trust.given_up = false;
}

bool trusted_wait(struct box *box, struct box_op *op)
{
    struct box_trust *trust = &box->trust;

    if (!trust->wanted || trust->in || trust->given_up || box->state != SANDBOX_RUNNING)
        return false;
    op->box = box;
    list_append(&trust->waiters, &op->node);
    if (!timer_is_set(&trust->late))
        timer_set(box->boxes->loop, &trust->late, TRUST_WAIT_MS);
    return true;
}

/* ---- the environment of its commands ---- */

static const char *put_text(char **at, const char *text)
{
    size_t len = strlen(text) + 1;
    char *to = memcpy(*at, text, len);

    *at += len;
    return to;
}

void box_held(struct box *box, const struct field_pair *pairs, size_t count)
{
    size_t size = 0;
    char *at;

    for (size_t i = 0; i < count; i++)
        size += strlen(pairs[i].key) + strlen(pairs[i].value) + 2;
    /* One piece: the pairs, an empty one behind them, then the texts. */
    struct field_pair *mine = xcalloc(1, (count + 1) * sizeof(*mine) + size);
    at = (char *)(mine + count + 1);
    for (size_t i = 0; i < count; i++) {
        mine[i].key = put_text(&at, pairs[i].key);
        mine[i].value = put_text(&at, pairs[i].value);
    }
    free(box->trust.env);
    box->trust.env = mine;
}

/*
 * Programs that do not ask the system whom to trust, or that can be told. Node adds what it is told
 * to its own list, the others take the whole list from one file.
 */
const struct field_pair *trusted_env(const struct box *box)
{
    static const struct field_pair pairs[] = {
        { "SSL_CERT_FILE", TRUST_BUNDLE },          { "CURL_CA_BUNDLE", TRUST_BUNDLE },
        { "REQUESTS_CA_BUNDLE", TRUST_BUNDLE },     { "PIP_CERT", TRUST_BUNDLE },
        { "GIT_SSL_CAINFO", TRUST_BUNDLE },         { "CARGO_HTTP_CAINFO", TRUST_BUNDLE },
        { "AWS_CA_BUNDLE", TRUST_BUNDLE },          { "DENO_CERT", TRUST_AUTHORITY },
        { "NODE_EXTRA_CA_CERTS", TRUST_AUTHORITY }, { 0 },
    };
    static const struct field_pair none[] = { { 0 } };

    return box->trust.wanted && box->trust.in ? pairs : none;
}
