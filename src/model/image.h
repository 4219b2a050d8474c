/*
 * image - what a sandbox can begin with, and what an unpacker says about one. Pure data and tables.
 */
#pragma once

#include "base/limits.h"
#include "model/field.h"

#define IMAGE_ENV_MAX 256

struct image_config {
    const char **env; /* "NAME=VALUE" */
    const char *user, *workdir;
    const char **entrypoint, **cmd;
    struct field_pair *labels;
};

struct image_part {
    const char *diff_id;
    int64_t packed, bytes, entries;
};

/* An unpacker's answer, which is a stranger's word: the table is what is believed of it. */
struct image_told {
    const char *format, *digest, *architecture, *name;
    struct image_config *config;
    struct field_list layers; /* struct image_part */
};
extern const struct field image_told_fields[];

struct image_view {
    const char *name, *digest, *format, *architecture, *by;
    struct image_config *config;
    struct field_list layers; /* struct image_part */
    int64_t bytes, sandboxes, created_at;
};
extern const struct field image_fields[];

/* "debian", "agentic/claude:latest": says what is wrong about the field "name". */
must_use int image_name_check(const char *name, struct err *err);
/* Must be sound where a table cannot say it: digests, a workdir that is a path. */
must_use int image_told_check(const struct image_told *told, struct err *err);
/* Who commands run as when neither the sandbox nor they say: "root", or NULL for our own default.
 */
const char *image_user(const struct image_config *config);
