/*
 * Running commands in a sandbox that is there, or on a linked agent; `run`, which makes a sandbox,
 * is in oneshot.c.
 *
 * Output comes in frames over one connection (from a linked agent: as events) and is counted; when
 * the connection is lost (a server that restarts), the next one begins at the counts, and nothing
 * is printed twice. The command is held back when the output is not read, so nothing is missing
 * either. Where bytes are missing all the same, a note says how many, and the command's status is
 * ours. A second thread passes standard input and signals on, each as a request of its own, so that
 * a slow reader of output does not keep Ctrl-C from arriving.
 *
 * Input is counted too, by the server, whose answers say how far it is. A piece whose answer was
 * lost is sent again with its position, and the server leaves out what the command has of it. Not
 * so on a linked agent, whose input has no positions, and not from a terminal, where others may
 * type as well and a person sees what came.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/mem.h"
#include "cli/framed.h"
#include "cli/sandbox.h"
#include "cli/sse.h"

#define RETRY_MS 100
#define RETRY_MAX_MS 60000 /* of a server that is away before we give up */
#define TOLD_MS 5000       /* and while somebody wants us to end */
#define INPUT_CHUNK 65536

struct running {
    struct cli *cli;
    char *path; /* owned; of the command: /api/v1/sandboxes/ID/execs/EID, or of a linked agent */
    bool linked;
    int64_t at[2];
    bool gap; /* the bytes at these positions are no longer kept */
    bool ended;
    int64_t exit_code;
    _Atomic int64_t lost_ms; /* since when the server is away; 0 it is not */
    struct sse sse;          /* of a linked agent */
    struct framed frames;    /* of a sandbox */
    struct arena arena;      /* for one event */
    /* the other thread */
    pthread_t thread;
    bool threaded, input, tty;
    int signals, stop; /* descriptors */
    unsigned interrupts;
    int64_t in_at;            /* how far its input is, by the last answer */
    _Atomic bool short_input; /* a piece of it was lost, or nobody knows whether it was */
    struct termios before;
    bool raw;
};

/* ---- the other thread: input and signals ---- */

/* Instead of a status: the server cannot be reached; it went away with what we sent. */
#define NOT_SENT (-1)
#define UNSURE (-2)

/* The position that an answer names, if it does. False: it was cut. */
static bool read_position(struct client *client, int64_t *position)
{
    autoarena struct arena arena = { 0 };
    struct json *reply;
    char body[4096];
    size_t len = 0;
    ssize_t got = 1;
    struct err err;

    while (got > 0 && len < sizeof(body)) {
        got = client_read(client, body + len, sizeof(body) - len, &err);
        len += got > 0 ? (size_t)got : 0;
    }
    if (got < 0)
        return false;
    if (json_parse(&arena, (struct str){ body, len }, &reply, &err) == 0)
        *position = json_num(reply, "position", *position);
    return true;
}

static int post_for(struct running *run, const char *what, struct str body, int64_t *position)
{
    struct client_options options = { .ca_file = run->cli->at.ca,
                                      .deadline_ms = clock_mono_ms() + 3600000 };
    autoclient struct client *client = NULL;
    struct client_reply reply = { 0 };
    autofree char *path = xprintf("%s/%s", run->path, what);
    struct client_request request = {
        .method = "POST", .path = path, .token = run->cli->at.token, .body = body
    };
    struct err err;

    int fd = sock_connect(run->cli->at.target.connect, CLI_TIMEOUT_MS, &err);
    if (fd < 0)
        return NOT_SENT;
    if (client_start_on(&client, fd, &run->cli->at.target, &request, &options, &reply, &err) < 0)
        return UNSURE;
    if (position && reply.status < 300 && !read_position(client, position))
        return UNSURE;
    return reply.status;
}

static int post(struct running *run, const char *what, struct str body)
{
    return post_for(run, what, body, NULL);
}

/* Nobody answers, and somebody insists. */
_Noreturn static void leave(struct running *run, int number)
{
    if (run->raw)
        tcsetattr(0, TCSADRAIN, &run->before);
    _exit(128 + number);
}

