/*
 * Images: imported from a file, a directory, standard input or a Debian that is made on the spot;
 * listed, looked at, removed. What an archive is, the server finds out; here it is only sent.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/mem.h"
#include "cli/upload.h"
#include "tree/tar.h"

extern char **environ;

/* ---- an OCI layout directory, sent as tar ---- */

static int put_head(struct upload *upload, const char *name, uint64_t size, struct err *err)
{
    struct tar_raw head = { .type = '0' };

    if (strlen(name) > 99)
        return err_set(err, ERR_INVALID, "a name that no OCI layout has: %s", name);
    memcpy(head.name, name, strlen(name));
    tar_number(head.mode, sizeof(head.mode), 0644);
    tar_number(head.size, sizeof(head.size), size);
    tar_seal(&head);
    return upload_put(upload, (const char *)&head, sizeof(head), err);
}

static int put_file(struct upload *upload, int dir, const char *name, struct err *err)
{
    static const char zeros[TAR_BLOCK];
    autoclose int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return err_sys(err, "open %s", name);
    if (!S_ISREG(st.st_mode))
        return err_set(err, ERR_INVALID, "%s is no file", name);
    uint64_t size = (uint64_t)st.st_size, before = upload->sent + TAR_BLOCK;
    if (put_head(upload, name, size, err) < 0 || upload_fd(upload, fd, name, err) < 0)
        return -1;
    if (!upload->refused && upload->sent - before != size)
        return err_set(err, ERR_CONFLICT, "%s changed while it was read", name);
    return size % TAR_BLOCK ? upload_put(upload, zeros, TAR_BLOCK - size % TAR_BLOCK, err) : 0;
}

static int put_blobs(struct upload *upload, int dir, struct err *err)
{
    int fd = openat(dir, "blobs/sha256", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *blobs = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;
    int rc = 0;

    if (!blobs)
        return err_sys(err, "open blobs/sha256");
    while (rc == 0 && (entry = readdir(blobs))) {
        char name[300];

        if (entry->d_name[0] == '.')
            continue;
        snprintf(name, sizeof(name), "blobs/sha256/%s", entry->d_name);
        rc = put_file(upload, dir, name, err);
    }
    closedir(blobs);
    return rc;
}

static int put_layout(struct upload *upload, int dir, struct err *err)
{
    static const char end[1024];

    if (put_file(upload, dir, "oci-layout", err) < 0 ||
        put_file(upload, dir, "index.json", err) < 0 || put_blobs(upload, dir, err) < 0)
        return -1;
    return upload_put(upload, end, sizeof(end), err);
}

/* ---- import ---- */

/* "dir/debian-12.tar.gz" is debian-12. */
static const char *name_from(struct cli *cli, const char *file)
{
    static const char *const ends[] = { ".gz", ".xz", ".zst", ".tgz", ".txz", ".tar", ".oci" };
    const char *slash = strrchr(file, '/');
    struct str name = str_of(slash ? slash + 1 : file);

    for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
        size_t n = strlen(ends[i]);

        if (name.n > n && memcmp(name.p + name.n - n, ends[i], n) == 0)
            name.n -= n;
    }
    return arena_memdup0(&cli->arena, name.p, name.n);
}

/*
 * Not before there is something to send: whoever makes the archive may need minutes for its first
 * byte, and the server gives up on a body that does not come.
 */
static int begin(struct upload *upload, struct cli *cli, int fd, const char *name, struct err *err)
{
    struct pollfd waits = { .fd = fd, .events = POLLIN };

    while (poll(&waits, 1, -1) < 0)
        if (errno != EINTR)
            return err_sys(err, "wait for the archive");
    return upload_begin(upload, cli,
                        arena_printf(&cli->arena, "/api/v1/images?name=%s", cli_escape(cli, name)),
                        err);
}

static int show_imported(struct cli *cli, struct upload *upload, struct err *err)
{
    const struct json *reply;

    if (upload_end(upload, &reply, err) < 0)
        return -1;
    return cli_word(cli, reply, "name");
}

