/* own - what the files of the box room share among themselves. */
#pragma once

#include "base/buf.h"
#include "base/crash.h"
#include "base/map.h"
#include "base/mem.h"
#include "box/boxes.h"
#include "box/disk.h"
#include "box/image.h"
#include "box/job.h"
#include "box/pool.h"
#include "box/spool.h"

#define BOX_TENANT_MAX 32

/* ---- ask.c: questions to the warden ---- */

struct ask {
    struct list node;
    struct wire_msg msg;
    int64_t due_ms; /* once it was sent */
    /* msg NULL: no answer came. The callee takes the descriptors that it sets to -1. */
    void (*answered)(struct ask *ask, const struct wire_msg *msg, int fds[WIRE_FDS_MAX]);
    struct boxes *boxes; /* where an answer looks for its sandbox */
    struct box *box;
    struct box_op *op;
    void *out;
};

struct asks {
    struct list sent, waiting;
    unsigned sent_count, waiting_count;
    uint32_t number;
    struct timer timer;
};

struct ask *ask_new(uint16_t verb, const char *id);
/* Takes it; frees it after `answered`. */
void ask_send(struct boxes *boxes, struct ask *ask);
void asks_heard(struct boxes *boxes, const struct wire_msg *msg, int fds[WIRE_FDS_MAX]);
void asks_init(struct boxes *boxes);
void asks_free(struct boxes *boxes);
/* What an answer says as an error of the API; `what` is said first. */
int ask_err(struct err *err, const struct wire_msg *msg, const char *what);

/* ---- helper.c: sandboxes for our own use ---- */

/* One step at a time: each call is answered by the callback of its name. */
struct helper {
    struct box *box;                                          /* NULL: none */
    void (*up)(struct helper *helper, const struct err *err); /* with err: there is none */
    void (*mounted)(struct helper *helper, const struct err *err);
    void (*lost)(struct helper *helper, const char *reason); /* it ended; helper_end follows */
    void (*gone)(struct helper *helper, bool sure);
};
void helper_start(struct helper *helper, struct boxes *boxes);
void helper_mount(struct helper *helper, uint64_t disk, const char *target);
void helper_end(struct helper *helper);

/* ---- ends.c: what has ended, until the store has it ---- */

struct change;

struct ends {
    int fd; /* -1: there is no file */
    unsigned free_count;
    uint16_t free[ENDS_MAX]; /* places */
};
void ends_open(struct boxes *boxes);
void ends_close(struct boxes *boxes);
void ends_load(struct boxes *boxes); /* after the rows */
/* What its place needs to say of its start, if that fits; then the change has no op any more. */
void end_note_start(struct box_exec *exec, struct change *change, const struct audit *row);
void end_note_free(struct box_exec *exec);
bool end_keep(struct box_exec *exec); /* false: it cannot be, or there is no place for it */
void end_drop(struct box_exec *exec);

/* ---- room.c: a full disk ---- */

struct room {
    unsigned waiting; /* commands whose output or end cannot be written */
    char why[160];
};
/* ERR_NO_SPACE: nothing new is to be started. */
must_use int room_check(const struct boxes *boxes, struct err *err);
/* The command waits; and it goes on, or is over. Each may be said again. */
void room_lacks(struct box_exec *exec, const struct err *err);
void room_found(struct box_exec *exec);

/* ---- the set ---- */

