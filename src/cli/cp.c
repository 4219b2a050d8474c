/*
 * `atoll cp`: files and trees between here and a sandbox, with the rules of cp(1): into a directory
 * that is there, otherwise under the new name. What comes out of a sandbox is hostile: a file is
 * made beside its place and moved there, a tree goes through the tree room's unpacker, and neither
 * follows a link below the destination or keeps a setuid bit.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/id.h"
#include "base/mem.h"
#include "cli/progress.h"
#include "cli/transfer.h"

/* ---- the two sides ---- */

struct place {
    const char *id;   /* of the sandbox, escaped; NULL: here */
    const char *path; /* there or here */
};

/* "SANDBOX:PATH" unless a '/' comes first, as with ./a:b. */
static struct place place_of(struct cli *cli, const char *text)
{
    const char *colon = strchr(text, ':'), *slash = strchr(text, '/');

    if (!colon || colon == text || (slash && slash < colon))
        return (struct place){ NULL, text };
    const char *id = arena_memdup0(&cli->arena, text, (size_t)(colon - text));
    return (struct place){ cli_escape(cli, id), colon[1] ? colon + 1 : "." };
}

/* The last name of a path; "" of "/", "." and "..", which name no place for a copy. */
static const char *last_name(struct cli *cli, const char *path)
{
    size_t len = strlen(path);

    while (len && path[len - 1] == '/')
        len--;
    size_t begin = len;
    while (begin && path[begin - 1] != '/')
        begin--;
    const char *name = arena_memdup0(&cli->arena, path + begin, len - begin);
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0 ? "" : name;
}

static const char *joined(struct cli *cli, const char *dir, const char *name)
{
    size_t len = strlen(dir);

    return arena_printf(&cli->arena, "%s%s%s", dir, len && dir[len - 1] == '/' ? "" : "/", name);
}

/* What is there in the sandbox: 'd', 'f', another kind 'o', 0 nothing; -1. */
static int kind_there(struct cli *cli, const struct place *place, uint64_t *size, unsigned *mode,
                      struct err *err)
{
    const struct json *reply;

    if (cli_get(cli, &reply, err, "/api/v1/sandboxes/%s/files/stat?follow=1&path=%s", place->id,
                cli_escape(cli, place->path)) < 0) {
        /* A sandbox that is not there is told apart by what the error names. */
        return err->code == ERR_NOT_FOUND && strncmp(err->msg, "no sandbox ", 11) != 0 ? 0 : -1;
    }
    struct str type = json_text(reply, "type");
    *size = (uint64_t)MAX(json_num(reply, "size", 0), (int64_t)0);
    *mode = 0;
    struct str text = json_text(reply, "mode");
    for (size_t i = 0; i < text.n && text.p[i] >= '0' && text.p[i] <= '7'; i++)
        *mode = (*mode * 8 + (unsigned)(text.p[i] - '0')) & 07777;
    return str_is(type, "directory") ? 'd' : str_is(type, "file") ? 'f' : 'o';
}

static int needs_recursive(struct cli *cli, const char *path, struct err *err)
{
    return cli_usage(cli, err, "%s is a directory; copy it with --recursive", path);
}

/* ---- up ---- */

static int up_tree(struct cli *cli, int fd, const struct place *to, int kind, const char *name,
                   struct err *err)
{
    const char *path = to->path;
    bool inside = kind == 'd' && name[0];

    if (kind && kind != 'd')
        return err_set(err, ERR_CONFLICT, "%s is no directory", to->path);
    if (inside)
        path = joined(cli, to->path, name);
    if ((inside || !kind) && cli_call(cli, "POST", STR_NONE, NULL, err,
                                      "/api/v1/sandboxes/%s/files/mkdir?parents=%d&path=%s", to->id,
                                      inside, cli_escape(cli, path)) < 0)
        return -1;
    return transfer_tree(cli, to->id, path, fd, NULL, err);
}

