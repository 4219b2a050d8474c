/*
 * A sandbox made, /bin/true run in it, and all of it taken away, against bwrap and a plain process,
 * interleaved in one loop. The sandbox is made in this process by the warden's own parts, as the
 * warden does it; `cold` takes its namespaces from the pool, `fresh` makes them on the way.
 *
 * box ROUNDS STATE: prints "NAME min median p99" in microseconds per line, then ratios to bwrap;
 * what is about disks (disk.h) comes first.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "warden/box.h"
#include "wire/init.h"

#define ROUNDS_MAX 10000

extern char **environ;

static struct wire_msg heard;
static int heard_fds[2];
static bool got;

static void say(void *owner, const struct wire_msg *msg, const int *fds, unsigned count)
{
    (void)owner;
    heard = *msg;
    got = true;
    for (unsigned i = 0; i < count; i++)
        heard_fds[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, 3);
}

static double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void pump(int ms)
{
    struct pollfd waits[BOXES_WAITS];
    unsigned count = boxes_waits(waits);

    poll(waits, count, ms);
    boxes_woken(waits, count);
    boxes_reap();
}

static void die(const char *what)
{
    fprintf(stderr, "box: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* As the warden waits: for the report, or for SIGCHLD (which ends the poll). */
static void ask(struct wire_msg *msg)
{
    static uint32_t number;
    sigset_t none;
    struct timespec soon = { 0, 1000000 };

    sigemptyset(&none);
    msg->number = ++number;
    got = false;
    boxes_hear(msg);
    while (!got) {
        struct pollfd waits[BOXES_WAITS];
        unsigned count = boxes_waits(waits);

        ppoll(waits, count, &soon, &none);
        boxes_woken(waits, count);
        boxes_reap();
        if (!got && boxes_due_ms())
            boxes_run_due();
    }
    if (heard.status) {
        errno = heard.status;
        die(box_step_name(heard.created.step));
    }
}

static void run_true(int link)
{
    static const char text[] = "/bin/true\0PATH=/bin\0/";
    struct {
        struct init_head head;
        struct init_exec exec;
        char text[sizeof(text)];
    } frame = { { INIT_MAGIC, INIT_EXEC, 0, 1, sizeof(struct init_exec) + sizeof(text) },
                { .argc = 1, .envc = 1, .text_len = sizeof(text) },
                { 0 } };
    static char in[INIT_FRAME_MAX];
    struct init_head head;

    memcpy(frame.text, text, sizeof(text));
    size_t len = sizeof(frame.head) + sizeof(frame.exec) + sizeof(text);
    if (send(link, &frame, len, MSG_NOSIGNAL) != (ssize_t)len)
        die("send");
    do {
        if (recv(link, in, sizeof(in), 0) < (ssize_t)sizeof(head))
            die("recv");
        memcpy(&head, in, sizeof(head));
    } while (head.type != INIT_EXITED);
}

static double steps[3]; /* create, exec, destroy: sums */

static double box_round(bool pooled)
{
    struct wire_msg spec = { .verb = WIRE_BOX_CREATE,
                             .spec = { .id = "bench",
                                       .memory = 256u << 20,
                                       .pids = 64,
                                       .disk = 64u << 20,
                                       .inodes = 4096,
                                       .cpu_percent = 200,
                                       .nofile = 1024 } };
    struct wire_msg end = { .verb = WIRE_BOX_DESTROY, .name = { .id = "bench" } };

    boxes_pool(pooled ? 4 : 0);
    while (pooled && boxes_due_ms()) { /* off the request path */
        pump(1);
        boxes_run_due();
    }
    double begin = now_us();
    ask(&spec);
    double made = now_us();
    run_true(heard_fds[1]);
    double ran = now_us();
    close(heard_fds[0]);
    close(heard_fds[1]);
    ask(&end);
    double done = now_us();
    steps[0] += made - begin;
    steps[1] += ran - made;
    steps[2] += done - ran;
    return done - begin;
}

static double spawn_round(const char *const *argv)
{
    double begin = now_us();
    pid_t pid;

    if (posix_spawnp(&pid, argv[0], NULL, NULL, (char *const *)(uintptr_t)argv, environ) != 0)
        die(argv[0]);
    waitpid(pid, NULL, 0);
    return now_us() - begin;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

#include "disk.h"

static void on_child(int number)
{
    (void)number;
}

int main(int argc, char **argv)
{
    static const char *const plain[] = { "/bin/true", NULL };
    static const char *const bwrap[] = {
        "bwrap",     "--unshare-all", "--ro-bind", "/usr",    "/usr",  "--symlink",
        "usr/bin",   "/bin",          "--symlink", "usr/lib", "/lib",  "--symlink",
        "usr/lib64", "/lib64",        "--proc",    "/proc",   "--dev", "/dev",
        "--tmpfs",   "/tmp",          "/bin/true", NULL
    };
    static const char *const names[] = { "process", "bwrap", "cold", "pooled" };
    static double times[4][ROUNDS_MAX];
    const char *what = NULL;
    int rounds = argc > 2 ? (int)strtol(argv[1], NULL, 10) : 0;

    if (rounds < 1 || rounds > ROUNDS_MAX)
        return fprintf(stderr, "usage: box ROUNDS STATE\n"), 64;
    int state = open(argv[2], O_PATH | O_DIRECTORY | O_CLOEXEC);
    sigset_t child;
    sigaction(SIGCHLD, &(struct sigaction){ .sa_handler = on_child }, NULL);
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child, NULL);
    if (state < 0 || boxes_open(state, 800000000, say, NULL, &what) < 0)
        die(what ? what : argv[2]);
    for (int i = -5; i < rounds; i++) {
        double t[4] = { spawn_round(plain), spawn_round(bwrap), 0, box_round(true) };

        if (i < 0)
            steps[0] = steps[1] = steps[2] = 0;
        double before[3] = { steps[0], steps[1], steps[2] };
        t[2] = box_round(false);
        memcpy(steps, before, sizeof(steps));
        for (int k = 0; i >= 0 && k < 4; k++)
            times[k][i] = t[k];
    }
    boxes_pool(4);
    disk_bench(rounds);
    boxes_close();
    for (int k = 0; k < 4; k++)
        qsort(times[k], (size_t)rounds, sizeof(double), compare);
    double base = times[1][rounds / 2];
    for (int k = 0; k < 4; k++)
        printf("%-8s %8.0f %8.0f %8.0f   %.2f x bwrap\n", names[k], times[k][0],
               times[k][rounds / 2], times[k][rounds * 99 / 100], times[k][rounds / 2] / base);
    printf("pooled: create %.0f, exec %.0f, destroy %.0f\n", steps[0] / rounds, steps[1] / rounds,
           steps[2] / rounds);
    return 0;
}
