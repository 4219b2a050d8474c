/*
 * The whole life of the server as one wait: signals, the api process's link, the ends of processes,
 * and deadlines. Verbs and deadlines are tables; each line is one small function.
 *
 *   no api process ── DUE_RESTART ──▶ started ── HELLO ──▶ greeted ── READY ──▶ serving
 *          ▲                                    death, from anywhere │
 *          └─────────── back-off, or give up ◀───────────────────────┘
 *
 * A message that is malformed, comes in the wrong state, brings descriptors, or is one too many in
 * a second means that the api process is not ours any more: it is killed and started again. The
 * listeners stay open here all the time, so clients wait in the backlog instead of being refused.
 *
 * Reload: `atoll serve --resolve`, run with the arguments and the environment of the start, writes
 * new settings into a memfd, which is sealed and sent to the api process. Only when that says that
 * it took them do they replace the old ones, for this process and those started later.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/signals.h"
#include "warden/net.h"

#define NOEXEC_SEAL 8u /* MFD_NOEXEC_SEAL of linux/memfd.h */
#define HEAR_OUT 64    /* messages, before a signal to end is acted upon */

enum due {
    DUE_RESTART,  /* start the api process */
    DUE_HELLO,    /* it has not said hello */
    DUE_SILENT,   /* it closed its link and still lives */
    DUE_PING,     /* ask whether it answers */
    DUE_PONG,     /* it did not answer */
    DUE_STOP,     /* draining took too long */
    DUE_RESOLVE,  /* reading the settings took too long */
    DUE_WATCHDOG, /* tell systemd that we live */
    DUES
};

struct warden {
    const struct warden_args *args;
    int signal_fd;
    struct child api, resolve;
    bool greeted, ready;
    bool condemned;  /* we have killed it */
    unsigned deaths; /* in a row, the last READY being forgiven: for the back-off */
    unsigned failed; /* in a row before READY: for giving up */
    unsigned readies;
    struct wire_budget budget, box_budget;
    uint32_t number;        /* of the last question asked */
    uint32_t ping, reload;  /* numbers of those not answered yet, or 0 */
    int new_settings;       /* memfd on its way to the api process, or -1 */
    unsigned reload_deaths; /* of api processes that were given these settings */
    bool reload_again;      /* SIGHUP came while one was under way */
    int64_t watchdog_ms;
    int64_t due[DUES]; /* monotonic ms; 0: not set */
    bool stopping, over;
    bool reap; /* children have ended that were not looked at yet */
    int exit_status;
};

static void due_in(struct warden *w, enum due due, int64_t ms)
{
    w->due[due] = clock_mono_ms() + ms;
}

static void finish(struct warden *w, int status)
{
    w->over = true;
    w->exit_status = status;
}

/* Its death is dealt with when the pidfd says so. */
static void api_kill(struct warden *w)
{
    w->condemned = true;
    child_kill(&w->api);
}

/* The api process broke the protocol or hangs. */
static void condemn(struct warden *w, const char *why)
{
    if (w->condemned || !w->api.pid)
        return;
    log_error("killing the api process", kv_str("why", why), kv_int("pid", w->api.pid));
    api_kill(w);
}

static int tell(struct warden *w, enum wire_verb verb, uint32_t number, const int *fds,
                unsigned count)
{
    struct wire_msg msg = { .verb = (uint16_t)verb, .number = number };

    if (verb == WIRE_HELLO) {
        msg.hello.role = WIRE_ROLE_WARDEN;
        msg.hello.pid = (uint32_t)getpid();
        msg.hello.readies = w->readies;
    }
    return wire_send(w->api.link, &msg, fds, count);
}

/* ---- reload ---- */

/* systemd waits for this after RELOADING; while nobody serves, the next READY will say it. */
static void reload_over(const struct warden *w)
{
    if (w->ready && !w->stopping)
        notify_send("READY=1");
}

