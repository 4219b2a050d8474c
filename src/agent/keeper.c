/*
 * Theory of operation: one poll loop over the command's output, its end (a pidfd), and the socket.
 *
 * A stream of which LINK_KEEP_MAX bytes are not acknowledged is not read, so the command waits in
 * its write, and a client that is away costs a bounded file. Acknowledged bytes are punched out.
 * When the command's first process ends, what is in the pipes is read without waiting for others
 * who may hold them open; then the result is written, beside and by a rename, because it means that
 * the files are complete.
 */
#include "agent/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/falloc.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <termios.h>

#include "agentic/sandbox/v1/agent.pb-c.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/mem.h"

#define SPEC_MAX (2u << 20)
#define PIECE 65536

typedef Agentic__Sandbox__V1__CommandRequest request_t;

static struct keeper {
    const request_t *request;
    int dir, listener, client; /* the socket; -1: nobody */
    int pidfd, in;             /* in: its standard input, or the terminal */
    struct {
        int from, to; /* what it writes to, and the file */
        uint64_t end, acked, punched;
    } streams[2];
    pid_t pid;
    int64_t began_ms, deadline_ms;                          /* 0: none */
    char data[sizeof(struct keeper_msg) + KEEPER_DATA_MAX]; /* input that it has not taken yet */
    size_t at, left;
    bool timed_out, eof;
} keeper;

/* ---- the result ---- */

static int put_file(const char *name, const void *data, size_t len)
{
    autoclose int fd =
        openat(keeper.dir, "part", O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);

    if (fd < 0 || write(fd, data, len) != (ssize_t)len)
        return -1;
    return renameat(keeper.dir, "part", keeper.dir, name);
}

static void put_result(int32_t exit_code, const char *error)
{
    Agentic__Sandbox__V1__CommandResult result = AGENTIC__SANDBOX__V1__COMMAND_RESULT__INIT;
    uint8_t packed[4096];

    result.command_id = keeper.request->command_id;
    result.exit_code = exit_code;
    result.error = (char *)(uintptr_t)error;
    result.duration_ms = clock_mono_ms() - keeper.began_ms;
    result.success = exit_code == 0;
    if (agentic__sandbox__v1__command_result__get_packed_size(&result) <= sizeof(packed))
        put_file("result", packed, agentic__sandbox__v1__command_result__pack(&result, packed));
}

static void poke(void)
{
    const struct keeper_msg msg = { .verb = KEEPER_MORE };

    /* One that is full is awake already. */
    if (keeper.client >= 0)
        (void)send(keeper.client, &msg, sizeof(msg), MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* ---- output ---- */

/* False: nothing more comes from there. */
static bool take_output(unsigned stream)
{
    static char data[PIECE];
    ssize_t got = read(keeper.streams[stream].from, data, sizeof(data));

    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return true;
    if (got <= 0) { /* a terminal whose other side is closed says EIO */
        if (keeper.streams[stream].from != keeper.in)
            close(keeper.streams[stream].from);
        keeper.streams[stream].from = -1;
        return false;
    }
    for (ssize_t done = 0; done < got;) {
        ssize_t put = pwrite(keeper.streams[stream].to, data + done, (size_t)(got - done),
                             (off_t)keeper.streams[stream].end);

        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0) { /* a full disk: the command waits for it, as with any file */
            poll(NULL, 0, 200);
            continue;
        }
        done += put;
        keeper.streams[stream].end += (uint64_t)put;
    }
    return true;
}

static bool has_more(int fd)
{
    struct pollfd pfd = { .fd = fd, .events = POLLIN };

    return fd >= 0 && poll(&pfd, 1, 0) == 1 && pfd.revents & POLLIN;
}

static void drain(void)
{
    for (unsigned stream = 0; stream < 2; stream++)
        while (has_more(keeper.streams[stream].from) && take_output(stream))
            ;
}

static bool held(unsigned stream)
{
    return keeper.streams[stream].end - keeper.streams[stream].acked >= LINK_KEEP_MAX;
}

static void acked(unsigned stream, uint64_t position)
{
    if (stream > 1 || position > keeper.streams[stream].end)
        return;
    if (position > keeper.streams[stream].acked)
        keeper.streams[stream].acked = position;
    uint64_t upto = keeper.streams[stream].acked & ~(uint64_t)4095;
    if (upto - keeper.streams[stream].punched < (1u << 20))
        return;
    /* Where the file system cannot, the file grows. */
    (void)fallocate(keeper.streams[stream].to, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                    (off_t)keeper.streams[stream].punched,
                    (off_t)(upto - keeper.streams[stream].punched));
    keeper.streams[stream].punched = upto;
}

/* ---- what the client wants ---- */

static void close_input(void)
{
    if (keeper.in < 0)
        return;
    if (keeper.request->allocate_pty) {
        (void)!write(keeper.in, "\x04", 1); /* a terminal has no end; this says that it is meant */
        return;
    }
    close(keeper.in);
    keeper.in = -1;
}

static void give_input(void)
{
    while (keeper.left && keeper.in >= 0) {
        ssize_t put = write(keeper.in, keeper.data + keeper.at, keeper.left);

        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0 && errno == EAGAIN)
            return;
        if (put < 0) { /* nobody reads it any more */
            keeper.left = 0;
            return;
        }
        keeper.at += (size_t)put;
        keeper.left -= (size_t)put;
    }
    keeper.left = keeper.in < 0 ? 0 : keeper.left;
}