static int import_run(struct cli *cli, struct err *err)
{
    const char *file = cli->args[0], *name = cli_text(cli, "name");
    bool from_stdin = strcmp(file, "-") == 0;
    autoclose int fd = from_stdin ? fcntl(0, F_DUPFD_CLOEXEC, 3) : open(file, O_RDONLY | O_CLOEXEC);
    autoupload struct upload upload = { 0 };
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return err_sys(err, "open %s", file);
    if (from_stdin && !name)
        return cli_usage(cli, err, "an archive from standard input needs --name");
    bool layout = S_ISDIR(st.st_mode);
    if (layout && fstatat(fd, "oci-layout", &st, 0) < 0)
        return err_set(
            err, ERR_INVALID,
            "%s is no OCI layout. A root tree is imported as tar: tar -C %s -c . | atoll "
            "image import - --name NAME",
            file, file);
    if (begin(&upload, cli, fd, name ? name : name_from(cli, file), err) < 0 ||
        (layout ? put_layout(&upload, fd, err) : upload_fd(&upload, fd, file, err)) < 0)
        return -1;
    if (show_imported(cli, &upload, err) < 0)
        return err_wrap(err, "import %s", from_stdin ? "standard input" : file);
    return 0;
}

static const struct cli_flag import_flags[] = {
    { "name", "NAME[:TAG]", "What it is called here; the file's name unless said" },
    { 0 },
};

const struct command cmd_image_import = {
    .name = "image import",
    .args = "FILE|DIR|-",
    .help = "Make an image from an archive.",
    .more =
        "FILE (or standard input, -) is a tar of a root tree, what `docker save` writes, or an OCI "
        "archive; plain or compressed with gzip, xz or zstd. DIR is an OCI layout. It is unpacked "
        "in a sandbox of its own; digests are checked, devices are left out, and files lose setuid "
        "and setgid. Layers that are there already are kept once.\n\n"
        "Commands in a sandbox made from it get its environment and working directory. They run as "
        "root where it says root or 0, otherwise as agent.\n\n"
        "Names are as those of registries: NAME, NAME:TAG, and parts with slashes between them.\n\n"
        "Examples:\n  docker save python:3.12 | atoll image import - --name python:3.12\n"
        "  docker save agentic/claude | atoll image import - --name agentic/claude:latest\n"
        "  atoll image import alpine-rootfs.tar.gz --name alpine\n"
        "  atoll run --image alpine -- cat /etc/os-release",
    .flags = import_flags,
    .traits = CMD_REMOTE,
    .run = import_run,
};

/* ---- build-debian ---- */

/*
 * What it makes goes into a file without a name first: it keeps its output open while it cleans up,
 * for longer than the server waits for a body. Its words go to the terminal.
 */
static int run_debootstrap(const char *const *argv, int out, struct err *err)
{
    posix_spawn_file_actions_t actions;
    int status;
    pid_t pid;

    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, out, 1);
    errno = posix_spawnp(&pid, argv[0], &actions, NULL, (char *const *)(uintptr_t)argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (errno == ENOENT)
        return err_set(err, ERR_UNSUPPORTED,
                       "mmdebstrap is not installed; on Debian and Ubuntu: apt-get install "
                       "mmdebstrap");
    if (errno)
        return err_sys(err, "start mmdebstrap");
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return err_sys(err, "wait for mmdebstrap");
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return err_set(err, ERR_UNAVAILABLE, "mmdebstrap failed; nothing was imported");
    return 0;
}

