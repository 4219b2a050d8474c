/* The gate as a whole: made, loaded, taken down. */
#include "gate/own.h"

#include "base/clock.h"

struct gate *gate_new(const struct gate_options *options)
{
    struct gate *gate = xnew(struct gate);

    gate->loop = options->loop;
    gate->store = options->store;
    gate->boxes = options->boxes;
    gate->expired = options->expired;
    gate->hub = options->hub;
    gate->hub_ctx = options->hub_ctx;
    list_init(&gate->layers);
    list_init(&gate->packs);
    list_init(&gate->held);
    list_init(&gate->records);
    list_init(&gate->asks);
    gate->config = options->config;
    gate->peer.fd = -1;
    egress_in_init(&gate->in);
    /* Later than those of an earlier life, whose policies the egress process may still hold. */
    gate->versions = (uint64_t)clock_wall_ms() * 1000;
    return gate;
}

int gate_load(struct gate *gate, struct db *db, struct err *err)
{
    if (layers_load(gate, db, err) < 0 || records_load(gate, db, err) < 0 ||
        held_load(gate, db, err) < 0 || questions_load(gate, db, err) < 0)
        return err_wrap(err, "what sandboxes may reach");
    return 0;
}

void gate_free(struct gate *gate)
{
    if (!gate)
        return;
    peer_close(gate);
    questions_free(gate);
    records_free(gate);
    effective_free(gate);
    layers_free(gate);
    held_free_all(gate);
    egress_in_free(&gate->in);
    free(gate);
}
