/*
 * Everything that is printed. Text from elsewhere passes show_text on its way, in the cells of
 * tables and in error messages alike. Output is collected and written in one go; a reader that has
 * gone (`| head`) is no error but the end.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/ioctl.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/show.h"
#include "cli/cli.h"
#include "cli/text.h"

static int write_all(int fd, struct str text)
{
    while (text.n) {
        ssize_t done = write(fd, text.p, text.n);

        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return -1;
        text = str_from(text, (size_t)done);
    }
    return 0;
}

int cli_flush(struct cli *cli, struct err *err)
{
    int rc = write_all(cli->out_fd, buf_view(&cli->out));

    buf_clear(&cli->out);
    return rc < 0 ? err_sys(err, "write to standard output") : 0;
}

size_t cli_width(const struct cli *cli)
{
    struct winsize size;

    return ioctl(cli->out_fd, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

static unsigned within(unsigned size, unsigned least, unsigned most)
{
    return MAX(least, MIN(size, most));
}

bool cli_size(unsigned *rows, unsigned *cols)
{
    struct winsize size;

    if (ioctl(STDIN_FILENO, TIOCGWINSZ, &size) < 0 || !size.ws_row || !size.ws_col)
        return false;
    *rows = within(size.ws_row, TERM_ROWS_MIN, SCREEN_ROWS_MAX);
    *cols = within(size.ws_col, TERM_COLS_MIN, SCREEN_COLS_MAX);
    return true;
}

bool cli_colour(const struct cli *cli, int fd)
{
    const char *none = getenv("NO_COLOR"), *term = getenv("TERM");

    (void)cli;
    return isatty(fd) && !(none && none[0]) && term && strcmp(term, "dumb") != 0;
}

int cli_put_reply(struct cli *cli)
{
    buf_str(&cli->out, cli->reply);
    if (!cli->reply.n || cli->reply.p[cli->reply.n - 1] != '\n')
        buf_putc(&cli->out, '\n');
    return 0;
}

/* ---- JSON as people read it ---- */

static void put_list(struct buf *out, const struct json *list)
{
    json_each(item, list)
    {
        if (item != list->first)
            buf_puts(out, ",");
        if (item->type == JSON_STRING)
            buf_str(out, item->text);
        else
            buf_puts(out, "…");
    }
}

static bool is_size(const char *key)
{
    static const char *const keys[] = { "memory",      "memory_peak", "memory_limit",
                                        "disk",        "bytes",       "used",
                                        "used_memory", "used_disk",   "sandbox_memory",
                                        "sandbox_disk" };

    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        if (strcmp(key, keys[i]) == 0)
            return true;
    return false;
}

void cli_value(struct buf *out, const struct json *value, const char *key)
{
    size_t len = strlen(key);
    struct json_out json = json_to(out);

    if (!value || value->type == JSON_NULL) {
        buf_puts(out, strcmp(key, "expires_at") == 0 ? "never" : "-");
        return;
    }
    switch (value->type) {
    case JSON_STRING:
        buf_str(out, value->text.n ? value->text : STR("-"));
        break;
    case JSON_BOOL:
        buf_puts(out, value->truth ? "yes" : "no");
        break;
    case JSON_INT:
        if (len > 3 && strcmp(key + len - 3, "_ms") == 0)
            text_duration(out, value->num);
        else if (is_size(key))
            text_bytes(out, value->num);
        else
            buf_printf(out, "%lld", (long long)value->num);
        break;
    case JSON_ARRAY:
        if (!value->first)
            buf_putc(out, '-');
        put_list(out, value);
        break;
    default:
        json_put(&json, value);
    }
}

/* "last_used_at" is LAST USED in a title. */
static void put_title(struct buf *out, struct str key)
{
    static const char *const units[] = { "_at", "_ms" };

    for (size_t i = 0; i < ARRAY_LEN(units); i++) {
        size_t n = strlen(units[i]);

        if (key.n > n && str_is(str_from(key, key.n - n), units[i]))
            key.n -= n;
    }
    for (size_t i = 0; i < key.n; i++) {
        char c = key.p[i];

        buf_putc(out, c == '_' ? ' ' : c >= 'a' && c <= 'z' ? (char)(c - 'a' + 'A') : c);
    }
}

/* People read "3m 2s ago" faster than a time of UTC; programs get the time. */
static bool put_age(struct buf *out, const struct json *value)
{
    int64_t at;

    if (!value || value->type != JSON_STRING || !clock_parse(value->text, &at))
        return false;
    int64_t age = clock_wall_ms() - at;
    buf_puts(out, age < 0 ? "in " : "");
    text_duration(out, age < 0 ? -age : age);
    buf_puts(out, age < 0 ? "" : " ago");
    return true;
}

