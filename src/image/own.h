/* Inside of the image room. */
#pragma once

#include "base/guard.h"
#include "base/hash.h"
#include "base/limits.h"
#include "base/map.h"
#include "image/image.h"
#include "image/stream.h"

/* ---- names (name.c) ---- */

/*
 * An entry's name in parts: "./usr//bin/x" is dir "usr/bin" and base "x"; the root itself has an
 * empty base. Refused: "..", a part over 255 bytes, more than IMAGE_DEPTH_MAX parts.
 */
struct image_name {
    char dir[IMAGE_PATH_MAX + 1];
    char base[256];
};
must_use int name_parse(struct image_name *name, const char *text, struct err *err);
/* For messages: escaped and cut. Points into a buffer of its own; two may be in use. */
const char *name_show(const char *text);

/* "sha256:" and 64 digits; true when `text` is such a thing. */
void digest_text(const unsigned char digest[SHA256_SIZE], char out[IMAGE_DIGEST_SIZE]);
bool digest_ok(struct str text);

/* ---- one directory, filled entry by entry (layer.c) ---- */

struct layer {
    const struct image_limits *limits; /* borrowed */
    int root;                          /* borrowed */
    bool owners;                       /* we may give files away */
    bool flat;                         /* several layers in one directory, with none below */
    struct image_counts counts;
    int parent; /* owned; the directory of the last entry */
    char parent_name[IMAGE_PATH_MAX + 1];
    struct image_name name; /* of the entry; too large for a stack */
    struct buf dirs;        /* whose mode and time are set at the end */
};

void layer_init(struct layer *tree, const struct image_limits *limits, int root);
void layer_free(struct layer *tree);
#define autolayer auto_with(layer_free)

must_use int layer_add(struct layer *tree, struct image_stream *stream, struct archive_entry *entry,
                       struct err *err);
/* After the last entry of a layer. */
must_use int layer_finish(struct layer *tree, struct err *err);

#define WHITEOUT ".wh."
/* A directory or file by a path that no link bends. */
int layer_open(int root, const char *path, int flags);
int layer_fail(struct err *err, const char *what, const char *name);

/* ---- several layers in one directory (flat.c) ---- */

/* Removes a file or a whole tree of that name; nothing there is fine. */
must_use int flat_remove(int dir, const char *name, struct err *err);
/* Before a layer comes on top: removes what its whiteouts hide. */
must_use int flat_hide(struct layer *tree, struct image_stream *stream, struct err *err);

/* ---- the files of an archive of images (parts.c) ---- */

struct image_parts {
    const struct image_limits *limits; /* borrowed */
    int dir;                           /* borrowed; the files are in there, by number */
    struct map by_name;
    struct arena arena;
    uint32_t count;
};
void parts_free(struct image_parts *parts);
#define autoparts auto_with(parts_free)

/* Takes in every file and link. */
must_use int parts_load(struct image_parts *parts, struct image_stream *stream, struct err *err);
/* The file in `dir` that has this part; ERR_UNPROCESSABLE when there is none. */
must_use int parts_find(struct image_parts *parts, struct str name, char file[32], uint64_t *size,
                        struct err *err);
/* A small one in memory, as text or as a tree; both live in `arena`. */
must_use int parts_text(struct image_parts *parts, struct arena *arena, struct str name,
                        struct str *out, struct err *err);
must_use int parts_json(struct image_parts *parts, struct arena *arena, struct str name,
                        const struct json **out, struct err *err);

/* ---- manifests and configs (oci.c) ---- */

/*
 * Reads them; the layers of `info` get the diff ids that the config promises, and `files` (gives,
 * in info's arena) says which part each is. Digests of manifest and config are checked, and for
 * oci so is each layer's, by the caller: `digests`, NULL for docker, which has none.
 */
struct image_plan {
    struct str *files;
    struct str *digests;
};
must_use int oci_read(struct image_parts *parts, const char *arch, struct image_info *info,
                      struct image_plan *plan, struct err *err);
must_use int docker_read(struct image_parts *parts, const char *arch, struct image_info *info,
                         struct image_plan *plan, struct err *err);
