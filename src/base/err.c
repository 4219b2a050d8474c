/*
 * Every error code's meaning on each surface stands in one table here, and the reasons' in another.
 * Messages are cut, never overflowed: the newest context is what a reader needs first, so the tail
 * is what gets cut.
 */
#define ERR_OWN /* this file defines what err.h wraps for analyzers */
#include "base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* clang-format off */
static const struct err_info infos[ERR_CODES] = {
    /*                        name                   http grpc exit */
    [ERR_NONE]            = { "ok",                   200,  0,  0 },
    [ERR_INTERNAL]        = { "internal",             500, 13,  1 },
    [ERR_INVALID]         = { "invalid",              400,  3,  1 },
    [ERR_UNPROCESSABLE]   = { "unprocessable",        422,  3,  1 },
    [ERR_UNAUTHENTICATED] = { "unauthenticated",      401, 16,  4 },
    [ERR_FORBIDDEN]       = { "forbidden",            403,  7,  4 },
    [ERR_NOT_FOUND]       = { "not_found",            404,  5,  2 },
    [ERR_METHOD]          = { "method_not_allowed",   405, 12,  1 },
    [ERR_CONFLICT]        = { "conflict",             409,  9,  3 },
    [ERR_GONE]            = { "gone",                 410, 11,  2 },
    [ERR_LIMIT]           = { "too_large",            413,  8,  1 },
    [ERR_HEADERS]         = { "headers_too_large",    431,  8,  1 },
    [ERR_MEDIA]           = { "unsupported_media",    415,  3,  1 },
    [ERR_EXPECTATION]     = { "expectation_failed",   417,  3,  1 },
    [ERR_RANGE]           = { "range_not_satisfiable", 416, 11, 1 },
    [ERR_RATE]            = { "rate_limited",         429,  8,  1 },
    [ERR_MISDIRECTED]     = { "misdirected",          421,  7,  4 },
    [ERR_BUDGET]          = { "budget_exceeded",      402,  8,  1 },
    [ERR_QUOTA]           = { "quota_exceeded",       429,  8,  1 },
    [ERR_CAPACITY]        = { "no_capacity",          507,  8,  1 },
    [ERR_TIMEOUT]         = { "timeout",              504,  4,  5 },
    [ERR_UNAVAILABLE]     = { "unavailable",          503, 14,  1 },
    [ERR_NO_SPACE]        = { "no_space",             507,  8,  1 },
    [ERR_UNSUPPORTED]     = { "unsupported",          501, 12,  1 },
    [ERR_UPSTREAM]        = { "bad_gateway",          502, 14,  1 },
    [ERR_CANCELLED]       = { "cancelled",            499,  1,  1 },
};
/* clang-format on */

static const char *const reasons[REASONS] = {
    [REASON_ROLE] = "role",
    [REASON_DELETING] = "deleting",
    [REASON_PAUSED] = "paused",
    [REASON_STOPPED] = "stopped",
};

const char *err_reason_name(enum err_reason reason)
{
    return (unsigned)reason < REASONS ? reasons[reason] : NULL;
}

enum err_reason err_reason_from(const char *name)
{
    for (int i = REASON_NONE + 1; i < REASONS; i++)
        if (strcmp(reasons[i], name) == 0)
            return (enum err_reason)i;
    return REASON_NONE;
}

const struct err_info *err_info(enum err_code code)
{
    if ((unsigned)code >= ERR_CODES)
        code = ERR_INTERNAL;
    return &infos[code];
}

enum err_code err_from_name(const char *name)
{
    for (int i = 0; i < ERR_CODES; i++)
        if (strcmp(infos[i].name, name) == 0)
            return (enum err_code)i;
    return ERR_INTERNAL;
}

enum err_code err_from_http(int status)
{
    for (int i = 0; i < ERR_CODES; i++)
        if (infos[i].http == status)
            return (enum err_code)i;
    return status >= 400 && status < 500 ? ERR_INVALID : ERR_INTERNAL;
}

/* Formatted aside first: the arguments may well be parts of the old *err. */
static void put(struct err *err, struct err made, const char *fmt, va_list args)
{
    vsnprintf(made.msg, sizeof(made.msg), fmt, args);
    *err = made;
}

int err_set(struct err *err, enum err_code code, const char *fmt, ...)
{
    va_list args;

    if (!err)
        return -1;
    va_start(args, fmt);
    put(err, (struct err){ .code = code }, fmt, args);
    va_end(args);
    return -1;
}

int err_field(struct err *err, const char *field, const char *fmt, ...)
{
    struct err made = { .code = ERR_INVALID };
    va_list args;

    if (!err)
        return -1;
    snprintf(made.field, sizeof(made.field), "%s", field);
    va_start(args, fmt);
    put(err, made, fmt, args);
    va_end(args);
    return -1;
}

int err_role(struct err *err, const char *fmt, ...)
{
    va_list args;

    if (!err)
        return -1;
    va_start(args, fmt);
    put(err, (struct err){ .code = ERR_FORBIDDEN, .reason = REASON_ROLE }, fmt, args);
    va_end(args);
    return -1;
}

int err_sys(struct err *err, const char *fmt, ...)
{
    int sys = errno;
    const char *why = strerrordesc_np(sys);
    va_list args;

    if (!err)
        return -1;
    va_start(args, fmt);
    put(err,
        (struct err){ .code = sys == ENOSPC || sys == EDQUOT ? ERR_NO_SPACE : ERR_INTERNAL,
                      .sys = sys },
        fmt, args);
    va_end(args);
    size_t len = strlen(err->msg);
    snprintf(err->msg + len, sizeof(err->msg) - len, ": %s", why ? why : "unknown error");
    return -1;
}

int err_wrap(struct err *err, const char *fmt, ...)
{
    char context[ERR_MSG_SIZE - 2];
    va_list args;

    if (!err)
        return -1;
    va_start(args, fmt);
    vsnprintf(context, sizeof(context), fmt, args);
    va_end(args);
    size_t len = strlen(context);
    memmove(err->msg + len + 2, err->msg, sizeof(err->msg) - len - 2);
    memcpy(err->msg, context, len);
    err->msg[len] = ':';
    err->msg[len + 1] = ' ';
    err->msg[sizeof(err->msg) - 1] = 0;
    return -1;
}