struct boxes {
    struct loop *loop;
    struct store *store;
    int spool_dir;
    unsigned max, count;
    bool degraded;
    int (*send)(void *ctx, const struct wire_msg *msg);
    void *ctx;
    struct list all; /* by id: oldest first */
    struct map by_id;
    struct asks asks;
    struct list waits; /* of all commands, for drain */
    struct list watches;
    unsigned hold_ms; /* EXEC_HOLD_MS; a test may have more time */
    unsigned away_ms; /* EXEC_AWAY_MS; a test may have less */
    struct ends ends;
    struct room room;
    bool stopping;
    /* adopt.c */
    void (*started)(void *ctx);
    void *started_ctx;
    unsigned opening;
    struct map listed;
    unsigned destroying; /* boxes that no row knows: their disks are dropped after them */
    bool boxes_listed;
    /* disk.c */
    struct list disks; /* oldest first */
    struct list drops; /* to be tried again */
    struct timer drop_timer, aside_timer;
    struct list aside;  /* disk_aside, by number */
    unsigned aside_new; /* found by this start */
    int64_t aside_keep_ms;
    bool disks_asked;
    int disks_status; /* errno that the warden answered the list with */
    void (*disks_listed)(struct boxes *boxes);
    /* image.c, import.c */
    struct list images; /* oldest first */
    struct list imports;
    unsigned import_count;
    /* pool.c */
    struct list pools;
    unsigned pool_default, warm_count;
    bool pool_default_set; /* the default pool was set, in the store or since */
    struct list templates; /* by name (template.c) */
    /* quota.c, admit.c */
    struct list quotas; /* by subject */
    struct boxes_machine machine;
    char first_tenant[BOX_TENANT_MAX + 1];
    bool shared; /* there are several tenants */
    struct {
        uint64_t key;
        int64_t until_ms;
    } refusals[QUOTA_REFUSALS]; /* that an event tells of already */
    unsigned refusal_next;
    bool pools_on;
};

/* A frame that did not fit into the socket. */
struct box_frame {
    struct list node;
    int fd; /* beside it, owned; -1 */
    size_t len;
    char data[];
};

/* What it trusts besides its image (trusted.c). */
struct box_trust {
    bool wanted;           /* its policy opens TLS */
    bool in;               /* what `pem` says is in it */
    bool putting, changed; /* under way; and it is not the newest */
    bool given_up;         /* nobody waits for it any more */
    struct buf pem;        /* of the authority; empty: not heard of yet */
    uint32_t hash;
    struct box_job job;
    struct timer late;
    struct list waiters;    /* box_op: who wants to use it */
    struct field_pair *env; /* owned; variables with placeholders; NULL: none */
};

struct box {
    struct list node;
    struct boxes *boxes;
    char id[ID_SIZE], tenant[BOX_TENANT_MAX + 1], by[ID_SIZE];
    struct arena arena; /* of spec */
    struct sandbox_spec spec;
    enum sandbox_state state;
    char reason[160];
    uint32_t slot;
    uint32_t must, lost; /* enum box_lost: may not be without, is without */
    int64_t created_ms, changed_ms, expires_ms;
    int64_t up_ms;      /* since when its process 1 runs */
    int64_t crashed_ms; /* when that died by itself; it is crashed while changed_ms is the same */
    struct crash crash;
    const char *busy; /* what is being done to it, or NULL */
    bool died;        /* while BUSY_CHANGED: `death` says how */
    struct box_died death;
    struct timer ttl;
    uint64_t disk;         /* its root; 0: memory */
    struct helper *helper; /* it is one of ours; NULL: it is somebody's */
    struct box_op *op;
    struct disk_op disk_op;
    const char *start; /* while it is made: "cold", "warm" */
    int64_t begun_us, create_us;
    struct { /* make.c, while it comes up */
        void (*done)(struct box *box, const struct err *err);
        size_t next; /* mount */
        struct err err;
        struct sandbox_spec was; /* what a warm one was made with: numbers only */
    } up;
    struct pool *pool; /* it is warm, and nobody's */
    struct list pool_node;
    struct { /* copy.c, while its disk is copied */
        struct disk_op op;
        void (*done)(struct box *box, struct disk *disk, const struct err *err);
        struct err err;
        bool frozen;
        unsigned tries;
        struct timer again;
        struct box *child; /* of a fork */
        bool was_up;       /* before a rollback */
        struct box_op start, *outer;
    } copy;
    struct { /* life.c, while it is deleted */
        struct box_op *op;
        unsigned parts; /* that are not over: its box, its row */
        unsigned tries;
        struct timer again;
        struct err err; /* of either */
        bool there;     /* the warden has it, or may have */
    } gone;
    /* life.c */
    struct timer idle;
    int64_t used_ms;    /* when it was last used */
    bool asleep;        /* by its idle policy, or about to be */
    struct list wakers; /* who waits for it to be awake */
    struct box_trust trust;

