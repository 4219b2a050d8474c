/*
 * One request to the server and its answer as JSON. An answer that says no becomes an error with
 * the server's own code and words; what could be done about it is added here, because only this
 * side knows how the user called.
 */
#include <stdarg.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/id.h"
#include "cli/cli.h"

int cli_deadline(struct cli *cli, int64_t *deadline_ms, struct err *err)
{
    int64_t timeout;

    int64_t usual = cli->command->timeout_ms ? cli->command->timeout_ms : CLI_TIMEOUT_MS;

    if (cli_ms(cli, "timeout", usual, &timeout, err) < 0)
        return -1;
    if (cli->command->traits & CMD_LIMITS)
        timeout = MAX(timeout, usual);
    *deadline_ms = clock_mono_ms() + timeout;
    return 0;
}

int cli_ends(struct cli *cli, int64_t *ends_ms, struct err *err)
{
    int64_t timeout;

    if (cli_ms(cli, "timeout", INT64_MAX / 4, &timeout, err) < 0)
        return -1;
    *ends_ms = clock_mono_ms() + timeout;
    return 0;
}

const char *cli_escape(struct cli *cli, const char *text)
{
    static const char digits[] = "0123456789ABCDEF";
    autobuf struct buf out = { 0 };

    for (const char *p = text; *p; p++) {
        unsigned char c = (unsigned char)*p;

        if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
            strchr("-._~", c)) {
            buf_putc(&out, (char)c);
        } else {
            buf_putc(&out, '%');
            buf_putc(&out, digits[c >> 4]);
            buf_putc(&out, digits[c & 15]);
        }
    }
    return arena_memdup0(&cli->arena, out.data, out.len);
}

/* ---- saying what could be done ---- */

static void hint(struct cli *cli, const char *fmt, ...) printf_like(2, 3);
static void hint(struct cli *cli, const char *fmt, ...)
{
    va_list args;

    if (cli->hint[0])
        return;
    va_start(args, fmt);
    vsnprintf(cli->hint, sizeof(cli->hint), fmt, args);
    va_end(args);
}

void cli_hint_unreached(struct cli *cli, const struct err *err)
{
    if (err->code == ERR_TIMEOUT)
        hint(cli, "--timeout gives it longer than %s",
             cli->command->traits & CMD_LIMITS ? "so far"
             : cli_text(cli, "timeout")        ? cli_text(cli, "timeout")
             : cli->command->timeout_ms        ? "so far"
                                               : "30s");
    else if (err->code == ERR_UNAUTHENTICATED)
        hint(cli, "--ca FILE trusts another authority");
    else if (err->code == ERR_UNAVAILABLE || err->sys)
        hint(cli, "is the server running? `atoll serve` starts one; --addr names another%s (%s)",
             strcmp(cli->command->name, "run") == 0 ? "; --private uses one of its own" : "",
             cli->at.how ? cli->at.how : "");
}

static void hint_refused(struct cli *cli, const struct err *err)
{
    const char *from = cli->at.token_from ? cli->at.token_from : cli->at.how;

    switch (err->code) {
    case ERR_UNAUTHENTICATED:
        if (cli->at.token && !str_starts(str_of(cli->at.token), STR("atl_")))
            hint(cli, "the token was given by: %s", from);
        else if (cli->at.token)
            hint(cli, "the token is unknown, expired or revoked (%s)", from);
        else
            hint(cli, "no token was found (%s); set ATOLL_TOKEN, or run as the server's owner",
                 cli->at.how);
        break;
    case ERR_FORBIDDEN:
        if (err->reason == REASON_ROLE) /* no role helps with a file that may not be read */
            hint(cli, "`atoll whoami` shows the role and scopes you have");
        break;
    case ERR_NOT_FOUND:
        if (strncmp(err->msg, "project not found", 17) == 0)
            hint(cli, "`atoll project ls` lists the projects");
        if (strncmp(err->msg, "task not found", 14) == 0)
            hint(cli, "`atoll task ls PROJECT` lists the tasks");
        break;
    case ERR_CONFLICT:
        if (err->reason == REASON_PAUSED)
            hint(cli, "`atoll resume` lets it go on");
        if (err->reason == REASON_STOPPED)
            hint(cli, "`atoll start` starts it again");
        break;
    case ERR_MISDIRECTED:
        hint(cli, "the server's setting `host` must list %s", cli->at.target.host);
        break;
    case ERR_RATE:
        if (err->retry_after)
            hint(cli, "try again in %d s", err->retry_after);
        break;
    default:
        break;
    }
}

/* ---- answers ---- */

static enum err_code code_of(struct str name, int status)
{
    char text[64] = "";

    if (name.p && name.n < sizeof(text))
        memcpy(text, name.p, name.n);
    enum err_code code = err_from_name(text);
    if (code == ERR_NONE || (code == ERR_INTERNAL && strcmp(text, "internal") != 0))
        return err_from_http(status);
    return code;
}

/* An older server says none. */
static enum err_reason reason_of(struct str name)
{
    char text[64] = "";

    if (name.p && name.n < sizeof(text))
        memcpy(text, name.p, name.n);
    return err_reason_from(text);
}

