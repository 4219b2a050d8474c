/*
 * room - what happens when the disk of the state directory is full.
 *
 * Output and ends that cannot be written stay with the init of their sandbox, and every tick asks
 * for them again. The log gets one line when the first command begins to wait and one when the last
 * one goes on. Meanwhile nothing new is started: it would only wait as well. Nor is it while less
 * than STATE_ROOM_LEAST is free, because the commands that run need that for their ends.
 */
#include <stdio.h>
#include <sys/statvfs.h>

#include "base/log.h"
#include "box/own.h"

static int64_t free_bytes(const struct boxes *boxes)
{
    struct statvfs fs;

    /* A file system that does not say is taken to have room. */
    return fstatvfs(boxes->spool_dir, &fs) < 0 || !fs.f_blocks
               ? INT64_MAX
               : (int64_t)fs.f_bavail * (int64_t)fs.f_frsize;
}

int room_check(const struct boxes *boxes, struct err *err)
{
    if (boxes->room.waiting)
        return err_set(err, ERR_NO_SPACE, "%u commands wait for room in the state directory: %s",
                       boxes->room.waiting, boxes->room.why);
    int64_t left = free_bytes(boxes);
    if (left < STATE_ROOM_LEAST)
        return err_set(err, ERR_NO_SPACE,
                       "no room in the state directory: %lld bytes are free, %lld are needed",
                       (long long)left, (long long)STATE_ROOM_LEAST);
    return 0;
}

bool boxes_full(const struct boxes *boxes, struct err *why)
{
    return room_check(boxes, why) < 0;
}

void room_lacks(struct box_exec *exec, const struct err *err)
{
    struct room *room = &exec->box->boxes->room;

    if (exec->lacks_room)
        return;
    exec->lacks_room = true;
    snprintf(room->why, sizeof(room->why), "%.159s", err->msg);
    if (room->waiting++ == 0)
        log_error("commands wait: what they leave behind cannot be written",
                  kv_str("exec", exec->id), kv_str("error", err->msg));
}

void room_found(struct box_exec *exec)
{
    struct room *room = &exec->box->boxes->room;

    if (!exec->lacks_room)
        return;
    exec->lacks_room = false;
    if (--room->waiting == 0)
        log_info("commands go on: what they leave behind can be written again",
                 kv_str("exec", exec->id));
}
