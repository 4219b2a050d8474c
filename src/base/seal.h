/*
 * seal - small secrets at rest: ChaCha20-Poly1305 under one key, a fresh random nonce for each.
 *
 * What is sealed is bound to a context ("tenant\0name"): moved to another row it does not open.
 * Over libcrypto. Any thread.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"

#define SEAL_KEY_SIZE 32
#define SEAL_OVERHEAD 29 /* version, nonce, tag */

struct seal_key {
    unsigned char bytes[SEAL_KEY_SIZE];
};

/*
 * The key in this file below the directory `dir`; made at first use, with mode 0600. A file that
 * others may read, or that is not a key, is refused: it is never made anew over sealed values.
 */
must_use int seal_key_load(struct seal_key *out, int dir, const char *name, struct err *err);

/* Appends the sealed bytes to `out`. */
must_use int seal(const struct seal_key *key, struct str context, struct str plain, struct buf *out,
                  struct err *err);
/* Appends what was sealed. ERR_INTERNAL: another key, another context, or changed bytes. */
must_use int unseal(const struct seal_key *key, struct str context, struct str sealed,
                    struct buf *out, struct err *err);
