/* bytes - a number of bytes as people read it: "512 bytes", "16 MiB", "23.4 GiB". */
#pragma once

#include <stdint.h>

#define BYTES_TEXT_SIZE 32

/* Rounded to a tenth where it is no whole number of its unit. Returns `out`. */
const char *bytes_text(int64_t bytes, char out[BYTES_TEXT_SIZE]);