static int up(struct cli *cli, const char *from, const struct place *to, struct err *err)
{
    autoclose int fd = open(from, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    const char *name = last_name(cli, from), *path = to->path;
    size_t len = strlen(path);
    struct stat st;
    uint64_t size;
    unsigned mode;

    if (fd < 0 || fstat(fd, &st) < 0)
        return err_sys(err, "%s", from);
    if (S_ISDIR(st.st_mode) && !cli_has(cli, "recursive"))
        return needs_recursive(cli, from, err);
    int kind = kind_there(cli, to, &size, &mode, err);
    if (kind < 0)
        return -1;
    if (S_ISDIR(st.st_mode))
        return up_tree(cli, fd, to, kind, name, err);
    if (!S_ISREG(st.st_mode))
        return err_set(err, ERR_INVALID, "%s is not a regular file", from);
    if (kind == 'd' || path[len - 1] == '/')
        path = joined(cli, path, name);
    return transfer_file_up(cli, to->id, path, fd, st.st_mode, err);
}

/* ---- down ---- */

/* The directory that holds the destination, opened, and the name in it. */
static int open_above(struct cli *cli, const char *path, const char **name, struct err *err)
{
    *name = last_name(cli, path);
    if (!(*name)[0])
        return err_set(err, ERR_INVALID, "%s is no name for a file", path);
    char *above = arena_strdup(&cli->arena, path);
    size_t len = strlen(above);
    while (len && above[len - 1] == '/')
        len--;
    len -= strlen(*name);
    above[len] = 0;
    int fd = open(len ? above : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? err_sys(err, "%s", len ? above : ".") : fd;
}

/*
 * A file without a name, where the file system has such: whoever ends us, nothing of it is left. It
 * gets `temp` when it is whole.
 */
static int open_unnamed(int dir, const char *temp, bool *named)
{
    int fd = openat(dir, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);

    *named = fd < 0;
    return *named ? openat(dir, temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600)
                  : fd;
}

static int give_name(int fd, int dir, const char *temp, bool *named)
{
    char self[32];

    if (*named)
        return 0;
    snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
    if (linkat(AT_FDCWD, self, dir, temp, AT_SYMLINK_FOLLOW) < 0)
        return -1;
    *named = true;
    return 0;
}

static int down_file(struct cli *cli, const struct place *from, const char *to, uint64_t size,
                     unsigned mode, struct err *err)
{
    char temp[ID_SIZE + 1];
    const char *name;
    bool named;
    autoclose int dir = open_above(cli, to, &name, err);

    if (dir < 0)
        return -1;
    temp[0] = '.';
    id_make(temp + 1, "cp");
    autoclose int fd = open_unnamed(dir, temp, &named);
    if (fd < 0)
        return err_sys(err, "%s", to);
    int rc = transfer_file(cli, from->id, from->path, size, fd, err);
    if (rc == 0 && (fchmod(fd, mode & 0777) < 0 || give_name(fd, dir, temp, &named) < 0 ||
                    renameat(dir, temp, dir, name) < 0))
        rc = err_sys(err, "%s", to);
    if (rc < 0 && named)
        unlinkat(dir, temp, 0);
    return rc;
}

/* "-" is standard output: the bytes of one file, and nothing is made here. */
static int down_stream(struct cli *cli, const struct place *from, int kind, struct err *err)
{
    if (kind != 'f')
        return err_set(err, ERR_INVALID, "only a file can go to standard output");
    return transfer_file(cli, from->id, from->path, UINT64_MAX, cli->out_fd, err);
}

static int down_tree(struct cli *cli, const struct place *from, const char *to, struct err *err)
{
    const char *name;
    autoclose int above = open_above(cli, to, &name, err);

    if (above < 0)
        return -1;
    if (mkdirat(above, name, 0777) < 0 && errno != EEXIST)
        return err_sys(err, "%s", to);
    autoclose int dir = tree_open(above, name, O_RDONLY | O_DIRECTORY, 0);
    if (dir < 0)
        return err_sys(err, "%s", to);
    return transfer_tree_back(cli, from->id, from->path, dir, err);
}

static int down(struct cli *cli, const struct place *from, const char *to, struct err *err)
{
    const char *name = last_name(cli, from->path);
    uint64_t size;
    unsigned mode;
    struct stat st;
    int kind = kind_there(cli, from, &size, &mode, err);

    if (kind <= 0)
        return -1; /* nothing is there: the server has said it */
    if (strcmp(to, "-") == 0)
        return down_stream(cli, from, kind, err);
    bool into = stat(to, &st) == 0 && S_ISDIR(st.st_mode);
    if (kind == 'd' && !cli_has(cli, "recursive"))
        return needs_recursive(cli, from->path, err);
    if (kind == 'd' && into && !name[0]) { /* "SANDBOX:." into a directory: what is in it */
        autoclose int dir = open(to, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

        return dir < 0 ? err_sys(err, "%s", to)
                       : transfer_tree_back(cli, from->id, from->path, dir, err);
    }
    if (into)
        to = joined(cli, to, name);
    return kind == 'd' ? down_tree(cli, from, to, err) : down_file(cli, from, to, size, mode, err);
}

/* ---- the command ---- */

static int cp_run(struct cli *cli, struct err *err)
{
    struct place from = place_of(cli, cli->args[0]), to = place_of(cli, cli->args[1]);
    struct sigaction ignore = { .sa_handler = SIG_IGN };

    sigaction(SIGXFSZ, &ignore, NULL); /* a limit of file sizes is an error with words, too */
    if (!from.id == !to.id)
        return cli_usage(cli, err, "one of the two must be SANDBOX:PATH, the other a path here");
    progress_begin(cli);
    int rc = from.id ? down(cli, &from, to.path, err) : up(cli, from.path, &to, err);
    progress_end(cli, true);
    return rc < 0 ? err_wrap(err, "copy %s to %s", cli->args[0], cli->args[1]) : EXIT_OK;
}

static const struct cli_flag cp_flags[] = {
    { "recursive", NULL, "Directories too, with everything below them" },
    { 0 },
};

const struct command cmd_cp = {
    .name = "cp",
    .args = "SRC DST",
    .help = "Copy a file or a directory into a sandbox, or out of it.",
    .more =
        "One of the two is SANDBOX:PATH, where a relative PATH begins at /workspace; a path here "
        "with a colon in its first part is written ./a:b. A destination that is a directory gets "
        "the copy inside, as with cp(1). Permissions are kept but for setuid and setgid; owners "
        "are not. SRC that is a symbolic link is followed; those below it are copied as links, and "
        "below the destination none is followed. DST - is standard output, for one file. "
        "Sockets, FIFOs and devices are left out. On a terminal progress is shown.\n\n"
        "Examples:\n  atoll cp notes.txt build:\n  atoll cp --recursive src build:/workspace/src\n"
        "  atoll cp build:out/report.pdf .\n"
        "  atoll cp build:log.txt - | tail\n  atoll cp --recursive build:. results",
    .flags = cp_flags,
    .traits = CMD_REMOTE,
    .run = cp_run,
};