int cli_refused(struct cli *cli, const struct client_reply *reply, struct str body, struct err *err)
{
    struct json *root = NULL;
    struct err ignored;
    const struct json *error = NULL;

    if (json_parse(&cli->answers, body, &root, &ignored) == 0)
        error = json_get(root, "error");
    bool plain = error && error->type == JSON_STRING; /* as the hub says it */
    struct str message = plain ? error->text : json_text(error, "message");
    struct str id = json_text(error, "request_id");
    struct str field = json_text(error, "field");
    if (error && error->type == JSON_STRING) /* as agentic's routes say it */
        message = error->text;
    /* "must not be empty" says little without what; some messages name it themselves. */
    bool named = !field.n || str_starts(message, field) || !str_starts(message, STR("must "));
    if (message.p)
        err_set(err, code_of(json_text(error, "code"), reply->status), "%.*s%s%.*s",
                STR_FMT(named ? STR_NONE : field), named ? "" : " ", STR_FMT(message));
    else
        err_set(err, err_from_http(reply->status), "the server answered with status %d",
                reply->status);
    snprintf(err->field, sizeof(err->field), "%.*s", STR_FMT(field));
    err->reason = reason_of(json_text(error, "reason"));
    snprintf(cli->request_id, sizeof(cli->request_id), "%.*s",
             (int)MIN(id.n, sizeof(cli->request_id) - 1), id.p ? id.p : "");
    if (!cli->request_id[0])
        snprintf(cli->request_id, sizeof(cli->request_id), "%s", reply->request_id);
    err->retry_after = reply->retry_after;
    hint_refused(cli, err);
    return -1;
}

int cli_refused_on(struct cli *cli, struct client *client, const struct client_reply *reply,
                   struct err *err)
{
    char body[8192];
    size_t len = 0;
    ssize_t got = 1;

    while (got > 0 && len < sizeof(body)) {
        got = client_read(client, body + len, sizeof(body) - len, err);
        len += got > 0 ? (size_t)got : 0;
    }
    /* The JSON points into the text. */
    return cli_refused(cli, reply, arena_str(&cli->answers, (struct str){ body, len }), err);
}

int cli_call(struct cli *cli, const char *method, struct str body, const struct json **out,
             struct err *err, const char *path, ...)
{
    autobuf struct buf target = { 0 }, answer = { 0 };
    struct client_options options = { 0 };
    struct client_reply reply;
    struct json *root = NULL;
    char key[ID_SIZE];
    va_list args;

    va_start(args, path);
    buf_vprintf(&target, path, args);
    va_end(args);
    if (endpoint_find(cli, err) < 0 || cli_deadline(cli, &options.deadline_ms, err) < 0)
        return -1;
    options.ca_file = cli->at.ca;
    struct client_request request = {
        .method = method, .path = buf_cstr(&target), .token = cli->at.token, .body = body
    };
    if (strcmp(method, "POST") == 0) {
        id_make(key, "cli");
        request.extra[0] = (struct client_field){ "Idempotency-Key", key };
    }
    if (client_call(&cli->at.target, &request, &options, CLI_REPLY_MAX, &reply, &answer, err) < 0) {
        cli_hint_unreached(cli, err);
        return -1;
    }
    cli->reply = arena_str(&cli->answers, buf_view(&answer));
    if (reply.status < 200 || reply.status > 299)
        return cli_refused(cli, &reply, cli->reply, err);
    if (cli->reply.n && json_parse(&cli->answers, cli->reply, &root, err) < 0)
        return err_wrap(err, "the server's answer");
    if (out)
        *out = root;
    return 0;
}

/* A list while its pages come. */
struct gathered {
    struct json root, items; /* {"items":[…]} */
    struct json **end;
};

static void gather(struct cli *cli, struct gathered *all, const struct json *reply)
{
    json_each(item, json_get(reply, "items"))
    {
        struct json *copy = arena_new(&cli->answers, struct json);

        *copy = *item;
        copy->next = NULL;
        *all->end = copy;
        all->end = &copy->next;
        all->items.count++;
    }
}

int cli_list(struct cli *cli, const struct json **out, struct err *err, const char *path, ...)
{
    struct gathered *all = arena_new(&cli->answers, struct gathered);
    autobuf struct buf target = { 0 }, text = { 0 };
    struct json_out json = json_to(&text);
    const struct json *reply;
    struct str next;
    va_list args;

    va_start(args, path);
    buf_vprintf(&target, path, args);
    va_end(args);
    if (cli_get(cli, &reply, err, "%s", buf_cstr(&target)) < 0)
        return -1;
    *out = reply;
    if (!json_text(reply, "next").n)
        return 0;
    *all = (struct gathered){ { .type = JSON_OBJECT, .count = 1, .first = &all->items },
                              { .type = JSON_ARRAY, .key = STR("items") },
                              &all->items.first };
    gather(cli, all, reply);
    while ((next = json_text(reply, "next")).n) {
        if (cli_get(cli, &reply, err, "%s%climit=%d&after=%.*s", buf_cstr(&target),
                    strchr(buf_cstr(&target), '?') ? '&' : '?', PAGE_MAX, STR_FMT(next)) < 0)
            return -1;
        gather(cli, all, reply);
    }
    if (cli->json) {
        json_put(&json, &all->root);
        cli->reply = arena_str(&cli->answers, buf_view(&text));
    }
    *out = &all->root;
    return 0;
}

void cli_forget(struct cli *cli)
{
    arena_free(&cli->answers);
    cli->answers = (struct arena){ 0 };
    cli->reply = STR_NONE;
}
