/*
 * The real atoll-warden against api processes that misbehave.
 *
 * This program is also the api process: `atoll serve` gives the warden a descriptor of the program
 * to run, and here that is ourselves. When we are started as "atoll api", a constructor plays the
 * part that the settings (here plain text) name, before any test framework runs. So everything the
 * warden does to a child, and everything a child can do to it, is seen from both ends.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/id.h"
#include "base/mem.h"
#include "base/test.h"
#include "warden/warden.h"

#define FAKE_UID 64200
#define SEALS (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)

/* ---- the part of the api process ---- */

static void fake_say(const char *text)
{
    dprintf(2, "fake: %s\n", text);
}

static void fake_send(enum wire_verb verb, uint32_t number, int32_t status)
{
    struct wire_msg msg = { .verb = (uint16_t)verb, .number = number, .status = status };

    if (verb == WIRE_HELLO) {
        msg.hello.role = WIRE_ROLE_API;
        msg.hello.pid = (uint32_t)getpid();
    }
    if (verb == WIRE_RELOADED && status)
        snprintf(msg.text, sizeof(msg.text), "the fake says no\n");
    if (wire_send(API_FD_LINK, &msg, NULL, 0) < 0)
        fake_say("send failed");
}

/* Waits for a message; the verb, or 0 at the end. */
static unsigned fake_hear(struct wire_msg *msg)
{
    int fds[WIRE_FDS_MAX], got;
    unsigned count;

    fcntl(API_FD_LINK, F_SETFL, 0); /* blocking */
    got = wire_recv(API_FD_LINK, msg, fds, &count);
    for (unsigned i = 0; got == 1 && i < count; i++) {
        char text[64] = "";

        if (pread(fds[i], text, sizeof(text) - 1, 0) >= 0)
            dprintf(2, "fake: settings %s seals %d\n", text, fcntl(fds[i], F_GET_SEALS) & SEALS);
        close(fds[i]);
    }
    return got == 1 ? msg->verb : 0;
}

static _Noreturn void fake_serve(bool obey, int32_t reload_status)
{
    struct wire_msg msg;
    unsigned verb;

    fake_send(WIRE_HELLO, 1, 0);
    if (fake_hear(&msg) != WIRE_HELLO || msg.hello.role != WIRE_ROLE_WARDEN)
        fake_say("no hello back");
    dprintf(2, "fake: readies %u\n", msg.hello.readies);
    fake_send(WIRE_READY, 2, 0);
    while ((verb = fake_hear(&msg)) != 0) {
        if (verb == WIRE_STOP && obey)
            _exit(0);
        if (verb == WIRE_PING && obey)
            fake_send(WIRE_PONG, msg.number, 0);
        if (verb == WIRE_RELOAD && reload_status == ENOTRECOVERABLE)
            abort();
        if (verb == WIRE_RELOAD)
            fake_send(WIRE_RELOADED, msg.number, reload_status);
    }
    fake_say("link ended");
    _exit(0);
}

static void fake_facts(void)
{
    static const char *const wanted[] = { "Uid:", "Gid:", "Groups:", "Cap", "NoNewPrivs:" };
    char line[256];
    FILE *file = fopen("/proc/self/status", "re");

    while (file && fgets(line, sizeof(line), file))
        for (size_t i = 0; i < ARRAY_LEN(wanted); i++)
            if (strncmp(line, wanted[i], strlen(wanted[i])) == 0)
                dprintf(2, "fact %s", line);
    if (file)
        fclose(file);
    for (int fd = 0; fd < 100; fd++)
        if (fcntl(fd, F_GETFD) >= 0)
            dprintf(2, "fact fd %d\n", fd);
    int death = 0;
    prctl(PR_GET_PDEATHSIG, &death, 0, 0, 0);
    dprintf(2, "fact pdeathsig %d\nfact cwd %s\nfact session %d\nfact environ %s\n", death,
            getcwd(line, sizeof(line)), getsid(0) == getpid(), environ[0] ? environ[0] : "none");
    dprintf(2, "facts end\n");
}

