/*
 * The lower layer of the default image: everything a box sees outside of /usr, which is the host's.
 *
 * Made once per change of what it is copied from, under a name that says from what: boxes that run
 * keep the one they began with. It is put together beside its name and renamed, so it is there
 * whole or not at all. From the host's /etc come only the files listed here, which hold no secrets:
 * never passwd, shadow, keys or anything of a service. Copies are made by descriptor, links are
 * copied as links, and a tree is walked by an explicit stack.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "warden/box.h"

#define SKELETON_VERSION 2
#define DEPTH_MAX 8
#define FILE_MAX (16u << 20)
#define AGENT 1000

static const struct {
    const char *path;
    mode_t mode;
    uid_t owner;
} dirs[] = {
    { "dev", 0755, 0 },       { "etc", 0755, 0 },
    { "home", 0755, 0 },      { "home/agent", 0755, AGENT },
    { "media", 0755, 0 },     { "mnt", 0755, 0 },
    { "opt", 0755, 0 },       { "proc", 0555, 0 },
    { "root", 0700, 0 },      { "run", 0755, 0 },
    { "run/lock", 01777, 0 }, { "srv", 0755, 0 },
    { "sys", 0555, 0 },       { "tmp", 01777, 0 },
    { "usr", 0755, 0 },       { "var", 0755, 0 },
    { "var/cache", 0755, 0 }, { "var/lib", 0755, 0 },
    { "var/log", 0755, 0 },   { "var/spool", 0755, 0 },
    { "var/tmp", 01777, 0 },  { "workspace", 0755, AGENT },
    { "etc/ssl", 0755, 0 },
};

static const char *const links[][2] = {
    { "usr/bin", "bin" },     { "usr/sbin", "sbin" },      { "usr/lib", "lib" },
    { "usr/lib32", "lib32" }, { "usr/lib64", "lib64" },    { "usr/libx32", "libx32" },
    { "/run", "var/run" },    { "/run/lock", "var/lock" }, { "/proc/self/mounts", "etc/mtab" },
};

static const struct {
    const char *path, *text;
} files[] = {
    { "etc/passwd", "root:x:0:0:root:/root:/bin/bash\n"
                    /* check-style: allow machine-path: the sandbox's own home */
                    "agent:x:1000:1000:agent:/home/agent:/bin/bash\n"
                    "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n" },
    { "etc/group", "root:x:0:\ntty:x:5:\nagent:x:1000:\nnogroup:x:65534:\n" },
    { "etc/hosts",
      "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n" EGRESS_SELF_TEXT
      " " EGRESS_NAME "\n" },
    { "etc/hostname", "sandbox\n" },
    { "etc/resolv.conf", "# any address would do: whoever is asked, the proxy answers\n"
                         "nameserver " EGRESS_SELF_TEXT "\n" },
    { "etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\nservices: files\n"
                           "protocols: files\n" },
    { "etc/host.conf", "multi on\n" },
    { "etc/shells", "/bin/sh\n/bin/bash\n" },
};

/* Files and trees of the host's /etc; what is not there is left out. */
static const char *const copies[] = {
    "ld.so.cache",    "ld.so.conf",      "ld.so.conf.d",
    "alternatives",   "ssl/certs",       "ca-certificates.conf",
    "localtime",      "timezone",        "protocols",
    "services",       "mime.types",      "os-release",
    "debian_version", "bash.bashrc",     "profile",
    "inputrc",        "terminfo",        "python3",
    "perl",           "java-17-openjdk", "locale.alias",
    "default/locale", "gitconfig",
};

static int put_text(int root, const char *path, const char *body)
{
    autoclose int fd = openat(root, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);

    return fd < 0 || fchmod(fd, 0644) < 0 || write(fd, body, strlen(body)) != (ssize_t)strlen(body)
               ? -1
               : 0;
}

/* The owners are the box's own, which an ordinary user's copy on disk cannot have. */
static bool with_owners;

