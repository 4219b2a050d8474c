/* sandbox - what the commands about sandboxes share. */
#pragma once

#include "cli/cli.h"

/* What a command may open; one list of rules out of both. */
#define FILE_FLAGS                                                                                 \
    { "ro", "PATH", "Let commands read this and all below, and nothing unnamed; may repeat" },     \
    {                                                                                              \
        "rw", "PATH", "Likewise, and write; /tmp is open always; may repeat"                       \
    }
/* A flag such as 512M as a number of bytes; nothing without the flag. */
must_use int sandbox_put_size(struct cli *cli, struct json_out *json, const char *flag,
                              const char *field, struct err *err);
must_use int sandbox_put_files(struct cli *cli, struct json_out *json, struct err *err);

/* The flags that describe a sandbox. */
#define SANDBOX_FLAGS                                                                              \
    { "template", "NAME", "Take from it what is not said here" },                                  \
        { "name", "NAME", "A name of its own, to be used instead of the id" },                     \
        { "user", "USER", "agent, or root: who commands run as (agent)" },                         \
        { "memory", "SIZE", "Memory, such as 512M or 2G (1G)" },                                   \
        { "disk", "SIZE", "Everything written inside (half of memory; 8G on disk)" },              \
        { "inodes", "N", "Files made inside (100000)" },                                           \
        { "pids", "N", "Processes and threads at once (512)" },                                    \
        { "cpu", "PERCENT", "Processor time; 100 is one core (200)" },                             \
        { "io-bytes", "SIZE", "Bytes a second read from each disk, and written (no limit)" },      \
        { "io-ops", "N", "Operations a second, likewise (no limit)" },                             \
        { "nofile", "N", "Open descriptors of each process (1024)" },                              \
        { "ttl", "TIME", "Lifetime, such as 1h; then it is removed" },                             \
        { "storage", "WHERE", "memory: gone with it; disk: kept over stop and start" },            \
        { "image", "NAME", "What it begins with (the programs of this machine)" },                 \
        { "volume", "NAME:PATH[:ro]", "A volume at this path inside; may repeat" },                \
        { "tier", "TIER", "How strongly it is isolated: T3, or T1, which is --nesting (T3)" },     \
        { "nesting", NULL, "Let tools inside make sandboxes of their own" },                       \
        { "sys", NULL, "A read-only /sys" },                                                       \
        { "cold", NULL, "Make it anew, though a pool may have one that fits" },                    \
        { "allow", "RULE", "A host it may reach; may repeat" },                                    \
        { "deny", "RULE", "A host it may not reach; may repeat" },                                 \
        { "pack", "NAME", "A pack of hosts it may reach (see egress packs); may repeat" },         \
        { "egress-mode", "MODE", "deny, ask or open: other hosts (as the tenant says)" },          \
        { "inject", "RULE", "A credential for its requests: HOST => HEADER: VALUE; may repeat" },  \
        { "secret", "[VARIABLE=]NAME",                                                             \
          "A secret for requests: its placeholder is in the environment; may repeat" },            \
        { "project", "NAME", "Whose rules count for it too" },                                     \
        { "agent", "NAME", "The agent of the hub that its programs are, at atoll.internal/hub/" }, \
        FILE_FLAGS,                                                                                \
    {                                                                                              \
        "label", "NAME=VALUE", "To find it again; may repeat"                                      \
    }

/* Who reaches it. */
#define ACCESS_FLAGS                                                                               \
    { "owner", "NAME", "The token that owns it, for operators (the caller)" },                     \
        { "share-with", "NAME", "A token of role agent that may use it; may repeat" },             \
    {                                                                                              \
        "visibility", "WHOM", "private, or tenant: every agent of the tenant may use it (private)" \
    }
/* The members of a request that those say; a single --share-with '' leaves none. */
must_use int access_put_wish(struct cli *cli, struct json_out *json, struct err *err);

/* More of them, for one that is to stay. */
#define CREATE_FLAGS                                                                               \
    ACCESS_FLAGS, { "env", "NAME=VALUE", "Environment of every command; may repeat" },             \
        { "idle", "TIME[:ACTION]",                                                                 \
          "When nobody uses it for so long: pause, stop or delete it (pause)" },                   \
    {                                                                                              \
        "from-snapshot", "SNAPSHOT", "Begin with its files and, unless said, its limits"           \
    }
/* The members of a request that those say. */
must_use int sandbox_put_more(struct cli *cli, struct json_out *json, struct err *err);

/*
 * The members of a request for one, without the braces; `ttl_ms` unless --ttl, `storage` (may be
 * NULL) unless --storage or a template was given.
 */
must_use int sandbox_put_wish(struct cli *cli, struct json_out *json, int64_t ttl_ms,
                              const char *storage, struct err *err);
/* Its layer of what it may reach, if any of those flags was given (egress.c). */
void egress_put_wish(struct cli *cli, struct json_out *json);
/* --env as an object; with a terminal, ours says what it is (TERM) unless the flags do. */
must_use int sandbox_put_env(struct cli *cli, struct json_out *json, bool tty, struct err *err);
/* What our terminal is, if that can be said; NULL: it cannot. */
const char *sandbox_term(void);
/* NAME=VALUE flags as an object. */
must_use int sandbox_put_pairs(struct cli *cli, struct json_out *json, const char *flag,
                               const char *field, struct err *err);

/* Runs a command in a sandbox with our terminal, input and signals: its exit status. In `cwd`
 * unless
 * --cwd says; NULL: where the sandbox says. */
must_use int exec_in(struct cli *cli, const char *id, const char **argv, size_t argc,
                     const char *cwd, struct err *err);
/*
 * The same on the linked agent `id`, which is no sandbox as *err tells; that stays in it if there
 * is no such agent either.
 */
must_use int exec_linked(struct cli *cli, const char *id, const char **argv, size_t argc,
                         struct err *err);
/* In the sandbox or, if there is none, on the linked agent of this name. */
must_use int exec_anywhere(struct cli *cli, const char *id, const char **argv, size_t argc,
                           struct err *err);
/* The flags that describe a command. */
#define EXEC_FLAGS                                                                                 \
    { "cwd", "DIR", "Working directory (/workspace)" },                                            \
        { "env", "NAME=VALUE", "Environment of the command; may repeat" },                         \
        { "timeout", "TIME", "Kill the command and all it started after this long" },              \
        { "kill-after", "TIME", "The same as --timeout" },                                         \
    {                                                                                              \
        "interactive", NULL, "Pass the keyboard on even without a terminal for it"                 \
    }

/*
 * The output of the command at `path` (under /api/v1; NULL: of the command that the arguments
 * name); flags --from, --stream and --raw count where the command has them.
 */
must_use int logs_show(struct cli *cli, const char *path, bool follows, struct err *err);

#define DOOR_TICKET_HEX 33
/* Leaves an open directory with the server of this machine (--bind): a ticket for a request. */
must_use int door_leave(struct cli *cli, const char *path, char ticket[DOOR_TICKET_HEX],
                        struct err *err);