    struct watch link;  /* fd -1: none */
    struct list frames; /* not sent yet */
    size_t frames_size;
    bool in_waits;     /* somebody found no room for input */
    bool listed;       /* its init has said what runs, on this connection */
    bool unsure;       /* it was adopted, and its init may know numbers that no row has */
    bool foreign;      /* its init is of another release, and speaks: */
    uint32_t version;  /* of the protocol */
    unsigned strikes;  /* frames that made no sense */
    struct timer tick; /* while something is to be asked again */

    struct list execs; /* oldest first */
    struct list heard; /* of these, whose output has come in this round */
    unsigned running, kept;
    uint32_t next_number;
    uint64_t oom_kills; /* as last heard of */

    struct list jobs;
    unsigned jobs_count, conns_count; /* the latter among the former */
    /*
     * Jobs have numbers of their own, from a random one on: nothing remembers those of an earlier
     * life, and one of them may still run. Unknown ones between these two were dropped.
     */
    uint32_t first_job, next_job;
};

struct box_exec {
    struct list node, heard;
    struct box *box;
    char id[ID_SIZE], by[ID_SIZE];
    uint32_t number;    /* 0: none yet, its init was not asked */
    struct arena arena; /* of spec */
    struct exec_spec spec;
    enum exec_state state;
    int32_t pid;
    struct init_exited end;
    int64_t started_ms, ended_ms;
    struct spool spool[INIT_STREAMS];
    bool ack_due, news;
    uint64_t oom_before; /* what we knew of its sandbox's count when it began (oom.c) */
    bool oom, oom_asked, oom_known;
    bool killed;  /* by somebody's wish */
    bool stalled; /* bytes were dropped (disk full): ask for them again */
    bool lacks_room;
    bool start_stored, end_stored;
    unsigned end_place; /* where its end is kept, from 1 (ends.c): whoever waits may be told */
    bool end_told;      /* to them */
    bool begun_told;    /* its start, to those that watch all commands */
    bool end_due;       /* the store did not take it */
    struct buf note;    /* what its place says of its start, until that is stored */
    int64_t note_ms;
    struct timer hold; /* while its end may still come before its start is stored */
    int64_t start_due_ms;
    struct box_op *starting; /* who waits for its start */
    struct change *held;     /* its row, while that waits for its input or its end; NULL: none */
    struct list waits;
    struct pace pace; /* has the readers */

    /* input */
    struct buf in;  /* what its init has not confirmed, but for input that came with the wish */
    size_t in_sent; /* of these, on their way to it: one frame */
    uint64_t in_at; /* position of their first byte in all input */
    bool in_flight; /* something was sent that its init has not confirmed */
    bool in_unsure; /* a connection was lost: its init says how much it has before more is sent */
    bool in_eof, in_eof_sent, in_closed;
    bool feeding; /* input came with the wish, and its init may not have all of it yet */
    struct box_input *input;

    struct box_term *term; /* of one with tty, once it was needed */
};

/* ---- boxes.c ---- */

struct box *box_new(struct boxes *boxes, const char *id, const char *tenant);
void box_free(struct box *box); /* without a word to anybody */
/* Whether it counts as a sandbox: a warm one does not. */
void box_count(struct box *box);
void box_uncount(struct box *box);
void box_move(struct box *box, enum sandbox_state to);

/* ---- make.c ---- */

struct field_list files_copy(struct arena *arena, struct field_list from);
void wish_copy(struct arena *arena, struct sandbox_spec *to, const struct sandbox_spec *from);
/* Everything that can be said about a wish before anything is done; fills defaults in. */
must_use int wish_check(struct boxes *boxes, struct sandbox_spec *spec, const struct box_op *op,
                        struct err *err);
/* A caller that does not reach the whole tenant owns what it makes. */
void wish_own(struct sandbox_spec *spec, struct reach reach);
/*
 * What such a caller may copy of another sandbox's wish: no credential, no identity at the hub, no
 * allowed host, no weaker isolation. It could not ask for any of these itself.
 */
