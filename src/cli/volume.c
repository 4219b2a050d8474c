/* Volumes, snapshots, and what is made of them: forks, and the way back. */
#include "cli/sandbox.h"

static int id_or_json(struct cli *cli, const struct json *reply)
{
    return cli_word(cli, reply, "id");
}

/* ---- volumes ---- */

static int volume_create_run(struct cli *cli, struct err *err)
{
    const char *size = cli_text(cli, "size") ? cli_text(cli, "size") : "10G";
    autobuf struct buf body = { 0 };
    struct json_out json = json_to(&body);
    const struct json *reply;
    uint64_t bytes;

    if (!str_to_bytes(str_of(size), &bytes) || bytes > INT64_MAX)
        return cli_usage(cli, err, "--size: \"%s\" is no size, such as 512M or 2G", size);
    json_open(&json, '{');
    json_kv_text(&json, "name", cli->args[0]);
    json_kv_int(&json, "bytes", (int64_t)bytes);
    if (access_put_wish(cli, &json, err) < 0)
        return -1;
    json_close(&json, '}');
    if (cli_call(cli, "POST", buf_view(&body), &reply, err, "/api/v1/volumes") < 0)
        return err_wrap(err, "make volume %s", cli->args[0]);
    return id_or_json(cli, reply);
}

static const struct cli_flag volume_create_flags[] = {
    { "size", "SIZE", "How much may be written to it, such as 512M (10G)" },
    ACCESS_FLAGS,
    { 0 },
};

const struct command cmd_volume_create = {
    .name = "volume create",
    .args = "NAME",
    .help = "Make a volume: files that sandboxes share and that outlive them.",
    .more = "Examples:\n  atoll volume create cache --size 2G\n"
            "  atoll create --volume cache:/var/cache",
    .flags = volume_create_flags,
    .traits = CMD_REMOTE,
    .run = volume_create_run,
};

const struct command cmd_volume_ls = {
    .name = "volume ls",
    .help = "List volumes, oldest first.",
    .traits = CMD_REMOTE,
    .view = { .path = "/api/v1/volumes",
              .member = "items",
              .table = "id,name,state,>bytes,sandboxes,created_at" },
    .run = cli_view,
};

const struct command cmd_volume_show = {
    .name = "volume show",
    .args = "NAME|ID",
    .help = "Show a volume, how much of it is used, and by whom.",
    .traits = CMD_REMOTE,
    .view = { .path = "/api/v1/volumes/{}",
              .lines =
                  "id,name,state,bytes,used,sandboxes,by,owner,visibility,shared_with,created_at" },
    .run = cli_view,
};

static int volume_set_run(struct cli *cli, struct err *err)
{
    const char *size = cli_text(cli, "size");
    autobuf struct buf body = { 0 };
    struct json_out json = json_to(&body);
    const struct json *reply;
    uint64_t bytes = 0;

    if (size && (!str_to_bytes(str_of(size), &bytes) || bytes > INT64_MAX))
        return cli_usage(cli, err, "--size: \"%s\" is no size, such as 512M or 2G", size);
    json_open(&json, '{');
    if (size)
        json_kv_int(&json, "bytes", (int64_t)bytes);
    if (access_put_wish(cli, &json, err) < 0)
        return -1;
    json_close(&json, '}');
    if (str_is(buf_view(&body), "{}"))
        return cli_usage(cli, err, "nothing to change; see --help for what can be");
    if (cli_call(cli, "PATCH", buf_view(&body), &reply, err, "/api/v1/volumes/%s",
                 cli_escape(cli, cli->args[0])) < 0)
        return err_wrap(err, "change volume %s", cli->args[0]);
    return cli_details(cli, reply, "id,name,bytes,owner,visibility,shared_with");
}

static const struct cli_flag volume_set_flags[] = {
    { "size", "SIZE", "How much may be written to it, such as 512M" },
    ACCESS_FLAGS,
    { 0 },
};

