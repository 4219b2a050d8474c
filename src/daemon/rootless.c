/*
 * One user namespace for all sandboxes of an ordinary user's server: id 0 in it is that user, 1 and
 * on are the user's subordinate ids (/etc/subuid, /etc/subgid), mapped by the two setuid programs
 * of the package uidmap, which check that they are the user's to have. Without a range, or without
 * those programs, 0 is all there is; sandboxes then run as the user itself.
 *
 * The namespace is made by a child and entered through a descriptor, so a failure on the way leaves
 * us as we were. It lives as long as a process is in it or below: when a server was killed, its
 * sandboxes are in the old one, over which a new one would have no power. So the old one is looked
 * for first, by the command line of a sandbox's process 1, and entered again.
 *
 * All this happens before the warden is executed, because what is executed inside of a namespace
 * belongs to it: its own files in /proc could not be written otherwise.
 */
#include "daemon/rootless.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/nsfs.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/log.h"
#include "host/subid.h"

/* ---- the namespace that is there already ---- */

static bool is_init_of(const char *pid, const char *mark)
{
    char path[300], text[256] = "";

    snprintf(path, sizeof(path), "/proc/%s/cmdline", pid);
    autoclose int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t len = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    size_t first = sizeof("atoll-init");
    return len > (ssize_t)first && strcmp(text, "atoll-init") == 0 &&
           strcmp(text + first, mark) == 0;
}

static bool same_file(int one, int two)
{
    struct stat a, b;

    return fstat(one, &a) == 0 && fstat(two, &b) == 0 && a.st_dev == b.st_dev &&
           a.st_ino == b.st_ino;
}

/* The namespace above a sandbox's, if it is ours and directly below the one we are in; or -1. */
static int outer_of(const char *pid)
{
    char path[300];
    uid_t owner = (uid_t)-1;

    snprintf(path, sizeof(path), "/proc/%s/ns/user", pid);
    autoclose int box = open(path, O_RDONLY | O_CLOEXEC);
    autoclose int here = open("/proc/self/ns/user", O_RDONLY | O_CLOEXEC);
    autoclose int outer = box < 0 ? -1 : ioctl(box, NS_GET_PARENT);
    if (outer < 0 || here < 0 || same_file(outer, here) ||
        ioctl(outer, NS_GET_OWNER_UID, &owner) < 0 || owner != geteuid())
        return -1;
    autoclose int above = ioctl(outer, NS_GET_PARENT);
    return above >= 0 && same_file(above, here) ? take_fd(&outer) : -1;
}

static int find_outer(int state_fd)
{
    DIR *dir = opendir("/proc");
    struct dirent *entry;
    struct stat st;
    char mark[64];
    int found = -1;

    if (fstat(state_fd, &st) == 0)
        snprintf(mark, sizeof(mark), "atoll-%llx-%llx", (unsigned long long)st.st_dev,
                 (unsigned long long)st.st_ino);
    while (dir && found < 0 && (entry = readdir(dir)))
        if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9' && is_init_of(entry->d_name, mark))
            found = outer_of(entry->d_name);
    if (dir)
        closedir(dir);
    return found;
}

/* ---- a new one ---- */

static int put(pid_t pid, const char *file, const char *text)
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, file);
    autoclose int fd = open(path, O_WRONLY | O_CLOEXEC);
    return fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text) ? -1 : 0;
}

/* Only the own ids, which needs nobody's help. */
static int map_own(pid_t pid)
{
    char text[64];

    snprintf(text, sizeof(text), "0 %u 1\n", geteuid());
    if (put(pid, "uid_map", text) < 0 || put(pid, "setgroups", "deny") < 0)
        return -1;
    snprintf(text, sizeof(text), "0 %u 1\n", getegid());
    return put(pid, "gid_map", text);
}

