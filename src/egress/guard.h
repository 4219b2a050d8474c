/*
 * guard - a guard that a test can leave out, to show that it is needed. Here it always stands; in
 * the program of the tests (build/unguarded) it falls when ATOLL_WITHOUT names it. tests/e2e/
 * test_egress_guards.py has an attack for each name in this room, and looks for names it does not
 * know.
 */
#pragma once

#ifdef ATOLL_UNGUARDED
#include <stdlib.h>
#include <string.h>

static inline bool guard_stands(const char *name)
{
    const char *without = getenv("ATOLL_WITHOUT");

    return !without || strcmp(without, name) != 0;
}
#define guard(name) guard_stands(#name)
#else
#define guard(name) true
#endif
