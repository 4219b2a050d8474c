/*
 * conf - the table of settings: flag, environment, file, default, in that order.
 *
 * Each setting is one line of conf_table; the parser, `atoll config show`, --help, the man page and
 * docs/settings.md are all read from that line. An unknown key, a bad value or a duplicate in the
 * file refuses to start, naming file and line. The file is `key = value` lines; '#' at the start of
 * a line or after a blank begins a comment; a list setting may repeat or be comma-separated.
 *
 * The usual way: conf_new, conf_args (the flags of serve), conf_env, conf_load (the file that these
 * name, or the one that is always looked for), conf_check. One thread at a time; reading an
 * unchanging conf from several is fine.
 */
#pragma once

#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"

enum conf_type {
    CONF_TEXT,
    CONF_LIST,
    CONF_BOOL,
    CONF_INT,
    CONF_BYTES,
    CONF_MS,
    CONF_ENUM,
    CONF_PATH
};
enum conf_source { CONF_DEFAULT, CONF_FILE, CONF_ENV, CONF_FLAG };
#define CONF_SOURCES 4

struct conf_key {
    const char *name; /* "log_level": flag --log-level, environment ATOLL_LOG_LEVEL, file key */
    enum conf_type type;
    const char *otherwise; /* NULL: computed at start (conf_new), or unset */
    const char *shown;     /* how help describes a computed default; NULL: `otherwise` itself */
    const char *choices;   /* CONF_ENUM: "open|token"; numbers: "min..max", in the type's units */
    bool reload;           /* SIGHUP applies it */
    const char *arg;       /* what help calls the value */
    const char *help;
};

extern const struct conf_key conf_table[]; /* ends with a NULL name */

struct conf;

struct conf *conf_new(void); /* defaults alone */
void conf_free(struct conf *conf);

/*
 * Layers, in any order; a higher source wins, and a list of a higher source replaces the lower one.
 * Within one source a list grows, a flag's last value wins, and anything else set twice is refused.
 * `where` is said in errors and by `config show` ("atoll.conf:3"). Relative paths count from the
 * working directory, except in the file, where they are refused.
 */
must_use int conf_set(struct conf *conf, enum conf_source source, const char *name,
                      const char *value, const char *where, struct err *err);
must_use int conf_file(struct conf *conf, const char *path, bool must_exist, struct err *err);
must_use int conf_parse(struct conf *conf, struct str text, const char *where, struct err *err);
/* ATOLL_NAME=value; empty values and names that are no setting are passed over. */
must_use int conf_env(struct conf *conf, char **environ_, struct err *err);
/* `--name value`, `--name=value`, and for a CONF_BOOL `--name` or `--no-name`; NULL-terminated. */
must_use int conf_args(struct conf *conf, char **args, struct err *err);
/* The file named by `config`, or else CONF_FILE_SYSTEM or (not root) the user's own, if there. */
#define CONF_FILE_SYSTEM "/etc/atoll/atoll.conf"
must_use int conf_load(struct conf *conf, struct err *err);
/* What no single setting can say: addresses parse, auth=open stays on loopback, TLS is whole. */
must_use int conf_check(const struct conf *conf, struct err *err);

/* The setting's value as text; lists joined by commas; "" when unset. Borrowed. */
const char *conf_text(const struct conf *conf, const char *name);
bool conf_bool(const struct conf *conf, const char *name);
int64_t conf_int(const struct conf *conf, const char *name); /* also bytes and milliseconds */
/* The items of a list; NULL-terminated, borrowed. */
const char *const *conf_list(const struct conf *conf, const char *name);
enum conf_source conf_source(const struct conf *conf, const char *name, const char **where);
const char *conf_source_name(enum conf_source source);
/* Do both say the same? For a reload: which settings changed. */
bool conf_same(const struct conf *a, const struct conf *b, const char *name);

/* As JSON and back: how `serve` hands settings to the jailed process. */
void conf_pack(const struct conf *conf, struct buf *out);
must_use int conf_unpack(struct conf *conf, struct str packed, struct err *err);

/* The line of a name ("log_level" or "log-level"), or NULL. */
const struct conf_key *conf_find(struct str name);
void conf_flag_name(const struct conf_key *key, struct buf *out); /* "--log-level" */
void conf_env_name(const struct conf_key *key, struct buf *out);  /* "ATOLL_LOG_LEVEL" */

/* Where state lives when nobody says: /var/lib/atoll for root, else below the home directory. */
char *conf_state_default(void); /* gives */

/* One entry of `egress_resolver`: ADDRESS[:PORT], 53 unless said; the host is an address. */
#define CONF_RESOLVERS_MAX 3
struct host;
must_use int conf_resolver_parse(const char *text, struct host *out, uint16_t *port,
                                 struct err *err);

/*
 * One entry of `listen`: [http://|https://]ADDRESS:PORT or unix:PATH. The address is a literal
 * (IPv6 in brackets), localhost or nothing (both 127.0.0.1), never a name to look up; port 0 lets
 * the kernel choose.
 */
#define CONF_LISTEN_PATH_MAX 506 /* with "unix:" before it a net/sock.h address text */
struct conf_listen {
    bool is_unix, tls, loopback;
    char host[46]; /* numeric */
    uint16_t port;
    char path[CONF_LISTEN_PATH_MAX + 1];
};
must_use int conf_listen_parse(const char *text, struct conf_listen *out, struct err *err);
