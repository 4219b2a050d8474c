/*
 * Commands that ask one question and show the answer: what they ask and show is in their entry
 * (struct cli_view). Those about the nouns of agentic are nothing else, so they stand here.
 */
#include "base/mem.h"
#include "cli/cli.h"

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

int cli_view(struct cli *cli, struct err *err)
{
    const struct cli_view *view = &cli->command->view;
    const char *path = path_of(cli, view->path);
    const struct json *reply;

    if (cli_call(cli, view->method ? view->method : "GET", STR_NONE, &reply, err, "%s", path) < 0)
        return err_wrap(err, "%s%s%s", cli->command->name, cli->arg_count ? " " : "",
                        cli->arg_count ? cli->args[0] : "");
    if (cli->json)
        return cli_put_reply(cli);
    if (view->member)
        reply = json_get(reply, view->member);
    return view->table ? cli_table(cli, reply, view->table) : cli_details(cli, reply, view->lines);
}

#define VIEW(cmd_, name_, args_, help_, ...)                                                       \
    const struct command cmd_ = { .name = name_,                                                   \
                                  .args = args_,                                                   \
                                  .help = help_,                                                   \
                                  .traits = CMD_REMOTE,                                            \
                                  .view = { __VA_ARGS__ },                                         \
                                  .run = cli_view }

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
VIEW(cmd_agent_rotate_secret, "agent rotate-secret", "AGENT",
     "Give a connected agent another secret, over its link.", .method = "POST",
     .path = "/api/v1/agents/{}/rotate-secret", .lines = "status,operation_id,grace_seconds");
VIEW(cmd_vm_ls, "vm ls", NULL, "List sandboxes as agentic's virtual machines.",
     .path = "/api/v1/vms?prefix=*", .member = "vms",
     .table = "name,state,>vcpus,>memory_mb,>uptime_seconds,sandbox_id");
VIEW(cmd_vm_show, "vm show", "NAME", "Show a sandbox as a virtual machine, and its agent.",
     .path = "/api/v1/vms/{}",
     .lines = "name,state,uuid,vcpus,memory_mb,uptime_seconds,sandbox_id,agent");
VIEW(cmd_vm_start, "vm start", "NAME", "Let a stopped one run.", .method = "POST",
     .path = "/api/v1/vms/{}/start", .member = "vm", .lines = "name,state");
VIEW(cmd_vm_stop, "vm stop", "NAME", "Stop one; its disk stays.", .method = "POST",
     .path = "/api/v1/vms/{}/stop", .member = "vm", .lines = "name,state");
VIEW(cmd_vm_destroy, "vm destroy", "NAME", "Stop one at once; its disk stays.", .method = "POST",
     .path = "/api/v1/vms/{}/destroy", .member = "vm", .lines = "name,state");
VIEW(cmd_session_ls, "session ls", NULL, "List the terminals of all sandboxes, as sessions.",
     .path = "/api/v1/sessions", .table = "session_id,agent_id,name,>attachment_count");
VIEW(cmd_operation_show, "operation show", "ID", "Show what was answered 202 and goes on.",
     .path = "/api/v1/operations/{}",
     .lines = "id,type,status,target,progress_percent,error,created_at,completed_at");
