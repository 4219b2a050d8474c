/*
 * image - archives to root trees. Everything here reads what strangers made, so it runs as a
 * command in a throw-away sandbox (`atoll helper …`), never in the api process.
 *
 *   inspect   takes an upload from a descriptor into a directory of its own, finds out what it is,
 *             checks every digest, and leaves there one file per layer ("layer.0", the lowest)
 *   unpack    one layer's entries into a directory, in the form that overlayfs reads
 *
 * What is read: tar (plain, gzip, xz, zstd) that is a root tree itself, or a `docker save` archive,
 * or an OCI layout. What comes out of a layer:
 *
 *   names      any bytes; absolute ones count from the root; ".." anywhere is a refusal
 *   links      symbolic ones as they are, never followed here; hard ones only to a file of the
 * layer owners     by number, 0 to 65535; modes without setuid and setgid on files (mounts are
 * nosuid) xattrs     user.* apart from user.overlay.*; capabilities, ACLs and the rest are left out
 *   devices    left out, and so are sockets; FIFOs are made
 *   whiteouts  ".wh.x" is device 0/0 "x"; ".wh..wh..opq" marks its directory opaque
 *
 * An entry whose parents are not in the layer gets them with mode 0755 of root.
 */
#pragma once

#include <stdint.h>

#include "base/err.h"
#include "base/json.h"

#define IMAGE_DIGEST_SIZE 72 /* "sha256:" and 64 digits, and the NUL */

/* What an unpacker accepts; image_limits is what it uses, tests make their own. */
struct image_limits {
    uint64_t upload, bytes, entries, ratio, ratio_free, dirs_bytes, parts;
};
extern const struct image_limits image_limits;

struct image_layer {
    char diff_id[IMAGE_DIGEST_SIZE]; /* of the tar inside */
    uint64_t packed;                 /* bytes of the file layer.K */
    uint64_t bytes;                  /* of all files in it */
    uint64_t entries;
};

struct image_info {
    struct arena arena; /* owns the rest */
    const char *format; /* "tar", "docker", "oci" */
    const char *digest; /* of the manifest (oci), of the config (docker), or the diff id */
    const char *architecture;
    const char *name;          /* what the archive calls it, or NULL */
    const struct json *config; /* the image's "config" object, checked; NULL: none */
    struct image_layer *layers;
    uint32_t layer_count;
};

void image_info_free(struct image_info *info);
#define autoinfo auto_with(image_info_free)

/*
 * Reads `fd` to its end and works in the empty directory `dir`. `arch` is what this machine runs
 * ("amd64"). ERR_INVALID and ERR_UNPROCESSABLE are about the archive, ERR_LIMIT about its size.
 */
must_use int image_inspect(const struct image_limits *limits, int fd, int dir, const char *arch,
                           struct image_info *out, struct err *err);
/* The same as JSON, for the api process. */
must_use int image_info_put(const struct image_info *info, struct buf *out, struct err *err);

struct image_counts {
    uint64_t entries, bytes, whiteouts;
    uint64_t devices, xattrs, setuid; /* left out; bits cleared */
};

/*
 * Unpacks the layer in fds[0] into the empty directory `out`. With more than one, the lowest first,
 * all go into it as if they lay on top of one another, and nothing must lie below: then there are
 * no whiteouts in it, but what they would hide is gone.
 */
must_use int image_unpack(const struct image_limits *limits, const int *fds, size_t count, int out,
                          struct image_counts *counts, struct err *err);

/* The role: `atoll helper inspect|unpack …`. Returns the exit status. */
int helper_main(int argc, char **argv);
