/*
 * A command is asked by the signal that it knows as "please": SIGTERM, or SIGHUP for one on a
 * terminal, because shells there ignore the other. One after the other is waited for, so there is
 * no list to keep: when the first that still runs has ended, the next is looked for.
 */
#include <stdio.h>

#include "api/gentle.h"
#include "base/clock.h"

#define HANGUP 1
#define TERMINATE 15

/* A signal that nobody waits for. */
struct asked {
    struct box_op op;
    char tenant[TENANT_MAX + 1], by[ID_SIZE];
};

static void asked_done(struct box_op *op, const struct err *err)
{
    (void)err; /* who did not hear it is ended in another way */
    free(container_of(op, struct asked, op));
}

static void ask_to_end(struct box_exec *exec, const char *tenant, const char *by)
{
    struct asked *asked = xnew(struct asked);
    struct exec_view view;
    struct err err;

    box_exec_view(exec, &view);
    snprintf(asked->tenant, sizeof(asked->tenant), "%s", tenant);
    snprintf(asked->by, sizeof(asked->by), "%s", by);
    asked->op = (struct box_op){ .tenant = asked->tenant, .by = asked->by, .done = asked_done };
    if (box_exec_signal(exec, view.tty ? HANGUP : TERMINATE, true, &asked->op, &err) < 0)
        free(asked);
}

static struct box_exec *first_running(struct box *box)
{
    struct box_exec *exec = NULL;

    while ((exec = box_exec_next(box, exec)) && box_exec_ended(exec))
        continue;
    return exec;
}

static unsigned count_running(struct box *box)
{
    unsigned count = 0;

    for (struct box_exec *exec = NULL; (exec = box_exec_next(box, exec));)
        count += !box_exec_ended(exec);
    return count;
}

static void go_on(struct gentle *gentle);

static void waited(struct box_wait *wait)
{
    go_on(container_of(wait, struct gentle, wait));
}

static void go_on(struct gentle *gentle)
{
    struct box *box = boxes_by_id(gentle->api->boxes, gentle->box);
    struct box_exec *exec = box ? first_running(box) : NULL;
    int64_t left = gentle->until_ms - clock_mono_ms();

    if (gentle->api->draining)
        box = NULL;
    if (!box || !exec || left <= 0) {
        gentle->left = box ? count_running(box) : 0;
        gentle->done(gentle, box);
        return;
    }
    gentle->wait = (struct box_wait){ .done = waited };
    box_exec_wait(exec, left, &gentle->wait);
}

void gentle_begin(struct gentle *gentle, const struct api *api, struct box *box, const char *tenant,
                  const char *by, int64_t ms)
{
    struct sandbox_view view;

    box_view(box, &view);
    gentle->api = api;
    snprintf(gentle->box, sizeof(gentle->box), "%s", view.id);
    /* What is frozen hears nothing. */
    gentle->until_ms = clock_mono_ms() + (strcmp(view.state, "running") == 0 ? ms : 0);
    for (struct box_exec *exec = NULL; (exec = box_exec_next(box, exec));)
        if (!box_exec_ended(exec) && ms > 0)
            ask_to_end(exec, tenant, by);
    go_on(gentle);
}
