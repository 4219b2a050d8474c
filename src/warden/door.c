/*
 * The door: a socket in the state directory where a caller of this machine leaves an open directory
 * and gets a ticket for it, which the api process then hands in with WIRE_BOX_MOUNT. So the api
 * process never holds a directory of the host, and can only ask for what its owner has left.
 *
 * Everybody may knock; a ticket gives what its caller has and no more. The descriptor must be open
 * for reading, which proves that the caller may read there (a bare O_PATH proves nothing); for
 * writing it counts who the caller is, by the kernel's word.
 *
 * Looking at what a stranger sends, or just closing it, can take as long as the stranger likes (a
 * file system of its own making, a socket that lingers). So each caller is heard by a child, which
 * is killed when its time is over; what comes back from there is a detached copy of the mount below
 * the directory. It is made in the caller's own mount namespace, where the warden need not be. A
 * caller that stays silent holds up itself: when others wait, patience is short.
 *
 * A child is a fork of the warden, so nobody gets as many as they like. Root and the owner of the
 * server share the door with everybody else, and everybody else with one another: of children,
 * places to wait, tickets and knocks in a second each user has a part, and all together leave some.
 * Who is over it is told so at once (EAGAIN). To let go of those, who may have sent something too,
 * there is one child for many of them now and then: who exits waits for no socket that lingers.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/vfs.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "warden/disk.h"
#include "warden/mount.h"
#include "warden/warden.h"

#define DEPTH_MAX 256
#define BACKLOG 64
#define SO_PEERPIDFD_ 77 /* Linux 6.5 */
_Static_assert(CMSG_SPACE(sizeof(int)) <= CMSG_LEN(2 * sizeof(int)), "take_dir has room for two");

struct ticket {
    uint8_t key[16];
    int64_t until_ms; /* 0: free */
    struct door_dir dir;
    bool used;
};

struct caller {
    int fd;
    bool used, killed;
    uid_t uid;
    int64_t since_ms; /* it is heard; 0: it waits */
};

/* How many there are: all, those of others than root and the owner, those of one user. */
struct count {
    unsigned all, others, its;
};

static int listen_fd = -1;
static struct stat state_dir;
static struct ticket tickets[DOOR_TICKETS_MAX];
static struct caller callers[DOOR_PLACES];
static struct wire_budget knocks[16]; /* by uid: one who has many of them has these at most */
static int refused_fds[DOOR_REFUSED];
static unsigned refused_count, going; /* those that a child has, too: the first so many */
static int64_t refused_ms;            /* when the first of them was */

/* ---- whose turn ---- */

static bool is_other(uid_t uid)
{
    return uid != 0 && uid != state_dir.st_uid;
}

static void count_one(struct count *count, uid_t whose, uid_t uid)
{
    count->all++;
    count->others += is_other(whose);
    count->its += whose == uid;
}

static struct count callers_of(uid_t uid, bool heard)
{
    struct count count = { 0 };

    for (unsigned i = 0; i < DOOR_PLACES; i++)
        if (callers[i].used && (!heard || callers[i].since_ms))
            count_one(&count, callers[i].uid, uid);
    return count;
}

static struct count tickets_of(uid_t uid)
{
    struct count count = { 0 };

    for (unsigned i = 0; i < DOOR_TICKETS_MAX; i++)
        if (tickets[i].until_ms && !tickets[i].used)
            count_one(&count, tickets[i].dir.uid, uid);
    return count;
}

static bool has_room(const struct count *count, uid_t uid, unsigned all, unsigned others,
                     unsigned each)
{
    return count->all < all &&
           (!is_other(uid) || !guard(door_share) || (count->others < others && count->its < each));
}

/* ---- what may be left ---- */

