/*
 * file - the noun file: what is shown of one in a sandbox. Names are bytes; where they are no
 * UTF-8, the text has U+FFFD in place of each bad byte and the base64 field has the bytes
 * themselves.
 */
#pragma once

#include "model/field.h"

struct file_view {
    const char *name, *name_base64, *type, *mode, *link, *link_base64, *sha256;
    int64_t uid, gid, size, mtime;
};
extern const struct field file_fields[];

/* What an operation changed. */
struct file_change {
    const char *path;
    int64_t bytes, entries;
};
extern const struct field file_change_fields[];
