/* own - what the files of the gate share among themselves. */
#pragma once

#include "base/list.h"
#include "base/map.h"
#include "base/mem.h"
#include "gate/gate.h"

#define GATE_TENANT_MAX 32
#define ASK_RULE "rule"     /* kind of an ask: a program wants a rule */
#define ASK_EGRESS "egress" /* a connection waits */

/* A host that was denied. */
struct blocked {
    char rule[HOST_PORT_SIZE + sizeof(RULE_RAW)]; /* HOST:PORT, what would allow it */
    int64_t last_ms;
};

/* A sandbox, as the gate knows it. */
struct gate_box {
    char id[ID_SIZE];
    char tenant[GATE_TENANT_MAX + 1];
    uint64_t version;
    struct buf bytes; /* compiled; empty: nothing is allowed */
    struct policy policy;
    char why[ERR_MSG_SIZE]; /* not empty: it could not be compiled */
    struct buf inject;      /* compiled, sealed; empty: nothing goes into its requests */
    char inject_why[ERR_MSG_SIZE];
    struct gate_totals totals;
    uint64_t held;     /* version that the egress process said holds; 0: none on this link */
    bool steered;      /* it gets every connection of the sandbox */
    uint64_t limited;  /* version of the policy whose limit it was told to have reached */
    int64_t second_ms; /* since when `this_second` is counted */
    unsigned this_second;
    struct blocked *blocked; /* EGRESS_BLOCKED_MAX, owned; NULL: none was */
};

struct layer {
    struct list node;
    struct arena arena;
    struct gate_layer view;
};

struct pack_row {
    struct list node;
    struct arena arena;
    struct gate_pack view;
};

struct held {
    struct list node;
    char tenant[GATE_TENANT_MAX + 1], name[SECRET_NAME_MAX + 1];
    char placeholder[INJECT_PLACEHOLDER_LEN + 1];
    struct buf context, sealed;
    size_t hosts_at; /* in the context */
};

struct gate {
    struct loop *loop;
    struct store *store;
    struct boxes *boxes;
    struct list layers, packs;
    struct list held;  /* secrets for requests */
    struct map known;  /* id → gate_box */
    uint64_t versions; /* the last one given to a policy */

    struct egress_config config;
    struct watch peer;   /* fd -1: there is no egress process */
    bool started;        /* before that a link only waits */
    bool behind;         /* it was not told something; all of it will be said again */
    struct egress_in in; /* what it says */
    uint64_t lost;       /* records that the egress process could not say */

    struct list records; /* that wait to be stored */
    size_t waiting;
    struct timer flush;
    bool writing;
    struct map before; /* id → gate_totals of an earlier life */

    struct list asks; /* that somebody may still answer */
    int (*expired)(struct db *db, const struct ask_row *row, struct err *err);
    struct timer ask_tick;

    void (*hub)(void *ctx, const struct gate_hub_ask *ask);
    void *hub_ctx;
};

/* layers.c */
must_use int layers_load(struct gate *gate, struct db *db, struct err *err);
void layers_free(struct gate *gate);

/* held.c */
must_use int held_load(struct gate *gate, struct db *db, struct err *err);
void held_free_all(struct gate *gate);
/* What goes into the requests of a sandbox; nothing is appended when that is nothing. */
must_use int held_compile(const struct gate *gate, const char *tenant,
                          const struct egress_spec *own, struct buf *out, struct err *err);
/* The layer's `intercept`, and the hosts that its credentials need to be in it. */
const char **held_opened(const struct gate *gate, const char *tenant,
                         const struct egress_spec *spec, struct arena *arena);
/* Variables and the placeholders in them. */
size_t held_env(const struct gate *gate, const char *tenant, const struct egress_spec *own,
                struct field_pair *out, size_t max, struct arena *arena);

/* effective.c */
/* The layers of a sandbox that may say more than no, outermost first; without the node's. */
struct layer_ref {
    enum policy_level level;
    const struct egress_spec *spec;
};
size_t layers_of(const struct gate *gate, const char *tenant, const struct egress_spec *own,
                 struct layer_ref out[LEVELS]);
/* Compiles anew for all sandboxes that a change at this level of this tenant concerns. */
void gate_changed(struct gate *gate, enum policy_level level, const char *tenant,
                  const char *project);
void effective_all(struct gate *gate);      /* knows every sandbox there is */
void effective_unlinked(struct gate *gate); /* nothing is known to hold any more */
void effective_free(struct gate *gate);

/* peer.c: to the egress process, if there is one. */
void peer_policy(struct gate *gate, const struct gate_box *box);
void peer_forget(struct gate *gate, const char *id);
void peer_answer(struct gate *gate, uint32_t number, bool allow);
void peer_told(struct gate *gate, uint32_t number, unsigned status, struct str body);
/* Reads what the egress process has sent by now. */
void peer_hear(struct gate *gate);
void peer_close(struct gate *gate);

/* wishes.c */
void wishes_heard(struct gate *gate, uint32_t number, const struct egress_own *own);
void wishes_hub(struct gate *gate, uint32_t number, const struct egress_hub *hub, const char *tail);
void wishes_asked(struct gate *gate, uint32_t number, const struct ask_row *row); /* NULL: not */

/* records.c */
void records_decision(struct gate *gate, const struct egress_decision *decision);
void records_flow(struct gate *gate, const struct egress_flow *flow);
void records_used(struct gate *gate, const struct egress_used *used);
must_use int records_load(struct gate *gate, struct db *db, struct err *err);
void records_free(struct gate *gate);

/* questions.c */
void questions_asked(struct gate *gate, uint32_t number, const struct egress_decision *what);
/* Of a program that asks for a rule: the request is answered (wishes_asked) when it is stored. */
enum wished { WISHED, WISHED_BEFORE, WISHED_TOO_MUCH };
enum wished questions_wished(struct gate *gate, const struct gate_box *box, const char *action,
                             uint32_t number, char id[ID_SIZE]);
/* What a sandbox has asked for by itself, newest first; `id` "": all of it. */
must_use int ask_of_box(struct db *db, const char *tenant, const char *sandbox, const char *id,
                        void (*fn)(void *ctx, const struct ask_row *row), void *ctx,
                        struct err *err);
void questions_unasked(struct gate *gate, uint32_t number);
void questions_unlinked(struct gate *gate); /* nobody waits any more */
must_use int questions_load(struct gate *gate, struct db *db, struct err *err);
void questions_start(struct gate *gate); /* from here on what is open may expire */
void questions_free(struct gate *gate);
