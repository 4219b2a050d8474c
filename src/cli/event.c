/*
 * `event tail` prints each event once, in order, for as long as it is let. It knows the number of
 * the last event it printed; when the stream ends for whatever reason (restart, network, silence
 * for longer than the server's keep-alives allow) it connects again and asks for what follows.
 * Only an answer that waiting cannot change ends it: not allowed, beyond retention, wrong filter.
 *
 * Before it follows from "now", it asks for the newest number: from there on nothing can be missed,
 * not even between the first connection and the second.
 */
#include <poll.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/show.h"
#include "cli/cli.h"
#include "cli/sse.h"

#define RETRY_MIN_MS 100
#define RETRY_MAX_MS 5000
/* Beyond every event: such a page is empty and tells the newest number. */
#define AFTER_ALL "9007199254740991"

struct tail {
    struct cli *cli;
    int64_t since;      /* the last event told, or where to begin */
    const char *filter; /* borrowed; "&type=…&object=…" */
    struct cli_follower follower;
    struct sse sse;
    bool said_lost;     /* that the connection is lost, once for each time */
    int64_t wait_ms;    /* before the next attempt */
    int64_t ends_ms;    /* it gives up then */
    struct arena arena; /* for one event */
};

static void tail_free(struct tail *tail)
{
    sse_free(&tail->sse);
    arena_free(&tail->arena);
}

/* ---- one event ---- */

static void put_line(struct buf *out, const struct json *event)
{
    autobuf struct buf data = { 0 };
    struct json_out json = json_to(&data);

    if (json_get(event, "data"))
        json_put(&json, json_get(event, "data"));
    buf_printf(out, "%lld ", (long long)json_num(event, "seq", 0));
    show_text(out, json_text(event, "time"));
    buf_putc(out, ' ');
    show_text(out, json_text(event, "type"));
    buf_putc(out, ' ');
    struct str object = json_text(event, "object");
    show_text(out, object.n ? object : STR("-"));
    buf_putc(out, ' ');
    show_text(out, buf_view(&data));
    buf_putc(out, '\n');
}

static int print(void *ctx, const struct json *event, struct str text, struct err *err)
{
    struct cli *cli = ctx;

    if (cli->json) {
        if (text.p) {
            buf_str(&cli->out, text);
        } else {
            struct json_out json = json_to(&cli->out);

            json_put(&json, event);
        }
        buf_putc(&cli->out, '\n');
    } else {
        put_line(&cli->out, event);
    }
    return cli_flush(cli, err);
}

static int on_event(void *ctx, const char *type, struct str data, struct err *err)
{
    struct tail *tail = ctx;
    struct json *event;

    if (strcmp(type, "reset") == 0)
        return 0; /* the stream ends now; asking again tells whether that is for good */
    arena_free(&tail->arena);
    tail->arena = (struct arena){ 0 };
    if (json_parse(&tail->arena, data, &event, err) < 0)
        return err_wrap(err, "an event of the server");
    int64_t seq = json_num(event, "seq", 0);
    if (seq <= tail->since)
        return 0; /* seen before */
    tail->since = seq;
    tail->wait_ms = RETRY_MIN_MS;
    return tail->follower.event(tail->follower.ctx, event, data, err);
}

static int settled(struct tail *tail, struct err *err)
{
    return tail->follower.settled ? tail->follower.settled(tail->follower.ctx, err) : 0;
}

/* ---- following ---- */

/* Will asking again help? */
static bool passes(const struct err *err)
{
    return err->code == ERR_UNAVAILABLE || err->code == ERR_TIMEOUT || err->code == ERR_RATE ||
           err->code == ERR_NO_SPACE;
}

static int stream(struct tail *tail, struct err *err)
{
    struct cli *cli = tail->cli;
    autoclient struct client *client = NULL;
    autofree char *path =
        xprintf("/api/v1/events?since=%lld%s", (long long)tail->since, tail->filter);
    struct client_request request = {
        .method = "GET", .path = path, .token = cli->at.token, .accept = "text/event-stream"
    };
    struct client_options options = { .ca_file = cli->at.ca };
    struct client_reply reply;
    char part[8192], last[24];

    snprintf(last, sizeof(last), "%lld", (long long)tail->since);
    if (tail->said_lost) /* as a browser does; the query says the same */
        request.extra[0] = (struct client_field){ "Last-Event-ID", last };
    if (cli_deadline(cli, &options.deadline_ms, err) < 0 ||
        client_start(&client, &cli->at.target, &request, &options, &reply, err) < 0)
        return -1;
    if (reply.status != 200)
        return cli_refused_on(cli, client, &reply, err);
    if (strncmp(reply.content_type, "text/event-stream", 17) != 0)
        return err_set(err, ERR_INTERNAL, "the server's answer is no event stream");
    if (tail->said_lost)
        cli_note(cli, "connected again");
    tail->said_lost = false;
    sse_reset(&tail->sse);
    for (;;) {
        client_deadline(client, MIN(clock_mono_ms() + 4ll * SSE_KEEPALIVE_MS, tail->ends_ms));
        ssize_t got = client_read(client, part, sizeof(part), err);
        if (got < 0)
            return -1;
        if (got == 0)
            return err_set(err, ERR_UNAVAILABLE, "the server ended the stream");
        if (sse_feed(&tail->sse, (struct str){ part, (size_t)got }, on_event, tail, err) < 0 ||
            settled(tail, err) < 0)
            return -1;
    }
}