static int put_dir(int root, const char *path, mode_t mode, uid_t owner)
{
    if (mkdirat(root, path, 0700) < 0 && errno != EEXIST)
        return -1;
    return (with_owners && fchownat(root, path, owner, owner, AT_SYMLINK_NOFOLLOW) < 0) ||
                   fchmodat(root, path, mode, 0) < 0
               ? -1
               : 0;
}

/* ---- copying ---- */

static int copy_file(int from, int to, const char *name, mode_t mode)
{
    static char block[65536];
    autoclose int in = openat(from, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    autoclose int out = openat(to, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    ssize_t got;
    size_t total = 0;

    if (in < 0 || out < 0)
        return -1;
    while ((got = read(in, block, sizeof(block))) > 0)
        if ((total += (size_t)got) > FILE_MAX || write(out, block, (size_t)got) != got)
            return -1;
    return got < 0 ? -1 : fchmod(out, mode & 0755);
}

static int copy_link(int from, int to, const char *name)
{
    char target[4096];
    ssize_t len = readlinkat(from, name, target, sizeof(target) - 1);

    if (len < 0)
        return -1;
    target[len] = 0;
    return symlinkat(target, to, name);
}

struct level {
    DIR *from;
    int to;
};

/* A directory is made and walked later; everything else is copied. Others' secrets are left out:
 * only what everybody may read. */
static int copy_entry(int from, int to, const char *name, struct level *below)
{
    struct stat st;

    if (fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return -1;
    if (S_ISLNK(st.st_mode))
        return copy_link(from, to, name);
    if (S_ISREG(st.st_mode))
        return st.st_mode & 004 ? copy_file(from, to, name, st.st_mode) : 0;
    if (!S_ISDIR(st.st_mode) || (st.st_mode & 005) != 005)
        return 0;
    int fd = openat(from, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || !(below->from = fdopendir(fd))) {
        if (fd >= 0)
            close(fd);
        return -1;
    }
    if (put_dir(to, name, 0755, 0) < 0)
        return -1;
    below->to = openat(to, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return below->to < 0 ? -1 : 0;
}

static void level_close(struct level *level)
{
    if (level->from)
        closedir(level->from);
    if (level->to >= 0)
        close(level->to);
    *level = (struct level){ NULL, -1 };
}

static int copy_tree(int from, int to, const char *name)
{
    struct level stack[DEPTH_MAX] = { 0 };
    int depth = 0, rc;

    for (int i = 0; i < DEPTH_MAX; i++)
        stack[i].to = -1;
    rc = copy_entry(from, to, name, &stack[0]);
    while (rc == 0 && depth >= 0 && stack[depth].from) {
        struct dirent *entry = readdir(stack[depth].from);

        if (!entry) {
            level_close(&stack[depth]);
            if (--depth < 0)
                break;
            continue;
        }
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (depth + 1 == DEPTH_MAX)
            continue;
        rc =
            copy_entry(dirfd(stack[depth].from), stack[depth].to, entry->d_name, &stack[depth + 1]);
        depth += stack[depth + 1].from != NULL;
    }
    for (int i = 0; i < DEPTH_MAX; i++)
        level_close(&stack[i]);
    return rc;
}

/* "ssl/certs": the directory above is there already. */
static int copy_path(int etc, int to_etc, const char *path)
{
    const char *slash = strchr(path, '/');
    char above[64] = ".";
    struct stat st;

    if (slash)
        snprintf(above, sizeof(above), "%.*s", (int)(slash - path), path);
    if (fstatat(etc, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT || errno == ENOTDIR ? 0 : -1;
    if (slash && put_dir(to_etc, above, 0755, 0) < 0)
        return -1;
    autoclose int from = openat(etc, above, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    autoclose int to = openat(to_etc, above, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (from < 0 || to < 0)
        return -1;
    return copy_tree(from, to, slash ? slash + 1 : path);
}

/* ---- removing ---- */

/* Of our own making and so never deep; anything deeper stays, and the next rmdir fails. */
static int remove_tree(int at, const char *name)
{
    struct level stack[DEPTH_MAX + 4];
    char names[DEPTH_MAX + 4][256];
    int depth = 0;

    snprintf(names[0], sizeof(names[0]), "%s", name);
    stack[0] = (struct level){ NULL, at };
    for (;;) {
        int up = stack[depth].to, fd;
        struct dirent *entry = NULL;

        fd = openat(up, names[depth], O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        DIR *dir = fd < 0 ? NULL : fdopendir(fd);
        bool descend = false;
        while (dir && !descend && (entry = readdir(dir))) {
            if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
                continue;
            descend =
                unlinkat(fd, entry->d_name, 0) < 0 && errno == EISDIR && depth + 1 < DEPTH_MAX + 4;
        }
        if (descend) {
            snprintf(names[depth + 1], sizeof(names[0]), "%s", entry->d_name);
            stack[++depth] = (struct level){ dir, fd };
            continue;
        }
        if (dir)
            closedir(dir);
        int rc = unlinkat(up, names[depth], AT_REMOVEDIR), error = errno;
        if (depth == 0 || rc < 0) {
            for (; depth > 0; depth--)
                closedir(stack[depth].from);
            errno = error;
            return rc < 0 && error != ENOENT ? -1 : 0;
        }
        closedir(stack[depth--].from);
    }
}

/* ---- the whole ---- */

static int fill(int root)
{
    for (size_t i = 0; i < ARRAY_LEN(dirs); i++)
        if (put_dir(root, dirs[i].path, dirs[i].mode, dirs[i].owner) < 0)
            return -1;
    for (size_t i = 0; i < ARRAY_LEN(links); i++)
        if (symlinkat(links[i][0], root, links[i][1]) < 0)
            return -1;
    for (size_t i = 0; i < ARRAY_LEN(files); i++)
        if (put_text(root, files[i].path, files[i].text) < 0)
            return -1;
    autoclose int etc = open("/etc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    autoclose int to_etc = openat(root, "etc", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (etc < 0 || to_etc < 0)
        return -1;
    for (size_t i = 0; i < ARRAY_LEN(copies); i++)
        if (copy_path(etc, to_etc, copies[i]) < 0)
            return -1;
    return fchmod(root, 0755);
}

/* What a skeleton depends on: this file, and when what it copies was last changed. */
static uint64_t stamp(void)
{
    static const char *const paths[] = { "/etc/ld.so.cache", "/etc/alternatives", "/etc/ssl/certs",
                                         "/etc/localtime" };
    uint64_t sum = 1469598103934665603u + SKELETON_VERSION;

    for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
        struct stat st = { 0 };

        if (stat(paths[i], &st) < 0)
            st.st_mtim.tv_sec = -1;
        sum = (sum ^ (uint64_t)st.st_mtim.tv_sec) * 1099511628211u;
        sum = (sum ^ (uint64_t)st.st_mtim.tv_nsec) * 1099511628211u;
    }
    return sum;
}

int skeleton_dirs(int dir_fd, uid_t uid_first)
{
    with_owners = true; /* in the child: nobody else sees it */
    for (size_t i = 0; i < ARRAY_LEN(dirs); i++)
        if (put_dir(dir_fd, dirs[i].path, dirs[i].mode, uid_first + dirs[i].owner) < 0)
            return -1;
    return 0;
}

int skeleton_open(int state_fd, bool owners)
{
    static const char made[] = "host.new"; /* one server per state directory, so one maker */
    char name[64];

    with_owners = owners;
    if (mkdirat(state_fd, "images", 0711) < 0 && errno != EEXIST)
        return -1;
    autoclose int images =
        openat(state_fd, "images", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (images < 0)
        return -1;
    snprintf(name, sizeof(name), "host-%016llx", (unsigned long long)stamp());
    int fd = openat(images, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 || errno != ENOENT)
        return fd;
    if (remove_tree(images, made) < 0 || mkdirat(images, made, 0700) < 0)
        return -1;
    autoclose int root = openat(images, made, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (root < 0 || fill(root) < 0 || renameat(images, made, images, name) < 0)
        return -1;
    return openat(images, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}