static void resize(uint32_t rows, uint64_t cols)
{
    struct winsize size = { .ws_row = (unsigned short)MIN(rows, 1000u),
                            .ws_col = (unsigned short)MIN(cols, (uint64_t)1000) };

    if (keeper.request->allocate_pty && keeper.in >= 0 && size.ws_row && size.ws_col)
        ioctl(keeper.in, TIOCSWINSZ, &size); /* the kernel says SIGWINCH by itself */
}

static void hear(void)
{
    struct keeper_msg msg;
    ssize_t got = recv(keeper.client, keeper.data, sizeof(keeper.data), 0);

    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got < (ssize_t)sizeof(msg)) {
        close(keeper.client);
        keeper.client = -1;
        return;
    }
    memcpy(&msg, keeper.data, sizeof(msg));
    switch (msg.verb) {
    case KEEPER_INPUT:
        keeper.at = sizeof(msg);
        keeper.left = (size_t)got - sizeof(msg);
        give_input();
        break;
    case KEEPER_EOF:
        keeper.eof = true;
        break;
    case KEEPER_SIGNAL:
        if (msg.number >= 1 && msg.number <= 64)
            kill(-keeper.pid, (int)msg.number);
        break;
    case KEEPER_SIZE:
        resize(msg.number, msg.position);
        break;
    case KEEPER_ACK:
        acked(msg.number, msg.position);
        break;
    default:
        break;
    }
    if (keeper.eof && !keeper.left) {
        close_input();
        keeper.eof = false;
    }
}

