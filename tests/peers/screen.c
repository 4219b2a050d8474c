/*
 * screen ROWS COLS [ROWS2 COLS2] - what our screen makes of the bytes on stdin, as JSON: for the
 * test that compares it with tmux (tests/e2e/test_screen.py). With a second size the screen is
 * resized to it in the end.
 *
 * screen bench MEGABYTES KIND - how fast it takes them: plain, colour or redraw; prints MB/s of CPU
 * time.
 */
#include <stdio.h>

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

int main(int argc, char **argv)
{
    autobuf struct buf input = { .max = (size_t)1 << 30 };

    if (argc < 3 || argc > 5)
        return 2;
    autoscreen struct screen *screen = screen_new(number(argv[1]), number(argv[2]), 2000);
    read_all(&input);
    screen_feed(screen, buf_view(&input));
    if (argc == 4) {
        buf_clear(&input);
        screen_keyframe(screen, 0, &input);
        fwrite(input.data, 1, input.len, stdout);
        return 0;
    }
    if (argc == 5)
        screen_resize(screen, number(argv[3]), number(argv[4]));
    show(screen);
    return 0;
}
