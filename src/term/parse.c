/*
 * From bytes to what they mean.
 *
 * In the ground state runs of ASCII go to write_ascii as they are. Anything longer than a byte (a
 * character in UTF-8, a sequence after ESC) is collected in parser.seq and understood when its last
 * byte is there, so that a sequence cut in two needs no state of its own and screen_keyframe can
 * say what has been collected. The grammar is ECMA-48's as terminals read it: control characters
 * inside of a sequence act at once, ESC begins another one, CAN and SUB end it. What comes behind
 * OSC, DCS, APC, PM and SOS is swallowed up to its end; of it SCREEN_SEQ_MAX bytes are kept.
 *
 * Bad UTF-8 shows as U+FFFD, one for each longest beginning of a character, as browsers do. C1
 * controls have no meaning, neither as bytes (which are bad UTF-8) nor as characters.
 */
#include "term/own.h"

enum { CAN = 0x18, SUB = 0x1a, ESC = 0x1b, DEL = 0x7f };

static void keep(struct parser *parser, char byte)
{
    if (parser->len < sizeof(parser->seq))
        parser->seq[parser->len++] = byte;
    else
        parser->over = true;
}

static void begin(struct parser *parser, enum parse_state state)
{
    parser->state = state;
    parser->len = 0;
    parser->over = false;
}

static struct str kept(const struct parser *parser)
{
    return (struct str){ parser->seq, parser->len };
}

/* ---- UTF-8 ------------------------------------------------------------------------------------
 */

/* Bytes of the character that this byte begins; 0 when it begins none. */
static unsigned utf8_size(unsigned char byte)
{
    return byte < 0xc2 ? 0 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : byte < 0xf5 ? 4 : 0;
}

/* May this byte follow those in seq? The second one rules out overlong forms and surrogates. */
static bool utf8_continues(const struct parser *parser, unsigned char byte)
{
    static const struct {
        unsigned char lead, least, most;
    } second[] = {
        { 0xe0, 0xa0, 0xbf }, { 0xed, 0x80, 0x9f }, { 0xf0, 0x90, 0xbf }, { 0xf4, 0x80, 0x8f }
    };

    if ((byte & 0xc0) != 0x80)
        return false;
    for (size_t i = 0; parser->len == 1 && i < ARRAY_LEN(second); i++)
        if ((unsigned char)parser->seq[0] == second[i].lead)
            return byte >= second[i].least && byte <= second[i].most;
    return true;
}

static void show_code(struct screen *screen, uint32_t code)
{
    if (code >= 0x80 && code < 0xa0)
        return;
    screen->shift = 0;
    write_code(screen, code);
}

static void begin_utf8(struct screen *screen, unsigned char byte)
{
    screen->parser.state = PARSE_GROUND;
    if (!utf8_size(byte)) {
        show_code(screen, 0xfffd);
        return;
    }
    begin(&screen->parser, PARSE_UTF8);
    keep(&screen->parser, (char)byte);
}

/* False when the byte belongs to whatever comes next. */
static bool continue_utf8(struct screen *screen, unsigned char byte)
{
    struct parser *parser = &screen->parser;
    uint32_t code = 0xfffd;

    if (!utf8_continues(parser, byte)) {
        parser->state = PARSE_GROUND;
        show_code(screen, code);
        return false;
    }
    keep(parser, (char)byte);
    if (parser->len == utf8_size((unsigned char)parser->seq[0])) {
        parser->state = PARSE_GROUND;
        str_utf8_at(parser->seq, parser->len, &code);
        show_code(screen, code);
    }
    return true;
}

/* ---- sequences --------------------------------------------------------------------------------
 */

static void in_escape(struct screen *screen, unsigned char byte)
{
    struct parser *parser = &screen->parser;

    if (byte < 0x30) { /* an intermediate: more to come */
        keep(parser, (char)byte);
        return;
    }
    if (parser->len == 0 && byte == '[') {
        begin(parser, PARSE_CSI);
        return;
    }
    if (parser->len == 0 && strchr("]P_^Xk", byte)) {
        begin(parser, PARSE_STRING);
        parser->string = (char)byte;
        return;
    }
    keep(parser, (char)byte);
    parser->state = PARSE_GROUND;
    if (!parser->over)
        control_escape(screen, kept(parser));
}

