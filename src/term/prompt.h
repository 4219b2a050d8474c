/*
 * prompt - does a terminal ask its user something? Judged by the last line that shows anything, by
 * a table of what programs say when they wait. No I/O.
 */
#pragma once

#include "base/buf.h"
#include "term/screen.h"

#define PROMPT_ASKS 0.80 /* from here on it is a question to somebody */

/* 0: none; up to 1: how sure. The line without blanks at its end goes to `text` (may be NULL). */
double prompt_score(struct str line, struct buf *text);
/* The same of what a screen shows; a cursor behind a blank counts as that blank. */
double screen_prompt(const struct screen *screen, struct buf *text);
