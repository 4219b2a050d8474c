/*
 * This terminal joined to one in a sandbox, over a WebSocket (docs/terminals.md).
 *
 * One thread waits for keys, for the server, for room on the screen and for signals at once. Bytes
 * are counted, so when the connection is lost (a server that restarts) the next one goes on where
 * the last ended. Whatever ends us (the command, the detach keys, a signal, an error) goes through
 * `leave`, which takes back what the program inside switched on (other screen, mouse, paste) and
 * then raw mode.
 */
#include "cli/attach.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/mem.h"
#include "http/ws_client.h"

#define RETRY_MS 100
#define RETRY_MAX_MS 60000 /* of a server that is away */
#define KEYS_MAX 16
#define HELD_MAX 65536
#define PIECE 4096

/* What a program may have left behind, undone: screen, cursor, keys, mouse, paste, looks. */
#define TERMINAL_RESET                                                                             \
    "\033[?1049l\033[?1l\033>\033[?9l\033[?1000l\033[?1002l\033[?1003l\033[?1005l\033[?1006l"      \
    "\033[?1015l\033[?1004l\033[?2004l\033[?2026l\033[?7h\033[4l\033[r\033[?25h\033[0m"

struct attached {
    struct cli *cli;
    const char *path; /* of the terminal */
    struct ws_client *ws;
    int64_t position; /* -1: the screen first */
    bool observe, take, controls, asked;
    char keys[KEYS_MAX]; /* that detach */
    size_t key_count, key_at;
    struct buf typed; /* until we may type */
    struct buf out;   /* for our terminal */
    struct termios before;
    bool raw, drawn;
    int signals;
    bool over, detached;
    int64_t exit_code;
    int64_t lost_ms;
    int signal; /* that ended us */
};

/* ---- our terminal ---- */

static int raw_begin(struct attached *at, struct err *err)
{
    struct termios raw;

    if (tcgetattr(0, &at->before) < 0)
        return err_sys(err, "look at this terminal");
    raw = at->before;
    cfmakeraw(&raw);
    if (tcsetattr(0, TCSADRAIN, &raw) < 0)
        return err_sys(err, "set up this terminal");
    at->raw = true;
    return 0;
}

static void write_all(int fd, struct str data)
{
    while (data.n) {
        ssize_t done = write(fd, data.p, data.n);

        if (done < 0 && errno != EINTR)
            return;
        data = str_from(data, done > 0 ? (size_t)done : 0);
    }
}

static void raw_end(struct attached *at)
{
    if (!at->raw)
        return;
    if (at->drawn)
        write_all(1, STR(TERMINAL_RESET "\r\n"));
    tcsetattr(0, TCSADRAIN, &at->before);
    at->raw = false;
}

static void leave(struct attached *at)
{
    raw_end(at);
    ws_client_free(at->ws);
    buf_free(&at->typed);
    buf_free(&at->out);
    if (at->signals >= 0)
        close(at->signals);
}

/* ---- to the server ---- */

static int send_json(struct attached *at, const char *text, struct err *err)
{
    return ws_client_send(at->ws, true, str_of(text), err);
}

static int send_size(struct attached *at, struct err *err)
{
    unsigned rows, cols;
    char text[80];

    if (!at->controls || !cli_size(&rows, &cols))
        return 0;
    snprintf(text, sizeof(text), "{\"type\":\"resize\",\"rows\":%u,\"cols\":%u}", rows, cols);
    return send_json(at, text, err);
}

/* What was typed goes when we may; until then we ask once. */
static int send_typed(struct attached *at, struct err *err)
{
    if (!at->typed.len || at->observe)
        return 0;
    if (!at->controls) {
        if (at->asked)
            return 0;
        at->asked = true;
        return send_json(at, "{\"type\":\"control\"}", err);
    }
    while (at->typed.len) {
        size_t len = MIN(at->typed.len, (size_t)TERM_INPUT_MAX);

        if (ws_client_send(at->ws, false, (struct str){ at->typed.data, len }, err) < 0)
            return -1;
        buf_consume(&at->typed, len);
    }
    return 0;
}

/* Keys as they come; those that detach are held back until they turn out to be others. */
static void take_keys(struct attached *at, const char *data, size_t len)
{
    for (size_t i = 0; i < len && !at->detached; i++) {
        if (at->key_count && data[i] == at->keys[at->key_at]) {
            at->detached = ++at->key_at == at->key_count;
            continue;
        }
        if (at->typed.len + at->key_at < HELD_MAX)
            buf_append(&at->typed, at->keys, at->key_at);
        at->key_at = at->key_count && data[i] == at->keys[0] ? 1 : 0;
        if (!at->key_at && at->typed.len < HELD_MAX)
            buf_putc(&at->typed, data[i]);
    }
}

static int read_keys(struct attached *at, struct err *err)
{
    char data[PIECE];
    ssize_t got = read(0, data, sizeof(data));

    if (got < 0 && (errno == EINTR || errno == EAGAIN))
        return 0;
    if (got <= 0) { /* our terminal is gone */
        at->detached = true;
        return 0;
    }
    take_keys(at, data, (size_t)got);
    if (at->observe)
        buf_clear(&at->typed);
    if (!at->ws && memchr(data, 3, (size_t)got))
        at->detached = true; /* Ctrl-C while nobody else can act on it */
    return at->ws ? send_typed(at, err) : 0;
}

