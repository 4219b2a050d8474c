/*
 * random - bytes as a hostile or busy program might write them, for tests: text of all widths,
 * sequences that mean something with numbers around the limits, and plain noise.
 */
#pragma once

#include "base/buf.h"
#include "base/test.h"

static const char *const random_texts[] = {
    "a",        "hello world", "x\u0301",  "\u4e2d\u6587", "\U0001f600", "e\u0308o", "\r\n",
    "\n",       "\r",          "\b",       "\t",           "0123456789", "\u3000",   "\xff",
    "\xe4\xb8", "\xf0\x9f",    "\xc2\x9b", "\u00e9",       "lqqk",       "\016",     "\017",
    "\a",       "\v",          "\u0301",   "\xed\xa0\x80",
};

static const char *const random_sequences[] = {
    "\0337",
    "\0338",
    "\033D",
    "\033E",
    "\033M",
    "\033H",
    "\033N",
    "\033O",
    "\033n",
    "\033o",
    "\033(0",
    "\033(B",
    "\033)0",
    "\033*A",
    "\033#8",
    "\033=",
    "\033>",
    "\033[?1049h",
    "\033[?1049l",
    "\033[?47h",
    "\033[?47l",
    "\033[?7l",
    "\033[?7h",
    "\033[?6h",
    "\033[?6l",
    "\033[4h",
    "\033[4l",
    "\033[20h",
    "\033[20l",
    "\033[?25l",
    "\033[?25h",
    "\033[?1h",
    "\033[?1000h",
    "\033[?1003;1006h",
    "\033[?1000l",
    "\033[?2004h",
    "\033[?2026h",
    "\033[?1004h",
    "\033[?5h",
    "\033[!p",
    "\033[3J",
    "\033[?1048h",
    "\033[?1048l",
    "\033]2;title\a",
    "\033]0;t\u00eft\033\\",
    "\033P1$q\033\\",
    "\033_apc\033\\",
    "\033[31m",
    "\033[1;4;38;5;200m",
    "\033[48;2;1;2;3m",
    "\033[4:3m",
    "\033[58:2::9:8:7m",
    "\033[0m",
    "\033[m",
    "\033[7;9;53m",
    "\033[42m",
    "\033[3g",
    "\033[s",
    "\033[u",
    "\033[6n",
    "\033[c",
    "\033[?2026$p",
    "\033[2 q",
    "\033[5 q",
    "\033[3 q",
};

/* Of CSI, with numbers. */
static const char random_finals[] = "ABCDEFGHIJKLMPSTXZ@`abdefgrm";

static inline void random_csi(struct buf *out)
{
    static const unsigned odd[] = { 0, 1, 2, 3, 5, 9, 10, 11, 100, 65535, 4294967295u };

    buf_puts(out, "\033[");
    for (uint32_t n = test_rand(3); n > 0; n--) {
        unsigned value = test_rand(4) ? test_rand(12) : odd[test_rand(ARRAY_LEN(odd))];

        buf_u64(out, value);
        if (n > 1 || test_rand(8) == 0)
            buf_putc(out, test_rand(10) ? ';' : ':');
    }
    buf_putc(out, random_finals[test_rand(sizeof(random_finals) - 1)]);
}

static inline void random_noise(struct buf *out)
{
    static const char set[] =
        "\033\033[]PX^_?;:0123456789 !$mhlHJK\a\\\x18\x80\xc3\xa9\xf0\x9f\x98\x80k(";

    for (uint32_t n = test_rand(8) + 1; n > 0; n--)
        buf_putc(out, set[test_rand(sizeof(set) - 1)]);
}

static inline void random_piece(struct buf *out)
{
    uint32_t kind = test_rand(20);

    if (kind < 8)
        buf_puts(out, random_texts[test_rand(ARRAY_LEN(random_texts))]);
    else if (kind < 13)
        random_csi(out);
    else if (kind < 19)
        buf_puts(out, random_sequences[test_rand(ARRAY_LEN(random_sequences))]);
    else
        random_noise(out);
}