/* A newer client takes the place of an older one. */
static void greet(void)
{
    int fd = accept4(keeper.listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    if (fd < 0)
        return;
    if (keeper.client >= 0)
        close(keeper.client);
    keeper.client = fd;
    poke();
}

/* ---- the command ---- */

static void quit(int status, const char *error)
{
    put_result(status, error);
    poke();
    exit(0);
}

static bool is_shell(const char *command)
{
    static const char *const shells[] = { "bash", "sh", "zsh", "fish", "dash" };
    const char *name = strrchr(command, '/');

    name = name ? name + 1 : command;
    for (size_t i = 0; i < ARRAY_LEN(shells); i++)
        if (strcmp(name, shells[i]) == 0)
            return true;
    return false;
}

/* A terminal without arguments is for a person: a shell is a login shell, else a line for one. */
static char **make_argv(const request_t *request)
{
    char **argv = xcalloc(request->n_args + 10, sizeof(char *));
    bool line = request->allocate_pty && !request->n_args;
    const struct passwd *me = getpwuid(geteuid());
    size_t at = 0;

    if (request->run_as[0] && (!me || strcmp(me->pw_name, request->run_as) != 0)) {
        static const char *const sudo[] = { "sudo", "-n", "-u" };

        for (size_t i = 0; i < ARRAY_LEN(sudo); i++)
            argv[at++] = (char *)(uintptr_t)sudo[i];
        argv[at++] = request->run_as;
        argv[at++] = (char *)(uintptr_t) "--";
    }
    if (line && !is_shell(request->command)) {
        argv[at++] = (char *)(uintptr_t) "bash";
        argv[at++] = (char *)(uintptr_t) "-c";
    }
    argv[at++] = request->command;
    if (line && is_shell(request->command))
        argv[at++] = (char *)(uintptr_t) "-l";
    for (size_t i = 0; i < request->n_args; i++)
        argv[at++] = request->args[i];
    return argv;
}

static int enter_directory(const request_t *request)
{
    const char *dir = request->working_dir, *home = getenv("HOME");

    if (strcmp(dir, "~") == 0)
        dir = home ? home : "/";
    return dir[0] ? chdir(dir) : 0;
}

/* In the child: `error` gets errno when it cannot become the command. */
_Noreturn static void become(const request_t *request, const int fds[3], int error)
{
    char **argv = make_argv(request);
    sigset_t none;

    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    sigaction(SIGPIPE, &(struct sigaction){ .sa_handler = SIG_DFL }, NULL);
    setsid();
    for (int i = 0; i < 3; i++)
        if (dup2(fds[i], i) < 0)
            _exit(127);
    if (request->allocate_pty) {
        ioctl(0, TIOCSCTTY, 0);
        setenv("TERM", request->pty_term[0] ? request->pty_term : "xterm-256color", 1);
    }
    unsetenv("AGENT_SECRET");
    for (size_t i = 0; i < request->n_env; i++)
        setenv(request->env[i]->key, request->env[i]->value, 1);
    if (enter_directory(request) == 0)
        execvp(argv[0], argv);
    int failed = errno;
    (void)!write(error, &failed, sizeof(failed));
    _exit(127);
}

static int open_terminal(int fds[3])
{
    int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    char name[64];
    struct winsize size = { .ws_row = (unsigned short)(keeper.request->pty_rows % 1001),
                            .ws_col = (unsigned short)(keeper.request->pty_cols % 1001) };

    if (master < 0 || grantpt(master) < 0 || unlockpt(master) < 0 ||
        ptsname_r(master, name, sizeof(name)) != 0)
        return -1;
    int slave = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (slave < 0)
        return -1;
    size.ws_row = size.ws_row ? size.ws_row : 24;
    size.ws_col = size.ws_col ? size.ws_col : 80;
    ioctl(master, TIOCSWINSZ, &size);
    fcntl(master, F_SETFL, O_NONBLOCK);
    keeper.in = keeper.streams[0].from = master;
    fds[0] = fds[1] = fds[2] = slave;
    return 0;
}

static int open_pipes(int fds[3])
{
    int pipes[3][2];

    for (int i = 0; i < 3; i++)
        if (pipe2(pipes[i], O_CLOEXEC) < 0)
            return -1;
    keeper.in = pipes[0][1];
    fcntl(keeper.in, F_SETFL, O_NONBLOCK);
    for (int i = 0; i < 2; i++) {
        keeper.streams[i].from = pipes[i + 1][0];
        fcntl(keeper.streams[i].from, F_SETFL, O_NONBLOCK);
    }
    fds[0] = pipes[0][0];
    fds[1] = pipes[1][1];
    fds[2] = pipes[2][1];
    return 0;
}

static void start_command(void)
{
    int fds[3], error[2], failed = 0;

    if ((keeper.request->allocate_pty ? open_terminal(fds) : open_pipes(fds)) < 0 ||
        pipe2(error, O_CLOEXEC) < 0)
        quit(-1, "no terminal or pipe can be made");
    keeper.pid = fork();
    if (keeper.pid < 0)
        quit(-1, "no process can be made");
    if (keeper.pid == 0)
        become(keeper.request, fds, error[1]);
    close(error[1]);
    for (int i = 0; i < 3; i++)
        if (i == 0 || fds[i] != fds[0])
            close(fds[i]);
    if (read(error[0], &failed, sizeof(failed)) == (ssize_t)sizeof(failed)) {
        char text[256];

        waitpid(keeper.pid, NULL, 0);
        snprintf(text, sizeof(text), "cannot start %.150s: %s", keeper.request->command,
                 strerrordesc_np(failed));
        quit(-1, text);
    }
    close(error[0]);
    keeper.pidfd = (int)syscall(SYS_pidfd_open, keeper.pid, 0);
}

static void ended(void)
{
    int status = 0;

    drain();
    waitpid(keeper.pid, &status, 0);
    if (keeper.timed_out)
        quit(-1, "Command timed out");
    quit(WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status), "");
}

/* ---- the loop ---- */

static int wait_ms(void)
{
    if (!keeper.deadline_ms || keeper.timed_out)
        return -1;
    int64_t left = keeper.deadline_ms - clock_mono_ms();
    return left <= 0 ? 0 : (int)MIN(left, (int64_t)60000);
}