static void reload_begin(struct warden *w)
{
    char text[96];

    if (w->stopping)
        return;
    if (w->resolve.pid || w->new_settings >= 0) {
        w->reload_again = true;
        return;
    }
    snprintf(text, sizeof(text), "RELOADING=1\nMONOTONIC_USEC=%lld", (long long)clock_mono_us());
    notify_send(text);
    w->new_settings = memfd_create("atoll-settings", MFD_CLOEXEC | MFD_ALLOW_SEALING | NOEXEC_SEAL);
    if (w->new_settings < 0 && errno == EINVAL) /* before Linux 6.3 */
        w->new_settings = memfd_create("atoll-settings", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (w->new_settings < 0 || spawn_resolve(w->args, w->new_settings, &w->resolve) < 0) {
        log_error("cannot read the settings again, the old ones stay",
                  kv_str("error", strerror(errno)));
        if (w->new_settings >= 0)
            close(w->new_settings);
        w->new_settings = -1;
        reload_over(w);
        return;
    }
    due_in(w, DUE_RESOLVE, WARDEN_RELOAD_MS);
}

static void reload_end(struct warden *w)
{
    if (w->new_settings >= 0)
        close(w->new_settings);
    w->new_settings = -1;
    w->reload = w->reload_deaths = 0;
    reload_over(w);
    if (w->reload_again) {
        w->reload_again = false;
        reload_begin(w);
    }
}

static void reload_send(struct warden *w)
{
    if (w->new_settings < 0 || w->resolve.pid || w->reload || !w->ready || w->api.link < 0)
        return; /* READY will call again */
    w->reload = ++w->number;
    if (tell(w, WIRE_RELOAD, w->reload, &w->new_settings, 1) == 0)
        return;
    if (errno == EPIPE) {
        w->reload = 0; /* it is dying; the next one gets them */
        return;
    }
    log_error("cannot hand over new settings, the old ones stay", kv_str("error", strerror(errno)));
    reload_end(w);
}

/* It died with new settings in its hands. Once may be chance, twice is the settings. */
static void reload_survived(struct warden *w)
{
    if (!w->reload)
        return;
    w->reload = 0;
    if (++w->reload_deaths < 2)
        return; /* READY of the next one will try again */
    log_error("the api process died over the new settings, the old ones stay");
    reload_end(w);
}

/* `serve --resolve` has ended: its output is good, or it has said on stderr why not. */
static void resolved(struct warden *w)
{
    int status = child_end(&w->resolve);
    struct stat st;

    w->due[DUE_RESOLVE] = 0;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0 || fstat(w->new_settings, &st) < 0 ||
        st.st_size == 0 || st.st_size > SETTINGS_MAX ||
        fcntl(w->new_settings, F_ADD_SEALS,
              F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) < 0) {
        log_error("the new settings are not good, the old ones stay");
        reload_end(w);
        return;
    }
    reload_send(w);
}

static void resolve_slow(struct warden *w)
{
    log_error("reading the settings took too long");
    child_kill(&w->resolve);
}

/* ---- sandboxes ---- */

/* What it does not read in time it would wait for in vain: better that it starts anew. */
static void boxes_say(void *owner, const struct wire_msg *msg, const int *fds, unsigned count)
{
    struct warden *w = owner;

    if (w->api.link >= 0 && w->greeted && wire_send(w->api.link, msg, fds, count) < 0 &&
        errno != EPIPE && errno != ECONNRESET)
        condemn(w, "it does not read its answers");
}

static void boxes_begin(struct warden *w)
{
    bool root = w->args->api_uid >= 0;
    const char *what;

    boxes_tool(WARDEN_FD_ATOLL);
    disks_size((uint64_t)w->args->disks_size);
    if (w->args->ids >= 0)
        boxes_rootless((uint32_t)w->args->ids);
    if (boxes_open(root || w->args->ids >= 0 ? WARDEN_FD_STATE : -1, (uint32_t)w->args->api_uid,
                   boxes_say, w, &what) < 0)
        log_warn("no sandboxes can be made", kv_str("missing", what),
                 kv_str("error", strerror(errno)));
    else if (root || w->args->ids >= 0)
        egress_begin(w->args, boxes_say, w);
}

/* ---- what the api process says ---- */

static void on_hello(struct warden *w, const struct wire_msg *msg)
{
    if (w->greeted || msg->hello.role != WIRE_ROLE_API || (pid_t)msg->hello.pid != w->api.pid) {
        condemn(w, "wrong hello");
        return;
    }
    w->greeted = true;
    w->due[DUE_HELLO] = 0;
    if (tell(w, WIRE_HELLO, msg->number, NULL, 0) < 0 && errno != EPIPE)
        condemn(w, "hello not taken");
    egress_api_is_new();
}

