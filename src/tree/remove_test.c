/* remove: somebody moves the directory that is just being emptied. At one certain call, not by
 * luck. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/test.h"
#include "tree/tree.h"

static int move_dir = -1;

/* Whoever removes "last" is inside of in/d/e, and finds itself in out/e. */
static int unlink_and_move(int at, const char *name, int flags)
{
    if (strcmp(name, "last") == 0)
        (void)!renameat(move_dir, "in/d/e", move_dir, "out/e");
    return unlinkat(at, name, flags);
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

/* Where ".." leads is then another directory, and nothing there is to be removed. */
TEST(removing_goes_no_other_way_up_than_it_came_down)
{
    struct tree_fail failure;
    autoclose int dir = open(test_dir(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    CHECK(mkdirat(dir, "in", 0755) == 0 && mkdirat(dir, "in/d", 0755) == 0 &&
          mkdirat(dir, "in/d/e", 0755) == 0 && mkdirat(dir, "out", 0755) == 0 &&
          mkdirat(dir, "out/too", 0755) == 0);
    make(dir, "out/stays");
    make(dir, "in/d/e/last");
    make(dir, "in/d/beside");
    move_dir = dir;
    CHECK_INT(remove_while_moved(dir, "in/d", &failure), 0);
    CHECK(faccessat(dir, "in/d", F_OK, 0) < 0);
    CHECK(faccessat(dir, "out/e", F_OK, 0) == 0); /* it was moved */
    CHECK(faccessat(dir, "out/e/last", F_OK, 0) < 0);
    CHECK(faccessat(dir, "out/stays", F_OK, 0) == 0);
    CHECK(faccessat(dir, "out/too", F_OK, 0) == 0);
}
