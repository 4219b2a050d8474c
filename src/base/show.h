/*
 * show - text from strangers, made safe to look at. What a terminal would obey, what turns the
 * reading direction, and what cannot be seen at all is written as a visible escape: \n \t \r,
 * \x1b for control bytes and bytes that are not UTF-8, \u{202e} for the rest. Any thread.
 */
#pragma once

#include "base/buf.h"
#include "base/str.h"

/* Must this code point be escaped? Controls (C0, DEL, C1), bidi marks, separators, invisibles. */
bool show_hidden(uint32_t code);
/* The text on one line; a backslash stays as it is, for this is to be read, not parsed. */
void show_text(struct buf *out, struct str text);
/* The escape of one hidden code point or, with `code` < 0, of a byte that is no UTF-8. */
void show_escape(struct buf *out, int64_t code, unsigned char byte);