/* ---- from the server ---- */

static int take_keyframe(struct attached *at, const struct json *json, struct err *err)
{
    if (!base64_get(&at->out, json_text(json, "data")))
        return err_set(err, ERR_INTERNAL, "a keyframe that is no base64");
    at->position = json_num(json, "position", at->position);
    return 0;
}

static int take_role(struct attached *at, const struct json *json, struct err *err)
{
    bool controls = str_is(json_text(json, "role"), "controller");
    bool held = str_is(json_text(json, "reason"), "held");

    at->asked = false;
    at->controls = controls;
    if (!controls && held) { /* somebody else types: ours is dropped, and one hears it */
        buf_clear(&at->typed);
        buf_putc(&at->out, '\a');
    }
    if (controls && send_size(at, err) < 0)
        return -1;
    return send_typed(at, err);
}

static int take_exit(struct attached *at, const struct json *json, struct err *err)
{
    at->over = true;
    at->exit_code = json_num(json, "exit_code", -1);
    if (str_is(json_text(json, "state"), "lost"))
        return err_set(err, ERR_GONE, "the sandbox ended before the command did");
    return 0;
}

static int take_gap(struct attached *at, const struct json *json, struct err *err)
{
    (void)err;
    at->position = json_num(json, "to", at->position); /* a keyframe follows and hides it */
    return 0;
}

static int take_detached(struct attached *at, const struct json *json, struct err *err)
{
    (void)at;
    struct str reason = json_text(json, "reason");

    return err_set(err, ERR_UNAVAILABLE, "detached: %.*s", STR_FMT(reason));
}

static int take_hello(struct attached *at, const struct json *json, struct err *err)
{
    at->position = json_num(json, "position", 0);
    at->take = false; /* once */
    return take_role(at, json, err);
}

static const struct {
    const char *type;
    int (*fn)(struct attached *at, const struct json *json, struct err *err);
} kinds[] = {
    { "hello", take_hello }, { "keyframe", take_keyframe }, { "role", take_role },
    { "exit", take_exit },   { "gap", take_gap },           { "detached", take_detached }
};

static int take_message(struct attached *at, const struct ws_message *message, struct err *err)
{
    auto_with(arena_free) struct arena arena = { 0 };
    struct json *json;

    if (!message->text) {
        at->position += (int64_t)message->data.n;
        buf_str(&at->out, message->data);
        return 0;
    }
    if (json_parse(&arena, message->data, &json, err) < 0)
        return err_wrap(err, "a message of the server's");
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
        if (str_is(json_text(json, "type"), kinds[i].type))
            return kinds[i].fn(at, json, err);
    return 0;
}

/* Everything that is whole; stops when our terminal has enough to do. */
static int take_messages(struct attached *at, struct err *err)
{
    struct ws_message message;
    int rc = 0;

    while (!at->over && at->out.len < HELD_MAX && (rc = ws_client_next(at->ws, &message, err)) > 0)
        if (take_message(at, &message, err) < 0)
            return -1;
    return rc < 0 ? -1 : 0;
}

/* ---- waiting ---- */

static int take_signal(struct attached *at, struct err *err)
{
    struct signalfd_siginfo info;

    if (read(at->signals, &info, sizeof(info)) != (ssize_t)sizeof(info))
        return 0;
    if (info.ssi_signo == SIGWINCH)
        return at->ws ? send_size(at, err) : 0;
    if (info.ssi_signo == SIGTSTP) { /* sent by somebody: the key is the program's */
        raw_end(at);
        raise(SIGSTOP);
        if (raw_begin(at, err) < 0)
            return -1;
        return at->ws ? send_json(at, "{\"type\":\"keyframe\"}", err) : 0;
    }
    at->signal = (int)info.ssi_signo;
    return err_set(err, ERR_CANCELLED, "ended by signal %d", at->signal);
}

static void write_some(struct attached *at)
{
    ssize_t done = write(1, at->out.data, MIN(at->out.len, (size_t)PIECE));

    at->drawn = true;
    if (done > 0)
        buf_consume(&at->out, (size_t)done);
    else if (done < 0 && errno != EINTR && errno != EAGAIN)
        at->detached = true;
}

/* One wait. `ms`: at most, -1 for ever. */
static int wait_once(struct attached *at, int ms, struct err *err)
{
    bool full = at->out.len >= HELD_MAX;
    struct pollfd fds[] = { { .fd = at->signals, .events = POLLIN },
                            { .fd = 0, .events = POLLIN },
                            { .fd = at->out.len ? 1 : -1, .events = POLLOUT },
                            { .fd = at->ws && !full ? ws_client_fd(at->ws) : -1,
                              .events = POLLIN } };

    if (poll(fds, ARRAY_LEN(fds), ms) < 0)
        return errno == EINTR ? 0 : err_sys(err, "wait");
    if (fds[0].revents && take_signal(at, err) < 0)
        return -1;
    if (fds[1].revents && read_keys(at, err) < 0)
        return -1;
    if (fds[2].revents)
        write_some(at);
    if (fds[3].revents && ws_client_read(at->ws, err) < 0)
        return -1;
    return at->ws ? take_messages(at, err) : 0;
}

