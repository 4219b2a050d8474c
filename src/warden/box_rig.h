/*
 * box_rig - real boxes for tests, made in this process by the warden's own parts. Root alone can.
 */
#pragma once

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/test.h"
#include "warden/disk.h"
#include "warden/net.h"
#include "wire/init.h"

#define RIG_UID_BASE 700000000u
#define RIG_HEARD 64

struct rig_heard {
    struct wire_msg msg;
    int fds[2];
    unsigned count;
};

static struct rig_heard rig_heard[RIG_HEARD];
static unsigned rig_count;
static uint32_t rig_number;
static int rig_state = -1;

static inline void rig_say(void *owner, const struct wire_msg *msg, const int *fds, unsigned count)
{
    struct rig_heard *heard = &rig_heard[rig_count++];

    (void)owner;
    CHECK(rig_count < RIG_HEARD && count <= 2);
    heard->msg = *msg;
    heard->count = count;
    for (unsigned i = 0; i < count; i++)
        CHECK((heard->fds[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, 3)) >= 0);
}

static inline void rig_open_with(const char *dir, uint32_t uid_base)
{
    const char *what = NULL;

    if (geteuid() != 0)
        test_skip("making a sandbox needs root");
    rig_count = 0;
    rig_state = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    CHECK(rig_state >= 0);
    sigaction(SIGPIPE, &(struct sigaction){ .sa_handler = SIG_IGN }, NULL);
    if (boxes_open(rig_state, uid_base, rig_say, NULL, &what) < 0)
        test_fail(__FILE__, __LINE__, "%s: %s", what, strerror(errno));
}

static inline void rig_open_at(const char *dir)
{
    rig_open_with(dir, RIG_UID_BASE);
}

static inline void rig_close(void)
{
    boxes_close();
    close(rig_state);
    rig_state = -1;
}

static inline void rig_pump(int ms)
{
    struct pollfd waits[BOXES_WAITS];
    unsigned count = boxes_waits(waits);

    poll(waits, count, ms);
    boxes_woken(waits, count);
    boxes_reap();
    boxes_run_due();
}

/* Takes the message with this verb and number out of what was heard; false after `ms`. */
static inline bool rig_wait(uint16_t verb, uint32_t number, int ms, struct rig_heard *out)
{
    int64_t until = clock_mono_ms() + ms;

    for (;;) {
        for (unsigned i = 0; i < rig_count; i++)
            if (rig_heard[i].msg.verb == verb && rig_heard[i].msg.number == number) {
                *out = rig_heard[i];
                rig_heard[i] = rig_heard[--rig_count];
                return true;
            }
        if (clock_mono_ms() >= until)
            return false;
        rig_pump(1);
    }
}

static inline struct rig_heard rig_ask(struct wire_msg *msg)
{
    struct rig_heard heard;

    msg->number = ++rig_number;
    CHECK(boxes_hear(msg));
    if (!rig_wait(msg->verb, msg->number, test_patience(15000), &heard))
        test_fail(__FILE__, __LINE__, "no answer to verb %d", msg->verb);
    return heard;
}

static inline struct rig_heard rig_name(enum wire_verb verb, const char *id)
{
    struct wire_msg msg = { .verb = (uint16_t)verb };

    snprintf(msg.name.id, sizeof(msg.name.id), "%.32s", id);
    return rig_ask(&msg);
}

static inline struct wire_msg rig_spec(const char *id)
{
    struct wire_msg msg = { .verb = WIRE_BOX_CREATE,
                            .spec = { .memory = 256u << 20,
                                      .pids = 64,
                                      .disk = 64u << 20,
                                      .inodes = 4096,
                                      .nofile = 1024 } };

    snprintf(msg.spec.id, sizeof(msg.spec.id), "%.32s", id);
    return msg;
}

struct rig_box {
    const char *id;
    int pidfd, link;
    pid_t pid;
    uint32_t execs;
};

static inline struct rig_box rig_made(const char *id, const struct rig_heard *heard)
{
    if (heard->msg.status)
        test_fail(__FILE__, __LINE__, "%s: %s", box_step_name(heard->msg.created.step),
                  strerror(heard->msg.status));
    CHECK_INT(heard->count, 2);
    /* One that never answers ends the test, not the patience of whoever runs it. */
    struct timeval patience = { .tv_sec = test_patience(70) };
    CHECK(setsockopt(heard->fds[1], SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) == 0);
    return (struct rig_box){ id, heard->fds[0], heard->fds[1], heard->msg.created.pid, 0 };
}

