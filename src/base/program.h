/*
 * program - where the other programs of an installation are: `atoll` is in PREFIX/bin, the programs
 * that nobody starts by hand are in PREFIX/libexec/atoll, and a build directory holds them all.
 */
#pragma once

#include "base/err.h"

/*
 * Opens (O_PATH) the program `name`: beside the running program, in ../libexec/atoll, or in the
 * directory that `make install` was given. `*path` gets its path, to free, unless `path` is NULL.
 */
must_use int program_open(const char *name, char **path, struct err *err);
