/*
 * `atoll run`: a sandbox for one command, from nothing to nothing.
 *
 *   server     the one that is there; if nobody named one and none is, a private one (private.h)
 *   sandbox    made, with a view or a copy of the current directory (workspace.h), or one bound
 *   command    with our terminal, input and signals (run.c)
 *   back       what changed is told, written as a patch, or applied
 *   gone       the sandbox, and the private server with everything of it
 *
 * A signal while the command runs is the command's. Before and after that it ends us: at once while
 * nothing of ours needs an end, otherwise at the next place where it can be done in order. Either
 * way the sandbox is removed first; but where changes were to be taken back and were not, it has
 * the only copy of them, and stays. A private server cannot stay: its files are fetched.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cli/private.h"
#include "cli/sandbox.h"
#include "cli/workspace.h"

#define RUN_TTL_MS (12ll * 3600 * 1000) /* should we be killed before we can remove it */
#define REMOVE_MS 5000

enum patience {
    PATIENT, /* the first signal is only noted: something is half done */
    AT_ONCE, /* it ends us */
};

struct oneshot {
    struct cli *cli;
    struct private_server server;
    struct workspace workspace;
    const char *from; /* its path */
    char *_Atomic id; /* owned; of the sandbox, once it is there */
    atomic_int signal;
    atomic_int patience;
    atomic_bool owes; /* changes are to be taken back, and have not been */
    pthread_t watcher;
    bool watched;
    int signals, stop; /* descriptors */
};

/* ---- signals ---- */

static void remove_now(struct oneshot *shot)
{
    struct client_options options = { .ca_file = shot->cli->at.ca,
                                      .deadline_ms = clock_mono_ms() + REMOVE_MS };
    autofree char *path = xprintf("/api/v1/sandboxes/%s", shot->id);
    struct client_request request = { .method = "DELETE",
                                      .path = path,
                                      .token = shot->cli->at.token };
    autobuf struct buf answer = { 0 };
    struct client_reply reply;
    struct err ignored;

    (void)!client_call(&shot->cli->at.target, &request, &options, CLI_REPLY_MAX, &reply, &answer,
                       &ignored);
}

static void *watch(void *ctx)
{
    struct oneshot *shot = ctx;

    for (;;) {
        struct pollfd fds[] = { { .fd = shot->stop, .events = POLLIN },
                                { .fd = shot->signals, .events = POLLIN } };
        struct signalfd_siginfo info;

        if (poll(fds, 2, -1) < 0 && errno != EINTR)
            return NULL;
        if (fds[0].revents)
            return NULL;
        if (!fds[1].revents || read(shot->signals, &info, sizeof(info)) != (ssize_t)sizeof(info))
            continue;
        int before = atomic_exchange(&shot->signal, (int)info.ssi_signo);
        if (shot->patience == PATIENT && !before)
            continue;
        workspace_unstage(&shot->workspace);
        if (shot->id && !shot->owes)
            remove_now(shot);
        else if (shot->id && shot->server.keeper)
            cli_note(shot->cli, "interrupted: the changes are lost with the private server");
        else if (shot->id)
            cli_note(shot->cli, "interrupted; sandbox %s stays with the changes", shot->id);
        _exit(128 + (int)info.ssi_signo); /* the keeper of a private server sees that */
    }
}

/* They stay blocked until the end: while nobody watches, they wait. */
static int watch_begin(struct oneshot *shot, enum patience patience, struct err *err)
{
    sigset_t set;

    shot->patience = patience;
    if (shot->watched)
        return 0;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGQUIT);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    if (shot->signals < 0)
        shot->signals = signalfd(-1, &set, SFD_CLOEXEC);
    if (shot->stop < 0)
        shot->stop = eventfd(0, EFD_CLOEXEC);
    if (shot->signals < 0 || shot->stop < 0)
        return err_sys(err, "watch for signals");
    if (pthread_create(&shot->watcher, NULL, watch, shot) != 0)
        return err_set(err, ERR_INTERNAL, "cannot start a thread");
    shot->watched = true;
    return 0;
}

static void watch_end(struct oneshot *shot)
{
    uint64_t one = 1;

    if (!shot->watched || write(shot->stop, &one, sizeof(one)) != (ssize_t)sizeof(one))
        return;
    pthread_join(shot->watcher, NULL);
    shot->watched = false;
    (void)!read(shot->stop, &one, sizeof(one));
}

