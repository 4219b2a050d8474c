/*
 * How it works: the keeper is this program again, as the hidden command `keep-server`. It starts
 * `atoll serve` with a socket for sd_notify, waits on three descriptors (that socket, the server's
 * end, its own standard input) and says one line on standard output: "ok DIR", or why not.
 */
#include "cli/private.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/vfs.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/mem.h"
#include "tree/tree.h"

#define START_MS 30000
#define STOP_MS 20000
#define ASK_MS 5000
#define ROOM_MIN (1ull << 30)
#define SELF "/proc/self/exe"

extern char **environ;

/* ---- starting processes ---- */

/*
 * The environment without our own variables: they are about another server. But for the one that
 * makes limits possible at all for an ordinary user, who has no other way to say it.
 */
static bool is_kept(const char *pair)
{
    static const char allow[] = "ATOLL_ALLOW_DEGRADED=";

    if (strncmp(pair, allow, sizeof(allow) - 1) == 0)
        return true;
    return strncmp(pair, "ATOLL_", 6) != 0 && strncmp(pair, "NOTIFY_SOCKET=", 14) != 0;
}

static char **clean_environment(struct arena *arena, const char *add)
{
    size_t count = 0, kept = 0;

    while (environ[count])
        count++;
    char **out = arena_alloc(arena, (count + 2) * sizeof(*out));
    for (size_t i = 0; i < count; i++)
        if (is_kept(environ[i]))
            out[kept++] = environ[i];
    if (add)
        out[kept++] = arena_strdup(arena, add);
    return out;
}

/* This program with other arguments, no signal blocked or ignored; fds become 0, 1 and 2. */
static int spawn_self(const char *const *argv, const int fds[3], const char *add, pid_t *out,
                      struct err *err)
{
    autoarena struct arena arena = { 0 };
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    sigset_t none, all;

    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setflags(&attr,
                             POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setsigdefault(&attr, &all);
    for (int i = 0; i < 3; i++)
        posix_spawn_file_actions_adddup2(&actions, fds[i], i);
    int rc = posix_spawn(out, SELF, &actions, &attr, (char *const *)argv,
                         clean_environment(&arena, add));
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&actions);
    if (rc == 0)
        return 0;
    errno = rc;
    return err_sys(err, "start %s", argv[1]);
}

/* A pipe whose ends are none of 0, 1 and 2, even if we were started without one of these. */
static int make_pipe(int *read_end, int *write_end, struct err *err)
{
    int ends[2];

    if (pipe2(ends, O_CLOEXEC) < 0)
        return err_sys(err, "make a pipe");
    *read_end = fcntl(ends[0], F_DUPFD_CLOEXEC, 3);
    *write_end = fcntl(ends[1], F_DUPFD_CLOEXEC, 3);
    close(ends[0]);
    close(ends[1]);
    return *read_end < 0 || *write_end < 0 ? err_sys(err, "make a pipe") : 0;
}

/* ---- the keeper ---- */

struct keeper {
    struct cli *cli;
    char top[PATH_MAX];     /* the directory that everything is in */
    char *state, *settings; /* owned */
    int log, notify, pidfd;
    pid_t server;
};

static void keeper_free(struct keeper *k)
{
    const int fds[] = { k->log, k->notify, k->pidfd };

    for (size_t i = 0; i < ARRAY_LEN(fds); i++)
        if (fds[i] >= 0)
            close(fds[i]);
    free(k->state);
    free(k->settings);
}

/*
 * In memory, where that has room: the files of a default image are several hundred, and to make
 * them on a busy disk takes a second.
 */
