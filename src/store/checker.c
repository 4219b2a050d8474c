/*
 * Checking every page takes as long as reading the file, which for a store of some gigabytes on a
 * cold disk is minutes; nobody should wait for that after a crash. So a store that is larger than
 * STORE_CHECK_NOW_MAX is served as soon as its head makes sense, while a thread of its own reads
 * the rest. Damage that it finds is told like damage that the writer meets: nothing is written any
 * more, and the server says that it is not ready.
 *
 * The check holds one view of the store, so the log cannot begin anew until it is through. That
 * costs disk and nothing else: the writer goes on appending.
 */
#include "store/checker.h"

#include <errno.h>
#include <signal.h>

#include "base/clock.h"
#include "base/log.h"
#include "store/open.h"

static void *checker_main(void *arg)
{
    struct checker *checker = arg;
    struct err err = { 0 };
    int64_t began_ms = clock_mono_ms();

    pthread_setname_np(pthread_self(), "store-checker");
    if (checker->db->engine->check(checker->db, false, &err) == 0) {
        enum store_state checking = STORE_CHECKING;

        atomic_compare_exchange_strong(checker->state, &checking, STORE_SOUND);
        log_info("the store was checked", kv_int("ms", clock_mono_ms() - began_ms));
    } else if (checker->db->damaged) {
        atomic_store(checker->state, STORE_DAMAGED);
        log_error("nothing is written any more; restore a backup", kv_str("error", err.msg));
    } else if (err.code != ERR_UNAVAILABLE) { /* which means that the store closes */
        log_warn("the check of the store could not be finished", kv_str("error", err.msg));
    }
    return NULL;
}

int checker_start(struct checker *checker, const char *path, _Atomic enum store_state *state,
                  struct err *err)
{
    sigset_t all, before;

    if (store_open_reader(&checker->db, path, err) < 0)
        return -1;
    checker->state = state;
    atomic_store(state, STORE_CHECKING);
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    errno = pthread_create(&checker->thread, NULL, checker_main, checker);
    checker->started = errno == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return checker->started ? 0 : err_sys(err, "start the thread that checks the store");
}

void checker_stop(struct checker *checker)
{
    if (checker->started) {
        checker->db->engine->interrupt(checker->db);
        pthread_join(checker->thread, NULL);
    }
    db_close(checker->db);
    *checker = (struct checker){ 0 };
}
