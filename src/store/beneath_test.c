/*
 * A store below a directory that the process may not pass: as in `atoll serve` started by root with
 * its state in root's home. Needs root, because only another user is kept out.
 */
#include "store/beneath.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/mem.h"
#include "base/test.h"
#include "store/db.h"
#include "store/store.h"

#define OTHER_UID 64200

/* In a child: becomes another user below a closed directory and opens a store there. */
static int open_as_other(const char *data, const char *name, bool beneath)
{
    pid_t pid = fork();
    int status;

    CHECK(pid >= 0);
    if (pid == 0) {
        struct db *db = NULL;
        struct err err = { 0 };

        if (chdir(data) < 0 || setresgid(OTHER_UID, OTHER_UID, OTHER_UID) < 0 ||
            setresuid(OTHER_UID, OTHER_UID, OTHER_UID) < 0)
            _exit(9);
        if (beneath)
            store_beneath_cwd();
        int rc = store_open_alone(&db, name, true, &err);
        if (rc == 0)
            store_close_alone(db);
        else
            fprintf(stderr, "(expected when it must fail) %s\n", err.msg);
        _exit(rc == 0 ? 0 : 1);
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(WIFEXITED(status));
    return WEXITSTATUS(status);
}

TEST(a_store_opens_below_a_directory_that_may_not_be_passed)
{
    if (geteuid() != 0)
        test_skip("needs root");
    const char *dir = test_dir(); /* mode 0700, ours */
    autofree char *data = xprintf("%s/data", dir), *db = xprintf("%s/atoll.db", data);
    struct stat st;

    CHECK(mkdir(data, 0700) == 0 && chown(data, OTHER_UID, OTHER_UID) == 0);
    CHECK_INT(open_as_other(data, "atoll.db", false), 1); /* or the rest proves nothing */
    CHECK_INT(open_as_other(data, "atoll.db", true), 0);
    CHECK(stat(db, &st) == 0 && st.st_size > 0 && st.st_uid == OTHER_UID);
    CHECK_INT(open_as_other(data, "atoll.db", true), 0); /* and again, with the file there */
}

TEST(nothing_outside_of_the_working_directory_opens)
{
    if (geteuid() != 0)
        test_skip("needs root");
    const char *dir = test_dir();
    autofree char *data = xprintf("%s/data", dir), *sub = xprintf("%s/sub", data);
    autofree char *link = xprintf("%s/link.db", data), *away = xprintf("%s/away", data);
    autofree char *other = xprintf("%s/other", dir);
    const char *const dirs[] = { data, sub, other };

    CHECK(chmod(dir, 0711) == 0);
    for (size_t i = 0; i < ARRAY_LEN(dirs); i++)
        CHECK(mkdir(dirs[i], 0700) == 0 && chown(dirs[i], OTHER_UID, OTHER_UID) == 0);
    CHECK_INT(open_as_other(data, "sub/atoll.db", true), 0);
    CHECK_INT(open_as_other(data, "./sub/second.db", true), 0);
    CHECK_INT(open_as_other(data, "../other/atoll.db", false), 0); /* may be, when not beneath */
    CHECK_INT(open_as_other(data, "../other/atoll.db", true), 1);
    CHECK(symlink("sub/atoll.db", link) == 0 && symlink("../other", away) == 0);
    CHECK_INT(open_as_other(data, "link.db", true), 1);
    CHECK_INT(open_as_other(data, "away/atoll.db", true), 1);
}
