/*
 * File operations. A fork and not a vfork, because the child goes on in our own code: it becomes
 * the workload's user exactly as a command does, makes itself undumpable again (becoming somebody
 * may undo that), and runs one function of the table. What it holds of process 1 is a copy of
 * memory that nobody inside can read. It answers on its output; what goes wrong is one struct
 * init_fault on its errors, also when it did not come as far as the operation.
 *
 * Nothing here waits for a peer other than its own input and output: files are opened without
 * blocking and looked at before they are read, so a FIFO or a device is told apart, not opened.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "init/init.h"

#define OUT_SIZE 65536
#define PIPE_SIZE 262144

static const struct operation {
    const char *name;
    unsigned args;
    int (*run)(struct builtin *job);
    bool beneath; /* opens by builtin_open alone, so it can be kept beneath a directory */
} operations[] = {
    { "read", 1, builtin_read, true },        { "write", 3, builtin_write, true },
    { "append", 2, builtin_append, true },    { "stat", 2, builtin_stat, true },
    { "mkdir", 3, builtin_mkdir, true },      { "list", 3, builtin_list, false },
    { "move", 3, builtin_move, false },       { "remove", 2, builtin_remove, false },
    { "tar", 1, builtin_tar, false },         { "untar", 1, builtin_untar, false },
    { "watch", 2, builtin_watch, false },     { "manifest", 1, builtin_manifest, false },
    { "changes", 1, builtin_changes, false }, { "ports", 0, builtin_ports, false },
    { "connect", 1, builtin_connect, false }, { "ps", 0, builtin_ps, false },
    { "trust", 1, builtin_trust, false },
};

/* ---- output ---- */

static char *out_mem; /* of the child alone */
static size_t out_len;

int builtin_write_all(int fd, const char *data, size_t len)
{
    while (len) {
        ssize_t put = write(fd, data, len);

        if (put < 0 && errno != EINTR)
            return -1;
        if (put > 0) {
            data += put;
            len -= (size_t)put;
        }
    }
    return 0;
}

int builtin_flush(void)
{
    size_t len = out_len;

    out_len = 0;
    return builtin_write_all(1, out_mem, len);
}

static int put(void *ctx, const void *data, size_t len)
{
    (void)ctx;
    if (out_len + len > OUT_SIZE && builtin_flush() < 0)
        return -1;
    if (len >= OUT_SIZE)
        return builtin_write_all(1, data, len);
    memcpy(out_mem + out_len, data, len);
    out_len += len;
    return 0;
}

static void put_fault(const struct tree_fail *fail)
{
    char text[sizeof(struct init_fault) + TREE_PATH_MAX];
    struct init_fault fault = { .magic = INIT_FAULT_MAGIC,
                                .error = fail->error,
                                .why = fail->why,
                                .path_len = (uint32_t)strlen(fail->path) };

    memcpy(text, &fault, sizeof(fault));
    memcpy(text + sizeof(fault), fail->path, fault.path_len);
    if (builtin_write_all(2, text, sizeof(fault) + fault.path_len) < 0)
        _exit(INIT_BUILTIN_FAILED + 1); /* nobody to tell */
}

/* ---- what the operations share ---- */

int builtin_sys(struct builtin *job, const char *path)
{
    return tree_fail(&job->fail, TREE_SYSTEM, errno, path);
}

int builtin_number(struct builtin *job, const char *text, int base, uint64_t max, uint64_t *out)
{
    char *end;

    errno = 0;
    unsigned long long value = strtoull(text, &end, base);
    if (errno || *end || text[0] < '0' || text[0] > '9' || value > max)
        return tree_fail(&job->fail, TREE_USAGE, EINVAL, text);
    *out = value;
    return 0;
}

int builtin_open(struct builtin *job, const char *path, int flags)
{
    autoclose int fd = tree_open_any(path, flags, 0);

    if (fd < 0)
        return builtin_sys(job, path);
    if (!tree_place_ok(fd))
        return tree_fail(&job->fail, TREE_PLACE, EACCES, path);
    return take_fd(&fd);
}

