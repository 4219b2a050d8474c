/*
 * Against the real git: random rules in random directories, and for every path the answer of
 * `git check-ignore`; and its list of tracked files, in each form that it writes.
 */
#include "diff/ignore.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/test.h"

#define ROUNDS 40
#define FILES 60
#define RULES 12

static void write_file(const char *path, struct str data)
{
    autoclose int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

    CHECK(fd >= 0 && write(fd, data.p, data.n) == (ssize_t)data.n);
}

static void make_above(char *path, size_t from)
{
    for (char *p = path + from; (p = strchr(p, '/')); *p++ = '/') {
        *p = 0;
        CHECK(mkdir(path, 0755) == 0 || errno == EEXIST);
    }
}

static void read_file(const char *path, struct buf *out)
{
    autoclose int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = 1;

    CHECK(fd >= 0);
    while (got > 0) {
        char *room = buf_reserve(out, 65536);

        CHECK(room);
        got = read(fd, room, 65536);
        out->len += got > 0 ? (size_t)got : 0;
    }
}

/* Standard input and output are files. */
static int git(const char *dir, const char *in, const char *out, const char *const *args)
{
    static char ceiling[] = "GIT_CEILING_DIRECTORIES=/", none[] = "GIT_CONFIG_NOSYSTEM=1";
    static char home[] = "HOME=/nonexistent", path[] = "PATH=/usr/bin:/bin", lang[] = "LC_ALL=C";
    char *env[] = { ceiling, none, home, path, lang, NULL };
    const char *argv[16] = { "git", "-c", "safe.directory=*", "-C", dir };
    posix_spawn_file_actions_t actions;
    int status = 0, n = 5;
    pid_t pid;

    while (*args)
        argv[n++] = *args++;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, in, O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, out, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    CHECK_INT(posix_spawnp(&pid, argv[0], &actions, NULL, (char **)argv, env), 0);
    posix_spawn_file_actions_destroy(&actions);
    CHECK(waitpid(pid, &status, 0) == pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

static const char *any(const char *const *of, size_t count)
{
    return of[test_rand((uint32_t)count)];
}

static char *random_path(void)
{
    static const char *const names[] = {
        "a", "b", "ab", "abc", "a.o", ".x", "b c", "build", "x[1]"
    };
    char *path = xstrdup(any(names, ARRAY_LEN(names)));

    for (unsigned n = test_rand(4); n > 0; n--) {
        char *longer = xprintf("%s/%s", path, any(names, ARRAY_LEN(names)));

        free(path);
        path = longer;
    }
    return path;
}

/* Not among them: "a**", which at the begin of a pattern git takes for "a*" and for "**" at once.
 */
static void random_rule(struct buf *out)
{
    static const char *const parts[] = { "a",   "b",      "*",           "**",   "a*",
                                         "*.o", "?",      "ab",          "[ab]", "[!a]*",
                                         ".x",  "build",  "b\\ c",       "b c",  "a?",
                                         "\\a", "x[[]1]", "[[:alpha:]]", "***" };

    if (test_rand(4) == 0)
        buf_puts(out, "!");
    if (test_rand(4) == 0)
        buf_puts(out, "/");
    for (unsigned n = 1 + test_rand(3); n > 0; n--) {
        buf_puts(out, any(parts, ARRAY_LEN(parts)));
        if (n > 1)
            buf_puts(out, "/");
    }
    if (test_rand(4) == 0)
        buf_puts(out, "/");
    static const char *const ends[] = { "\n", "\n", "\n", "  \n", "\\ \n", "\r\n", "\n\n# note\n" };
    buf_puts(out, any(ends, ARRAY_LEN(ends)));
}

static bool is_listed(struct str list, const char *path)
{
    while (list.n)
        if (str_is(str_cut(&list, 0), path))
            return true;
    return false;
}

static void one_round(const char *dir)
{
    static const char *const dirs[] = { "", "a", "a/b", "build" };
    static const char *const check[] = { "check-ignore", "-z", "--stdin", "--no-index", NULL };
    static const char *const init[] = { "init", "-q", NULL };
    autofree char *asked = xprintf("%s.asked", dir), *told = xprintf("%s.told", dir);
    autobuf struct buf paths = { 0 }, answer = { 0 };
    autoignore struct ignore ignore = { 0 };
    char *path[FILES];

    CHECK(mkdir(dir, 0755) == 0);
    CHECK_INT(git(dir, "/dev/null", "/dev/null", init), 0);
    for (size_t i = 0; i < ARRAY_LEN(dirs); i++) {
        autofree char *file = xprintf("%s/%s%s.gitignore", dir, dirs[i], *dirs[i] ? "/" : "");
        autobuf struct buf rules = { 0 };

        for (int n = 0; n < RULES; n++)
            random_rule(&rules);
        make_above(file, strlen(dir) + 1);
        write_file(file, buf_view(&rules));
        ignore_add(&ignore, str_of(dirs[i]), buf_view(&rules));
    }
    for (int i = 0; i < FILES; i++) {
        path[i] = random_path();
        autofree char *full = xprintf("%s/%s/", dir, path[i]);

        make_above(full, strlen(dir) + 1); /* all are directories: one may be above another */
        buf_append(&paths, path[i], strlen(path[i]) + 1);
    }
    write_file(asked, buf_view(&paths));
    CHECK(git(dir, asked, told, check) <= 1);
    read_file(told, &answer);
    for (int i = 0; i < FILES; i++) {
        bool want = is_listed(buf_view(&answer), path[i]);

        if (ignore_match(&ignore, str_of(path[i]), true) != want)
            test_fail(__FILE__, __LINE__, "%s in %s: git says %s", path[i], dir,
                      want ? "ignored" : "not ignored");
        free(path[i]);
    }
}

TEST(rules_mean_what_git_takes_them_for)
{
    for (int round = 0; round < ROUNDS; round++) {
        autofree char *dir = xprintf("%s/%d", test_dir(), round);

        one_round(dir);
    }
}

static bool ignores(const char *rules, const char *path, bool is_dir)
{
    autoignore struct ignore ignore = { 0 };

    ignore_add(&ignore, STR_NONE, str_of(rules));
    return ignore_match(&ignore, str_of(path), is_dir);
}

TEST(rules_by_hand)
{
    CHECK(ignores("node_modules/\n", "node_modules/a/b.js", false));
    CHECK(ignores("node_modules/\n", "sub/node_modules/a", false));
    CHECK(!ignores("node_modules/\n", "node_modules", false)); /* a file of that name */
    CHECK(ignores("*.log\n!keep.log\n", "x.log", false));
    CHECK(!ignores("*.log\n!keep.log\n", "keep.log", false));
    CHECK(ignores("logs/\n!logs/keep\n", "logs/keep", false)); /* its directory is out */
    CHECK(ignores("/only", "only", false) && !ignores("/only", "sub/only", false));
    CHECK(ignores("\xef\xbb\xbfname\n", "name", false));
    CHECK(!ignores("", "name", false) && !ignores("#name\n", "#name", false));
    CHECK(ignores("\\#name\n", "#name", false));
    CHECK(!ignores("[a-", "[a-", false) && !ignores("[a-/b", "[a-/b", false));
}

TEST(rules_at_the_limit_and_one_past_it)
{
    autobuf struct buf text = { 0 };
    autoignore struct ignore ignore = { 0 };

    for (unsigned i = 0; i < IGNORE_RULES_MAX; i++)
        buf_printf(&text, "n%u\n", i);
    ignore_add(&ignore, STR_NONE, buf_view(&text));
    ignore_add(&ignore, STR_NONE, STR("late\n"));
    autofree char *last = xprintf("n%u", IGNORE_RULES_MAX - 1);
    CHECK(ignore_match(&ignore, str_of(last), false));
    CHECK(!ignore_match(&ignore, STR("late"), false));
}

TEST(tracked_files_are_those_of_git)
{
    static const char *const init[] = { "init", "-q", NULL };
    static const char *const add[] = { "add", "-f", ".", NULL };
    static const char *const later[] = { "add", "-N", "later", NULL };
    const char *const forms[] = { "2", "3", "4" };
    autofree char *dir = xprintf("%s/tracked", test_dir());
    autofree char *index = xprintf("%s/.git/index", dir);

    CHECK(mkdir(dir, 0755) == 0);
    CHECK_INT(git(dir, "/dev/null", "/dev/null", init), 0);
    for (int i = 0; i < 300; i++) {
        autofree char *file = xprintf("%s/d%d/name-%d", dir, i % 7, i * i);

        make_above(file, strlen(dir) + 1);
        write_file(file, STR("x"));
    }
    CHECK_INT(git(dir, "/dev/null", "/dev/null", add), 0);
    autofree char *file = xprintf("%s/later", dir);
    write_file(file, STR("x"));
    CHECK_INT(git(dir, "/dev/null", "/dev/null", later), 0); /* makes extended entries */
    for (size_t form = 0; form < ARRAY_LEN(forms); form++) {
        const char *write[] = { "update-index", "--force-write-index", "--index-version",
                                forms[form], NULL };
        autoignore struct ignore ignore = { 0 };
        autobuf struct buf bytes = { 0 };

        CHECK_INT(git(dir, "/dev/null", "/dev/null", write), 0);
        read_file(index, &bytes);
        CHECK(ignore_read_index(&ignore, buf_view(&bytes)));
        CHECK_INT(ignore.tracked_count, 301);
        CHECK(ignore_is_tracked(&ignore, STR("d1/name-1")));
        CHECK(ignore_is_tracked(&ignore, STR("later")));
        CHECK(!ignore_is_tracked(&ignore, STR("d1/name-")));
        for (int i = 0; i < 2000; i++) { /* whatever is in it, there is an answer */
            autoignore struct ignore broken = { 0 };
            autofree char *copy = xmemdup0(bytes.data, bytes.len);

            copy[4 + test_rand((uint32_t)bytes.len - 4)] = (char)test_rand(256);
            (void)ignore_read_index(&broken, (struct str){ copy, test_rand((uint32_t)bytes.len) });
            (void)ignore_read_index(&broken, (struct str){ copy, bytes.len });
        }
    }
}
