/*
 * url - the pieces of a request target, decoded strictly or not at all.
 *
 * Two readers that decode differently are a hole (a check on one spelling, a file by another), so
 * here is one reader: what it does not understand exactly it refuses. Any thread.
 */
#pragma once

#include "base/mem.h"
#include "base/str.h"

/*
 * Decodes %XX, and '+' as a space if `plus` (queries and forms only). False on a '%' without two
 * hexadecimal digits and on NUL. Without escapes *out is the input itself, otherwise a copy in the
 * arena; false leaves it alone.
 */
must_use bool url_decode(struct arena *arena, struct str text, bool plus, struct str *out);

/*
 * Is this an absolute path that means one thing only? Begins with '/', escapes are well formed, and
 * no segment is empty, "." or "..", or hides a slash, a backslash or a NUL, in whatever spelling.
 * One slash at the end is allowed.
 */
bool url_path_ok(struct str path);
/* The same, where %2F is another spelling of a slash between two parts of a name. */
bool url_path_ok_slashes(struct str path);

/*
 * Takes the next "key=value" off *rest (key and value not decoded; value empty without '='); empty
 * pieces are skipped. False at the end.
 */
bool url_query_next(struct str *rest, struct str *key, struct str *value);

/*
 * Is this a Host: letters-digits-hyphens labels, an IPv4 address or a bracketed IPv6 address, then
 * optionally ':' and a port? A name whose last label is a number must be an IPv4 address.
 */
bool url_host_ok(struct str host);
