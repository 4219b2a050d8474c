/*
 * Secrets that people and programs carry: a prefix that tells what it is (and lets a scanner find
 * one that leaked), then 32 random bytes in base64url. We keep only the SHA-256; with 256 bits to
 * guess, a slow hash would protect nothing.
 */
#include "auth/own.h"

#define SECRET_BYTES 32
#define PREFIX_LEN 4u
#define SECRET_LEN (TOKEN_TEXT_SIZE - 1u)

void secret_make(const char *prefix, char out[TOKEN_TEXT_SIZE], unsigned char hash[SHA256_SIZE])
{
    unsigned char raw[SECRET_BYTES];
    autobuf struct buf text = { 0 };

    random_bytes(raw, sizeof(raw));
    buf_puts(&text, prefix);
    base64url_put(&text, raw, sizeof(raw));
    memcpy(out, buf_cstr(&text), TOKEN_TEXT_SIZE);
    sha256(out, SECRET_LEN, hash);
    explicit_bzero(text.data, text.len);
    explicit_bzero(raw, sizeof(raw));
}

bool secret_shaped(struct str text, const char *prefix)
{
    if (text.n != SECRET_LEN || memcmp(text.p, prefix, PREFIX_LEN) != 0)
        return false;
    for (size_t i = PREFIX_LEN; i < text.n; i++) {
        char c = text.p[i];

        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
              c == '-' || c == '_'))
            return false;
    }
    return true;
}

bool token_shaped(struct str text)
{
    return secret_shaped(text, TOKEN_PREFIX);
}
