/*
 * Each line is composed in one buffer and written with one write(2) of at most PIPE_BUF bytes, so
 * lines of several threads and processes never mix, whether they go to a file, a terminal or a
 * pipe. A value is cut at LOG_VALUE_MAX and a line drops the fields that do not fit (and says so):
 * a guest can influence what is logged, so every line is bounded, and still valid JSON.
 */
#include "base/log.h"

#include <errno.h>
#include <limits.h>
#include <stdatomic.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/show.h"

#define CUT_ROOM 16 /* for what says that fields are missing, and the end of the line */

_Static_assert(LOG_LINE_MAX <= PIPE_BUF, "a longer write into a pipe may be torn");

static _Atomic(enum log_level) log_least = LOG_INFO;
static _Atomic(enum log_format) log_as = LOG_TEXT;
static _Atomic(const char *) log_role = "atoll";

static const char *const level_names[] = { "debug", "info", "warn", "error" };

void log_setup(enum log_level least, enum log_format format, const char *role)
{
    log_least = least;
    log_as = format;
    log_role = role;
}

bool log_wants(enum log_level level)
{
    return level >= atomic_load_explicit(&log_least, memory_order_relaxed);
}

const char *log_level_name(enum log_level level)
{
    return level_names[level];
}

static void (*tapped)(enum log_level, int64_t, const char *, struct str);

void log_tap(void (*fn)(enum log_level level, int64_t at_ms, const char *role, struct str text))
{
    tapped = fn;
}

static void put_json_escape(struct buf *out, uint32_t code)
{
    if (code > 0xffff)
        buf_printf(out, "\\u%04x\\u%04x", 0xd7c0 + (code >> 10), 0xdc00 + (code & 0x3ff));
    else
        buf_printf(out, "\\u%04x", code);
}

static void put_quoted(struct buf *out, struct str text, bool json)
{
    size_t i = 0;

    buf_putc(out, '"');
    while (i < text.n) {
        uint32_t code = 0;
        size_t size = str_utf8_at(text.p + i, text.n - i, &code);

        if (i + MAX(size, (size_t)1) > LOG_VALUE_MAX) {
            buf_puts(out, "…");
            break;
        }
        if (code == '"' || code == '\\')
            buf_printf(out, "\\%c", (char)code);
        else if (size && !show_hidden(code))
            buf_append(out, text.p + i, size);
        else if (json)
            put_json_escape(out, size ? code : 0xfffd);
        else
            show_escape(out, size ? (int64_t)code : -1, (unsigned char)text.p[i]);
        i += size ? size : 1;
    }
    buf_putc(out, '"');
}

static bool plain(struct str text)
{
    for (size_t i = 0; i < text.n; i++) {
        unsigned char c = (unsigned char)text.p[i];

        if (c <= 0x20 || c >= 0x7f || c == '"' || c == '\\' || c == '=')
            return false;
    }
    return text.n > 0 && text.n <= LOG_VALUE_MAX;
}

static void put_field(struct buf *out, const struct log_kv *field, bool json)
{
    buf_printf(out, json ? ",\"%s\":" : " %s=", field->key);
    if (field->type == LOG_KV_INT)
        buf_printf(out, "%lld", (long long)field->num);
    else if (!json && plain(field->text))
        buf_str(out, field->text);
    else
        put_quoted(out, field->text, json);
}

/* As many fields as fit; false when that is not all. */
static bool put_fields(struct buf *out, const struct log_kv *fields, bool json)
{
    for (; fields->key; fields++) {
        size_t before = out->len;

        put_field(out, fields, json);
        if (!buf_ok(out)) {
            out->len = before;
            out->over = false;
            return false;
        }
    }
    return true;
}

static void put_text(struct buf *out, enum log_level level, const char *text,
                     const struct log_kv *fields, const char *when)
{
    buf_printf(out, "%s %-5s %s: %s", when + 11, level_names[level], (const char *)log_role, text);
    bool all = put_fields(out, fields, false);
    out->max = LOG_LINE_MAX;
    if (!all)
        buf_puts(out, " cut=true");
}

static void put_json(struct buf *out, enum log_level level, const char *text,
                     const struct log_kv *fields, const char *when)
{
    buf_printf(out, "{\"time\":\"%s\",\"level\":\"%s\",\"role\":\"%s\",\"msg\":", when,
               level_names[level], (const char *)log_role);
    put_quoted(out, str_of(text), true);
    bool all = put_fields(out, fields, true);
    out->max = LOG_LINE_MAX;
    buf_puts(out, all ? "}" : ",\"cut\":true}");
}

static void tell_tap(enum log_level level, int64_t at_ms, const char *text,
                     const struct log_kv *fields)
{
    autobuf struct buf line = { .max = LOG_LINE_MAX - CUT_ROOM };

    buf_puts(&line, text);
    bool all = put_fields(&line, fields, false);
    line.max = LOG_LINE_MAX;
    if (!all)
        buf_puts(&line, " cut=true");
    tapped(level, at_ms, log_role, buf_view(&line));
}

void log_write(enum log_level level, const char *text, const struct log_kv *fields)
{
    int was = errno; /* whoever logs an error may still want to look at it */
    int64_t now = clock_wall_ms();
    char when[CLOCK_TEXT_SIZE];
    autobuf struct buf out = { .max = LOG_LINE_MAX - CUT_ROOM };

    clock_text(now, when);
    if (tapped)
        tell_tap(level, now, text, fields);
    if (log_as == LOG_JSON)
        put_json(&out, level, text, fields, when);
    else
        put_text(&out, level, text, fields, when);
    buf_putc(&out, '\n');
    while (write(2, out.data, out.len) < 0 && errno == EINTR)
        ; /* any other failure: nowhere left to complain */
    errno = was;
}
