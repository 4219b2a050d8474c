/*
 * creds - the credentials of one sandbox, put into its requests and kept out of its replies.
 *
 * Here, and in no other process, secrets are open: they come sealed to this process's key with the
 * rules that say where they go (policy/inject.h). For each request that was allowed, the caller
 * asks for a plan, passes every header of the request through creds_header and lets creds_add
 * append what rules set. Values of replies go through creds_hide, bodies through creds_scrub: a
 * server that echoes what it was sent would otherwise hand the secret to the sandbox.
 *
 * Only headers are written to; a placeholder in a path or a body stays what it is. No function here
 * puts a value into an error or a log. One thread.
 */
#pragma once

#include "base/seal.h"
#include "policy/inject.h"

struct creds;

/* Opens what is sealed. ERR_INVALID, ERR_INTERNAL (another key); then there are none at all. */
must_use int creds_new(struct creds **out, const struct seal_private *key, struct str bytes,
                       struct err *err);
/* Shared: a request that is on its way keeps what it was made with. The last one overwrites. */
struct creds *creds_ref(struct creds *creds); /* NULL is fine */
void creds_free(struct creds *creds);

/* The rules that hold for one request. Without any, the request passes as it is. */
struct creds_plan {
    const struct creds *creds; /* borrowed */
    uint64_t rules;            /* bit n: rule n */
};
struct creds_plan creds_plan(const struct creds *creds, const struct inject_question *question);

enum creds_fate {
    CREDS_KEEP,    /* as it came */
    CREDS_DROP,    /* a rule sets this header: what the sandbox sent does not count */
    CREDS_CHANGED, /* its value is what was appended to `out` */
};
/* One header of the request; with CREDS_KEEP and CREDS_DROP `out` is as before. */
enum creds_fate creds_header(const struct creds_plan *plan, struct str name, struct str value,
                             struct buf *out);
/* Appends "Name: value\r\n" for every header that rules set; of two for one name the first. */
void creds_add(const struct creds_plan *plan, struct buf *out);
/* Does any rule hold? Then the reply is to be asked for without compression, and looked through. */
static inline bool creds_any(const struct creds_plan *plan)
{
    return plan->rules != 0;
}

/*
 * Overwrites what must not be seen with '*', in place: every secret of this sandbox and every
 * header value that was made of one. All of `data` has been seen: a value of a header.
 */
void creds_hide(const struct creds *creds, char *data, size_t len);
/*
 * The same in a stream. Gives how many bytes may be passed on now; the others (fewer than the
 * longest secret has) could be the beginning of one and stand at the front of the next call.
 */
size_t creds_scrub(const struct creds *creds, char *data, size_t len, bool end);