const struct command cmd_volume_set = {
    .name = "volume set",
    .args = "NAME|ID",
    .help = "Give a volume another size or owner, or let others use it.",
    .flags = volume_set_flags,
    .traits = CMD_REMOTE,
    .run = volume_set_run,
};

static int volume_rm_run(struct cli *cli, struct err *)
{
    return cli_each(cli, &(struct cli_each){ .method = "DELETE",
                                             .path = "/api/v1/volumes",
                                             .what = "remove volume",
                                             .word = "id" });
}

const struct command cmd_volume_rm = {
    .name = "volume rm",
    .args = "NAME|ID…",
    .help = "Remove a volume and what is in it; refused while a sandbox names it.",
    .traits = CMD_REMOTE,
    .run = volume_rm_run,
};

/* ---- disks that the database does not name ---- */

const struct command cmd_disk_ls = {
    .name = "disk ls",
    .help = "List disks that the database does not name; they are kept aside.",
    .more = "A disk comes here when the server starts with a database that does not know it: after "
            "`atoll restore` of an older backup, for example. A start with the right database uses "
            "it again. The setting disks_aside_keep says how long it stays.",
    .traits = CMD_REMOTE,
    .view = { .path = "/api/v1/disks", .member = "items", .table = ">number,found_at" },
    .run = cli_view,
};

static int disk_rm_run(struct cli *cli, struct err *)
{
    return cli_each(cli, &(struct cli_each){ .method = "DELETE",
                                             .path = "/api/v1/disks",
                                             .what = "remove disk",
                                             .word = "number" });
}

const struct command cmd_disk_rm = {
    .name = "disk rm",
    .args = "NUMBER…",
    .help = "Remove a disk that is kept aside, and what is in it, for ever.",
    .traits = CMD_REMOTE,
    .run = disk_rm_run,
};

/* ---- snapshots ---- */

static int snapshot_create_run(struct cli *cli, struct err *err)
{
    autobuf struct buf body = { 0 };
    struct json_out json = json_to(&body);
    const struct json *reply;

    json_open(&json, '{');
    json_kv_text(&json, "name", cli->args[1]);
    json_close(&json, '}');
    if (cli_call(cli, "POST", buf_view(&body), &reply, err, "/api/v1/sandboxes/%s/snapshots",
                 cli_escape(cli, cli->args[0])) < 0)
        return err_wrap(err, "snapshot of sandbox %s", cli->args[0]);
    return id_or_json(cli, reply);
}

const struct command cmd_snapshot_create = {
    .name = "snapshot create",
    .args = "ID|NAME SNAPSHOT",
    .help = "Keep the files of a sandbox as they are now, under a name.",
    .more = "What runs in it is frozen for that moment. Volumes are not part of it.\n\n"
            "Examples:\n  atoll snapshot build clean\n  atoll rollback build clean\n"
            "  atoll create --from-snapshot clean",
    .traits = CMD_REMOTE,
    .run = snapshot_create_run,
};

static int snapshot_ls_run(struct cli *cli, struct err *err)
{
    const struct json *reply;
    bool one = cli->arg_count > 0;

    if (cli_list(cli, &reply, err, "/api/v1/%s%s%ssnapshots", one ? "sandboxes/" : "",
                 one ? cli_escape(cli, cli->args[0]) : "", one ? "/" : "") < 0)
        return err_wrap(err, "list snapshots");
    return cli_table(cli, json_get(reply, "items"), "id,name,sandbox,state,>bytes,created_at");
}

static int crashes_run(struct cli *cli, struct err *err)
{
    const struct json *reply;

    if (cli_get(cli, &reply, err, "/api/v1/sandboxes/%s/crashes", cli_escape(cli, cli->args[0])) <
        0)
        return err_wrap(err, "list crashes");
    return cli_table(cli, json_get(reply, "items"), "at,uptime_ms,reason");
}

