/*
 * Commands that ask one question and show the answer: what they ask and show is in their entry
 * (struct cli_view). Those about the nouns of agentic are nothing else, so they stand here.
 */
#include "base/mem.h"
#include "cli/cli.h"

/* ---- what is asked ---- */

/* One member of a body or query, as struct cli_view writes it. */
struct wish {
    struct str name;
    char kind;  /* of "#?^*~!", or 0 */
    char *from; /* "@0", "@0+" or a flag's name; in cli's arena */
    char *otherwise;
};

static struct wish next_wish(struct cli *cli, struct str *rest)
{
    struct str source = str_trim(str_cut(rest, ','));
    struct wish wish = { .name = str_cut(&source, '=') };
    struct str from = str_cut(&source, '|');

    if (from.n && strchr("#?^*~!", from.p[0])) {
        wish.kind = from.p[0];
        from = str_from(from, 1);
    }
    if (str_starts(from, STR("--")))
        from = str_from(from, 2);
    wish.from = arena_memdup0(&cli->arena, from.p, from.n);
    wish.otherwise = source.n ? arena_memdup0(&cli->arena, source.p, source.n) : NULL;
    return wish;
}

/* The text of a wish; NULL when it was not given. */
static const char *wish_text(const struct cli *cli, const struct wish *wish)
{
    if (wish->from[0] != '@')
        return cli_text(cli, wish->from) ? cli_text(cli, wish->from) : wish->otherwise;
    size_t at = (size_t)(wish->from[1] - '0');
    return at < cli->arg_count ? cli->args[at] : wish->otherwise;
}

static void put_many(const struct cli *cli, struct json_out *json, const struct wish *wish)
{
    const char *text;
    size_t at = 0;

    json_open(json, '[');
    if (wish->from[0] == '@')
        for (at = (size_t)(wish->from[1] - '0'); at < cli->arg_count; at++)
            json_put_str(json, str_of(cli->args[at]));
    else
        while ((text = cli_next(cli, wish->from, &at)))
            json_put_str(json, str_of(text));
    json_close(json, ']');
}

/* A number of a flag or an argument; its bounds are the server's to know. */
static int wish_number(struct cli *cli, const struct wish *wish, int64_t *out, struct err *err)
{
    const char *text = wish_text(cli, wish);
    uint64_t number;

    if (wish->kind == '~') {
        if (cli_ms(cli, wish->from, 0, out, err) < 0)
            return -1;
        *out /= 1000;
        return 0;
    }
    if (!str_to_u64(str_of(text), &number) || number > INT64_MAX)
        return cli_usage(cli, err, "%s%s is '%s', which is no number",
                         wish->from[0] == '@' ? "" : "--",
                         wish->from[0] == '@' ? "an argument" : wish->from, text);
    *out = (int64_t)number;
    return 0;
}

static int put_wish(struct cli *cli, struct json_out *json, const struct wish *wish,
                    struct err *err)
{
    const char *text = wish_text(cli, wish);
    autofree char *name = xmemdup0(wish->name.p, wish->name.n);
    bool many = wish->kind == '*' || (wish->from[0] == '@' && wish->from[2] == '+');
    int64_t number = 0;

    if (wish->kind == '?') {
        if (cli_has(cli, wish->from))
            json_kv_bool(json, name, true);
        return 0;
    }
    if (!text)
        return wish->kind == '!' ? cli_usage(cli, err, "--%s is missing", wish->from) : 0;
    if (many) {
        json_key(json, name);
        put_many(cli, json, wish);
    } else if (wish->kind == '#' || wish->kind == '~') {
        if (wish_number(cli, wish, &number, err) < 0)
            return -1;
        json_kv_int(json, name, number);
    } else {
        json_kv_text(json, name, text);
    }
    return 0;
}

static int put_body(struct cli *cli, struct buf *out, struct err *err)
{
    struct str rest = str_of(cli->command->view.body);
    struct json_out json = json_to(out);

    json_open(&json, '{');
    while (rest.n) {
        struct wish wish = next_wish(cli, &rest);

        if (put_wish(cli, &json, &wish, err) < 0)
            return -1;
    }
    json_close(&json, '}');
    return 0;
}

