/*
 * The audit log: reading it, and checking its chain. The chain shows every change inside it; that
 * it was not cut off or rolled back as a whole shows only against a head noted elsewhere, which is
 * what --head is for. A database file can be checked without a server, on another machine.
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/show.h"
#include "cli/cli.h"
#include "store/store.h"
#include "wire/layout.h"

#define POLL_MS 1000

/* ---- tail ---- */

static void put_row(struct cli *cli, const struct json *row)
{
    static const char *const words[] = { "time",   "actor",   "role",      "action",
                                         "object", "outcome", "request_id" };
    struct json_out json = json_to(&cli->out);
    autobuf struct buf detail = { 0 };

    if (cli->json) {
        json_put(&json, row);
        buf_putc(&cli->out, '\n');
        return;
    }
    buf_printf(&cli->out, "%lld", (long long)json_num(row, "seq", 0));
    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        struct str text = json_text(row, words[i]);

        buf_putc(&cli->out, ' ');
        show_text(&cli->out, text.n ? text : STR("-"));
    }
    json = json_to(&detail);
    if (json_get(row, "detail"))
        json_put(&json, json_get(row, "detail"));
    buf_putc(&cli->out, ' ');
    show_text(&cli->out, buf_view(&detail));
    buf_putc(&cli->out, '\n');
}

/* One page: how many rows it had, and *since moves behind the last. */
static int page(struct cli *cli, bool newest, int64_t *since, int64_t limit, struct err *err)
{
    const struct json *reply;
    autofree char *from = newest ? xstrdup("") : xprintf("&since=%lld", (long long)*since);
    int rows = 0;

    if (cli_get(cli, &reply, err, "/api/v1/audit?limit=%lld%s", (long long)limit, from) < 0)
        return err_wrap(err, "audit");
    json_each(row, json_get(reply, "items"))
    {
        *since = MAX(*since, json_num(row, "seq", 0));
        put_row(cli, row);
        rows++;
    }
    cli_forget(cli);
    return cli_flush(cli, err) < 0 ? -1 : rows;
}

static int audit_tail_run(struct cli *cli, struct err *err)
{
    bool from = cli_has(cli, "since"), follow = cli_has(cli, "follow");
    int64_t since, limit;

    if (cli_int(cli, "since", 0, 0, &since, err) < 0 ||
        cli_int(cli, "limit", 1, from ? PAGE_MAX : 20, &limit, err) < 0)
        return -1;
    if (limit > PAGE_MAX)
        return cli_usage(cli, err, "--limit is at most %d", PAGE_MAX);
    int rows = page(cli, !from, &since, limit, err);
    while (rows >= 0) {
        bool more = from && !cli_has(cli, "limit") && rows > 0;

        if (!more && !follow)
            return EXIT_OK;
        if (!more)
            poll(NULL, 0, POLL_MS);
        rows = page(cli, false, &since, PAGE_MAX, err);
    }
    return -1;
}

static const struct cli_flag audit_tail_flags[] = {
    { "since", "N", "All rows after number N" },
    { "limit", "N", "At most this many rows (the newest 20, or all with --since)" },
    { "follow", NULL, "Wait for more" },
    { 0 },
};

const struct command cmd_audit_tail = {
    .name = "audit tail",
    .help = "Print the audit log, oldest row first.",
    .more = "Each line is the number, the time, who, their role, what they did, to what, how it "
            "ended, the request, and details. --json prints one object per line.",
    .flags = audit_tail_flags,
    .traits = CMD_REMOTE,
    .run = audit_tail_run,
};

/* ---- grep ---- */

static bool row_has(const struct json *row, const char *wanted)
{
    autobuf struct buf text = { 0 };
    struct json_out json = json_to(&text);

    json_put(&json, row);
    return memmem(text.data, text.len, wanted, strlen(wanted)) != NULL;
}

static int audit_grep_run(struct cli *cli, struct err *err)
{
    int64_t since, found = 0;

    if (cli_int(cli, "since", 0, 0, &since, err) < 0)
        return -1;
    if (!cli->args[0][0])
        return cli_usage(cli, err, "every row has nothing in it");
    for (;;) {
        const struct json *reply;
        int64_t before = since;

        if (cli_get(cli, &reply, err, "/api/v1/audit?since=%lld&limit=%d", (long long)since,
                    PAGE_MAX) < 0)
            return err_wrap(err, "audit");
        json_each(row, json_get(reply, "items"))
        {
            since = MAX(since, json_num(row, "seq", 0));
            if (!row_has(row, cli->args[0]))
                continue;
            put_row(cli, row);
            found++;
        }
        cli_forget(cli);
        if (cli_flush(cli, err) < 0)
            return -1;
        if (since == before)
            break;
    }
    return found ? EXIT_OK : EXIT_ERROR;
}

