/* Sandboxes: made, listed, looked at, paused, stopped, removed. Running commands is run.c. */
#include "cli/sandbox.h"

#include <stdio.h>

#include "base/mem.h"

#define TERM_MAX 64 /* what a linked agent takes */

/* ---- the wish ---- */

int sandbox_put_size(struct cli *cli, struct json_out *json, const char *flag, const char *field,
                     struct err *err)
{
    uint64_t bytes;

    if (!cli_has(cli, flag))
        return 0;
    if (!str_to_bytes(str_of(cli_text(cli, flag)), &bytes) || bytes > INT64_MAX)
        return cli_usage(cli, err, "--%s: \"%s\" is no size, such as 512M or 2G", flag,
                         cli_text(cli, flag));
    json_kv_int(json, field, (int64_t)bytes);
    return 0;
}

static int put_bytes(struct cli *cli, struct json_out *json, const char *flag, struct err *err)
{
    return sandbox_put_size(cli, json, flag, flag, err);
}

static int put_count(struct cli *cli, struct json_out *json, const char *flag, const char *field,
                     struct err *err)
{
    int64_t count;

    if (!cli_has(cli, flag))
        return 0;
    if (cli_int(cli, flag, 1, 0, &count, err) < 0)
        return -1;
    json_kv_int(json, field, count);
    return 0;
}

/* 0, no limit, is only for one that is there, which the server checks. */
static int put_rates(struct cli *cli, struct json_out *json, struct err *err)
{
    int64_t ops;

    if (sandbox_put_size(cli, json, "io-bytes", "io_bytes", err) < 0)
        return -1;
    if (!cli_has(cli, "io-ops"))
        return 0;
    if (cli_int(cli, "io-ops", 0, 0, &ops, err) < 0)
        return -1;
    json_kv_int(json, "io_ops", ops);
    return 0;
}

/* The members only. */
static int put_pairs(struct cli *cli, struct json_out *json, const char *flag, struct err *err)
{
    const char *text;
    size_t at = 0;

    while ((text = cli_next(cli, flag, &at))) {
        struct str value = str_of(text), key = str_cut(&value, '=');

        if (!key.n || !strchr(text, '='))
            return cli_usage(cli, err, "--%s: \"%s\" is not NAME=VALUE", flag, text);
        if (!str_utf8(str_of(text))) /* JSON could only change it */
            return cli_usage(cli, err, "--%s %.*s: it is not UTF-8", flag, STR_FMT(key));
        json_key_str(json, key);
        json_put_str(json, value);
    }
    return 0;
}

int sandbox_put_pairs(struct cli *cli, struct json_out *json, const char *flag, const char *field,
                      struct err *err)
{
    if (!cli_has(cli, flag))
        return 0;
    json_key(json, field);
    json_open(json, '{');
    if (put_pairs(cli, json, flag, err) < 0)
        return -1;
    json_close(json, '}');
    return 0;
}

const char *sandbox_term(void)
{
    const char *term = getenv("TERM");

    return term && *term && strlen(term) <= TERM_MAX && str_utf8(str_of(term)) ? term : NULL;
}

int sandbox_put_env(struct cli *cli, struct json_out *json, bool tty, struct err *err)
{
    const char *term = tty ? sandbox_term() : NULL, *text;
    size_t at = 0;

    while ((text = cli_next(cli, "env", &at)))
        if (str_starts(str_of(text), STR("TERM=")))
            term = NULL;
    if (!term)
        return sandbox_put_pairs(cli, json, "env", "env", err);
    json_key(json, "env");
    json_open(json, '{');
    json_kv_text(json, "TERM", term);
    if (put_pairs(cli, json, "env", err) < 0)
        return -1;
    json_close(json, '}');
    return 0;
}

/* NAME:/path, NAME:/path:ro */
static int put_volumes(struct cli *cli, struct json_out *json, struct err *err)
{
    const char *text;
    size_t at = 0;

    if (!cli_has(cli, "volume"))
        return 0;
    json_key(json, "volumes");
    json_open(json, '[');
    while ((text = cli_next(cli, "volume", &at))) {
        struct str rest = str_of(text), name = str_cut(&rest, ':'), path = str_cut(&rest, ':');

        if (!name.n || !path.n || path.p[0] != '/' || (rest.n && !str_is(rest, "ro")))
            return cli_usage(cli, err, "--volume: \"%s\" is not NAME:/path or NAME:/path:ro", text);
        json_open(json, '{');
        json_kv_str(json, "volume", name);
        json_kv_str(json, "path", path);
        json_kv_bool(json, "read_only", rest.n != 0);
        json_close(json, '}');
    }
    json_close(json, ']');
    return 0;
}

