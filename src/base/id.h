/*
 * id - names for things: a short prefix, then 48 bits of time and 80 random bits in base 32
 * (Crockford's alphabet, lower case). They sort by age, cannot be guessed, and hold no hyphen.
 */
#pragma once

#include <stdbool.h>

#include "base/str.h"

#define ID_SIZE 40      /* with the NUL; a prefix has at most 8 characters */
#define ID_PREFIX_MIN 3 /* of the beginning of one that stands for all of it */

void id_make(char out[ID_SIZE], const char *prefix);

/* Is it something id_make could have made with this prefix? */
bool id_valid(struct str id, const char *prefix);

/* Fills with bytes from the kernel's generator; never fails. */
void random_bytes(void *out, size_t len);