static int check_signal(struct oneshot *shot, struct err *err)
{
    return shot->signal ? err_set(err, ERR_CANCELLED, "ended by signal %d", shot->signal) : 0;
}

/* ---- the sandbox ---- */

static void put_ticket(struct json_out *json, const char *ticket, const char *kind)
{
    json_key(json, "binds");
    json_open(json, '[');
    json_open(json, '{');
    json_kv_text(json, "ticket", ticket);
    json_kv_text(json, "path", WORKSPACE);
    if (kind)
        json_kv_bool(json, kind, true);
    json_close(json, '}');
    json_close(json, ']');
}

/* "PATH" or "PATH:ro". */
static int put_bind(struct cli *cli, struct json_out *json, struct err *err)
{
    const char *text = cli_text(cli, "bind");
    size_t len = strlen(text), cut = len > 3 && strcmp(text + len - 3, ":ro") == 0 ? len - 3 : len;
    autofree char *path = xmemdup0(text, cut);
    char ticket[DOOR_TICKET_HEX];

    if (door_leave(cli, path, ticket, err) < 0)
        return err_wrap(err, "--bind %s", path);
    put_ticket(json, ticket, cut != len ? "read_only" : NULL);
    return 0;
}

static bool stays(const struct cli *cli)
{
    return cli_has(cli, "keep") || cli_has(cli, "detach");
}

/* With the ticket of a directory for a view of it, or NULL. */
static int ask_sandbox(struct oneshot *shot, const char *ticket, struct err *err)
{
    struct cli *cli = shot->cli;
    autobuf struct buf body = { 0 };
    struct json_out json = json_to(&body);
    const struct json *reply;

    json_open(&json, '{');
    if (sandbox_put_wish(cli, &json, stays(cli) ? 0 : RUN_TTL_MS, "memory", err) < 0 ||
        (cli_has(cli, "bind") && put_bind(cli, &json, err) < 0))
        return -1;
    if (ticket)
        put_ticket(&json, ticket, "view");
    json_close(&json, '}');
    if (cli_call(cli, "POST", buf_view(&body), &reply, err, "/api/v1/sandboxes") < 0) {
        if (strncmp(err->field, "binds", 5) == 0)
            snprintf(cli->hint, sizeof(cli->hint), "--copy %s copies it instead",
                     cli_text(cli, "bind"));
        return err_wrap(err, "create a sandbox");
    }
    shot->id = xmemdup0(json_text(reply, "id").p, json_text(reply, "id").n);
    if (ticket && str_is(json_text(reply, "storage"), "memory"))
        shot->workspace.room = (uint64_t)MAX(json_num(reply, "disk", 0), 0);
    return 0;
}

/*
 * May the sandbox have a view of the directory, as far as is known here? One that stays and can be
 * stopped gets a copy: a view ends with the stop.
 */
static bool wants_view(const struct cli *cli, const struct workspace *ws)
{
    const char *storage = cli_has(cli, "storage") ? cli_text(cli, "storage") : "memory";

    return ws->root >= 0 && !cli_has(cli, "copy") && !cli_has(cli, "exclude") &&
           !(stays(cli) && strcmp(storage, "disk") == 0);
}

/*
 * With a view of the directory, or else with a place for a copy: a view takes a server of this
 * machine that root started, and a file system that can be shown with another owner.
 */
static int make_sandbox(struct oneshot *shot, struct err *err)
{
    struct cli *cli = shot->cli;
    struct workspace *ws = &shot->workspace;
    char ticket[DOOR_TICKET_HEX];
    struct err why = { 0 };

    if (wants_view(cli, ws)) {
        workspace_since(ws);
        ws->view = door_leave(cli, ".", ticket, &why) == 0;
        if (ws->view && ask_sandbox(shot, ticket, &why) == 0)
            return 0;
        if (ws->view && strncmp(why.field, "binds", 5) != 0) {
            *err = why;
            return -1;
        }
        ws->view = false;
        cli->hint[0] = cli->request_id[0] = 0;
        if (cli_has(cli, "verbose"))
            cli_note(cli, "the directory is copied, as the sandbox cannot have a view of it: %s",
                     why.msg);
    }
    if (ws->root >= 0 && workspace_scan(cli, ws, shot->from, err) < 0)
        return -1;
    return ask_sandbox(shot, NULL, err);
}

/* A call beside what is told in the end: neither its answer nor its troubles take that place. */
static int call_aside(struct cli *cli, const char *method, struct str body, const char *path,
                      struct err *err)
{
    char hint[sizeof(cli->hint)], request_id[sizeof(cli->request_id)];
    struct str shown = cli->reply;

