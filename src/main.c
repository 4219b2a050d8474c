/* atoll-server: picks the role (serve, api, egress, proxy, helper), otherwise runs a command. */
#include <string.h>

#include "agent/keeper.h"
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

int main(int argc, char **argv)
{
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
