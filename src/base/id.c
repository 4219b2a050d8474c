/* 128 bits as 26 base-32 digits, time first; the top digit holds the two spare bits. */
#include "base/id.h"

#include <errno.h>
#include <stdio.h>
#include <sys/random.h>

#include "base/clock.h"

static const char digits[] = "0123456789abcdefghjkmnpqrstvwxyz";

#define ID_DIGITS 26

void random_bytes(void *out, size_t len)
{
    char *p = out;

    while (len) {
        ssize_t got = getrandom(p, len, 0);

        if (got < 0 && errno != EINTR)
            abort();
        if (got > 0) {
            p += got;
            len -= (size_t)got;
        }
    }
}

void id_make(char out[ID_SIZE], const char *prefix)
{
    unsigned char raw[16];
    uint64_t now = (uint64_t)clock_wall_ms();
    unsigned __int128 value = 0;

    random_bytes(raw + 6, 10);
    for (int i = 0; i < 6; i++)
        raw[i] = (unsigned char)(now >> (40 - 8 * i));
    for (int i = 0; i < 16; i++)
        value = value << 8 | raw[i];
    int at = snprintf(out, ID_SIZE - ID_DIGITS, "%.8s", prefix);
    for (int i = ID_DIGITS - 1; i >= 0; i--) {
        out[at + i] = digits[value & 31];
        value >>= 5;
    }
    out[at + ID_DIGITS] = 0;
}

bool id_valid(struct str id, const char *prefix)
{
    struct str want = str_of(prefix);

    if (id.n != want.n + ID_DIGITS || !str_starts(id, want))
        return false;
    if (id.p[want.n] > '7') /* 26 digits hold 130 bits; the first has two of them spare */
        return false;
    for (size_t i = want.n; i < id.n; i++)
        if (!id.p[i] || !strchr(digits, id.p[i]))
            return false;
    return true;
}
