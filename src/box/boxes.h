/*
 * boxes - living sandboxes and their commands, on the loop thread.
 *
 * Everything that was not deleted is in memory and in the store; questions are answered from
 * memory. A change goes first to the kernel (by the warden, or by the sandbox's init), then in one
 * write job to the store together with its event and what the caller records with it (audit row,
 * idempotent answer), and only then is it said to be done. A kill in between leaves something in
 * the kernel that no row knows: the next start takes it back (adopt.c).
 *
 * All functions are for the loop thread, except boxes_load.
 */
#pragma once

#include "base/id.h"
#include "base/limits.h"
#include "box/pace.h"
#include "loop/loop.h"
#include "model/sandbox.h"
#include "store/store.h"
#include "wire/init.h"
#include "wire/wire.h"

struct boxes;
struct box;
struct box_exec;
struct disk;

/* What the machine has for sandboxes, measured at the start; by enum quota_of. */
struct boxes_machine {
    int64_t has[4];    /* 0: unknown, and not checked */
    int64_t factor[4]; /* how often that may be promised; 0: not checked */
    int meminfo;       /* /proc/meminfo, owned; -1 */
};

struct boxes_options {
    struct loop *loop;
    struct store *store;
    int spool_dir;          /* takes */
    unsigned sandboxes_max; /* not deleted ones */
    bool degraded;          /* limits that were asked for need not hold (allow_degraded) */
    int64_t aside_keep_ms;  /* how long disks that no row names are kept; 0: until somebody says */
    struct boxes_machine machine; /* takes the descriptor */
    unsigned pool_default; /* warm ones in the default pool, unless somebody said otherwise */
    /* To the warden: 0, or -1 with errno. */
    int (*send)(void *ctx, const struct wire_msg *msg);
    void *ctx;
};

struct boxes *boxes_new(const struct boxes_options *options);
/* Ends all that waits with ERR_UNAVAILABLE; the sandboxes themselves go on. */
void boxes_free(struct boxes *boxes);
/* Within the first job of a start, before anything else uses `boxes`: reads the rows. */
must_use int boxes_load(struct boxes *boxes, struct db *db, struct err *err);
/* Finds what still runs and takes it over; `done` when everything that could be is. */
void boxes_start(struct boxes *boxes, void (*done)(void *ctx), void *ctx);
/* The server is stopping: whoever waits for a command is answered now. */
void boxes_drain(struct boxes *boxes);
/* A message of the warden's about a box. Takes the descriptors. */
void boxes_heard(struct boxes *boxes, const struct wire_msg *msg, const int *fds, unsigned count);

/* ---- one change and who asked for it ---- */

struct box_op {
    const char *tenant, *by; /* borrowed until the end */
    /* What the caller may name and own; for boxes_create, box_fork and box_rollback. */
    struct reach reach;
    const char *role; /* of whoever asks, for quotas; NULL: the server itself */
    /* Just before the change is stored, what `record` will need can be composed; may be NULL. */
    void (*prepare)(struct box_op *op);
    /* On the writer thread, in the transaction that stores the change; may be NULL. */
    int (*record)(struct box_op *op, struct db *db, struct err *err);
    /*
     * Is `record` no more than an audit row? Then this one, borrowed, may be added in its stead,
     * after `done` even. May be NULL: no.
     */
    bool (*audit)(struct box_op *op, struct audit *out);
    /* Exactly once, never from inside the call that began it; err NULL: done and stored. */
    void (*done)(struct box_op *op, const struct err *err);
    struct box *box; /* what it is about, once that is known */
    struct box_exec *exec;
    struct disk *disk; /* the snapshot that was made */
    unsigned ended;    /* commands that a rollback ended */
    bool was_up;       /* it ran before a rollback, and will again */
    bool till_end;     /* of a command: whoever asked is told nothing before it ends */
    struct list node;  /* the room's own */
};

/* ---- sandboxes ---- */

/* By the whole id, or by the name, of one within reach. ERR_NOT_FOUND. */
must_use int boxes_find(struct boxes *boxes, struct reach reach, const char *text, struct box **out,
                        struct err *err);
/*
 * The same, or by the beginning of an id that only one within reach has. ERR_NOT_FOUND,
 * ERR_CONFLICT.
 */
must_use int boxes_find_prefix(struct boxes *boxes, struct reach reach, const char *text,
                               struct box **out, struct err *err);
/* Is it within reach; may its access be changed? */
bool box_within(const struct box *box, struct reach reach);
bool box_owned(const struct box *box, struct reach reach);
/*
 * By its whole id, of any tenant; NULL: none. A box that waits in a pool is not a sandbox yet. The
 * rooms above never see such a box, so no state of theirs is derived before the box has an owner.
 */