static bool again(struct running *run, int64_t since, int64_t ms)
{
    struct pollfd stop = { .fd = run->stop, .events = POLLIN };

    return clock_mono_ms() - since <= ms && poll(&stop, 1, RETRY_MS) == 0;
}

/* A server that restarts is asked again, and who has too much to take; who says no is not. */
static bool post_within(struct running *run, const char *what, struct str body, int64_t ms)
{
    int64_t since = clock_mono_ms();
    int status;

    while ((status = post(run, what, body)) < 0 || status == 503 || status == 429)
        if (!again(run, since, ms))
            return false;
    return status < 300;
}

/* False: no more of it is to be sent. A person sees what came, and types on. */
static bool input_short(struct running *run, const char *why)
{
    cli_note(run->cli, "%s: the command may not have all of it", why);
    if (run->raw)
        (void)!write(run->cli->err_fd, "\r", 1);
    run->short_input = true;
    return run->tty; /* any other input must have no gap */
}

/*
 * Bytes of input: as above, but what a server took along when it went is sent again only with its
 * position, because the command may have read it.
 */
static bool post_bytes(struct running *run, struct str body)
{
    bool placed = !run->linked && !run->tty;
    int64_t since = clock_mono_ms();
    char what[48] = "stdin";
    int status;

    while ((status = post_for(run, what, body, placed ? &run->in_at : NULL)) < 0 || status == 503 ||
           status == 429) {
        if (status == UNSURE && !placed)
            return input_short(run, "the server went away while input was sent");
        if (status == UNSURE) { /* it was there until now, however long the command did not read */
            snprintf(what, sizeof(what), "stdin?at=%lld", (long long)run->in_at);
            since = clock_mono_ms();
        }
        if (!again(run, since, RETRY_MAX_MS))
            return clock_mono_ms() - since > RETRY_MAX_MS &&
                   input_short(run, "no server has taken input for too long");
    }
    return status < 300;
}

static void send_size(struct running *run)
{
    unsigned rows, cols;
    char body[64];

    if (!cli_size(&rows, &cols))
        return;
    int len = snprintf(body, sizeof(body), "{\"rows\":%u,\"cols\":%u}", rows, cols);
    (void)post(run, "resize", (struct str){ body, (size_t)len });
}

static void pass_signal(struct running *run)
{
    struct signalfd_siginfo info;
    char body[64];

    if (read(run->signals, &info, sizeof(info)) != (ssize_t)sizeof(info))
        return;
    if (info.ssi_signo == SIGWINCH) {
        if (run->tty)
            send_size(run);
        return;
    }
    bool last = info.ssi_signo == SIGINT && ++run->interrupts >= 3;
    int len = snprintf(body, sizeof(body), "{\"signal\":\"%u\",\"tree\":%s}",
                       last ? (unsigned)SIGKILL : info.ssi_signo, last ? "true" : "false");
    bool insists = last || info.ssi_signo != SIGINT;
    if (!post_within(run, "signal", (struct str){ body, (size_t)len }, insists ? TOLD_MS : 0) &&
        insists && run->lost_ms)
        leave(run, (int)info.ssi_signo);
}

/* To a linked agent's command in JSON, as everything on its link is a message. */
static bool post_input(struct running *run, struct str data)
{
    autobuf struct buf body = { 0 };

    if (!run->linked)
        return post_bytes(run, data);
    buf_puts(&body, "{\"data\":\"");
    base64_put(&body, data.p, data.n);
    buf_puts(&body, "\"}");
    return post_bytes(run, buf_view(&body));
}

static void post_eof(struct running *run)
{
    (void)(run->linked ? post_within(run, "stdin", STR("{\"eof\":true}"), RETRY_MAX_MS)
                       : post_within(run, "stdin?eof=1", STR_NONE, RETRY_MAX_MS));
}

