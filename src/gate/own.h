/* own - what the files of the gate share among themselves. */
#pragma once

#include "base/list.h"
#include "base/map.h"
#include "base/mem.h"
#include "gate/gate.h"

#define GATE_TENANT_MAX 32

/* A sandbox, as the gate knows it. */
struct gate_box {
    char id[ID_SIZE];
    char tenant[GATE_TENANT_MAX + 1];
    uint64_t version;
    struct buf bytes; /* compiled; empty: nothing is allowed */
    struct policy policy;
    char why[ERR_MSG_SIZE]; /* not empty: it could not be compiled */
    struct gate_totals totals;
    int64_t second_ms; /* since when `this_second` is counted */
    unsigned this_second;
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

struct gate {
    struct loop *loop;
    struct store *store;
    struct boxes *boxes;
    struct list layers, packs;
    struct map known;  /* id → gate_box */
    uint64_t versions; /* the last one given to a policy */

    struct egress_config config;
    struct watch peer; /* fd -1: there is no egress process */
    bool started;      /* before that a link only waits */
    bool behind;       /* it was not told something; all of it will be said again */
    char *space;       /* owned; for egress_recv */
    uint64_t lost;     /* records that the egress process could not say */

    struct list records; /* that wait to be stored */
    size_t waiting;
    struct timer flush;
    bool writing;
    struct map before; /* id → gate_totals of an earlier life */

    struct list asks; /* that somebody may still answer */
    struct timer ask_tick;
};

/* layers.c */
must_use int layers_load(struct gate *gate, struct db *db, struct err *err);
void layers_free(struct gate *gate);

/* effective.c */
/* Compiles anew for all sandboxes that a change at this level of this tenant concerns. */
void gate_changed(struct gate *gate, enum policy_level level, const char *tenant,
                  const char *project);
void effective_all(struct gate *gate); /* knows every sandbox there is */
void effective_free(struct gate *gate);

/* peer.c: to the egress process, if there is one. */
void peer_policy(struct gate *gate, const struct gate_box *box);
void peer_forget(struct gate *gate, const char *id);
void peer_answer(struct gate *gate, uint32_t number, bool allow);
void peer_close(struct gate *gate);

/* records.c */
void records_decision(struct gate *gate, const struct egress_decision *decision);
void records_flow(struct gate *gate, const struct egress_flow *flow);
must_use int records_load(struct gate *gate, struct db *db, struct err *err);
void records_free(struct gate *gate);

/* questions.c */
void questions_asked(struct gate *gate, uint32_t number, const struct egress_decision *what);
void questions_unasked(struct gate *gate, uint32_t number);
void questions_unlinked(struct gate *gate); /* nobody waits any more */
must_use int questions_load(struct gate *gate, struct db *db, struct err *err);
void questions_free(struct gate *gate);