static int nameless_file(struct err *err)
{
    const char *dir = getenv("TMPDIR");
    int fd = open(dir && *dir ? dir : "/var/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

    return fd < 0 ? err_sys(err, "make a file in %s", dir && *dir ? dir : "/var/tmp") : fd;
}

static int build_run(struct cli *cli, struct err *err)
{
    autobuf struct buf include = { 0 };
    const char *suite = cli_text(cli, "suite");
    autoupload struct upload upload = { 0 };
    const struct json *images;

    for (size_t i = 1; i < cli->arg_count; i++) {
        if (cli->args[i][0] == '-' || strchr(cli->args[i], ','))
            return cli_usage(cli, err, "\"%s\" is no name of a package", cli->args[i]);
        buf_printf(&include, "%s%s", i > 1 ? "," : "--include=", cli->args[i]);
    }
    if (suite && suite[0] == '-')
        return cli_usage(cli, err, "--suite: \"%s\" is no name of a suite", suite);
    const char *argv[7] = { "mmdebstrap", "--variant=minbase", "--format=tar" };
    size_t argc = 3;
    if (include.len) /* an empty list is an error to it */
        argv[argc++] = buf_cstr(&include);
    argv[argc++] = suite ? suite : "bookworm";
    argv[argc++] = "-";
    if (cli_get(cli, &images, err, "/api/v1/images") < 0)
        return -1; /* rather now than in some minutes */
    autoclose int fd = nameless_file(err);
    if (fd < 0 || run_debootstrap(argv, fd, err) < 0)
        return -1;
    if (lseek(fd, 0, SEEK_SET) < 0)
        return err_sys(err, "what mmdebstrap made");
    if (begin(&upload, cli, fd, cli->args[0], err) < 0 ||
        upload_fd(&upload, fd, "what mmdebstrap made", err) < 0)
        return -1;
    return show_imported(cli, &upload, err);
}

static const struct cli_flag build_flags[] = {
    { "suite", "SUITE", "Release of Debian (bookworm)" },
    { 0 },
};

const struct command cmd_image_build_debian = {
    .name = "image build-debian",
    .args = "NAME [PACKAGE…]",
    .help = "Make an image of a fresh, small Debian with mmdebstrap.",
    .more =
        "mmdebstrap runs here, as you, and takes packages from where this machine does; what it "
        "makes is imported as any archive is.\n\n"
        "Example:\n  atoll image build-debian dev python3 git build-essential",
    .flags = build_flags,
    .traits = CMD_REMOTE,
    .run = build_run,
};

/* ---- looking, removing ---- */

const struct command cmd_image_ls = {
    .name = "image ls",
    .help = "List images, oldest first.",
    .traits = CMD_REMOTE,
    .view = { .path = "/api/v1/images",
              .member = "items",
              .table = "name,format,architecture,>bytes,>sandboxes,created_at" },
    .run = cli_view,
};

static int show_run(struct cli *cli, struct err *err)
{
    const struct json *reply;

    if (cli_get(cli, &reply, err, "/api/v1/images/%s", cli_escape(cli, cli->args[0])) < 0)
        return -1;
    if (cli->json)
        return cli_put_reply(cli);
    const struct json *config = json_get(reply, "config");
    (void)cli_details(cli, reply, "name,digest,format,architecture,bytes,sandboxes,by,created_at");
    (void)cli_details(cli, config, "user,workdir,entrypoint,cmd,env,labels");
    buf_puts(&cli->out, "\nlayers, the lowest first\n");
    return cli_table(cli, json_get(reply, "layers"), "diff_id,>bytes,>entries");
}

const struct command cmd_image_show = {
    .name = "image show",
    .args = "NAME",
    .help = "Show an image: digest, layers, and what it wishes for commands.",
    .traits = CMD_REMOTE,
    .run = show_run,
};

static int rm_run(struct cli *cli, struct err *)
{
    return cli_each(
        cli, &(struct cli_each){ .method = "DELETE", .path = "/api/v1/images", .what = "remove" });
}

const struct command cmd_image_rm = {
    .name = "image rm",
    .args = "NAME…",
    .help = "Remove images that no sandbox and no snapshot needs.",
    .traits = CMD_REMOTE,
    .run = rm_run,
};
