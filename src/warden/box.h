/*
 * box - the making of a sandbox, by system calls; inside the warden.
 *
 * A box is: a process 1 (atoll-init) in namespaces of its own, a root made of mounts that only it
 * has, a range of user ids that nobody else has, cgroups with limits, and a filter. It is made by
 * one clone and a child that walks through box_step in order; the first step that fails ends the
 * child, is told by name, and everything made so far is taken back. Nothing is left out silently.
 *
 * Who owns what: all namespaces are made from the host's user namespace and the box's own user
 * namespace is entered last, so that root inside has no power over any of them.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/auto.h"
#include "wire/box.h"

/* Where the warden keeps things; descriptors, opened once. */
struct box_host {
    int boxes_fd;      /* STATE/boxes: a directory per box */
    int skeleton_fd;   /* lower layer of the default image */
    int usr_fd;        /* the host's /usr */
    int init_fd;       /* sealed memfd with atoll-init */
    uint32_t uid_base; /* of slot 0 */
    uid_t api_uid;     /* who may talk to the inits */
    int landlock_abi;  /* 0: the kernel has none */
};

struct box_made {
    pid_t pid;
    int pidfd;
    int link; /* the first connection to its init */
};

/* What the child gets open. */
#define CGROUP_DOORS_MAX 8
struct box_fds {
    uid_t uid_first;
    int listen, link, userns, netns, report;
    int lower, usr; /* detached copies of the mounts: descriptors of the warden's own mount
                       namespace cannot be cloned from the child's */
    int doors[CGROUP_DOORS_MAX]; /* of the cgroups */
    unsigned door_count;
};

/* 0, or -1 with errno and *step. Everything is undone then. */
must_use int box_create(const struct box_host *host, const struct box_spec *spec,
                        struct box_made *out, enum box_step *step);
/* Kills what runs, waits, removes cgroups and directory. Idempotent: works from any half-made
 * state. */
must_use int box_destroy(const struct box_host *host, const char *id, struct box_made *made);

/* ---- namespaces.c ---- */

/* Both: a descriptor, or -1 with errno. The processes that made them are gone when they return. */
must_use int userns_make(uint32_t first_uid);
must_use int netns_make(void);

/* ---- mounts.c: in the child, in its own mount namespace ---- */

must_use int box_mounts(const struct box_spec *spec, const struct box_fds *fds,
                        enum box_step *step);
/* In the parent: a detached copy of the mount below this directory. */
must_use int tree_detach(int dir_fd);

/* ---- child.c: the rest of the child; returns only on failure ---- */

must_use int box_child(const struct box_host *host, const struct box_spec *spec,
                       struct box_fds *fds, enum box_step *step);

/* ---- cgroup.c: v1, hybrid and v2 behind one interface ---- */

struct cgroup_usage {
    uint64_t cpu_us, memory, memory_peak;
    uint64_t pids, oom_kills;
};

/* Finds out what this machine has; once. `root` is "/sys/fs/cgroup" or a fake tree in tests. */
must_use int cgroup_open(const char *mountinfo, const char *self_cgroup);
/* What is there, for doctor and show: "v1", "v2", "hybrid", "none". */
const char *cgroup_mode(void);
must_use int cgroup_make(const char *id, const struct box_spec *spec);
/* The descriptors through which a new process puts itself in (v1: tasks files). */
must_use int cgroup_doors(const char *id, int fds[CGROUP_DOORS_MAX], unsigned *count);
must_use int cgroup_freeze(const char *id, bool freeze);
must_use int cgroup_usage(const char *id, struct cgroup_usage *out);
/* 0 when all are gone; EBUSY while a process is still leaving. */
must_use int cgroup_remove(const char *id);
