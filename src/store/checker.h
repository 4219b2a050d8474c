/* checker - reads a large store from end to end beside a server that serves. Private to store/. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "store/engine.h"
#include "store/store.h"

struct checker {
    struct db *db; /* owned; the thread's own while it runs */
    pthread_t thread;
    bool started;
    _Atomic enum store_state *state; /* told what was found */
};

/* Sets *state to STORE_CHECKING, and to what was found when it is through. */
must_use int checker_start(struct checker *checker, const char *path,
                           _Atomic enum store_state *state, struct err *err);
/* Ends it wherever it is. Fine when it was never started. */
void checker_stop(struct checker *checker);
