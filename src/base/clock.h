/* clock - monotonic time for timers, wall time for stamps only. */
#pragma once

#include <stdint.h>

#include "base/str.h"

int64_t clock_mono_ms(void);
int64_t clock_mono_us(void);
int64_t clock_wall_ms(void);

#define CLOCK_TEXT_SIZE 25
/* "2026-11-15T09:14:07.512Z"; times before 1970 or after 9999 show as the nearest within. */
void clock_text(int64_t wall_ms, char out[CLOCK_TEXT_SIZE]);

/*
 * The other way, of any RFC 3339 text: "2026-11-15T10:14:07.5+01:00". False: it is none, or before
 * 1970. Fractions beyond milliseconds are cut.
 */
bool clock_parse(struct str text, int64_t *wall_ms);

#define CLOCK_NAIVE_SIZE 27
/* "2026-11-15T09:14:07.512000", UTC; without a fraction when that is 0. */
void clock_naive(int64_t wall_ms, char out[CLOCK_NAIVE_SIZE]);
