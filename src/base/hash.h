/*
 * hash - SHA-256, HMAC, hex and base64url, and comparing secrets without a clock to read.
 * Over libcrypto; the static programs (warden, init) do not link it. Any thread.
 */
#pragma once

#include "base/buf.h"
#include "base/str.h"

#define SHA256_SIZE 32
#define SHA256_HEX_SIZE 65 /* with the NUL */
#define SHA1_SIZE 20
#define SHA1_HEX_SIZE 41

void sha256(const void *data, size_t len, unsigned char out[SHA256_SIZE]);
/* Of several pieces one after another. */
void sha256_parts(const struct str *parts, size_t count, unsigned char out[SHA256_SIZE]);
/* Of a stream: new, any number of puts, end (which frees). */
struct sha256_stream;
struct sha256_stream *sha256_new(void) __attribute__((returns_nonnull));
void sha256_put(struct sha256_stream *stream, const void *data, size_t len);
void sha256_end(struct sha256_stream *stream, unsigned char out[SHA256_SIZE]);
void sha256_drop(struct sha256_stream *stream); /* without a digest; NULL is fine */

/* Only because git names files by it: it proves nothing. */
void sha1_parts(const struct str *parts, size_t count, unsigned char out[SHA1_SIZE]);
void hmac_sha256(struct str key, struct str data, unsigned char out[SHA256_SIZE]);

void hex_text(const void *data, size_t len, char *out /* 2*len+1 */);
must_use bool hex_bytes(struct str text, void *out, size_t len); /* exactly 2*len digits */

/* base64url without padding (RFC 4648 section 5), and plain base64 with it. */
void base64url_put(struct buf *out, const void *data, size_t len);
void base64_put(struct buf *out, const void *data, size_t len);
/* Takes either alphabet, padding optional but right if there. False on any other byte. */
must_use bool base64_get(struct buf *out, struct str text);

bool secret_eq(const void *a, const void *b, size_t len);
