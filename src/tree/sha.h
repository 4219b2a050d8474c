/* sha - SHA-256 (FIPS 180-4) for where libcrypto is not linked: base/hash.h. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sha_run {
    uint32_t state[8];
    uint64_t bytes;
    uint8_t block[64];
};

void sha_begin(struct sha_run *run);
void sha_add(struct sha_run *run, const void *data, size_t len);
void sha_end(struct sha_run *run, uint8_t out[32]);

extern bool sha_plain; /* for tests: as on a processor without instructions for it */
