/* Signals of which the server knows nothing; sent to it, they wait for ever, or are read and
 * dropped. */
#include "base/signals.h"

#include <stddef.h>

#define FIRST_REALTIME 34 /* `kill -RTMIN`; glibc keeps the two before it */
#define LONG_BITS (8 * sizeof(long))

void signals_add_meaningless(sigset_t *set)
{
    static const int numbers[] = { SIGUSR1, SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF,
                                   SIGIO,   SIGXCPU, SIGXFSZ, SIGPWR,    SIGSTKFLT };

    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        sigaddset(set, numbers[i]);
    /* By their bits: sigaddset of musl knows nothing of the first, which it keeps for threads. */
    for (unsigned at = FIRST_REALTIME - 1; at < 64; at++)
        ((unsigned long *)set)[at / LONG_BITS] |= 1ul << at % LONG_BITS;
}

void signals_block(void)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGQUIT);
    signals_add_meaningless(&set);
    sigprocmask(SIG_BLOCK, &set, NULL);
    sigaction(SIGPIPE, &(struct sigaction){ .sa_handler = SIG_IGN }, NULL);
}