/* False at its end. */
static bool pass_input(struct running *run)
{
    char data[4096];
    autobuf struct buf all = { .max = INPUT_CHUNK };
    struct pollfd more = { .fd = 0, .events = POLLIN };
    ssize_t got = 0;

    do {
        got = read(0, data, sizeof(data));
        if (got > 0)
            buf_append(&all, data, (size_t)got);
    } while (got > 0 && all.len + sizeof(data) <= INPUT_CHUNK && poll(&more, 1, 0) > 0);
    /* In raw mode Ctrl-C is a byte, which nobody else can act on now. */
    if (run->raw && run->lost_ms && all.len && memchr(all.data, 3, all.len))
        leave(run, SIGINT);
    if (all.len && !post_input(run, buf_view(&all))) {
        if (run->short_input)
            post_eof(run); /* it has been said, and the command would wait for ever */
        return false;
    }
    if (got > 0 || (got < 0 && (errno == EINTR || errno == EAGAIN)))
        return true;
    post_eof(run);
    return false;
}

static void *other_thread(void *ctx)
{
    struct running *run = ctx;
    bool input = run->input;

    for (;;) {
        struct pollfd fds[3] = { { .fd = run->stop, .events = POLLIN },
                                 { .fd = run->signals, .events = POLLIN },
                                 { .fd = input ? 0 : -1, .events = POLLIN } };

        if (poll(fds, 3, -1) < 0 && errno != EINTR)
            return NULL;
        if (fds[0].revents)
            return NULL;
        if (fds[1].revents)
            pass_signal(run);
        if (fds[2].revents)
            input = pass_input(run);
    }
}

/* ---- signals before there is a command ---- */

/*
 * Whoever is told to end while the server begins the command would leave it running there. So the
 * first signal waits until the command is known and is passed on as any other then; a second one is
 * not made to wait. (`run` has these signals blocked by now, and its own way.)
 */
static const int passed[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT };
static volatile sig_atomic_t early;

static void note_early(int number)
{
    if (early)
        _exit(128 + number);
    early = number;
}

static void note_signals(struct sigaction *before)
{
    struct sigaction action = { .sa_handler = note_early };

    for (size_t i = 0; i < ARRAY_LEN(passed); i++) {
        sigaction(passed[i], NULL, &before[i]);
        if (before[i].sa_handler != SIG_IGN)
            sigaction(passed[i], &action, NULL);
    }
}

/* From here on they wait for whoever reads them; so does the one that was noted. */
static void hold_signals(const struct sigaction *before)
{
    sigset_t set;

    sigemptyset(&set);
    for (size_t i = 0; i < ARRAY_LEN(passed); i++)
        sigaddset(&set, passed[i]);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    for (size_t i = 0; i < ARRAY_LEN(passed); i++)
        sigaction(passed[i], &before[i], NULL);
    if (early)
        kill(getpid(), early);
}

static void raw_mode(struct running *run)
{
    if (!run->tty || tcgetattr(0, &run->before) < 0)
        return;
    struct termios raw = run->before;
    cfmakeraw(&raw);
    run->raw = tcsetattr(0, TCSADRAIN, &raw) == 0;
}

static int start_thread(struct running *run, struct err *err)
{
    sigset_t set;

    sigemptyset(&set);
    for (size_t i = 0; i < ARRAY_LEN(passed); i++)
        sigaddset(&set, passed[i]);
    sigaddset(&set, SIGWINCH);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    run->signals = signalfd(-1, &set, SFD_CLOEXEC);
    run->stop = eventfd(0, EFD_CLOEXEC);
    if (run->signals < 0 || run->stop < 0)
        return err_sys(err, "watch for signals");
    raw_mode(run); /* now that no signal can leave it so, and before there is another thread */
    if (pthread_create(&run->thread, NULL, other_thread, run) != 0)
        return err_set(err, ERR_INTERNAL, "cannot start a thread");
    run->threaded = true;
    return 0;
}

static void stop_thread(struct running *run)
{
    uint64_t one = 1;

    if (run->threaded && write(run->stop, &one, sizeof(one)) == (ssize_t)sizeof(one))
        pthread_join(run->thread, NULL);
    if (run->signals >= 0)
        close(run->signals);
    if (run->stop >= 0)
        close(run->stop);
}

/* ---- the terminal ---- */

static void running_free(struct running *run)
{
    if (run->raw)
        tcsetattr(0, TCSADRAIN, &run->before);
    sse_free(&run->sse);
    framed_free(&run->frames);
    arena_free(&run->arena);
    free(run->path);
}

