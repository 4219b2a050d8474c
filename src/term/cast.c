/* asciicast v2: https://docs.asciinema.org/manual/asciicast/v2/ */
#include "term/cast.h"

#include "base/json.h"

void cast_begin(struct cast *cast, const struct cast_head *head, struct buf *out)
{
    struct json_out json = json_to(out);

    *cast = (struct cast){ .start_ms = head->start_ms, .last_ms = head->start_ms };
    json_open(&json, '{');
    json_kv_int(&json, "version", 2);
    json_kv_int(&json, "width", head->cols);
    json_kv_int(&json, "height", head->rows);
    json_kv_int(&json, "timestamp", head->wall_ms / 1000);
    if (head->title.n)
        json_kv_str(&json, "title", head->title);
    if (head->command.n)
        json_kv_str(&json, "command", head->command);
    if (head->term.n) {
        json_key(&json, "env");
        json_open(&json, '{');
        json_kv_str(&json, "TERM", head->term);
        json_close(&json, '}');
    }
    json_close(&json, '}');
    buf_putc(out, '\n');
}

static void put_event(struct cast *cast, int64_t at_ms, const char *kind, struct str text,
                      struct buf *out)
{
    struct json_out json = json_to(out);

    cast->last_ms = MAX(cast->last_ms, at_ms);
    int64_t ms = cast->last_ms - cast->start_ms;
    json_open(&json, '[');
    buf_printf(out, "%lld.%03lld", (long long)(ms / 1000), (long long)(ms % 1000));
    json.comma = true;
    json_put_str(&json, str_of(kind));
    json_put_str(&json, text);
    json_close(&json, ']');
    buf_putc(out, '\n');
}

/* Bytes at the end that may be the beginning of a character: up to three. */
static size_t unfinished(struct str bytes)
{
    for (size_t n = 1; n <= 3 && n <= bytes.n; n++) {
        unsigned char c = (unsigned char)bytes.p[bytes.n - n];
        size_t size = c < 0xc2 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : c < 0xf5 ? 4 : 1;

        if ((c & 0xc0) != 0x80)
            return size > n ? n : 0;
    }
    return 0;
}

void cast_output(struct cast *cast, int64_t at_ms, struct str bytes, struct buf *out)
{
    autobuf struct buf whole = { .max = out->max };

    if (cast->held_len) {
        buf_append(&whole, cast->held, cast->held_len);
        buf_str(&whole, bytes);
        bytes = buf_view(&whole);
        out->over = out->over || whole.over;
    }
    size_t rest = unfinished(bytes);
    cast->held_len = (unsigned char)rest;
    if (rest)
        memcpy(cast->held, bytes.p + bytes.n - rest, rest);
    bytes.n -= rest;
    if (bytes.n)
        put_event(cast, at_ms, "o", bytes, out);
}

void cast_resize(struct cast *cast, int64_t at_ms, unsigned rows, unsigned cols, struct buf *out)
{
    autobuf struct buf text = { 0 };

    buf_printf(&text, "%ux%u", cols, rows);
    put_event(cast, at_ms, "r", buf_view(&text), out);
}

void cast_end(struct cast *cast, int64_t at_ms, struct buf *out)
{
    if (cast->held_len)
        put_event(cast, at_ms, "o", (struct str){ cast->held, cast->held_len }, out);
    cast->held_len = 0;
}