static void on_ready(struct warden *w, const struct wire_msg *msg)
{
    (void)msg;
    if (!w->greeted || w->ready) {
        condemn(w, "ready out of turn");
        return;
    }
    w->ready = true;
    w->readies++;
    w->deaths = w->failed = 0;
    due_in(w, DUE_PING, WARDEN_PING_MS);
    log_debug("serving", kv_int("pid", w->api.pid), kv_int("listeners", w->args->listeners));
    notify_send(w->stopping ? "STOPPING=1" : "READY=1\nSTATUS=serving");
    reload_send(w);
}

static void on_reloaded(struct warden *w, const struct wire_msg *msg)
{
    if (!w->reload || msg->number != w->reload) {
        condemn(w, "reloaded out of turn");
        return;
    }
    if (msg->status != 0) {
        log_error("the new settings were refused, the old ones stay",
                  kv_slice("why", wire_text(msg)));
    } else if (dup3(w->new_settings, WARDEN_FD_SETTINGS, O_CLOEXEC) < 0) {
        log_error("cannot keep the new settings for the next start",
                  kv_str("error", strerror(errno)));
    } else {
        log_info("settings reloaded");
    }
    reload_end(w);
}

static void on_ping(struct warden *w, const struct wire_msg *msg)
{
    if (tell(w, WIRE_PONG, msg->number, NULL, 0) < 0)
        log_debug("pong not taken");
}

static void on_pong(struct warden *w, const struct wire_msg *msg)
{
    if (!w->ping || msg->number != w->ping) {
        condemn(w, "pong to no ping");
        return;
    }
    w->ping = 0;
    w->due[DUE_PONG] = 0;
    due_in(w, DUE_PING, WARDEN_PING_MS);
}

/* Verbs without a function are ours to send, not the child's. */
/* clang-format off */
static void (*const verb_fn[WIRE_VERBS])(struct warden *w, const struct wire_msg *msg) = {
    [WIRE_HELLO]    = on_hello,
    [WIRE_READY]    = on_ready,
    [WIRE_RELOADED] = on_reloaded,
    [WIRE_PING]     = on_ping,
    [WIRE_PONG]     = on_pong,
};
/* clang-format on */

/* One message; false when there is no more to read now. */
static bool hear(struct warden *w)
{
    struct wire_msg msg;
    int fds[WIRE_FDS_MAX];
    unsigned count;
    int got = wire_recv(w->api.link, &msg, fds, &count);

    if (got < 0 && errno == EAGAIN)
        return false;
    for (unsigned i = 0; i < count; i++)
        close(fds[i]);
    if (got == 0 || (got < 0 && errno == ECONNRESET)) {
        close(w->api.link); /* it is dying, and the pidfd will say so; or it had better be */
        w->api.link = -1;
        due_in(w, DUE_SILENT, 1000);
        return false;
    }
    if (got < 0)
        condemn(w, "malformed message");
    else if (count)
        condemn(w, "descriptors where none belong");
    else if (!(msg.verb >= WIRE_BOX_CREATE
                   ? wire_budget_take(&w->box_budget, BOX_VERBS_PER_SECOND, clock_mono_ms())
                   : wire_budget_take(&w->budget, WIRE_PER_SECOND_MAX, clock_mono_ms())))
        condemn(w, "too many messages");
    else if (verb_fn[msg.verb])
        verb_fn[msg.verb](w, &msg);
    else if (!w->greeted || !boxes_hear(&msg))
        condemn(w, "a verb that is not its own, or out of turn");
    return !w->condemned;
}

/* ---- starting and ending the api process ---- */

static void say_death(int status, pid_t pid)
{
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS)
        log_error("the api process made a system call that its jail forbids", kv_int("pid", pid));
    else if (WIFSIGNALED(status))
        log_error("the api process was killed", kv_int("pid", pid),
                  kv_int("signal", WTERMSIG(status)));
    else
        log_error("the api process ended", kv_int("pid", pid),
                  kv_int("status", WEXITSTATUS(status)));
}

/* After a death or a start that failed: again, later, or not any more. */
static void api_again(struct warden *w)
{
    w->deaths++;
    if (w->failed >= API_FAILED_STARTS_MAX) {
        log_error("giving up: the api process never became ready", kv_int("tries", w->failed));
        finish(w, 1);
        return;
    }
    due_in(w, DUE_RESTART, restart_delay_ms(w->deaths));
}