/* ---- output ---- */

static int write_out(int fd, struct str data, struct err *err)
{
    while (data.n) {
        ssize_t done = write(fd, data.p, data.n);

        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return err_sys(err, "write the output");
        data = str_from(data, (size_t)done);
    }
    return 0;
}

static int on_end(struct running *run, struct str data, struct err *err)
{
    struct json *exec;

    arena_free(&run->arena);
    run->arena = (struct arena){ 0 };
    if (json_parse(&run->arena, data, &exec, err) < 0)
        return err_wrap(err, "the end of the command");
    run->ended = true;
    run->exit_code = json_num(exec, "exit_code", -1);
    if (json_true(exec, "timed_out"))
        cli_note(run->cli, "the command was killed: its time was over");
    if (json_true(exec, "oom"))
        cli_note(run->cli, "the sandbox was out of memory, and the kernel killed a process");
    cli_note_blocked(run->cli, exec);
    if (str_is(json_text(exec, "state"), "lost"))
        return err_set(err, ERR_GONE, "the %s before the command did",
                       run->linked ? "agent went" : "sandbox ended");
    if (run->linked && json_text(exec, "error").n)
        cli_note(run->cli, "%.*s", STR_FMT(json_text(exec, "error")));
    return 0;
}

static int on_bytes(struct running *run, unsigned stream, struct str data, struct err *err)
{
    run->at[stream] += (int64_t)data.n;
    return write_out(stream ? run->cli->err_fd : run->cli->out_fd, data, err);
}

static int on_frame(void *ctx, unsigned kind, struct str data, struct err *err)
{
    struct running *run = ctx;

    return kind == FRAME_END ? on_end(run, data, err) : on_bytes(run, kind - 1, data, err);
}

static int on_event(void *ctx, const char *type, struct str data, struct err *err)
{
    struct running *run = ctx;
    autobuf struct buf bytes = { 0 };

    if (strcmp(type, "exit") == 0)
        return on_end(run, data, err);
    int stream = strcmp(type, "stderr") == 0;
    if (!stream && strcmp(type, "stdout") != 0)
        return 0;
    if (!base64_get(&bytes, data))
        return err_set(err, ERR_INTERNAL, "output that is no base64");
    return on_bytes(run, (unsigned)stream, buf_view(&bytes), err);
}

static char *output_path(const struct running *run)
{
    autofree char *from =
        run->gap ? xstrdup("")
                 : xprintf("&from=%lld,%lld", (long long)run->at[0], (long long)run->at[1]);

    return xprintf("%s/output?%s%s", run->path, run->linked ? "hold=1" : "stream=both&hold=1",
                   from);
}

/* What was printed between our positions and those of an answer is lost. */
static int tell_gap(struct running *run, struct str position, struct err *err)
{
    static const char *const names[] = { "stdout", "stderr" };

    run->gap = false;
    for (int i = 0; i < 2; i++) {
        struct str text = i ? position : str_cut(&position, ',');
        uint64_t at;

        if (!str_to_u64(text, &at) || at > INT64_MAX)
            return err_set(err, ERR_INTERNAL, "the server does not say where the output begins");
        if ((int64_t)at > run->at[i])
            cli_note(run->cli,
                     "%lld bytes of %s are missing: the server could not keep them any longer",
                     (long long)((int64_t)at - run->at[i]), names[i]);
        run->at[i] = (int64_t)at;
    }
    return 0;
}

static int feed(struct running *run, struct str data, struct err *err)
{
    return run->linked ? sse_feed(&run->sse, data, on_event, run, err)
                       : framed_feed(&run->frames, data, on_frame, run, err);
}

/* One connection, until the end of the command or of the connection. -1 with ERR_UNAVAILABLE,
 * ERR_TIMEOUT: try again. */