static void fake_garbage(void)
{
    struct {
        uint16_t size, choice, verb;
        unsigned char data[600];
    } dice;

    fake_send(WIRE_HELLO, 1, 0);
    fcntl(API_FD_LINK, F_SETFL, O_NONBLOCK);
    for (int round = 0; round < 1000; round++) {
        random_bytes(&dice, sizeof(dice));
        size_t size = dice.size % sizeof(dice.data);
        if (dice.choice % 2) { /* a good head over garbage */
            struct wire_msg msg = { .magic = WIRE_MAGIC, .version = WIRE_VERSION };

            msg.verb = (uint16_t)(dice.verb % (WIRE_VERBS + 1));
            memcpy(dice.data, &msg, 8);
            size = WIRE_SIZE;
        }
        if (send(API_FD_LINK, dice.data, size, MSG_NOSIGNAL) < 0 && errno != EAGAIN)
            break;
    }
    pause();
}

static void fake_descriptors(void)
{
    struct wire_msg msg = { .verb = WIRE_READY };
    int fds[] = { 0, 1, 2, 0 };

    fake_send(WIRE_HELLO, 1, 0);
    if (wire_send(API_FD_LINK, &msg, fds, 4) < 0)
        fake_say("descriptors refused by the kernel");
    fake_send(WIRE_STOP, 1, 0); /* and a verb that is not a child's */
    pause();
}

static void fake_flood(void)
{
    fake_send(WIRE_HELLO, 1, 0);
    fake_send(WIRE_READY, 2, 0);
    for (int i = 0; i < 100000; i++)
        if (wire_send(API_FD_LINK, &(struct wire_msg){ .verb = WIRE_PING }, NULL, 0) < 0)
            usleep(100);
}

static _Noreturn void fake_api(void)
{
    char part[64] = "";

    if (pread(API_FD_SETTINGS, part, sizeof(part) - 1, 0) < 0)
        _exit(3);
    if (strcmp(part, "crash") == 0)
        abort();
    if (strcmp(part, "final") == 0)
        _exit(API_EXIT_FINAL);
    if (strcmp(part, "facts") == 0)
        fake_facts();
    if (strcmp(part, "garbage") == 0)
        fake_garbage();
    if (strcmp(part, "descriptors") == 0)
        fake_descriptors();
    if (strcmp(part, "flood") == 0)
        fake_flood();
    if (strcmp(part, "twice") == 0)
        fake_send(WIRE_HELLO, 1, 0);
    if (strcmp(part, "mute") == 0) {
        struct wire_msg msg;

        fake_send(WIRE_HELLO, 1, 0);
        fake_hear(&msg);
        close(API_FD_LINK);
        for (;;)
            pause();
    }
    fake_serve(strcmp(part, "hang") != 0, strcmp(part, "refuse") == 0   ? EINVAL
                                          : strcmp(part, "mortal") == 0 ? ENOTRECOVERABLE
                                                                        : 0);
}

/* Quiet, so that what is said is the api process's; egress_test.c is about this one. */
static _Noreturn void fake_egress(void)
{
    struct wire_msg msg = { .verb = WIRE_HELLO,
                            .hello = { .role = WIRE_ROLE_EGRESS, .pid = (uint32_t)getpid() } };
    int fds[WIRE_FDS_MAX];
    unsigned count;

    fcntl(EGRESS_FD_LINK, F_SETFL, 0);
    if (wire_send(EGRESS_FD_LINK, &msg, NULL, 0) == 0)
        while (wire_recv(EGRESS_FD_LINK, &msg, fds, &count) == 1)
            ;
    _exit(0);
}

static _Noreturn void fake_resolve(char **argv)
{
    while (argv[1])
        argv++;
    if (strcmp(argv[0], "--resolve") != 0 || strcmp(argv[-1], "bad") == 0)
        _exit(1);
    _exit(write(RESOLVE_FD_OUT, argv[-1], strlen(argv[-1])) > 0 ? 0 : 1);
}

__attribute__((constructor)) static void play(int argc, char **argv, char **envp)
{
    (void)envp;
    if (argc < 2 || strcmp(argv[0], "atoll") != 0)
        return;
    if (strcmp(argv[1], "api") == 0)
        fake_api();
    if (strcmp(argv[1], "egress") == 0)
        fake_egress();
    fake_resolve(argv);
}

/* ---- the part of `atoll serve` ---- */

struct server {
    pid_t pid;
    const char *dir;
    char *log_path; /* owned */
    char log[65536];
};

