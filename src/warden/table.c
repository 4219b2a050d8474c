/*
 * Who is where: indexes, names, deadlines, and those that are being made. Nothing here walks over
 * all boxes but a list of them: there may be thousands, and this is called for every message.
 */
#include <string.h>

#include "base/clock.h"
#include "warden/boxes.h"
#include "warden/net.h"

#define BUCKETS 4096u
#define WORDS (BOX_SLOTS / 64)

/* What a box can be found by; each has its own chains through the boxes. */
enum key { BY_ID, BY_PID, BY_UPPER };

static struct box boxes[BOX_SLOTS];
static uint16_t chains[TABLE_KEYS][BUCKETS]; /* index + 1 of the first; 0: none */
static uint64_t busy[WORDS];                 /* a bit per index: in use, or reserved */
static uint64_t closed[WORDS];               /* likewise: an adopted box has some of its ids */
static uint32_t top;                         /* all at and above are free */
static uint16_t due[BOX_SLOTS];              /* those that have a due_ms, in no order */
static unsigned due_count;
static uint32_t pending[BOXES_PENDING_MAX];
static unsigned pending_count;

_Static_assert(BOX_SLOTS < UINT16_MAX && BOX_SLOTS % 64 == 0, "indexes and words");

uint32_t table_slot(const struct box *box)
{
    return (uint32_t)(box - boxes);
}

struct box *table_at(uint32_t slot)
{
    return &boxes[slot % BOX_SLOTS];
}

/* ---- finding ---- */

static uint32_t bucket_of(const struct box *box, enum key key)
{
    uint32_t sum = 2166136261u;

    if (key != BY_ID) {
        uint64_t number = key == BY_PID ? (uint64_t)box->pid : box->upper;

        return (uint32_t)(number * UINT64_C(0x9e3779b97f4a7c15) >> 32) % BUCKETS;
    }
    for (const char *at = box->id; *at; at++)
        sum = (sum ^ (unsigned char)*at) * 16777619u;
    return sum % BUCKETS;
}

static void chain_in(struct box *box, enum key key)
{
    uint16_t *first = &chains[key][bucket_of(box, key)];

    box->next[key] = *first;
    *first = (uint16_t)(table_slot(box) + 1);
}

static void chain_out(struct box *box, enum key key)
{
    uint16_t *at = &chains[key][bucket_of(box, key)];

    while (*at && &boxes[*at - 1] != box)
        at = &boxes[*at - 1].next[key];
    if (*at)
        *at = box->next[key];
}

static struct box *find(const struct box *like, enum key key)
{
    for (unsigned at = chains[key][bucket_of(like, key)]; at; at = boxes[at - 1].next[key]) {
        struct box *box = &boxes[at - 1];

        if (key == BY_ID    ? memcmp(box->id, like->id, BOX_ID_SIZE) == 0
            : key == BY_PID ? box->pid == like->pid && !box->gone
                            : box->upper == like->upper)
            return box;
    }
    return NULL;
}

struct box *table_find(const char *id)
{
    struct box like = { 0 };

    memcpy(like.id, id, BOX_ID_SIZE);
    return find(&like, BY_ID);
}

bool box_known(const char *id)
{
    return table_find(id) != NULL;
}

struct box *table_find_child(pid_t pid)
{
    return find(&(struct box){ .pid = pid }, BY_PID);
}

struct box *table_upper(uint64_t disk)
{
    return find(&(struct box){ .upper = disk }, BY_UPPER);
}

struct box *table_free(void)
{
    for (uint32_t i = 0; i < WORDS; i++)
        if (~(busy[i] | closed[i])) {
            uint32_t slot = i * 64 + (uint32_t)__builtin_ctzll(~(busy[i] | closed[i]));

            return slot < box_host.slots ? &boxes[slot] : NULL;
        }
    return NULL;
}

struct box *table_next(uint32_t slot)
{
    for (; slot < top; slot++)
        if (boxes[slot].state != BOX_FREE)
            return &boxes[slot];
    return NULL;
}

/* ---- taking and leaving ---- */

void table_reserve(const struct box *box, bool reserved)
{
    uint32_t slot = table_slot(box);
    uint64_t bit = UINT64_C(1) << slot % 64;

    busy[slot / 64] = reserved ? busy[slot / 64] | bit : busy[slot / 64] & ~bit;
}

void table_take(struct box *box, const char *id, enum box_state state)
{
    *box = (struct box){ .state = (uint8_t)state,
                         .uid_first = box_uid_first(&box_host, table_slot(box)),
                         .pidfd = -1,
                         .link = -1,
                         .report = -1,
                         .mounts = -1,
                         .users = -1,
                         .status = -1 };
    memcpy(box->id, id, BOX_ID_SIZE);
    chain_in(box, BY_ID);
    table_reserve(box, true);
    top = MAX(top, table_slot(box) + 1);
}

void table_set_pid(struct box *box, pid_t pid)
{
    box->pid = pid;
    chain_in(box, BY_PID);
}

void table_set_ids(struct box *box, uint32_t first, uint32_t count)
{
    uint64_t end = (uint64_t)first + count;

    box->uid_first = first;
    if (box_host.uids == 1 ||
        (count == box_host.uids && first == box_uid_first(&box_host, table_slot(box))))
        return;
    for (uint32_t slot = 0; slot < box_host.slots; slot++) {
        uint64_t start = box_uid_first(&box_host, slot);

        if (start < end && first < start + box_host.uids)
            closed[slot / 64] |= UINT64_C(1) << slot % 64;
    }
}

void table_set_upper(struct box *box, uint64_t disk)
{
    box->upper = disk;
    if (disk)
        chain_in(box, BY_UPPER);
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
    close_one(&box->mounts);
    close_one(&box->users);
    chain_out(box, BY_ID);
    if (box->pid)
        chain_out(box, BY_PID);
    if (box->upper)
        chain_out(box, BY_UPPER);
    table_reserve(box, false);
    net_leave(table_slot(box));
    *box = (struct box){ .pidfd = -1, .link = -1, .report = -1, .mounts = -1, .users = -1 };
    while (top && boxes[top - 1].state == BOX_FREE)
        top--;
    if (!top)
        memset(closed, 0, sizeof(closed)); /* nobody is left who has them */
}

/* ---- deadlines ---- */

void table_due(struct box *box, int64_t in_ms)
{
    if (!box->due_ms) {
        box->due_at = (uint16_t)due_count;
        due[due_count++] = (uint16_t)table_slot(box);
    }
    box->due_ms = clock_mono_ms() + in_ms;
}

void table_due_off(struct box *box)
{
    if (!box->due_ms)
        return;
    box->due_ms = 0;
    due[box->due_at] = due[--due_count];
    boxes[due[box->due_at]].due_at = box->due_at;
}

int64_t table_due_first(void)
{
    int64_t first = 0;

    for (unsigned i = 0; i < due_count; i++)
        if (!first || boxes[due[i]].due_ms < first)
            first = boxes[due[i]].due_ms;
    return first;
}

void table_run_due(int64_t now_ms, void (*fn)(struct box *box))
{
    for (unsigned i = due_count; i-- > 0;) { /* what takes a place that became free was seen */
        struct box *box = i < due_count ? &boxes[due[i]] : NULL;

        if (box && box->due_ms <= now_ms) {
            table_due_off(box);
            fn(box);
        }
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