static int stream_once(struct running *run, struct err *err)
{
    struct cli *cli = run->cli;
    struct client_options options = { .ca_file = cli->at.ca };
    autoclient struct client *client = NULL;
    struct client_reply reply = { 0 };
    autofree char *path = output_path(run);
    struct client_request request = { .method = "GET",
                                      .path = path,
                                      .token = cli->at.token,
                                      .accept = run->linked ? "text/event-stream" : NULL };
    static char data[262144];
    ssize_t got;

    if (cli_deadline(cli, &options.deadline_ms, err) < 0 ||
        client_start(&client, &cli->at.target, &request, &options, &reply, err) < 0)
        return -1;
    if (reply.status == 410 && !run->gap) {
        run->gap = true;
        return err_set(err, ERR_UNAVAILABLE, "output was lost");
    }
    if (reply.status != 200)
        return cli_refused_on(cli, client, &reply, err);
    if (run->gap && tell_gap(run, str_of(reply.position), err) < 0)
        return -1;
    run->lost_ms = 0;
    sse_reset(&run->sse);
    framed_reset(&run->frames);
    client_deadline(client, INT64_MAX / 2);
    while (!run->ended && (got = client_read(client, data, sizeof(data), err)) > 0)
        if (feed(run, (struct str){ data, (size_t)got }, err) < 0)
            return -1;
    return run->ended ? 0 : err_set(err, ERR_UNAVAILABLE, "the server ended the connection");
}

static int stream_all(struct running *run, struct err *err)
{
    while (stream_once(run, err) < 0) {
        bool away = err->code == ERR_UNAVAILABLE || err->code == ERR_TIMEOUT;

        if (!run->lost_ms)
            run->lost_ms = clock_mono_ms();
        if (run->ended || !away || clock_mono_ms() - run->lost_ms > RETRY_MAX_MS)
            return -1;
        poll(NULL, 0, RETRY_MS);
    }
    return 0;
}

/* ---- starting ---- */

/* Arguments of the command from number `first` on. */
static int put_words(struct cli *cli, struct json_out *json, const char *key, const char **argv,
                     size_t first, size_t argc, struct err *err)
{
    json_key(json, key);
    json_open(json, '[');
    for (size_t i = first; i < argc; i++) {
        if (!str_utf8(str_of(argv[i])))
            return cli_usage(cli, err, "argument %zu is not UTF-8", i + 1);
        json_put_str(json, str_of(argv[i]));
    }
    json_close(json, ']');
    return 0;
}

static void put_size(struct json_out *json, const struct running *run, const char *rows_key,
                     const char *cols_key)
{
    unsigned rows, cols;

    if (!run->tty || !cli_size(&rows, &cols))
        return;
    json_kv_int(json, rows_key, rows);
    json_kv_int(json, cols_key, cols);
}

/* How long the command may run, 0 without a limit. */
static int command_limit(struct cli *cli, int64_t *limit_ms, struct err *err)
{
    *limit_ms = 0;
    if (!(cli->command->traits & CMD_LIMITS))
        return 0; /* there, --timeout is for the calls */
    if (cli_has(cli, "timeout") && cli_has(cli, "kill-after"))
        return cli_usage(cli, err, "--timeout and --kill-after are the same: use one of them");
    return cli_ms(cli, cli_has(cli, "kill-after") ? "kill-after" : "timeout", 0, limit_ms, err);
}

static int put_exec(struct cli *cli, const char **argv, size_t argc, const char *cwd,
                    struct json_out *json, struct running *run, struct err *err)
{
    int64_t limit_ms;

    json_open(json, '{');
    if (command_limit(cli, &limit_ms, err) < 0 ||
        put_words(cli, json, "argv", argv, 0, argc, err) < 0)
        return -1;
    if (cli_has(cli, "cwd"))
        cwd = cli_text(cli, "cwd");
    if (cwd)
        json_kv_text(json, "cwd", cwd);
    if (cli_has(cli, "user"))
        json_kv_text(json, "user", cli_text(cli, "user"));
    if (limit_ms)
        json_kv_int(json, "timeout_ms", limit_ms);
    if (run->tty)
        json_kv_bool(json, "tty", true);
    put_size(json, run, "rows", "cols");
    json_kv_bool(json, "stdin_open", run->input);
    if (!cli->json && !cli_has(cli, "detach"))
        json_kv_bool(json, "hold", true);
    if (sandbox_put_env(cli, json, run->tty, err) < 0)
        return -1;
    if (strcmp(cli->command->name, "exec") == 0 && sandbox_put_files(cli, json, err) < 0)
        return -1; /* those of `run` are its sandbox's */
    json_close(json, '}');
    return 0;
}

