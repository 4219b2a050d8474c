/*
 * disk - the numbered trees of files that the warden keeps, and their rows.
 *
 * Everything kept is a disk: the root of a sandbox that may be stopped, a layer of an image, a
 * volume, a snapshot. A row is written before the warden makes the disk, and marked ready in the
 * transaction that stores what the disk is for. Dropping begins with the row, which says so until
 * the disk is gone. So a kill leaves
 *
 *   a row that is not ready    the next start drops its disk, if there is one, and then the row
 *   a ready row and its disk
 *
 * A disk without a row belongs to another store: it is kept aside (drops.c). A ready row without a
 * disk means that somebody else removed it: it is lost, and whoever needs it is told so. Numbers
 * are never used twice.
 *
 * All functions are for the loop thread, except those with a struct db.
 */
#pragma once

#include "box/boxes.h"

enum disk_kind { DISK_ROOT, DISK_LAYER, DISK_VOLUME, DISK_SNAPSHOT, DISK_KINDS };
enum disk_state { DISK_MAKING, DISK_READY, DISK_LOST };

struct disk {
    struct list node;
    struct boxes *boxes;
    uint64_t number;
    enum disk_kind kind;
    enum disk_state state;
    char id[ID_SIZE]; /* "vo…", "sn…"; otherwise "" */
    char tenant[33], by[ID_SIZE];
    char *name, *sandbox, *spec; /* owned, never NULL */
    struct arena arena;          /* of access */
    struct access access;
    int64_t bytes, made_ms;
    uint64_t from; /* what it is made as a copy of */
    bool there;    /* the warden has it */
    bool busy;     /* being removed */
};

const char *disk_kind_name(enum disk_kind kind);

struct disk_op {
    /* On the writer thread, in the transaction of disk_ready, disk_resize, disk_remove. */
    int (*record)(struct disk_op *op, struct db *db, struct err *err);
    /* Exactly once, never from inside the call that began it; err NULL: done and stored. */
    void (*done)(struct disk_op *op, const struct err *err);
    /* disk_make, may be NULL: the row is there, and disk_make_now is the caller's next word. */
    void (*stored)(struct disk_op *op);
    struct disk *disk;
    const char *tenant, *event; /* an event of this type about the disk; NULL: none */
    const char *role;           /* of whoever asks for another size; NULL: the server itself */
};

struct disk_want {
    enum disk_kind kind;
    const char *tenant, *by;
    const char *role;                  /* of whoever asks, for quotas; NULL: the server itself */
    const char *name, *sandbox, *spec; /* NULL: none */
    struct access access;              /* of a volume or a snapshot */
    int64_t bytes;                     /* 0: as much as there is */
    uint64_t from;                     /* begins as a copy of this disk; 0: empty */
};

/* Can this machine keep disks at all? Known after the start. */
bool disks_work(const struct boxes *boxes);
/* The storage of a sandbox or pool whose specification names none: disk where disks work. */
const char *disks_storage(const struct boxes *boxes);
/* Why not, as an error of the API; returns -1. */
int disks_refuse(const struct boxes *boxes, struct err *err);

/* The row, then the disk. When done it is not ready yet: disk_ready, disk_row_ready or disk_drop
 * follow. -1: refused at once. */
must_use int disk_make(struct boxes *boxes, const struct disk_want *want, struct disk_op *op,
                       struct err *err);
void disk_make_now(struct disk *disk, struct disk_op *op);
/* Stores that it is what it was made for. */
void disk_ready(struct disk *disk, struct disk_op *op);
/* The same as part of another change, which says disk->state = DISK_READY once it is stored. */
must_use int disk_row_ready(struct db *db, uint64_t number, const char *sandbox, struct err *err);
/* From now on its disk is to be dropped, which disk_drop does, or the next start. */
must_use int disk_row_drop(struct db *db, uint64_t number, struct err *err);

/* Marks the row, then drops it; the struct is gone when `done` is called without an error. */
must_use int disk_remove(struct disk *disk, struct disk_op *op, struct err *err);
/* Its row is not ready: the warden drops it, and nobody waits. Frees. */
void disk_drop(struct disk *disk);
must_use int disk_resize(struct disk *disk, int64_t bytes, struct disk_op *op, struct err *err);
/* Another size (0: the same), another access (NULL: the same), or both. */
must_use int disk_change(struct disk *disk, int64_t bytes, const struct access *access,
                         struct disk_op *op, struct err *err);
/* May its access be changed? */
bool disk_owned(const struct disk *disk, struct reach reach);
/* What is used; *out lives until `done`. */
must_use int disk_stat(struct disk *disk, struct disk_usage *out, struct disk_op *op,
                       struct err *err);

struct disk *disk_by_number(const struct boxes *boxes, uint64_t number);
/*
 * By id, or by name where only one of the kind within reach has it. ERR_NOT_FOUND, ERR_CONFLICT.
 */
must_use int disk_find(struct boxes *boxes, struct reach reach, enum disk_kind kind,
                       const char *sandbox, const char *text, struct disk **out, struct err *err);
/* The next one within reach, oldest first; `sandbox` NULL: of any. NULL begins and ends. */
struct disk *disk_next(struct boxes *boxes, struct reach reach, enum disk_kind kind,
                       const char *sandbox, struct disk *after);

/*
 * The last one, of any kind, that is not behind the one with this id, which may be gone: what
 * disk_next goes on from. NULL: none is.
 */
struct disk *disk_upto(struct boxes *boxes, const char *id);

/* ---- drops.c: disks that no row names ---- */

struct disk_aside {
    struct list node;
    uint64_t number;
    int64_t found_ms;
    bool there; /* the warden has it */
    bool ends;  /* it is to be dropped */
};
/* In the order of their numbers; NULL begins and ends. */
struct disk_aside *disk_aside_next(struct boxes *boxes, struct disk_aside *after);
must_use int disk_aside_drop(struct boxes *boxes, uint64_t number, struct disk_op *op,
                             struct err *err);
