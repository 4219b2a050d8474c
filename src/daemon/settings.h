/*
 * settings - what `atoll serve` tells the api process, and how: two JSON documents in sealed
 * memory.
 *
 * "start" holds as long as the server runs: the listeners that were made, whose server it is, and
 * all settings as they were. "settings" can be replaced by SIGHUP: the settings as they are now and
 * the TLS certificate and key. The api process, also one that is started later, takes from the
 * second only what a reload may change; otherwise `auth = open`, checked against listeners that are
 * not there yet, would take effect with those that are.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/seal.h"
#include "conf/conf.h"
#include "daemon/hosts.h"
#include "wire/layout.h"

struct start_listener {
    const char *text; /* with the port that the kernel chose; "unix:PATH" */
    bool tls;
};

struct start {
    const char *state;   /* the directory */
    const char *command; /* how this program was called: "build/atoll" */
    bool state_named;    /* whether clients must be told which state directory */
    unsigned owner_uid;
    unsigned char admin_hash[SHA256_SIZE];
    struct seal_public egress_key; /* what secrets for requests are sealed to */
    struct start_listener listeners[LISTENERS_MAX];
    unsigned listener_count;
    struct hosts hosts;
};

void start_pack(const struct start *start, const struct conf *conf, struct buf *out);
/* The settings with the TLS files read into them. */
must_use int settings_pack(const struct conf *conf, struct buf *out, struct err *err);

/* ---- on the other side; texts are borrowed from `arena` and the documents ---- */

must_use int start_unpack(struct start *out, struct arena *arena, struct str start,
                          struct err *err);

struct settings {
    struct conf *conf; /* gives; merged as said above */
    struct str tls_cert, tls_key;
    char stale[256]; /* settings that changed and need a restart: "listen, auth"; or "" */
};
must_use int settings_unpack(struct settings *out, struct arena *arena, struct str start,
                             struct str settings, struct err *err);

enum log_level settings_log_level(const struct conf *conf);
enum log_format settings_log_format(const struct conf *conf);

/* ---- sealed memory ---- */

/* A descriptor that nobody can change the contents of. */
must_use int sealed_make(const char *name, struct str text, struct err *err);
/* Reads all of it; ERR_FORBIDDEN when it is not sealed, ERR_LIMIT past SETTINGS_MAX. */
must_use int sealed_read(int fd, struct buf *out, struct err *err);
