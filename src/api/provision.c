/*
 * What agentic answers 202 and does afterwards to a virtual machine that is there: restart,
 * reprovision, deploy an agent. Each has an operation (operation.c) and goes on by the ends of its
 * steps: a sandbox may be deleted, or the server stop, between any two of them.
 *
 * A graceful restart asks every command to end, waits for them no longer than it was told
 * (gentle.c), and then stops what is left. A reprovision deletes the sandbox with its disk and
 * makes another with the same name, limits, image and policy.
 */
#include <stdio.h>

#include "api/gentle.h"
#include "api/operation.h"
#include "api/target.h"
#include "api/vm.h"
#include "box/image.h"
#include "link/links.h"

struct task {
    struct box_op op;
    struct gentle gentle;
    struct arena arena;
    const struct api *api;
    char id[UUID_SIZE], box[ID_SIZE];
    const char *name, *tenant, *by, *role, *object;
    const char *done_event, *failed_event, *reason;
    bool hard;
    int64_t patience_ms; /* of waiting for commands */
    struct sandbox_spec spec;
};

/* ---- ends ---- */

static void task_free(struct task *task)
{
    arena_free(&task->arena);
    free(task);
}

static void task_end(struct task *task, const char *fact, const struct err *err)
{
    autobuf struct buf result = { 0 };
    struct json_out json = json_to(&result);

    json_open(&json, '{');
    json_key(&json, "vm");
    json_open(&json, '{');
    json_kv_text(&json, "name", task->name);
    json_kv_bool(&json, fact, true);
    json_close(&json, '}');
    json_close(&json, '}');
    operation_end(task->api,
                  &(struct operation_end){ .id = task->id,
                                           .tenant = task->tenant,
                                           .event = err ? task->failed_event : task->done_event,
                                           .object = task->object,
                                           .reason = task->reason,
                                           .error = err ? err->msg : NULL,
                                           .result = err ? NULL : buf_cstr(&result) });
    task_free(task);
}

/* The sandbox, if it is still there and we are; otherwise the task has ended. */
static struct box *task_box(struct task *task)
{
    struct box *box = boxes_by_id(task->api->boxes, task->box);
    struct err err = { 0 };

    if (box && !task->api->draining)
        return box;
    err_set(&err, ERR_UNAVAILABLE, box ? "the server is about to stop" : "it was deleted");
    task_end(task, "", &err);
    return NULL;
}

static void step(struct task *task, void (*done)(struct box_op *op, const struct err *err))
{
    /* What creates is for admins alone (agent.reprovision). */
    task->op = (struct box_op){ .tenant = task->tenant,
                                .by = task->by,
                                .role = task->role,
                                .reach = reach_all(task->tenant),
                                .done = done };
}

/* ---- restart ---- */

static void restarted(struct box_op *op, const struct err *err)
{
    task_end(container_of(op, struct task, op), "restarted", err);
}

static void stopped(struct box_op *op, const struct err *failed)
{
    struct task *task = container_of(op, struct task, op);
    struct err err = { 0 };

    if (failed) {
        task_end(task, "", failed);
        return;
    }
    struct box *box = task_box(task);
    if (!box)
        return;
    operation_progress(task->api, task->id, 60);
    step(task, restarted);
    if (box_start(box, &task->op, &err) < 0)
        task_end(task, "", &err);
}

static void restart_stop(struct task *task, struct box *box)
{
    struct err err = { 0 };

    step(task, stopped);
    if (box_stop(box, &task->op, &err) < 0)
        task_end(task, "", &err);
}

static void asked_all(struct gentle *gentle, struct box *box)
{
    struct task *task = container_of(gentle, struct task, gentle);

    if (gentle->left) /* what did not end in time is killed now */
        task->reason = "restart_hard";
    if (!box)
        box = task_box(task);
    if (box)
        restart_stop(task, box);
}

static void restart_begin(struct task *task)
{
    struct box *box = task_box(task);

    if (!box)
        return;
    operation_progress(task->api, task->id, 30);
    if (task->hard) {
        restart_stop(task, box);
        return;
    }
    task->gentle.done = asked_all;
    gentle_begin(&task->gentle, task->api, box, task->tenant, task->by, task->patience_ms);
}

