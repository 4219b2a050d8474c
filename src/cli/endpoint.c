/*
 * Which server is meant, most explicit first:
 *
 *   1. --addr or ATOLL_ADDR. The credential is --token or ATOLL_TOKEN; the owner's token of a state
 *      directory is sent only when that directory was named too, never to whoever listens there.
 *   2. --context or ATOLL_CONTEXT.
 *   3. --state or ATOLL_STATE: the Unix socket and the owner's token in it.
 *   4. the current context.
 *   5. the state directories a server uses by itself: the first with a socket we may open.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "cli/cli.h"
#include "cli/context.h"
#include "conf/conf.h"
#include "wire/layout.h"

#define TOKEN_FILE_MAX 4096

void endpoint_free(struct endpoint *at)
{
    free(at->token);
    free(at->ca);
    free(at->how);
    free(at->state);
    *at = (struct endpoint){ 0 };
}

/* A flag, or the environment; empty means not given. */
static const char *given(const struct cli *cli, const char *flag, const char *variable)
{
    const char *value = cli_text(cli, flag);

    if (!value)
        value = getenv(variable);
    return value && value[0] ? value : NULL;
}

/* Is a server's socket there, and ours to use? */
static bool own_socket(const char *dir)
{
    autofree char *path = xprintf("%s/" STATE_SOCKET, dir);
    struct stat st;

    return stat(path, &st) == 0 && (st.st_uid == geteuid() || geteuid() == 0);
}

char *cli_state_dir(const struct cli *cli, bool *named)
{
    const char *dir = given(cli, "state", "ATOLL_STATE");
    char *own = conf_state_default();

    *named = dir != NULL;
    if (dir) {
        free(own);
        return xstrdup(dir);
    }
    /* The machine's server may run as this user, with no other of the user's own. */
    if (own_socket("/var/lib/atoll") && !own_socket(own)) {
        free(own);
        return xstrdup("/var/lib/atoll");
    }
    return own;
}

/* The first line of the token file; NULL when there is none that we may read. */
static char *read_token(const char *dir)
{
    autofree char *path = xprintf("%s/" STATE_TOKEN, dir);
    autoclose int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    char text[TOKEN_FILE_MAX];
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return NULL;
    ssize_t got = read(fd, text, sizeof(text));
    struct str rest = { text, got > 0 ? (size_t)got : 0 };
    struct str line = str_trim(str_cut(&rest, '\n'));
    char *token = line.n && !str_has_nul(line) ? xmemdup0(line.p, line.n) : NULL;
    explicit_bzero(text, sizeof(text));
    return token;
}

static int from_address(struct cli *cli, const char *address, struct err *err)
{
    bool named;
    autofree char *dir = cli_state_dir(cli, &named);

    if (client_target_parse(address, &cli->at.target, err) < 0) {
        cli->usage = true;
        return -1;
    }
    if (named)
        cli->at.token = read_token(dir);
    cli->at.how = xprintf("address %s", address);
    return 0;
}

static int from_context(struct cli *cli, const struct contexts *contexts, const char *name,
                        struct err *err)
{
    const struct context *context = contexts_find(contexts, name);

    if (!context) {
        snprintf(cli->hint, sizeof(cli->hint), "`atoll context list` shows them");
        return err_set(err, ERR_NOT_FOUND, "there is no context '%s'", name);
    }
    if (client_target_parse(context->addr, &cli->at.target, err) < 0)
        return err_wrap(err, "context %s", name);
    context_text(&cli->at.token, context->token);
    context_text(&cli->at.ca, context->ca);
    cli->at.how = xprintf("context %s", name);
    return 0;
}

static int from_state(struct cli *cli, const char *dir, struct err *err)
{
    autofree char *address = NULL;
    autofree char *cwd = dir[0] == '/' ? xstrdup("") : get_current_dir_name();

    address = xprintf("unix:%s%s%s/" STATE_SOCKET, cwd ? cwd : "", dir[0] == '/' ? "" : "/", dir);
    if (client_target_parse(address, &cli->at.target, err) < 0)
        return -1;
    cli->at.token = read_token(dir);
    cli->at.how = xprintf("state %s", dir);
    cli->at.state = xstrdup(dir);
    return 0;
}

int endpoint_use_state(struct cli *cli, const char *dir, struct err *err)
{
    endpoint_free(&cli->at);
    if (from_state(cli, dir, err) < 0)
        return -1;
    cli->at.found = true;
    return 0;
}

static int settle(struct cli *cli, struct err *err)
{
    const char *address = given(cli, "addr", "ATOLL_ADDR");
    const char *context = given(cli, "context", "ATOLL_CONTEXT");
    autocontexts struct contexts contexts = { .lock_fd = -1 };
    bool named;
    autofree char *dir = cli_state_dir(cli, &named);

    if (address && !(cli_has(cli, "context") && !cli_has(cli, "addr")))
        return from_address(cli, address, err);
    if (named && !context)
        return from_state(cli, dir, err);
    if (contexts_load(&contexts, err) < 0)
        return -1;
    if (context || contexts.current)
        return from_context(cli, &contexts, context ? context : contexts.current, err);
    return from_state(cli, dir, err);
}

int endpoint_find(struct cli *cli, struct err *err)
{
    if (cli->at.found)
        return 0;
    endpoint_free(&cli->at);
    if (settle(cli, err) < 0)
        return -1;
    const char *token = given(cli, "token", "ATOLL_TOKEN"), *ca = given(cli, "ca", "ATOLL_CA");
    if (token) {
        context_text(&cli->at.token, token);
        cli->at.token_from = cli_has(cli, "token") ? "--token" : "ATOLL_TOKEN";
    }
    if (ca)
        context_text(&cli->at.ca, ca);
    if (cli->at.token && !cli->at.target.tls && !cli->at.target.local)
        cli_note(cli, "warning: the token travels unencrypted to %s; use https://",
                 cli->at.target.host);
    cli->at.found = true;
    return 0;
}