static const struct cli_flag audit_grep_flags[] = {
    { "since", "N", "Only rows after number N" },
    { 0 },
};

const struct command cmd_audit_grep = {
    .name = "audit grep",
    .args = "TEXT",
    .help = "Print the rows of the audit log that have this text in them, oldest first.",
    .more = "The text is looked for in the row as JSON, exactly. Status 1 when no row has it.",
    .flags = audit_grep_flags,
    .traits = CMD_REMOTE,
    .run = audit_grep_run,
};

/* ---- verify ---- */

struct noted {
    int64_t seq; /* 0: the hash alone was given */
    struct str hash;
};

static int noted_parse(struct cli *cli, struct noted *out, struct err *err)
{
    const char *text = cli_text(cli, "head");
    struct str rest = str_of(text), first;
    unsigned char bytes[SHA256_SIZE];
    uint64_t seq = 0;

    *out = (struct noted){ 0 };
    if (!text)
        return 0;
    if (strchr(text, ':')) {
        first = str_cut(&rest, ':');
        if (!str_to_u64(first, &seq) || seq == 0 || seq > INT64_MAX)
            return cli_usage(cli, err, "--head is '%s', not HASH or ROW:HASH", text);
    }
    if (!hex_bytes(rest, bytes, sizeof(bytes)))
        return cli_usage(cli, err, "--head is '%s', not 64 hex digits or ROW: and those", text);
    *out = (struct noted){ (int64_t)seq, rest };
    return 0;
}

/* The hash alone must be that of the last row. */
static void against_last(const struct noted *noted, struct audit_verdict *verdict)
{
    if (verdict->bad_seq || !noted->hash.n || noted->seq ||
        str_eq_nocase(noted->hash, str_of(verdict->head)))
        return;
    verdict->bad_seq = MAX(verdict->rows, 1);
    snprintf(verdict->why, sizeof(verdict->why),
             "the last row has another hash than the one noted: rows were added since, or the log "
             "was rolled back; ROW:HASH tells which");
}

static int verify_file(const char *path, const struct noted *noted, struct audit_verdict *verdict,
                       struct err *err)
{
    struct db *db = NULL;

    if (store_open_alone(&db, path, false, err) < 0)
        return -1;
    int rc = noted->seq ? audit_verify_against(db, noted->seq, noted->hash, verdict, err)
                        : audit_verify(db, verdict, err);
    store_close_alone(db);
    return rc;
}

static void copy_text(char *out, size_t size, struct str text)
{
    snprintf(out, size, "%.*s", (int)MIN(text.n, size - 1), text.p ? text.p : "");
}

/* The noted row as the server shows it. */
static int against_row(struct cli *cli, const struct noted *noted, struct audit_verdict *verdict,
                       struct err *err)
{
    const struct json *reply, *row;

    if (verdict->bad_seq || !noted->seq)
        return 0;
    if (noted->seq > verdict->rows) {
        verdict->bad_seq = verdict->rows + 1;
        snprintf(verdict->why, sizeof(verdict->why), "row %lld was noted, but the log ends at %lld",
                 (long long)noted->seq, (long long)verdict->rows);
        return 0;
    }
    if (noted->seq == verdict->rows) {
        if (!str_eq_nocase(noted->hash, str_of(verdict->head))) {
            verdict->bad_seq = noted->seq;
            snprintf(verdict->why, sizeof(verdict->why), "row %lld has another hash than noted",
                     (long long)noted->seq);
        }
        return 0;
    }
    /* Row 1 is found behind no other row; the page of one row before the noted one shows it. */
    if (cli_get(cli, &reply, err, "/api/v1/audit?since=%lld&limit=1", (long long)noted->seq - 1) <
        0)
        return -1;
    row = json_get(reply, "items") ? json_get(reply, "items")->first : NULL;
    if (json_num(row, "seq", 0) != noted->seq)
        return err_set(err, ERR_NOT_FOUND,
                       "row %lld belongs to another tenant; check it with --db on the server",
                       (long long)noted->seq);
    if (!str_eq_nocase(noted->hash, json_text(row, "hash"))) {
        verdict->bad_seq = noted->seq;
        snprintf(verdict->why, sizeof(verdict->why), "row %lld has another hash than noted",
                 (long long)noted->seq);
    }
    return 0;
}

static int verify_online(struct cli *cli, const struct noted *noted, struct audit_verdict *verdict,
                         struct err *err)
{
    const struct json *reply;

    if (cli_get(cli, &reply, err, "/api/v1/audit/verify") < 0)
        return -1;
    verdict->rows = json_num(reply, "rows", 0);
    verdict->bad_seq = json_num(reply, "bad_seq", 0);
    copy_text(verdict->why, sizeof(verdict->why), json_text(reply, "why"));
    copy_text(verdict->head, sizeof(verdict->head), json_text(reply, "head"));
    if (!json_true(reply, "ok") && !verdict->bad_seq)
        verdict->bad_seq = 1;
    return against_row(cli, noted, verdict, err);
}

