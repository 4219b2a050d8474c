/*
 * Sandboxes in this process, made by the warden's own parts as the warden does it, beside other
 * programs in one loop. Every line of output is a name and the microseconds of each round.
 *
 * box cycle ROUNDS STATE [NAME=COMMAND…]: create, /bin/true, destroy. `cold` takes namespaces from
 * the pool, `fresh` makes that of the network on the way (else both kinds serve again: pool.c);
 * `warm` is a command in one made before, `exec` one in one that runs; `pause`; `spawn`, `vfork`
 * and each COMMAND (words, no quotes) for comparison; `inside` is vfork+exec by a program that runs
 * in a sandbox: what is left to us is the rest.
 *
 * box loop SECONDS STATE [COMMAND…]: the number of cycles, or of runs of COMMAND.
 *
 * box many COUNT STATE: `one`: commands in one of one; `few`: one in each of MANY_EACH, when there
 * are no more; `all`: one in each of MANY_EACH of COUNT; `create_at_N`: microseconds for each of
 * the MANY_FEW before the N-th; kB of memory: `kb_counted` for each of those that never ran
 * anything, before there are MANY_FEW, `kb_all` for all together, `kb_netns` for an empty network
 * namespace; and what is left after.
 *
 * box beside COUNT STATE: what it takes to create one and to destroy it, alone (`first`), beside
 * COUNT others (`beside`), and alone again (`again`): microseconds until it is there, and
 * (`first_cpu` and so on) processor time of this process and of those that it waited for, mean of
 * BESIDE_ROUNDS.
 *
 * box pty MEGABYTES STATE: MB/s of the kernel's own terminal, and through init.
 *
 * box disk ROUNDS STATE: what is about disks (disk.h).
 *
 * box inside 1 -: in a sandbox, for the first: each byte of input is a round of vfork+exec.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "base/limits.h"
#include "warden/boxes.h"
#include "wire/init.h"

#define ROUNDS_MAX 10000
#define PEERS_MAX 16
#define WORDS_MAX 64
#define MANY_FEW 500u
#define MANY_EACH 200u
#define MANY_TIMES 5u
#define MANY_REST_MS 500
#define MANY_STEP 25u
#define MANY_NETNS 200u
#define BESIDE_ROUNDS 200u

extern char **environ;

static struct wire_msg heard;
static int heard_fds[2];
static bool got;

static void hear(void *owner, const struct wire_msg *msg, const int *fds, unsigned count)
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

static void die(const char *what)
{
    fprintf(stderr, "box: %s: %s\n", what, strerror(errno));
    exit(1);
}

static volatile sig_atomic_t child_ended;

static void on_child(int number)
{
    (void)number;
    child_ended = true;
}

static void reap(void)
{
    if (!child_ended)
        return;
    child_ended = false;
    boxes_reap();
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
        reap();
        if (!got && boxes_due_ms())
            boxes_run_due();
    }
    if (heard.status) {
        errno = heard.status;
        die(box_step_name(heard.created.step));
    }
}

static void send_frame(int link, uint16_t type, uint32_t exec, const void *body, size_t len)
{
    static char frame[INIT_FRAME_MAX];
    struct init_head head = { INIT_MAGIC, type, 0, exec, (uint32_t)len };

    memcpy(frame, &head, sizeof(head));
    memcpy(frame + sizeof(head), body, len);
    if (send(link, frame, sizeof(head) + len, MSG_NOSIGNAL) < 0)
        die("send");
}

static void run_true(int link)
{
    static uint32_t number;
    static const char text[] = "/bin/true\0PATH=/bin\0/";
    struct {
        struct init_head head;
        struct init_exec exec;
        char text[sizeof(text)];
    } frame = { { INIT_MAGIC, INIT_EXEC, 0, ++number, sizeof(struct init_exec) + sizeof(text) },
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
    } while (head.type != INIT_EXITED || head.exec != number);
    head = (struct init_head){ INIT_MAGIC, INIT_FORGET, 0, number, 0 };
    if (send(link, &head, sizeof(head), MSG_NOSIGNAL) < 0)
        die("send");
}

/* ---- one sandbox ---- */

struct made {
    char id[BOX_ID_SIZE];
    int link;
};

