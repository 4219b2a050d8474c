/*
 * Groups of v1 that no box has. To give one another name takes a tenth of what it takes to make or
 * to remove one, and the kernel clears away after each that is removed; so that of a box that ended
 * serves the next.
 *
 *   made, or reset ──▶ READY ── spare_take ──▶ a box's ── spare_give ──▶ USED ── reset ──▶ READY
 *                                                                         └── removed
 *
 * A used one is looked at when nothing else is to be done. Ready is what cannot be told from a new
 * one by whoever gets it: nobody is in it, its counters are 0. It keeps the limits it had, because
 * cgroup_make sets each of them anyway. What cannot be set back (somebody
 * was killed for lack of memory) or does not go away (memory that still counts for it, of files
 * that others read, too) is removed.
 *
 * And one that is for nobody: from the first freeze on, an empty group stays frozen. The kernel
 * changes its own code when a first group is frozen and again when the last one is thawed, with all
 * processors stopped for it; so neither is ever the first or the last.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "warden/cgroup.h"

#define NAME ".ahead%u"
#define NUMBERS 16u /* ready and used, in one hierarchy */
#define TRIES 40u   /* looks at one that is not empty yet */
/* Bytes: what each processor holds ready for a group counts as used. */
#define RESIDUE 524288u
#define HIERARCHIES 16u

#define COLD ".cold"

static bool is_cold;
static uint16_t ready[HIERARCHIES], used[HIERARCHIES];
static uint8_t tries[HIERARCHIES][NUMBERS];

static bool can_be(unsigned h)
{
    struct cgroup_place place = cgroup_dir(h);

    return h < HIERARCHIES && place.fd >= 0 && !place.v2 && !(cgroup_what(h) & CGROUP_RARE);
}

static void name_of(unsigned number, const char *file, char out[CGROUP_NAME])
{
    snprintf(out, CGROUP_NAME, NAME "%s%s", number, *file ? "/" : "", file);
}

/* ---- taking and giving ---- */

bool spare_take(unsigned h, const char *id)
{
    char name[CGROUP_NAME];

    if (!can_be(h) || !ready[h])
        return false;
    unsigned number = (unsigned)__builtin_ctz(ready[h]);
    ready[h] &= (uint16_t) ~(1u << number);
    name_of(number, "", name);
    return renameat(cgroup_dir(h).fd, name, cgroup_dir(h).fd, id) == 0;
}

static int free_number(unsigned h)
{
    unsigned taken = ready[h] | used[h];

    return taken == (1u << NUMBERS) - 1 ? -1 : __builtin_ctz(~taken);
}

static void mark_used(unsigned h, int number)
{
    used[h] |= (uint16_t)(1u << number);
    tries[h][number] = 0;
}

bool spare_give(unsigned h, const char *id)
{
    char name[CGROUP_NAME];
    int number = can_be(h) ? free_number(h) : -1;

    if (number < 0)
        return false;
    name_of((unsigned)number, "", name);
    int rc = renameat(cgroup_dir(h).fd, id, cgroup_dir(h).fd, name);
    if (rc == 0 || errno == EEXIST) /* of a warden before us */
        mark_used(h, number);
    return rc == 0;
}

void cgroup_make_ahead(void)
{
    for (unsigned h = 0; cgroup_dir(h).fd != CGROUP_NONE; h++) {
        char name[CGROUP_NAME];
        int number = can_be(h) ? free_number(h) : -1;

        if (number < 0 || __builtin_popcount(ready[h] | used[h]) >= CGROUP_AHEAD)
            continue;
        name_of((unsigned)number, "", name);
        if (mkdirat(cgroup_dir(h).fd, name, 0755) == 0)
            ready[h] |= (uint16_t)(1u << number);
        else if (errno == EEXIST)
            mark_used(h, number);
    }
}

/* ---- looking at used ones ---- */

static bool set(unsigned h, unsigned number, const char *file, const char *text)
{
    char name[CGROUP_NAME];

    name_of(number, file, name);
    return cgroup_write(cgroup_dir(h).fd, name, text) == 0;
}