static void api_start(struct warden *w)
{
    w->greeted = w->ready = w->condemned = false;
    w->ping = 0;
    w->budget = w->box_budget = (struct wire_budget){ 0 };
    if (spawn_api(w->args, &w->api) < 0) {
        log_error("cannot start the api process", kv_str("error", strerror(errno)));
        w->failed++;
        api_again(w);
        return;
    }
    due_in(w, DUE_HELLO, WARDEN_HELLO_MS);
}

static void api_died(struct warden *w)
{
    static const enum due of_api[] = { DUE_HELLO, DUE_SILENT, DUE_PING, DUE_PONG, DUE_STOP };
    pid_t pid = w->api.pid;

    while (w->api.link >= 0 && !w->condemned && hear(w))
        ; /* what it said before it died, READY perhaps */
    int status = child_end(&w->api);
    boxes_forget_asker();
    w->failed += !w->ready;
    w->greeted = w->ready = false;
    for (size_t i = 0; i < ARRAY_LEN(of_api); i++)
        w->due[of_api[i]] = 0;
    if (!w->condemned && (status != 0 || !w->stopping))
        say_death(status, pid);
    if (w->stopping) {
        finish(w, status != 0 && !w->condemned); /* it crashed over draining: not a clean end */
        return;
    }
    reload_survived(w);
    if (WIFEXITED(status) && WEXITSTATUS(status) == API_EXIT_FINAL) {
        finish(w, 1); /* it has said why */
        return;
    }
    notify_send("STATUS=starting the api process again");
    api_again(w);
}

static void hello_late(struct warden *w)
{
    condemn(w, "no hello");
}

static void link_closed(struct warden *w)
{
    condemn(w, "it closed its link");
}

static void ping_send(struct warden *w)
{
    w->ping = ++w->number;
    if (tell(w, WIRE_PING, w->ping, NULL, 0) < 0)
        log_debug("ping not taken", kv_str("error", strerror(errno)));
    due_in(w, DUE_PONG, WARDEN_PONG_MS);
}

static void pong_late(struct warden *w)
{
    condemn(w, "it does not answer");
}

static void stop_late(struct warden *w)
{
    log_warn("draining took too long, ending what is left");
    api_kill(w);
}

static void watchdog(struct warden *w)
{
    notify_send("WATCHDOG=1");
    due_in(w, DUE_WATCHDOG, w->watchdog_ms);
}

/* clang-format off */
static void (*const due_fn[DUES])(struct warden *w) = {
    [DUE_RESTART]  = api_start,
    [DUE_HELLO]    = hello_late,
    [DUE_SILENT]   = link_closed,
    [DUE_PING]     = ping_send,
    [DUE_PONG]     = pong_late,
    [DUE_STOP]     = stop_late,
    [DUE_RESOLVE]  = resolve_slow,
    [DUE_WATCHDOG] = watchdog,
};
/* clang-format on */

static void run_due(struct warden *w)
{
    int64_t now = clock_mono_ms();

    for (int i = 0; i < DUES && !w->over; i++)
        if (w->due[i] && w->due[i] <= now) {
            w->due[i] = 0;
            due_fn[i](w);
        }
}

static int wait_ms(const struct warden *w)
{
    int64_t first = boxes_due_ms(), egress = egress_due_ms(), now = clock_mono_ms();

    if (egress && (!first || egress < first))
        first = egress;
    for (int i = 0; i < DUES; i++)
        if (w->due[i] && (!first || w->due[i] < first))
            first = w->due[i];
    return !first ? -1 : first <= now ? 0 : (int)MIN(first - now, (int64_t)60000);
}

/* ---- signals ---- */

/* What the api process said before the signal came: it may have become ready while we were busy. */
static void hear_out(struct warden *w)
{
    for (int i = 0; i < HEAR_OUT && !w->ready && !w->condemned && w->api.pid; i++) {
        struct pollfd link = { .fd = w->api.link, .events = POLLIN };

        if (poll(&link, 1, 0) <= 0 || !hear(w))
            return;
    }
}

static void stop(struct warden *w, int number)
{
    if (w->stopping) {
        if (number == SIGINT && w->api.pid) {
            log_warn("stopping at once");
            api_kill(w);
        }
        return;
    }
    w->stopping = true;
    w->due[DUE_RESTART] = 0;
    notify_send("STOPPING=1");
    socket_files_remove(w->args->listeners);
    listeners_close(w->args->listeners);
    log_info("stopping", kv_int("signal", number));
    hear_out(w);
    if (!w->api.pid) {
        finish(w, 0);
        return;
    }
    if (!w->ready || tell(w, WIRE_STOP, ++w->number, NULL, 0) < 0)
        api_kill(w); /* nothing under way, or it would not hear */
    else
        due_in(w, DUE_STOP, w->args->drain_ms);
}