static void settle(void) /* off the request path */
{
    sigset_t none;

    sigemptyset(&none);
    while (boxes_due_ms()) {
        ppoll(NULL, 0, &(struct timespec){ 0, 1000000 }, &none);
        reap();
        boxes_run_due();
    }
}

static struct made create_with(unsigned number, uint32_t flags)
{
    struct made made;
    struct wire_msg spec = { .verb = WIRE_BOX_CREATE,
                             .spec = { .memory = 256u << 20,
                                       .pids = 64,
                                       .disk = 64u << 20,
                                       .inodes = 4096,
                                       .cpu_percent = 200,
                                       .nofile = 1024,
                                       .flags = flags } };

    snprintf(spec.spec.id, sizeof(spec.spec.id), "bench%u", number);
    memcpy(made.id, spec.spec.id, sizeof(made.id));
    ask(&spec);
    close(heard_fds[0]); /* the api process keeps none either */
    made.link = heard_fds[1];
    return made;
}

static struct made create(unsigned number)
{
    return create_with(number, 0);
}

static void ask_name(uint16_t verb, const struct made *made)
{
    struct wire_msg msg = { .verb = verb };

    memcpy(msg.name.id, made->id, sizeof(msg.name.id));
    ask(&msg);
}

static void destroy(struct made *made)
{
    if (made->link >= 0)
        close(made->link);
    ask_name(WIRE_BOX_DESTROY, made);
}

/* What a run that was ended has left. */
static void clear(void)
{
    for (;;) {
        struct wire_msg list = { .verb = WIRE_BOX_LIST };
        struct made made;

        ask(&list);
        if (heard.rows.count == 0)
            return;
        memcpy(made.id, heard.rows.rows[0].id, sizeof(made.id));
        ask_name(WIRE_BOX_DESTROY, &made);
    }
}

/* ---- the loop ---- */

enum own { SPAWN, VFORK, INSIDE, COLD, FRESH, WARM, EXEC, PAUSE, OWN };
static const char *const own_names[OWN] = { "spawn", "vfork", "inside", "cold",
                                            "fresh", "warm",  "exec",   "pause" };
static double times[OWN + PEERS_MAX][ROUNDS_MAX];

/* Before each measurement: what the kernel still clears away of the one before is not its cost. */
static void rest(void)
{
    settle();
    poll(NULL, 0, 3);
}

static double cycle(bool pooled)
{
    boxes_pool(pooled ? 4 : 0);
    if (!pooled) /* the kernel takes the pool's apart, and locks all that have to do with it */
        poll(NULL, 0, 100);
    rest();
    double begin = now_us();
    struct made made = create(0);
    run_true(made.link);
    destroy(&made);
    return now_us() - begin;
}

static double spawn_round(char *const *argv)
{
    double begin = now_us();
    pid_t pid;

    if (posix_spawnp(&pid, argv[0], NULL, NULL, argv, environ) != 0)
        die(argv[0]);
    int status;
    if (waitpid(pid, &status, 0) != pid || status != 0) {
        fprintf(stderr, "box: %s ended with %d\n", argv[0], status);
        exit(1);
    }
    return now_us() - begin;
}

static double vfork_round(void)
{
    double begin = now_us();
    pid_t pid = vfork();

    if (pid == 0) {
        execl("/bin/true", "true", (char *)NULL);
        _exit(127);
    }
    waitpid(pid, NULL, 0);
    return now_us() - begin;
}

/* ---- the same by a program in a sandbox ---- */

static void serve_inside(void)
{
    char byte;

    while (read(0, &byte, 1) == 1) {
        double took = vfork_round();

        if (write(1, &took, sizeof(took)) != (ssize_t)sizeof(took))
            _exit(1);
    }
}

static struct made begin_inside(void)
{
    static const char text[] = "/run/atoll\0inside\0001\0-\0/";
    struct init_exec wish = { .flags = INIT_STDIN_OPEN, .argc = 4, .text_len = sizeof(text) };
    char body[sizeof(wish) + sizeof(text)];

    boxes_tool(open("/proc/self/exe", O_PATH | O_CLOEXEC));
    struct made made = create_with(3, BOX_WITH_TOOL);
    memcpy(body, &wish, sizeof(wish));
    memcpy(body + sizeof(wish), text, sizeof(text));
    send_frame(made.link, INIT_EXEC, 1, body, sizeof(body));
    return made;
}

