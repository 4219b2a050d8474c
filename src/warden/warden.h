/*
 * warden - the process that stays: it starts `atoll api`, watches it, and starts it again.
 *
 * Everything it needs was opened for it by `atoll serve` (wire/layout.h), which became this program
 * by exec. It reads no file, parses no JSON and allocates nothing; what it hears from a child is
 * wire.h's fixed messages, each of them doubted. One thread, one object, one wait.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/log.h"
#include "wire/layout.h"
#include "wire/wire.h"

/* What the command line of numbers said. */
struct warden_args {
    int64_t api_uid, api_gid; /* -1: stay who we are */
    unsigned listeners;
    enum log_level log_level;
    enum log_format log_format;
    int64_t drain_ms;
    int64_t ids;        /* of an ordinary user's namespace, or -1 */
    int64_t disks_size; /* 0: most of what is free */
    char **serve;       /* borrowed: "serve", its arguments, NULL */
};

/* 0, or -1 when it is not what `atoll serve` writes. */
must_use int warden_args_parse(struct warden_args *out, int argc, char **argv);

/* ---- restart.c: pure decisions ---- */

/* How long to wait after the n-th death in a row, n from 1. */
int64_t restart_delay_ms(unsigned deaths);

/* A budget of `most` messages per second; false when the sender is over it. */
struct wire_budget {
    int64_t second;
    unsigned used;
};
bool wire_budget_take(struct wire_budget *budget, unsigned most, int64_t now_ms);

/* ---- spawn.c: becoming somebody else ---- */

struct child {
    pid_t pid; /* 0: none */
    int pidfd;
    int link; /* our end; -1 for a child without one */
};

/* All: 0, or -1 with errno. */
must_use int spawn_api(const struct warden_args *args, struct child *out);
must_use int spawn_egress(const struct warden_args *args, struct child *out);
must_use int spawn_resolve(const struct warden_args *args, int out_fd, struct child *out);
void child_kill(const struct child *child);
/* Reaps it and closes what is held for it. The wait status. */
int child_end(struct child *child);

/* What is kept of root, and what is not: non-dumpable, no core, only the capabilities needed. */
must_use int warden_harden(bool root, bool one_id);

/* ---- notify.c: systemd ---- */

void notify_open(void);
void notify_send(const char *text); /* "READY=1\nSTATUS=…"; nothing happens without systemd */
int64_t notify_watchdog_ms(void);   /* how often it wants to hear from us; 0 never */

/* ---- listeners.c ---- */

void socket_files_remove(unsigned listeners);
/* A client is then refused at once, instead of waiting in a backlog that nobody empties. */
void listeners_close(unsigned listeners);

/* ---- supervise.c ---- */

/* Runs until the server ends; the exit status. */
int supervise(const struct warden_args *args);