    memcpy(hint, cli->hint, sizeof(hint));
    memcpy(request_id, cli->request_id, sizeof(request_id));
    int rc = cli_call(cli, method, body, NULL, err, "%s", path);
    cli->reply = shown;
    memcpy(cli->hint, hint, sizeof(hint));
    memcpy(cli->request_id, request_id, sizeof(request_id));
    return rc;
}

/* Somebody else has removed it, or is about to. */
static bool is_gone(const struct err *err)
{
    return err->code == ERR_NOT_FOUND || err->reason == REASON_DELETING;
}

static void remove_sandbox(struct oneshot *shot)
{
    autofree char *path = xprintf("/api/v1/sandboxes/%s", shot->id);
    struct err err = { 0 };

    if (cli_has(shot->cli, "keep") && shot->workspace.view)
        cli_note(shot->cli, "sandbox %s stays; `atoll diff %s` shows what changed in it", shot->id,
                 shot->id);
    else if (cli_has(shot->cli, "keep"))
        cli_note(shot->cli, "sandbox %s stays", shot->id);
    else if (call_aside(shot->cli, "DELETE", STR_NONE, path, &err) < 0 && !is_gone(&err))
        cli_note(shot->cli, "sandbox %s stays: %s", shot->id, err.msg);
}

/* Where changes could not be taken back they are nowhere but in there: it stays. */
static void leave_sandbox(struct oneshot *shot)
{
    struct cli *cli = shot->cli;
    autofree char *path = xprintf("/api/v1/sandboxes/%s", shot->id);
    bool limited = cli_has(cli, "ttl");
    struct err err = { 0 };

    /* Not for the hours that RUN_TTL_MS gives it, unless somebody said how long. */
    int rc = call_aside(cli, limited ? "GET" : "PATCH", limited ? STR_NONE : STR("{\"ttl_ms\":0}"),
                        path, &err);
    if (rc < 0 && is_gone(&err))
        return;
    snprintf(cli->hint, sizeof(cli->hint),
             "sandbox %s stays with the changes: `atoll cp -r %s:" WORKSPACE
             " DIR` fetches them, `atoll rm %s` removes it",
             shot->id, shot->id, shot->id);
}

static void keep_changes(struct oneshot *shot)
{
    struct err err = { 0 };

    if (!shot->server.keeper)
        leave_sandbox(shot);
    else if (workspace_save(shot->cli, shot->id, &err) < 0)
        cli_note(shot->cli, "the changes are lost: %s", err.msg);
}

/* ---- the command ---- */

/* What the image says it is for: entry point and its arguments; none when it does not say. */
static int image_command(struct cli *cli, const char **argv, size_t *argc, struct err *err)
{
    const struct json *reply;

    *argc = 0;
    if (!cli_has(cli, "image"))
        return 0;
    if (cli_get(cli, &reply, err, "/api/v1/images/%s", cli_escape(cli, cli_text(cli, "image"))) < 0)
        return -1;
    const struct json *config = json_get(reply, "config");
    const struct json *parts[] = { json_get(config, "entrypoint"), json_get(config, "cmd") };
    for (size_t i = 0; i < ARRAY_LEN(parts); i++)
        json_each(item, parts[i]) if (item->type == JSON_STRING && *argc < CLI_ARGS_MAX)
            argv[(*argc)++] = arena_memdup0(&cli->arena, item->text.p, item->text.n);
    return 0;
}

static int run_command(struct oneshot *shot, struct err *err)
{
    static const char *shell[] = { "sh", "-c",
                                   "command -v bash >/dev/null && exec bash -l; exec sh -l", NULL };
    struct cli *cli = shot->cli;
    const char **argv = arena_alloc(&cli->arena, (CLI_ARGS_MAX + 1) * sizeof(*argv));
    const char *cwd = cli_has(cli, "no-workspace") ? NULL : "/workspace";
    size_t argc;

    watch_end(shot); /* its signals are its own */
    if (cli->arg_count)
        return exec_in(cli, shot->id, cli->args, cli->arg_count, cwd, err);
    if (image_command(cli, argv, &argc, err) < 0)
        return -1;
    return argc ? exec_in(cli, shot->id, argv, argc, cwd, err)
                : exec_in(cli, shot->id, shell, 3, cwd, err);
}

/*
 * What the command left running would end with the sandbox in a moment, and meanwhile change files
 * that are being fetched. An image without a shell has to do without; the digests are checked
 * anyway.
 */