static void in_csi(struct screen *screen, unsigned char byte)
{
    struct parser *parser = &screen->parser;

    keep(parser, (char)byte);
    if (byte < 0x40)
        return;
    parser->state = PARSE_GROUND;
    if (!parser->over)
        csi_run(screen, kept(parser));
}

static void end_string(struct screen *screen)
{
    screen->parser.state = PARSE_GROUND;
    control_string(screen, screen->parser.string, kept(&screen->parser));
}

static void in_string(struct screen *screen, unsigned char byte)
{
    if (byte == '\a' && screen->parser.string == ']')
        end_string(screen);
    else if (byte >= 0x20)
        keep(&screen->parser, (char)byte);
}

/* A control character, wherever it comes. */
static void in_any(struct screen *screen, unsigned char byte)
{
    struct parser *parser = &screen->parser;

    if (byte == ESC) {
        if (parser->state == PARSE_STRING)
            end_string(screen);
        begin(parser, PARSE_ESCAPE);
    } else if (byte == CAN || byte == SUB) {
        parser->state = PARSE_GROUND;
    } else if (parser->state == PARSE_STRING) {
        in_string(screen, byte);
    } else {
        control_byte(screen, byte);
    }
}

static void step(struct screen *screen, unsigned char byte)
{
    struct parser *parser = &screen->parser;

    if (parser->state == PARSE_UTF8 && continue_utf8(screen, byte))
        return;
    if (byte < 0x20) {
        in_any(screen, byte);
    } else if (parser->state == PARSE_STRING) {
        in_string(screen, byte);
    } else if (byte >= 0x80) { /* ends a sequence that it cannot be part of */
        begin_utf8(screen, byte);
    } else if (byte == DEL) {
        return;
    } else if (parser->state == PARSE_ESCAPE) {
        in_escape(screen, byte);
    } else if (parser->state == PARSE_CSI) {
        in_csi(screen, byte);
    } else {
        control_print(screen, byte);
    }
}

/*
 * A CSI sequence that is whole at p, done at once; returns its length, or 0 when there is none. The
 * same that step would do, without the way through seq: colourful output is half sequences.
 */
static size_t whole_csi(struct screen *screen, const char *p, size_t len)
{
    size_t n = 2;

    if (len < 3 || p[0] != ESC || p[1] != '[')
        return 0;
    len = MIN(len, 2 + SCREEN_SEQ_MAX);
    while (n < len && p[n] >= 0x20 && p[n] < 0x40)
        n++;
    if (n == len || p[n] < 0x40 || p[n] == DEL)
        return 0;
    csi_run(screen, (struct str){ p + 2, n - 1 });
    return n + 1;
}

/* How many bytes from p on are printable ASCII. */
static size_t ascii_run(const char *p, size_t len)
{
    size_t n = 0;

    for (; n + 8 <= len; n += 8) {
        uint64_t word;

        memcpy(&word, p + n, 8);
        /* High bit set, below 0x20, or DEL, in any of eight bytes. */
        uint64_t low = word - 0x2020202020202020u, del = word + 0x0101010101010101u;
        if ((word | low | del) & 0x8080808080808080u)
            break;
    }
    while (n < len && p[n] >= 0x20 && p[n] < DEL)
        n++;
    return n;
}

/* Takes at least one byte; returns how many. */
static size_t take(struct screen *screen, const char *p, size_t len)
{
    size_t n = 0;

    if (screen->parser.state == PARSE_GROUND) {
        if (control_is_plain(screen))
            n = ascii_run(p, len);
        if (n)
            write_ascii(screen, p, n);
        else
            n = whole_csi(screen, p, len);
    }
    if (n == 0) {
        step(screen, (unsigned char)*p);
        n = 1;
    }
    return n;
}

void screen_feed(struct screen *screen, struct str bytes)
{
    for (size_t at = 0; at < bytes.n;)
        at += take(screen, bytes.p + at, bytes.n - at);
    if (bytes.n)
        screen->generation++;
}