static int put_query(struct cli *cli, struct buf *out, struct err *err)
{
    const char *query = cli->command->view.query;
    struct str rest = query ? str_of(query) : STR_NONE;
    char before = '?';

    while (rest.n) {
        struct wish wish = next_wish(cli, &rest);
        const char *text = wish_text(cli, &wish);
        int64_t number = 0;

        if (wish.kind == '?' || wish.kind == '^')
            text = cli_has(cli, wish.from) == (wish.kind == '?') ? "true" : NULL;
        if (!text)
            continue;
        if (wish.kind == '#' || wish.kind == '~') {
            if (wish_number(cli, &wish, &number, err) < 0)
                return -1;
            text = arena_printf(&cli->arena, "%lld", (long long)number);
        }
        buf_printf(out, "%c%.*s=%s", before, STR_FMT(wish.name), cli_escape(cli, text));
        before = '&';
    }
    return 0;
}

static const char *path_of(struct cli *cli, const char *path)
{
    autobuf struct buf out = { 0 };
    size_t next = 0;

    for (const char *at = path; *at; at++) {
        if (at[0] == '{' && at[1] == '}' && next < cli->arg_count) {
            buf_puts(&out, cli_escape(cli, cli->args[next++]));
            at++;
        } else {
            buf_putc(&out, *at);
        }
    }
    return arena_memdup0(&cli->arena, out.data, out.len);
}

const char *cli_view_path(struct cli *cli, struct err *err)
{
    autobuf struct buf out = { 0 };

    buf_puts(&out, path_of(cli, cli->command->view.path));
    if (put_query(cli, &out, err) < 0)
        return NULL;
    return arena_memdup0(&cli->arena, out.data, out.len);
}

/* ---- and shown ---- */

/* The answer to the question; a list of items is asked for whole. */
static int ask(struct cli *cli, const char *path, struct str body, const struct json **out,
               struct err *err)
{
    const struct cli_view *view = &cli->command->view;

    if (!view->method && view->member && strcmp(view->member, "items") == 0)
        return cli_list(cli, out, err, "%s", path);
    return cli_call(cli, view->method ? view->method : "GET", body, out, err, "%s", path);
}

int cli_view(struct cli *cli, struct err *err)
{
    const struct cli_view *view = &cli->command->view;
    const char *path = cli_view_path(cli, err);
    autobuf struct buf body = { 0 };
    const struct json *reply;

    if (!path || (view->body && put_body(cli, &body, err) < 0))
        return -1;
    if (ask(cli, path, view->body ? buf_view(&body) : STR_NONE, &reply, err) < 0)
        return err_wrap(err, "%s%s%s", cli->command->name, cli->arg_count ? " " : "",
                        cli->arg_count ? cli->args[0] : "");
    if (view->member)
        reply = json_get(reply, view->member);
    return view->table ? cli_table(cli, reply, view->table) : cli_details(cli, reply, view->lines);
}

#define VIEW_FLAGS(cmd_, name_, args_, flags_, help_, ...)                                         \
    const struct command cmd_ = { .name = name_,                                                   \
                                  .args = args_,                                                   \
                                  .help = help_,                                                   \
                                  .flags = flags_,                                                 \
                                  .traits = CMD_REMOTE,                                            \
                                  .view = { __VA_ARGS__ },                                         \
                                  .run = cli_view }
#define VIEW(cmd_, name_, args_, ...) VIEW_FLAGS(cmd_, name_, args_, NULL, __VA_ARGS__)

static const struct cli_flag vm_ls_flags[] = {
    { "only", "STATE", "running or stopped (all)" },
    { "prefix", "TEXT", "Only those whose name begins so" },
    { 0 },
};
static const struct cli_flag force_flags[] = {
    { "force", NULL, "Even if it runs" },
    { 0 },
};
static const struct cli_flag vm_stop_flags[] = {
    { "force", NULL, "At once, without asking commands to end" },
    { "grace", "TIME", "How long commands have to end, such as 5s (15s)" },
    { 0 },
};
static const struct cli_flag grace_flags[] = {
    { "grace", "SECONDS", "How long the old secret holds at most (300)" },
    { 0 },
};