static double inside_round(const struct made *made)
{
    static char in[INIT_FRAME_MAX];
    struct init_head head;
    struct init_output out;
    struct init_ack ack = { 0 };
    double took;

    send_frame(made->link, INIT_STDIN, 1, "", 1);
    do {
        if (recv(made->link, in, sizeof(in), 0) < (ssize_t)sizeof(head))
            die("recv");
        memcpy(&head, in, sizeof(head));
        if (head.type == INIT_EXITED)
            die("inside");
    } while (head.type != INIT_OUTPUT);
    memcpy(&out, in + sizeof(head), sizeof(out));
    memcpy(&took, in + sizeof(head) + sizeof(out), sizeof(took));
    ack.position[INIT_OUT] = out.position + sizeof(took);
    send_frame(made->link, INIT_ACK, 1, &ack, sizeof(ack));
    return took;
}

static void split(char *text, char **argv)
{
    int argc = 0;

    for (text += strspn(text, " "); *text && argc < WORDS_MAX - 1; text += strspn(text, " ")) {
        argv[argc++] = text;
        text += strcspn(text, " ");
        if (*text)
            *text++ = 0;
    }
    argv[argc] = NULL;
}

static void run_cycles(int rounds, int argc, char **argv)
{
    static char *plain[] = { (char *)(uintptr_t) "/bin/true", NULL };
    static char *words[PEERS_MAX][WORDS_MAX];
    int peers = argc < PEERS_MAX ? argc : PEERS_MAX;

    for (int i = 0; i < peers; i++) {
        char *is = strchr(argv[i], '=');

        if (!is)
            exit(64);
        *is = 0;
        split(is + 1, words[i]);
    }
    struct made running = create(1), inside = begin_inside();
    run_true(running.link);
    for (int i = -3; i < rounds; i++) {
        double t[OWN + PEERS_MAX] = { 0 }, begin;

        rest();
        t[SPAWN] = spawn_round(plain);
        rest();
        t[VFORK] = vfork_round();
        rest();
        begin = now_us();
        run_true(running.link);
        t[EXEC] = now_us() - begin;
        rest();
        t[INSIDE] = inside_round(&inside);
        t[COLD] = cycle(true);
        t[FRESH] = cycle(false);
        struct made warm = create(2);
        run_true(warm.link); /* as a pool does it: the first command pays for cold caches */
        rest();
        begin = now_us();
        run_true(warm.link);
        t[WARM] = now_us() - begin;
        destroy(&warm);
        rest();
        begin = now_us();
        ask_name(WIRE_BOX_FREEZE, &running);
        t[PAUSE] = now_us() - begin;
        ask_name(WIRE_BOX_THAW, &running);
        for (int k = 0; k < peers; k++) {
            rest();
            t[OWN + k] = spawn_round(words[k]);
        }
        for (int k = 0; i >= 0 && k < OWN + peers; k++)
            times[k][i] = t[k];
    }
    destroy(&running);
    destroy(&inside);
    for (int k = 0; k < OWN + peers; k++) {
        printf("%s", k < OWN ? own_names[k] : argv[k - OWN]);
        for (int i = 0; i < rounds; i++)
            printf(" %.1f", times[k][i]);
        puts("");
    }
}

static void run_loop(int seconds, char **argv)
{
    double until = now_us() + seconds * 1e6;
    unsigned count = 0;

    for (; now_us() < until; count++) {
        if (*argv) {
            spawn_round(argv);
            continue;
        }
        struct made made = create(0);
        run_true(made.link);
        destroy(&made);
    }
    printf("cycles %u\n", count);
}

/* ---- many ---- */

/* Has this line of /proc/meminfo (name, kB) this name? */
static double kb_of(const char *line, const char *name)
{
    double kb;

    return strncmp(line, name, strlen(name)) == 0 && sscanf(line, "%*s %lf", &kb) == 1 ? kb : 0;
}

/*
 * What is in use, by the kernel's own books: objects, and not the pages they are in, as those that
 * others have left half empty are filled first; what is too large for that in pages, which are
 * the rest of "Slab". What was freed late, and by whom, does not matter; nor do names and inodes
 * that are only remembered.
 */
