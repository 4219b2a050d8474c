/*
 * seal - small secrets at rest: ChaCha20-Poly1305, under one key or to the holder of one.
 *
 * seal() and unseal() share a key. seal_to() needs the public half of a pair alone, so who seals
 * cannot open again; only the process that has the private half can (unseal_mine). What is sealed
 * is bound to a context ("tenant\0name"): moved to another row it does not open.
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

/* ---- to the holder of a private key ---- */

#define SEAL_TO_OVERHEAD 49 /* version, a public key, tag */

/* X25519; any 32 random bytes are a private key. */
struct seal_private {
    unsigned char bytes[SEAL_KEY_SIZE];
};
struct seal_public {
    unsigned char bytes[SEAL_KEY_SIZE];
};

must_use int seal_public_of(const struct seal_private *mine, struct seal_public *out,
                            struct err *err);
/* Appends the sealed bytes to `out`; what was needed to make them is gone afterwards. */
must_use int seal_to(const struct seal_public *to, struct str context, struct str plain,
                     struct buf *out, struct err *err);
/* Appends what was sealed. ERR_INTERNAL: another key, another context, or changed bytes. */
must_use int unseal_mine(const struct seal_private *mine, struct str context, struct str sealed,
                         struct buf *out, struct err *err);
/*
 * Another key for another purpose out of a private one, the same each time: what is named by
 * `purpose` needs no file of its own.
 */
must_use int seal_derive(const struct seal_private *mine, struct str purpose,
                         unsigned char out[SEAL_KEY_SIZE], struct err *err);
