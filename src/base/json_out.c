/*
 * The writer. One flag is all its state: whether a value already stands in the innermost container,
 * so that a comma must come first. A key clears it, a value or a closing bracket sets it.
 *
 * Doubles are written with the fewest digits that read back as the same double, and always with a
 * point or an exponent, so that a double stays one on the way round.
 */
#include "base/json.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdio.h>

#include "base/json_scan.h"
#include "base/limits.h"

static inline void before(struct json_out *out)
{
    if (out->comma)
        buf_putc(out->buf, ',');
    out->comma = true;
}

void json_open(struct json_out *out, char bracket)
{
    before(out);
    buf_putc(out->buf, bracket);
    out->comma = false;
}

void json_close(struct json_out *out, char bracket)
{
    buf_putc(out->buf, bracket);
    out->comma = true;
}

static void put_control(struct buf *buf, unsigned char c)
{
    static const char shorts[] = "\bb\tt\nn\ff\rr\"\"\\\\";

    for (size_t i = 0; i < sizeof(shorts) - 1; i += 2)
        if (shorts[i] == (char)c) {
            buf_append(buf, (char[]){ '\\', shorts[i + 1] }, 2);
            return;
        }
    buf_printf(buf, "\\u%04x", c);
}

static void put_quoted(struct buf *buf, struct str text)
{
    size_t from = 0, i = 0;

    buf_putc(buf, '"');
    while (text.n && (i = (size_t)(skip_plain(text.p + i, text.p + text.n) - text.p)) < text.n) {
        unsigned char c = (unsigned char)text.p[i];
        size_t size = c < 0x80 ? 0 : str_utf8_at(text.p + i, text.n - i, NULL);
        if (size) {
            i += size;
            continue;
        }
        buf_append(buf, text.p + from, i - from);
        if (c >= 0x80)
            buf_puts(buf, "\xef\xbf\xbd"); /* U+FFFD */
        else
            put_control(buf, c);
        from = ++i;
    }
    if (from < i) /* an empty text may have no address to count from */
        buf_append(buf, text.p + from, i - from);
    buf_putc(buf, '"');
}

void json_key_str(struct json_out *out, struct str key)
{
    before(out);
    put_quoted(out->buf, key);
    buf_putc(out->buf, ':');
    out->comma = false;
}

void json_key(struct json_out *out, const char *key)
{
    json_key_str(out, str_of(key));
}

void json_put_str(struct json_out *out, struct str text)
{
    before(out);
    put_quoted(out->buf, text);
}

void json_put_int(struct json_out *out, int64_t num)
{
    before(out);
    if (num < 0)
        buf_putc(out->buf, '-');
    buf_u64(out->buf, num < 0 ? 0 - (uint64_t)num : (uint64_t)num);
}

/*
 * At most six decimals and fifteen digits: the common case (money, seconds, ratios), without
 * printf. Up to fifteen digits every decimal has a double of its own, so when the division gives
 * back `num` these digits, zeros trimmed, are the shortest.
 */
static bool put_short(struct buf *buf, double num)
{
    double scaled = fabs(num) * 1e6;

    if (!(scaled < 1e15) || (num == 0 && signbit(num)))
        return false;
    uint64_t micro = (uint64_t)(scaled + 0.5);
    if ((double)micro / 1e6 != fabs(num))
        return false;
    if (num < 0)
        buf_putc(buf, '-');
    buf_u64(buf, micro / 1000000);
    char tail[7] = ".";
    size_t len = 7;
    for (uint64_t rest = micro % 1000000, i = 6; i > 0; i--, rest /= 10)
        tail[i] = (char)('0' + rest % 10);
    while (len > 2 && tail[len - 1] == '0')
        len--;
    buf_append(buf, tail, len);
    return true;
}

void json_put_double(struct json_out *out, double num)
{
    char text[40];

    if (!isfinite(num)) {
        json_put_null(out);
        return;
    }
    before(out);
    if (put_short(out->buf, num))
        return;
    /* Below the normal range doubles lie so thin that fewer than 15 digits may do. */
    for (int digits = fabs(num) < DBL_MIN ? 1 : 15; digits <= 17; digits++) {
        snprintf(text, sizeof(text), "%.*g", digits, num);
        if (strtod(text, NULL) == num)
            break;
    }
    if (!strpbrk(text, ".e"))
        memcpy(text + strlen(text), ".0", 3);
    buf_puts(out->buf, text);
}

void json_put_bool(struct json_out *out, bool truth)
{
    before(out);
    buf_puts(out->buf, truth ? "true" : "false");
}

void json_put_null(struct json_out *out)
{
    before(out);
    buf_puts(out->buf, "null");
}

void json_put_raw(struct json_out *out, struct str json)
{
    before(out);
    buf_str(out->buf, json);
}

static void put_scalar(struct json_out *out, const struct json *value)
{
    switch (value->type) {
    case JSON_BOOL:
        json_put_bool(out, value->truth);
        break;
    case JSON_INT:
        json_put_int(out, value->num);
        break;
    case JSON_DOUBLE:
        json_put_double(out, value->real);
        break;
    case JSON_STRING:
        json_put_str(out, value->text);
        break;
    case JSON_NULL:
    default:
        json_put_null(out);
        break;
    }
}

/* Walks without recursion: the stack holds the containers on the way down to `node`. */
void json_put(struct json_out *out, const struct json *value)
{
    const struct json *stack[JSON_DEPTH_MAX], *node = value;
    size_t depth = 0;

    for (;;) {
        if (depth && stack[depth - 1]->type == JSON_OBJECT)
            json_key_str(out, node->key);
        if (node->type >= JSON_ARRAY) {
            assert(depth < JSON_DEPTH_MAX);
            stack[depth++] = node;
            json_open(out, node->type == JSON_OBJECT ? '{' : '[');
            if (node->first) {
                node = node->first;
                continue;
            }
        } else {
            put_scalar(out, node);
        }
        /* Up, past every container that ends here. */
        while (depth && (node == stack[depth - 1] || !node->next)) {
            node = stack[--depth];
            json_close(out, node->type == JSON_OBJECT ? '}' : ']');
        }
        if (depth == 0)
            return;
        node = node->next;
    }
}

void json_kv_str(struct json_out *out, const char *key, struct str text)
{
    json_key(out, key);
    json_put_str(out, text);
}

void json_kv_text(struct json_out *out, const char *key, const char *text)
{
    json_key(out, key);
    if (text)
        json_put_str(out, str_of(text));
    else
        json_put_null(out);
}

void json_kv_int(struct json_out *out, const char *key, int64_t num)
{
    json_key(out, key);
    json_put_int(out, num);
}

void json_kv_bool(struct json_out *out, const char *key, bool truth)
{
    json_key(out, key);
    json_put_bool(out, truth);
}

void json_kv_double(struct json_out *out, const char *key, double num)
{
    json_key(out, key);
    json_put_double(out, num);
}
