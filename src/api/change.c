/* Sandboxes made out of others, set back, and given other limits. */
#include "api/egress.h"

#include "box/disk.h"

static int fork_post(struct call *call, struct err *err)
{
    struct fork_wish wish = { 0 };
    struct box *box;

    if (call_box(call, &box, err) < 0 || call_decode(call, &wish, err) < 0)
        return -1;
    return box_fork(box, &wish, call_op(call), err);
}

static void rollback_prepare(struct box_op *op)
{
    struct call *call = call_of(op);
    struct sandbox_view box;

    box_view(op->box, &box);
    struct rollback_view view = { .id = box.id,
                                  .snapshot = op->disk->id,
                                  .state = op->was_up ? "running" : "stopped",
                                  .execs_ended = op->ended };
    buf_clear(&call->reply);
    call_reply(call, &view);
    call->object = arena_printf(&call->arena, "sandbox/%s", box.id);
}

static int rollback_post(struct call *call, struct err *err)
{
    struct box_op *op = call_op(call);
    struct rollback_wish wish = { 0 };
    struct box *box;

    if (call_box(call, &box, err) < 0 || call_decode(call, &wish, err) < 0)
        return -1;
    op->prepare = rollback_prepare;
    return box_rollback(box, wish.snapshot, op, err);
}

static int sandbox_patch(struct call *call, struct err *err)
{
    struct sandbox_patch patch = { 0 };
    uint64_t present = 0;
    struct box *box;

    if (call_box(call, &box, err) < 0 || call_decode_patch(call, &patch, &present, err) < 0)
        return -1;
    if (may_give(call, box_owned(box, call_reach(call)), present, PATCH_ACCESS, err) < 0)
        return -1;
    if (patch.egress && !(call->who.role & ROLE_STEER))
        return err_role(err, "only an operator may change what it may reach");
    if (egress_may(call, patch.egress, "egress.", err) < 0)
        return -1;
    return box_patch(box, &patch, present, call_op(call), err);
}

const struct route change_routes[] = {
    { .name = "sandbox.change",
      .method = "PATCH",
      .path = "/api/v1/sandboxes/{id}",
      .on = ON_LATER,
      .roles = ROLE_USE,
      .fn = sandbox_patch,
      .takes = sandbox_patch_fields,
      .gives = sandbox_fields,
      .summary = "Give it other limits, another lifetime, idle policy or labels, while it runs or "
                 "not. What is not named stays." },
    { .name = "sandbox.fork",
      .method = "POST",
      .path = "/api/v1/sandboxes/{id}/fork",
      .on = ON_LATER,
      .roles = ROLE_USE,
      .fn = fork_post,
      .takes = fork_wish_fields,
      .gives = sandbox_fields,
      .flags = ROUTE_CREATES,
      .summary =
          "Make another sandbox with a copy of its files as they are now, its limits and its "
          "volumes. What runs goes on there, and does not run in the copy." },
    { .name = "sandbox.rollback",
      .method = "POST",
      .path = "/api/v1/sandboxes/{id}/rollback",
      .on = ON_LATER,
      .roles = ROLE_USE,
      .fn = rollback_post,
      .flags = ROUTE_WHOLE,
      .takes = rollback_wish_fields,
      .gives = rollback_fields,
      .summary = "Give it back the files of one of its snapshots. Its commands end." },
    { 0 },
};