static double counted_kb(void)
{
    FILE *drop = fopen("/proc/sys/vm/drop_caches", "we");

    if (drop) {
        fputs("2\n", drop);
        fclose(drop);
    }

    static const char *const kinds[] = { "AnonPages:",  "Shmem:",  "KernelStack:",
                                         "PageTables:", "Percpu:", "Slab:" };
    FILE *file = fopen("/proc/meminfo", "re");
    char line[512], name[64];
    double total = 0, active, size, each, slabs;

    while (file && fgets(line, sizeof(line), file))
        for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
            total += kb_of(line, kinds[i]);
    if (file)
        fclose(file);
    file = fopen("/proc/slabinfo", "re");
    while (file && fgets(line, sizeof(line), file))
        if (sscanf(line, "%63s %lf %*d %lf %*d %lf : tunables %*d %*d %*d : slabdata %*d %lf", name,
                   &active, &size, &each, &slabs) == 5)
            total += active * size / 1024 - slabs * each * 4;
    if (file)
        fclose(file);
    return total;
}

/* The kernel takes apart what was let go of when it has time: until that is over, or five seconds.
 */
static double calm_kb(void)
{
    double now = counted_kb(), before = 0;

    for (int i = 0; i < 20 && (i == 0 || before - now > 256); i++) {
        poll(NULL, 0, 250);
        before = now;
        now = counted_kb();
    }
    return now;
}

/* What the kernel takes for each of them, whoever makes them. */
static double netns_kb(void)
{
    int own = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC), made[MANY_NETNS];
    double before = calm_kb();

    for (unsigned i = 0; i < MANY_NETNS; i++)
        if (unshare(CLONE_NEWNET) < 0 ||
            (made[i] = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC)) < 0)
            die("network namespace");
    double kb = (counted_kb() - before) / MANY_NETNS;
    if (setns(own, CLONE_NEWNET) < 0)
        die("setns");
    for (unsigned i = 0; i < MANY_NETNS; i++)
        close(made[i]);
    close(own);
    return kb;
}

/*
 * Several times, a moment apart: a stretch in which whoever has this machine takes its processors
 * away is shorter than that, and as long as one of them.
 */
static void print_execs(const char *name, const struct made *all, unsigned count)
{
    for (unsigned i = 0; i < MANY_EACH; i++) /* the first command of each pays for cold caches */
        run_true(all[i * 7919u % count].link);
    printf("%s", name);
    for (unsigned time = 0; time < MANY_TIMES; time++) {
        poll(NULL, 0, MANY_REST_MS);
        for (unsigned i = 0; i < MANY_EACH; i++) {
            double begin = now_us();

            run_true(all[i * 7919u % count].link);
            printf(" %.1f", now_us() - begin);
        }
    }
    puts("");
}

/*
 * Connections to inits are the api process's: in this one, which has the warden's own descriptors,
 * five thousand would not fit below a limit of 20,000. So another process holds them here, too.
 */
static void give_link(int holder, int *link)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } beside = { 0 };
    struct iovec part = { (void *)(uintptr_t) "", 1 };
    struct msghdr msg = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &beside, .msg_controllen = sizeof(beside)
    };
    struct cmsghdr *head = CMSG_FIRSTHDR(&msg);

    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(head), link, sizeof(int));
    if (sendmsg(holder, &msg, MSG_NOSIGNAL) < 0)
        die("give a connection away");
    close(*link);
    *link = -1;
}

static pid_t holder_pid;

static int start_holder(void)
{
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        die("socketpair");
    holder_pid = fork();
    if (holder_pid < 0)
        die("fork");
    if (holder_pid > 0) {
        close(pair[1]);
        return pair[0];
    }
    dup2(pair[1], 0);
    syscall(SYS_close_range, 3u, ~0u, 0); /* nothing of the warden's */
    for (;;) {
        char bytes[CMSG_SPACE(sizeof(int))], byte;
        struct iovec part = { &byte, 1 };
        struct msghdr msg = {
            .msg_iov = &part, .msg_iovlen = 1, .msg_control = bytes, .msg_controllen = sizeof(bytes)
        };

        if (recvmsg(0, &msg, MSG_CMSG_CLOEXEC) <= 0)
            _exit(0);
    }
}

/* Is it one of those in which commands run when there are `count`? */
static bool is_asked(unsigned number, unsigned count)
{
    for (unsigned i = 0; i < MANY_EACH; i++)
        if (i * 7919u % count == number)
            return true;
    return false;
}