void wish_confine(struct sandbox_spec *spec, struct reach reach, struct arena *arena);
/* Limits and storage fit each other and the warden. */
must_use int wish_fits(const struct sandbox_spec *spec, struct err *err);
/* A sandbox to be, with the wish and its own id; box->op and a disk follow, then create_with. */
struct box *create_begin(struct boxes *boxes, const struct sandbox_spec *spec, uint32_t must,
                         struct box_op *op);
void create_failed(struct box *box, const struct err *err);
void create_with_disk(struct box *box, struct disk *disk);
/* A box and its mounts; `done` when it is up, or when what there was of it is gone. */
void box_up(struct box *box, void (*done)(struct box *box, const struct err *err));

/* ---- life.c ---- */

void life_init(struct box *box);
void life_free(struct box *box);
/* It does not live any more; what ran is lost. Stores it; `op` may be NULL. */
void box_ended(struct box *box, enum sandbox_state state, const char *reason, struct box_op *op);
/* The same by no one's wish: stopped, or failed when its files are gone too. */
void box_lost(struct box *box, const char *reason);
void box_died(struct boxes *boxes, const struct box_died *news);
/* Its init does what no init of ours would do. */
void box_condemn(struct box *box, const char *why);
/* What box_patch is busy with: nobody asks its process 1 anything, so nobody hears of its end. */
extern const char box_busy_changed[];
/* Likewise those that end what runs in it, each by somebody's wish. */
extern const char box_busy_stopped[], box_busy_deleted[], box_busy_rolled_back[];
bool box_is_ending(const struct box *box);
/* Why it cannot be had now: what is being done to it, or the state it is in. Returns -1. */
static inline int box_refuse(const struct box *box, struct err *err)
{
    enum err_reason reason = box->busy == box_busy_deleted || box->state == SANDBOX_DELETED
                                 ? REASON_DELETING
                             : box->busy                     ? REASON_NONE
                             : box->state == SANDBOX_PAUSED  ? REASON_PAUSED
                             : box->state == SANDBOX_STOPPED ? REASON_STOPPED
                                                             : REASON_NONE;

    err_set(err, ERR_CONFLICT, "sandbox %s is %s", box->id,
            box->busy ? box->busy : sandbox_state_name(box->state));
    if (err)
        err->reason = reason;
    return -1;
}
/* Busy with `busy` from now on, or a refusal. */
must_use int box_may_begin(struct box *box, enum sandbox_state to, const char *busy,
                           struct err *err);
void box_timers_set(struct box *box);
/* A change is over: who waits for it to be awake is told, or it is woken. */
void box_woken(struct box *box, const struct err *err);

/* Stores its state as it is now, and tells `op` (may be NULL). */
void keep_state(struct box *box, const char *event, struct box_op *op);
/* A change is over, or did not happen: not busy any more, and `op` (may be NULL) is told. */
void change_told(struct box *box, struct box_op *op, const struct err *err);

/* ---- trusted.c ---- */

void trusted_init(struct box *box);
void trusted_free(struct box *box, const struct err *err);
void trusted_try(struct box *box);   /* if there is something to put, and it can be put now */
void trusted_ended(struct box *box); /* it does not run any more: what was put may be gone */
/* True: op->done follows when it is there, or when nobody waits any longer. */
bool trusted_wait(struct box *box, struct box_op *op);
/* Variables for its commands; the last has no key. */
const struct field_pair *trusted_env(const struct box *box);

/* ---- copy.c ---- */

void copy_init(struct box *box);
void copy_free(struct box *box);

/* ---- crashes.c ---- */

/* Its process 1, which had run since `up_ms`, died by itself; box_lost was called. */
void box_crashed(struct box *box, int64_t up_ms);
bool box_in_crash_loop(const struct box *box);
must_use int crashes_load(struct boxes *boxes, struct db *db, struct err *err);

/* ---- quota.c, admit.c ---- */

struct quota_ask {
    const char *tenant, *by, *role; /* role NULL: no ceiling of a role */
    const struct field_pair *labels;
    const struct box *box;    /* that is changed; its own use is not counted; NULL: a new one */
    const struct disk *disk;  /* likewise */
    bool relabeled;           /* its labels change, so that it may come into another group */
    int64_t want[4], have[4]; /* by enum quota_of */
};
must_use int quota_admit(struct boxes *boxes, const struct quota_ask *ask, struct err *err);
/* A new sandbox; a change of one, which is or will be up; a volume or snapshot (NULL: new). */
must_use int quota_sandbox(struct boxes *boxes, const struct sandbox_spec *spec,
                           const struct box_op *op, struct err *err);