/* File systems whose files are switches of the kernel, whoever owns them. */
static bool of_the_kernel(int fd)
{
    static const long magics[] = { PROC_SUPER_MAGIC,    SYSFS_MAGIC,        CGROUP_SUPER_MAGIC,
                                   CGROUP2_SUPER_MAGIC, DEBUGFS_MAGIC,      TRACEFS_MAGIC,
                                   SECURITYFS_MAGIC,    BPF_FS_MAGIC,       SELINUX_MAGIC,
                                   SMACK_MAGIC,         DEVPTS_SUPER_MAGIC, EFIVARFS_MAGIC,
                                   NSFS_MAGIC,          PIPEFS_MAGIC,       BINFMTFS_MAGIC };
    struct statfs fs;

    if (fstatfs(fd, &fs) < 0)
        return true;
    for (size_t i = 0; i < ARRAY_LEN(magics); i++)
        if ((long)fs.f_type == magics[i])
            return true;
    return false;
}

/* The state directory or anything below it: up from here, it is met before the root. */
static bool of_the_state(int fd)
{
    struct stat st, above;
    autoclose int at = fcntl(fd, F_DUPFD_CLOEXEC, 0);

    for (int i = 0; at >= 0 && i < DEPTH_MAX; i++) {
        int up = openat(at, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);

        if (fstat(at, &st) < 0 || up < 0 || fstat(up, &above) < 0) {
            if (up >= 0)
                close(up);
            return true;
        }
        close(at);
        at = up;
        if (st.st_dev == state_dir.st_dev && st.st_ino == state_dir.st_ino)
            return true;
        if (st.st_dev == above.st_dev && st.st_ino == above.st_ino)
            return false;
    }
    return true;
}

static int refused(int fd)
{
    struct stat st;
    int flags = fcntl(fd, F_GETFL);

    if (flags < 0 || flags & O_PATH || (flags & O_ACCMODE) != O_RDONLY)
        return EBADF;
    if (fstat(fd, &st) < 0 || !S_ISDIR(st.st_mode))
        return ENOTDIR;
    return (of_the_kernel(fd) && guard(door_kernel)) || (of_the_state(fd) && guard(door_state))
               ? EPERM
               : 0;
}

/* ---- tickets ---- */

static void ticket_free(struct ticket *ticket)
{
    close_one(&ticket->dir.fd);
    explicit_bzero(ticket, sizeof(*ticket));
    ticket->dir.fd = -1;
}

/*
 * A free one, or that of a used ticket, the oldest: those are remembered only for a better answer
 * to whoever hands one in again.
 */
static struct ticket *ticket_place(void)
{
    struct ticket *place = NULL;

    for (unsigned i = 0; i < DOOR_TICKETS_MAX; i++) {
        struct ticket *ticket = &tickets[i];

        if (!ticket->until_ms)
            return ticket;
        if (ticket->used && (!place || ticket->until_ms < place->until_ms))
            place = ticket;
    }
    return place;
}

/* The groups of the caller besides its own; of one with more than fit, none. */
static unsigned groups_of(int caller, gid_t groups[DOOR_GROUPS_MAX])
{
    socklen_t size = DOOR_GROUPS_MAX * sizeof(*groups);

    return getsockopt(caller, SOL_SOCKET, SO_PEERGROUPS, groups, &size) < 0
               ? 0
               : (unsigned)(size / sizeof(*groups));
}

static int ticket_make(const struct ucred *who, int caller, int tree, uint8_t key[16])
{
    struct count count = tickets_of(who->uid);

    if (!has_room(&count, who->uid, DOOR_TICKETS_MAX, DOOR_TICKETS_OTHERS, DOOR_TICKETS_EACH))
        return EAGAIN;
    struct ticket *ticket = ticket_place();
    struct ticket made = { .dir = { .fd = -1, .uid = who->uid, .gid = who->gid } };
    if (!ticket ||
        getrandom(made.key, sizeof(made.key), GRND_NONBLOCK) != (ssize_t)sizeof(made.key))
        return EAGAIN;
    made.dir.fd = fcntl(tree, F_DUPFD_CLOEXEC, 0);
    if (made.dir.fd < 0)
        return errno;
    made.dir.group_count = groups_of(caller, made.dir.groups);
    made.until_ms = clock_mono_ms() + DOOR_TICKET_MS;
    *ticket = made;
    memcpy(key, made.key, sizeof(made.key));
    return 0;
}

