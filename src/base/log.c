/*
 * Each line is composed in one buffer and written with one write(2), so lines of several threads
 * and processes never mix. A field's value is cut at LOG_VALUE_MAX: the guest can influence what
 * is logged, so every line is bounded. The buffer is static and never grows: the warden, which
 * allocates nothing after its start, logs with this too.
 */
#include "base/log.h"

#include <stdio.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/limits.h"

static enum log_level log_least = LOG_INFO;
static enum log_format log_as = LOG_TEXT;
static const char *log_role = "atoll";

static const char *const level_names[] = { "debug", "info", "warn", "error" };

void log_setup(enum log_level least, enum log_format format, const char *role)
{
    log_least = least;
    log_as = format;
    log_role = role;
}

bool log_wants(enum log_level level)
{
    return level >= log_least;
}

static void put_escaped(struct buf *out, struct str text)
{
    bool cut = text.n > LOG_VALUE_MAX;

    buf_putc(out, '"');
    for (size_t i = 0; i < MIN(text.n, (size_t)LOG_VALUE_MAX); i++) {
        unsigned char c = (unsigned char)text.p[i];

        if (c == '"' || c == '\\')
            buf_printf(out, "\\%c", c);
        else if (c == '\n')
            buf_puts(out, "\\n");
        else if (c < 0x20 || c >= 0x7f)
            buf_printf(out, "\\u%04x", c); /* bytes, not code points: lossless enough for a log */
        else
            buf_putc(out, (char)c);
    }
    buf_puts(out, cut ? "…\"" : "\"");
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

static void put_text(struct buf *out, enum log_level level, const char *text,
                     const struct log_kv *fields, const char *when)
{
    buf_printf(out, "%s %-5s %s: %s", when + 11, level_names[level], log_role, text);
    for (; fields->key; fields++) {
        buf_printf(out, " %s=", fields->key);
        if (fields->type == LOG_KV_INT)
            buf_printf(out, "%lld", (long long)fields->num);
        else if (plain(fields->text))
            buf_str(out, fields->text);
        else
            put_escaped(out, fields->text);
    }
}

static void put_json(struct buf *out, enum log_level level, const char *text,
                     const struct log_kv *fields, const char *when)
{
    buf_printf(out, "{\"time\":\"%s\",\"level\":\"%s\",\"role\":\"%s\",\"msg\":", when,
               level_names[level], log_role);
    put_escaped(out, str_of(text));
    for (; fields->key; fields++) {
        buf_printf(out, ",\"%s\":", fields->key);
        if (fields->type == LOG_KV_INT)
            buf_printf(out, "%lld", (long long)fields->num);
        else
            put_escaped(out, fields->text);
    }
    buf_putc(out, '}');
}

void log_write(enum log_level level, const char *text, const struct log_kv *fields)
{
    static _Thread_local char line[LOG_LINE_MAX + 2];
    struct buf out = { .data = line, .cap = sizeof(line), .max = LOG_LINE_MAX };
    char when[CLOCK_TEXT_SIZE];

    clock_text(clock_wall_ms(), when);
    if (log_as == LOG_JSON)
        put_json(&out, level, text, fields, when);
    else
        put_text(&out, level, text, fields, when);
    out.over = false;
    out.max = LOG_LINE_MAX + 1;
    buf_putc(&out, '\n');
    if (write(2, out.data, out.len) < 0)
        return; /* nowhere left to complain */
}
