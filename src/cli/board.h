/*
 * board - a project's board on a terminal. Untrusted text is made visible; no line is wider than
 * what was asked for. Any thread.
 */
#pragma once

#include "base/buf.h"
#include "base/json.h"

#define BOARD_WIDTH_MIN 20
#define BOARD_WIDTH 100 /* where there is no terminal to tell */

/* Draws the answer of GET /projects/{p}/board. `colour`: with escape sequences of our own. */
void board_put(struct buf *out, const struct json *board, size_t width, bool colour);
