/*
 * SQLite makes every path absolute and walks it from the root; a jailed process with another user's
 * state directory above its own may not. Here its few calls that take a path are replaced: "/" is
 * the working directory, so "atoll.db" becomes "/atoll.db" inside SQLite and "atoll.db" again at
 * the kernel, and no directory above is ever named. Links are not followed out of it either: the
 * last element must be a plain name in that directory.
 *
 * The jail has no /dev/urandom; SQLite's generator is seeded by getrandom instead.
 */
#include "store/beneath.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/id.h"

static bool wanted;

void store_beneath_cwd(void)
{
    wanted = true;
}

static const char *name_of(const char *path)
{
    while (*path == '/')
        path++;
    return *path ? path : ".";
}

static int at_open(const char *path, int flags, int mode)
{
    struct open_how how = {
        .flags = (unsigned)flags | O_CLOEXEC,
        .mode = flags & O_CREAT ? (unsigned)mode : 0,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
    };

    return (int)syscall(SYS_openat2, AT_FDCWD, name_of(path), &how, sizeof(how));
}

static int at_access(const char *path, int mode)
{
    return faccessat(AT_FDCWD, name_of(path), mode, AT_EACCESS);
}

static int at_stat(const char *path, struct stat *st)
{
    return lstat(name_of(path), st);
}

static int at_unlink(const char *path)
{
    return unlink(name_of(path));
}

static ssize_t at_readlink(const char *path, char *out, size_t size)
{
    (void)path, (void)out, (void)size;
    errno = EINVAL; /* no links here */
    return -1;
}

static char *at_getcwd(char *out, size_t size)
{
    if (size < 2) {
        errno = ERANGE;
        return NULL;
    }
    memcpy(out, "/", 2);
    return out;
}

static int seed(sqlite3_vfs *vfs, int size, char *out)
{
    (void)vfs;
    random_bytes(out, (size_t)size);
    return size;
}

void beneath_apply(void)
{
    static const struct {
        const char *name;
        sqlite3_syscall_ptr fn;
    } calls[] = {
        { "open", (sqlite3_syscall_ptr)at_open },
        { "access", (sqlite3_syscall_ptr)at_access },
        { "stat", (sqlite3_syscall_ptr)at_stat },
        { "lstat", (sqlite3_syscall_ptr)at_stat },
        { "unlink", (sqlite3_syscall_ptr)at_unlink },
        { "readlink", (sqlite3_syscall_ptr)at_readlink },
        { "getcwd", (sqlite3_syscall_ptr)at_getcwd },
    };
    sqlite3_vfs *vfs = wanted ? sqlite3_vfs_find(NULL) : NULL;

    if (!wanted)
        return;
    for (size_t i = 0; i < ARRAY_LEN(calls); i++)
        if (!vfs || vfs->xSetSystemCall(vfs, calls[i].name, calls[i].fn) != SQLITE_OK) {
            fprintf(stderr, "atoll: SQLite has no system call %s to replace\n", calls[i].name);
            abort();
        }
    vfs->xRandomness = seed;
}