static int follow(struct tail *tail, struct err *err)
{
    bool once = false; /* connected; before that every failure is final */

    for (;;) {
        tail->cli->hint[0] = tail->cli->request_id[0] = 0;
        stream(tail, err);
        once |= tail->sse.retry_ms > 0;
        if (once && clock_mono_ms() >= tail->ends_ms)
            return err_set(err, ERR_TIMEOUT, "there may be more events");
        if (!once || !passes(err)) {
            if (!tail->cli->hint[0])
                cli_hint_unreached(tail->cli, err);
            return -1;
        }
        if (!tail->said_lost)
            cli_note(tail->cli, "%s; connecting again, from event %lld", err->msg,
                     (long long)tail->since);
        tail->said_lost = true;
        int64_t wait = MAX(tail->wait_ms, err->retry_after * 1000ll);
        poll(NULL, 0, (int)MIN(wait, 60000));
        tail->wait_ms = MIN(tail->wait_ms * 2, RETRY_MAX_MS);
    }
}

/* ---- pages ---- */

static int all_pages(struct tail *tail, struct err *err)
{
    for (;;) {
        const struct json *page;
        int64_t before = tail->since;

        if (cli_get(tail->cli, &page, err, "/api/v1/events?since=%lld&limit=%d%s",
                    (long long)tail->since, PAGE_MAX, tail->filter) < 0)
            return -1;
        json_each(event, json_get(page, "items")) if (print(tail->cli, event, STR_NONE, err) <
                                                      0) return -1;
        tail->since = json_num(page, "next", before);
        int64_t head = json_num(page, "head", 0);
        cli_forget(tail->cli);
        if (tail->since <= before || tail->since >= head)
            return EXIT_OK;
    }
}

static int newest(struct cli *cli, int64_t *out, struct err *err)
{
    const struct json *page;

    if (cli_get(cli, &page, err, "/api/v1/events?limit=1&since=" AFTER_ALL) < 0)
        return -1;
    *out = json_num(page, "head", 0);
    return 0;
}

int cli_follow(struct cli *cli, int64_t since, const char *filter,
               const struct cli_follower *follower, struct err *err)
{
    auto_with(tail_free) struct tail tail = {
        .cli = cli, .since = since, .filter = filter, .wait_ms = RETRY_MIN_MS, .follower = *follower
    };

    if (cli_ends(cli, &tail.ends_ms, err) < 0 || (since < 0 && newest(cli, &tail.since, err) < 0))
        return -1;
    if (settled(&tail, err) < 0)
        return -1;
    return follow(&tail, err);
}

static const char *filter_of(struct cli *cli)
{
    static const char *const names[] = { "type", "object" };
    autobuf struct buf out = { 0 };

    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (cli_has(cli, names[i]))
            buf_printf(&out, "&%s=%s", names[i], cli_escape(cli, cli_text(cli, names[i])));
    return arena_memdup0(&cli->arena, out.data, out.len);
}

static int events(struct cli *cli, bool pages, struct err *err)
{
    struct cli_follower follower = { .event = print, .ctx = cli };
    int64_t since;
    int rc;

    if (cli_int(cli, "since", 0, 0, &since, err) < 0 || endpoint_find(cli, err) < 0)
        return -1;
    if (pages) {
        struct tail tail = { .cli = cli, .since = since, .filter = filter_of(cli) };

        rc = all_pages(&tail, err);
    } else {
        rc = cli_follow(cli, cli_has(cli, "since") ? since : -1, filter_of(cli), &follower, err);
    }
    return rc < 0 && err->sys == 0 ? err_wrap(err, "events") : rc;
}

static int tail_run(struct cli *cli, struct err *err)
{
    return events(cli, cli_has(cli, "no-follow"), err);
}

static const struct cli_flag tail_flags[] = {
    { "since", "N", "Begin after event N; 0 for all that are kept (from now on)" },
    { "type", "TYPE", "Only these types: token.created, or token.*; a comma list" },
    { "object", "OBJECT", "Only about this object: token/tok…, or token/ for all of a kind" },
    { "no-follow", NULL, "Stop at the newest instead of waiting for more" },
    { 0 },
};

