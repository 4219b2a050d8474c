/* See uuid.h. */
#include "base/uuid.h"

#include <string.h>

#include "base/clock.h"
#include "base/id.h"

static void put(unsigned char raw[16], unsigned version, char out[UUID_SIZE])
{
    static const char digits[] = "0123456789abcdef";
    char *at = out;

    raw[6] = (unsigned char)((raw[6] & 0x0f) | version << 4);
    raw[8] = (unsigned char)((raw[8] & 0x3f) | 0x80);
    for (int i = 0; i < 16; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10)
            *at++ = '-';
        *at++ = digits[raw[i] >> 4];
        *at++ = digits[raw[i] & 15];
    }
    *at = 0;
}

void uuid_v4(char out[UUID_SIZE])
{
    unsigned char raw[16];

    random_bytes(raw, sizeof(raw));
    put(raw, 4, out);
}

void uuid_v7_of(const unsigned char random[UUID_RANDOM], char out[UUID_SIZE])
{
    uint64_t now = (uint64_t)clock_wall_ms();
    unsigned char raw[16];

    for (int i = 0; i < 6; i++)
        raw[i] = (unsigned char)(now >> (40 - 8 * i));
    memcpy(raw + 6, random, UUID_RANDOM);
    put(raw, 7, out);
}

void uuid_v7(char out[UUID_SIZE])
{
    unsigned char random[UUID_RANDOM];

    random_bytes(random, sizeof(random));
    uuid_v7_of(random, out);
}

bool uuid_shaped(struct str text)
{
    if (text.n != UUID_SIZE - 1)
        return false;
    for (size_t i = 0; i < text.n; i++) {
        char c = text.p[i];
        bool dash = i == 8 || i == 13 || i == 18 || i == 23;

        if (dash ? c != '-' : !((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f')))
            return false;
    }
    return true;
}
