/*
 * remove: somebody moves the directory that is just being emptied, or puts a link in its place. At
 * one certain call, not by luck; and without the guard against it (base/guard.h) what is elsewhere
 * is removed.
 */
#define ATOLL_UNGUARDED
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/test.h"
#include "tree/tree.h"

static int move_dir = -1;
static bool with_link;

/*
 * Whoever removes "last" is inside of in/d/e, and finds itself in out/e. Whoever has found that
 * in/d/e has something in it finds a link to out in its place.
 */
static int unlink_and_move(int at, const char *name, int flags)
{
    if (strcmp(name, "last") == 0 && !with_link)
        (void)!renameat(move_dir, "in/d/e", move_dir, "out/e");
    int rc = unlinkat(at, name, flags);
    if (rc < 0 && errno == ENOTEMPTY && strcmp(name, "e") == 0 && with_link)
        (void)!renameat2(move_dir, "in/d/e", move_dir, "link", RENAME_EXCHANGE);
    return rc;
}

#define tree_remove remove_while_moved
#define unlinkat unlink_and_move
int remove_while_moved(int dir, const char *name, struct tree_fail *fail);
#include "tree/remove.c"
#undef tree_remove
#undef unlinkat

static void make(int dir, const char *name)
{
    autoclose int fd = openat(dir, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

    CHECK(fd >= 0);
}

/* Is what lies elsewhere still there? */
static bool stays_without(const char *guards)
{
    struct tree_fail failure;
    autoclose int dir = open(test_dir(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    CHECK(mkdirat(dir, "in", 0755) == 0 && mkdirat(dir, "in/d", 0755) == 0 &&
          mkdirat(dir, "in/d/e", 0755) == 0 && mkdirat(dir, "out", 0755) == 0 &&
          mkdirat(dir, "out/too", 0755) == 0 && symlinkat("../../out", dir, "link") == 0);
    make(dir, "out/stays");
    make(dir, "in/d/e/last");
    make(dir, "in/d/beside");
    move_dir = dir;
    CHECK(setenv("ATOLL_WITHOUT", guards, 1) == 0);
    int rc = remove_while_moved(dir, "in/d", &failure);
    CHECK(unsetenv("ATOLL_WITHOUT") == 0);
    bool stays = faccessat(dir, "out/stays", F_OK, 0) == 0;
    if (!*guards && with_link) {
        CHECK_INT(failure.error, ENOTDIR);
        CHECK(rc < 0 && faccessat(dir, "link/last", F_OK, 0) == 0); /* it was moved */
    } else if (!*guards) {
        CHECK_INT(rc, 0);
        CHECK(faccessat(dir, "in/d", F_OK, 0) < 0);
        CHECK(faccessat(dir, "out/e", F_OK, 0) == 0); /* it was moved */
        CHECK(faccessat(dir, "out/e/last", F_OK, 0) < 0);
    }
    CHECK(*guards || faccessat(dir, "out/too", F_OK, 0) == 0);
    return stays;
}

/* Where ".." leads is then another directory, and nothing there is to be removed. */
TEST(removing_goes_no_other_way_up_than_it_came_down)
{
    with_link = false;
    CHECK(stays_without(""));
    CHECK(!stays_without("remove_up"));
}

TEST(removing_does_not_go_down_by_a_link_that_was_put_there)
{
    with_link = true;
    CHECK(stays_without(""));
    CHECK(!stays_without("remove_links"));
}
