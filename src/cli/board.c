/*
 * How it is drawn: as many columns stand beside each other as have room (COLUMN_LEAST each), the
 * rest below them. Each column is a list of finished lines, already cut to its width; a band of
 * columns is printed line by line. With lanes, each lane has its own bands.
 */
#include "cli/board.h"

#include <string.h>

#include "base/mem.h"
#include "base/show.h"
#include "cli/cli.h"

#define COLUMN_LEAST 16
#define GAP 2
#define COLUMNS_MAX 12

struct column {
    const struct json *of; /* {status, limit, count} */
    struct buf lines;      /* each ended by NUL, at most `width` wide */
};

struct drawing {
    struct buf *out;
    size_t width, each; /* of a line, of a column */
    unsigned beside;    /* columns beside each other */
    bool colour;
    struct column columns[COLUMNS_MAX];
    unsigned count;
};

/* ---- text that fits ---- */

static void spaces(struct buf *out, size_t count)
{
    while (count--)
        buf_putc(out, ' ');
}

/* Visible text, cut to `width` with an ellipsis; how wide it became. */
static size_t put_fit(struct buf *out, struct str text, size_t width)
{
    autobuf struct buf shown = { 0 };

    show_text(&shown, text);
    struct str all = buf_view(&shown);
    size_t have = text_width(all);
    if (have <= width) {
        buf_str(out, all);
        return have;
    }
    struct str cut = text_fit(all, width ? width - 1 : 0);
    buf_str(out, cut);
    buf_puts(out, width ? "…" : "");
    return text_width(cut) + (width != 0);
}

static void line(struct column *column, const char *indent, struct str text, size_t width)
{
    size_t used = strlen(indent);

    if (used >= width)
        return;
    buf_puts(&column->lines, indent);
    put_fit(&column->lines, text, width - used);
    buf_putc(&column->lines, 0);
}

/* ---- cards ---- */

static void card_note(struct column *column, const struct json *task, const char *what,
                      const char *member, size_t width)
{
    autobuf struct buf text = { 0 };
    struct str value = json_text(task, member);

    if (!value.n)
        return;
    buf_puts(&text, what);
    buf_str(&text, value);
    line(column, "   ", buf_view(&text), width);
}

static void card(struct column *column, const struct json *task, size_t width)
{
    autobuf struct buf title = { 0 };
    int64_t required = json_num(task, "approvals_required", 0);

    buf_str(&title, json_text(task, "priority"));
    buf_putc(&title, ' ');
    buf_str(&title, json_text(task, "title"));
    line(column, "", str_trim(buf_view(&title)), width);
    card_note(column, task, "@", "assigned_to", width);
    card_note(column, task, "! ", "blocked_reason", width);
    if (required && str_is(json_text(task, "status"), "in_review")) {
        autobuf struct buf text = { 0 };

        buf_printf(&text, "%lld/%lld approved", (long long)json_num(task, "approvals", 0),
                   (long long)required);
        line(column, "   ", buf_view(&text), width);
    }
}

static void column_title(const struct column *column, struct buf *out)
{
    struct str status = json_text(column->of, "status");
    const struct json *limit = json_get(column->of, "limit");

    for (size_t i = 0; i < status.n; i++) {
        char c = status.p[i];

        buf_putc(out, c == '_' ? ' ' : c >= 'a' && c <= 'z' ? (char)(c - 'a' + 'A') : c);
    }
    buf_printf(out, " %lld", (long long)json_num(column->of, "count", 0));
    if (limit && limit->type == JSON_INT)
        buf_printf(out, " (≤%lld)", (long long)limit->num); /* for each agent */
}

/* ---- bands ---- */

static bool put_row(struct drawing *drawing, struct str *rest, unsigned from, unsigned to)
{
    struct buf *out = drawing->out;
    bool any = false;
    size_t owed = 0; /* spaces that only matter when something follows */

    for (unsigned i = from; i < to; i++)
        any |= rest[i].n > 0;
    for (unsigned i = from; any && i < to; i++) {
        struct str text = rest[i].n ? str_cut(&rest[i], 0) : STR_NONE;

        if (text.n) {
            spaces(out, owed);
            owed = 0;
            buf_str(out, text);
        }
        owed += drawing->each - text_width(text) + GAP;
    }
    if (any)
        buf_putc(out, '\n');
    return any;
}

static void put_titles(struct drawing *drawing, unsigned from, unsigned to)
{
    struct buf *out = drawing->out;
    size_t owed = 0;

    buf_puts(out, drawing->colour ? "\x1b[1m" : "");
    for (unsigned i = from; i < to; i++) {
        autobuf struct buf title = { 0 };

        spaces(out, owed);
        column_title(&drawing->columns[i], &title);
        owed = drawing->each + GAP - put_fit(out, buf_view(&title), drawing->each);
    }
    buf_puts(out, drawing->colour ? "\x1b[0m\n" : "\n");
    owed = 0;
    for (unsigned i = from; i < to; i++) {
        spaces(out, owed);
        for (size_t n = 0; n < drawing->each; n++)
            buf_puts(out, "─");
        owed = GAP;
    }
    buf_putc(out, '\n');
}

static void put_lane(struct drawing *drawing, const struct json *lane)
{
    const struct json *columns = json_get(lane, "columns");
    struct str rest[COLUMNS_MAX];

    for (unsigned i = 0; i < drawing->count; i++) {
        struct column *column = &drawing->columns[i];
        autofree char *status =
            xmemdup0(json_text(column->of, "status").p, json_text(column->of, "status").n);

        column->lines.len = 0;
        json_each(task, json_get(columns, status)) card(column, task, drawing->each);
        rest[i] = buf_view(&column->lines);
    }
    for (unsigned from = 0; from < drawing->count; from += drawing->beside) {
        unsigned to = MIN(from + drawing->beside, drawing->count);

        put_titles(drawing, from, to);
        while (put_row(drawing, rest, from, to))
            ;
        buf_putc(drawing->out, '\n');
    }
}

