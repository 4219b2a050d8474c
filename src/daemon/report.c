/*
 * See report.h. The process that looks is nobody's child and holds none of our descriptors: neither
 * the lock nor a listener may outlive a server that is killed while it still looks.
 *
 * The directory is the api process's, which is not trusted with what root does there: the file is
 * made anew under a name of its own (O_EXCL follows no link) and takes its place by a rename.
 */
#include "daemon/report.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "host/leaks.h"
#include "host/probe.h"
#include "wire/layout.h"

#define REPORT_FD 3
#define REPORT_NEW "doctor.new"

/* Only what we were given, at a number that we know; what is printed is nobody's. */
static int let_go(int data_fd)
{
    autoclose int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);

    if (nothing < 0 || dup2(nothing, 0) < 0 || dup2(nothing, 1) < 0 || dup2(nothing, 2) < 0)
        return -1;
    if (data_fd != REPORT_FD && dup2(data_fd, REPORT_FD) < 0)
        return -1;
    take_fd(&nothing); /* closed with all others */
    return (int)syscall(SYS_close_range, REPORT_FD + 1, ~0u, 0);
}

static int put(struct str text, int64_t owner)
{
    unlinkat(REPORT_FD, REPORT_NEW, 0);
    autoclose int fd =
        openat(REPORT_FD, REPORT_NEW, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, text.p, text.n) != (ssize_t)text.n)
        return -1;
    if (owner >= 0 && fchown(fd, (uid_t)owner, (gid_t)owner) < 0)
        return -1;
    return renameat(REPORT_FD, REPORT_NEW, REPORT_FD, STATE_DOCTOR);
}

static _Noreturn void look(const char *state_dir, int data_fd, int64_t owner)
{
    struct probe_result *results = xcalloc(PROBES_MAX, sizeof(*results));
    struct buf text = { 0 };
    char now[CLOCK_TEXT_SIZE];

    setsid();
    if (let_go(data_fd) < 0)
        _exit(1);
    setpriority(PRIO_PROCESS, 0, 5); /* whoever starts with us comes first, but it is to end soon */
    clock_text(clock_wall_ms(), now);
    size_t count = host_probe(state_dir, results, PROBES_MAX);
    struct json_out json = json_to(&text);
    probe_json(&json, results, count, now);
    int rc = put(buf_view(&text), owner);
    host_sweep(state_dir);
    _exit(rc < 0);
}

void report_begin(const char *state_dir, int data_fd, int64_t owner)
{
    unlinkat(data_fd, STATE_DOCTOR, 0); /* of an earlier start, maybe of another kernel */
    pid_t pid = fork();
    if (pid == 0) {
        pid_t looks = fork();

        if (looks == 0)
            look(state_dir, data_fd, owner);
        _exit(looks < 0);
    }
    int status = 0;
    if (pid < 0 || waitpid(pid, &status, 0) < 0 || status != 0)
        log_warn("the machine is not looked at: atoll doctor does that by hand");
}
