/*
 * tar - the 512-byte header of a tar archive (POSIX.1-2001 ustar and pax, GNU's long names): read
 * from hostile bytes, written plainly.
 */
#pragma once

#include "tree/tree.h"

#define TAR_BLOCK 512

struct tar_raw {
    char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], sum[8], type, link[100];
    char magic[8], uname[32], gname[32], major[8], minor[8], prefix[155], pad[12];
};
_Static_assert(sizeof(struct tar_raw) == TAR_BLOCK, "a header is one block");

/* One header, and what extended headers before it said. */
struct tar_head {
    char type; /* '0' file, '1' hard link, '2' symbolic link, '5' directory, 'x' 'g' 'L' 'K'… */
    uint32_t mode;
    uint64_t size;
    int64_t mtime;
    char path[TREE_PATH_MAX + 1], link[TREE_PATH_MAX + 1];
};

/* What extended headers have said about the entry that follows. */
struct tar_extra {
    bool has_path, has_link, has_size, has_mtime;
    uint64_t size;
    int64_t mtime;
    char path[TREE_PATH_MAX + 1], link[TREE_PATH_MAX + 1];
};

/* In octal, or in GNU's binary form when the digits do not hold it. */
void tar_number(char *field, size_t len, uint64_t value);
/* The magic and the sum: last. */
void tar_seal(struct tar_raw *raw);

/* 1 a header, 0 a block of zeros, -1 neither. */
int tar_head_parse(const char block[TAR_BLOCK], struct tar_head *out);
/* The records of a pax header; false when malformed, too long, or about sparse files. */
must_use bool tar_pax_parse(const char *data, size_t len, struct tar_extra *out);
/* A GNU long name ('L') or link ('K'). */
must_use bool tar_long_parse(const char *data, size_t len, char type, struct tar_extra *out);
/* Puts what was said before over the header, and reads the kind from the whole name where only
 * that tells it: call it for every header, also when nothing was said. */
void tar_extra_apply(const struct tar_extra *extra, struct tar_head *head);
/*
 * The path as a plain one: no "", "." components, no '/' at its ends. 1; 0 when nothing is left of
 * it (the root itself); -1 with the reason.
 */
int tar_path_clean(char *path, enum tree_why *why);
