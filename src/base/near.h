/* near - how unlike two words are, for "did you mean". Any thread. */
#pragma once

#include "base/str.h"

#define NEAR_WORD_MAX 32 /* longer words are like nothing */

/*
 * Letters to insert, remove, change or swap with a neighbour to get from one to the other;
 * UINT_MAX when either is longer than NEAR_WORD_MAX.
 */
unsigned near_distance(struct str a, struct str b);
/* Is it near enough to be a slip of the finger: one letter in short words, a third in long ones? */
bool near_enough(unsigned distance, struct str word);