static void put_heading(struct drawing *drawing, const char *before, struct str text)
{
    autobuf struct buf all = { 0 };

    buf_puts(&all, before);
    buf_str(&all, text);
    buf_puts(drawing->out, drawing->colour ? "\x1b[1m" : "");
    put_fit(drawing->out, buf_view(&all), drawing->width);
    buf_puts(drawing->out, drawing->colour ? "\x1b[0m\n" : "\n");
}

static void put_leases(struct drawing *drawing, const struct json *leases)
{
    if (!leases || !leases->count)
        return;
    put_heading(drawing, "LEASES", STR_NONE);
    json_each(lease, leases)
    {
        autobuf struct buf text = { 0 };

        buf_putc(&text, '@');
        buf_str(&text, json_text(lease, "agent"));
        buf_putc(&text, ' ');
        buf_str(&text, json_text(lease, "mode"));
        buf_putc(&text, ' ');
        cli_value(&text, json_get(lease, "paths"), "paths");
        buf_puts(&text, " until ");
        buf_str(&text, json_text(lease, "expires_at"));
        put_fit(drawing->out, str_trim(buf_view(&text)), drawing->width);
        buf_putc(drawing->out, '\n');
    }
}

void board_put(struct buf *out, const struct json *board, size_t width, bool colour)
{
    struct drawing drawing = { .out = out,
                               .width = MAX(width, (size_t)BOARD_WIDTH_MIN),
                               .colour = colour };
    struct str by = json_text(board, "lanes_by");
    bool lanes = by.n && !str_is(by, "none");
    autofree char *kind = xprintf("%.*s: ", STR_FMT(by));

    json_each(column, json_get(board, "columns")) if (drawing.count < COLUMNS_MAX)
        drawing.columns[drawing.count++]
            .of = column;
    if (!drawing.count)
        return;
    drawing.beside = (unsigned)MAX((drawing.width + GAP) / (COLUMN_LEAST + GAP), (size_t)1);
    drawing.beside = MIN(drawing.beside, drawing.count);
    drawing.each = (drawing.width + GAP) / drawing.beside - GAP;
    put_heading(&drawing, "", json_text(board, "name"));
    buf_putc(out, '\n');
    json_each(lane, json_get(board, "lanes"))
    {
        struct str name = json_text(lane, "lane");

        if (lanes)
            put_heading(&drawing, kind, name.n ? name : STR("-"));
        put_lane(&drawing, lane);
    }
    put_leases(&drawing, json_get(board, "leases"));
    for (unsigned i = 0; i < drawing.count; i++)
        buf_free(&drawing.columns[i].lines);
}

/* ---- the command ---- */

struct watch {
    struct cli *cli;
    bool stale; /* something happened since it was drawn */
    bool live;  /* on a terminal, over what was there */
};

static int draw(struct watch *watch, struct err *err)
{
    struct cli *cli = watch->cli;
    size_t width = cli_width(cli);
    const char *path = cli_view_path(cli, err);
    const struct json *board;

    watch->stale = false;
    cli_forget(cli);
    if (!path || cli_get(cli, &board, err, "%s", path) < 0)
        return err_wrap(err, "board of %s", cli->args[0]);
    if (cli->json)
        return cli_put_reply(cli);
    buf_puts(&cli->out, watch->live ? "\x1b[H\x1b[2J" : "");
    board_put(&cli->out, board, width ? width : BOARD_WIDTH, cli_colour(cli, cli->out_fd));
    return EXIT_OK;
}

static int on_event(void *ctx, const struct json *event, struct str text, struct err *err)
{
    struct watch *watch = ctx;

    (void)event, (void)text, (void)err;
    watch->stale = true;
    return 0;
}

static int on_settled(void *ctx, struct err *err)
{
    struct watch *watch = ctx;

    if (!watch->stale)
        return 0;
    return draw(watch, err) < 0 ? -1 : cli_flush(watch->cli, err);
}

static int board_run(struct cli *cli, struct err *err)
{
    struct watch watch = { .cli = cli, .stale = true };
    struct cli_follower follower = { .event = on_event, .settled = on_settled, .ctx = &watch };

    const struct json *project;

    if (!cli_has(cli, "watch"))
        return draw(&watch, err);
    /* Events know the id, whatever the project was called here. */
    if (cli_get(cli, &project, err, "/projects/%s", cli_escape(cli, cli->args[0])) < 0)
        return err_wrap(err, "board of %s", cli->args[0]);
    struct str id = json_text(project, "id");
    cli->args[0] = arena_memdup0(&cli->arena, id.p, id.n);
    watch.live = cli_width(cli) > 0 && !cli->json;
    return cli_follow(
        cli, -1,
        arena_printf(&cli->arena, "&object=%s",
                     cli_escape(cli, arena_printf(&cli->arena, "hub/project/%s/", cli->args[0]))),
        &follower, err);
}

const struct command cmd_board = {
    .name = "board",
    .args = "PROJECT",
    .help = "Draw the board of a project.",
    .more = "Columns are fitted to the width of the terminal; what has no room beside the others "
            "stands below them. With --watch it is drawn again whenever something happens.\n\n"
            "Example:\n  atoll board 0b9c… --lanes agent --watch",
    .flags = (const struct cli_flag[]){ { "lanes", "BY", "agent, priority or label (none)" },
                                        { "watch", NULL, "Go on, and show every change" },
                                        { 0 } },
    .traits = CMD_REMOTE,
    .view = { .path = "/projects/{}/board", .query = "lanes=--lanes" },
    .run = board_run,
};
