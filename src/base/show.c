/* The list is short on purpose: what can mislead a reader, not everything that is unusual. */
#include "base/show.h"

static const struct {
    uint32_t first, last;
} hidden[] = {
    { 0x0000, 0x001f }, /* C0: a terminal obeys them */
    { 0x007f, 0x009f }, /* DEL and C1: some terminals obey these too */
    { 0x00ad, 0x00ad }, /* soft hyphen */
    { 0x061c, 0x061c }, /* Arabic letter mark */
    { 0x115f, 0x1160 }, /* Hangul fillers: blank letters */
    { 0x180e, 0x180e },
    { 0x200b, 0x200f },   /* zero width, left-to-right and right-to-left marks */
    { 0x2028, 0x202e },   /* line and paragraph separators, bidi embeddings and overrides */
    { 0x2060, 0x206f },   /* word joiner, invisible operators, bidi isolates */
    { 0x3164, 0x3164 },   /* Hangul filler */
    { 0xfeff, 0xfeff },   /* byte order mark */
    { 0xfff9, 0xfffb },   /* interlinear annotation */
    { 0xe0000, 0xe0fff }, /* tags and more selectors: whole sentences that nobody sees */
};

bool show_hidden(uint32_t code)
{
    for (size_t i = 0; i < ARRAY_LEN(hidden) && code >= hidden[i].first; i++)
        if (code <= hidden[i].last)
            return true;
    return false;
}

void show_escape(struct buf *out, int64_t code, unsigned char byte)
{
    if (code < 0)
        buf_printf(out, "\\x%02x", byte);
    else if (code == '\n' || code == '\t' || code == '\r')
        buf_printf(out, "\\%c", code == '\n' ? 'n' : code == '\t' ? 't' : 'r');
    else if (code < 0x80)
        buf_printf(out, "\\x%02x", (unsigned)code);
    else
        buf_printf(out, "\\u{%x}", (unsigned)code);
}

void show_text(struct buf *out, struct str text)
{
    for (size_t i = 0; i < text.n;) {
        uint32_t code;
        size_t size = str_utf8_at(text.p + i, text.n - i, &code);

        if (size && !show_hidden(code))
            buf_append(out, text.p + i, size);
        else
            show_escape(out, size ? (int64_t)code : -1, (unsigned char)text.p[i]);
        i += size ? size : 1;
    }
}
