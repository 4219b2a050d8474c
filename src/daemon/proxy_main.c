/*
 * `atoll proxy`: a process like the egress process that belongs to no server. What it needs is open
 * already; it goes into the same jail and serves until it is told to end.
 */
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include "base/auto.h"
#include "base/log.h"
#include "base/mem.h"
#include "daemon/daemon.h"
#include "daemon/jail.h"
#include "egress/egress.h"

static void on_signal(void *ctx, int signal)
{
    log_info("ends", kv_int("signal", signal));
    loop_stop(ctx);
}

/* Each tunnel has two descriptors, and pipes while bytes are under way. */
static void more_files(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static int run(const struct egress_signed *how, struct err *err)
{
    static const int signals[] = { SIGTERM, SIGINT };
    static const char *const may_miss[] = { "landlock", NULL };
    const struct jail jail = { .egress = true, .data_fd = -1, .allow_degraded = may_miss };
    struct loop *loop = NULL;
    struct egress *egress = NULL;
    int rc = loop_new(&loop, err);

    if (rc == 0)
        rc = loop_signals(loop, signals, ARRAY_LEN(signals), on_signal, loop, err);
    if (rc == 0)
        rc = egress_new_signed(&egress, loop, how, err);
    if (rc == 0)
        rc = jail_enter(&jail, err);
    if (rc >= 0) {
        mem_untraced();
        loop_run(loop);
    }
    egress_free(egress);
    loop_free(loop);
    return rc;
}

int proxy_main(const struct egress_signed *how)
{
    struct err err = { 0 };

    prctl(PR_SET_NAME, "atoll-proxy", 0, 0, 0);
    sigaction(SIGPIPE, &(struct sigaction){ .sa_handler = SIG_IGN }, NULL);
    more_files();
    if (run(how, &err) < 0) {
        log_error("no proxy", kv_str("error", err.msg));
        return 1;
    }
    return 0;
}
