/*
 * err - errors that carry their story.
 *
 * A fallible function is `must_use int f(..., struct err *err)`: >= 0 is success, -1 means *err is
 * set and outputs are untouched. An error is made where it happens (err_set, err_sys), given
 * context on the way up (err_wrap), and shown once at the door. All three return -1, so failing is
 * one line. The codes are the API's own; err_info() maps each to HTTP, gRPC and exit status.
 */
#pragma once

#include "base/auto.h"

enum err_code {
    ERR_NONE = 0,
    ERR_INTERNAL,        /* our own mistake, or a kernel answer nobody expected */
    ERR_INVALID,         /* the caller's input is wrong; `field` may name where */
    ERR_UNPROCESSABLE,   /* well formed, but cannot be meant (idempotency key reused…) */
    ERR_UNAUTHENTICATED, /* nobody, or not who they say */
    ERR_FORBIDDEN,       /* somebody, but not allowed */
    ERR_NOT_FOUND,
    ERR_METHOD,      /* the path exists, not with this method */
    ERR_CONFLICT,    /* somebody else was first, or the state does not fit */
    ERR_GONE,        /* was there, is beyond retention */
    ERR_LIMIT,       /* too large, too many; see limits.h */
    ERR_HEADERS,     /* the request head is over its limits */
    ERR_MEDIA,       /* a body of a type we do not read */
    ERR_EXPECTATION, /* Expect: something other than 100-continue */
    ERR_RANGE,       /* no byte of the wanted range exists */
    ERR_RATE,        /* too often; retry later */
    ERR_MISDIRECTED, /* Host is not one of ours */
    ERR_BUDGET,      /* the money or tokens are used up */
    ERR_QUOTA,       /* a quota allows no more; something has to be deleted, or the quota raised */
    ERR_CAPACITY,    /* the machine has no more */
    ERR_TIMEOUT,
    ERR_UNAVAILABLE, /* cannot now; retry later */
    ERR_NO_SPACE,    /* the disk is full */
    ERR_UNSUPPORTED, /* not built, not on this machine */
    ERR_UPSTREAM,    /* what we asked on the caller's behalf did not answer properly */
    ERR_CANCELLED,   /* the caller went away or asked for it */
    ERR_CODES        /* how many there are */
};

/*
 * What a program may have to tell apart within one code, since words are for people and change.
 * Most errors have none; a new one is a line in the table of err.c.
 */
enum err_reason {
    REASON_NONE = 0,
    REASON_ROLE,     /* forbidden by role, scope or tenant of who asks: another token might */
    REASON_DELETING, /* in conflict with a deletion: it will be gone in a moment */
    REASON_PAUSED,   /* in conflict with a state that is left by resume… */
    REASON_STOPPED,  /* …or by start */
    REASONS          /* how many there are */
};

#define ERR_MSG_SIZE 512
#define ERR_FIELD_SIZE 64

struct err {
    enum err_code code;
    enum err_reason reason;
    int sys;         /* errno behind it, or 0 */
    int retry_after; /* seconds, with ERR_RATE and ERR_UNAVAILABLE; 0 means unsaid */
    char field[ERR_FIELD_SIZE];
    char msg[ERR_MSG_SIZE];
};

struct err_info {
    const char *name; /* snake_case, as the API shows it */
    int http;
    int grpc;
    int exit; /* of the command line */
};

const struct err_info *err_info(enum err_code code);

/* The code whose name or HTTP status this is; ERR_INTERNAL when none fits. */
enum err_code err_from_name(const char *name);
enum err_code err_from_http(int status);
/* As the API shows it; NULL when there is none. And back: what is not known is none. */
const char *err_reason_name(enum err_reason reason);
enum err_reason err_reason_from(const char *name);

/* Each returns -1. err may be NULL where the caller does not care why. */
int err_set(struct err *err, enum err_code code, const char *fmt, ...) printf_like(3, 4);
int err_field(struct err *err, const char *field, const char *fmt, ...) printf_like(3, 4);
/* ERR_FORBIDDEN for REASON_ROLE. */
int err_role(struct err *err, const char *fmt, ...) printf_like(2, 3);
/* From errno: ENOSPC and EDQUOT are ERR_NO_SPACE, everything else ERR_INTERNAL. */
int err_sys(struct err *err, const char *fmt, ...) printf_like(2, 3);
/* Puts "context: " before the message; code, reason, field and errno stay. */
int err_wrap(struct err *err, const char *fmt, ...) printf_like(2, 3);

#if (defined(__clang_analyzer__) || defined(ATOLL_ANALYZE)) && !defined(ERR_OWN)
/* What the functions promise, told to analyzers that do not look across files. */
#define err_set(...) __extension__({ (void)err_set(__VA_ARGS__), -1; })
#define err_field(...) __extension__({ (void)err_field(__VA_ARGS__), -1; })
#define err_role(...) __extension__({ (void)err_role(__VA_ARGS__), -1; })
#define err_sys(...) __extension__({ (void)err_sys(__VA_ARGS__), -1; })
#define err_wrap(...) __extension__({ (void)err_wrap(__VA_ARGS__), -1; })
#endif
