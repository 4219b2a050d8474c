/*
 * screen under a fuzzer. The first four bytes are a size, where the input is cut, another size.
 * The rest goes to one screen whole and to one in pieces, which must be equal; at the cut a
 * keyframe makes a third one that must stay equal too; then all is read, resized and read again.
 */
#include <stdlib.h>

#include "base/mem.h"
#include "term/cast.h"
#include "term/screen.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool what)
{
    if (!what)
        abort();
}

static void read_all(const struct screen *screen)
{
    autobuf struct buf text = { 0 };
    struct json_out out = json_to(&text);
    struct screen_cell cell;

    screen_text(screen, &text);
    must(str_utf8(buf_view(&text)));
    screen_scrollback_text(screen, 1000, &text);
    must(str_utf8(buf_view(&text)) && !str_has_nul(buf_view(&text)));
    screen_json(screen, &out);
    must(str_utf8(screen_title(screen)));
    must(screen_cell(screen, 0, 0, &cell) && cell.len < sizeof(cell.text));
    must(screen_bytes(screen) <= SCREEN_BYTES_MAX(screen_rows(screen), screen_cols(screen)));
}

static void check_keyframe(const struct screen *screen, struct str rest, struct screen *whole)
{
    autoscreen struct screen *late = screen_new(screen_rows(screen), screen_cols(screen), 20);
    autobuf struct buf frame = { 0 };

    screen_keyframe(screen, 5, &frame);
    screen_feed(late, buf_view(&frame));
    must(screen_equal(screen, late));
    screen_feed(late, rest);
    must(screen_equal(whole, late));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 4)
        return 0;
    struct str bytes = { (const char *)data + 4, size - 4 };
    size_t cut = bytes.n * data[2] / 256;
    autoscreen struct screen *whole = screen_new(data[0] % 30, data[1] % 100, 20);
    autoscreen struct screen *pieces = screen_new(data[0] % 30, data[1] % 100, 20);
    struct cast cast = { 0 };
    autobuf struct buf recording = { 0 };

    screen_feed(whole, bytes);
    for (size_t i = 0; i < cut; i++)
        screen_feed(pieces, (struct str){ bytes.p + i, 1 });
    check_keyframe(pieces, str_from(bytes, cut), whole);
    screen_feed(pieces, str_from(bytes, cut));
    must(screen_equal(whole, pieces));
    read_all(whole);
    screen_resize(whole, data[3] % 30, data[3]);
    read_all(whole);
    cast_output(&cast, 0, (struct str){ bytes.p, cut }, &recording);
    cast_output(&cast, 1, str_from(bytes, cut), &recording);
    must(str_utf8(buf_view(&recording)));
    return 0;
}