must_use int quota_change(struct box *box, const struct sandbox_spec *spec, bool up, bool relabeled,
                          const char *role, struct err *err);
must_use int quota_disk(struct boxes *boxes, const struct disk_want *want, const struct disk *disk,
                        struct err *err);
must_use int quotas_load(struct boxes *boxes, struct db *db, struct err *err);
void quotas_free(struct boxes *boxes);

/* ---- template.c ---- */

must_use int templates_load(struct boxes *boxes, struct db *db, struct err *err);
void templates_free(struct boxes *boxes);

/* ---- pool.c ---- */

must_use int pools_load(struct boxes *boxes, struct db *db, struct err *err);
void pools_start(struct boxes *boxes);
void pools_stop(struct boxes *boxes); /* gives back what is warm */
void pools_free(struct boxes *boxes);
/* A warm one that fits, nobody's and in no pool any more; NULL: none. */
struct box *pool_take(struct boxes *boxes, const struct sandbox_spec *spec, const char *tenant,
                      uint32_t must);
/* Whose image its boxes begin with; "" for none. */
const char *pool_tenant(const struct pool *pool);
/* The name of a pool of this image, or NULL. */
const char *pool_of_image(const struct boxes *boxes, const char *tenant, const char *name);
void pool_lost(struct box *box, const char *why);
void pool_connected(struct box *box);
void pool_exited(struct box *box);

/* ---- adopt.c: rows ---- */

/* A wish as it is kept. */
must_use int spec_read(struct arena *arena, struct str text, struct sandbox_spec *out,
                       struct err *err);

/* ---- link.c: frames to and from an init ---- */

void link_init(struct box *box);
void link_open(struct box *box, int fd); /* takes */
void link_close(struct box *box);
/* Everything that still waits in the socket; then it is closed. */
void link_drain(struct box *box);
/* False when too much waits already; `fd` (or -1) is taken. */
bool link_send(struct box *box, uint16_t type, uint32_t exec, const void *fixed, size_t fixed_len,
               const void *more, size_t more_len, int fd);
void link_tick_soon(struct box *box);
/* One datagram from an init; what the fuzzer calls. */
void link_take(struct box *box, const void *data, size_t len);

/* ---- start.c ---- */

/* A command that is not kept, as the sandbox's user; its end comes as a stranger's. */
bool exec_send_bare(struct box *box, uint32_t number, const char *const *argv);
void exec_send_late(struct box_exec *exec); /* one that had to wait for its number */
void exec_started(struct box_exec *exec, const struct init_started *answer);
void exec_start_failed(struct box_exec *exec, const struct err *err); /* frees it */
void exec_hold_start(struct box_exec *exec, struct box_op *op);       /* its row, to be stored */
void exec_store_start(struct box_exec *exec);                         /* if that was held back */
void exec_fed(struct box_exec *exec); /* its init has all input that came with the wish */

/* ---- exec.c ---- */