int builtin_parent(struct builtin *job, const char *path, char name[])
{
    size_t len = strlen(path), begin;
    char above[TREE_PATH_MAX + 1];

    while (len && path[len - 1] == '/')
        len--;
    for (begin = len; begin && path[begin - 1] != '/'; begin--)
        ;
    size_t name_len = len - begin;
    if (name_len == 0 || (name_len <= 2 && memcmp(path + begin, "..", name_len) == 0))
        return tree_fail(&job->fail, TREE_USAGE, EINVAL, path);
    if (name_len > TREE_NAME_MAX || begin > TREE_PATH_MAX)
        return tree_fail(&job->fail, TREE_SYSTEM, ENAMETOOLONG, path);
    memcpy(name, path + begin, name_len);
    name[name_len] = 0;
    memcpy(above, path, begin);
    above[begin] = 0;
    return builtin_open(job, begin ? above : ".", O_PATH | O_DIRECTORY);
}

/* ---- the child ---- */

static unsigned count_of(char *const *args)
{
    unsigned count = 0;

    while (args[count])
        count++;
    return count;
}

/* "beneath DIR" before an operation; moves on to the operation itself. */
static int stay_beneath(struct builtin *job, const char **name)
{
    const char *dir = job->args[0];

    if (count_of(job->args) < 2)
        return tree_fail(&job->fail, TREE_USAGE, EINVAL, dir);
    if (chdir(dir) < 0)
        return builtin_sys(job, dir);
    tree_stay_beneath();
    *name = job->args[1];
    job->args += 2;
    return 0;
}

static int run(struct spawn *spawn, struct builtin *job)
{
    const char *name = spawn->argv[0];
    bool beneath = strcmp(name, "beneath") == 0;

    /* Where there is nobody but the agent, what root would own is the agent's (wire/box.h). */
    if (strcmp(name, "trust") == 0 && getuid() == INIT_AGENT_UID)
        spawn->as_root = false;

    if (spawn_become(spawn) < 0)
        return tree_fail(&job->fail, TREE_SYSTEM, spawn->error, spawn->cwd);
    if (guard(operation_dumpable))
        prctl(PR_SET_DUMPABLE, 0);
    out_mem = malloc(OUT_SIZE);
    if (!out_mem)
        return tree_fail(&job->fail, TREE_SYSTEM, ENOMEM, NULL);
    if (beneath && stay_beneath(job, &name) < 0)
        return -1;
    for (size_t i = 0; i < ARRAY_LEN(operations); i++) {
        const struct operation *op = &operations[i];

        if (strcmp(op->name, name) != 0)
            continue;
        if (count_of(job->args) != op->args || (beneath && !op->beneath))
            break;
        if (op->run(job) < 0)
            return -1;
        return builtin_flush() < 0 ? builtin_sys(job, NULL) : 0;
    }
    return tree_fail(&job->fail, TREE_USAGE, ENOSYS, name);
}

pid_t builtin_spawn(struct spawn *spawn)
{
    /* Fewer wake-ups for whoever moves much; the default will do where it is refused. */
    for (int i = 0; i < 2; i++)
        fcntl(spawn->stdio[i], F_SETPIPE_SZ, PIPE_SIZE);
    spawn->error = 0;
    spawn->step = INIT_STEP_NONE;
    /* check-style: allow fork: the child runs our own code and ends here */
    pid_t pid = fork();
    if (pid < 0) {
        spawn->error = errno;
        spawn->step = INIT_STEP_SPAWN;
        return -1;
    }
    if (pid > 0)
        return pid;
    struct builtin job = { .args = spawn->argv + 1,
                           .side = spawn->side != 0,
                           .out = { .put = put } };
    if (run(spawn, &job) == 0)
        _exit(0);
    put_fault(&job.fail);
    _exit(INIT_BUILTIN_FAILED);
}
