/* Descriptors land where they belong, whatever numbers they come from. */
#include "wire/layout.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/test.h"

/* A file that holds nothing but its number. */
static int numbered(int number, int at)
{
    int fd = memfd_create("n", MFD_CLOEXEC);
    char digit = (char)('a' + number);

    if (fd < 0 || write(fd, &digit, 1) != 1)
        _exit(101);
    if (fd == at)
        return fd;
    if (dup3(fd, at, O_CLOEXEC) < 0)
        _exit(102);
    close(fd);
    return at;
}

static int number_at(int fd)
{
    char digit = 0;

    return pread(fd, &digit, 1, 0) == 1 ? digit - 'a' : -1;
}

/* In a child: `count` files at the given numbers, the program's at `exec_at`. */
static int place(const int *at, unsigned count, int exec_at)
{
    int fds[PLACE_MAX];

    for (unsigned i = 0; i < count; i++)
        fds[i] = numbered((int)i, at[i]);
    int exec_fd = layout_place(fds, count, numbered(25, exec_at));
    if (exec_fd != 3 + (int)count)
        return 1;
    for (unsigned i = 0; i < count; i++)
        if (number_at(3 + (int)i) != (int)i || fcntl(3 + (int)i, F_GETFD) != 0)
            return 2;
    if (number_at(exec_fd) != 25 || fcntl(exec_fd, F_GETFD) != FD_CLOEXEC)
        return 3;
    for (int fd = exec_fd + 1; fd < 512; fd++)
        if (fcntl(fd, F_GETFD) >= 0)
            return 4;
    return fcntl(0, F_GETFD) >= 0 && fcntl(2, F_GETFD) >= 0 ? 0 : 5;
}

static void check_place(const int *at, unsigned count, int exec_at)
{
    int status;
    pid_t pid = fork();

    CHECK(pid >= 0);
    if (pid == 0) {
        for (int fd = 3; fd < 512; fd++)
            close(fd);
        _exit(place(at, count, exec_at));
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(WIFEXITED(status));
    CHECK_INT(WEXITSTATUS(status), 0);
}

TEST(in_place_reversed_shifted_and_far_away)
{
    check_place((const int[]){ 3, 4, 5 }, 3, 6);
    check_place((const int[]){ 5, 4, 3 }, 3, 6);
    check_place((const int[]){ 6, 3, 4 }, 3, 5);
    check_place((const int[]){ 300, 64, 65 }, 3, 3);
    check_place((const int[]){ 7 }, 1, 4);
    check_place(NULL, 0, 9);
}

TEST(random_places)
{
    for (int round = 0; round < 200; round++) {
        int at[21], taken[120] = { 0 };
        unsigned count = test_rand(20);

        for (unsigned i = 0; i <= count; i++) { /* the last is the program's */
            do
                at[i] = 3 + (int)test_rand(100);
            while (taken[at[i]]);
            taken[at[i]] = 1;
        }
        check_place(at, count, at[count]);
    }
}

TEST(more_than_fit_are_refused)
{
    static int fds[PLACE_MAX + 1];

    CHECK_INT(layout_place(fds, PLACE_MAX + 1, 0), -1);
    CHECK_INT(errno, EMFILE);
}
