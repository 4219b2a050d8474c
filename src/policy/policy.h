/*
 * policy - may this sandbox talk to that host? Compiled once, asked for every connection.
 *
 * Layers, from node to sandbox, are compiled into one flat piece of bytes: a header, rules of fixed
 * size, a hash table by name, texts. The api process compiles; the egress process opens the bytes,
 * which checks every offset once, and then decides without memory, clock or I/O: the name is hashed
 * from its end, and at each dot the table is asked, so a decision costs as many looks as the name
 * has labels, however many rules there are.
 *
 * How layers add up: a deny of any layer wins over every allow; allows and packs of all layers
 * count; the mode is that of the innermost layer that says one, and deny when none does. A layer
 * that is `locked` ends this for those inside it: their allows, packs and modes are left out, their
 * denies and quotas count. Of quotas the smallest counts.
 *
 * What ports and requests mean: an allow without a port is for 80 and 443, a deny without a port
 * for all. An allow that names methods or a path allows requests, so it does not allow a tunnel
 * that nobody can look into; a deny that does forbids such a tunnel altogether. Connections carry
 * TLS, HTTP/1 and SSH; other protocols need an allow that ends in "/raw", or a host in `unchecked`.
 *
 * An address in place of a name is allowed by rules with addresses alone, and in mode `open` when
 * it is public. The addresses that a name led to are judged by policy_addr: public ones pass unless
 * a rule denies them, others only if a rule with an address allows them, some never (addr.h).
 */
#pragma once

#include "base/buf.h"
#include "base/limits.h"
#include "policy/rule.h"

enum policy_mode { POLICY_MODE_UNSAID, POLICY_MODE_DENY, POLICY_MODE_ASK, POLICY_MODE_OPEN };
enum policy_level { LEVEL_NODE, LEVEL_TENANT, LEVEL_PROJECT, LEVEL_SANDBOX, LEVELS };
enum policy_verdict { POLICY_DENY, POLICY_ALLOW, POLICY_ASK };

const char *policy_mode_name(enum policy_mode mode);    /* "deny"; NULL when unsaid */
const char *policy_level_name(enum policy_level level); /* "tenant" */
const char *policy_verdict_name(enum policy_verdict verdict);
must_use bool policy_mode_from(struct str name, enum policy_mode *out); /* false: no such mode */

/* ---- compile (allocates) ---- */

struct policy_pack {
    const char *name;
    const char *const *rules; /* NULL-terminated; NULL: none */
};

struct policy_layer {
    bool present;
    bool locked;
    enum policy_mode mode;
    /* NULL-terminated lists of rule texts; NULL: empty */
    const char *const *allow, *const *deny;
    const char *const *intercept; /* hosts whose TLS is opened, so that requests are judged */
    const char *const *unchecked; /* hosts to which any bytes may be sent; port 443 unless said */
    const struct policy_pack *packs;
    size_t pack_count;
    uint64_t max_bytes;       /* both ways, in the sandbox's life; 0: no limit */
    uint32_t max_connections; /* open at once; 0: what the egress process gives anybody */
    uint32_t ask_s;           /* how long a connection waits for an answer; 0: EGRESS_ASK_S */
};

/* The bytes are appended to `out`. `version` is the caller's; it only grows for one sandbox. */
must_use int policy_compile(const struct policy_layer layers[LEVELS], uint64_t version,
                            struct buf *out, struct err *err);

/* ---- read ---- */

/* A view of bytes that stay the caller's and must outlive it. */
struct policy {
    const unsigned char *bytes;
    size_t len;
    uint64_t version;
    enum policy_mode mode;        /* never unsaid */
    enum policy_level mode_level; /* who said so; LEVEL_NODE when nobody did */
    bool mode_said;
    uint64_t max_bytes;
    uint32_t max_connections, ask_s;
    uint32_t rule_count;
    /* private */
    uint32_t bucket_mask;
    const unsigned char *rules, *buckets, *texts;
    uint64_t prefixes4, prefixes6[3]; /* bit n: a rule has an address of n bits */
};

/* ERR_INVALID for bytes that policy_compile did not make; any bytes are safe to try. */
must_use int policy_open(struct policy *out, const void *bytes, size_t len, struct err *err);
/* What a sandbox has of which nobody has said anything: nothing is allowed. */
extern const struct policy policy_none;

/* For showing: rule `at` of rule_count. */
struct policy_rule {
    enum policy_level level;
    const char *list;      /* "allow", "deny", "intercept", "unchecked" */
    struct str text, pack; /* borrowed from the bytes; pack empty: none */
};
struct policy_rule policy_rule_at(const struct policy *policy, uint32_t at);

/* Is there a host whose TLS is opened? */
bool policy_intercepts(const struct policy *policy);

/* ---- decide (no memory, no I/O) ---- */

enum policy_view {
    POLICY_OPAQUE,  /* a tunnel: nothing more will be seen */
    POLICY_PEEK,    /* each request will be asked about by itself: may the connection go so far? */
    POLICY_REQUEST, /* method and path are known */
};

struct policy_question {
    const struct host *host;
    uint16_t port;
    enum policy_view view;
    uint8_t method;  /* POLICY_REQUEST: METHOD_ */
    struct str path; /* POLICY_REQUEST: of the target; a query may follow */
};

enum policy_why {
    WHY_RULE,    /* a rule says so */
    WHY_NO_RULE, /* no rule allows it: the mode decides */
    WHY_OPEN,    /* mode open, and no rule denies it */
    WHY_PORT,    /* the host is allowed, not on this port */
    WHY_REQUEST, /* the host is allowed, not this method or path */
    WHY_UNSEEN,  /* a rule is about requests, which cannot be seen here */
    WHY_ADDRESS, /* an address needs a rule with an address */
    WHY_RAW,     /* the host is allowed, and bytes of an unknown protocol are not */
    WHY_CLASS,   /* no such address may be reached: see `class` */
    WHYS
};
const char *policy_why_name(enum policy_why why); /* "no_rule" */

struct policy_answer {
    enum policy_verdict verdict;
    enum policy_why why;
    enum addr_class class;   /* WHY_CLASS, WHY_ADDRESS */
    bool has_rule;           /* level, rule, pack are of the rule that decided */
    enum policy_level level; /* without a rule: who said the mode */
    uint32_t index;          /* of the rule, for policy_rule_at */
    struct str rule, pack;   /* borrowed from the policy's bytes */
    bool intercept, unchecked;
};

void policy_decide(const struct policy *policy, const struct policy_question *question,
                   struct policy_answer *out);
/*
 * May a connection that policy_decide allowed go to this address, which its name led to? ALLOW or
 * DENY. The machine's own addresses are the caller's to refuse.
 */
void policy_addr(const struct policy *policy, const struct addr *addr, uint16_t port,
                 struct policy_answer *out);

/* For people: "denied: by the rule evil.example (tenant)". */
#define POLICY_TEXT_SIZE 1024
void policy_say(const struct policy_answer *answer, char out[POLICY_TEXT_SIZE]);