/* Without a hint by time of how much was right. */
static bool same(const uint8_t a[16], const uint8_t b[16])
{
    uint8_t differs = 0;

    for (int i = 0; i < 16; i++)
        differs |= a[i] ^ b[i];
    return differs == 0;
}

int door_take(const uint8_t key[16], struct door_dir *out)
{
    int64_t now = clock_mono_ms();

    for (unsigned i = 0; i < DOOR_TICKETS_MAX; i++) {
        struct ticket *ticket = &tickets[i];

        if (ticket->until_ms <= now || !same(ticket->key, key))
            continue;
        if (ticket->used)
            return EBUSY;
        ticket->used = true; /* and remembered as such for a while */
        *out = ticket->dir;
        ticket->dir.fd = -1;
        return 0;
    }
    return ETIMEDOUT;
}

/* ---- in the child: one caller ---- */

/* The one descriptor of a message; with more than one, none. The buffer's padding holds a second.
 */
static int take_dir(struct msghdr *head)
{
    struct cmsghdr *cmsg = CMSG_FIRSTHDR(head);
    int fds[2] = { -1, -1 };

    if (!cmsg || cmsg->cmsg_level != SOL_SOCKET || cmsg->cmsg_type != SCM_RIGHTS)
        return -1;
    memcpy(fds, CMSG_DATA(cmsg), MIN(cmsg->cmsg_len - CMSG_LEN(0), sizeof(fds)));
    if (fds[1] < 0)
        return fds[0];
    close(fds[0]);
    close(fds[1]);
    return -1;
}

/* Its one message: errno, or 0 with the directory in *dir. */
static int hear_dir(int fd, int *dir)
{
    struct door_leave leave = { 0 };
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = { 0 };
    struct iovec iov = { &leave, sizeof(leave) };
    struct msghdr head = { .msg_iov = &iov,
                           .msg_iovlen = 1,
                           .msg_control = control.bytes,
                           .msg_controllen = sizeof(control.bytes) };
    ssize_t got = recvmsg(fd, &head, MSG_CMSG_CLOEXEC);

    if (got >= 0)
        *dir = take_dir(&head);
    if (got != (ssize_t)sizeof(leave) || head.msg_flags & (MSG_TRUNC | MSG_CTRUNC) ||
        leave.magic != DOOR_MAGIC || leave.zero || *dir < 0)
        return EINVAL;
    return refused(*dir);
}

/* A process that took the caller's number meanwhile has another namespace: then the copy fails. */
static int enter_namespace_of(int caller)
{
    struct ucred who;
    socklen_t size = sizeof(int), cred_size = sizeof(who);
    autoclose int pidfd = -1;

    if (getsockopt(caller, SOL_SOCKET, SO_PEERPIDFD_, &pidfd, &size) < 0) {
        if (getsockopt(caller, SOL_SOCKET, SO_PEERCRED, &who, &cred_size) < 0)
            return -1;
        pidfd = (int)syscall(SYS_pidfd_open, who.pid, 0);
    }
    return pidfd < 0 ? -1 : setns(pidfd, CLONE_NEWNS);
}

static int copy_of(int dir, int caller)
{
    int tree = tree_clone(dir, "");

    if (tree < 0 && errno == EINVAL && enter_namespace_of(caller) == 0)
        tree = tree_clone(dir, "");
    return tree;
}

static int caller_child(struct wire_msg *msg, int *fd)
{
    int caller = callers[msg->number].fd;
    autoclose int dir = -1;
    int error;

    if (fcntl(caller, F_SETFL, 0) < 0)
        return -1;
    error = hear_dir(caller, &dir);
    if (!error && (*fd = copy_of(dir, caller)) < 0)
        error = errno;
    errno = error;
    return error ? -1 : 0;
}

