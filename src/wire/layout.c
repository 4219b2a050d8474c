/*
 * Placing descriptors: first everything is moved out of the way, above any target, so that no move
 * can overwrite one that is still to be moved.
 */
#include "wire/layout.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PLACE_FIRST 3
#define PLACE_ABOVE 64

_Static_assert(PLACE_FIRST + PLACE_MAX + 1 <= PLACE_ABOVE, "targets and moved ones overlap");

int layout_place(const int *fds, unsigned count, int exec_fd)
{
    int moved[PLACE_MAX], exec_moved, exec_at = PLACE_FIRST + (int)count;

    if (count > PLACE_MAX) {
        errno = EMFILE;
        return -1;
    }
    for (unsigned i = 0; i < count; i++)
        if ((moved[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, PLACE_ABOVE)) < 0)
            return -1;
    if ((exec_moved = fcntl(exec_fd, F_DUPFD_CLOEXEC, PLACE_ABOVE)) < 0)
        return -1;
    for (unsigned i = 0; i < count; i++)
        if (dup2(moved[i], PLACE_FIRST + (int)i) < 0)
            return -1;
    if (dup3(exec_moved, exec_at, O_CLOEXEC) < 0)
        return -1;
    if (syscall(SYS_close_range, exec_at + 1, ~0u, 0) < 0)
        return -1;
    return exec_at;
}
