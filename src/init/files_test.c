/* files: a kernel that cannot keep rules about files; what it can is in warden/files_test.c. */
#include "init/files.c"

#include <seccomp.h>
#include <sys/wait.h>

#include "base/test.h"

/* What is said where the kernel refuses a set with this. A filter stays, so a child has it. */
static int enter_where(int error)
{
    pid_t pid = fork();
    int status = -1;

    if (pid == 0) {
        static char rule[] = "r/usr";
        char *rules[] = { rule, NULL };
        uint32_t which = 0;
        scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);

        if (!filter ||
            seccomp_rule_add(filter, SCMP_ACT_ERRNO((uint32_t)error),
                             SCMP_SYS(landlock_create_ruleset), 0) < 0 ||
            seccomp_load(filter) < 0)
            _exit(255);
        int rc = files_enter(rules, &which);
        _exit(which == INIT_FILES_MAX ? rc : 254); /* none of the rules is to blame */
    }
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
    return WEXITSTATUS(status);
}

TEST(a_kernel_without_such_rules_is_told_from_other_errors)
{
    CHECK_INT(enter_where(EOPNOTSUPP), EOPNOTSUPP); /* turned off */
    CHECK_INT(enter_where(ENOSYS), EOPNOTSUPP);     /* before Linux 5.13 */
    CHECK_INT(enter_where(EINVAL), EOPNOTSUPP);     /* before 6.2 */
    CHECK_INT(enter_where(ENOMEM), ENOMEM);
}
