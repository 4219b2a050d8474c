/*
 * inject - which credential goes into which request: rules, and the bytes they travel in.
 *
 * A rule says where (`match`, as rule.h has it) and what:
 *
 *     api.example.org GET,POST /v1/    Authorization    Bearer {secret:API_KEY}
 *     git.example.org                  Authorization    Basic {basic:x-access-token:GIT_TOKEN}
 *     api.example.org                  -                {secret:API_KEY}
 *
 * The first two set a header, in place of whatever the sandbox sent under that name. The third,
 * without a header, replaces the secret's placeholder wherever it stands in the value of a header:
 * a program that wants the credential in its environment gets the placeholder there, and works.
 *
 * Credentials go to the other end in clear, so `match` is narrower here than in a policy: without a
 * port it is 443 with TLS, with ":*" every port with TLS; a port that is written out is meant
 * whatever is spoken on it. An address is no host.
 *
 * A secret itself says which hosts it is for, and what it is sealed with binds it to them
 * (inject_context): a rule can only narrow that. So who writes rules, or has taken over the process
 * that keeps them, cannot have a secret sent elsewhere.
 *
 * The api process compiles rules and sealed values (base/seal.h) of one sandbox into one piece of
 * bytes, in which no secret can be read; the egress process parses them. Pure; any thread.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"
#include "policy/rule.h"

#define INJECT_RULES_MAX 64   /* of one sandbox, all layers together */
#define INJECT_SECRETS_MAX 32 /* that those name */
#define INJECT_HEADER_MAX 64
#define INJECT_TEMPLATE_MAX 512
#define INJECT_NAME_MAX 63        /* of a secret: SECRET_NAME_MAX */
#define INJECT_HOSTS_MAX 8        /* that a secret is for */
#define INJECT_CONTEXT_MAX 4096   /* what its sealed value is bound to */
#define INJECT_VALUE_MIN 8        /* what is shorter cannot be told from what is no secret */
#define INJECT_VALUE_MAX 8192     /* servers take no longer line */
#define INJECT_PLACEHOLDER_LEN 40 /* all have the same length */
#define INJECT_PLACEHOLDER_PREFIX "atoll-held-"
#define INJECT_BYTES_MAX 131072 /* compiled; fits one message of the link */

struct inject_rule {
    struct str match;
    struct str header; /* empty: the placeholder is replaced */
    struct str value;  /* a template; of a rule without a header "{secret:NAME}" */
};

/* Of the secrets that rules name. */
struct inject_secret {
    struct str name, context, placeholder, sealed;
};

/* ERR_INVALID says what is wrong and with which of the three. */
must_use int inject_rule_check(const struct inject_rule *rule, struct err *err);
/*
 * As people write one, checked: "MATCH => HEADER: VALUE", or "MATCH => {secret:NAME}" for the
 * placeholder. Slices of `text`.
 */
#define INJECT_TEXT_MAX 1024
must_use int inject_rule_parse(struct str text, struct inject_rule *out, struct err *err);
/* The secret that a checked rule names. */
struct str inject_named(const struct inject_rule *rule);
/*
 * A secret whose placeholder stands in the environment: "NAME", or "VARIABLE=NAME". Slices of
 * `text`.
 */
#define INJECT_WISH_MAX 128
must_use int inject_wish_parse(struct str text, struct str *variable, struct str *name,
                               struct err *err);
/*
 * Where a match means TLS on port 443 its host is looked into (`intercept` of a policy): the host
 * as such a rule says it. Empty: it says a port, or is none.
 */
struct str inject_opened(struct str match);
/* May this value stand in a header, and can it be found again in a reply? Never shows it. */
must_use int inject_value_check(struct str value, struct err *err);
/* INJECT_PLACEHOLDER_LEN bytes that begin with the prefix and go on in hex. */
bool inject_placeholder_ok(struct str text);

/* ---- what a secret is for ---- */

/* One of its hosts, as rule.h has it; as narrow as `match`. */
must_use int inject_host_check(struct str host, struct err *err);
/* Appends what its value is sealed with: its row, and its hosts, which are checked. */
must_use int inject_context(struct buf *out, const char *tenant, const char *name,
                            const char *const *hosts, struct err *err);
/* The hosts in it, borrowed from it: how many, or -1 when it is no such context. */
must_use int inject_hosts(struct str context, struct rule out[INJECT_HOSTS_MAX]);

/* ---- templates ---- */

enum inject_kind { INJECT_TEXT, INJECT_SECRET, INJECT_BASIC };
struct inject_piece {
    enum inject_kind kind;
    struct str text; /* INJECT_TEXT; of INJECT_BASIC the user */
    struct str name; /* of the secret */
};
/* Cuts the next piece off: 1, 0 at the end, -1 when it is no template. */
must_use int inject_next(struct str *rest, struct inject_piece *out);

/* ---- compiled ---- */

/* Appends to `out`. Each secret that a rule names must be given. */
must_use int inject_compile(const struct inject_rule *rules, size_t rule_count,
                            const struct inject_secret *secrets, size_t secret_count,
                            struct buf *out, struct err *err);

struct inject_set {
    size_t rule_count, secret_count;
    struct inject_rule rules[INJECT_RULES_MAX]; /* all checked; borrowed from the bytes */
    struct inject_secret secrets[INJECT_SECRETS_MAX];
};
/* ERR_INVALID for what inject_compile did not make; any bytes are safe to try. */
must_use int inject_parse(struct str bytes, struct inject_set *out, struct err *err);

/* ---- matching ---- */

struct inject_question {
    const struct host *host; /* that the connection was allowed for, and is verified */
    uint16_t port;
    bool tls;
    uint8_t method; /* METHOD_ */
    struct str path;
};
/* Of the rule's `match`, parsed. */
bool inject_meets(const struct rule *match, const struct inject_question *question);
