/* atoll-server: picks the role (serve, api, egress, proxy, helper), otherwise runs a command. */
#include <string.h>

#include "agent/keeper.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "daemon/daemon.h"
#include "egress/egress.h"
#include "image/image.h"

/* `--resolve` is the warden's own word at the end of what the user said; nobody else needs it. */
static int serve(int argc, char **argv)
{
    bool resolve = argc > 2 && strcmp(argv[argc - 1], "--resolve") == 0;
    struct conf *conf = NULL;

    if (resolve)
        argv[--argc] = NULL;
    int status = cli_serve(argc, argv, &conf);
    if (!conf)
        return status;
    return resolve ? resolve_main(conf) : serve_main(conf, argc, argv);
}

static int proxy(int argc, char **argv)
{
    struct egress_signed how = { 0 };
    int status = cli_proxy(argc, argv, &how);

    return status < 0 ? proxy_main(&how) : status;
}

/* `server start` becomes `serve`, as the table of other names has it, for whoever reads argv later.
 */
static void rename_role(int *argc, char **argv)
{
    autofree char *both = *argc >= 3 ? xprintf("%s %s", argv[1], argv[2]) : NULL;
    const struct command *command = both ? command_find(both) : NULL;

    if (!command || strcmp(command->name, "serve") != 0)
        return;
    memmove(argv + 1, argv + 2, (size_t)(*argc - 1) * sizeof(*argv));
    argv[1] = (char *)(uintptr_t)command->name;
    (*argc)--;
}

int main(int argc, char **argv)
{
    rename_role(&argc, argv);
    if (argc >= 2 && strcmp(argv[1], "serve") == 0)
        return serve(argc, argv);
    if (argc >= 2 && strcmp(argv[1], "proxy") == 0)
        return proxy(argc, argv);
    if (argc == 2 && strcmp(argv[1], "api") == 0)
        return api_main();
    /* `atoll egress show ID` is a command; the role has two numbers. */
    if (argc == 4 && strcmp(argv[1], "egress") == 0 && argv[2][0] >= '0' && argv[2][0] <= '9')
        return egress_main(argv);
    if (argc >= 2 && strcmp(argv[1], "helper") == 0)
        return helper_main(argc, argv);
    if (argc == 2 && strcmp(argv[1], "agent-keep") == 0)
        return keeper_main();
    return cli_main(argc, argv);
}