static inline struct rig_box rig_create(struct wire_msg spec, const char *id)
{
    struct rig_heard heard = rig_ask(&spec);

    return rig_made(id, &heard);
}

static inline void rig_destroy(struct rig_box *box)
{
    CHECK_INT(rig_name(WIRE_BOX_DESTROY, box->id).msg.status, 0);
    close(box->pidfd);
    close(box->link);
}

/* These guards (base/guard.h) are left out from here on. */
static inline void rig_without(const char *guards)
{
    CHECK(setenv("ATOLL_WITHOUT", guards, 1) == 0);
}

/* What a test that failed has left running ends before the next one, and with the program. */
static inline void rig_clear(void)
{
    struct wire_msg list = { .verb = WIRE_BOX_LIST };

    rig_count = 0;
    box_fault_in = 0;
    box_fault_ends = false;
    box_skips = 0;
    rig_without("");
    for (struct rig_heard heard = rig_ask(&list); heard.msg.rows.count; heard = rig_ask(&list))
        rig_name(WIRE_BOX_DESTROY, heard.msg.rows.rows[0].id);
}

static inline void rig_at_exit(void)
{
    if (rig_state >= 0) {
        rig_clear();
        boxes_close();
    }
}

static inline const char *rig_open(void)
{
    static bool registered;
    const char *dir = test_dir();

    if (rig_state >= 0)
        rig_at_exit();
    /* Mounts are counted, and others on this machine come and go. */
    if (!registered && geteuid() == 0)
        CHECK(unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
    rig_open_at(dir);
    if (!registered)
        atexit(rig_at_exit);
    registered = true;
    return dir;
}

/* ---- commands inside ---- */

struct rig_ran {
    int code, signal;
    size_t len;       /* of all output */
    char out[262144]; /* the beginning of both streams together, NUL-terminated */
    int error;        /* when it did not start */
    uint32_t step;
};

static inline void rig_send(struct rig_box *box, uint16_t type, uint32_t exec, const void *a,
                            size_t a_len, const void *b, size_t b_len)
{
    struct init_head head = { INIT_MAGIC, type, 0, exec, (uint32_t)(a_len + b_len) };
    struct iovec parts[] = { { &head, sizeof(head) },
                             { (void *)(uintptr_t)a, a_len },
                             { (void *)(uintptr_t)b, b_len } };
    struct msghdr msg = { .msg_iov = parts, .msg_iovlen = 3 };

    CHECK(sendmsg(box->link, &msg, MSG_NOSIGNAL) > 0);
}

/* `texts`: argv…, env…, cwd. */
static inline uint32_t rig_start(struct rig_box *box, const char *const *texts, unsigned argc,
                                 unsigned envc, uint32_t flags)
{
    struct init_exec exec = { .flags = flags, .argc = argc, .envc = envc, .timeout_ms = 60000 };
    static char text[65536 - 256];
    size_t len = 0;

    for (unsigned i = 0; i <= argc + envc; i++) {
        size_t size = strlen(texts[i]) + 1;

        CHECK(len + size <= sizeof(text));
        memcpy(text + len, texts[i], size);
        len += size;
    }
    exec.text_len = (uint32_t)len;
    rig_send(box, INIT_EXEC, ++box->execs, &exec, sizeof(exec), text, len);
    return box->execs;
}

static inline bool rig_frame(struct rig_box *box, uint32_t exec, struct rig_ran *ran)
{
    static char frame[INIT_FRAME_MAX];
    struct init_head head;
    ssize_t len = recv(box->link, frame, sizeof(frame), 0);

    if (len <= 0)
        test_fail(__FILE__, __LINE__, "the init is gone: %s", len ? strerror(errno) : "closed");
    CHECK(init_frame_ok(frame, (size_t)len, false));
    memcpy(&head, frame, sizeof(head));
    const char *body = frame + sizeof(head);
    if (head.exec != exec)
        return false;
    if (head.type == INIT_STARTED) {
        struct init_started started;

        memcpy(&started, body, sizeof(started));
        ran->error = started.error;
        ran->step = started.step;
        return started.error != 0;
    }
    if (head.type == INIT_OUTPUT) {
        struct init_output out;
        struct init_ack ack = { 0 };
        size_t n = head.len - sizeof(out),
               room = sizeof(ran->out) - 1 - MIN(ran->len, sizeof(ran->out) - 1);

        memcpy(&out, body, sizeof(out));
        memcpy(ran->out + MIN(ran->len, sizeof(ran->out) - 1), body + sizeof(out), MIN(n, room));
        ran->len += n;
        ran->out[MIN(ran->len, sizeof(ran->out) - 1)] = 0;
        ack.position[out.stream] = out.position + n;
        rig_send(box, INIT_ACK, exec, &ack, sizeof(ack), NULL, 0);
    }
    if (head.type != INIT_EXITED)
        return false;
    struct init_exited end;
    memcpy(&end, body, sizeof(end));
    ran->code = end.code;
    ran->signal = end.signal;
    rig_send(box, INIT_FORGET, exec, NULL, 0, NULL, 0);
    return true;
}

static inline struct rig_ran *rig_finish(struct rig_box *box, uint32_t exec)
{
    static struct rig_ran ran;

    ran = (struct rig_ran){ .code = -1 };
    while (!rig_frame(box, exec, &ran))
        ;
    return &ran;
}

/* sh -c; valid until the next one. */
static inline struct rig_ran *rig_sh(struct rig_box *box, const char *script, uint32_t flags)
{
    const char *texts[] = { "/bin/sh", "-c", script, "PATH=/usr/bin:/bin:/usr/sbin:/sbin", "/tmp" };

    return rig_finish(box, rig_start(box, texts, 3, 1, flags));
}

/* `script` under `rules` ("r/opt w/srv"), as agent or root. */
static inline struct rig_ran *rig_ruled(struct rig_box *box, const char *rules, const char *script,
                                        uint32_t flags)
{
    struct init_exec exec = { .flags = flags, .argc = 3, .timeout_ms = 60000 };
    static char text[16384];
    int len = snprintf(text, sizeof(text), "/bin/sh%c-c%c%s%c", 0, 0, script, 0);

    for (const char *at = rules; *at; at += strspn(at, " ")) {
        int size = (int)strcspn(at, " ");

        len += snprintf(text + len, sizeof(text) - (size_t)len, "%.*s%c", size, at, 0);
        at += size;
        exec.filec++;
    }
    len += snprintf(text + len, sizeof(text) - (size_t)len, "/tmp%c", 0);
    exec.text_len = (uint32_t)len;
    rig_send(box, INIT_EXEC, ++box->execs, &exec, sizeof(exec), text, (size_t)len);
    return rig_finish(box, box->execs);
}

/* From here on the box swaps the directory /tmp/t and a symlink as fast as it can, all the time. */
static inline void rig_swap(struct rig_box *box, const char *link_to)
{
    const char *texts[] = { "/usr/bin/perl",
                            "-e",
                            "my ($t, $l) = ('/tmp/t', '/tmp/l'); mkdir $t; symlink $ARGV[0], $l;"
                            "$| = 1; for (my $i = 0; ; $i++) {"
                            " syscall(316, -100, $t, -100, $l, 2); print 'x' if $i == 10000; }",
                            link_to,
                            "A=b",
                            "/tmp" };
    uint32_t exec = rig_start(box, texts, 4, 1, 0);
    static struct rig_ran ran;

    ran.len = 0;
    while (ran.len == 0 && !rig_frame(box, exec, &ran))
        ;
    CHECK_STR(ran.out, "x"); /* so often by now, and it goes on */
}

/* ---- escapes ---- */

/* The program of probes, opened where this one is: BUILD/test/warden/x_test, BUILD/probe. */
static inline int rig_open_probe(void)
{
    char path[4096];
    ssize_t len = readlink("/proc/self/exe", path, sizeof(path) - 32);

    CHECK(len > 0);
    path[len] = 0;
    for (int up = 0; up < 3; up++)
        *strrchr(path, '/') = 0;
    snprintf(path + strlen(path), 16, "/probe");
    return open(path, O_RDONLY | O_CLOEXEC);
}

/* Who has given up the right to open it has it open already, as this descriptor. */
#define RIG_PROBE_FD 250

/* Writes the probe into the box through the input of a command. */
static inline void rig_bring_probe(struct rig_box *box)
{
    static char data[32768];
    const char *texts[] = { "/bin/sh", "-c", "cat > /tmp/probe && chmod 755 /tmp/probe",
                            "PATH=/usr/bin:/bin", "/" };
    autoclose int fd = fcntl(RIG_PROBE_FD, F_DUPFD_CLOEXEC, 0);
    ssize_t got;

    if (fd < 0)
        fd = rig_open_probe();
    CHECK(fd >= 0);
    CHECK(lseek(fd, 0, SEEK_SET) == 0);
    uint32_t exec = rig_start(box, texts, 3, 1, INIT_STDIN_OPEN);
    while ((got = read(fd, data, sizeof(data))) > 0) {
        rig_send(box, INIT_STDIN, exec, data, (size_t)got, NULL, 0);
        poll(NULL, 0, 3); /* input beyond what the command has taken would be refused */
    }
    rig_send(box, INIT_STDIN, exec, NULL, 0, NULL, 0);
    CHECK_INT(rig_finish(box, exec)->code, 0);
}

static inline struct rig_ran *rig_probe(struct rig_box *box, uint32_t flags)
{
    const char *texts[] = { "/tmp/probe", "PATH=/usr/bin:/bin", "/tmp" };

    return rig_finish(box, rig_start(box, texts, 1, 1, flags));
}

/* Every probe holds but these. */
static inline void rig_check_probe(struct rig_box *box, uint32_t flags, const char *const *but)
{
    struct rig_ran *ran = rig_probe(box, flags);

    CHECK(strstr(ran->out, " probes, "));
    for (char *line = ran->out; (line = strstr(line, "BROKEN ")); line++) {
        bool known = false;

        for (const char *const *name = but; *name; name++)
            known |= strncmp(line + 7, *name, strlen(*name)) == 0 && line[7 + strlen(*name)] == ' ';
        if (!known)
            test_fail(__FILE__, __LINE__, "%s:\n%s", flags ? "root" : "agent", ran->out);
    }
}

/* ---- nothing is left ---- */

struct rig_left {
    int fds, mounts, cgroups, dirs;
};

static int rig_seen;

static inline void rig_see(const char id[BOX_ID_SIZE])
{
    (void)id;
    rig_seen++;
}

static inline int rig_lines(const char *path)
{
    FILE *file = fopen(path, "re");
    int lines = 0, c;

    CHECK(file != NULL);
    while ((c = fgetc(file)) != EOF)
        lines += c == '\n';
    fclose(file);
    return lines;
}

static inline int rig_entries(const char *path)
{
    DIR *dir = opendir(path);
    int count = 0;

    CHECK(dir != NULL);
    while (readdir(dir))
        count++;
    closedir(dir);
    return count - 2;
}

static inline struct rig_left rig_left(const char *state)
{
    char boxes[4096];
    struct rig_left left;

    snprintf(boxes, sizeof(boxes), "%s/boxes", state);
    rig_seen = 0;
    cgroup_each(rig_see);
    int spare = 2 * (int)net_spares() + (int)users_count() + 3 * (int)networks_count();
    left = (struct rig_left){ rig_entries("/proc/self/fd") - spare,
                              rig_lines("/proc/self/mountinfo"), rig_seen, rig_entries(boxes) };
    return left;
}

/* A child that we have: the one that stays while there is a warden (sweep.c), or another; or 0. */
static inline pid_t rig_child(bool sweeper)
{
    char text[4096] = "";
    autoclose int fd = open("/proc/thread-self/children", O_RDONLY | O_CLOEXEC);

    CHECK(read(fd, text, sizeof(text) - 1) >= 0);
    for (char *at = text, *end; *at; at = end + (*end == ' ')) {
        pid_t pid = (pid_t)strtol(at, &end, 10);

        if (pid && sweep_own(pid) == sweeper)
            return pid;
    }
    return 0;
}

static inline void rig_check_left(const char *state, struct rig_left before)
{
    struct rig_left now = rig_left(state);

    CHECK_INT(now.fds, before.fds);
    CHECK_INT(now.mounts, before.mounts);
    CHECK_INT(now.cgroups, before.cgroups);
    CHECK_INT(now.dirs, before.dirs);
    CHECK_INT(rig_child(false), 0);
}

/* The pool fills whenever it is quiet; until it is full, descriptors come and go. */
static inline void rig_settle(void)
{
    while (boxes_due_ms() || !jobs_idle())
        rig_pump(1);
}

/* What there is after a first box: the cgroups are opened with it, the pool is full. */
static inline struct rig_left rig_before(const char *state)
{
    struct rig_box box = rig_create(rig_spec("first"), "first");

    rig_destroy(&box);
    rig_settle();
    return rig_left(state);
}
