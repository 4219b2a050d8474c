/* What a child of the warden gets of its descriptors, and that its table is its own. */
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/test.h"
#include "warden/boxes.h"

static struct rlimit old;

static void limit(rlim_t value)
{
    CHECK(getrlimit(RLIMIT_NOFILE, &old) == 0);
    CHECK(setrlimit(RLIMIT_NOFILE, &(struct rlimit){ value, old.rlim_max }) == 0);
}

static void limit_back(void)
{
    CHECK(setrlimit(RLIMIT_NOFILE, &old) == 0);
}

static int null_at(int from)
{
    autoclose int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    int at = fcntl(fd, F_DUPFD_CLOEXEC, from);

    CHECK(fd >= 0 && at >= 0);
    return at;
}

static bool is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

static int status_of(pid_t pid)
{
    int status = -1;

    CHECK(waitpid(pid, &status, 0) == pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(a_kept_descriptor_gets_a_high_number)
{
    limit(2ul * FDS_KEPT);
    int fd = null_at(0), was = fd;
    fd_lift(&fd);
    CHECK(fd >= (int)FDS_KEPT && is_open(fd) && !is_open(was));
    CHECK_INT(fcntl(fd, F_GETFD), FD_CLOEXEC);
    was = fd;
    fd_lift(&fd);
    CHECK_INT(fd, was);
    close(fd);
    int none = -1;
    fd_lift(&none);
    CHECK_INT(none, -1);
    limit_back();
}

TEST(where_no_high_number_is_to_be_had_it_stays)
{
    int fd = null_at(0), was = fd;

    limit(2ul * FDS_KEPT - 1);
    fd_lift(&fd);
    CHECK_INT(fd, was);
    limit_back();
    limit(2ul * FDS_KEPT);
    for (unsigned i = 0; i < FDS_KEPT; i++)
        null_at(FDS_KEPT);
    fd_lift(&fd);
    CHECK(fd == was && is_open(fd));
    for (unsigned i = 0; i < FDS_KEPT; i++)
        close((int)(FDS_KEPT + i));
    close(fd);
    limit_back();
}

/* 1 + the first of them that is there in a child, or 0: none. */
static int seen_in_child(int highest, const int *fds, unsigned count)
{
    struct clone_args args = { .exit_signal = SIGCHLD };
    int ends[2], pidfd = -1;

    CHECK(pipe2(ends, O_CLOEXEC) == 0);
    pid_t pid = clone_apart(&args, ends, MAX(highest, ends[1]), &pidfd);
    if (pid == 0) {
        for (unsigned i = 0; i < count; i++)
            if (is_open(fds[i]))
                _exit((int)i + 1);
        _exit(is_open(ends[0]) || !is_open(ends[1]) ? 99 : 0);
    }
    CHECK(pid > 0 && pidfd >= 0);
    close(ends[0]);
    close(ends[1]);
    close(pidfd);
    return status_of(pid);
}

TEST(a_child_has_no_descriptor_that_is_kept_for_a_box)
{
    limit(2ul * FDS_KEPT);
    int low = null_at(0), high[] = { null_at(FDS_KEPT), null_at(FDS_KEPT), null_at(FDS_KEPT) };
    CHECK_INT(seen_in_child(low, &low, 1), 1);
    CHECK_INT(seen_in_child(low, high, 3), 0);
    CHECK_INT(seen_in_child(high[0], high, 3), 1); /* it needs this one */
    CHECK_INT(seen_in_child(high[0], high + 1, 2), 0);
    CHECK(is_open(low) && is_open(high[2]));
    close(low);
    for (size_t i = 0; i < ARRAY_LEN(high); i++)
        close(high[i]);
    limit_back();
}

TEST(neither_changes_the_others_table)
{
    struct clone_args args = { .exit_signal = SIGCHLD };
    int ends[2], pidfd = -1, fd = null_at(0), spare = null_at(0);
    char byte = 0;

    close(spare);
    CHECK(pipe2(ends, O_CLOEXEC) == 0);
    pid_t pid = clone_apart(&args, ends, MAX(fd, ends[1]), &pidfd);
    if (pid == 0) { /* the warden closes `fd` meanwhile */
        bool done = dup2(ends[1], spare + 10) >= 0 && write(ends[1], "a", 1) == 1;

        poll(NULL, 0, 20);
        _exit(done && is_open(fd) ? 0 : 1);
    }
    close(fd);
    close(ends[1]);
    CHECK(pid > 0 && read(ends[0], &byte, 1) == 1 && byte == 'a');
    CHECK(!is_open(spare + 10));
    CHECK_INT(read(ends[0], &byte, 1), 0); /* it has ended: nobody else writes */
    CHECK_INT(status_of(pid), 0);
    close(ends[0]);
    close(pidfd);
}

TEST(a_child_that_ends_before_it_has_a_table_is_an_error)
{
    struct clone_args args = { .exit_signal = SIGCHLD };
    int ends[2], pidfd = -1;

    CHECK(pipe2(ends, O_CLOEXEC) == 0);
    int mute[] = { ends[0], ends[0] }; /* it cannot say a word */
    CHECK_INT(clone_apart(&args, mute, ends[1], &pidfd), -1);
    CHECK_INT(errno, ECHILD);
    CHECK_INT(pidfd, -1);
    CHECK(waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD);
    close(ends[0]);
    close(ends[1]);
}