int sandbox_put_files(struct cli *cli, struct json_out *json, struct err *err)
{
    static const char *const flags[] = { "ro", "rw" }, *const access[] = { "read", "write" };
    const char *path;

    if (!cli_has(cli, "ro") && !cli_has(cli, "rw"))
        return 0;
    json_key(json, "files");
    json_open(json, '[');
    for (size_t i = 0; i < ARRAY_LEN(flags); i++) {
        size_t at = 0;

        while ((path = cli_next(cli, flags[i], &at))) {
            if (path[0] != '/')
                return cli_usage(cli, err, "--%s: \"%s\" is no absolute path", flags[i], path);
            json_open(json, '{');
            json_kv_text(json, "path", path);
            json_kv_text(json, "access", access[i]);
            json_close(json, '}');
        }
    }
    json_close(json, ']');
    return 0;
}

/* TIME, TIME:ACTION */
static int put_idle(struct cli *cli, struct json_out *json, struct err *err)
{
    const char *text = cli_text(cli, "idle");
    struct str action = str_of(text), time = str_cut(&action, ':');
    uint64_t ms;

    if (!text)
        return 0;
    if (!str_to_ms(time, &ms) || ms > INT64_MAX / 2)
        return cli_usage(cli, err, "--idle: \"%s\" is not TIME:ACTION, such as 10m:pause", text);
    json_key(json, "idle");
    json_open(json, '{');
    json_kv_int(json, "after_ms", (int64_t)ms);
    json_kv_str(json, "action", action.n ? action : STR("pause"));
    json_close(json, '}');
    return 0;
}

static void put_text(struct cli *cli, struct json_out *json, const char *flag, const char *field)
{
    if (cli_has(cli, flag))
        json_kv_text(json, field, cli_text(cli, flag));
}

int access_put_wish(struct cli *cli, struct json_out *json, struct err *err)
{
    const char *visibility = cli_text(cli, "visibility"), *name;
    size_t at = 0;

    if (visibility && strcmp(visibility, "private") != 0 && strcmp(visibility, "tenant") != 0)
        return cli_usage(cli, err, "--visibility: private or tenant, not \"%s\"", visibility);
    put_text(cli, json, "owner", "owner");
    put_text(cli, json, "visibility", "visibility");
    if (!cli_has(cli, "share-with"))
        return 0;
    json_key(json, "shared_with");
    json_open(json, '[');
    while ((name = cli_next(cli, "share-with", &at)))
        if (name[0])
            json_put_str(json, str_of(name));
    json_close(json, ']');
    return 0;
}

int sandbox_put_wish(struct cli *cli, struct json_out *json, int64_t ttl_ms, const char *storage,
                     struct err *err)
{
    if (cli_ms(cli, "ttl", ttl_ms, &ttl_ms, err) < 0 || put_volumes(cli, json, err) < 0 ||
        sandbox_put_files(cli, json, err) < 0)
        return -1;
    egress_put_wish(cli, json);
    put_text(cli, json, "image", "image");
    put_text(cli, json, "template", "template");
    put_text(cli, json, "tier", "tier");
    if (cli_has(cli, "storage") || (storage && !cli_has(cli, "template")))
        json_kv_text(json, "storage", cli_has(cli, "storage") ? cli_text(cli, "storage") : storage);
    if (cli_has(cli, "nesting"))
        json_kv_bool(json, "nesting", true);
    if (cli_has(cli, "sys"))
        json_kv_bool(json, "sys", true);
    if (cli_has(cli, "cold"))
        json_kv_bool(json, "warm", false);
    if (cli_has(cli, "name"))
        json_kv_text(json, "name", cli_text(cli, "name"));
    if (cli_has(cli, "user"))
        json_kv_text(json, "user", cli_text(cli, "user"));
    if (ttl_ms)
        json_kv_int(json, "ttl_ms", ttl_ms);
    if (put_bytes(cli, json, "memory", err) < 0 || put_bytes(cli, json, "disk", err) < 0 ||
        put_count(cli, json, "pids", "pids", err) < 0 ||
        put_count(cli, json, "cpu", "cpu_percent", err) < 0 || put_rates(cli, json, err) < 0 ||
        put_count(cli, json, "inodes", "inodes", err) < 0 ||
        put_count(cli, json, "nofile", "nofile", err) < 0 ||
        sandbox_put_pairs(cli, json, "label", "labels", err) < 0)
        return -1;
    return 0;
}