static unsigned left;
static void see(const char id[BOX_ID_SIZE])
{
    (void)id;
    left++;
}

static void run_many(unsigned count)
{
    static struct made all[BOX_SLOTS];

    if (count > BOX_SLOTS)
        exit(64);
    int holder = start_holder();
    double empty = calm_kb();
    all[0] = create(0);
    settle();
    print_execs("one", all, 1);
    double begin = now_us(), since = begin, counted = 0;
    for (unsigned i = 1; i < count; i++) {
        all[i] = create(i);
        if (i >= MANY_EACH && !is_asked(i, count))
            give_link(holder, &all[i].link);
        if (i % MANY_FEW == 0) { /* does making one take longer, the more there are? */
            printf("create_at_%u %.0f\n", i, (now_us() - since) / MANY_FEW);
            fflush(stdout);
            since = now_us();
        }
        if (i % MANY_STEP == 0)
            settle();
        if (i == MANY_EACH + MANY_STEP) /* none of those that follow has run anything */
            counted = counted_kb();
        if (i == MANY_FEW - MANY_STEP) {
            printf("kb_counted %.1f\n",
                   (counted_kb() - counted) / (MANY_FEW - MANY_EACH - 2 * MANY_STEP));
        }
        if (i == MANY_EACH - 1) {
            double pause = now_us();

            settle();
            print_execs("few", all, MANY_EACH);
            begin += now_us() - pause;
            since += now_us() - pause;
        }
    }
    printf("create_ms %.0f\n", (now_us() - begin) / 1e3);
    settle();
    print_execs("all", all, count);
    printf("kb_all %.0f\n", counted_kb() - empty); /* and what is remembered is forgotten */
    begin = now_us();
    close(holder);
    waitpid(holder_pid, NULL, 0);
    for (unsigned i = 0; i < count; i++)
        destroy(&all[i]);
    printf("destroy_ms %.0f\n", (now_us() - begin) / 1e3);
    settle();
    cgroup_each(see);
    sockets_each(&box_host, see);
    printf("left %u\n", left);
    printf("kb_netns %.1f\n", netns_kb());
}

/* ---- one beside many ---- */

