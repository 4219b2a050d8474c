/* cgroup - what cgroup.c, cgroup_io.c and cgroup_spare.c share. */
#pragma once

#include "warden/box.h"

#define CGROUP_NAME (BOX_ID_SIZE + 40)
#define CGROUP_NONE (-2)

/* Where a controller is: the directory of ours; -1: not made yet; CGROUP_NONE: there is none. */
struct cgroup_place {
    int fd;
    bool v2;
};

struct cgroup_place cgroup_io_place(void);
struct cgroup_place cgroup_pids_place(void);
/* Makes the directory of ours if it must; ENOTSUP: there is no such controller. */
must_use int cgroup_io_open(void);
/* The hierarchies by number, CGROUP_NONE after the last; and what is in one. */
enum {
    CGROUP_MEMORY = 1,
    CGROUP_CPUACCT = 2,
    CGROUP_FREEZER = 4,
    CGROUP_RARE = 8 /* limits of io, which are not set back */
};
struct cgroup_place cgroup_dir(unsigned number);
unsigned cgroup_what(unsigned number);
/* One that is ready gets this name; false: there is none. */
must_use bool spare_take(unsigned number, const char *id);
/* It is nobody's any more, under a name of ours; false: it is to be removed. */
must_use bool spare_give(unsigned number, const char *id);
/* Before a box is frozen: it is not the only one. */
void spare_freeze(void);
void spares_drop(void);
void spares_forget(void);
ssize_t cgroup_read(int dir, const char *path, char *out, size_t size);
must_use int cgroup_write(int dir, const char *path, const char *text);
