/*
 * The compression function twice: as the standard writes it, and with the instructions that x86-64
 * processors have for it, eight times as fast. tree_test.c holds both against libcrypto's.
 */
#include "tree/sha.h"

#include <stdbool.h>
#include <string.h>

#ifdef __x86_64__
#include <cpuid.h>
#include <immintrin.h>
#include <stdatomic.h>
#endif

#include "base/auto.h"

bool sha_plain;

static const uint32_t constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static inline uint32_t turn(uint32_t x, int by)
{
    return x >> by | x << (32 - by);
}

static void mix_plain(uint32_t state[8], const uint8_t *block)
{
    uint32_t w[64], s[8];

    for (size_t i = 0; i < 16; i++)
        w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 |
               (uint32_t)block[4 * i + 2] << 8 | block[4 * i + 3];
    for (int i = 16; i < 64; i++)
        w[i] = w[i - 16] + (turn(w[i - 15], 7) ^ turn(w[i - 15], 18) ^ w[i - 15] >> 3) + w[i - 7] +
               (turn(w[i - 2], 17) ^ turn(w[i - 2], 19) ^ w[i - 2] >> 10);
    memcpy(s, state, sizeof(s));
    for (int i = 0; i < 64; i++) {
        uint32_t first = s[7] + (turn(s[4], 6) ^ turn(s[4], 11) ^ turn(s[4], 25)) +
                         ((s[4] & s[5]) ^ (~s[4] & s[6])) + constants[i] + w[i];
        uint32_t second = (turn(s[0], 2) ^ turn(s[0], 13) ^ turn(s[0], 22)) +
                          ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));

        s[7] = s[6], s[6] = s[5], s[5] = s[4];
        s[4] = s[3] + first;
        s[3] = s[2], s[2] = s[1], s[1] = s[0];
        s[0] = first + second;
    }
    for (int i = 0; i < 8; i++)
        state[i] += s[i];
}

#ifdef __x86_64__

#define SHA_EBX (1u << 29) /* of leaf 7 */
#define NEEDS_ECX (bit_SSSE3 | bit_SSE4_1)

/* To ask the processor is slow in a virtual machine: once. */
static bool has_sha(void)
{
    static _Atomic int known; /* 1: it has; -1: it has not */
    unsigned a, b, c, d;

    if (!known)
        known = __get_cpuid(1, &a, &b, &c, &d) && (c & NEEDS_ECX) == NEEDS_ECX &&
                        __get_cpuid_count(7, 0, &a, &b, &c, &d) && b & SHA_EBX
                    ? 1
                    : -1;
    return known > 0;
}

/* w: the four words before in each of the last four rounds of four; the next four. */
__attribute__((target("sha,ssse3,sse4.1"))) static inline __m128i next_words(__m128i w0, __m128i w1,
                                                                             __m128i w2, __m128i w3)
{
    __m128i sum = _mm_add_epi32(_mm_sha256msg1_epu32(w0, w1), _mm_alignr_epi8(w3, w2, 4));

    return _mm_sha256msg2_epu32(sum, w3);
}

/* The instructions want the state as two vectors, of a, b, e, f and of c, d, g, h. */
__attribute__((target("sha,ssse3,sse4.1"))) static void mix_sha(uint32_t state[8],
                                                                const uint8_t *block, size_t count)
{
    const __m128i order = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    __m128i low = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)state), 0xb1);
    __m128i high = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)(state + 4)), 0x1b);
    __m128i abef = _mm_alignr_epi8(low, high, 8), cdgh = _mm_blend_epi16(high, low, 0xf0);

    for (; count; count--, block += 64) {
        const __m128i abef_before = abef, cdgh_before = cdgh;
        __m128i w[4];

        for (size_t i = 0; i < 4; i++)
            w[i] = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(block + 16 * i)), order);
        for (size_t i = 0; i < 16; i++) {
            __m128i sum =
                _mm_add_epi32(w[0], _mm_loadu_si128((const __m128i *)(constants + 4 * i)));
            __m128i next = i < 12 ? next_words(w[0], w[1], w[2], w[3]) : w[0];

            cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
            abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sum, 0x0e));
            w[0] = w[1], w[1] = w[2], w[2] = w[3], w[3] = next;
        }
        abef = _mm_add_epi32(abef, abef_before);
        cdgh = _mm_add_epi32(cdgh, cdgh_before);
    }
    low = _mm_shuffle_epi32(abef, 0x1b);
    high = _mm_shuffle_epi32(cdgh, 0xb1);
    _mm_storeu_si128((__m128i *)state, _mm_blend_epi16(low, high, 0xf0));
    _mm_storeu_si128((__m128i *)(state + 4), _mm_alignr_epi8(high, low, 8));
}

#endif

static void mix(uint32_t state[8], const uint8_t *block, size_t count)
{
#ifdef __x86_64__
    if (!sha_plain && has_sha()) {
        mix_sha(state, block, count);
        return;
    }
#endif
    for (; count; count--, block += 64)
        mix_plain(state, block);
}

void sha_begin(struct sha_run *run)
{
    *run = (struct sha_run){ .state = { 0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f,
                                        0x9b05688c, 0x1f83d9ab, 0x5be0cd19 } };
}

void sha_add(struct sha_run *run, const void *data, size_t len)
{
    const uint8_t *at = data;
    size_t held = (size_t)(run->bytes % sizeof(run->block));

    run->bytes += len;
    while (len) {
        if (held == 0 && len >= sizeof(run->block)) {
            size_t count = len / sizeof(run->block);

            mix(run->state, at, count);
            at += count * sizeof(run->block);
            len -= count * sizeof(run->block);
            continue;
        }
        size_t part = MIN(len, sizeof(run->block) - held);

        memcpy(run->block + held, at, part);
        at += part;
        len -= part;
        held += part;
        if (held == sizeof(run->block)) {
            mix(run->state, run->block, 1);
            held = 0;
        }
    }
}

void sha_end(struct sha_run *run, uint8_t out[32])
{
    uint64_t bits = run->bytes * 8;
    uint8_t tail[72] = { 0x80 };
    size_t held = (size_t)(run->bytes % sizeof(run->block));
    size_t pad = (held < 56 ? 56 : 120) - held;

    for (int i = 0; i < 8; i++)
        tail[pad + (size_t)i] = (uint8_t)(bits >> (56 - 8 * i));
    sha_add(run, tail, pad + 8);
    for (int i = 0; i < 32; i++)
        out[i] = (uint8_t)(run->state[i / 4] >> (24 - 8 * (i % 4)));
}