static void put_cell(struct table *table, const struct json *row, struct str key, bool ages)
{
    autobuf struct buf cell = { 0 };
    autofree char *name = xmemdup0(key.p, key.n);
    const struct json *value = json_get(row, name);

    if (!ages || key.n < 3 || !str_is(str_from(key, key.n - 3), "_at") || !put_age(&cell, value))
        cli_value(&cell, value, name);
    table_cell(table, buf_view(&cell));
}

int cli_word(struct cli *cli, const struct json *object, const char *member)
{
    if (cli->json)
        return cli_put_reply(cli);
    show_text(&cli->out, json_text(object, member));
    buf_putc(&cli->out, '\n');
    return 0;
}

int cli_table(struct cli *cli, const struct json *items, const char *columns)
{
    autotable struct table table = { 0 };
    autobuf struct buf titles = { 0 };
    struct str rest = str_of(columns);

    if (cli->json)
        return cli_put_reply(cli);

    while (rest.n) {
        struct str key = str_cut(&rest, ',');

        if (str_starts(key, STR(">")))
            buf_putc(&titles, '>');
        if (str_is(key, "id"))
            buf_putc(&titles, '!');
        put_title(&titles, str_from(key, key.p[0] == '>'));
        buf_puts(&titles, rest.n ? "," : "");
    }
    table_titles(&table, buf_cstr(&titles));
    json_each(row, items && items->type == JSON_ARRAY ? items : NULL) for (rest = str_of(columns);
                                                                           rest.n;)
    {
        struct str key = str_cut(&rest, ',');

        put_cell(&table, row, str_from(key, key.p[0] == '>'), cli_width(cli) != 0);
    }
    table_put(&table, &cli->out, cli_width(cli), cli_colour(cli, cli->out_fd));
    return 0;
}

int cli_details(struct cli *cli, const struct json *object, const char *members)
{
    autotable struct table table = { .columns = 2 };
    struct str rest = str_of(members);

    if (cli->json)
        return cli_put_reply(cli);

    while (rest.n) {
        struct str key = str_cut(&rest, ',');
        autobuf struct buf title = { 0 };

        put_title(&title, key);
        for (size_t i = 1; i < title.len; i++)
            if (title.data[i] >= 'A' && title.data[i] <= 'Z')
                title.data[i] = (char)(title.data[i] - 'A' + 'a');
        table_cell(&table, buf_view(&title));
        put_cell(&table, object, key, false);
    }
    table_put(&table, &cli->out, 0, false); /* never cut: a token must be whole */
    return 0;
}

/* ---- standard error ---- */

void cli_note(struct cli *cli, const char *fmt, ...)
{
    autobuf struct buf text = { 0 }, line = { 0 };
    va_list args;

    va_start(args, fmt);
    buf_vprintf(&text, fmt, args);
    va_end(args);
    buf_puts(&line, "atoll: ");
    show_text(&line, buf_view(&text));
    buf_putc(&line, '\n');
    (void)!write_all(cli->err_fd, buf_view(&line));
}

static void error_json(const struct cli *cli, const struct err *err, struct buf *out)
{
    struct json_out json = json_to(out);

    json_open(&json, '{');
    json_key(&json, "error");
    json_open(&json, '{');
    json_kv_text(&json, "code", cli->usage ? "usage" : err_info(err->code)->name);
    json_kv_text(&json, "reason", err_reason_name(err->reason));
    json_kv_text(&json, "message", err->msg);
    json_kv_text(&json, "field", err->field[0] ? err->field : NULL);
    json_kv_text(&json, "request_id", cli->request_id[0] ? cli->request_id : NULL);
    json_kv_text(&json, "hint", cli->hint[0] ? cli->hint : NULL);
    json_close(&json, '}');
    json_close(&json, '}');
    buf_putc(out, '\n');
}

void cli_show_error(struct cli *cli, const struct err *err)
{
    autobuf struct buf out = { 0 };
    bool colour = cli_colour(cli, cli->err_fd);

    if (cli->json) {
        error_json(cli, err, &out);
    } else {
        buf_puts(&out, colour ? "\x1b[1;31matoll:\x1b[0m " : "atoll: ");
        show_text(&out, str_of(err->msg));
        if (cli->request_id[0]) {
            buf_puts(&out, " (request ");
            show_text(&out, str_of(cli->request_id));
            buf_putc(&out, ')');
        }
        buf_putc(&out, '\n');
        if (cli->hint[0])
            buf_puts(&out, "  ");
        show_text(&out, str_of(cli->hint));
        buf_puts(&out, cli->hint[0] ? "\n" : "");
    }
    (void)!write_all(cli->err_fd, buf_view(&out));
}