struct box_exec *exec_new(struct box *box, const char *id, uint32_t number);
void exec_free(struct box_exec *exec);
struct box_exec *exec_by_number(const struct box *box, uint32_t number);
static inline bool exec_over(const struct box_exec *exec)
{
    return exec->state == EXEC_EXITED || exec->state == EXEC_LOST;
}
enum execs_counted { EXECS_STARTED, EXECS_REFUSED, EXECS_EXITED, EXECS_LOST };
void exec_counted(enum execs_counted what);
void exec_store_end(struct box_exec *exec);
void exec_tell_begun(struct box_exec *exec);
must_use int exec_read_spec(struct box_exec *exec, struct str text, struct err *err);
must_use int exec_load_files(struct box_exec *exec, struct err *err);
void exec_output(struct box_exec *exec, const struct init_output *head, struct str data);
void exec_exited(struct box_exec *exec, const struct init_exited *end);
/* True: its end is told again when it is known whether memory was short. */
bool exec_ask_oom(struct box_exec *exec, const struct init_exited *end);
void exec_pump(struct box_exec *exec); /* sends input that there is room for */
must_use int exec_feed_take(struct box_exec *exec, const struct exec_spec *spec, struct err *err);
void exec_feed(struct box_exec *exec); /* the input that came with the wish, behind EXEC */
void exec_room(struct box_exec *exec, uint64_t taken); /* its init has passed on so much */
void exec_deaf(struct box_exec *exec);                 /* its init takes no more */
/* On a new connection: so much of all input its init has. A number of somebody hostile. */
void exec_placed(struct box_exec *exec, uint64_t taken);
void exec_lost(struct box_exec *exec);
void exec_end_input(struct box_exec *exec);   /* nothing reads it any more */
void exec_acknowledge(struct box_exec *exec); /* after a round of frames */
void exec_ack(struct box_exec *exec);
void exec_attach(struct box_exec *exec);

/* The command is over for this reader, whose `gone` is called. */
void reader_gone(struct box_reader *reader);
void exec_tick(struct box_exec *exec, int64_t now_ms, bool *again);
/* A signal by somebody who does not wait for it. */
must_use int exec_signal_by(struct box_exec *exec, int signal, bool tree, const char *by,
                            struct err *err);
/* Input that nobody waits for; false: more only after term_room. */
bool exec_typed(struct box_exec *exec, struct str data);
unsigned exec_files(const struct box_exec *exec); /* which files it has, for… */
void exec_files_remove(struct boxes *boxes, const char *id, unsigned which);
void exec_remove_files(struct box_exec *exec);
void exec_close_files(struct box_exec *exec);

/* ---- term.c, attach.c: for commands with tty ---- */

void term_round(struct box_exec *exec); /* all that has come is told */
void term_resized(struct box_exec *exec, unsigned rows, unsigned cols);
void term_ended(struct box_exec *exec); /* and that is stored */
void term_room(struct box_exec *exec);
void term_remove_files(struct boxes *boxes, const char *id);
void term_free(struct box_exec *exec);

/* ---- job.c ---- */

struct box_job;
#define JOB_NUMBERS 0x80000000u /* and above; commands have those below */
void box_jobs_init(struct box *box);
struct box_job *job_by_number(const struct box *box, uint32_t number);
bool job_dropped(const struct box *box, uint32_t number); /* or was ever known, in this life */
void job_started(struct box_job *job, const struct init_started *answer);
void job_output(struct box_job *job, const struct init_output *head, struct str data);
void job_exited(struct box_job *job, const struct init_exited *told);
void job_room(struct box_job *job, const struct init_room *room);
void job_deaf(struct box_job *job); /* nothing reads its input any more */
void job_acknowledge(struct box_job *job);
void job_attach(struct box_job *job);
void job_tick(struct box_job *job, bool *again);
void job_end(struct box_job *job, const struct err *err);

/* ---- side.c ---- */

#define SIDE_SHORT "the operation ended in the sandbox before all bytes had come"
/* The end that its init gets, or -1: there is none, and it does without. */
int side_make(struct box_job *job, bool input);
size_t side_put(struct box_job *job, struct str data);
void side_end(struct box_job *job);
void side_close(struct box_job *job);
void side_mind(struct box_job *job); /* paused, or not any more */

/* ---- job.c, too ---- */

void job_pump(struct box_job *job); /* sends what there is room for */
void job_lost(struct box_job *job, enum err_code code, const char *why);
void box_jobs_lost(struct box *box, enum err_code code, const char *why);
void box_jobs_drain(struct box *box); /* those without an end */

/* ---- adopt.c ---- */

void adopt_opened(struct boxes *boxes);
void box_reopen(struct box *box);
/* Its init is not one that we can talk to: it is ended, and can be started again. */
void box_part(struct box *box);

/* ---- disk.c ---- */

struct drop {
    struct list node;
    struct boxes *boxes;
    uint64_t number;
    unsigned tries;
};
must_use int disks_load(struct boxes *boxes, struct db *db, struct err *err);
void disks_free(struct boxes *boxes);