static bool get(unsigned h, unsigned number, const char *file, char *out, size_t size)
{
    char name[CGROUP_NAME];

    name_of(number, file, name);
    return cgroup_read(cgroup_dir(h).fd, name, out, size) >= 0;
}

/* 1: nothing of a box is left in it; 0: not yet; -1: that will stay. */
static int is_clean(unsigned h, unsigned number)
{
    char text[256];

    if (!get(h, number, "cgroup.procs", text, sizeof(text)))
        return -1;
    if (*text)
        return 0;
    if (!(cgroup_what(h) & CGROUP_MEMORY))
        return 1;
    if (!get(h, number, "memory.oom_control", text, sizeof(text)))
        return -1;
    const char *kills = strstr(text, "oom_kill ");
    if (!kills || strtoull(kills + strlen("oom_kill "), NULL, 10) > 0)
        return -1;
    if (!get(h, number, "memory.usage_in_bytes", text, sizeof(text)))
        return -1;
    return strtoull(text, NULL, 10) <= RESIDUE;
}

static bool reset(unsigned h, unsigned number)
{
    static const struct {
        unsigned what;
        const char *file, *text;
    } as_new[] = { { CGROUP_MEMORY, "memory.max_usage_in_bytes", "0" },
                   { CGROUP_CPUACCT, "cpuacct.usage", "0" },
                   { CGROUP_FREEZER, "freezer.state", "THAWED" } };
    unsigned what = cgroup_what(h);

    for (size_t i = 0; i < ARRAY_LEN(as_new); i++)
        if (what & as_new[i].what && !set(h, number, as_new[i].file, as_new[i].text))
            return false;
    return true;
}

static void remove_used(unsigned h, unsigned number)
{
    char name[CGROUP_NAME];

    name_of(number, "", name);
    if (unlinkat(cgroup_dir(h).fd, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
        used[h] &= (uint16_t) ~(1u << number);
}

/* True: it is worth another look. */
static bool look_at(unsigned h, unsigned number)
{
    bool room = __builtin_popcount(ready[h]) < CGROUP_KEPT;
    int clean = room ? is_clean(h, number) : -1;

    if (clean > 0 && reset(h, number)) {
        used[h] &= (uint16_t) ~(1u << number);
        ready[h] |= (uint16_t)(1u << number);
        return false;
    }
    if (clean == 0 && tries[h][number] < TRIES) {
        tries[h][number]++;
        return true;
    }
    remove_used(h, number);
    return false;
}

bool cgroup_tidy(void)
{
    bool again = false;

    for (unsigned h = 0; cgroup_dir(h).fd != CGROUP_NONE; h++)
        for (unsigned left = can_be(h) ? used[h] : 0; left; left &= left - 1)
            again |= look_at(h, (unsigned)__builtin_ctz(left));
    return again;
}

/* ---- one that is frozen ---- */

void spare_freeze(void)
{
    for (unsigned h = 0; !is_cold && cgroup_dir(h).fd != CGROUP_NONE; h++) {
        int fd = cgroup_dir(h).fd;

        if (can_be(h) && cgroup_what(h) & CGROUP_FREEZER &&
            (mkdirat(fd, COLD, 0755) == 0 || errno == EEXIST))
            is_cold = cgroup_write(fd, COLD "/freezer.state", "FROZEN") == 0;
    }
}

/* ---- the end ---- */

void spares_drop(void)
{
    for (unsigned h = 0; cgroup_dir(h).fd != CGROUP_NONE; h++) {
        for (unsigned number = 0; can_be(h) && number < NUMBERS; number++)
            remove_used(h, number);
        if (can_be(h))
            (void)!unlinkat(cgroup_dir(h).fd, COLD, AT_REMOVEDIR);
    }
}

void spares_forget(void)
{
    is_cold = false;
    memset(ready, 0, sizeof(ready));
    memset(used, 0, sizeof(used));
}