static void end_the_rest(struct oneshot *shot)
{
    autofree char *path = xprintf("/api/v1/sandboxes/%s/execs?wait=5000", shot->id);
    struct err ignored = { 0 };

    if (!cli_has(shot->cli, "keep"))
        (void)!call_aside(shot->cli, "POST", STR("{\"command\":\"kill -KILL -1\"}"), path,
                          &ignored);
}

/* From here on there is a sandbox. */
static int in_sandbox(struct oneshot *shot, struct err *err)
{
    struct err late = { 0 };

    if (check_signal(shot, err) < 0 || watch_begin(shot, AT_ONCE, err) < 0)
        return -1;
    if (shot->workspace.view)
        workspace_viewed(shot->cli, &shot->workspace);
    else if (shot->workspace.root >= 0 &&
             workspace_send(shot->cli, &shot->workspace, shot->id, err) < 0)
        return err_wrap(err, "copy the workspace into the sandbox");
    int rc = run_command(shot, err);
    if (shot->workspace.root < 0 || cli_has(shot->cli, "detach") ||
        (rc < 0 && err->code == ERR_GONE))
        return rc;
    shot->owes = workspace_asked(shot->cli);
    int back = watch_begin(shot, PATIENT, &late);
    if (back == 0) {
        end_the_rest(shot);
        back = workspace_finish(shot->cli, &shot->workspace, shot->id, &late);
    }
    if (back == 0)
        shot->owes = false;
    if (shot->owes)
        keep_changes(shot);
    if (back < 0) {
        if (rc >= 0)
            *err = late;
        else
            cli_note(shot->cli, "%s", late.msg);
        return -1;
    }
    return rc;
}

static int with_server(struct oneshot *shot, struct err *err)
{
    if (watch_begin(shot, PATIENT, err) < 0 || make_sandbox(shot, err) < 0)
        return -1;
    int rc = in_sandbox(shot, err);
    if (watch_begin(shot, PATIENT, &(struct err){ 0 }) < 0)
        return -1;
    if (shot->owes && !shot->server.keeper)
        return rc;
    if (rc != 0 || !cli_has(shot->cli, "detach"))
        remove_sandbox(shot);
    else if (!shot->cli->json)
        buf_printf(&shot->cli->out, "%s\n", shot->id);
    return rc;
}

/* ---- flags ---- */

static int check_flags(struct cli *cli, struct err *err)
{
    static const char *const needs_copy[] = { "patch", "apply", "apply-git", "exclude",
                                              "no-gitignore" };
    static const char *const at_end[] = { "patch", "apply" };
    static const char *const places[] = { "no-workspace", "bind", "copy" };
    size_t chosen = 0;

    for (size_t i = 0; i < ARRAY_LEN(places); i++)
        chosen += cli_has(cli, places[i]);
    if (chosen > 1)
        return cli_usage(cli, err, "one of --no-workspace, --bind and --copy, not more");
    for (size_t i = 0; i < ARRAY_LEN(needs_copy); i++)
        if (cli_has(cli, needs_copy[i]) && (cli_has(cli, "no-workspace") || cli_has(cli, "bind")))
            return cli_usage(cli, err, "--%s is about a copied workspace", needs_copy[i]);
    for (size_t i = 0; i < ARRAY_LEN(at_end); i++)
        if (cli_has(cli, at_end[i]) && cli_has(cli, "detach"))
            return cli_usage(cli, err, "--%s is for when the command has ended, not with --detach",
                             at_end[i]);
    if (cli_has(cli, "apply-git") && !cli_has(cli, "apply"))
        return cli_usage(cli, err, "--apply-git goes with --apply");
    return 0;
}

static void oneshot_free(struct oneshot *shot)
{
    watch_end(shot);
    private_stop(&shot->server);
    workspace_free(&shot->workspace);
    free(shot->id);
    if (shot->signals >= 0)
        close(shot->signals);
    if (shot->stop >= 0)
        close(shot->stop);
}

/* The server that is meant, or one of our own. */
static int find_server(struct oneshot *shot, struct err *err)
{
    struct cli *cli = shot->cli;

    if (!cli_has(cli, "private") && !private_wanted(cli, err))
        return cli->at.found ? 0 : -1;
    if (stays(cli))
        return cli_usage(cli, err, "--%s needs a server that stays: start one with `atoll serve`",
                         cli_has(cli, "keep") ? "keep" : "detach");
    if (private_start(cli, &shot->server, err) < 0)
        return -1;
    if (cli_has(cli, "verbose"))
        cli_note(cli, "no server is running: started one in %s", cli->at.state);
    return 0;
}

