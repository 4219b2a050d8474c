/* wrap - paragraphs to lines. */
#pragma once

#include "base/buf.h"

/*
 * Appends `text` wrapped to `width` columns, the following lines indented by `indent`; `at` columns
 * of the first line are used already. Paragraphs are separated by an empty line; a line beginning
 * with a blank is kept as it is. Ends with a newline.
 */
void wrap_text(struct buf *out, const char *text, size_t at, size_t indent, size_t width);