/* No server runs on the local state directory: its file can be checked all the same. */
static int verify_stopped(struct cli *cli, const struct noted *noted, struct audit_verdict *verdict,
                          struct err *err)
{
    autofree char *path = xprintf("%s/" STATE_DATA "/" STATE_DB, cli->at.state);
    struct err unreached = *err;

    int rc = verify_file(path, noted, verdict, err);
    if (rc < 0 && err->code == ERR_NOT_FOUND)
        *err = unreached; /* no store here either: the server was meant */
    else
        cli->hint[0] = 0;
    return rc;
}

static void put_verdict(struct cli *cli, const struct audit_verdict *verdict)
{
    struct json_out json = json_to(&cli->out);
    bool ok = verdict->bad_seq == 0;

    if (cli->json) {
        json_open(&json, '{');
        json_kv_bool(&json, "ok", ok);
        json_kv_int(&json, "rows", verdict->rows);
        if (ok)
            json_key(&json, "bad_seq"), json_put_null(&json);
        else
            json_kv_int(&json, "bad_seq", verdict->bad_seq);
        json_kv_text(&json, "why", ok ? NULL : verdict->why);
        json_kv_text(&json, "head", verdict->head);
        json_close(&json, '}');
    } else if (ok) {
        buf_printf(&cli->out, "ok: %lld rows fit together\nhead ", (long long)verdict->rows);
        buf_printf(&cli->out, "%lld:", (long long)verdict->rows);
        show_text(&cli->out, str_of(verdict->head));
    } else {
        buf_printf(&cli->out, "NOT OK at row %lld: ", (long long)verdict->bad_seq);
        show_text(&cli->out, str_of(verdict->why));
    }
    buf_putc(&cli->out, '\n');
}

static int audit_verify_run(struct cli *cli, struct err *err)
{
    struct audit_verdict verdict = { 0 };
    const char *path = cli_text(cli, "db");
    struct noted noted;

    if (noted_parse(cli, &noted, err) < 0)
        return -1;
    int rc =
        path ? verify_file(path, &noted, &verdict, err) : verify_online(cli, &noted, &verdict, err);
    if (rc < 0 && err->code == ERR_UNAVAILABLE && cli->at.state)
        rc = verify_stopped(cli, &noted, &verdict, err);
    if (rc < 0)
        return err_wrap(err, "verify the audit log");
    against_last(&noted, &verdict);
    put_verdict(cli, &verdict);
    return verdict.bad_seq ? EXIT_ERROR : EXIT_OK;
}

static const struct cli_flag audit_verify_flags[] = {
    { "db", "FILE", "Check this database file instead, without a server" },
    { "head", "[ROW:]HASH", "The head printed earlier: shows a log that was cut or rolled back" },
    { 0 },
};

const struct command cmd_audit_verify = {
    .name = "audit verify",
    .help = "Check that no row of the audit log was edited, removed, reordered or cut off.",
    .more = "Without a running server the store of the local state directory is read. Prints the "
            "head, which is the number and the hash of the last row. Note it "
            "somewhere else: given as --head later, it shows whether the log was cut off or "
            "rolled back since. Ends with status 1 and names the first row that does not fit.\n\n"
            "Examples:\n  atoll audit verify\n"
            "  atoll audit verify --db /backup/atoll.db --head 812:9f86d0…",
    .flags = audit_verify_flags,
    .traits = CMD_REMOTE,
    .run = audit_verify_run,
};

/* ---- path ---- */

static int audit_path_run(struct cli *cli, struct err *err)
{
    struct json_out json = json_to(&cli->out);

    if (endpoint_find(cli, err) < 0)
        return -1;
    if (!cli->at.state)
        return err_set(err, ERR_UNSUPPORTED, "it is kept where that server runs (%s)", cli->at.how);
    bool whole = cli->at.state[0] == '/';
    autofree char *cwd = whole ? xstrdup("") : get_current_dir_name();
    autofree char *path = xprintf("%s%s%s/" STATE_DATA "/" STATE_DB, cwd ? cwd : ".",
                                  whole ? "" : "/", cli->at.state);
    struct stat st;
    if (stat(path, &st) < 0)
        return err_sys(err, "look at %s", path);
    if (cli->json) {
        json_open(&json, '{');
        json_kv_text(&json, "path", path);
        json_close(&json, '}');
    } else {
        show_text(&cli->out, str_of(path));
    }
    buf_putc(&cli->out, '\n');
    return EXIT_OK;
}

const struct command cmd_audit_path = {
    .name = "audit path",
    .help = "Print the file in which the server of this machine keeps the audit log.",
    .more = "A database, which `audit verify --db` checks without a server; its owner alone can "
            "read it.",
    .traits = CMD_REMOTE,
    .run = audit_path_run,
};