const struct command cmd_crashes = {
    .name = "crashes",
    .args = "ID|NAME",
    .help = "List when and how process 1 of a sandbox died by itself, newest first.",
    .more = "`show` says with `crash_loop` whether it keeps crashing: 5 times within 10 minutes, "
            "after less than 60 s each. Nothing is rebuilt without being asked for.",
    .traits = CMD_REMOTE,
    .run = crashes_run,
};

const struct command cmd_snapshot_ls = {
    .name = "snapshot ls",
    .args = "[ID|NAME]",
    .help = "List snapshots, of one sandbox or of all, oldest first.",
    .traits = CMD_REMOTE,
    .run = snapshot_ls_run,
};

static int snapshot_rm_run(struct cli *cli, struct err *)
{
    return cli_each(cli, &(struct cli_each){ .method = "DELETE",
                                             .path = "/api/v1/snapshots",
                                             .what = "remove snapshot",
                                             .word = "id" });
}

const struct command cmd_snapshot_rm = {
    .name = "snapshot rm",
    .args = "SNAPSHOT…",
    .help = "Remove a snapshot, by id or by a name that only one has.",
    .traits = CMD_REMOTE,
    .run = snapshot_rm_run,
};

static int rollback_run(struct cli *cli, struct err *err)
{
    autobuf struct buf body = { 0 };
    struct json_out json = json_to(&body);
    const struct json *reply;

    json_open(&json, '{');
    json_kv_text(&json, "snapshot", cli->args[1]);
    json_close(&json, '}');
    if (cli_call(cli, "POST", buf_view(&body), &reply, err, "/api/v1/sandboxes/%s/rollback",
                 cli_escape(cli, cli->args[0])) < 0)
        return err_wrap(err, "roll sandbox %s back", cli->args[0]);
    if (!cli->json && json_num(reply, "execs_ended", 0))
        cli_note(cli, "%lld of its commands ended", (long long)json_num(reply, "execs_ended", 0));
    return id_or_json(cli, reply);
}

const struct command cmd_rollback = {
    .name = "rollback",
    .args = "ID|NAME SNAPSHOT",
    .help = "Give a sandbox the files of one of its snapshots back; its commands end.",
    .traits = CMD_REMOTE,
    .run = rollback_run,
};

/* ---- forks ---- */

static int fork_run(struct cli *cli, struct err *err)
{
    autobuf struct buf body = { 0 };
    struct json_out json = json_to(&body);
    const struct json *reply;
    int64_t ttl_ms;

    if (cli_ms(cli, "ttl", 0, &ttl_ms, err) < 0)
        return -1;
    json_open(&json, '{');
    if (cli_has(cli, "name"))
        json_kv_text(&json, "name", cli_text(cli, "name"));
    if (ttl_ms)
        json_kv_int(&json, "ttl_ms", ttl_ms);
    if (sandbox_put_pairs(cli, &json, "label", "labels", err) < 0)
        return -1;
    json_close(&json, '}');
    if (cli_call(cli, "POST", buf_view(&body), &reply, err, "/api/v1/sandboxes/%s/fork",
                 cli_escape(cli, cli->args[0])) < 0)
        return err_wrap(err, "fork sandbox %s", cli->args[0]);
    return id_or_json(cli, reply);
}

static const struct cli_flag fork_flags[] = {
    { "name", "NAME", "Of the new one" },
    { "ttl", "TIME", "Lifetime of the new one, such as 1h" },
    { "label", "NAME=VALUE", "Of the new one, instead of the same; may repeat" },
    { 0 },
};

const struct command cmd_fork = {
    .name = "fork",
    .args = "ID|NAME",
    .help = "Make another sandbox with a copy of the files of this one and print its id.",
    .more =
        "The one that runs is frozen for that moment and goes on; its commands do not run in the "
        "copy. It has the same limits and volumes.",
    .flags = fork_flags,
    .traits = CMD_REMOTE,
    .run = fork_run,
};
