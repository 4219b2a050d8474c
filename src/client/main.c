/*
 * atoll - the command that people and scripts start. It holds the commands that are clients of a
 * server and links libc alone, because a command of a few milliseconds must not spend half of them
 * in the loader. A command line that this program does not know (`atoll serve`, `atoll backup`,
 * help, a spelling mistake) is given unchanged to `atoll-server`, which knows every command.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/program.h"
#include "cli/cli.h"

#define SERVER "atoll-server"

static char **arguments;

/* Replaces this process by the server program. */
static void hand_over(void)
{
    autofree char *path = NULL;
    struct err err = { 0 };

    if (program_open(SERVER, &path, &err) >= 0) {
        execv(path, arguments);
        (void)err_sys(&err, "start %s", path);
    }
    fprintf(stderr, "atoll: %s\n", err.msg);
    _exit(EXIT_ERROR);
}

int main(int argc, char **argv)
{
    arguments = argv;
    cli_elsewhere = hand_over;
    return cli_main(argc, argv);
}
