/*
 * log - one event per line: a constant text and typed fields.
 *
 *     log_warn("egress denied, answered 403", kv_str("sandbox", id), kv_str("host", host));
 *
 * Text or JSON, to standard error. Values are escaped by the writer, so nothing that a peer sent
 * can forge a line or command a terminal. Never log a secret. Any thread.
 */
#pragma once

#include <stdint.h>

#include "base/str.h"

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };
enum log_format { LOG_TEXT, LOG_JSON };

struct log_kv {
    const char *key;
    enum { LOG_KV_STR, LOG_KV_INT } type;
    struct str text;
    int64_t num;
};

static inline struct log_kv kv_slice(const char *key, struct str text)
{
    return (struct log_kv){ .key = key, .type = LOG_KV_STR, .text = text };
}

static inline struct log_kv kv_str(const char *key, const char *text)
{
    return kv_slice(key, str_of(text ? text : ""));
}

static inline struct log_kv kv_int(const char *key, int64_t num)
{
    return (struct log_kv){ .key = key, .type = LOG_KV_INT, .num = num };
}

void log_setup(enum log_level least, enum log_format format, const char *role);
bool log_wants(enum log_level level);
void log_write(enum log_level level, const char *text, const struct log_kv *fields);

/*
 * `fn` hears of every line from now on, besides standard error: `text` is the text and its fields,
 * until it returns. On the thread that logs; it logs nothing itself. Said before threads begin.
 */
void log_tap(void (*fn)(enum log_level level, int64_t at_ms, const char *role, struct str text));
const char *log_level_name(enum log_level level);

/* The list of fields ends with one that has no key. */
#define kv_end_ ((struct log_kv){ 0 })
#define log_at_(level, text, ...)                                                                  \
    do {                                                                                           \
        if (log_wants(level))                                                                      \
            log_write(level, text, (const struct log_kv[]){ __VA_ARGS__ });                        \
    } while (0)

#define log_debug(text, ...) log_at_(LOG_DEBUG, text, ##__VA_ARGS__, kv_end_)
#define log_info(text, ...) log_at_(LOG_INFO, text, ##__VA_ARGS__, kv_end_)
#define log_warn(text, ...) log_at_(LOG_WARN, text, ##__VA_ARGS__, kv_end_)
#define log_error(text, ...) log_at_(LOG_ERROR, text, ##__VA_ARGS__, kv_end_)
