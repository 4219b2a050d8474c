/*
 * One file at a time. Writing is atomic: a file without a name is filled, given a name of its own
 * when all has arrived and moved to its place, so a reader sees the old or the new one, and a
 * writer that is killed leaves nothing behind. A symbolic link in that place is replaced.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>

#include "init/init.h"

#define CHUNK 65536
#define SIDE_CHUNK 262144
#define SPLICE (1 << 20) /* at once; a pipe holds less */
#define TEMP_SIZE 24
#define TEMP_TRIES 16

static int put_record(struct builtin *job, const struct stat *st, const char *name,
                      const char *link)
{
    char record[sizeof(struct tree_record) + TREE_NAME_MAX + TREE_PATH_MAX];
    size_t len = tree_record_put(record, st, name, link, NULL);

    return job->out.put(job->out.ctx, record, len) < 0 ? builtin_sys(job, NULL) : 0;
}

/* A regular file, told apart before it is opened for more than looking. */
static int open_regular(struct builtin *job, const char *path, int flags, struct stat *st)
{
    autoclose int fd = builtin_open(job, path, flags | O_NONBLOCK);

    if (fd < 0)
        return -1;
    if (fstat(fd, st) < 0)
        return builtin_sys(job, path);
    if (!S_ISREG(st->st_mode) && guard(file_kind))
        return tree_fail(&job->fail, TREE_KIND, S_ISDIR(st->st_mode) ? EISDIR : EINVAL, path);
    return take_fd(&fd);
}

/* Devices may do something when they are opened; a name that is one is not opened at all. */
static int look_regular(struct builtin *job, const char *path)
{
    struct stat st;
    int fd = open_regular(job, path, O_PATH, &st);

    if (fd >= 0)
        close(fd);
    return fd < 0 ? -1 : 0;
}

static int read_exactly(int fd, void *out, size_t len)
{
    for (size_t done = 0; done < len;) {
        ssize_t got = read(fd, (char *)out + done, len - done);

        if (got <= 0 && !(got < 0 && errno == EINTR))
            return -1;
        done += got > 0 ? (size_t)got : 0;
    }
    return 0;
}

/* As long as the kernel moves pages by itself; what is left of the range is left to be copied. */
static int give_pages(int fd, int to, struct init_range *range)
{
    while (range->len) {
        off_t at = (off_t)range->offset;
        size_t most = (size_t)MIN(range->len, (uint64_t)SPLICE);
        ssize_t moved =
            to == SPAWN_SIDE ? sendfile(to, fd, &at, most) : splice(fd, &at, to, NULL, most, 0);

        if (moved < 0 && errno == EINTR)
            continue;
        if (moved <= 0) /* a file system that cannot; the end is told by who reads it */
            return moved < 0 && errno == EPIPE ? -1 : 0;
        range->offset += (uint64_t)moved;
        range->len -= (uint64_t)moved;
    }
    return 0;
}

int builtin_read(struct builtin *job)
{
    const char *path = job->args[0];
    autofree char *chunk = malloc(CHUNK);
    struct init_range range;
    struct stat st;

    if (!chunk)
        return builtin_sys(job, path);
    if (look_regular(job, path) < 0)
        return -1;
    autoclose int fd = open_regular(job, path, O_RDONLY, &st);
    if (fd < 0 || put_record(job, &st, "file", NULL) < 0)
        return -1;
    if (builtin_flush() < 0)
        return builtin_sys(job, NULL);
    if (read_exactly(0, &range, sizeof(range)) < 0)
        return 0; /* they only wanted to know */
    int to = job->side && range.side ? SPAWN_SIDE : 1;
    if (give_pages(fd, to, &range) < 0)
        return builtin_sys(job, path);
    while (range.len) {
        ssize_t got =
            pread(fd, chunk, (size_t)MIN(range.len, (uint64_t)CHUNK), (off_t)range.offset);

        if (got < 0)
            return builtin_sys(job, path);
        if (got == 0)
            return tree_fail(&job->fail, TREE_SYSTEM, ENODATA, path); /* it has shrunk */
        if (builtin_write_all(to, chunk, (size_t)got) < 0)
            return builtin_sys(job, NULL);
        range.offset += (uint64_t)got;
        range.len -= (uint64_t)got;
    }
    return 0;
}

/* ---- writing ---- */

static int put_chunk(struct builtin *job, int to, const char *chunk, size_t len, const char *path)
{
    for (size_t put = 0; put < len;) {
        ssize_t n = write(to, chunk + put, len - put);

        if (n < 0)
            return builtin_sys(job, path);
        put += (size_t)n;
    }
    return 0;
}

