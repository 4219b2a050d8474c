/*
 * guard - a guard that a test can leave out, to show that it is needed. Here it always stands; in
 * the programs of the tests (build/unguarded, and those that the warden's tests are made of) it
 * falls when ATOLL_WITHOUT names it, among others perhaps: "one,two". For each name there is an
 * attack that succeeds without it: of sandboxes in src/warden/guards_test.c and limits_test.c, of
 * the unpacker in tests/e2e/test_image_guards.py, of the egress process in
 * tests/e2e/test_egress_guards.py. tests/e2e/test_*_guards.py look for names that none knows.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#ifdef ATOLL_UNGUARDED
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline bool guard_stands(const char *name)
{
    size_t len = strlen(name);

    for (const char *at = getenv("ATOLL_WITHOUT"); at; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, name, len) == 0 && (at[len] == 0 || at[len] == ','))
            return false;
    }
    return true;
}
#define guard(name) guard_stands(#name)

/* For a program that begins without any environment: none but this variable. */
static inline char *const *guard_env(void)
{
    static char text[256];
    static char *env[] = { text, NULL };
    const char *without = getenv("ATOLL_WITHOUT");

    snprintf(text, sizeof(text), "ATOLL_WITHOUT=%s", without ? without : "");
    return env;
}
#else
#define guard(name) true

static inline char *const *guard_env(void)
{
    static char *const none[] = { NULL };

    return none;
}
#endif