/* 0 takes back what is there, as with --ttl. */
static int put_new_idle(struct cli *cli, struct json_out *json, struct err *err)
{
    if (!cli_has(cli, "idle") || strcmp(cli_text(cli, "idle"), "0") != 0)
        return put_idle(cli, json, err);
    json_key(json, "idle");
    json_put_null(json);
    return 0;
}

/* They replace those that are there, so that a single '' leaves none. */
static int put_new_labels(struct cli *cli, struct json_out *json, struct err *err)
{
    size_t at = 0;
    const char *first = cli_next(cli, "label", &at);

    if (!first || *first || cli_next(cli, "label", &at))
        return sandbox_put_pairs(cli, json, "label", "labels", err);
    json_key(json, "labels");
    json_open(json, '{');
    json_close(json, '}');
    return 0;
}

/* New limits of one that is there. */
static int set_run(struct cli *cli, struct err *err)
{
    autobuf struct buf body = { 0 };
    struct json_out json = json_to(&body);
    const struct json *reply;
    int64_t ttl_ms = 0;

    json_open(&json, '{');
    if (put_bytes(cli, &json, "memory", err) < 0 || put_bytes(cli, &json, "disk", err) < 0 ||
        put_count(cli, &json, "pids", "pids", err) < 0 ||
        put_count(cli, &json, "cpu", "cpu_percent", err) < 0 || put_rates(cli, &json, err) < 0 ||
        put_count(cli, &json, "inodes", "inodes", err) < 0 || put_new_idle(cli, &json, err) < 0 ||
        put_new_labels(cli, &json, err) < 0 || access_put_wish(cli, &json, err) < 0)
        return -1;
    if (cli_has(cli, "ttl") && strcmp(cli_text(cli, "ttl"), "0") != 0 &&
        cli_ms(cli, "ttl", 0, &ttl_ms, err) < 0)
        return -1;
    if (cli_has(cli, "ttl"))
        json_kv_int(&json, "ttl_ms", ttl_ms);
    json_close(&json, '}');
    if (cli->set_count == 0 || str_is(buf_view(&body), "{}"))
        return cli_usage(cli, err, "nothing to change; see --help for what can be");
    if (cli_call(cli, "PATCH", buf_view(&body), &reply, err, "/api/v1/sandboxes/%s",
                 cli_escape(cli, cli->args[0])) < 0)
        return err_wrap(err, "change sandbox %s", cli->args[0]);
    return cli_details(cli, reply,
                       "id,memory,pids,cpu_percent,io_bytes,io_ops,disk,inodes,ttl_ms,idle,labels,"
                       "expires_at,owner,"
                       "visibility,shared_with");
}

static const struct cli_flag set_flags[] = {
    { "memory", "SIZE", "Memory, such as 512M or 2G" },
    { "disk", "SIZE", "Everything written inside" },
    { "inodes", "N", "Files made inside, with storage memory" },
    { "pids", "N", "Processes and threads at once" },
    { "cpu", "PERCENT", "Processor time; 100 is one core" },
    { "io-bytes", "SIZE", "Bytes a second read from each disk, and written; 0 for no limit" },
    { "io-ops", "N", "Operations a second, likewise; 0 for no limit" },
    { "ttl", "TIME", "Lifetime from now, such as 1h; 0 for none" },
    { "idle", "TIME[:ACTION]",
      "When nobody uses it for so long: pause, stop or delete it (pause); 0 for none" },
    { "label", "NAME=VALUE", "Instead of those it has; may repeat; '' for none" },
    ACCESS_FLAGS,
    { 0 },
};

const struct command cmd_set = {
    .name = "set",
    .args = "ID|NAME",
    .help = "Give a sandbox other limits, another lifetime, idle policy, labels or owner.",
    .flags = set_flags,
    .traits = CMD_REMOTE,
    .run = set_run,
};

/* The same of a linked machine, which has nothing else to set. */
static int agent_set_run(struct cli *cli, struct err *err)
{
    autobuf struct buf body = { 0 };
    struct json_out json = json_to(&body);
    const struct json *reply;

    json_open(&json, '{');
    if (access_put_wish(cli, &json, err) < 0)
        return -1;
    json_close(&json, '}');
    if (str_is(buf_view(&body), "{}"))
        return cli_usage(cli, err, "nothing to change; see --help for what can be");
    if (cli_call(cli, "PATCH", buf_view(&body), &reply, err, "/api/v1/agents/%s",
                 cli_escape(cli, cli->args[0])) < 0)
        return err_wrap(err, "change agent %s", cli->args[0]);
    return cli_details(cli, reply, "id,owner,visibility,shared_with");
}

