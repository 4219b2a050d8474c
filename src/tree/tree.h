/*
 * tree - trees of files as bytes: walked, listed, digested, packed as tar and unpacked.
 *
 * Shared by process 1 of a sandbox (which does this as the workload's user, among the workload) and
 * by the command line (which does it on the user's own files with what a sandbox sent). So nothing
 * here trusts a name, a link or a header: whatever is below the directory that a caller holds is
 * reached from that descriptor alone, beneath it and through no symbolic link. libc alone; memory
 * follows what is asked for, up to the limits here. One thread at a time.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "base/auto.h"

#define TREE_PATH_MAX 4095
#define TREE_NAME_MAX 255
#define TREE_DEPTH_MAX 1024          /* directories in one path of an archive */
#define TREE_ENTRIES_MAX 4000000u    /* of one archive, or one walk */
#define TREE_PENDING_MAX (64u << 20) /* bytes of names that wait during a walk */
#define TREE_PAX_MAX 262144          /* one extended header */

/* ---- what went wrong ---- */

enum tree_why {
    TREE_SYSTEM,  /* what the kernel said */
    TREE_KIND,    /* there, but not that kind of file */
    TREE_PLACE,   /* a file system that is no place for files: /proc and the like */
    TREE_OUTSIDE, /* a name that leads out of the destination */
    TREE_ARCHIVE, /* not a tar archive that we read */
    TREE_LIMIT,   /* over a limit of this header */
    TREE_USAGE,   /* the request itself */
    TREE_WHYS
};

struct tree_fail {
    int error; /* errno */
    enum tree_why why;
    char path[TREE_PATH_MAX + 1]; /* what it is about; may be empty */
};

/* Returns -1. `path` may be NULL. */
int tree_fail(struct tree_fail *fail, enum tree_why why, int error, const char *path);
const char *tree_why_text(uint32_t why);

/* ---- where bytes go to and come from ---- */

struct tree_sink {
    int (*put)(void *ctx, const void *data, size_t len); /* all of it: 0, or -1 with errno */
    void *ctx;
};

struct tree_source {
    ssize_t (*get)(void *ctx, void *out, size_t len); /* as read(2) */
    void *ctx;
};

/* ---- opening ---- */

/*
 * Beneath `dir`, through no link of either kind: a descriptor, or -1 with errno. With O_PATH and
 * O_NOFOLLOW the last name itself may be a link.
 */
int tree_open(int dir, const char *path, int flags, mode_t mode);
/* By any path, as the calling process sees it, but through no magic link. */
int tree_open_any(const char *path, int flags, mode_t mode);
/*
 * From now on tree_open_any goes no further than what is below the current directory, whatever the
 * links on the way say (EXDEV). For a process that does one thing: there is no way back.
 */
void tree_stay_beneath(void);
/* Is this a file system where files are kept (not proc, sysfs, a cgroup tree)? */
bool tree_place_ok(int fd);

/* ---- records: one file of a list or manifest ---- */

enum tree_entry_flag {
    TREE_HASHED = 1,
    TREE_BEFORE = 2, /* of tree_view: as it was */
};

/* In the host's byte order, then the name, then the link's target. */
struct tree_record {
    uint16_t name_len, link_len;
    uint32_t mode, uid, gid, flags, mtime_ns;
    uint64_t size;
    int64_t mtime;
    uint8_t sha256[32];
};
#define TREE_RECORD_MAX (sizeof(struct tree_record) + 2 * (size_t)TREE_PATH_MAX)

struct tree_entry {
    struct tree_record head;
    const char *name, *link; /* not NUL-terminated; in the bytes that were taken */
};

/* Appends to `out` (TREE_RECORD_MAX bytes): the length. */
size_t tree_record_put(char *out, const struct stat *st, const char *name, const char *link,
                       const uint8_t *sha256);
/* Gives a record that was just put TREE_BEFORE. */
void tree_record_before(char *record);
/*
 * The first record of hostile bytes: its length, 0 when more bytes are needed, -1 when it is none.
 * Names hold no NUL; a path never begins or ends with '/' and has no "", "." or ".." inside.
 */
ssize_t tree_record_take(const char *data, size_t len, struct tree_entry *out);

/* ---- walk.c: everything below a directory, parents first, each directory sorted by bytes ---- */

/* What a caller wants to leave out, with everything below it. */
struct tree_filter {
    bool (*skip)(void *ctx, const char *path, const struct stat *st);
    void *ctx;
};

struct walk {
    int root; /* borrowed */
    char *stack;
    size_t len, cap;
    uint64_t count;
    bool flat;                        /* set after walk_begin: directories are not entered */
    const char *after;                /* likewise: only paths behind this one; NULL all */
    const struct tree_filter *filter; /* likewise; NULL: nothing is left out */
    uint64_t skipped;                 /* by the filter */
    struct tree_fail *fail;
    char path[TREE_PATH_MAX + 1], link[TREE_PATH_MAX + 1];
    struct stat st;
};

must_use int walk_begin(struct walk *walk, int root, struct tree_fail *fail);
/* 1: walk->path, ->st and ->link are the next file; 0: that was all; -1. */
must_use int walk_next(struct walk *walk);
/* Fills in `st` and `link` for `path`; -1 with errno. walk_next has done it. */
int walk_look(struct walk *walk);
/* The file that walk_next gave, to be read: a descriptor; -1 with errno, ENOENT when it is gone. */
int walk_open(const struct walk *walk);
void walk_end(struct walk *walk);

/* ---- the operations ---- */

/* tar_out.c: directories, files and symbolic links below `root` as ustar with pax headers. */
must_use int tree_tar(int root, const struct tree_filter *filter, const struct tree_sink *sink,
                      struct tree_fail *fail);

struct untar_options {
    uint64_t entries_max; /* 0: TREE_ENTRIES_MAX */
    void (*progress)(void *ctx, uint64_t entries, uint64_t bytes);
    void *ctx;
};
struct untar_sum {
    uint64_t entries, bytes;
};
/* tar_in.c: an archive into the directory `root`. What was unpacked before a failure stays. */
must_use int tree_untar(int root, const struct tree_source *source,
                        const struct untar_options *options, struct untar_sum *sum,
                        struct tree_fail *fail);
/* manifest.c: a record for every file below `root`, with the digests of regular files. */
must_use int tree_manifest(int root, const struct tree_sink *sink, struct tree_fail *fail);
/* The digest of the file that a walk is at, read by way of `chunk`; false: it cannot be read. */
bool tree_digest(const struct walk *walk, char *chunk, size_t size, uint8_t out[32]);
/*
 * view.c: of each file that an overlay changed, a record of what it was (TREE_BEFORE) if it was
 * there, and one of what it is if it is. `before` and `upper` are the layers, `now` is the overlay.
 */
must_use int tree_view(int before, int upper, int now, const struct tree_sink *sink,
                       struct tree_fail *fail);
/* remove.c: the file or directory `name` in `dir` and everything below it, however deep. */
must_use int tree_remove(int dir, const char *name, struct tree_fail *fail);