/* With --json: the command as the server tells it, once it has ended. */
static int wait_json(struct running *run, struct err *err)
{
    const struct json *exec;

    do {
        cli_forget(run->cli);
        if (cli_get(run->cli, &exec, err, "%s?wait=20000", run->path) < 0)
            return -1;
    } while (str_is(json_text(exec, "state"), "running"));
    run->exit_code = json_num(exec, "exit_code", -1);
    return cli_put_reply(run->cli);
}

static int follow(struct running *run, struct err *err)
{
    if (run->linked && !run->input)
        post_eof(run); /* its input is open whatever is wished */
    int rc = start_thread(run, err);

    if (rc == 0)
        rc = run->cli->json ? wait_json(run, err) : stream_all(run, err);
    stop_thread(run);
    return rc;
}

/* `run` and `shell` have one where they are used by a person; `exec` where it was asked for. */
static bool wants_tty(const struct cli *cli)
{
    if (strcmp(cli->command->name, "exec") != 0)
        return isatty(0) && isatty(1) && !cli->json && !cli_has(cli, "no-tty");
    return isatty(0) && cli_has(cli, "tty");
}

/* Asks for it, and passes everything on until its end; `path` is where it is asked for. */
static int begin(struct running *run, struct str body, const char *path, const char *program,
                 struct err *err)
{
    struct sigaction before[ARRAY_LEN(passed)];
    struct cli *cli = run->cli;
    const struct json *reply;

    note_signals(before);
    int rc = cli_call(cli, "POST", body, &reply, err, "%s", path);
    hold_signals(before);
    if (rc < 0) {
        bool missing = strncmp(err->field, "argv", 4) == 0 && err->code == ERR_UNPROCESSABLE;

        err_wrap(err, "%s", program);
        if (!missing)
            return -1;
        cli_show_error(cli, err); /* as a shell says it */
        return strstr(err->msg, "not found") ? 127 : 126;
    }
    struct str id = json_text(reply, run->linked ? "command_id" : "id");
    if (cli_has(cli, "detach")) {
        if (cli->json)
            cli_put_reply(cli);
        else if (strcmp(cli->command->name, "exec") == 0)
            buf_printf(&cli->out, "%.*s\n", STR_FMT(id));
        return EXIT_OK;
    }
    run->path = run->linked ? xprintf("%s/%.*s", path, STR_FMT(id))
                            : xprintf("/api/v1/sandboxes/%.*s/execs/%.*s",
                                      STR_FMT(json_text(reply, "sandbox")), STR_FMT(id));
    if (follow(run, err) < 0)
        return err_wrap(err, "%s", program);
    if (run->short_input && !run->tty)
        return EXIT_ERROR; /* whatever the command made of what it got */
    return run->exit_code >= 0 && run->exit_code <= 255 ? (int)run->exit_code : EXIT_ERROR;
}

static struct running running_new(struct cli *cli)
{
    bool here = !cli_has(cli, "detach"); /* nobody stays to pass anything on */
    bool tty = here && wants_tty(cli);

    return (struct running){ .cli = cli,
                             .signals = -1,
                             .stop = -1,
                             .tty = tty,
                             .input = here && (tty || !isatty(0) || cli_has(cli, "interactive")) };
}

int exec_in(struct cli *cli, const char *id, const char **argv, size_t argc, const char *cwd,
            struct err *err)
{
    auto_with(running_free) struct running run = running_new(cli);
    autobuf struct buf body = { 0 };
    struct json_out json = json_to(&body);

    if (put_exec(cli, argv, argc, cwd, &json, &run, err) < 0)
        return -1;
    return begin(&run, buf_view(&body), arena_printf(&cli->arena, "/api/v1/sandboxes/%s/execs", id),
                 argv[0], err);
}

/* ---- on a linked agent ---- */

