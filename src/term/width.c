/*
 * How many columns a character takes. Ranges from Unicode's data (width_table.h), looked up by
 * halving; what comes often (Latin, CJK, Hangul) is known without looking.
 */
#include "term/own.h"

struct width_range {
    uint32_t first, last;
};

#include "term/width_table.h"

static bool within(const struct width_range *table, size_t count, uint32_t code)
{
    size_t low = 0, high = count;

    while (low < high) {
        size_t mid = (low + high) / 2;

        if (code > table[mid].last)
            low = mid + 1;
        else
            high = mid;
    }
    return low < count && code >= table[low].first;
}

unsigned width_of(uint32_t code)
{
    if (code < 0x300)
        return 1;
    if ((code >= 0x4e00 && code <= 0x9fff) || (code >= 0xac00 && code <= 0xd7a3))
        return 2;
    if (within(width_zero, ARRAY_LEN(width_zero), code))
        return 0;
    return within(width_two, ARRAY_LEN(width_two), code) ? 2 : 1;
}

size_t utf8_put(uint32_t code, char out[4])
{
    size_t len = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;

    for (size_t i = len - 1; i > 0; i--) {
        out[i] = (char)(0x80 | (code & 0x3f));
        code >>= 6;
    }
    out[0] = (char)(len == 1 ? code : (0xf00u >> len & 0xff) | code);
    return len;
}
