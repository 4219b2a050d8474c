/* uuid - RFC 9562: version 4 (random) and version 7 (sorts by age), in lower case. Any thread. */
#pragma once

#include "base/str.h"

#define UUID_SIZE 37 /* with the NUL */

void uuid_v4(char out[UUID_SIZE]);
void uuid_v7(char out[UUID_SIZE]);
/* Of bytes that were random and are used for nothing else. */
#define UUID_RANDOM 10
void uuid_v7_of(const unsigned char random[UUID_RANDOM], char out[UUID_SIZE]);
/* 8-4-4-4-12 digits, lower case; of any version. */
bool uuid_shaped(struct str text);
