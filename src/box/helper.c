/*
 * Sandboxes for our own use: no row, in no list, counted by nobody, gone when the work is done. One
 * that is left over by a kill is a box without a row, which the next start destroys. They have the
 * atoll program in them (BOX_WITH_TOOL), files in memory, no network and small limits.
 */
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "box/own.h"

#define HELPER_MEMORY (768ll << 20)
#define HELPER_DISK (16ll << 20)
#define HELPER_PIDS 16
#define HELPER_INODES 1024
#define HELPER_NOFILE 64

static void helper_is_up(struct box *box, const struct err *err)
{
    struct helper *helper = box->helper;

    box->busy = NULL;
    if (err) {
        helper->box = NULL;
        box->boxes->count++;
        box_free(box);
    } else {
        box_move(box, SANDBOX_RUNNING);
    }
    helper->up(helper, err);
}

void helper_start(struct helper *helper, struct boxes *boxes)
{
    char id[ID_SIZE];

    id_make(id, "hp");
    struct box *box = box_new(boxes, id, ""); /* nobody's */
    boxes->count--;
    box->helper = helper;
    helper->box = box;
    box->spec = (struct sandbox_spec){ .user = "root",
                                       .storage = "memory",
                                       .memory = HELPER_MEMORY,
                                       .disk = HELPER_DISK,
                                       .pids = HELPER_PIDS,
                                       .cpu_percent = 200,
                                       .inodes = HELPER_INODES,
                                       .nofile = HELPER_NOFILE };
    box->busy = "being created";
    box->created_ms = box->changed_ms = clock_wall_ms();
    box_up(box, helper_is_up);
}

static void helper_mounted(struct ask *ask, const struct wire_msg *msg, int fds[WIRE_FDS_MAX])
{
    struct helper *helper = ask->out;
    struct err err = { 0 };

    (void)fds;
    if (msg && !msg->status) {
        helper->mounted(helper, NULL);
        return;
    }
    ask_err(&err, msg, "give a disk to the unpacker");
    helper->mounted(helper, &err);
}

void helper_mount(struct helper *helper, uint64_t disk, const char *target)
{
    struct ask *ask = ask_new(WIRE_BOX_MOUNT, NULL);

    memcpy(ask->msg.mount.name.id, helper->box->id, strlen(helper->box->id));
    memcpy(ask->msg.mount.target, target, strlen(target));
    ask->msg.mount.disk = disk;
    ask->answered = helper_mounted;
    ask->out = helper;
    ask_send(helper->box->boxes, ask);
}

static void helper_gone(struct ask *ask, const struct wire_msg *msg, int fds[WIRE_FDS_MAX])
{
    struct helper *helper = ask->out;
    struct box *box = ask->box;
    bool gone = msg && (!msg->status || msg->status == ENOENT);

    (void)fds;
    if (!gone)
        log_error("an unpacker could not be destroyed; the next start tries again",
                  kv_str("sandbox", box->id));
    helper->box = NULL;
    box->boxes->count++;
    box_free(box);
    helper->gone(helper, gone);
}

void helper_end(struct helper *helper)
{
    struct box *box = helper->box;
    struct ask *ask = ask_new(WIRE_BOX_DESTROY, box->id);

    box->busy = "being destroyed";
    link_close(box);
    ask->answered = helper_gone;
    ask->box = box;
    ask->out = helper;
    ask_send(box->boxes, ask);
}
