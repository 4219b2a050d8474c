/*
 * What each running sandbox uses now, the busiest first. The kernel counts processor time as a sum,
 * so each round is compared with the one before. A terminal shows round after round on its
 * alternate screen until `q`; anything else gets one round.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cli/sandbox.h"

#define FIRST_MS 500 /* between the two looks that the first round needs */

struct seen {
    char id[40], name[64], state[16];
    int64_t cpu_us, at_us, memory, limit, pids, percent;
};

struct look {
    struct seen *items; /* owned */
    size_t count;
};

static void look_free(struct look *look)
{
    free(look->items);
}

static void copy(char *to, size_t size, struct str text)
{
    snprintf(to, size, "%.*s", (int)MIN(text.n, size - 1), text.p ? text.p : "");
}

static int take_look(struct cli *cli, struct look *out, struct err *err)
{
    const struct json *reply, *stats;

    cli_forget(cli);
    if (cli_list(cli, &reply, err, "/api/v1/sandboxes") < 0)
        return err_wrap(err, "list sandboxes");
    const struct json *items = json_get(reply, "items");
    out->items = xcalloc(items ? items->count + 1 : 1, sizeof(*out->items));
    json_each(item, items)
    {
        struct seen *seen = &out->items[out->count];
        struct err gone = { 0 };

        copy(seen->id, sizeof(seen->id), json_text(item, "id"));
        copy(seen->name, sizeof(seen->name), json_text(item, "name"));
        copy(seen->state, sizeof(seen->state), json_text(item, "state"));
        seen->limit = json_num(item, "memory", 0);
        if (strcmp(seen->state, "running") != 0 && strcmp(seen->state, "paused") != 0)
            continue;
        if (cli_get(cli, &stats, &gone, "/api/v1/sandboxes/%s/stats", seen->id) < 0)
            continue; /* it ended meanwhile */
        seen->cpu_us = json_num(stats, "cpu_us", 0);
        seen->at_us = clock_mono_us();
        seen->memory = json_num(stats, "memory", 0);
        seen->pids = json_num(stats, "pids", 0);
        out->count++;
    }
    return 0;
}

static int busiest_first(const void *a, const void *b)
{
    const struct seen *one = a, *two = b;

    if (one->percent != two->percent)
        return one->percent < two->percent ? 1 : -1;
    if (one->memory != two->memory)
        return one->memory < two->memory ? 1 : -1;
    return strcmp(one->id, two->id);
}

static void compare(struct look *now, const struct look *before)
{
    for (size_t i = 0; i < now->count; i++)
        for (size_t k = 0; k < before->count; k++) {
            struct seen *seen = &now->items[i];
            const struct seen *was = &before->items[k];

            if (strcmp(seen->id, was->id) == 0 && seen->at_us > was->at_us)
                seen->percent = (seen->cpu_us - was->cpu_us) * 100 / (seen->at_us - was->at_us);
        }
    qsort(now->items, now->count, sizeof(*now->items), busiest_first);
}

static int put_look(struct cli *cli, const struct look *look, struct err *err)
{
    autobuf struct buf text = { 0 };
    autoarena struct arena arena = { 0 };
    struct json_out json = json_to(&text);
    struct json *root;

    json_open(&json, '{');
    json_key(&json, "items");
    json_open(&json, '[');
    for (size_t i = 0; i < look->count; i++) {
        const struct seen *seen = &look->items[i];

        json_open(&json, '{');
        json_kv_text(&json, "id", seen->id);
        json_kv_text(&json, "name", seen->name[0] ? seen->name : NULL);
        json_kv_text(&json, "state", seen->state);
        json_kv_int(&json, "cpu_percent", seen->percent);
        json_kv_int(&json, "memory", seen->memory);
        json_kv_int(&json, "memory_limit", seen->limit);
        json_kv_int(&json, "pids", seen->pids);
        json_close(&json, '}');
    }
    json_close(&json, ']');
    json_close(&json, '}');
    if (cli->json) {
        buf_str(&cli->out, buf_view(&text));
        buf_putc(&cli->out, '\n');
        return 0;
    }
    if (json_parse(&arena, buf_view(&text), &root, err) < 0)
        return -1;
    return cli_table(cli, json_get(root, "items"),
                     "id,name,state,>cpu_percent,>memory,>memory_limit,>pids");
}

/* ---- on a terminal ---- */

#define SCREEN_BEGIN "\033[?1049h\033[?25l"
#define SCREEN_END "\033[?25h\033[?1049l"

struct screen {
    struct termios before;
    int signals; /* -1: not on a terminal */
    bool keys;   /* standard input is a terminal, too */
};

static void say(struct cli *cli, const char *sequence)
{
    struct err err = { 0 };

    buf_puts(&cli->out, sequence);
    (void)!cli_flush(cli, &err);
}