static _Noreturn void become_warden(const struct server *server, const char *part, bool as_root,
                                    const char *serve_arg)
{
    char warden[4096], uid[16], layout[16];
    const char *root = as_root ? uid : "-1";
    struct sockaddr_un addr = { .sun_family = AF_UNIX };

    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0); /* a failed test leaves nothing behind */
    snprintf(uid, sizeof(uid), "%d", FAKE_UID);
    snprintf(layout, sizeof(layout), "%d", WARDEN_LAYOUT);
    ssize_t len = readlink("/proc/self/exe", warden, sizeof(warden) - 64);
    if (len < 0)
        _exit(90);
    warden[len] = 0;
    for (int up = 0; up < 3; up++)
        *strrchr(warden, '/') = 0;
    const char *without = getenv("ATOLL_WITHOUT"); /* base/guard.h */
    snprintf(warden + strlen(warden), 32, "%s/atoll-warden",
             without && *without ? "/unguarded" : "");
    snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/atoll.sock", server->dir);

    int fds[] = { memfd_create("start", MFD_ALLOW_SEALING | MFD_CLOEXEC),
                  memfd_create("settings", MFD_ALLOW_SEALING | MFD_CLOEXEC),
                  open("/proc/self/exe", O_PATH | O_CLOEXEC),
                  open(server->dir, O_PATH | O_DIRECTORY | O_CLOEXEC),
                  openat(AT_FDCWD, server->log_path, O_RDWR | O_CLOEXEC),
                  open(server->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC),
                  open("/dev/null", O_RDONLY | O_CLOEXEC),
                  open("/dev/null", O_RDONLY | O_CLOEXEC),
                  socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0) };
    int log_fd = open(server->log_path, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (write(fds[1], part, strlen(part)) < 0 || dup2(log_fd, 1) < 0 || dup2(log_fd, 2) < 0 ||
        bind(fds[8], (struct sockaddr *)&addr, sizeof(addr)) < 0 || listen(fds[8], 8) < 0)
        _exit(91);
    int exec_fd = layout_place(fds, ARRAY_LEN(fds), 0);
    if (exec_fd < 0)
        _exit(92);
    execl(warden, "atoll-warden", layout, root, root, "1", "0", "0", "3000", "-1", "0", "serve",
          serve_arg, (char *)NULL);
    _exit(93);
}

static struct server *start(const char *part, const char *serve_arg)
{
    struct server *server = xnew(struct server);