/* Until the end of `from`; *total grows by what came. */
static int copy_rest(struct builtin *job, int from, int to, size_t at_once, const char *path,
                     uint64_t *total)
{
    autofree char *chunk = malloc(at_once);
    ssize_t got;

    if (!chunk)
        return builtin_sys(job, path);
    while ((got = read(from, chunk, at_once)) != 0) {
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return builtin_sys(job, NULL);
        if (put_chunk(job, to, chunk, (size_t)got, path) < 0)
            return -1;
        *total += (uint64_t)got;
    }
    return 0;
}

/* By the stream: all of it when as much has come as its input says in the end. */
static int copy_side(struct builtin *job, int to, const char *path)
{
    uint64_t total = 0, told;

    if (copy_rest(job, SPAWN_SIDE, to, SIDE_CHUNK, path, &total) < 0)
        return -1;
    if (read_exactly(0, &told, sizeof(told)) < 0 || told != total)
        return tree_fail(&job->fail, TREE_SYSTEM, EPIPE, path);
    return 0;
}

static int copy_input(struct builtin *job, int to, const char *path)
{
    uint64_t total = 0;
    ssize_t got;

    if (job->side)
        return copy_side(job, to, path);
    while ((got = splice(0, NULL, to, NULL, SPLICE, 0)) > 0)
        ;
    /* A file that does not take pages (one that is appended to, say): what is left is copied. */
    return got == 0 ? 0 : copy_rest(job, 0, to, CHUNK, path, &total);
}

static void temp_name(char out[TEMP_SIZE])
{
    uint64_t number = 0;

    if (getrandom(&number, sizeof(number), 0) < 0)
        number = (uint64_t)now_ms();
    snprintf(out, TEMP_SIZE, ".atoll%016llx", (unsigned long long)number);
}

/* A file without a name; where there is no such thing, one with a name that must be removed. */
static int make_temp(int dir, char name[TEMP_SIZE])
{
    int fd = openat(dir, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);

    name[0] = 0;
    for (int i = 0; fd < 0 && i < TEMP_TRIES; i++) {
        if (i == 0 ? errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL : errno != EEXIST)
            return -1;
        temp_name(name);
        fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    }
    return fd;
}

static int name_temp(int dir, int fd, char name[TEMP_SIZE])
{
    char own[32];

    if (name[0])
        return 0;
    snprintf(own, sizeof(own), "/proc/self/fd/%d", fd);
    for (int i = 0; i < TEMP_TRIES; i++) {
        temp_name(name);
        if (linkat(AT_FDCWD, own, dir, name, AT_SYMLINK_FOLLOW) == 0 ||
            linkat(fd, "", dir, name, AT_EMPTY_PATH) == 0)
            return 0;
        if (errno != EEXIST)
            break;
    }
    name[0] = 0;
    return -1;
}

static int store(struct builtin *job, int dir, const char *name, mode_t mode, bool sync)
{
    const char *path = job->args[0];
    char temp[TEMP_SIZE];
    struct stat st;
    autoclose int fd = make_temp(dir, temp);

    if (fd < 0)
        return builtin_sys(job, path);
    int rc = copy_input(job, fd, path);
    if (rc == 0 &&
        (fchmod(fd, mode) < 0 || (sync && fsync(fd) < 0) || name_temp(dir, fd, temp) < 0 ||
         renameat(dir, temp, dir, name) < 0 ||
         (sync && fsync(dir) < 0 && errno != EBADF && errno != EINVAL) || fstat(fd, &st) < 0))
        rc = builtin_sys(job, path);
    if (rc < 0) {
        if (temp[0])
            unlinkat(dir, temp, 0);
        return -1;
    }
    return put_record(job, &st, name, NULL);
}