/* Keys arrive one by one and are not echoed; a signal ends the program after the screen is back. */
static int screen_begin(struct cli *cli, struct screen *screen, struct err *err)
{
    sigset_t set;

    screen->keys = tcgetattr(0, &screen->before) == 0;
    if (screen->keys) {
        struct termios quiet = screen->before;

        quiet.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        if (tcsetattr(0, TCSADRAIN, &quiet) < 0)
            return err_sys(err, "set up this terminal");
    }
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGWINCH);
    sigprocmask(SIG_BLOCK, &set, NULL);
    screen->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    say(cli, SCREEN_BEGIN);
    return screen->signals < 0 ? err_sys(err, "signalfd") : 0;
}

static void screen_end(struct cli *cli, const struct screen *screen)
{
    say(cli, SCREEN_END);
    if (screen->keys)
        tcsetattr(0, TCSADRAIN, &screen->before);
    if (screen->signals >= 0)
        close(screen->signals);
}

/* Waits for the next round: until the time is over, or a key or a new size asks for it. */
static bool screen_wait(const struct screen *screen, int64_t wait_ms)
{
    struct pollfd fds[2] = { { .fd = screen->signals, .events = POLLIN },
                             { .fd = screen->keys ? 0 : -1, .events = POLLIN } };
    struct signalfd_siginfo info;
    char key = 0;

    if (poll(fds, ARRAY_LEN(fds), (int)MIN(wait_ms, (int64_t)3600000)) <= 0)
        return true;
    if (fds[0].revents && read(screen->signals, &info, sizeof(info)) == (ssize_t)sizeof(info))
        return info.ssi_signo == SIGWINCH;
    if (fds[1].revents && read(0, &key, 1) <= 0)
        return false; /* the terminal is gone */
    return key != 'q' && key != 'Q';
}

/* As many lines as the screen has; the newest round is drawn over the one before. */
static void draw(struct cli *cli)
{
    autobuf struct buf text = { 0 };
    struct winsize size = { 0 };
    struct str rest;
    unsigned line = 0;

    buf_str(&text, buf_view(&cli->out));
    buf_clear(&cli->out);
    ioctl(cli->out_fd, TIOCGWINSZ, &size);
    buf_puts(&cli->out, "\033[H");
    for (rest = buf_view(&text); rest.n && line + 1 < MAX(size.ws_row, 3u); line++) {
        buf_str(&cli->out, str_cut(&rest, '\n'));
        buf_puts(&cli->out, "\033[K\n");
    }
    buf_puts(&cli->out, "\033[J\033[2mq ends\033[0m");
}

/* Takes and shows one round; `before` becomes what was seen. */
static int round_of(struct cli *cli, struct look *before, bool live, struct err *err)
{
    struct look now = { 0 };

    if (take_look(cli, &now, err) < 0) {
        look_free(&now);
        return -1;
    }
    compare(&now, before);
    look_free(before);
    *before = now;
    if (put_look(cli, &now, err) < 0)
        return -1;
    if (live)
        draw(cli);
    return cli_flush(cli, err);
}

static int top_live(struct cli *cli, struct look *before, int64_t every_ms, struct err *err)
{
    struct screen screen = { .signals = -1 };
    int64_t wait_ms = FIRST_MS;
    int rc = screen_begin(cli, &screen, err);

    while (rc == 0 && screen_wait(&screen, wait_ms)) {
        rc = round_of(cli, before, true, err);
        wait_ms = every_ms;
    }
    screen_end(cli, &screen);
    return rc < 0 ? -1 : EXIT_OK;
}

static int top_run(struct cli *cli, struct err *err)
{
    bool live = cli_width(cli) > 0 && !cli->json && !cli_has(cli, "once");
    int64_t every_ms;
    auto_with(look_free) struct look before = { 0 };

    if (cli_ms(cli, "every", 2000, &every_ms, err) < 0 || take_look(cli, &before, err) < 0)
        return -1;
    if (live)
        return top_live(cli, &before, every_ms, err);
    poll(NULL, 0, FIRST_MS);
    return round_of(cli, &before, false, err) < 0 ? -1 : EXIT_OK;
}

static const struct cli_flag top_flags[] = {
    { "every", "TIME", "Time between two rounds on a terminal (2s)" },
    { "once", NULL, "Print one round, also on a terminal" },
    { 0 },
};

const struct command cmd_top = {
    .name = "top",
    .help = "Show running sandboxes by processor time and memory, the busiest first.",
    .more = "On a terminal, refreshes until `q` or Ctrl-C; otherwise prints one round. 100 percent "
            "is one core. Looking does not keep a sandbox awake.",
    .flags = top_flags,
    .traits = CMD_REMOTE,
    .run = top_run,
};
