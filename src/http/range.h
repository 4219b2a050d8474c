/*
 * range - the Range header (RFC 9110 section 14), one range of bytes at a time.
 *
 * Several ranges in one request, other units and anything malformed are ignored, as the RFC lets a
 * server do: the whole is then served. Any thread.
 */
#pragma once

#include <stdint.h>

#include "base/buf.h"
#include "base/str.h"

enum http_range {
    HTTP_RANGE_NONE, /* serve the whole: no range, or none that we understand */
    HTTP_RANGE_PART, /* serve bytes *first to *last, both included */
    HTTP_RANGE_BAD,  /* 416: no byte of it exists */
};

/* `value` is the header's value (p == NULL when there is none), `size` that of the whole. */
enum http_range http_range_parse(struct str value, uint64_t size, uint64_t *first, uint64_t *last);

#define HTTP_RANGE_TEXT_SIZE 72
/* Value of Content-Range: "bytes 0-99/1234", or "bytes *" "/1234" (one word) for a 416. */
struct str http_range_text(char out[HTTP_RANGE_TEXT_SIZE], enum http_range range, uint64_t first,
                           uint64_t last, uint64_t size);