/* ---- drops.c ---- */

/* The rows of disks that are not ready; after those that are. */
must_use int drops_load(struct boxes *boxes, struct db *db, struct err *err);
void drops_free(struct boxes *boxes);
/* A row says that it is to end: the warden drops it, and then the row goes. */
void disk_drop_number(struct boxes *boxes, uint64_t number);
/* Asks the warden what it has, drops what rows say, keeps the rest aside, and calls `listed`. */
void disks_start(struct boxes *boxes, void (*listed)(struct boxes *boxes));

/* ---- image.c, import.c ---- */

must_use int images_load(struct boxes *boxes, struct db *db, struct err *err);
void images_free(struct boxes *boxes);
void imports_drain(struct boxes *boxes); /* they are given up */
void imports_free(struct boxes *boxes);  /* whoever waits is told that the server stops */
struct image *image_new(struct boxes *boxes, const char *tenant, const char *by, const char *name,
                        struct str text, struct err *err);
void image_free(struct image *image);
struct image *image_named(struct boxes *boxes, const char *tenant, const char *name);
struct image *box_image(const struct box *box); /* or NULL */
must_use int image_told_read(struct arena *arena, struct str text, struct image_told *out,
                             struct err *err);
must_use int image_row_insert(struct db *db, const struct image *image, struct err *err);
/* `key` NULL: the event says no more than the image. */
must_use int image_event(struct db *db, const char *tenant, const char *name, const char *type,
                         const char *key, const char *text, struct err *err);
/* Does an import under way count on this layer? */
bool import_uses(const struct boxes *boxes, uint64_t number);
/* Is the wish's image there? Fills in what the image says and the wish does not. */
must_use int image_apply(struct boxes *boxes, struct sandbox_spec *spec, const char *tenant,
                         struct err *err);
void image_layers(const struct box *box, struct box_spec *wish);

/* ---- rows.c: what is stored, and the jobs that do it ---- */

struct change {
    struct store_job job;
    struct boxes *boxes;
    struct box *box;
    struct box_exec *exec;
    struct box_op *op;
    void (*settled)(struct change *change, const struct err *err); /* may be NULL */
    void (*applied)(struct change *change); /* stored, and nobody was told yet; may be NULL */
    void *ctx;                              /* of these two */
    int (*write)(struct change *change, struct db *db, struct err *err);
    const char *event;         /* type, or NULL */
    unsigned lazy_ms;          /* so long nobody waits for it */
    bool again;                /* it failed, and will be submitted again: not freed */
    bool audit;                /* no request's doing: audited here, under the event's name */
    const struct audit *noted; /* instead of the op's record */
    const char *actor;         /* whose doing it is then; NULL: nobody's */
    /* copies for the writer thread */
    struct arena arena;
    const char *id, *tenant, *name, *state, *reason, *spec, *by;
    int64_t slot, created_ms, changed_ms, expires_ms, disk, old_disk, disk_bytes;
    bool asleep;
    const char *exec_id, *exec_state, *exec_spec, *exec_by;
    int64_t number, pid, started_ms, ended_ms;
    struct init_exited end;
    bool oom, placed;
    struct str body;
};

/* A job about a box and perhaps one of its commands, as they are now. */
struct change *change_new(struct box *box, struct box_exec *exec, struct box_op *op,
                          const char *event);
void change_texts(struct change *change); /* those that are composed late */
void change_submit(struct change *change);
void change_free(struct change *change); /* one that was not submitted */
/* A wish as it is kept, in the arena. */
const char *spec_text(struct arena *arena, const struct sandbox_spec *spec);
int row_sandbox_insert(struct change *change, struct db *db, struct err *err);
int row_sandbox_update(struct change *change, struct db *db, struct err *err);
int row_sandbox_delete(struct change *change, struct db *db, struct err *err);
int row_sandbox_switch(struct change *change, struct db *db, struct err *err); /* of disks */
int row_exec_insert(struct change *change, struct db *db, struct err *err);
int row_exec_update(struct change *change, struct db *db, struct err *err);
int row_exec_delete(struct change *change, struct db *db, struct err *err);
int row_nothing(struct change *change, struct db *db, struct err *err);
