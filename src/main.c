/* Picks the role: serve, api, otherwise a CLI command. */
#include "cli/cli.h"

int main(int argc, char **argv)
{
    return cli_main(argc, argv);
}
