/*
 * gate - what sandboxes may reach, what they reached, and what people were asked: the api's end of
 * egress.
 *
 * Layers of node, tenants and projects, and packs, are rows and in memory; a sandbox's own layer is
 * part of the sandbox. Out of them each sandbox has one compiled policy, made anew when any of them
 * changes and said to the egress process (wire/egress.h) at once. What that process says back is
 * hostile: it is checked, limited per sandbox and only ever counted or shown.
 *
 * Loop thread, except where there is a struct db.
 */
#pragma once

#include "box/boxes.h"
#include "model/egress.h"
#include "wire/egress.h"

struct gate;
struct ask_row;

/*
 * A request of a program inside to the hub; what the egress process made of it is checked for its
 * size and nothing else. Everything is borrowed until the call returns.
 */
struct gate_hub_ask {
    uint32_t number; /* for gate_hub_told */
    const char *sandbox, *tenant;
    const char *agent; /* whom an operator made of it; NULL: nobody */
    struct str method, path, body;
};

struct gate_options {
    struct loop *loop;
    struct store *store;
    struct boxes *boxes;
    struct egress_config config; /* what the egress process is told first */
    /* In the job that ends an ask for want of an answer: whoever made it tells of it; may be NULL.
     */
    int (*expired)(struct db *db, const struct ask_row *row, struct err *err);
    /* The hub is above us: who answers for it, later, by gate_hub_told. NULL: nobody. */
    void (*hub)(void *ctx, const struct gate_hub_ask *ask);
    void *hub_ctx;
};

struct gate *gate_new(const struct gate_options *options);
void gate_free(struct gate *gate);
/* Within the first job of a start, before anything else uses `gate`: reads the rows. */
must_use int gate_load(struct gate *gate, struct db *db, struct err *err);
/* The rows are read, those of sandboxes too: from now on there may be a link. */
void gate_start(struct gate *gate);
/* Every committed event: sandboxes that come, change and go. */
void gate_heard(struct gate *gate, const struct event *event);
/* Takes the descriptor: the own end of a new link to the egress process. Used from gate_start on.
 */
void gate_peer(struct gate *gate, int fd);
bool gate_linked(const struct gate *gate); /* is there an egress process? */
/* The answer to what was asked by this number; one that is too long is told as that. */
void gate_hub_told(struct gate *gate, uint32_t number, int status, struct str body);

/* ---- layers ---- */

struct gate_layer {
    enum policy_level level; /* not LEVEL_SANDBOX */
    const char *tenant;      /* "" for the node */
    const char *name;        /* of a project; else "" */
    const struct egress_spec *spec;
    const char *by;
    int64_t changed_ms;
};

/* In a write job: the row as it is (false when there is none), and as it becomes. */
must_use int gate_layer_read(struct db *db, enum policy_level level, const char *tenant,
                             const char *name, struct arena *arena, struct egress_spec *out,
                             struct err *err);
must_use int gate_layer_write(struct db *db, const struct gate_layer *layer, struct err *err);
must_use int gate_layer_erase(struct db *db, enum policy_level level, const char *tenant,
                              const char *name, struct err *err);
/* After the commit: counts from now on. `spec` NULL: there is none any more. */
void gate_layer_set(struct gate *gate, const struct gate_layer *layer);
/* The one there is; NULL: none. Borrowed until it changes. */
const struct gate_layer *gate_layer_find(const struct gate *gate, enum policy_level level,
                                         const char *tenant, const char *name);
/* Those that a tenant sees, node first; NULL begins and ends. */
const struct gate_layer *gate_layer_next(const struct gate *gate, const char *tenant,
                                         const struct gate_layer *after);

/* ---- packs ---- */

struct gate_pack {
    const char *tenant, *name, *help;
    const char **rules; /* those of the tenant; a built-in pack of that name has its own besides */
    const char *by;
    int64_t changed_ms;
};

must_use int gate_pack_write(struct db *db, const struct gate_pack *pack, struct err *err);
must_use int gate_pack_erase(struct db *db, const char *tenant, const char *name, struct err *err);
void gate_pack_set(struct gate *gate, const struct gate_pack *pack); /* rules NULL: gone */
const struct gate_pack *gate_pack_find(const struct gate *gate, const char *tenant,
                                       const char *name);
const struct gate_pack *gate_pack_next(const struct gate *gate, const char *tenant,
                                       const struct gate_pack *after);
/* Is there such a pack for this tenant, built in or its own? */
bool gate_pack_known(const struct gate *gate, const char *tenant, const char *name);

/* ---- credentials ---- */