/* ---- reprovision ---- */

static void made_anew(struct box_op *op, const struct err *err)
{
    task_end(container_of(op, struct task, op), "reprovisioned", err);
}

static void unmade(struct box_op *op, const struct err *failed)
{
    struct task *task = container_of(op, struct task, op);
    struct err err = { 0 };

    if (failed) {
        task_end(task, "", failed);
        return;
    }
    operation_progress(task->api, task->id, 20);
    step(task, made_anew);
    if (boxes_create(task->api->boxes, &task->spec, &task->op, &err) < 0)
        task_end(task, "", &err);
}

static void reprovision_begin(struct task *task)
{
    struct box *box = task_box(task);
    struct err err = { 0 };

    if (!box)
        return;
    box_wish(box, &task->arena, &task->spec);
    step(task, unmade);
    if (box_delete(box, &task->op, &err) < 0)
        task_end(task, "", &err);
}

/* ---- beginnings ---- */

struct beginning {
    struct operation_start start;
    struct task *task;
    void (*fn)(struct task *task);
};

static void go(struct operation_start *start)
{
    struct beginning *beginning = container_of(start, struct beginning, start);

    beginning->fn(beginning->task);
}

static void drop(struct operation_start *start)
{
    task_free(container_of(start, struct beginning, start)->task);
}

static struct beginning *begin(struct call *call, const struct sandbox_view *view, const char *type,
                               void (*fn)(struct task *task))
{
    struct beginning *beginning = arena_new(&call->arena, struct beginning);
    struct task *task = xnew(struct task);

    beginning->fn = fn;
    beginning->task = task;
    beginning->start = (struct operation_start){
        .operation = operation_new(call, type, vm_name(view)), .go = go, .drop = drop
    };
    task->api = call->api;
    snprintf(task->id, sizeof(task->id), "%s", beginning->start.operation.id);
    snprintf(task->box, sizeof(task->box), "%s", view->id);
    task->name = arena_strdup(&task->arena, vm_name(view));
    task->tenant = arena_strdup(&task->arena, call->who.tenant);
    task->by = arena_strdup(&task->arena, call->who.id);
    task->role = role_name(call->who.role);
    task->object = arena_printf(&task->arena, "vm/%s", task->name);
    call->object = arena_strdup(&call->arena, task->object);
    return beginning;
}

static int answer_operation(struct call *call, struct beginning *beginning)
{
    struct json_out json = call_json(call);

    json_open(&json, '{');
    json_key(&json, "operation");
    operation_put(&json, &beginning->start.operation);
    json_close(&json, '}');
    operation_begin(call, &beginning->start);
    return 0;
}

static int find_running(struct call *call, struct sandbox_view *view, struct err *err)
{
    const char *name = call_param(call, "name");
    struct box *box;

    if (boxes_find(call->api->boxes, call_reach(call), name, &box, NULL) < 0)
        return err_word(err, ERR_NOT_FOUND, "VM_NOT_FOUND", "there is no VM '%.63s'", name);
    box_view(box, view);
    if (strcmp(view->state, "running") != 0 && strcmp(view->state, "paused") != 0)
        return err_word(err, ERR_CONFLICT, "VM_NOT_RUNNING", "'%s' is %s", vm_name(view),
                        vm_state(view));
    return 0;
}

struct restart_wish {
    const char *mode;
    int64_t timeout_seconds;
};

static const struct field restart_wish_fields[] = {
    FIELD(restart_wish, mode, F_ENUM, 0, .choices = "graceful|hard",
          .help = "graceful, unless said: commands are asked to end first (SIGTERM)"),
    FIELD(restart_wish, timeout_seconds, F_INT, 0, .min = 1, .max = 3600,
          .help = "How long they are waited for (60)"),
    { 0 },
};

