/* cgroup - what cgroup.c and cgroup_io.c share. */
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
ssize_t cgroup_read(int dir, const char *path, char *out, size_t size);
must_use int cgroup_write(int dir, const char *path, const char *text);
