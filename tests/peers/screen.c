/*
 * screen ROWS COLS [ROWS2 COLS2] - what our screen makes of the bytes on stdin, as JSON: for the
 * test that compares it with tmux (tests/e2e/test_screen.py). With a second size the screen is
 * resized to it in the end.
 *
 * screen bench MEGABYTES KIND - how fast it takes them: plain, colour or redraw; prints MB/s of CPU
 * time.
 */
#include <stdio.h>
#include <time.h>

#include "term/screen.h"

static unsigned number(const char *text)
{
    return (unsigned)strtoul(text, NULL, 10);
}

static void read_all(struct buf *out)
{
    size_t got;

    do {
        char *room = buf_reserve(out, 65536);

        got = room ? fread(room, 1, 65536, stdin) : 0;
        out->len += got;
    } while (got);
}

static void put_cells(struct json_out *out, const struct screen *screen, unsigned row)
{
    struct screen_cell cell;

    json_open(out, '[');
    for (unsigned col = 0; screen_cell(screen, (int)row, col, &cell); col++) {
        json_open(out, '[');
        json_put_str(out, (struct str){ cell.text, cell.len });
        json_put_int(out, cell.width);
        json_put_int(out, cell.fg);
        json_put_int(out, cell.bg);
        json_put_int(out, cell.ul);
        json_put_int(out, cell.attrs);
        json_close(out, ']');
    }
    json_close(out, ']');
}

static void show(const struct screen *screen)
{
    autobuf struct buf text = { .max = (size_t)1 << 30 };
    struct json_out out = json_to(&text);
    struct screen_cursor cursor = screen_cursor(screen);

    json_open(&out, '{');
    json_kv_int(&out, "row", cursor.row);
    json_kv_int(&out, "col", cursor.col + (cursor.wrap_next ? 1 : 0));
    json_kv_bool(&out, "visible", cursor.visible);
    json_kv_bool(&out, "alternate", screen_modes(screen).alternate);
    json_kv_str(&out, "title", screen_title(screen));
    json_key(&out, "cells");
    json_open(&out, '[');
    for (unsigned i = 0; i < screen_rows(screen); i++)
        put_cells(&out, screen, i);
    json_close(&out, ']');
    json_close(&out, '}');
    fwrite(text.data, 1, text.len, stdout);
}

/* ---- bench ------------------------------------------------------------------------------------
 */

static void make_input(struct buf *out, const char *kind, size_t len)
{
    for (unsigned i = 0; out->len < len; i++) {
        if (strcmp(kind, "plain") == 0)
            buf_printf(
                out,
                "%08u a line of a log as programs write it, of usual length, and no colours\r\n",
                i);
        else if (strcmp(kind, "colour") == 0)
            buf_printf(out,
                       "\033[32m%08u\033[0m \033[1;34mINFO\033[0m \033[38;5;%um module\033[0m: "
                       "text of it\r\n",
                       i, i % 256);
        else
            buf_printf(
                out,
                "\033[%u;1H\033[7mrow %u\033[0m of a program that draws all of its screen\033[K",
                i % 24 + 1, i);
    }
}

static int bench(size_t megabytes, const char *kind)
{
    autoscreen struct screen *screen = screen_new(24, 80, 1000);
    autobuf struct buf input = { .max = (size_t)1 << 30 };
    struct timespec from, to;

    make_input(&input, kind, megabytes << 20);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &from);
    for (size_t at = 0; at < input.len; at += 4096)
        screen_feed(screen, (struct str){ input.data + at, MIN(input.len - at, 4096) });
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &to);
    double seconds = (double)(to.tv_sec - from.tv_sec) + (double)(to.tv_nsec - from.tv_nsec) / 1e9;
    printf("%.0f\n", (double)input.len / 1e6 / seconds);
    return 0;
}

int main(int argc, char **argv)
{
    autobuf struct buf input = { .max = (size_t)1 << 30 };

    if (argc == 4 && strcmp(argv[1], "bench") == 0)
        return bench(number(argv[2]), argv[3]);
    if (argc != 3 && argc != 5)
        return 2;
    autoscreen struct screen *screen = screen_new(number(argv[1]), number(argv[2]), 2000);
    read_all(&input);
    screen_feed(screen, buf_view(&input));
    if (argc == 5)
        screen_resize(screen, number(argv[3]), number(argv[4]));
    show(screen);
    return 0;
}