/* ---- callers ---- */

static void caller_end(struct caller *caller)
{
    close_one(&caller->fd);
    *caller = (struct caller){ .fd = -1 };
}

static void caller_answer(int fd, const struct door_left *left)
{
    (void)!send(fd, left, sizeof(*left), MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* There is room: whoever would be refused is not accepted before. */
static void refuse(int fd)
{
    const struct door_left full = { .magic = DOOR_MAGIC, .error = EAGAIN };

    caller_answer(fd, &full);
    if (!refused_count)
        refused_ms = clock_mono_ms();
    refused_fds[refused_count++] = fd;
}

/* ---- letting go ---- */

static int go_child(struct wire_msg *msg, int *fd)
{
    (void)msg;
    (void)fd;
    return 0;
}

static void gone(struct wire_msg *answer, int fd)
{
    (void)fd;
    for (unsigned i = 0; !answer->status && i < going; i++)
        close(refused_fds[i]);
    if (!answer->status) {
        refused_count -= going;
        memmove(refused_fds, refused_fds + going, refused_count * sizeof(*refused_fds));
    }
    going = 0;
    refused_ms = clock_mono_ms();
}

static void refused_go(int64_t now_ms)
{
    if (going || !refused_count || refused_ms + DOOR_REFUSED_MS > now_ms)
        return;
    going = refused_count;
    refused_ms = now_ms;
    if (job_own(0, go_child, gone) < 0)
        going = 0;
}

/* ---- being heard ---- */

static void caller_heard(struct wire_msg *answer, int tree);

/* Those whose turn it is, from the first on. */
static void callers_start(void)
{
    for (unsigned i = 0; i < DOOR_PLACES; i++) {
        struct caller *caller = &callers[i];
        struct count heard = callers_of(caller->uid, true);

        if (!caller->used || caller->since_ms ||
            !has_room(&heard, caller->uid, DOOR_CALLERS, DOOR_CALLERS_OTHERS, DOOR_CALLERS_EACH))
            continue;
        caller->since_ms = clock_mono_ms();
        if (job_own(i, caller_child, caller_heard) < 0)
            caller->since_ms = 0; /* in a moment */
    }
}

static void caller_heard(struct wire_msg *answer, int tree)
{
    struct caller *caller = &callers[answer->number % DOOR_PLACES];
    struct door_left left = { .magic = DOOR_MAGIC, .error = answer->status };
    struct ucred who;
    socklen_t size = sizeof(who);

    if (!caller->used)
        return;
    if (!left.error && (getsockopt(caller->fd, SOL_SOCKET, SO_PEERCRED, &who, &size) < 0 ||
                        who.uid == (uid_t)-1 || who.gid == (gid_t)-1))
        left.error = EPERM;
    if (!left.error)
        left.error = tree < 0 ? EPROTO : ticket_make(&who, caller->fd, tree, left.ticket);
    caller_answer(caller->fd, &left);
    caller_end(caller);
}

static bool may_knock(uid_t uid)
{
    struct count count = callers_of(uid, false);

    return has_room(&count, uid, DOOR_PLACES, DOOR_PLACES - 1, DOOR_PLACES_EACH) &&
           (!is_other(uid) || !guard(door_rate) ||
            wire_budget_take(&knocks[uid % ARRAY_LEN(knocks)], DOOR_KNOCKS_PER_SECOND,
                             clock_mono_ms()));
}

static void accept_one(void)
{
    int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    struct ucred who;
    socklen_t size = sizeof(who);

    if (fd < 0)
        return;
    bool may = getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) == 0 && may_knock(who.uid);
    for (unsigned i = 0; may && i < DOOR_PLACES; i++)
        if (!callers[i].used) {
            callers[i] = (struct caller){ .fd = fd, .used = true, .uid = who.uid };
            return;
        }
    refuse(fd);
}

/* ---- the wait ---- */

unsigned door_waits(struct pollfd waits[DOOR_WAITS])
{
    if (listen_fd < 0 || refused_count == DOOR_REFUSED)
        return 0;
    waits[0] = (struct pollfd){ .fd = listen_fd, .events = POLLIN };
    return 1;
}

bool door_woken(int fd)
{
    if (fd != listen_fd)
        return false;
    accept_one();
    return true;
}

static int64_t caller_due(const struct caller *caller)
{
    bool wait = callers_of(0, true).all < callers_of(0, false).all;

    if (!caller->used || caller->killed)
        return 0;
    if (!caller->since_ms)
        return clock_mono_ms() + DOOR_WAIT_SHORT_MS; /* its turn is looked for again */
    return caller->since_ms + (wait ? DOOR_WAIT_SHORT_MS : DOOR_WAIT_MS);
}

int64_t door_due_ms(void)
{
    int64_t first = refused_count && !going ? refused_ms + DOOR_REFUSED_MS : 0;

    for (unsigned i = 0; i < DOOR_PLACES; i++)
        if (caller_due(&callers[i]) && (!first || caller_due(&callers[i]) < first))
            first = caller_due(&callers[i]);
    for (unsigned i = 0; i < DOOR_TICKETS_MAX; i++)
        if (tickets[i].until_ms && (!first || tickets[i].until_ms < first))
            first = tickets[i].until_ms;
    return first;
}

void door_run_due(int64_t now_ms)
{
    callers_start();
    refused_go(now_ms);
    for (unsigned i = 0; i < DOOR_PLACES; i++)
        if (callers[i].since_ms && caller_due(&callers[i]) && caller_due(&callers[i]) <= now_ms) {
            callers[i].killed = true;  /* its end is heard like any other */
            close_one(&callers[i].fd); /* while the child has it: who closes it last may wait */
            job_kill(caller_child, i);
        }
    for (unsigned i = 0; i < DOOR_TICKETS_MAX; i++)
        if (tickets[i].until_ms && tickets[i].until_ms <= now_ms)
            ticket_free(&tickets[i]);
}

int door_open(int state_fd)
{
    struct sockaddr_un name = { .sun_family = AF_UNIX };
    autoclose int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    for (unsigned i = 0; i < DOOR_PLACES; i++)
        callers[i] = (struct caller){ .fd = -1 };
    for (unsigned i = 0; i < DOOR_TICKETS_MAX; i++)
        tickets[i] = (struct ticket){ .dir.fd = -1 };
    /* By way of the descriptor: a socket's address has room for 107 bytes, a path for 4096. */
    snprintf(name.sun_path, sizeof(name.sun_path), "/proc/self/fd/%d/" DOOR_SOCKET, state_fd);
    if (fd < 0 || fstat(state_fd, &state_dir) < 0)
        return -1;
    if (unlinkat(state_fd, DOOR_SOCKET, 0) < 0 && errno != ENOENT)
        return -1;
    if (bind(fd, (struct sockaddr *)&name, sizeof(name)) < 0 ||
        fchmodat(state_fd, DOOR_SOCKET, 0666, 0) < 0 || listen(fd, BACKLOG) < 0)
        return -1;
    listen_fd = take_fd(&fd);
    return 0;
}

void door_close(int state_fd)
{
    if (listen_fd < 0)
        return;
    close_one(&listen_fd);
    unlinkat(state_fd, DOOR_SOCKET, 0);
    /* Of whom no child has a copy, the process lets go by its end: that waits for nothing. */
    for (unsigned i = 0; i < DOOR_PLACES; i++)
        if (callers[i].since_ms)
            caller_end(&callers[i]);
    refused_count = going = 0;
    for (unsigned i = 0; i < DOOR_TICKETS_MAX; i++)
        ticket_free(&tickets[i]);
}

#ifdef ATOLL_FAULTS
bool door_busy(void)
{
    return refused_count || callers_of(0, false).all;
}

void door_forget_knocks(void)
{
    memset(knocks, 0, sizeof(knocks));
}
#endif
