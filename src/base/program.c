/* Looks in three places relative to /proc/self/exe; see program.h. */
#include "base/program.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/str.h"

#ifndef ATOLL_LIBEXEC
#define ATOLL_LIBEXEC "/usr/local/libexec/atoll"
#endif

int program_open(const char *name, char **path, struct err *err)
{
    char self[4096];
    ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);

    if (len < 0)
        return err_sys(err, "find this program in /proc");
    self[len] = 0;
    const char *slash = strrchr(self, '/');
    struct str dir = { self, slash ? (size_t)(slash - self) : 0 };
    autofree char *beside = xprintf("%.*s/%s", STR_FMT(dir), name);
    autofree char *moved = xprintf("%.*s/../libexec/atoll/%s", STR_FMT(dir), name);
    autofree char *installed = xprintf("%s/%s", ATOLL_LIBEXEC, name);
    char **const places[] = { &beside, &moved, &installed };

    for (size_t i = 0; i < ARRAY_LEN(places); i++) {
        int fd = open(*places[i], O_PATH | O_CLOEXEC);

        if (fd < 0)
            continue;
        if (path)
            *path = take_ptr(places[i]);
        return fd;
    }
    return err_set(err, ERR_INTERNAL, "%s is neither at %s nor in %s; is atoll installed?", name,
                   beside, ATOLL_LIBEXEC);
}
