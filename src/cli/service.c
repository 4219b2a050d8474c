/* The server of this machine as a process: stopping it, and looking whether it still answers. */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/show.h"
#include "cli/cli.h"
#include "host/leaks.h"

#define STOP_MS 60000
#define PROBE_MS 5000
#define PROBE_EVERY_MS 15000
#define PROBE_FAILURES 3

/* ---- server stop ---- */

static int put_stopped(struct cli *cli, const char *state, int pid)
{
    struct json_out json = json_to(&cli->out);

    if (cli->json) {
        json_open(&json, '{');
        json_kv_text(&json, "state", state);
        json_kv_int(&json, "pid", pid);
        json_kv_bool(&json, "stopped", true);
        json_close(&json, '}');
    } else {
        buf_printf(&cli->out, "process %d has ended", pid);
    }
    buf_putc(&cli->out, '\n');
    return EXIT_OK;
}

static int server_stop_run(struct cli *cli, struct err *err)
{
    bool named;
    autofree char *state = cli_state_dir(cli, &named);
    int64_t wait_ms;

    if (cli_ms(cli, "timeout", STOP_MS, &wait_ms, err) < 0)
        return -1;
    int pid = host_lock_holder(state, err);
    if (pid < 0)
        return err_wrap(err, "find the server of %s", state);
    if (!pid)
        return err_set(err, ERR_NOT_FOUND, "no server is running on %s", state);
    autoclose int held = (int)syscall(SYS_pidfd_open, pid, 0);
    /* Who holds the lock now is the process of that descriptor, whatever its number meant before.
     */
    if (held < 0 || host_lock_holder(state, err) != pid)
        return err_set(err, ERR_CONFLICT, "the server of %s is starting or stopping", state);
    if (syscall(SYS_pidfd_send_signal, held, SIGTERM, NULL, 0) < 0)
        return err_sys(err, "stop process %d", pid);
    struct pollfd ended = { .fd = held, .events = POLLIN };
    if (poll(&ended, 1, (int)MIN(wait_ms, (int64_t)INT32_MAX)) == 0)
        return err_set(err, ERR_TIMEOUT, "process %d goes on stopping", pid);
    return put_stopped(cli, state, pid);
}

static const struct cli_flag stop_flags[] = {
    { "state", "DIR", "State directory of the server (ATOLL_STATE)" },
    { "timeout", "TIME", "Give up waiting after this long; it goes on stopping (60s)" },
    { 0 },
};

const struct command cmd_server_stop = {
    .name = "server stop",
    .help = "Stop the server of this machine, and wait until it has ended.",
    .more = "It finishes requests under way. Sandboxes and what runs in them go on, and the next "
            "server finds them again. Status 2 when none is running.",
    .flags = stop_flags,
    .run = server_stop_run,
};

/* ---- health watchdog ---- */

static int watchdog_run(struct cli *cli, struct err *err)
{
    int64_t every, most, failed = 0;

    if (cli_ms(cli, "every", PROBE_EVERY_MS, &every, err) < 0 ||
        cli_int(cli, "failures", 1, PROBE_FAILURES, &most, err) < 0)
        return -1;
    for (;;) {
        const struct json *reply;

        if (cli_get(cli, &reply, err, "/healthz/http") == 0) {
            failed = 0;
        } else if (cli->usage || !cli->at.found) {
            return -1; /* of how we were called, not of the server */
        } else if (++failed >= most) {
            return err_wrap(err, "the server failed %lld times in a row", (long long)failed);
        } else {
            cli_note(cli, "%lld of %lld: %s", (long long)failed, (long long)most, err->msg);
        }
        cli->hint[0] = 0;
        cli_forget(cli);
        poll(NULL, 0, (int)MIN(every, (int64_t)INT32_MAX));
    }
}

static const struct cli_flag watchdog_flags[] = {
    { "every", "TIME", "Between two looks (15s)" },
    { "failures", "N", "So many in a row are the end (3)" },
    { 0 },
};

const struct command cmd_health_watchdog = {
    .name = "health watchdog",
    .help = "Look whether the server answers, again and again; end when it does not.",
    .more = "For whoever restarts it then: silent and endless while the server is well; status 1 "
            "after some failures in a row, each of which is told on standard error. A look waits 5 "
            "seconds unless --timeout says otherwise.",
    .flags = watchdog_flags,
    .traits = CMD_REMOTE,
    .timeout_ms = PROBE_MS,
    .run = watchdog_run,
};
