/* json_scan - bytes of a string that stand for themselves, eight at a time. Private to json*.c. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "scanning finds the first byte lowest");

/*
 * Marks the top bit of bytes that are '"', '\', below 0x20 or above 0x7f. A borrow can mark a byte
 * above a marked one by mistake, so only the lowest mark means anything.
 */
static inline uint64_t specials(uint64_t word)
{
    const uint64_t ones = 0x0101010101010101u;
    uint64_t quote = (word ^ ones * '"') - ones;
    uint64_t slash = (word ^ ones * '\\') - ones;

    return (quote | slash | (word - ones * 0x20) | word) & ones * 0x80;
}

static inline bool is_special(char c)
{
    return (unsigned char)c < 0x20 || (unsigned char)c >= 0x80 || c == '"' || c == '\\';
}

static inline const char *skip_plain(const char *p, const char *end)
{
    while (end - p >= 8) {
        uint64_t word;

        memcpy(&word, p, 8);
        uint64_t marks = specials(word);
        if (marks)
            return p + (__builtin_ctzll(marks) >> 3);
        p += 8;
    }
    while (p < end && !is_special(*p))
        p++;
    return p;
}