/* ---- by source, type and time, as agentic's command line asks ---- */

/* A number says after which event, and is not for here; "1h" and RFC 3339 say when. */
static int put_since(struct cli *cli, struct buf *query, struct err *err)
{
    const char *text = cli_text(cli, "since");
    char when[CLOCK_TEXT_SIZE];
    int64_t at_ms;
    uint64_t ago;

    if (!text)
        return 0;
    if (!clock_parse(str_of(text), &at_ms)) {
        if (!str_to_ms(str_of(text), &ago) || ago > INT64_MAX / 2)
            return cli_usage(cli, err,
                             "--since: \"%s\" is no time, such as 1h or "
                             "2026-11-15T09:14:07Z, and with --source and --event-type "
                             "no number counts",
                             text);
        at_ms = MAX(clock_wall_ms() - (int64_t)ago, (int64_t)0);
    }
    clock_text(at_ms, when);
    buf_printf(query, "&since=%s", when);
    return 0;
}

static void put_told(struct cli *cli, const struct json *event)
{
    autobuf struct buf details = { 0 };
    struct json_out json = json_to(cli->json ? &cli->out : &details);

    if (cli->json) {
        json_put(&json, event);
    } else {
        static const char *const words[] = { "timestamp", "event_type", "vm_name" };

        json_put(&json, json_get(event, "details"));
        for (size_t i = 0; i < ARRAY_LEN(words); i++) {
            struct str text = json_text(event, words[i]);

            show_text(&cli->out, text.n ? text : STR("-"));
            buf_putc(&cli->out, ' ');
        }
        show_text(&cli->out, buf_view(&details));
    }
    buf_putc(&cli->out, '\n');
}

static int list_told(struct cli *cli, struct err *err)
{
    static const char *const flags[] = { "source", "event-type" }, *const names[] = {
        "source", "event_type"
    };
    autobuf struct buf query = { 0 };
    const struct json *reply;
    size_t count = 0;

    if (cli_has(cli, "type") || cli_has(cli, "object"))
        return cli_usage(cli, err, "--type and --object, or --source and --event-type");
    for (size_t i = 0; i < ARRAY_LEN(flags); i++)
        if (cli_has(cli, flags[i]))
            buf_printf(&query, "&%s=%s", names[i], cli_escape(cli, cli_text(cli, flags[i])));
    if (put_since(cli, &query, err) < 0)
        return -1;
    if (cli_get(cli, &reply, err, "/api/v1/events?include_archived=true&limit=%d%s",
                EVENTS_WORDS_MAX, buf_cstr(&query)) < 0)
        return err_wrap(err, "events");
    const struct json *told = json_get(reply, "events");
    const struct json **all =
        arena_alloc(&cli->arena, ((told ? told->count : 0) + 1) * sizeof(*all));
    json_each(event, told) all[count++] = event;
    while (count > 0) /* the newest comes first; here it is last */
        put_told(cli, all[--count]);
    return EXIT_OK;
}

static int ls_run(struct cli *cli, struct err *err)
{
    uint64_t number;
    bool when = cli_has(cli, "since") && !str_to_u64(str_of(cli_text(cli, "since")), &number);

    if (when || cli_has(cli, "source") || cli_has(cli, "event-type"))
        return list_told(cli, err);
    return events(cli, true, err);
}

static const struct cli_flag ls_flags[] = {
    { "since", "N|TIME", "Those after event N (0: all that are kept); or after 1h ago, or a time" },
    { "type", "TYPE", "Only these types: token.created, or token.*; a comma list" },
    { "object", "OBJECT", "Only about this object: token/tok…, or token/ for all of a kind" },
    { "source", "NAME", "Only about this agent, machine or sandbox; the newest 5000" },
    { "event-type", "TYPE", "Only of this type, likewise" },
    { 0 },
};

const struct command cmd_event_ls = {
    .name = "event ls",
    .help = "Print the events that are kept, oldest first, one line each.",
    .flags = ls_flags,
    .traits = CMD_REMOTE,
    .run = ls_run,
};

const struct command cmd_event_tail = {
    .name = "event tail",
    .help = "Print events as they happen, one line each.",
    .more = "Each line is the number, the time, the type, the object and the data. When the "
            "connection is lost, the command connects again and goes on without gaps or "
            "duplicates. Events beyond retention end it with status 2.\n\n"
            "Examples:\n  atoll event tail --since 0\n  atoll event tail --type 'token.*' --json",
    .flags = tail_flags,
    .traits = CMD_REMOTE,
    .run = tail_run,
};