static int run_run(struct cli *cli, struct err *err)
{
    auto_with(oneshot_free) struct oneshot shot = {
        .cli = cli, .server = PRIVATE_NONE, .workspace = WORKSPACE_NONE, .signals = -1, .stop = -1
    };

    shot.from = cli_has(cli, "copy") ? cli_text(cli, "copy") : ".";
    if (check_flags(cli, err) < 0)
        return -1;
    shot.workspace.signal = &shot.signal;
    if (!cli_has(cli, "no-workspace") && !cli_has(cli, "bind") &&
        workspace_open(cli, &shot.workspace, shot.from, err) < 0)
        return -1;
    if (watch_begin(&shot, PATIENT, err) < 0 || find_server(&shot, err) < 0 ||
        check_signal(&shot, err) < 0)
        return -1;
    int rc = with_server(&shot, err);
    if (rc >= 0 || !shot.signal)
        return rc;
    if (shot.owes)
        cli_show_error(cli, err); /* whoever interrupted us does not expect that */
    return 128 + shot.signal;
}

static const struct cli_flag run_flags[] = {
    { "no-workspace", NULL, "Copy nothing in: /workspace is empty" },
    { "copy", "DIR", "Copy this directory in, instead of a view of the current one" },
    { "bind", "DIR[:ro]",
      "Put this directory itself at /workspace, not a copy; :ro to read only. With a server "
      "started by root" },
    { "exclude", "PATTERN",
      "Leave out what matches, on both ways: a name or a path, with * and ?; may repeat. Then the "
      "directory is copied" },
    { "no-gitignore", NULL, "Take changed files back although .gitignore leaves them out" },
    { "patch", "FILE",
      "Write what changed as a patch for git, with paths from the top of its work tree; - is "
      "standard output" },
    { "apply", NULL, "Take what changed back into the directory" },
    { "apply-git", NULL, "With --apply: git's own files too, which can make git run programs" },
    { "keep", NULL, "Leave the sandbox when the command has ended" },
    { "detach", NULL, "Print the sandbox's id when the command has started; the sandbox stays" },
    { "private", NULL, "Use a server of its own even if one is running" },
    { "no-tty", NULL, "No terminal for the command, even if this is one" },
    { "verbose", NULL, "Say what is done" },
    SANDBOX_FLAGS,
    EXEC_FLAGS,
    { 0 },
};

const struct command cmd_run = {
    .name = "run",
    .args = "[COMMAND] [ARG…]",
    .help = "Run a command in a fresh sandbox that has the current directory's files.",
    .more =
        "They are in the command's working directory, /workspace: a view that copies nothing, of "
        "any size. What the command changes stays in the sandbox: in memory, up to the size of "
        "--disk (512 MiB unless said), or with --storage disk on disk. Files of other users "
        "than the directory's can be read there as their permissions allow, and not changed; file "
        "systems mounted below the directory are not in it. The directory is copied instead with "
        "--copy or --exclude, and where a view cannot be had: with a server that is not root's or "
        "is on another machine, for a sandbox that stays with storage disk, and of file systems "
        "that cannot be shown with another owner (--verbose says why).\n\n"
        "Afterwards the files that the command changed are listed on standard error; --patch and "
        "--apply take them back, whatever its "
        "exit status. What git would ignore (.gitignore, .git/info/exclude; no tracked file) is "
        "not among them unless --no-gitignore says so. --apply overwrites no file that changed "
        "here meanwhile: then nothing is "
        "taken back and the status is 3. The sandbox is removed, but for when changes could not "
        "be taken back: then it stays with them. Where no server is running, one is started for "
        "this command alone, but none in place of one that was named (ATOLL_STATE, --addr).\n\n"
        "Ends with the exit status of the command. Without a command, what --image is for is "
        "started, or a shell. The command has a terminal if standard input and output are one. Put "
        "-- before the "
        "command.\n\n"
        "Examples:\n  atoll run -- make test\n"
        "  atoll run --apply -- npx prettier --write .\n"
        "  atoll run --patch fix.patch -- ./agent 'fix the tests'\n"
        "  atoll run --no-workspace --memory 256M --timeout 10s -- python3 -c 'print(1)'",
    .flags = run_flags,
    .traits = CMD_REMOTE | CMD_LIMITS,
    .run = run_run,
};