static int put_command(struct cli *cli, const char **argv, size_t argc, struct json_out *json,
                       const struct running *run, struct err *err)
{
    int64_t limit_ms;

    if (cli_has(cli, "ro") || cli_has(cli, "rw"))
        return cli_usage(cli, err, "--ro and --rw are for sandboxes, and %s is a linked agent",
                         cli->args[0]);
    json_open(json, '{');
    json_kv_text(json, "command", argv[0]); /* looked at when it was asked for in a sandbox */
    if (command_limit(cli, &limit_ms, err) < 0 ||
        put_words(cli, json, "args", argv, 1, argc, err) < 0)
        return -1;
    if (cli_has(cli, "cwd"))
        json_kv_text(json, "working_dir", cli_text(cli, "cwd"));
    if (cli_has(cli, "user"))
        json_kv_text(json, "run_as", cli_text(cli, "user"));
    if (limit_ms)
        json_kv_int(json, "timeout_seconds", (limit_ms + 999) / 1000);
    json_kv_bool(json, "allocate_pty", run->tty);
    if (!run->tty && !cli->json && !cli_has(cli, "detach"))
        json_kv_bool(json, "hold", true);
    put_size(json, run, "pty_rows", "pty_cols");
    if (run->tty && sandbox_term())
        json_kv_text(json, "pty_term", sandbox_term());
    if (sandbox_put_pairs(cli, json, "env", "env", err) < 0)
        return -1;
    json_close(json, '}');
    return 0;
}

int exec_linked(struct cli *cli, const char *id, const char **argv, size_t argc, struct err *err)
{
    auto_with(running_free) struct running run = running_new(cli);
    autobuf struct buf body = { 0 };
    struct json_out json = json_to(&body);
    struct err why = { 0 };

    run.linked = true;
    if (put_command(cli, argv, argc, &json, &run, err) < 0)
        return -1;
    int rc = begin(&run, buf_view(&body),
                   arena_printf(&cli->arena, "/api/v1/agents/%s/commands", id), argv[0], &why);
    if (rc < 0 && why.code != ERR_NOT_FOUND)
        *err = why;
    return rc;
}

int exec_anywhere(struct cli *cli, const char *id, const char **argv, size_t argc, struct err *err)
{
    int rc = exec_in(cli, id, argv, argc, NULL, err);

    return rc < 0 && err->code == ERR_NOT_FOUND ? exec_linked(cli, id, argv, argc, err) : rc;
}

static int exec_run(struct cli *cli, struct err *err)
{
    return exec_anywhere(cli, cli_escape(cli, cli->args[0]), cli->args + 1, cli->arg_count - 1,
                         err);
}

static const struct cli_flag exec_flags[] = {
    EXEC_FLAGS,
    FILE_FLAGS,
    { "tty", NULL, "A terminal for it, joined to this one" },
    { "user", "USER", "agent or root; the sandbox's own unless said" },
    { "detach", NULL, "Print the command's id when it has started; `atoll logs` has the rest" },
    { 0 },
};

const struct command cmd_exec = {
    .name = "exec",
    .args = "ID|NAME COMMAND [ARG…]",
    .help = "Run a command in a sandbox and print what it prints.",
    .more =
        "Ends with the exit status of the command. Standard input is passed on unless it is a "
        "terminal; signals are passed on, and the third Ctrl-C kills everything the command "
        "started. Put -- before the command.\n\n"
        "The command waits while its output is not read, so that none is lost: as in a pipe. When "
        "this program ends without reading, the command waits for another reader for 20 seconds at "
        "most and then goes on.\n\n"
        "The name of a linked agent will do, too: then it runs on that machine (`atoll agent "
        "commands` lists those). What is typed or piped there faster than the command reads is "
        "kept up to 4 MiB.\n\n"
        "Examples:\n  atoll exec build -- make -j4\n"
        "  tar c . | atoll exec build -- tar x -C /workspace\n"
        "  atoll exec -it build -- bash\n"
        "  atoll exec -d -e PORT=3000 build -- ./server",
    .flags = exec_flags,
    .traits = CMD_REMOTE | CMD_LIMITS,
    .run = exec_run,
};
