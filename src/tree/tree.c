/* What the operations share: failures, opening without being led astray, and the records. */
#include "tree/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/vfs.h>

#include "base/guard.h"

int tree_fail(struct tree_fail *fail, enum tree_why why, int error, const char *path)
{
    fail->why = why;
    fail->error = error;
    fail->path[0] = 0;
    if (path) {
        size_t len = strnlen(path, TREE_PATH_MAX);

        memmove(fail->path, path, len);
        fail->path[len] = 0;
    }
    return -1;
}

const char *tree_why_text(uint32_t why)
{
    static const char *const texts[TREE_WHYS] = {
        [TREE_SYSTEM] = "",
        [TREE_KIND] = "not that kind of file",
        [TREE_PLACE] = "no files are kept on that file system",
        [TREE_OUTSIDE] = "leads out of the destination",
        [TREE_ARCHIVE] = "not a tar archive that can be read",
        [TREE_LIMIT] = "over a limit",
        [TREE_USAGE] = "not a proper request",
    };

    return why < TREE_WHYS ? texts[why] : "?";
}

/* ---- opening ---- */

#define OPEN_TRIES 100

static int open_how(int dir, const char *path, int flags, mode_t mode, uint64_t resolve)
{
    struct open_how how = { .flags = (uint32_t)flags | O_CLOEXEC, .resolve = resolve };

    /* openat2 refuses what it would ignore. */
    if (flags & O_PATH)
        how.flags &= O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    else
        how.flags |= O_NOCTTY;
    if (flags & O_CREAT)
        how.mode = mode;
    /* With ".." in a path the kernel gives up when anybody anywhere renames just then. */
    int fd = -1;
    for (int i = 0; i < OPEN_TRIES; i++) {
        fd = (int)syscall(SYS_openat2, dir, path, &how, sizeof(how));
        if (fd >= 0 || errno != EAGAIN)
            break;
    }
    return fd;
}

int tree_open(int dir, const char *path, int flags, mode_t mode)
{
    return open_how(dir, path, flags, mode,
                    RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS);
}

static uint64_t beneath; /* RESOLVE_BENEATH, or nothing */

void tree_stay_beneath(void)
{
    beneath = guard(file_beneath) ? RESOLVE_BENEATH : 0;
}

int tree_open_any(const char *path, int flags, mode_t mode)
{
    return open_how(AT_FDCWD, path, flags, mode,
                    beneath | (guard(file_magic) ? RESOLVE_NO_MAGICLINKS : 0));
}

bool tree_place_ok(int fd)
{
    static const unsigned long none[] = { PROC_SUPER_MAGIC, SYSFS_MAGIC, CGROUP_SUPER_MAGIC,
                                          CGROUP2_SUPER_MAGIC, DEVPTS_SUPER_MAGIC };
    struct statfs at;

    if (fstatfs(fd, &at) < 0)
        return false;
    for (size_t i = 0; i < ARRAY_LEN(none); i++)
        if ((unsigned long)at.f_type == none[i] && guard(file_place))
            return false;
    return true;
}

/* ---- records ---- */

size_t tree_record_put(char *out, const struct stat *st, const char *name, const char *link,
                       const uint8_t *sha256)
{
    struct tree_record head = { .name_len = (uint16_t)strnlen(name, TREE_PATH_MAX),
                                .link_len = (uint16_t)(link ? strnlen(link, TREE_PATH_MAX) : 0),
                                .mode = st->st_mode,
                                .uid = st->st_uid,
                                .gid = st->st_gid,
                                .flags = sha256 ? TREE_HASHED : 0,
                                .size = (uint64_t)st->st_size,
                                .mtime = st->st_mtim.tv_sec,
                                .mtime_ns = (uint32_t)st->st_mtim.tv_nsec };

    if (sha256)
        memcpy(head.sha256, sha256, sizeof(head.sha256));
    memcpy(out, &head, sizeof(head));
    memcpy(out + sizeof(head), name, head.name_len);
    if (head.link_len)
        memcpy(out + sizeof(head) + head.name_len, link, head.link_len);
    return sizeof(head) + head.name_len + head.link_len;
}

void tree_record_before(char *record)
{
    struct tree_record head;

    memcpy(&head, record, sizeof(head));
    head.flags |= TREE_BEFORE;
    memcpy(record, &head, sizeof(head));
}

static bool name_ok(const char *name, size_t len)
{
    size_t begin = 0;

    if (len == 0 || memchr(name, 0, len))
        return false;
    for (size_t i = 0; i <= len; i++) {
        if (i < len && name[i] != '/')
            continue;
        size_t part = i - begin;

        if (part == 0 || part > TREE_NAME_MAX || (part == 1 && name[begin] == '.') ||
            (part == 2 && name[begin] == '.' && name[begin + 1] == '.'))
            return false;
        begin = i + 1;
    }
    return true;
}

static bool kind_ok(uint32_t mode)
{
    uint32_t kind = mode & S_IFMT;

    return (mode & ~(uint32_t)(S_IFMT | 07777)) == 0 &&
           (kind == S_IFREG || kind == S_IFDIR || kind == S_IFLNK || kind == S_IFIFO ||
            kind == S_IFSOCK || kind == S_IFCHR || kind == S_IFBLK);
}

ssize_t tree_record_take(const char *data, size_t len, struct tree_entry *out)
{
    struct tree_record *head = &out->head;

    if (len < sizeof(*head))
        return 0;
    memcpy(head, data, sizeof(*head));
    if (head->name_len > TREE_PATH_MAX || head->link_len > TREE_PATH_MAX || !kind_ok(head->mode) ||
        head->size > INT64_MAX || head->mtime_ns > 999999999 ||
        (head->flags & ~(uint32_t)(TREE_HASHED | TREE_BEFORE)) ||
        (head->link_len != 0 && !S_ISLNK(head->mode)))
        return -1;
    size_t whole = sizeof(*head) + head->name_len + head->link_len;
    if (len < whole)
        return 0;
    out->name = data + sizeof(*head);
    out->link = out->name + head->name_len;
    if (!name_ok(out->name, head->name_len) ||
        (head->link_len && memchr(out->link, 0, head->link_len)))
        return -1;
    return (ssize_t)whole;
}
