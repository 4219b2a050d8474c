/*
 * The verbs about disks. The store is opened when the server starts and has one, else made when the
 * first disk is wished for; requests that come meanwhile wait here and are heard again. Every verb
 * is a job: a transaction of the file system may have to wait for another's to be written.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/log.h"
#include "warden/disk.h"
#include "warden/mount.h"

#define WAITING_MAX 64

static int state = -1; /* the state directory; -1: closed */
static int store = -1; /* the mount; -1: not open */
static bool opening;
static bool syncing, sync_again;
static char told[96]; /* why the store could not be opened, said once */

static struct {
    struct wire_msg msg;
    uint32_t asker;
} waiting[WAITING_MAX];
static unsigned waiting_count;

/* ---- opening ---- */

static int open_child(struct wire_msg *msg, int *fd)
{
    const char *why = "";

    *fd = store_open(state, &why);
    int error = errno;
    if (*fd < 0)
        snprintf(msg->text, sizeof(msg->text), "%s", why);
    errno = error;
    return *fd;
}

/* Every request that waited is heard again, or refused for the same reason. */
static void wake(int error)
{
    unsigned count = waiting_count;

    waiting_count = 0;
    for (unsigned i = 0; i < count; i++) {
        struct wire_msg msg = waiting[i].msg; /* being heard, it may wait again at this place */

        if (waiting[i].asker != say_asker())
            continue;
        if (error)
            say_status(&msg, error);
        else
            (void)boxes_hear(&msg);
    }
}

/* The reason reaches the log once, until it is another one. */
static void tell_why(struct wire_msg *answer, int error)
{
    struct str why = wire_text(answer);

    if (error && (why.n >= sizeof(told) || strncmp(told, why.p, sizeof(told)) != 0)) {
        log_warn("no disks: sandboxes can only be kept in memory", kv_slice("why", why),
                 kv_str("error", strerror(error)));
        snprintf(told, sizeof(told), "%.*s", (int)why.n, why.p);
    }
    if (!error)
        told[0] = 0;
}

/*
 * Kernels before 6.15 cannot copy a mount that is attached nowhere: there it gets a place in the
 * warden's own mount namespace.
 */
static int attach_if_needed(int fd)
{
    autoclose int copy = tree_clone(fd, "");

    if (copy >= 0)
        return 0;
    if (mkdirat(state, "disks", 0700) < 0 && errno != EEXIST)
        return -1;
    autoclose int at = openat(state, "disks", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return at < 0 ? -1 : tree_attach(fd, at);
}

static void opened(struct wire_msg *answer, int fd)
{
    int error = answer->status;

    opening = false;
    if (!error &&
        (fd < 0 || attach_if_needed(fd) < 0 || (store = fcntl(fd, F_DUPFD_CLOEXEC, 0)) < 0))
        error = fd < 0 ? EPROTO : errno;
    tell_why(answer, error);
    wake(error);
}

static int wait_for_store(const struct wire_msg *request)
{
    if (!opening && job_own(0, open_child, opened) < 0)
        return errno;
    opening = true;
    if (!request)
        return EINPROGRESS;
    if (waiting_count == WAITING_MAX)
        return EAGAIN;
    waiting[waiting_count].msg = *request;
    waiting[waiting_count++].asker = say_asker();
    return EINPROGRESS;
}

void disks_open(int state_fd)
{
    state = state_fd;
    if (store_exists(state))
        (void)wait_for_store(NULL);
}

void disks_close(void)
{
    close_one(&store);
    state = -1;
    opening = syncing = sync_again = false;
    waiting_count = 0;
    told[0] = 0;
}

int disks_ready(const struct wire_msg *request)
{
    if (store >= 0)
        return 0;
    return opening || store_exists(state) ? wait_for_store(request) : ENOENT;
}

int disks_tree(uint64_t id, bool whole)
{
    char path[DISK_NAME_SIZE + 4], name[DISK_NAME_SIZE];

    disk_name(id, name);
    snprintf(path, sizeof(path), "%s%s", name, whole ? "" : "/up");
    return tree_clone(store, path);
}

int disks_view(uint64_t id, uid_t owner)
{
    return disk_view(store, id, owner);
}

int disks_bytes(uint64_t id, struct disk_usage *out)
{
    return disk_stat(store, id, out);
}

/* ---- getting it to the image ---- */

static int sync_child(struct wire_msg *msg, int *fd)
{
    autoclose int dir = openat(store, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    (void)msg, (void)fd;
    return dir < 0 ? -1 : syncfs(dir);
}

static void synced(struct wire_msg *answer, int fd)
{
    (void)fd;
    syncing = false;
    if (answer->status)
        log_warn("disks could not be written", kv_str("error", strerror(answer->status)));
    if (sync_again)
        disks_sync();
}

void disks_sync(void)
{
    sync_again = syncing;
    if (!syncing && store >= 0)
        syncing = job_own(0, sync_child, synced) == 0;
}

/* ---- the verbs ---- */

static int make_child(struct wire_msg *msg, int *fd)
{
    (void)fd;
    return disk_make(store, &msg->disk);
}

static int limit_child(struct wire_msg *msg, int *fd)
{
    (void)fd;
    return disk_limit(store, &msg->disk);
}

/* btrfs counts bytes when it writes them, so what was written just now is written first. */
static int stat_child(struct wire_msg *msg, int *fd)
{
    uint64_t id = msg->disk.id;

    return sync_child(msg, fd) < 0 ? -1 : disk_stat(store, id, &msg->disk_usage);
}

static int drop_child(struct wire_msg *msg, int *fd)
{
    (void)fd;
    return disk_drop(store, msg->disk.id);
}

static int list_child(struct wire_msg *msg, int *fd)
{
    uint64_t after = msg->disk_page.after;

    (void)fd;
    return disk_list(store, after, &msg->disk_rows);
}

/* None was ever made: then the answer is whether one could be. */
static int probe_child(struct wire_msg *msg, int *fd)
{
    const char *why = "";
    int rc = store_possible(&why), error = errno;

    (void)fd;
    *msg = (struct wire_msg){ .verb = msg->verb };
    if (rc < 0)
        snprintf(msg->text, sizeof(msg->text), "%s", why);
    errno = error;
    return rc;
}

static void probed(struct wire_msg *answer, int fd)
{
    (void)fd;
    tell_why(answer, answer->status);
    memset(answer->bytes, 0, sizeof(answer->bytes));
}

static int refused(const struct wire_msg *request)
{
    if (request->verb == WIRE_DISK_LIST)
        return 0;
    if (!disk_wish_ok(&request->disk) || (request->verb != WIRE_DISK_MAKE && request->disk.from))
        return EINVAL;
    return request->verb == WIRE_DISK_DROP && table_upper(request->disk.id) ? EBUSY : 0;
}

void disks_hear(const struct wire_msg *request)
{
    static job_fn *const fns[WIRE_VERBS] = {
        [WIRE_DISK_MAKE] = make_child, [WIRE_DISK_LIMIT] = limit_child,
        [WIRE_DISK_STAT] = stat_child, [WIRE_DISK_DROP] = drop_child,
        [WIRE_DISK_LIST] = list_child,
    };
    bool none = false;
    int error = refused(request);

    if (!error) {
        error = disks_ready(request);
        none = error == ENOENT;
        if (none && request->verb == WIRE_DISK_MAKE)
            error = wait_for_store(request);
    }
    if (none && request->verb == WIRE_DISK_LIST)
        job_start(request, probe_child, probed);
    else if (!error)
        job_start(request, fns[request->verb], NULL);
    else if (error != EINPROGRESS)
        say_status(request, error);
}