static const char *usual_place(void)
{
    static const char shared[] = "/dev/shm";
    struct statfs fs;

    return statfs(shared, &fs) == 0 && fs.f_type == TMPFS_MAGIC &&
                   (uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize >= ROOM_MIN
               ? shared
               : "/tmp";
}

static int make_top(struct keeper *k, struct err *err)
{
    const char *tmp = getenv("TMPDIR");

    snprintf(k->top, sizeof(k->top), "%s/atoll-run-XXXXXX",
             tmp && tmp[0] == '/' ? tmp : usual_place());
    if (!mkdtemp(k->top)) {
        int rc = err_sys(err, "make a directory %s", k->top);

        k->top[0] = 0;
        return rc;
    }
    /* The server's other users must be able to pass. */
    if (chmod(k->top, 0711) < 0)
        return err_sys(err, "chmod %s", k->top);
    k->state = xprintf("%s/state", k->top);
    k->settings = xprintf("%s/atoll.conf", k->top); /* empty: the machine's are not for us */
    autofree char *log = xprintf("%s/log", k->top);
    autoclose int none = open(k->settings, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    k->log = open(log, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_APPEND, 0600);
    return none < 0 || k->log < 0 ? err_sys(err, "make files in %s", k->top) : 0;
}

static int make_notify(struct keeper *k, struct err *err)
{
    struct sockaddr_un addr = { .sun_family = AF_UNIX };

    if ((size_t)snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/notify", k->top) >=
        sizeof(addr.sun_path))
        return err_set(err, ERR_INVALID, "TMPDIR is too long for a socket");
    k->notify = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (k->notify < 0 || bind(k->notify, (struct sockaddr *)&addr, sizeof(addr)) < 0)
        return err_sys(err, "listen at %s", addr.sun_path);
    return 0;
}

static int start_server(struct keeper *k, struct err *err)
{
    /* One sandbox and no more: nothing stands ready. */
    const char *argv[] = { "atoll",        "serve",     "--state", k->state, "--listen",       "",
                           "--config",     k->settings, "--drain", "0s",     "--pool-default", "0",
                           "--throw-away", NULL };
    autofree char *notify = xprintf("NOTIFY_SOCKET=%s/notify", k->top);
    autoclose int null = open("/dev/null", O_RDONLY | O_CLOEXEC);

    if (spawn_self(argv, (const int[]){ null, k->log, k->log }, notify, &k->server, err) < 0)
        return -1;
    k->pidfd = (int)syscall(SYS_pidfd_open, k->server, 0);
    return k->pidfd < 0 ? err_sys(err, "watch the server") : 0;
}

/* The last thing it said, without "atoll: " and the like, is why. */
static int why_not(struct keeper *k, struct err *err)
{
    char text[4096];
    off_t size = lseek(k->log, 0, SEEK_END);
    off_t from = size > (off_t)sizeof(text) ? size - (off_t)sizeof(text) : 0;
    ssize_t got = pread(k->log, text, sizeof(text), from);
    struct str last = { text, got > 0 ? (size_t)got : 0 };

    while (last.n && text[last.n - 1] == '\n')
        last.n--;
    const char *before = memrchr(text, '\n', last.n);
    if (before)
        last = str_from(last, (size_t)(before + 1 - text));
    if (str_starts(last, STR("atoll: ")))
        last = str_from(last, 7);
    return err_set(err, ERR_UNAVAILABLE, "%.*s", STR_FMT(last.n ? last : STR("it said nothing")));
}

/* 1: it serves. 0: nobody needs it any more. */
static int wait_ready(struct keeper *k, struct err *err)
{
    int64_t end = clock_mono_ms() + START_MS;

    for (;;) {
        struct pollfd fds[] = { { .fd = k->notify, .events = POLLIN },
                                { .fd = k->pidfd, .events = POLLIN },
                                { .fd = STDIN_FILENO, .events = POLLIN } };
        char text[256];
        int64_t left = end - clock_mono_ms();

        if (left <= 0)
            return err_set(err, ERR_TIMEOUT, "it was not ready within %d s", START_MS / 1000);
        if (poll(fds, ARRAY_LEN(fds), (int)left) < 0 && errno != EINTR)
            return err_sys(err, "wait for the server");
        if (fds[1].revents)
            return why_not(k, err);
        if (fds[2].revents)
            return 0;
        ssize_t got = fds[0].revents ? recv(k->notify, text, sizeof(text) - 1, MSG_DONTWAIT) : 0;
        if (got <= 0)
            continue;
        text[got] = 0;
        if (strstr(text, "READY=1"))
            return 1;
    }
}

/* Whoever used the server may not have had the time. */
static void remove_sandboxes(struct keeper *k)
{
    const struct json *list;
    struct err ignored = { 0 };

    if (cli_list(k->cli, &list, &ignored, "/api/v1/sandboxes") < 0)
        return;
    json_each(box, json_get(list, "items"))
    {
        struct str id = json_text(box, "id");

        (void)!cli_call(k->cli, "DELETE", STR_NONE, NULL, &ignored, "/api/v1/sandboxes/%.*s",
                        STR_FMT(id));
    }
}

static void stop_server(struct keeper *k)
{
    struct pollfd end = { .fd = k->pidfd, .events = POLLIN };

    if (!k->server)
        return;
    kill(k->server, SIGTERM);
    if (k->pidfd < 0 || poll(&end, 1, STOP_MS) <= 0)
        kill(k->server, SIGKILL);
    waitpid(k->server, NULL, 0);
}

static void remove_top(struct keeper *k)
{
    struct tree_fail fail;
    char *slash = strrchr(k->top, '/');

    if (!k->top[0])
        return;
    *slash = 0;
    autoclose int dir = open(k->top[0] ? k->top : "/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    (void)!tree_remove(dir, slash + 1, &fail);
}

static void say(const char *word, const char *text)
{
    autofree char *line = xprintf("%s %s\n", word, text);

    (void)!write(STDOUT_FILENO, line, strlen(line));
}

static int keep(struct keeper *k, struct err *err)
{
    struct pollfd fds[2] = { { .fd = STDIN_FILENO, .events = POLLIN } };

    if (make_top(k, err) < 0 || make_notify(k, err) < 0 || start_server(k, err) < 0)
        return -1;
    int ready = wait_ready(k, err);
    if (ready <= 0)
        return ready;
    if (endpoint_use_state(k->cli, k->state, err) < 0)
        return -1;
    say("ok", k->state);
    fds[1] = (struct pollfd){ .fd = k->pidfd, .events = POLLIN };
    while (poll(fds, 2, -1) < 0 && errno == EINTR)
        ;
    remove_sandboxes(k);
    return 0;
}

static int keep_run(struct cli *cli, struct err *err)
{
    auto_with(keeper_free) struct keeper k = { .cli = cli, .log = -1, .notify = -1, .pidfd = -1 };
    sigset_t deaf;

    /* Whoever started us decides when it is over, also after a `kill` of all of us. */
    sigemptyset(&deaf);
    sigaddset(&deaf, SIGINT);
    sigaddset(&deaf, SIGTERM);
    sigaddset(&deaf, SIGHUP);
    sigaddset(&deaf, SIGQUIT);
    sigprocmask(SIG_BLOCK, &deaf, NULL);
    prctl(PR_SET_NAME, "atoll-keeper");
    int rc = keep(&k, err);
    if (rc < 0)
        say("no", err->msg);
    stop_server(&k);
    remove_top(&k);
    return rc < 0 ? EXIT_ERROR : EXIT_OK; /* it has been said */
}

const struct command cmd_keep_server = {
    .name = "keep-server",
    .help = "Run a server until standard input ends; for the use of `atoll run`.",
    .traits = CMD_HIDDEN,
    .run = keep_run,
};

/* ---- the other side ---- */

bool private_wanted(struct cli *cli, struct err *err)
{
    bool named;
    struct err ignored = { 0 };
    autofree char *dir = cli_state_dir(cli, &named);

    if (endpoint_find(cli, err) < 0 || named || !cli->at.state)
        return false;
    autoclose int fd = sock_connect(cli->at.target.connect, ASK_MS, &ignored);
    return fd < 0;
}

/* "ok DIR" or "no WHY"; at the end of the stream the keeper is gone. */
static int hear(int fd, struct buf *line, struct err *err)
{
    char c;
    ssize_t got;

    while ((got = read(fd, &c, 1)) != 0 && c != '\n') {
        if (got < 0 && errno != EINTR)
            return err_sys(err, "wait for the server");
        if (got > 0)
            buf_putc(line, c);
    }
    struct str rest = buf_view(line), word = str_cut(&rest, ' ');
    if (str_is(word, "no"))
        return err_set(err, ERR_UNAVAILABLE, "%.*s", STR_FMT(rest));
    return str_is(word, "ok") && buf_ok(line) ? 0 : err_set(err, ERR_INTERNAL, "its keeper ended");
}

int private_start(struct cli *cli, struct private_server *out, struct err *err)
{
    const char *argv[] = { "atoll", "keep-server", NULL };
    autobuf struct buf line = { .max = PATH_MAX + 16 };
    autoclose int in_read = -1, in_write = -1, said_read = -1, said_write = -1;

    if (make_pipe(&in_read, &in_write, err) < 0 || make_pipe(&said_read, &said_write, err) < 0)
        return -1;
    if (spawn_self(argv, (const int[]){ in_read, said_write, STDERR_FILENO }, NULL, &out->keeper,
                   err) < 0)
        return -1;
    close(take_fd(&said_write));
    out->end = take_fd(&in_write);
    if (hear(said_read, &line, err) < 0) {
        private_stop(out);
        return err_wrap(err, "no server is running, and a private one cannot be started");
    }
    const char *state = buf_cstr(&line) + 3;
    return endpoint_use_state(cli, state, err);
}

void private_stop(struct private_server *server)
{
    if (server->end >= 0)
        close(server->end);
    while (server->keeper && waitpid(server->keeper, NULL, 0) < 0 && errno == EINTR)
        ;
    *server = PRIVATE_NONE;
}
