/*
 * Rules about files: for each set of them one more Landlock domain, below the one that every
 * process of the sandbox is in. The kernel then asks at each open, by whatever way the file was
 * reached, whether it or something above it was named; children inherit it and nobody gets out.
 *
 * Always open, so that programs run: the places in `standard`. Not covered by Landlock: whether a
 * name is there and what stat(2) tells, chdir, and changes of mode, owner and times, which go by
 * the owner of the file alone. Under a set nothing can be mounted.
 *
 * This runs in a child that shares our memory (spawn.c): raw system calls, nothing allocated. Paths
 * are opened inside, as the command's user, through no magic link.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "init/init.h"

/*
 * Up to LANDLOCK_ACCESS_FS_TRUNCATE (Linux 6.2): a kernel that does not know it, and so refuses the
 * whole, would let a file be emptied that is closed.
 */
#define ALL_RIGHTS 0x7fffu
#define READ_RIGHTS                                                                                \
    (LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)
#define TRUNCATE_ (1u << 14) /* younger than some headers */
#define FILE_RIGHTS                                                                                \
    (LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_READ_FILE |   \
     TRUNCATE_)

static const char *const standard[] = { "r/usr",    "r/lib",  "r/lib32", "r/lib64",
                                        "r/libx32", "r/bin",  "r/sbin",  "r/etc",
                                        "w/dev",    "w/proc", "w/tmp" };

static int open_inside(const char *path)
{
    struct open_how how = { .flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_NO_MAGICLINKS };

    return (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof(how));
}

/* 0 or errno. */
static int add_rule(int set, const char *rule)
{
    struct stat st = { 0 };
    int fd = open_inside(rule + 1);
    int error = fd < 0 || fstat(fd, &st) < 0 ? errno : 0;

    if (!error) {
        struct landlock_path_beneath_attr beneath = {
            .allowed_access = (*rule | 32) == 'w' ? ALL_RIGHTS : READ_RIGHTS, .parent_fd = fd
        };

        if (!S_ISDIR(st.st_mode))
            beneath.allowed_access &= FILE_RIGHTS;
        if (syscall(SYS_landlock_add_rule, set, LANDLOCK_RULE_PATH_BENEATH, &beneath, 0) < 0)
            error = errno;
    }
    if (fd >= 0)
        close(fd);
    return error;
}

static bool in_set(const char *rule, unsigned number)
{
    return (*rule < 'a') == (number == 1);
}

static int fill(int set, char *const *rules, unsigned number, uint32_t *which)
{
    for (size_t i = 0; i < ARRAY_LEN(standard); i++) {
        int error = add_rule(set, standard[i]);

        if (error && error != ENOENT)
            return error;
    }
    for (uint32_t i = 0; rules[i]; i++) {
        int error = in_set(rules[i], number) ? add_rule(set, rules[i]) : 0;

        if (error) {
            *which = i;
            return error;
        }
    }
    return syscall(SYS_landlock_restrict_self, set, 0) < 0 ? errno : 0;
}

static int enter_set(char *const *rules, unsigned number, uint32_t *which)
{
    const uint64_t handled = ALL_RIGHTS;
    bool any = false;

    for (char *const *rule = rules; *rule; rule++)
        any |= in_set(*rule, number);
    if (!any)
        return 0;
    int set = (int)syscall(SYS_landlock_create_ruleset, &handled, sizeof(handled), 0);
    if (set < 0)
        return errno == EINVAL || errno == ENOSYS ? EOPNOTSUPP : errno;
    int error = fill(set, rules, number, which);
    close(set);
    return error;
}

int files_enter(char *const *rules, uint32_t *which)
{
    *which = INIT_FILES_MAX;
    int error = enter_set(rules, 0, which);

    return error ? error : enter_set(rules, 1, which);
}
