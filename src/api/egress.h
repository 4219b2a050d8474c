/* egress - what the files about egress share within the api room. */
#pragma once

#include "api/own.h"
#include "gate/gate.h"

/*
 * May this caller say this? Whoever is no operator can only take away; addresses are for operators
 * of the tenant that owns the node. Packs must exist. `prefix` stands before names of fields.
 */
must_use int egress_may(struct call *call, const struct egress_spec *spec, const char *prefix,
                        struct err *err);

/* Are the secrets there that it names? */
must_use int egress_secrets(struct call *call, const struct egress_spec *spec, const char *prefix,
                            struct err *err);

/* A layer as it is shown. */
struct layer_view {
    const char *level, *name;
    const struct egress_spec *policy;
    const char *by;
    int64_t changed_at;
};
extern const struct field layer_fields[];

/* How a layer is changed: all of it, some of it, one rule more. */
struct layer_change {
    enum { LAYER_PUT, LAYER_PATCH, LAYER_RULE, LAYER_DELETE } how;
    struct egress_spec spec; /* PUT, PATCH */
    uint64_t present;
    const char *rule; /* RULE, as rule_text writes it */
    bool deny;
};
/* What it becomes; ERR_CONFLICT when another version was meant. */
must_use int layer_apply(const struct layer_change *change, struct egress_spec *spec,
                         struct arena *arena, struct err *err);
/* One allow more in a sandbox's own layer; `record` is stored with it, in place of the usual. */
must_use int own_rule_add(struct call *call, struct box *box, const char *rule,
                          int (*record)(struct box_op *op, struct db *db, struct err *err),
                          struct err *err);
/* Changes a layer of node, tenant or project, and finishes the call with it. */
must_use int layer_submit(struct call *call, enum policy_level level, const char *name,
                          const struct layer_change *change, struct err *err);
