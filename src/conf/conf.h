/*
 * conf - the table of settings: flag, environment, file, default, in that order.
 *
 * Each setting is one line of conf_table; the parser, `atoll config show`, --help, the man page and
 * docs/settings.md are all read from that line. An unknown key, a bad value or a duplicate in the
 * file refuses to start, naming file and line. The file is `key = value` lines, '#' comments; a
 * list setting may repeat or be comma-separated.
 */
#pragma once

#include <stdint.h>
#include <stdio.h>

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

struct conf_key {
    const char *name; /* "listen": flag --listen, environment ATOLL_LISTEN, file key */
    enum conf_type type;
    const char *otherwise;
    const char *choices; /* CONF_ENUM: "open|token" ; CONF_INT: "min..max" */
    bool reload;         /* SIGHUP applies it */
    const char *help;
};

extern const struct conf_key conf_table[];

struct conf;

struct conf *conf_new(void);
void conf_free(struct conf *conf);

/* Layers, in any order; a higher source wins. */
must_use int conf_set(struct conf *conf, enum conf_source source, const char *name,
                      const char *value, const char *where, struct err *err);
must_use int conf_file(struct conf *conf, const char *path, bool must_exist, struct err *err);
must_use int conf_parse(struct conf *conf, struct str text, const char *where, struct err *err);
must_use int conf_env(struct conf *conf, char **environ_, struct err *err);

const char *conf_text(const struct conf *conf, const char *name);
bool conf_bool(const struct conf *conf, const char *name);
int64_t conf_int(const struct conf *conf, const char *name); /* also bytes and milliseconds */
/* The items of a list; NULL-terminated, borrowed. */
const char *const *conf_list(const struct conf *conf, const char *name);
enum conf_source conf_source(const struct conf *conf, const char *name, const char **where);

/* As JSON and back: how `serve` hands settings to the jailed process. */
void conf_pack(const struct conf *conf, struct buf *out);
must_use int conf_unpack(struct conf *conf, struct str packed, struct err *err);