static double cpu_us(void)
{
    static const int whose[] = { RUSAGE_SELF, RUSAGE_CHILDREN };
    struct rusage usage;
    double us = 0;

    for (size_t i = 0; i < ARRAY_LEN(whose); i++) {
        getrusage(whose[i], &usage);
        us += (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e6 +
              (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
    }
    return us;
}

/* The numbers of the others begin at 1. */
static void print_beside(const char *name)
{
    double took[BESIDE_ROUNDS];

    settle();
    double cpu = cpu_us();
    for (unsigned i = 0; i < BESIDE_ROUNDS; i++) {
        double begin = now_us();
        struct made made = create(0);

        took[i] = now_us() - begin;
        destroy(&made);
        settle();
    }
    printf("%s_cpu %.0f\n%s", name, (cpu_us() - cpu) / BESIDE_ROUNDS, name);
    for (unsigned i = 0; i < BESIDE_ROUNDS; i++)
        printf(" %.1f", took[i]);
    puts("");
    fflush(stdout);
}

static void run_beside(unsigned count)
{
    static struct made all[BOX_SLOTS];

    if (count >= BOX_SLOTS)
        exit(64);
    int holder = start_holder();
    print_beside("warm");
    print_beside("first");
    for (unsigned i = 1; i <= count; i++) {
        all[i] = create(i);
        give_link(holder, &all[i].link);
        if (i % MANY_STEP == 0)
            settle();
    }
    print_beside("beside");
    close(holder);
    waitpid(holder_pid, NULL, 0);
    for (unsigned i = 1; i <= count; i++)
        destroy(&all[i]);
    print_beside("again");
}

/* ---- terminals ---- */

static double pty_through_init(int link, uint32_t exec, size_t bytes)
{
    static char in[INIT_FRAME_MAX];
    char text[256];
    struct init_exec wish = { .flags = INIT_TTY, .argc = 3, .timeout_ms = 60000 };
    size_t len = (size_t)snprintf(text, sizeof(text), "/bin/sh%c-c%chead -c %zu /dev/zero%c/%c", 0,
                                  0, bytes, 0, 0),
           got = 0;
    char body[sizeof(wish) + sizeof(text)];
    struct init_head head;

    wish.text_len = (uint32_t)len;
    memcpy(body, &wish, sizeof(wish));
    memcpy(body + sizeof(wish), text, len);
    double begin = now_us();
    send_frame(link, INIT_EXEC, exec, body, sizeof(wish) + len);
    do {
        struct init_output out;
        struct init_ack ack = { 0 };

        if (recv(link, in, sizeof(in), 0) < (ssize_t)sizeof(head))
            die("recv");
        memcpy(&head, in, sizeof(head));
        if (head.exec != exec || head.type != INIT_OUTPUT)
            continue;
        memcpy(&out, in + sizeof(head), sizeof(out));
        size_t n = head.len - sizeof(out);
        got += n;
        ack.position[out.stream] = out.position + n;
        send_frame(link, INIT_ACK, exec, &ack, sizeof(ack));
    } while (head.exec != exec || head.type != INIT_EXITED);
    double took = now_us() - begin;
    if (got < bytes)
        die("output is missing");
    send_frame(link, INIT_FORGET, exec, NULL, 0);
    return (double)bytes / took;
}

static double pty_plain(size_t bytes)
{
    static char in[65536];
    int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    char name[64], command[64];
    ssize_t got;

    if (master < 0 || grantpt(master) < 0 || unlockpt(master) < 0 ||
        ptsname_r(master, name, sizeof(name)) != 0)
        die("pty");
    int slave = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
    snprintf(command, sizeof(command), "head -c %zu /dev/zero", bytes);
    double begin = now_us();
    pid_t pid = fork();
    if (pid == 0) {
        dup2(slave, 1);
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    close(slave);
    while ((got = read(master, in, sizeof(in))) > 0)
        ;
    double took = now_us() - begin;
    waitpid(pid, NULL, 0);
    close(master);
    return (double)bytes / took;
}

static void run_pty(size_t megabytes)
{
    struct made made = create(0);
    double got[2][9];

    for (unsigned i = 0; i < 9; i++) {
        got[0][i] = pty_plain(megabytes << 20);
        got[1][i] = pty_through_init(made.link, i + 1, megabytes << 20);
    }
    for (int k = 0; k < 2; k++) {
        printf("%s", k ? "relay" : "plain");
        for (unsigned i = 0; i < 9; i++)
            printf(" %.1f", got[k][i]);
        puts("");
    }
    destroy(&made);
}

#include "disk.h"

int main(int argc, char **argv)
{
    const char *what = NULL, *mode = argc > 3 ? argv[1] : "";
    long number = argc > 3 ? strtol(argv[2], NULL, 10) : 0;
    sigset_t child;

    if (strcmp(mode, "inside") == 0) {
        serve_inside();
        return 0;
    }
    if (number < 1 || number > ROUNDS_MAX)
        return fprintf(stderr, "usage: box cycle|loop|many|beside|pty|disk NUMBER STATE […]\n"), 64;
    /* As `atoll serve` does: five thousand boxes have more than the usual limit. */
    (void)!setrlimit(RLIMIT_NOFILE, &(struct rlimit){ SERVER_NOFILE, SERVER_NOFILE });
    int state = open(argv[3], O_PATH | O_DIRECTORY | O_CLOEXEC);
    sigaction(SIGCHLD, &(struct sigaction){ .sa_handler = on_child }, NULL);
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child, NULL);
    /* Two at once must not share user ids. */
    uint32_t base = 800000000u + (uint32_t)(getpid() % 4) * 600000000u;
    if (state < 0 || boxes_open(state, base, hear, NULL, &what) < 0)
        die(what ? what : argv[3]);
    clear();
    if (strcmp(mode, "cycle") == 0)
        run_cycles((int)number, argc - 4, argv + 4);
    else if (strcmp(mode, "loop") == 0)
        run_loop((int)number, argv + 4);
    else if (strcmp(mode, "many") == 0)
        run_many((unsigned)number);
    else if (strcmp(mode, "beside") == 0)
        run_beside((unsigned)number);
    else if (strcmp(mode, "pty") == 0)
        run_pty((size_t)number);
    else if (strcmp(mode, "disk") == 0)
        disk_bench((int)number);
    boxes_close();
    return 0;
}