struct box *boxes_by_id(struct boxes *boxes, const char *id);
const char *box_tenant(const struct box *box);
/* How many run or are paused. */
unsigned boxes_living(const struct boxes *boxes);
/* The next sandbox within reach, oldest first; NULL begins and ends. */
struct box *boxes_next(struct boxes *boxes, struct reach reach, struct box *after);
/*
 * The last sandbox, or what waits to become one, whose id is not behind this one: what boxes_next
 * goes on from. The sandbox with this id may be gone. NULL: none is.
 */
struct box *boxes_upto(struct boxes *boxes, const char *id);
void box_view(const struct box *box, struct sandbox_view *out);

/* One time that process 1 of a sandbox died by itself. */
struct crash_view {
    int64_t at, uptime_ms;
    const char *reason;
};
extern const struct field crash_fields[];
/* The newest CRASHES_KEPT of a sandbox, newest first. */
must_use int crashes_each(struct db *db, const char *tenant, const char *sandbox,
                          void (*fn)(void *ctx, const struct crash_view *view), void *ctx,
                          struct err *err);
/* What it was made with and has become since, for another like it; all of it in the arena. */
void box_wish(const struct box *box, struct arena *arena, struct sandbox_spec *out);
/* enum box_lost, as the warden said when it was made; 0 after a restart. */
uint32_t box_without(const struct box *box);

/*
 * Each: 0 when under way (op->done follows), -1 when refused at once. `spec` is copied.
 * ERR_QUOTA, ERR_CAPACITY: see quota.h. ERR_CONFLICT: the name is taken, or the state does not
 * fit.
 */
must_use int boxes_create(struct boxes *boxes, const struct sandbox_spec *spec, struct box_op *op,
                          struct err *err);
/*
 * Would quotas and the machine allow the limits of such a sandbox now, perhaps instead of one that
 * is there? How many sandboxes there are is checked when it is created.
 */
must_use int boxes_admit(struct boxes *boxes, const struct sandbox_spec *spec,
                         const struct box *instead, const struct box_op *op, struct err *err);
must_use int box_pause(struct box *box, struct box_op *op, struct err *err);
must_use int box_resume(struct box *box, struct box_op *op, struct err *err);
/* Refused where it would lose its files (storage memory). */
must_use int box_stop(struct box *box, struct box_op *op, struct err *err);
must_use int box_start(struct box *box, struct box_op *op, struct err *err);
must_use int box_delete(struct box *box, struct box_op *op, struct err *err);

/*
 * Copies of its disk, as of one instant; what runs is frozen for that moment and then goes on,
 * whatever happens. ERR_CONFLICT for one that has no disk.
 */
must_use int box_snapshot(struct box *box, const char *name, struct box_op *op, struct err *err);
/* A new sandbox that begins with its files and limits; op->box is the new one. */
must_use int box_fork(struct box *box, const struct fork_wish *wish, struct box_op *op,
                      struct err *err);
/* Its files become those of the snapshot; its commands end, and it runs again if it ran. */
must_use int box_rollback(struct box *box, const char *snapshot, struct box_op *op,
                          struct err *err);
/* Bit i of `present`: sandbox_patch_fields[i] is to change. */
must_use int box_patch(struct box *box, const struct sandbox_patch *patch, uint64_t present,
                       struct box_op *op, struct err *err);

/* Does it name this volume? */
bool box_names_volume(const struct box *box, const char *name);

/* Somebody does something with it: its idle time begins anew. */
void box_touch(struct box *box);
/*
 * Before it is used: 1 go on, 0 its idle policy had put it to sleep and op->done follows when it is
 * awake (nothing is stored for this op), -1 refused.
 */
must_use int box_wake(struct box *box, struct box_op *op, struct err *err);
/* Whoever waited for that does not any more: op->done is not called. Fine on any op. */
void box_unwake(struct box_op *op);

/* Of the gate: it will be told what to trust (box_trust), or need not be. */
void box_trust_expect(struct box *box, bool wanted);
/* An authority's certificate; `hash` is of its subject. */
void box_trust(struct box *box, struct str pem, uint32_t hash);
/* Variables that its commands get besides those of its wish; copied. */
#define ENV_HELD_MAX 128
void box_held(struct box *box, const struct field_pair *pairs, size_t count);

/* Questions to the warden; *out lives until `done`. */
must_use int box_stats(struct box *box, struct box_usage *out, struct box_op *op, struct err *err);
must_use int box_applied(struct box *box, struct box_applied *out, struct box_op *op,
                         struct err *err);

/* Whether nothing new is started because the disk of the state directory is full. */
bool boxes_full(const struct boxes *boxes, struct err *why);

/* ---- commands ---- */

/* By the whole id. ERR_NOT_FOUND. */
must_use int box_exec_find(struct box *box, const char *id, struct box_exec **out, struct err *err);
/* The same, or by the beginning of an id that only one command has. ERR_NOT_FOUND, ERR_CONFLICT. */
must_use int box_exec_find_prefix(struct box *box, const char *id, struct box_exec **out,
                                  struct err *err);