VIEW(cmd_agent_ls, "agent ls", NULL,
     "List agents: those that connected from elsewhere, and sandboxes as such.",
     .path = "/api/v1/agents", .member = "agents",
     .table = "id,status,hostname,ip_address,loadout");
VIEW(cmd_agent_show, "agent show", "AGENT", "Show an agent, or a sandbox as one.",
     .path = "/api/v1/agents/{}",
     .lines = "id,instance_id,status,hostname,ip_address,metrics,system_info");
VIEW(cmd_agent_start, "agent start", "AGENT", "Let the sandbox of an agent run again.",
     .method = "POST", .path = "/api/v1/agents/{}/start", .member = "vm", .lines = "name,state");
VIEW(cmd_agent_stop, "agent stop", "AGENT", "Stop the sandbox of an agent; its files stay.",
     .method = "POST", .path = "/api/v1/agents/{}/stop", .member = "vm", .lines = "name,state");
VIEW(cmd_agent_destroy, "agent destroy", "AGENT",
     "Stop the sandbox of an agent at once; its files stay.", .method = "POST",
     .path = "/api/v1/agents/{}/destroy", .member = "vm", .lines = "name,state");
VIEW(cmd_agent_rm, "agent rm", "AGENT", "Remove the sandbox of an agent, with its files.",
     .method = "DELETE", .path = "/api/v1/agents/{}", .lines = "name,deleted,disk_deleted");
VIEW(cmd_agent_commands, "agent commands", "AGENT",
     "List the commands of a linked agent that are kept, oldest first.",
     .path = "/api/v1/agents/{}/commands", .member = "items",
     .table = "command_id,state,>exit_code,command,>stdout_bytes,>stderr_bytes,by,started_at");
VIEW_FLAGS(cmd_agent_rotate_secret, "agent rotate-secret", "AGENT", grace_flags,
           "Give a connected agent another secret, over its link.", .method = "POST",
           .path = "/api/v1/agents/{}/rotate-secret", .query = "grace_seconds=--grace",
           .lines = "status,operation_id,grace_seconds");
VIEW_FLAGS(cmd_vm_ls, "vm ls", NULL, vm_ls_flags, "List sandboxes as agentic's virtual machines.",
           .path = "/api/v1/vms", .query = "state=--only,prefix=--prefix|*", .member = "vms",
           .table = "name,state,>vcpus,>memory_mb,>uptime_seconds,sandbox_id");
VIEW(cmd_vm_show, "vm show", "NAME", "Show a sandbox as a virtual machine, and its agent.",
     .path = "/api/v1/vms/{}",
     .lines = "name,state,uuid,vcpus,memory_mb,uptime_seconds,sandbox_id,agent");
VIEW(cmd_vm_start, "vm start", "NAME", "Let a stopped one run.", .method = "POST",
     .path = "/api/v1/vms/{}/start", .member = "vm", .lines = "name,state");
VIEW_FLAGS(cmd_vm_stop, "vm stop", "NAME", vm_stop_flags, "Stop one; its disk stays.",
           .method = "POST", .path = "/api/v1/vms/{}/stop",
           .query = "force=?--force,timeout=~--grace", .member = "vm", .lines = "name,state");
VIEW(cmd_vm_destroy, "vm destroy", "NAME", "Stop one at once; its disk stays.", .method = "POST",
     .path = "/api/v1/vms/{}/destroy", .member = "vm", .lines = "name,state");
VIEW_FLAGS(cmd_vm_rm, "vm rm", "NAME", force_flags, "Remove one, with its disk.",
           .method = "DELETE", .path = "/api/v1/vms/{}", .query = "force=?--force",
           .lines = "name,deleted,disk_deleted");
VIEW(cmd_session_ls, "session ls", NULL, "List the terminals of all sandboxes, as sessions.",
     .path = "/api/v1/sessions", .table = "session_id,agent_id,name,>attachment_count");
VIEW(cmd_operation_show, "operation show", "ID", "Show what was answered 202 and goes on.",
     .path = "/api/v1/operations/{}",
     .lines = "id,type,status,target,progress_percent,error,created_at,completed_at");
