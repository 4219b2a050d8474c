/* `doctor`: what this machine gives us and what is lost without the rest; and what we left behind.
 */
#include <stdio.h>

#include "base/mem.h"
#include "base/show.h"
#include "cli/cli.h"
#include "host/leaks.h"
#include "host/probe.h"
#include "store/db.h"
#include "store/store.h"
#include "wire/layout.h"

/* ---- the machine ---- */

static void results_json(struct cli *cli, const struct probe_result *results, size_t count)
{
    struct json_out json = json_to(&cli->out);

    probe_json(&json, results, count, NULL);
    buf_putc(&cli->out, '\n');
}

static void put_state(struct cli *cli, enum probe_state state, bool colour)
{
    static const char *const colours[] = {
        [PROBE_OK] = "\x1b[32m",
        [PROBE_LOST] = "\x1b[33m",
        [PROBE_FAIL] = "\x1b[1;31m",
        [PROBE_UNKNOWN] = "\x1b[33m",
    };

    buf_puts(&cli->out, colour ? colours[state] : "");
    buf_printf(&cli->out, "%-8s", probe_state_name(state));
    buf_puts(&cli->out, colour ? "\x1b[0m" : "");
}

static void put_indented(struct cli *cli, const char *what, const char *text)
{
    if (!text[0])
        return;
    buf_printf(&cli->out, "        %s: ", what);
    show_text(&cli->out, str_of(text));
    buf_putc(&cli->out, '\n');
}

static void results_text(struct cli *cli, const struct probe_result *results, size_t count)
{
    bool colour = cli_colour(cli, cli->out_fd);
    size_t widest = 0, counts[PROBE_UNKNOWN + 1] = { 0 };

    for (size_t i = 0; i < count; i++)
        widest = MAX(widest, strlen(results[i].name));
    for (size_t i = 0; i < count; i++) {
        put_state(cli, results[i].state, colour);
        buf_printf(&cli->out, "%-*s  ", (int)widest, results[i].name);
        show_text(&cli->out, str_of(results[i].found));
        buf_putc(&cli->out, '\n');
        put_indented(cli, "lost", results[i].lost);
        put_indented(cli, "fix", results[i].fix);
        counts[results[i].state]++;
    }
    buf_printf(&cli->out, "\n%zu ok, %zu lost, %zu failed, %zu unknown\n", counts[PROBE_OK],
               counts[PROBE_LOST], counts[PROBE_FAIL], counts[PROBE_UNKNOWN]);
}

static int machine(struct cli *cli, const char *state)
{
    autofree struct probe_result *results = xcalloc(PROBES_MAX, sizeof(*results));
    size_t count = host_probe(state, results, PROBES_MAX);
    bool fine = true;

    for (size_t i = 0; i < count; i++)
        fine &= results[i].state != PROBE_FAIL;
    if (cli->json)
        results_json(cli, results, count);
    else
        results_text(cli, results, count);
    return fine ? EXIT_OK : EXIT_ERROR;
}

/* ---- leaks ---- */

struct listing {
    struct cli *cli;
    struct json_out json;
};

static void one_leak(void *ctx, const struct leak *leak)
{
    struct listing *listing = ctx;
    struct buf *out = &listing->cli->out;

    if (listing->cli->json) {
        json_open(&listing->json, '{');
        json_kv_text(&listing->json, "kind", leak_kind_name(leak->kind));
        json_kv_int(&listing->json, "pid", leak->pid);
        json_kv_text(&listing->json, "what", leak->what);
        json_kv_text(&listing->json, "why", leak->why);
        json_close(&listing->json, '}');
        return;
    }
    buf_printf(out, "%-10s", leak_kind_name(leak->kind));
    show_text(out, str_of(leak->what));
    buf_puts(out, ": ");
    show_text(out, str_of(leak->why));
    buf_putc(out, '\n');
}

/* Disks that the last start kept aside. A state directory without a database has none. */
static int list_aside(struct db *db, struct listing *listing)
{
    autoquery struct query *q =
        db_query(db, "SELECT number FROM disk WHERE state = 'aside' ORDER BY number");
    struct err ignored;
    int count = 0;

    while (query_step(q, &ignored) > 0) {
        struct leak leak = { .kind = LEAK_DISK,
                             .why = "the database does not name it; `atoll disk rm` removes it" };

        snprintf(leak.what, sizeof(leak.what), "%lld", (long long)query_col_i64(q, 0));
        one_leak(listing, &leak);
        count++;
    }
    return count;
}

static int disks_aside(const char *state, struct listing *listing)
{
    autofree char *path = xprintf("%s/" STATE_DATA "/" STATE_DB, state);
    struct db *db = NULL;
    struct err ignored;

    if (store_open_alone(&db, path, false, &ignored) < 0)
        return 0;
    int count = list_aside(db, listing);
    store_close_alone(db);
    return count;
}

static int leaks(struct cli *cli, const char *state, struct err *err)
{
    struct listing listing = { cli, json_to(&cli->out) };

    if (cli->json) {
        json_open(&listing.json, '{');
        json_key(&listing.json, "items");
        json_open(&listing.json, '[');
    }
    int found = host_leaks(state, one_leak, &listing, err);
    if (found < 0)
        buf_clear(&cli->out);
    if (found < 0)
        return err_wrap(err, "look for leaks");
    found += disks_aside(state, &listing);
    if (cli->json) {
        json_close(&listing.json, ']');
        json_close(&listing.json, '}');
        buf_putc(&cli->out, '\n');
    } else if (found == 0) {
        buf_puts(&cli->out, "nothing of ours is left without an owner\n");
    }
    return found ? EXIT_ERROR : EXIT_OK;
}

static int doctor_run(struct cli *cli, struct err *err)
{
    bool named;
    autofree char *state = cli_state_dir(cli, &named);

    return cli_has(cli, "leaks") ? leaks(cli, state, err) : machine(cli, state);
}

static const struct cli_flag doctor_flags[] = {
    { "leaks", NULL,
      "Look for processes, cgroups, mounts, namespaces, loop devices, files and disks without an "
      "owner" },
    { "state", "DIR", "State directory to look at (ATOLL_STATE)" },
    { 0 },
};

const struct command cmd_doctor = {
    .name = "doctor",
    .help = "Check what this machine can do, or find what was left behind.",
    .more = "Each check tries the thing itself. For what is missing it says what is lost without "
            "it and how to get it. Ends with status 1 when the server could not work safely, or "
            "when --leaks found something.",
    .flags = doctor_flags,
    .run = doctor_run,
};
