/* Who is where: indexes, names, deadlines, and those that are being made. */
#include <string.h>

#include "base/clock.h"
#include "warden/boxes.h"

static struct box boxes[BOX_SLOTS];
static uint32_t top;       /* all at and above are free */
static unsigned due_count; /* boxes that have a due_ms */
static uint32_t pending[BOXES_PENDING_MAX];
static unsigned pending_count;

uint32_t table_slot(const struct box *box)
{
    return (uint32_t)(box - boxes);
}

struct box *table_at(uint32_t slot)
{
    return &boxes[slot % BOX_SLOTS];
}

struct box *table_find(const char *id)
{
    for (uint32_t i = 0; i < top; i++)
        if (boxes[i].state != BOX_FREE && memcmp(boxes[i].id, id, BOX_ID_SIZE) == 0)
            return &boxes[i];
    return NULL;
}

bool box_known(const char *id)
{
    return table_find(id) != NULL;
}

struct box *table_find_child(pid_t pid)
{
    for (uint32_t i = 0; i < top; i++)
        if (boxes[i].state != BOX_FREE && boxes[i].pid == pid && !boxes[i].gone)
            return &boxes[i];
    return NULL;
}

struct box *table_upper(uint64_t disk)
{
    for (uint32_t i = 0; i < top; i++)
        if (boxes[i].state != BOX_FREE && boxes[i].upper == disk)
            return &boxes[i];
    return NULL;
}

struct box *table_free(void)
{
    for (uint32_t i = 0; i < MIN(box_host.slots, BOX_SLOTS); i++)
        if (boxes[i].state == BOX_FREE && !boxes[i].reserved)
            return &boxes[i];
    return NULL;
}

struct box *table_next(uint32_t slot)
{
    for (; slot < top; slot++)
        if (boxes[slot].state != BOX_FREE)
            return &boxes[slot];
    return NULL;
}

void table_take(struct box *box, const char *id, enum box_state state)
{
    *box = (struct box){
        .state = (uint8_t)state, .pidfd = -1, .link = -1, .report = -1, .status = -1
    };
    memcpy(box->id, id, BOX_ID_SIZE);
    top = MAX(top, table_slot(box) + 1);
}

void close_one(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

void table_leave(struct box *box)
{
    table_due_off(box);
    close_one(&box->pidfd);
    close_one(&box->link);
    close_one(&box->report);
    *box = (struct box){ .pidfd = -1, .link = -1, .report = -1 };
    while (top && boxes[top - 1].state == BOX_FREE)
        top--;
}

/* ---- deadlines ---- */

void table_due(struct box *box, int64_t in_ms)
{
    due_count += !box->due_ms;
    box->due_ms = clock_mono_ms() + in_ms;
}

void table_due_off(struct box *box)
{
    due_count -= box->due_ms != 0;
    box->due_ms = 0;
}

int64_t table_due_first(void)
{
    int64_t first = 0;

    for (uint32_t i = 0; due_count && i < top; i++)
        if (boxes[i].due_ms && (!first || boxes[i].due_ms < first))
            first = boxes[i].due_ms;
    return first;
}

void table_run_due(int64_t now_ms, void (*fn)(struct box *box))
{
    for (uint32_t i = 0; due_count && i < top; i++)
        if (boxes[i].due_ms && boxes[i].due_ms <= now_ms) {
            table_due_off(&boxes[i]);
            fn(&boxes[i]);
        }
}

/* ---- those that are being made ---- */

void table_pending_add(const struct box *box)
{
    pending[pending_count++] = table_slot(box);
}

void table_pending_remove(const struct box *box)
{
    for (unsigned i = 0; i < pending_count; i++)
        if (pending[i] == table_slot(box)) {
            pending[i] = pending[--pending_count];
            return;
        }
}

unsigned table_pending(void)
{
    return pending_count;
}

struct box *table_pending_at(unsigned place)
{
    return &boxes[pending[place]];
}
