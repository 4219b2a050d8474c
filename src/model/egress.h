/*
 * egress - one layer of what sandboxes may reach, as people write it: of the node, a tenant, a
 * project or a sandbox. How layers add up and what a rule means is policy/policy.h and rule.h.
 */
#pragma once

#include "model/field.h"
#include "policy/inject.h"
#include "policy/policy.h"

#define PROJECT_NAME_MAX 63

struct egress_spec {
    const char *mode; /* "deny", "ask", "open"; NULL: unsaid */
    const char **allow, **deny, **packs, **intercept, **unchecked; /* NULL: none */
    const char **inject;  /* which credential goes into which request (policy/inject.h) */
    const char **secrets; /* those whose placeholder stands in the environment */
    bool locked;
    int64_t max_bytes, max_connections, ask_s;
    const char *project; /* of a sandbox: whose layer is between the tenant's and its own */
    const char *agent;   /* of a sandbox: as whom its programs reach the hub */
    int64_t version;     /* one more with each change */
};

extern const struct field egress_fields[];         /* of node, tenant, project */
extern const struct field sandbox_egress_fields[]; /* of a sandbox: project, agent, never locked */
enum {                                             /* the places in both tables */
       EGRESS_MODE,
       EGRESS_ALLOW,
       EGRESS_DENY,
       EGRESS_PACKS,
       EGRESS_INTERCEPT,
       EGRESS_UNCHECKED,
       EGRESS_INJECT_FIELD,
       EGRESS_SECRETS,
       EGRESS_MAX_BYTES,
       EGRESS_MAX_CONNECTIONS,
       EGRESS_ASK_SECONDS,
       EGRESS_VERSION_FIELD,
       EGRESS_LAST, /* project, or locked */
       EGRESS_AGENT /* of a sandbox alone */
};

/* Rules, names, counts; ERR_INVALID names the field ("egress.allow[3]" with prefix "egress."). */
must_use int egress_spec_check(const struct egress_spec *spec, const char *prefix, struct err *err);
/* Takes from `patch` what bit i of `present` says was given. */
void egress_spec_merge(struct egress_spec *spec, const struct egress_spec *patch, uint64_t present);
struct egress_spec *egress_spec_copy(struct arena *arena, const struct egress_spec *from);
/* Does it only take away: mode deny, denies, limits? */
bool egress_spec_narrows(const struct egress_spec *spec);
/* Only what takes away, in the arena. */
struct egress_spec *egress_spec_narrowed(struct arena *arena, const struct egress_spec *from);
/* Does it allow an address? */
bool egress_spec_has_addr(const struct egress_spec *spec);