    server->dir = test_dir();
    CHECK(chmod(server->dir, 0711) == 0);
    server->log_path = xprintf("%s/log", server->dir);
    int fd = open(server->log_path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    CHECK(fd >= 0);
    close(fd);
    server->pid = fork();
    CHECK(server->pid >= 0);
    if (server->pid == 0)
        become_warden(server, part, geteuid() == 0, serve_arg);
    return server;
}

static const char *read_log(struct server *server)
{
    autoclose int fd = open(server->log_path, O_RDONLY | O_CLOEXEC);
    ssize_t len = read(fd, server->log, sizeof(server->log) - 1);

    CHECK(len >= 0);
    server->log[len] = 0;
    return server->log;
}

static int count_log(struct server *server, const char *text)
{
    int count = 0;

    for (const char *at = read_log(server); (at = strstr(at, text)); at++)
        count++;
    return count;
}

/* Until the log holds `text` `times` times; fails the test after `ms` (on a quiet machine). */
static void wait_log(struct server *server, const char *text, int times, int ms)
{
    int64_t until = clock_mono_ms() + test_patience(ms);

    while (count_log(server, text) < times) {
        if (clock_mono_ms() > until)
            test_fail(__FILE__, __LINE__, "no \"%s\" (%d times) in:\n%s", text, times, server->log);
        usleep(5000);
    }
}

/* Its exit status; fails the test after `ms` (on a quiet machine). */
static int wait_end(struct server *server, int ms)
{
    int64_t until = clock_mono_ms() + test_patience(ms);
    int status;

    while (waitpid(server->pid, &status, WNOHANG) == 0) {
        if (clock_mono_ms() > until) {
            kill(server->pid, SIGKILL);
            test_fail(__FILE__, __LINE__, "still running:\n%s", read_log(server));
        }
        usleep(5000);
    }
    if (!WIFEXITED(status))
        test_fail(__FILE__, __LINE__, "warden status %x:\n%s", status, read_log(server));
    return WEXITSTATUS(status);
}

static bool socket_left(const struct server *server)
{
    autofree char *path = xprintf("%s/atoll.sock", server->dir);

    return access(path, F_OK) == 0;
}

static void done(struct server *server)
{
    free(server->log_path);
    free(server);
}

/* Ends it with SIGTERM and expects a clean end. */
static void stop(struct server *server)
{
    CHECK(kill(server->pid, SIGTERM) == 0);
    CHECK_INT(wait_end(server, 5000), 0);
    CHECK(!socket_left(server));
    done(server);
}

/* ---- what is expected ---- */

TEST(a_child_has_its_descriptors_and_no_privilege)
{
    struct server *server = start("facts", NULL);
    const char *log;

    wait_log(server, "fake: readies", 1, 5000);
    log = read_log(server);
    for (int fd = 0; fd < 100; fd++) {
        autofree char *line = xprintf("fact fd %d\n", fd);

        CHECK((strstr(log, line) != NULL) == (fd <= API_FD_LISTENERS));
    }
    CHECK(strstr(log, "fact NoNewPrivs:\t1\n"));
    CHECK(strstr(log, "fact CapEff:\t0000000000000000\n"));
    CHECK(strstr(log, "fact CapPrm:\t0000000000000000\n"));
    CHECK(strstr(log, "fact CapInh:\t0000000000000000\n"));
    CHECK(strstr(log, "fact CapAmb:\t0000000000000000\n"));
    CHECK(strstr(log, "fact pdeathsig 9\n"));
    CHECK(strstr(log, "fact cwd /\n"));
    CHECK(strstr(log, "fact session 1\n"));
    CHECK(strstr(log, "fact environ none\n"));
    if (geteuid() == 0) {
        CHECK(strstr(log, "fact CapBnd:\t0000000000000000\n"));
        CHECK(strstr(log, "fact Uid:\t64200\t64200\t64200\t64200\n"));
        CHECK(strstr(log, "fact Gid:\t64200\t64200\t64200\t64200\n"));
        CHECK(strstr(log, "fact Groups:\t \n"));
    }
    stop(server);
}

static bool is_fact(const char *without, const char *fact)
{
    CHECK(setenv("ATOLL_WITHOUT", without, 1) == 0);
    struct server *server = start("facts", NULL);
    CHECK(unsetenv("ATOLL_WITHOUT") == 0);
    wait_log(server, "fake: readies", 1, 5000);
    bool there = strstr(read_log(server), fact) != NULL;
    stop(server);
    return there;
}

/* It is by these guards, and by any of them where there are several, that this is so. */
static void so_unless_without(const char *guards, const char *fact)
{
    CHECK(is_fact("", fact));
    for (const char *at = guards; strchr(guards, ',') && *at; at += *at == ',') {
        size_t len = strcspn(at, ",");
        autofree char *alone = xprintf("%.*s", (int)len, at);

        at += len;
        if (!is_fact(alone, fact))
            test_fail(__FILE__, __LINE__, "not so without %s alone: %s", alone, fact);
    }
    if (is_fact(guards, fact))
        test_fail(__FILE__, __LINE__, "without %s, too: %s", guards, fact);
}

TEST(a_child_has_no_privilege_because_of_guards)
{
    if (geteuid() != 0)
        test_skip("there is nothing to give up");
    so_unless_without("child_user", "fact Uid:\t64200\t64200\t64200\t64200\n");
    so_unless_without("child_groups", "fact Gid:\t64200\t64200\t64200\t64200\n");
    so_unless_without("child_bounding", "fact CapBnd:\t0000000000000000\n");
    so_unless_without("child_user,child_bounding,child_caps", "fact CapEff:\t0000000000000000\n");
    so_unless_without("child_nnp,warden_nnp", "fact NoNewPrivs:\t1\n");
}

static char *status_line(pid_t pid, const char *key)
{
    autofree char *path = xprintf("/proc/%d/status", pid);
    FILE *file = fopen(path, "re");
    char line[256], *found = NULL;

    CHECK(file != NULL);
    while (!found && fgets(line, sizeof(line), file))
        if (strncmp(line, key, strlen(key)) == 0)
            found = xstrdup(line + strlen(key));
    fclose(file);
    CHECK(found != NULL);
    return found;
}

TEST(the_warden_keeps_only_what_it_needs)
{
    struct server *server = start("serve", NULL);

    wait_log(server, "fake: readies", 1, 5000);
    autofree char *effective = status_line(server->pid, "CapEff:\t");
    autofree char *bounding = status_line(server->pid, "CapBnd:\t");
    autofree char *nnp = status_line(server->pid, "NoNewPrivs:\t");
    /* CHOWN 0, DAC_OVERRIDE 1, DAC_READ_SEARCH 2, FOWNER 3, KILL 5, SETGID 6, SETUID 7, SETPCAP 8,
     * NET_BIND_SERVICE 10, NET_ADMIN 12,
     * SYS_CHROOT 18, SYS_PTRACE 19, SYS_ADMIN 21, SYS_RESOURCE 24, MKNOD 27 */
    const uint64_t needed = UINT64_C(0x92c15ef);

    CHECK_INT(strtoull(effective, NULL, 16) & ~needed, 0);
    if (geteuid() == 0) {
        CHECK_INT(strtoull(bounding, NULL, 16) & ~needed, 0);
        CHECK(strtoull(effective, NULL, 16) & 1 << 7);
    }
    CHECK_STR(nnp, "1\n");
    stop(server);
}

/* Each of these is killed and started again, more than once, and the warden takes no harm. */
static void check_killed(const char *part, const char *why)
{
    struct server *server = start(part, NULL);

    wait_log(server, why, 3, 10000);
    CHECK(kill(server->pid, 0) == 0);
    stop(server);
}

TEST(garbage_gets_the_child_killed)
{
    check_killed("garbage", "killing the api process");
}

TEST(a_flood_gets_the_child_killed)
{
    check_killed("flood", "why=\"too many messages\"");
}

TEST(descriptors_or_foreign_verbs_get_the_child_killed)
{
    check_killed("descriptors", "killing the api process");
}

TEST(a_second_hello_gets_the_child_killed)
{
    check_killed("twice", "why=\"wrong hello\"");
}

TEST(a_child_that_closes_its_link_is_killed)
{
    check_killed("mute", "why=\"it closed its link\"");
}

TEST(a_child_that_says_never_again_ends_the_server)
{
    struct server *server = start("final", NULL);

    CHECK_INT(wait_end(server, 5000), 1);
    CHECK_INT(count_log(server, "the api process ended"), 1);
    CHECK(!socket_left(server));
    done(server);
}

/* By its second word: there is an egress process, too. */
static bool is_api(pid_t pid)
{
    autofree char *path = xprintf("/proc/%d/cmdline", pid);
    autoclose int fd = open(path, O_RDONLY | O_CLOEXEC);
    char words[64] = "";

    return fd >= 0 && read(fd, words, sizeof(words) - 1) > 0 &&
           strcmp(words + strlen(words) + 1, "api") == 0;
}

static pid_t last_child(struct server *server)
{
    autofree char *path = xprintf("/proc/%d/task/%d/children", server->pid, server->pid);
    autoclose int fd = open(path, O_RDONLY | O_CLOEXEC);
    char text[128] = "", *at = text;

    CHECK(fd >= 0 && read(fd, text, sizeof(text) - 1) >= 0);
    for (pid_t pid; (pid = (pid_t)strtol(at, &at, 10)) > 0;)
        if (is_api(pid))
            return pid;
    return 0;
}

TEST(a_killed_child_is_back_within_a_second_time_after_time)
{
    struct server *server = start("serve", NULL);

    for (int round = 0; round < 20; round++) {
        autofree char *expected = xprintf("fake: readies %d\n", round);

        wait_log(server, expected, 1, 1000);
        usleep(20000); /* so that READY is heard: it forgives earlier deaths */
        pid_t pid = last_child(server);
        CHECK(pid > 0 && kill(pid, SIGKILL) == 0);
    }
    wait_log(server, "warden: serving", 21, 5000);
    stop(server);
}

TEST(a_child_dies_with_its_warden)
{
    struct server *server = start("serve", NULL);
    int status;

    wait_log(server, "fake: readies", 1, 5000);
    pid_t child = last_child(server);
    CHECK(kill(server->pid, SIGKILL) == 0);
    CHECK(waitpid(server->pid, &status, 0) == server->pid);
    for (int i = 0; i < 400 && kill(child, 0) == 0; i++)
        usleep(5000);
    CHECK(kill(child, 0) < 0 && errno == ESRCH);
    done(server);
}

TEST(new_settings_reach_the_child_sealed)
{
    struct server *server = start("serve", "newer");

    wait_log(server, "fake: readies", 1, 5000);
    CHECK(kill(server->pid, SIGHUP) == 0);
    wait_log(server, "settings reloaded", 1, 5000);
    autofree char *expected = xprintf("fake: settings newer seals %d", SEALS);
    CHECK_INT(count_log(server, expected), 1);
    stop(server);
}

TEST(refused_or_unreadable_settings_leave_the_old_ones)
{
    struct server *server = start("refuse", "newer");

    wait_log(server, "fake: readies", 1, 5000);
    CHECK(kill(server->pid, SIGHUP) == 0);
    wait_log(server, "refused, the old ones stay", 1, 5000);
    CHECK_INT(count_log(server, "why=\"the fake says no\\n\""), 1);
    stop(server);

    server = start("serve", "bad");
    wait_log(server, "fake: readies", 1, 5000);
    CHECK(kill(server->pid, SIGHUP) == 0);
    wait_log(server, "not good, the old ones stay", 1, 5000);
    CHECK_INT(count_log(server, "fake: settings"), 0);
    stop(server);
}

/* Until the process has taken the signal: two that wait together would count as one. */
static void wait_taken(pid_t pid, int signal)
{
    autofree char *path = xprintf("/proc/%d/status", (int)pid);

    for (int i = 0; i < 5000; i++) {
        FILE *status = fopen(path, "re");
        unsigned long long waiting = 0, mask;
        char line[128];

        CHECK(status != NULL);
        while (fgets(line, sizeof(line), status))
            if (sscanf(line, "SigPnd: %llx", &mask) == 1 ||
                sscanf(line, "ShdPnd: %llx", &mask) == 1)
                waiting |= mask;
        fclose(status);
        if (!(waiting >> (signal - 1) & 1))
            return;
        usleep(1000);
    }
    test_fail(__FILE__, __LINE__, "signal %d is not taken", signal);
}

TEST(a_reload_during_a_reload_is_not_lost)
{
    struct server *server = start("serve", "newer");

    wait_log(server, "warden: serving", 1, 5000); /* it looks at signals now */
    for (int i = 0; i < 3; i++) {
        CHECK(kill(server->pid, SIGHUP) == 0);
        wait_taken(server->pid, SIGHUP);
    }
    wait_log(server, "settings reloaded", 2, 5000);
    stop(server);
}

TEST(settings_that_kill_are_given_up_after_the_second_death)
{
    struct server *server = start("mortal", "newer");

    wait_log(server, "warden: serving", 1, 5000);
    CHECK(kill(server->pid, SIGHUP) == 0);
    wait_log(server, "died over the new settings, the old ones stay", 1, 5000);
    CHECK_INT(count_log(server, "fake: settings newer"), 2);
    wait_log(server, "warden: serving", 3, 5000);
    stop(server);
}

TEST(a_reload_waits_for_a_child_that_can_take_it)
{
    struct server *server = start("serve", "newer");

    wait_log(server, "fake: readies 0", 1, 5000);
    wait_log(server, "warden: serving", 1, 5000);
    CHECK(kill(last_child(server), SIGKILL) == 0);
    CHECK(kill(server->pid, SIGHUP) == 0);
    wait_log(server, "settings reloaded", 1, 5000);
    CHECK_INT(count_log(server, "fake: readies 1"), 1);
    stop(server);
}

/* The slow ones, side by side: no drain, no answer to pings, and death after death. */
TEST(the_patience_of_the_warden_ends)
{
    struct server *hang = start("hang", NULL), *crash = start("crash", NULL),
                  *deaf = start("hang", NULL);

    wait_log(deaf, "fake: readies", 1, 5000);
    CHECK(kill(deaf->pid, SIGTERM) == 0);
    CHECK_INT(wait_end(deaf, 5000), 0); /* drain_ms is 3000 here */
    CHECK_INT(count_log(deaf, "draining took too long"), 1);
    done(deaf);

    CHECK_INT(wait_end(crash, 25000), 1);
    CHECK_INT(count_log(crash, "the api process was killed"), 10); /* API_FAILED_STARTS_MAX */
    CHECK_INT(count_log(crash, "giving up"), 1);
    CHECK(!socket_left(crash));
    done(crash);

    wait_log(hang, "why=\"it does not answer\"", 1, 30000);
    wait_log(hang, "fake: readies 1", 1, 1000);
    CHECK(kill(hang->pid, SIGINT) == 0);
    usleep(50000);
    CHECK(kill(hang->pid, SIGINT) == 0); /* a second one does not wait */
    CHECK_INT(wait_end(hang, 1000), 0);
    done(hang);
}