/* newuidmap PID 0 OWN 1 1 FIRST COUNT; its own words on why not go to our standard error. */
static int map_with(const char *program, pid_t target, unsigned own, struct subid_range range)
{
    char words[4][16];
    int status;

    snprintf(words[0], sizeof(words[0]), "%d", (int)target);
    snprintf(words[1], sizeof(words[1]), "%u", own);
    snprintf(words[2], sizeof(words[2]), "%u", range.first);
    snprintf(words[3], sizeof(words[3]), "%u", range.count);
    pid_t pid = fork();
    if (pid == 0) {
        execl(program, program, words[0], "0", words[1], "1", "1", words[2], words[3],
              (char *)NULL);
        _exit(127);
    }
    while (pid > 0 && waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return -1;
    return pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -1;
}

static int map_child(pid_t pid, bool *ranged)
{
    struct subid map;
    const char *why = subid_look(&map);

    *ranged = !why;
    if (!why && map_with(map.uid_program, pid, geteuid(), map.uids) == 0 &&
        map_with(map.gid_program, pid, getegid(), map.gids) == 0)
        return 0;
    if (!why)
        return -1; /* perhaps half mapped: once more, in a new one */
    log_warn("sandboxes run as this user itself", kv_str("why", why),
             kv_str("help", "atoll doctor"));
    return map_own(pid);
}

static _Noreturn void outer_child(int ready, int hold)
{
    char byte = 0;

    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (unshare(CLONE_NEWUSER) < 0)
        byte = (char)errno;
    if (write(ready, &byte, 1) == 1 && read(hold, &byte, 1) == 0)
        _exit(0);
    _exit(1);
}

/* A descriptor of a new namespace with its maps, or -1 with *err. */
static int make_outer(bool with_range, struct err *err)
{
    int ready[2], hold[2], fd = -1;
    char path[64], byte = 0;
    bool ranged = with_range;

    if (pipe2(ready, O_CLOEXEC) < 0)
        return err_sys(err, "a pipe");
    if (pipe2(hold, O_CLOEXEC) < 0) {
        close(ready[0]);
        close(ready[1]);
        return err_sys(err, "a pipe");
    }
    pid_t pid = fork();
    if (pid == 0) {
        close(hold[1]);
        outer_child(ready[1], hold[0]);
    }
    close(ready[1]);
    close(hold[0]);
    if (pid > 0 && read(ready[0], &byte, 1) == 1 && byte == 0 &&
        (with_range ? map_child(pid, &ranged) : map_own(pid)) == 0) {
        snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)pid);
        fd = open(path, O_RDONLY | O_CLOEXEC);
    }
    if (fd < 0)
        err_set(err, ERR_UNSUPPORTED, "a user namespace: %s", strerrordesc_np(byte ? byte : errno));
    close(ready[0]);
    close(hold[1]);
    while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
    if (fd >= 0 || byte || !ranged)
        return fd;
    log_warn("sandboxes run as this user itself", kv_str("why", "newuidmap or newgidmap refused"),
             kv_str("help", "atoll doctor"));
    return make_outer(false, err);
}

/* ---- entering ---- */

/* How many ids follow 0 in a map of ours. */
static int64_t ids_in(const char *path)
{
    FILE *file = fopen(path, "re");
    unsigned inside, outside, count, found = 0;

    while (file && fscanf(file, " %u %u %u", &inside, &outside, &count) == 3)
        if (inside == 1)
            found = count;
    if (file)
        fclose(file);
    return found;
}

/*
 * The working directory is the state directory for a moment: the kernel moves it along into the
 * copies of the mounts, so that it is opened again without a path that could be somebody else's.
 */
static int enter_mounts(int *state_fd)
{
    autoclose int before = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);

    if (fchdir(*state_fd) < 0 || unshare(CLONE_NEWNS) < 0)
        return -1;
    int fd = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    close(*state_fd);
    *state_fd = fd;
    return before < 0 || fchdir(before) < 0 ? chdir("/") : 0;
}

int64_t rootless_enter(int *state_fd, struct err *err)
{
    autoclose int found = find_outer(*state_fd);
    autoclose int outer = found >= 0 ? take_fd(&found) : make_outer(true, err);

    if (outer < 0)
        return ROOTLESS_NONE;
    if (setns(outer, CLONE_NEWUSER) < 0) {
        err_sys(err, "enter the user namespace");
        return ROOTLESS_NONE;
    }
    if (enter_mounts(state_fd) < 0) {
        log_error("cannot make a mount namespace", kv_str("error", strerrordesc_np(errno)));
        _exit(1); /* neither here nor there */
    }
    return MIN(ids_in("/proc/self/uid_map"), ids_in("/proc/self/gid_map"));
}
