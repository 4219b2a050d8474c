/*
 * value - what one line of the settings table takes: names, types, ranges. Used by conf.c alone.
 * None of these keeps anything; all may be called from any thread.
 */
#pragma once

#include "conf/conf.h"

/* Within the length limit, UTF-8, no control bytes. */
must_use int value_plain(const struct conf_key *key, struct str text, struct err *err);
/*
 * By the type of a scalar: gives the text to keep (a path made absolute) and its number. With
 * `absolute` a relative path is refused instead, because a file has no working directory.
 */
must_use int value_read(const struct conf_key *key, struct str text, bool absolute, char **kept,
                        int64_t *num, struct err *err);

/* The setting whose name is most like this one, or NULL when none is near. */
const char *key_near(struct str name);
/* The settings file of an ordinary user, or NULL without a home; gives. */
char *user_file(void);