static const struct cli_flag agent_set_flags[] = {
    ACCESS_FLAGS,
    { 0 },
};

const struct command cmd_agent_set = {
    .name = "agent set",
    .args = "AGENT",
    .help = "Let tokens of role agent run commands on a linked machine.",
    .more = "Commands on a linked machine run outside of any sandbox, as the user of its client. "
            "Operators may run them; tokens of role agent only on machines that they were given "
            "with this command.\n\n"
            "Examples:\n  atoll agent set laptop --share-with alice\n"
            "  atoll agent set laptop --share-with ''",
    .flags = agent_set_flags,
    .traits = CMD_REMOTE,
    .run = agent_set_run,
};

int sandbox_put_more(struct cli *cli, struct json_out *json, struct err *err)
{
    if (put_idle(cli, json, err) < 0 || sandbox_put_pairs(cli, json, "env", "env", err) < 0 ||
        access_put_wish(cli, json, err) < 0)
        return -1;
    put_text(cli, json, "from-snapshot", "from_snapshot");
    return 0;
}

static int create_run(struct cli *cli, struct err *err)
{
    autobuf struct buf body = { 0 };
    struct json_out json = json_to(&body);
    const struct json *reply;

    json_open(&json, '{');
    if (sandbox_put_wish(cli, &json, 0, NULL, err) < 0 || sandbox_put_more(cli, &json, err) < 0)
        return -1;
    json_close(&json, '}');
    if (cli_call(cli, "POST", buf_view(&body), &reply, err, "/api/v1/sandboxes") < 0)
        return err_wrap(err, "create a sandbox");
    return cli_word(cli, reply, "id");
}

static const struct cli_flag create_flags[] = { SANDBOX_FLAGS, CREATE_FLAGS, { 0 } };

const struct command cmd_create = {
    .name = "create",
    .help = "Make a sandbox and print its id.",
    .more = "Examples:\n  atoll create --name build --memory 2G --ttl 1h\n"
            "  id=$(atoll create); atoll exec $id -- uname -a\n"
            "  atoll create --storage disk --idle 10m:stop --volume cache:/var/cache",
    .flags = create_flags,
    .traits = CMD_REMOTE,
    .run = create_run,
};

/* ---- looking ---- */

static int ls_run(struct cli *cli, struct err *err)
{
    autobuf struct buf query = { 0 };
    const struct json *reply;

    if (cli_has(cli, "only"))
        buf_printf(&query, "?state=%s", cli_escape(cli, cli_text(cli, "only")));
    if (cli_has(cli, "label"))
        buf_printf(&query, "%clabel=%s", query.len ? '&' : '?',
                   cli_escape(cli, cli_text(cli, "label")));
    if (cli_has(cli, "prefix"))
        buf_printf(&query, "%cname=%s", query.len ? '&' : '?',
                   cli_escape(cli, cli_text(cli, "prefix")));
    if (cli_list(cli, &reply, err, "/api/v1/sandboxes%s", buf_cstr(&query)) < 0)
        return err_wrap(err, "list sandboxes");
    return cli_table(
        cli, json_get(reply, "items"),
        "id,name,state,tier,egress_mode,storage,user,>execs_running,created_at,expires_at");
}

static const struct cli_flag ls_flags[] = {
    { "only", "STATE", "Those that are creating, running, paused, stopped or failed" },
    { "label", "NAME[=VALUE]", "Only those with this label" },
    { "prefix", "TEXT", "Only those whose name begins so" },
    { 0 },
};

const struct command cmd_ls = {
    .name = "ls",
    .help = "List sandboxes, oldest first.",
    .flags = ls_flags,
    .traits = CMD_REMOTE,
    .run = ls_run,
};