/* 1 connected, -1; ERR_UNAVAILABLE and ERR_TIMEOUT: try again. */
static int connect_once(struct attached *at, struct err *err)
{
    struct cli *cli = at->cli;
    struct client_options options = { .ca_file = cli->at.ca };
    struct client_reply reply = { 0 };
    autobuf struct buf body = { 0 };
    char from[40] = "";

    if (at->position >= 0)
        snprintf(from, sizeof(from), "&from=%lld", (long long)at->position);
    autofree char *path =
        xprintf("%s/ws?role=%s%s%s", at->path, at->observe ? "observer" : "controller",
                at->take ? "&take=1" : "", from);
    if (cli_deadline(cli, &options.deadline_ms, err) < 0)
        return -1;
    int rc =
        ws_client_open(&at->ws, &cli->at.target, path, cli->at.token, &options, &reply, &body, err);
    if (rc == 0)
        return cli_refused(cli, &reply, buf_view(&body), err);
    return rc;
}

/* Until it is over, or the connection is. */
static int run_once(struct attached *at, struct err *err)
{
    if (connect_once(at, err) < 0)
        return -1;
    at->lost_ms = 0;
    int rc = 0;
    while (rc == 0 && !at->over && !at->detached)
        rc = wait_once(at, -1, err);
    return rc;
}

static int run_all(struct attached *at, struct err *err)
{
    while (run_once(at, err) < 0) {
        bool away = err->code == ERR_UNAVAILABLE || err->code == ERR_TIMEOUT;

        ws_client_free(at->ws);
        at->ws = NULL;
        at->controls = at->asked = false;
        if (!at->lost_ms)
            at->lost_ms = clock_mono_ms();
        if (!away || at->over || clock_mono_ms() - at->lost_ms > RETRY_MAX_MS)
            return -1;
        for (int64_t since = clock_mono_ms(); clock_mono_ms() - since < RETRY_MS;)
            if (wait_once(at, RETRY_MS, err) < 0)
                return -1;
        if (at->detached)
            return 0;
    }
    return 0;
}

/* ---- beginning ---- */

/* "ctrl-p,ctrl-q", "ctrl-]", "a": bytes that are typed one after the other. Empty: none. */
int attach_keys(const char *text, char *keys, size_t max, size_t *count)
{
    struct str rest = str_of(text);

    *count = 0;
    while (rest.n) {
        struct str key = str_cut(&rest, ',');
        bool ctrl = key.n == 6 && str_starts(key, STR("ctrl-"));
        char c = key.n ? key.p[key.n - 1] : 0;

        if (*count == max || (!ctrl && key.n != 1))
            return -1;
        if (ctrl && c >= 'a' && c <= 'z')
            c = (char)(c - 'a' + 'A');
        if (ctrl && (c < '@' || c > '_'))
            return -1;
        keys[(*count)++] = ctrl ? (char)(c & 0x1f) : c;
    }
    return 0;
}

static int watch_signals(struct attached *at, struct err *err)
{
    static const int all[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH, SIGTSTP };
    sigset_t set;

    sigemptyset(&set);
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        sigaddset(&set, all[i]);
    sigprocmask(SIG_BLOCK, &set, NULL);
    at->signals = signalfd(-1, &set, SFD_CLOEXEC);
    return at->signals < 0 ? err_sys(err, "watch for signals") : 0;
}

int attach_check(struct cli *cli, struct err *err)
{
    if (!isatty(0) || !isatty(1))
        return cli_usage(cli, err, "standard input and output must be a terminal");
    return 0;
}

int attach_to(struct cli *cli, const char *path, struct attach_how how, struct err *err)
{
    auto_with(leave) struct attached at = { .cli = cli,
                                            .path = path,
                                            .position = how.position,
                                            .observe = how.observe,
                                            .take = cli_has(cli, "take"),
                                            .signals = -1,
                                            .exit_code = -1 };
    const char *keys = cli_has(cli, "detach-keys") ? cli_text(cli, "detach-keys") : DETACH_KEYS;

    at.typed.max = (size_t)2 * HELD_MAX;
    if (attach_keys(keys, at.keys, KEYS_MAX, &at.key_count) < 0)
        return cli_usage(cli, err, "--detach-keys %s: keys such as ctrl-p,ctrl-q", keys);
    if (endpoint_find(cli, err) < 0 || watch_signals(&at, err) < 0 || raw_begin(&at, err) < 0)
        return -1;
    if (run_all(&at, err) < 0)
        return at.signal ? 128 + at.signal : -1;
    while (at.out.len && !at.detached)
        write_some(&at);
    raw_end(&at);
    if (at.detached && !at.over) {
        cli_note(cli, "detached; it goes on");
        return 0;
    }
    return at.exit_code >= 0 && at.exit_code <= 255 ? (int)at.exit_code : EXIT_ERROR;
}