struct box_exec *box_exec_next(const struct box *box, struct box_exec *after); /* oldest first */
void box_exec_view(const struct box_exec *exec, struct exec_view *out);
bool box_exec_ended(const struct box_exec *exec); /* and no kill takes the end back */
/* It runs, and nobody has sent it the signal that ends it. */
bool box_exec_stays(const struct box_exec *exec);

/* Done when it has started and that is stored. */
must_use int box_exec(struct box *box, const struct exec_spec *spec, struct box_op *op,
                      struct err *err);
/* Done when it has ended, when the time is over, or when the server stops; never an error. */
struct box_wait {
    struct list node;
    struct timer timer;
    struct box_exec *exec;
    /* Also done when the command is held back for a reader that is not there. */
    bool till_held;
    void (*done)(struct box_wait *wait);
};
void box_exec_wait(struct box_exec *exec, int64_t ms, struct box_wait *wait);
void box_exec_unwait(struct box_wait *wait);

must_use int box_exec_signal(struct box_exec *exec, int signal, bool tree, struct box_op *op,
                             struct err *err);
must_use int box_exec_resize(struct box_exec *exec, unsigned rows, unsigned cols, struct err *err);

/*
 * Called for each command of any sandbox once its start is known to the caller that asked for it,
 * and before anybody else is told of its output or its end.
 */
struct boxes_watch {
    struct list node;
    void (*began)(struct boxes_watch *watch, struct box_exec *exec);
};
void boxes_watch(struct boxes *boxes, struct boxes_watch *watch);
void boxes_unwatch(struct boxes_watch *watch);
struct box *box_exec_box(const struct box_exec *exec);

/* Kills everything of it, recorded as the doing of `by`. */
must_use int box_exec_kill(struct box_exec *exec, const char *by, struct err *err);

/* ---- input ---- */

/* A little input that nobody waits for. ERR_RATE: too much waits already; ERR_CONFLICT. */
must_use int box_exec_type(struct box_exec *exec, struct str data, struct err *err);

/*
 * One writer at a time. Takes what there is room for, and says how much; the rest when `room` is
 * called, which also tells that all has arrived, or that nothing reads it any more (`over`).
 *
 * Every byte of input has a position, counted from the first one ever, which came with the wish
 * perhaps. One that comes back says `at`, where its own begin: those that were taken already are
 * taken again without effect.
 */
struct box_input {
    struct box_exec *exec; /* NULL: not attached */
    void (*room)(struct box_input *input);
    int64_t at;         /* -1: behind all that was taken */
    uint64_t skip;      /* of what is put next, known already; ours */
    bool over, refused; /* refused: something of it was never read */
};
/* ERR_CONFLICT: not now, or its `at` is behind the input. ERR_UNAVAILABLE: with `at`, not yet. */
must_use int box_input_begin(struct box_exec *exec, struct box_input *input, struct err *err);
/*
 * The same for one that began before its init had said how far it is, as it may after a restart:
 * to be asked whenever `room` was called.
 */
must_use int box_input_place(struct box_input *input, struct err *err);
/* The position behind all that was taken. */
uint64_t box_input_position(const struct box_exec *exec);
size_t box_input_put(struct box_input *input, struct str data);
void box_input_eof(struct box_input *input);        /* after what was put */
bool box_input_idle(const struct box_input *input); /* everything has arrived */
void box_input_end(struct box_input *input);
/* The record of it in the store; `op` as in the other changes. */
void box_input_note(struct box_exec *exec, struct box_op *op);

/* ---- output ---- */

/*
 * Told whenever there may be more to read, or the command has ended.
 *
 * A reader that `holds` must have every byte: the command is held back when it is EXEC_AHEAD beyond
 * the reader's position. A holder that is unfollowed counts as away and may come back, with the
 * position that its peer has; it holds for EXEC_AWAY_MS from when the command needs its room. One
 * that will not come back clears `holds` before it is unfollowed.
 */
struct box_reader {
    struct pace_reader pace;
    void (*more)(struct box_reader *reader);
    /* The command is being forgotten: the reader is no longer attached. */
    void (*gone)(struct box_reader *reader);
};
void box_exec_follow(struct box_exec *exec, struct box_reader *reader);
void box_exec_unfollow(struct box_reader *reader);
/* A holder has read up to here. */
void box_exec_advance(struct box_reader *reader, unsigned stream, uint64_t at);
/* Bytes of a stream from a position: how many, 0 none now. ERR_GONE, ERR_RANGE. */
must_use ssize_t box_exec_read(struct box_exec *exec, unsigned stream, uint64_t from, void *out,
                               size_t len, struct err *err);
void box_exec_range(const struct box_exec *exec, unsigned stream, uint64_t *begin, uint64_t *end);