static void take_signals(struct warden *w)
{
    struct signalfd_siginfo info;

    while (read(w->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        if (info.ssi_signo == SIGCHLD)
            w->reap = true;
        /* From the kernel it means that the terminal we were started in is gone. */
        else if (info.ssi_signo == SIGHUP && info.ssi_code != SI_KERNEL)
            reload_begin(w);
        else if (info.ssi_signo == SIGHUP || info.ssi_signo == SIGTERM || info.ssi_signo == SIGINT)
            stop(w, (int)info.ssi_signo);
    }
}

static int signals_open(void)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGCHLD);
    signals_add_meaningless(&set); /* read, and nothing is done */
    if (sigaction(SIGPIPE, &(struct sigaction){ .sa_handler = SIG_IGN }, NULL) < 0 ||
        sigprocmask(SIG_BLOCK, &set, NULL) < 0)
        return -1;
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* ---- the wait ---- */

/* One that was somebody else's: we are process 1, or were started by an exec. False: it is ours. */
static bool reap_stranger(const struct warden *w, pid_t pid)
{
    if (pid == w->api.pid || pid == w->resolve.pid || pid == egress_pid())
        return false;
    return waitpid(pid, NULL, WNOHANG) == pid;
}

/* True: the end of one of our own is in the way, which its descriptor tells about. */
static bool reap(const struct warden *w)
{
    for (pid_t other; (other = boxes_reap());)
        if (!reap_stranger(w, other))
            return true;
    return false;
}

static void once(struct warden *w)
{
    enum { SIGNALS, LINK, API, RESOLVE, EGRESS, BOXES = EGRESS + EGRESS_WAITS };
    struct pollfd waits[BOXES + BOXES_WAITS] = {
        [SIGNALS] = { .fd = w->signal_fd, .events = POLLIN },
        [LINK] = { .fd = w->condemned ? -1 : w->api.link, .events = POLLIN },
        [API] = { .fd = w->api.pidfd, .events = POLLIN },
        [RESOLVE] = { .fd = w->resolve.pidfd, .events = POLLIN },
    };

    for (unsigned i = 0; i < EGRESS_WAITS; i++)
        waits[EGRESS + i].fd = -1;
    unsigned egress = egress_waits(waits + EGRESS), boxes = boxes_waits(waits + BOXES);
    if (poll(waits, BOXES + boxes, wait_ms(w)) < 0) {
        if (errno != EINTR) {
            log_error("poll", kv_str("error", strerror(errno)));
            finish(w, 1);
        }
        return;
    }
    if (waits[LINK].revents)
        hear(w); /* one per round: a talkative child cannot keep us from the rest */
    boxes_woken(waits + BOXES, boxes);
    egress_woken(waits + EGRESS, egress);
    if (waits[SIGNALS].revents)
        take_signals(w);
    if (waits[RESOLVE].revents && w->resolve.pid)
        resolved(w);
    if (waits[API].revents && w->api.pid)
        api_died(w);
    if (w->reap)
        w->reap = reap(w);
    run_due(w);
    boxes_run_due();
    egress_run_due();
}

int supervise(const struct warden_args *args)
{
    static struct warden w;

    w = (struct warden){ .args = args,
                         .signal_fd = signals_open(),
                         .api = { .pidfd = -1, .link = -1 },
                         .resolve = { .pidfd = -1, .link = -1 },
                         .new_settings = -1 };
    if (w.signal_fd < 0) {
        log_error("signals", kv_str("error", strerror(errno)));
        return 1;
    }
    notify_open();
    w.watchdog_ms = notify_watchdog_ms();
    if (w.watchdog_ms)
        due_in(&w, DUE_WATCHDOG, w.watchdog_ms);
    api_start(&w);
    boxes_begin(&w); /* meanwhile; it takes a moment when the default image must be made */
    while (!w.over)
        once(&w);
    egress_end();
    if (w.resolve.pid) {
        child_kill(&w.resolve);
        child_end(&w.resolve);
    }
    boxes_close();
    return w.exit_status;
}