static int vm_restart(struct call *call, struct err *err)
{
    struct restart_wish wish = { 0 };
    struct sandbox_view view;

    if (call_decode(call, &wish, err) < 0 || find_running(call, &view, err) < 0)
        return -1;
    if (strcmp(view.storage, "disk") != 0)
        return err_word(err, ERR_CONFLICT, "VM_NOT_PERSISTENT",
                        "the files of '%s' are in memory, and a restart would lose them",
                        vm_name(&view));
    struct beginning *beginning = begin(call, &view, "vm_restart", restart_begin);
    struct task *task = beginning->task;
    task->hard = wish.mode && strcmp(wish.mode, "hard") == 0;
    task->reason = task->hard ? "restart_hard" : "restart_graceful";
    task->done_event = "vm.rebooted";
    task->failed_event = "vm.reboot_failed";
    task->patience_ms = (wish.timeout_seconds ? wish.timeout_seconds : 60) * (int64_t)1000;
    return answer_operation(call, beginning);
}

/* Every sandbox has an agent from its first moment on (its process 1): there is nothing to do. */
static void deployed(struct task *task)
{
    task_end(task, "agent_deployed", NULL);
}

static int vm_deploy(struct call *call, struct err *err)
{
    struct sandbox_view view;

    if (find_running(call, &view, err) < 0)
        return -1;
    struct beginning *beginning = begin(call, &view, "vm_deploy_agent", deployed);
    beginning->task->done_event = "vm.agent_deployed";
    return answer_operation(call, beginning);
}

static int find_ours(struct call *call, struct sandbox_view *view, struct err *err)
{
    struct target target;
    struct image *image;

    if (call_target(call, &target, err) < 0)
        return -1;
    if (target.linked)
        return err_set(err, ERR_UNSUPPORTED, "Agent '%.63s' runs elsewhere",
                       call_param(call, "id"));
    box_view(target.box, view);
    /* Found out now, not when the old one is gone. */
    if (view->image && image_find(call->api->boxes, call->who.tenant, view->image, &image, err) < 0)
        return -1;
    struct sandbox_spec spec;
    box_wish(target.box, &call->arena, &spec);
    return boxes_admit(call->api->boxes, &spec, target.box, call_op(call), err);
}

static int agent_reprovision(struct call *call, struct err *err)
{
    struct json_out json = call_json(call);
    struct sandbox_view view;

    if (find_ours(call, &view, err) < 0)
        return -1;
    struct beginning *beginning = begin(call, &view, "vm_reprovision", reprovision_begin);
    beginning->start.event = "vm.provisioning.started";
    beginning->task->reason = "manual";
    beginning->task->done_event = "vm.provisioning.completed";
    beginning->task->failed_event = "vm.provisioning.failed";
    json_open(&json, '{');
    json_kv_text(&json, "operation_id", beginning->start.operation.id);
    json_kv_text(&json, "status", "accepted");
    json_close(&json, '}');
    operation_begin(call, &beginning->start);
    return 0;
}

const struct route provision_routes[] = {
    { .name = "vm.restart",
      .method = "POST",
      .path = "/api/v1/vms/{name}/restart",
      .on = ON_LATER,
      .roles = ROLE_USE,
      .fn = vm_restart,
      .takes = restart_wish_fields,
      .flags = ROUTE_CREATES | ROUTE_UNSAID,
      .surface = SURFACE_VM,
      .summary = "Stop it and let it run again, with its disk; answered 202 with an operation." },
    { .name = "vm.deploy",
      .method = "POST",
      .path = "/api/v1/vms/{name}/deploy-agent",
      .on = ON_LATER,
      .roles = ROLE_USE,
      .fn = vm_deploy,
      .flags = ROUTE_CREATES,
      .surface = SURFACE_VM,
      .summary = "Every sandbox has its agent, so the operation that this is answered with is over "
                 "at once." },
    { .name = "agent.reprovision",
      .method = "POST",
      .path = "/api/v1/agents/{id}/reprovision",
      .on = ON_LATER,
      .roles = ROLE_ADMIN,
      .fn = agent_reprovision,
      .flags = ROUTE_CREATES,
      .surface = SURFACE_HUB,
      .summary = "Delete a sandbox with its disk and make another with the same name, image, "
                 "limits and policy; answered 202 with an operation." },
    { 0 },
};