static int show_run(struct cli *cli, struct err *err)
{
    const char *id = cli_escape(cli, cli->args[0]);
    const struct json *reply, *applied;

    if (cli_get(cli, &reply, err, "/api/v1/sandboxes/%s", id) < 0)
        return err_wrap(err, "show sandbox %s", cli->args[0]);
    struct str state = json_text(reply, "state"), text = cli->reply;
    bool lives = str_is(state, "running") || str_is(state, "paused");
    if (!cli->json)
        cli_details(
            cli, reply,
            "id,name,state,reason,crashed,crash_loop,asleep,tier,egress_mode,storage,image,"
            "template,"
            "user,memory,pids,cpu_percent,"
            "io_"
            "bytes,"
            "io_ops,disk,"
            "inodes,nofile,ttl_ms,idle,volumes,binds,files,execs_running,by,owner,visibility,"
            "shared_with,created_at,changed_at,expires_at");
    if (lives && cli_get(cli, &applied, err, "/api/v1/sandboxes/%s/applied", id) < 0)
        return err_wrap(err, "what is applied to sandbox %s", cli->args[0]);
    if (cli->json) {
        struct json_out json = json_to(&cli->out);

        json_open(&json, '{');
        json_key(&json, "sandbox");
        json_put_raw(&json, str_trim(text));
        json_key(&json, "applied");
        if (lives)
            json_put(&json, applied);
        else
            json_put_null(&json);
        json_close(&json, '}');
        buf_putc(&cli->out, '\n');
        return EXIT_OK;
    }
    if (!lives)
        return EXIT_OK;
    buf_puts(&cli->out, "\nApplied, as the kernel tells:\n");
    return cli_table(cli, json_get(applied, "layers"), "layer,asked,applied,lost");
}

const struct command cmd_show = {
    .name = "show",
    .args = "ID|NAME",
    .help = "Show a sandbox, and what isolates it as the kernel tells.",
    .traits = CMD_REMOTE,
    .run = show_run,
};

const struct command cmd_stats = {
    .name = "stats",
    .args = "ID|NAME",
    .help = "Show what a sandbox uses now.",
    .traits = CMD_REMOTE,
    .view = { .path = "/api/v1/sandboxes/{}/stats",
              .lines = "cpu_us,memory,memory_peak,disk,pids,oom_kills,io" },
    .run = cli_view,
};

const struct command cmd_execs = {
    .name = "execs",
    .args = "ID|NAME",
    .help = "List the commands of a sandbox, oldest first.",
    .traits = CMD_REMOTE,
    .view = { .path = "/api/v1/sandboxes/{}/execs",
              .member = "items",
              .table = "id,state,>exit_code,argv,user,>stdout_bytes,>stderr_bytes,"
                       "started_at,ended_at" },
    .run = cli_view,
};

/* ---- changes ---- */

static int each(struct cli *cli, const char *verb)
{
    return cli_each(cli, &(struct cli_each){ .method = "POST",
                                             .path = "/api/v1/sandboxes",
                                             .after = arena_printf(&cli->arena, "/%s", verb),
                                             .what = arena_printf(&cli->arena, "%s sandbox", verb),
                                             .word = "id" });
}

static int pause_run(struct cli *cli, struct err *)
{
    return each(cli, "pause");
}

static int resume_run(struct cli *cli, struct err *)
{
    return each(cli, "resume");
}

static int start_run(struct cli *cli, struct err *)
{
    return each(cli, "start");
}

static int stop_run(struct cli *cli, struct err *)
{
    return each(cli, "stop");
}

static int rm_run(struct cli *cli, struct err *)
{
    return cli_each(cli, &(struct cli_each){ .method = "DELETE",
                                             .path = "/api/v1/sandboxes",
                                             .what = "remove sandbox",
                                             .word = "id" });
}

const struct command cmd_pause = {
    .name = "pause",
    .args = "ID|NAME…",
    .help = "Freeze every process of a sandbox.",
    .traits = CMD_REMOTE,
    .run = pause_run,
};

const struct command cmd_resume = {
    .name = "resume",
    .args = "ID|NAME…",
    .help = "Let a paused sandbox go on.",
    .traits = CMD_REMOTE,
    .run = resume_run,
};

const struct command cmd_stop = {
    .name = "stop",
    .args = "ID|NAME…",
    .help = "Kill everything in a sandbox; its files, its commands and their output stay.",
    .more = "Refused with storage memory, where the files would be lost: pause or remove it.",
    .traits = CMD_REMOTE,
    .run = stop_run,
};

const struct command cmd_start = {
    .name = "start",
    .args = "ID|NAME…",
    .help = "Let a stopped sandbox run again, with its files, limits and volumes.",
    .traits = CMD_REMOTE,
    .run = start_run,
};

const struct command cmd_rm = {
    .name = "rm",
    .args = "ID|NAME…",
    .help = "Remove a sandbox, whatever runs in it, and all its output.",
    .traits = CMD_REMOTE,
    .run = rm_run,
};