int builtin_write(struct builtin *job)
{
    const char *path = job->args[0], *wish = job->args[1];
    char name[TREE_NAME_MAX + 1];
    uint64_t mode = 0644, sync;
    struct stat st;

    if ((strcmp(wish, "-") != 0 && builtin_number(job, wish, 8, 0777, &mode) < 0) ||
        builtin_number(job, job->args[2], 10, 1, &sync) < 0)
        return -1;
    autoclose int above = builtin_parent(job, path, name);
    if (above < 0)
        return -1;
    autoclose int dir = openat(above, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fstatat(above, name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
        if (!S_ISREG(st.st_mode) && !S_ISLNK(st.st_mode))
            return tree_fail(&job->fail, TREE_KIND, S_ISDIR(st.st_mode) ? EISDIR : EINVAL, path);
        if (strcmp(wish, "-") == 0 && S_ISREG(st.st_mode))
            mode = st.st_mode & 0777;
    }
    return store(job, dir >= 0 ? dir : above, name, (mode_t)mode, sync);
}

int builtin_append(struct builtin *job)
{
    const char *path = job->args[0];
    uint64_t sync;
    struct stat st;

    if (builtin_number(job, job->args[1], 10, 1, &sync) < 0)
        return -1;
    if (look_regular(job, path) < 0 && job->fail.error != ENOENT)
        return -1;
    autoclose int fd = tree_open_any(path, O_WRONLY | O_APPEND | O_CREAT | O_NONBLOCK, 0644);
    if (fd < 0 || fstat(fd, &st) < 0)
        return builtin_sys(job, path);
    if (!S_ISREG(st.st_mode))
        return tree_fail(&job->fail, TREE_KIND, EINVAL, path);
    if (!tree_place_ok(fd))
        return tree_fail(&job->fail, TREE_PLACE, EACCES, path);
    if (copy_input(job, fd, path) < 0)
        return -1;
    if ((sync && fsync(fd) < 0) || fstat(fd, &st) < 0)
        return builtin_sys(job, path);
    return put_record(job, &st, "file", NULL);
}

/* ---- looking ---- */

int builtin_stat(struct builtin *job)
{
    const char *path = job->args[0];
    char link[TREE_PATH_MAX + 1] = "";
    uint64_t follow;
    struct stat st;

    if (builtin_number(job, job->args[1], 10, 1, &follow) < 0)
        return -1;
    autoclose int fd = builtin_open(job, path, O_PATH | (follow ? 0 : O_NOFOLLOW));
    if (fd < 0)
        return -1;
    if (fstat(fd, &st) < 0)
        return builtin_sys(job, path);
    if (S_ISLNK(st.st_mode)) {
        ssize_t len = readlinkat(fd, "", link, TREE_PATH_MAX);

        link[len > 0 ? len : 0] = 0;
    }
    return put_record(job, &st, "file", link[0] ? link : NULL);
}

/* ---- changing names ---- */

int builtin_mkdir(struct builtin *job)
{
    const char *path = job->args[0];
    char name[TREE_NAME_MAX + 1], part[TREE_PATH_MAX + 1];
    uint64_t mode, parents;
    size_t len = strlen(path);

    if (builtin_number(job, job->args[1], 8, 0777, &mode) < 0 ||
        builtin_number(job, job->args[2], 10, 1, &parents) < 0)
        return -1;
    if (len > TREE_PATH_MAX)
        return tree_fail(&job->fail, TREE_SYSTEM, ENAMETOOLONG, path);
    for (size_t i = parents ? 1 : len; i <= len; i++) {
        struct stat st;

        if (i < len && path[i] != '/')
            continue;
        if (i < len && path[i - 1] == '/')
            continue;
        memcpy(part, path, i);
        part[i] = 0;
        autoclose int dir = builtin_parent(job, part, name);
        if (dir < 0 && job->fail.why == TREE_USAGE && i < len)
            continue; /* "." and ".." on the way are there already */
        if (dir < 0)
            return -1;
        if (mkdirat(dir, name, (mode_t)mode) == 0) {
            if (fchmodat(dir, name, (mode_t)mode, 0) < 0) /* whatever the umask says */
                return builtin_sys(job, part);
            continue;
        }
        if (errno != EEXIST || !parents)
            return builtin_sys(job, part);
        if (fstatat(dir, name, &st, 0) < 0 || !S_ISDIR(st.st_mode))
            return tree_fail(&job->fail, TREE_KIND, EEXIST, part);
    }
    return 0;
}

int builtin_move(struct builtin *job)
{
    char from[TREE_NAME_MAX + 1], to[TREE_NAME_MAX + 1];
    uint64_t replace;

    if (builtin_number(job, job->args[2], 10, 1, &replace) < 0)
        return -1;
    autoclose int from_dir = builtin_parent(job, job->args[0], from);
    autoclose int to_dir = from_dir < 0 ? -1 : builtin_parent(job, job->args[1], to);
    if (to_dir < 0)
        return -1;
    if (syscall(SYS_renameat2, from_dir, from, to_dir, to, replace ? 0 : RENAME_NOREPLACE) < 0)
        return builtin_sys(job, errno == ENOENT || errno == EACCES ? job->args[0] : job->args[1]);
    return 0;
}

int builtin_remove(struct builtin *job)
{
    const char *path = job->args[0];
    char name[TREE_NAME_MAX + 1];
    uint64_t recursive;

    if (builtin_number(job, job->args[1], 10, 1, &recursive) < 0)
        return -1;
    autoclose int dir = builtin_parent(job, path, name);
    if (dir < 0)
        return -1;
    if (recursive) {
        if (tree_remove(dir, name, &job->fail) == 0)
            return 0;
        return tree_fail(&job->fail, job->fail.why, job->fail.error, path);
    }
    if (unlinkat(dir, name, 0) == 0 || (errno == EISDIR && unlinkat(dir, name, AT_REMOVEDIR) == 0))
        return 0;
    return builtin_sys(job, path);
}