_Noreturn static void keep(void)
{
    for (;;) {
        bool full[2] = { held(0), held(1) };
        struct pollfd fds[] = {
            { .fd = full[0] || full[1] ? -1 : keeper.pidfd, .events = POLLIN },
            { .fd = full[0] ? -1 : keeper.streams[0].from, .events = POLLIN },
            { .fd = full[1] ? -1 : keeper.streams[1].from, .events = POLLIN },
            { .fd = keeper.listener, .events = POLLIN },
            { .fd = keeper.left ? -1 : keeper.client, .events = POLLIN },
            { .fd = keeper.left ? keeper.in : -1, .events = POLLOUT },
        };

        if (poll(fds, ARRAY_LEN(fds), wait_ms()) < 0 && errno != EINTR)
            exit(1);
        if (keeper.deadline_ms && clock_mono_ms() >= keeper.deadline_ms && !keeper.timed_out) {
            keeper.timed_out = true;
            kill(-keeper.pid, SIGKILL);
        }
        for (unsigned stream = 0; stream < 2; stream++)
            if (fds[1 + stream].revents) {
                take_output(stream);
                poke();
            }
        if (fds[3].revents)
            greet();
        if (fds[4].revents)
            hear();
        if (fds[5].revents)
            give_input();
        if (fds[0].revents & POLLIN)
            ended();
    }
}

/* ---- the beginning ---- */

static const request_t *read_spec(void)
{
    autoclose int fd = openat(keeper.dir, "spec", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    uint8_t *bytes = xmalloc(SPEC_MAX);
    ssize_t got = fd < 0 ? -1 : read(fd, bytes, SPEC_MAX);
    request_t *request =
        got <= 0 ? NULL : agentic__sandbox__v1__command_request__unpack(NULL, (size_t)got, bytes);

    free(bytes);
    return request;
}

static int open_stream(unsigned stream, const char *name)
{
    keeper.streams[stream].from = -1;
    keeper.streams[stream].to =
        openat(keeper.dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    return keeper.streams[stream].to;
}

/* Socket names are short, and directories long: the way is by the descriptor. */
static struct sockaddr_un ctl_address(int dir)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };

    snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/ctl", dir);
    return address;
}

static int open_ctl(void)
{
    struct sockaddr_un address = ctl_address(keeper.dir);

    keeper.listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    return keeper.listener < 0 ||
                   bind(keeper.listener, (struct sockaddr *)&address, sizeof(address)) < 0
               ? -1
               : listen(keeper.listener, 4);
}

int keeper_main(void)
{
    keeper.dir = KEEPER_DIR_FD;
    keeper.client = keeper.in = keeper.pidfd = -1;
    keeper.began_ms = clock_mono_ms();
    fcntl(keeper.dir, F_SETFD, FD_CLOEXEC);
    prctl(PR_SET_NAME, "atoll-keeper", 0, 0, 0);
    sigaction(SIGPIPE, &(struct sigaction){ .sa_handler = SIG_IGN }, NULL);
    keeper.request = read_spec();
    if (!keeper.request) {
        fprintf(stderr, "atoll agent-keep is a part of agent-client\n");
        return 64;
    }
    if (open_stream(0, "out") < 0 || open_stream(1, "err") < 0 || open_ctl() < 0)
        return 1; /* there is one already, or the disk is full: the client sees that none is here */
    if (keeper.request->timeout_seconds > 0)
        keeper.deadline_ms = keeper.began_ms + (int64_t)keeper.request->timeout_seconds * 1000;
    start_command();
    keep();
}

/* ---- for the client ---- */

int keeper_start(int dir, struct err *err)
{
    char *argv[] = { (char *)(uintptr_t) "atoll", (char *)(uintptr_t) "agent-keep", NULL };
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    sigset_t none, all;
    pid_t pid;

    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setflags(&attr,
                             POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setsigdefault(&attr, &all);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDWR, 0);
    posix_spawn_file_actions_adddup2(&actions, dir, KEEPER_DIR_FD);
    posix_spawn_file_actions_addclosefrom_np(&actions, KEEPER_DIR_FD + 1);
    int rc = posix_spawn(&pid, "/proc/self/exe", &actions, &attr, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attr);
    if (rc == 0)
        return 0;
    errno = rc;
    return err_sys(err, "start a keeper");
}

int keeper_connect(int dir)
{
    struct sockaddr_un address = ctl_address(dir);
    autoclose int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
        return -1;
    return take_fd(&fd);
}