/* A secret for requests as the vault keeps it: sealed to the egress process. */
struct gate_secret {
    const char *tenant, *name, *hosts /* a newline between two */, *placeholder;
    struct str sealed; /* empty: there is none any more */
};
/* After the commit. */
void gate_secret_set(struct gate *gate, const struct gate_secret *secret);
bool gate_secret_known(const struct gate *gate, const char *tenant, struct str name);
/* Why none of its credentials go into requests although rules say so; NULL: all is well. */
const char *gate_credentials(struct gate *gate, const struct box *box);
/* The layers whose rules about credentials count for it, outermost first; up to `max`. */
struct gate_credential {
    enum policy_level level;
    const char *list; /* "inject", "secret" */
    const char *text; /* borrowed until the layer changes */
    bool missing;     /* its secret is not there */
};
size_t gate_credential_list(struct gate *gate, const struct box *box, struct gate_credential *out,
                            size_t max);

/* ---- what counts for a sandbox ---- */

struct gate_totals {
    int64_t allowed, denied, sent, received, lost;
    int64_t used; /* bytes that count for max_bytes: those of open connections too */
};

/*
 * Its compiled policy; borrowed until the next change. *why, when not NULL, says why nothing at all
 * is allowed although layers say otherwise (they are too many together).
 */
const struct policy *gate_policy(struct gate *gate, const struct box *box, const char **why);
/* The mode of all its layers as they are now, also while a change of it is not stored yet. */
enum policy_mode gate_mode(const struct gate *gate, const struct box *box);
/* What the egress process says of it; `held` is 0 until it has, on the link there is now. */
struct gate_holds {
    uint64_t version, held; /* of the policy: as it is, and as it holds */
    bool steered;           /* every connection is judged, not only those to the proxy's port */
};
struct gate_holds gate_holds(struct gate *gate, const struct box *box);
/* Would these layers fit together with this one in the place of the sandbox's own? */
must_use int gate_try(struct gate *gate, const struct box *box, const struct egress_spec *own,
                      struct err *err);
struct gate_totals gate_totals(struct gate *gate, const struct box *box);

/*
 * The newest EGRESS_BLOCKED_MAX hosts that were denied to it in this time, as "HOST:PORT", with
 * "/raw" behind when that is missing; NULL-terminated, of the arena.
 */
const char **gate_blocked(struct gate *gate, const char *sandbox, int64_t from_ms, int64_t to_ms,
                          struct arena *arena);

/* ---- records ---- */

struct gate_record {
    int64_t seq, at_ms, port, version, ended_ms, sent, received;
    const char *sandbox, *run, *kind, *verdict, *why, *host, *rule, *reason, *method, *path, *addr;
    bool revoked;
};
struct gate_filter {
    const char *tenant;
    const char *sandbox; /* id; NULL: all of the tenant… */
    const char *within;  /* …or those in this list, a comma around each; NULL: no list */
    bool denied;         /* only what was not allowed */
    int64_t since;       /* after this number, oldest first; -1: the newest ones, oldest first */
    unsigned limit;
};
must_use int gate_records(struct db *db, const struct gate_filter *filter,
                          void (*fn)(void *ctx, const struct gate_record *row), void *ctx,
                          struct err *err);
struct gate_host {
    const char *host;
    int64_t port, allowed, denied, sent, received, first_ms, last_ms;
};
/* Counts by host, those that were denied most first; at most EGRESS_HOSTS_MAX. */
must_use int gate_hosts(struct db *db, const char *tenant, const char *sandbox,
                        void (*fn)(void *ctx, const struct gate_host *row), void *ctx,
                        struct err *err);

/* ---- asks ---- */

struct ask_row {
    const char *id, *tenant, *kind, *sandbox, *action, *hash, *state, *by, *note;
    int64_t created_ms, expires_ms, decided_ms;
};
struct ask_decision {
    bool allow;
    const char *hash; /* of the action that was shown; NULL: not said */
    const char *by, *note;
};
bool ask_state_ok(const char *state);
/* In a write job: one that is pending. After the commit: it ends when its time is over. */
must_use int ask_add(struct db *db, const struct ask_row *row, struct err *err);
void gate_ask_opened(struct gate *gate, const struct ask_row *row);
must_use int ask_read(struct db *db, const char *tenant, const char *id, struct arena *arena,
                      struct ask_row *out, struct err *err);
/* Those in `state` (NULL: any) behind the id `after`, oldest first. */
must_use int ask_each(struct db *db, const char *tenant, const char *state, const char *after,
                      unsigned limit, void (*fn)(void *ctx, const struct ask_row *row), void *ctx,
                      struct err *err);
/*
 * In a write job. 1: decided now; 0: it was decided so before; ERR_CONFLICT: it was decided
 * otherwise, is over, or is not what the caller was shown.
 */
must_use int ask_decide(struct db *db, const char *tenant, const char *id,
                        const struct ask_decision *what, struct arena *arena, struct ask_row *out,
                        struct err *err);
/* After the commit: whoever waits is told. */
void gate_ask_decided(struct gate *gate, const char *id, bool allow);
/* Of one that a program made and nobody has decided: the rule that allowing it adds, and whose
 * layer gets it; borrowed. NULL: it is none. */
const char *gate_ask_rule(struct gate *gate, const char *tenant, const char *id,
                          const char **sandbox);
size_t gate_ask_waiting(struct gate *gate, const char *id); /* connections */
