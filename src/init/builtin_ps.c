/*
 * The processes of the sandbox, as /proc shows them to the workload's user. Other operations of
 * init's own are among them (they are undumpable, so of those little is told), and so is this one,
 * which leaves itself out.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "init/init.h"

static ssize_t read_file(int dir, const char *name, char *out, size_t size)
{
    autoclose int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, out, size - 1);

    out[got > 0 ? got : 0] = 0;
    return got;
}

/* Arguments one after the other; without any (a kernel thread, one that has ended) its name. */
static size_t command_of(int dir, const char *name, size_t name_len, char *out)
{
    ssize_t got = read_file(dir, "cmdline", out, INIT_PROCESS_TEXT + 1);

    if (got <= 0) {
        memcpy(out, name, name_len);
        return name_len;
    }
    while (got > 0 && !out[got - 1])
        got--;
    for (ssize_t i = 0; i < got; i++)
        if (!out[i])
            out[i] = ' ';
    return (size_t)got;
}

static int tell(struct builtin *job, int dir, pid_t pid)
{
    char stat_text[1024], text[INIT_PROCESS_TEXT + 1];
    struct init_process record = { .pid = (uint32_t)pid };
    unsigned long user, system;
    unsigned parent, threads;
    unsigned long long start;
    long pages;
    char state;
    struct stat st;

    if (read_file(dir, "stat", stat_text, sizeof(stat_text)) <= 0 || fstat(dir, &st) < 0)
        return 0; /* it has ended */
    const char *name = strchr(stat_text, '('), *after = strrchr(stat_text, ')');
    if (!name || !after || after < name ||
        sscanf(after + 1,
               " %c %u %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu %*d %*d %*d %*d %u %*d %llu %*u "
               "%ld",
               &state, &parent, &user, &system, &threads, &start, &pages) != 7)
        return 0;
    long tick = sysconf(_SC_CLK_TCK);
    record.parent = parent;
    record.uid = st.st_uid;
    record.threads = threads;
    record.state = (uint8_t)state;
    record.rss = pages > 0 ? (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
    record.cpu_us = (uint64_t)(user + system) * (uint64_t)(1000000 / (tick > 0 ? tick : 100));
    record.text_len = (uint16_t)command_of(dir, name + 1, (size_t)(after - name - 1), text);
    if (job->out.put(job->out.ctx, &record, sizeof(record)) < 0 ||
        job->out.put(job->out.ctx, text, record.text_len) < 0)
        return builtin_sys(job, NULL);
    return 0;
}

int builtin_ps(struct builtin *job)
{
    DIR *all = opendir("/proc");
    const struct dirent *entry;
    int rc = 0;

    if (!all)
        return builtin_sys(job, "/proc");
    while (rc == 0 && (entry = readdir(all))) {
        char *end;
        long pid = strtol(entry->d_name, &end, 10);

        if (pid < 1 || *end || pid == getpid() || pid == spawn_spare())
            continue; /* ours, and nobody's yet */
        autoclose int dir = openat(dirfd(all), entry->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (dir >= 0)
            rc = tell(job, dir, (pid_t)pid);
    }
    closedir(all);
    return rc;
}
