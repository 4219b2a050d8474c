/*
 * Against the real git: random trees, our patch from one to the other, `git apply`, and the result
 * must be the other tree, byte for byte; then back with -R.
 */
#include "diff/patch.h"

#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/limits.h"
#include "base/mem.h"
#include "base/test.h"
#include "diff/lines.h"

#define FILES 8
#define ROUNDS 60

struct tree {
    struct patch_side at[FILES]; /* data owned */
};

/* Each could confuse a reader of patches. */
static const char *const names[FILES] = { "plain",
                                          "with space",
                                          "dir/deep/er",
                                          "dir/quote\"back\\slash",
                                          "new\nline and \x1b[31mcolour",
                                          "\xc3\xa4\xff",
                                          "-p1",
                                          "tab\tb/x b/y" };

static void random_data(struct buf *out, struct str like)
{
    uint32_t kind = test_rand(12);

    buf_clear(out);
    if (kind == 0)
        return;
    if (kind == 1) { /* binary */
        for (uint32_t i = test_rand(3000); i > 0; i--)
            buf_putc(out, (char)test_rand(256));
        buf_putc(out, 0);
        return;
    }
    autolines struct lines lines = { 0 };
    CHECK(lines_split(&lines, like));
    for (uint32_t i = 0; i < lines.count; i++) {
        if (test_rand(10) != 0)
            buf_str(out, lines.at[i]);
        if (test_rand(12) == 0)
            buf_printf(out, "%u\r\n", test_rand(4));
    }
    for (uint32_t i = test_rand(20); i > 0; i--)
        buf_printf(out, "line %u\n", test_rand(30));
    if (kind == 2)
        buf_puts(out, "no newline");
}

static void tree_random(struct tree *tree, const struct tree *like)
{
    autobuf struct buf data = { 0 };

    for (size_t i = 0; i < FILES; i++) {
        static const unsigned modes[] = { PATCH_FILE, PATCH_FILE, PATCH_PROGRAM, PATCH_LINK, 0 };
        struct patch_side *side = &tree->at[i];

        random_data(&data, like->at[i].data);
        side->mode = modes[test_rand(ARRAY_LEN(modes))];
        if (side->mode == PATCH_LINK) {
            buf_clear(&data);
            buf_printf(&data, "to %u", test_rand(3));
        }
        if (!side->mode)
            buf_clear(&data);
        side->data = (struct str){ xmemdup0(data.data, data.len), data.len };
        if (like->at[i].mode && test_rand(3) == 0) { /* only its mode changes, or nothing */
            free((void *)side->data.p);
            side->data = (struct str){ xmemdup0(like->at[i].data.p, like->at[i].data.n),
                                       like->at[i].data.n };
            side->mode = like->at[i].mode == PATCH_LINK ? PATCH_LINK
                         : test_rand(2)                 ? PATCH_PROGRAM
                                                        : PATCH_FILE;
        }
    }
}

static void tree_free(struct tree *tree)
{
    for (size_t i = 0; i < FILES; i++)
        free((void *)tree->at[i].data.p);
}

static void write_file(const char *path, struct str data, unsigned mode)
{
    autoclose int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode & 0777);

    CHECK(fd >= 0 && write(fd, data.p, data.n) == (ssize_t)data.n);
}

static void tree_write(const struct tree *tree, const char *dir)
{
    for (size_t i = 0; i < FILES; i++) {
        const struct patch_side *side = &tree->at[i];
        autofree char *path = xprintf("%s/%s", dir, names[i]);

        for (char *p = path + strlen(dir) + 1; side->mode && (p = strchr(p, '/')); *p++ = '/') {
            *p = 0;
            mkdir(path, 0755);
        }
        if (side->mode == PATCH_LINK)
            CHECK(symlink(side->data.p, path) == 0);
        else if (side->mode)
            write_file(path, side->data, side->mode);
    }
}

static void tree_check(const struct tree *tree, const char *dir)
{
    for (size_t i = 0; i < FILES; i++) {
        const struct patch_side *side = &tree->at[i];
        autofree char *path = xprintf("%s/%s", dir, names[i]);
        autofree char *data = xmalloc(side->data.n + 2);
        struct stat st;

        if (lstat(path, &st) < 0) {
            CHECK_INT(side->mode, 0);
            continue;
        }
        if (side->mode == PATCH_LINK) {
            CHECK(S_ISLNK(st.st_mode));
            CHECK_INT(readlink(path, data, side->data.n + 2), side->data.n);
        } else {
            autoclose int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

            CHECK_INT((st.st_mode & 0100) != 0, side->mode == PATCH_PROGRAM);
            CHECK_INT(read(fd, data, side->data.n + 2), side->data.n);
        }
        CHECK(memcmp(data, side->data.p, side->data.n) == 0);
    }
}

static int run(char **argv)
{
    static char git_dir[] = "GIT_CEILING_DIRECTORIES=/", none[] = "GIT_CONFIG_NOSYSTEM=1";
    static char home[] = "HOME=/nonexistent", path[] = "PATH=/usr/bin:/bin", lang[] = "LC_ALL=C";
    char *env[] = { git_dir, none, home, path, lang, NULL };
    int status = 0;
    pid_t pid;

    CHECK_INT(posix_spawnp(&pid, argv[0], NULL, NULL, argv, env), 0);
    CHECK(waitpid(pid, &status, 0) == pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

static void git_apply(const char *dir, const char *patch, bool back)
{
    const char *argv[] = {
        "git", "-C", dir, "apply", "--whitespace=nowarn", patch, back ? "-R" : NULL, NULL
    };

    CHECK_INT(run((char **)argv), 0);
}

static void put_tree(struct buf *out, const struct tree *before, const struct tree *after)
{
    for (size_t i = 0; i < FILES; i++)
        patch_put(out, &(struct patch_file){ str_of(names[i]), before->at[i], after->at[i] });
}

TEST(git_takes_our_patches_there_and_back)
{
    const char *top = test_dir();

    for (int round = 0; round < ROUNDS; round++) {
        auto_with(tree_free) struct tree none = { 0 }, before = { 0 }, after = { 0 };
        autofree char *dir = xprintf("%s/%d", top, round);
        autofree char *patch = xprintf("%s/%d.patch", top, round);
        autobuf struct buf text = { 0 };

        tree_random(&before, &none);
        tree_random(&after, &before);
        put_tree(&text, &before, &after);
        CHECK(buf_ok(&text));
        if (!text.len)
            continue; /* nothing changed, and git wants something */
        CHECK(mkdir(dir, 0755) == 0);
        tree_write(&before, dir);
        write_file(patch, buf_view(&text), 0644);
        git_apply(dir, patch, false);
        tree_check(&after, dir);
        git_apply(dir, patch, true);
        tree_check(&before, dir);
    }
}

/* ---- the exact words ---- */

static void check_patch(const struct patch_file *file, const char *want)
{
    autobuf struct buf text = { 0 };

    patch_put(&text, file);
    CHECK_STR(buf_cstr(&text), want);
}

TEST(a_change_of_text)
{
    check_patch(&(struct patch_file){ STR("f"),
                                      { PATCH_FILE, STR("a\nb\nc\nd\ne\n") },
                                      { PATCH_FILE, STR("a\nb\nc\nd\nE") } },
                "diff --git a/f b/f\nindex 9405325..961e998 100644\n--- a/f\n+++ b/f\n"
                "@@ -2,4 +2,4 @@\n b\n c\n d\n-e\n+E\n\\ No newline at end of file\n");
}

TEST(changes_far_apart_have_hunks_of_their_own)
{
    autobuf struct buf text = { 0 };
    struct patch_file near = { STR("f"),
                               { PATCH_FILE, STR("x\n1\n2\n3\n4\n5\n6\ny\n") },
                               { PATCH_FILE, STR("X\n1\n2\n3\n4\n5\n6\nY\n") } };
    struct patch_file far = { STR("f"),
                              { PATCH_FILE, STR("x\n1\n2\n3\n4\n5\n6\n7\ny\n") },
                              { PATCH_FILE, STR("X\n1\n2\n3\n4\n5\n6\n7\nY\n") } };

    patch_put(&text, &near);
    CHECK(strstr(buf_cstr(&text), "@@ -1,8 +1,8 @@\n") && !strstr(buf_cstr(&text), "\n 6\n@@"));
    buf_clear(&text);
    patch_put(&text, &far);
    CHECK(strstr(buf_cstr(&text), "@@ -1,4 +1,4 @@\n") &&
          strstr(buf_cstr(&text), "@@ -6,4 +6,4 @@"));
}

TEST(a_new_empty_file_and_a_removed_one)
{
    check_patch(&(struct patch_file){ STR("a b"), { 0 }, { PATCH_PROGRAM, STR("") } },
                "diff --git a/a b b/a b\nnew file mode 100755\nindex 0000000..e69de29\n");
    check_patch(&(struct patch_file){ STR("a b"), { PATCH_FILE, STR("x\n") }, { 0 } },
                "diff --git a/a b b/a b\ndeleted file mode 100644\nindex 587be6b..0000000\n"
                "--- a/a b\t\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n");
}

TEST(a_change_of_mode_alone_and_none_at_all)
{
    check_patch(
        &(struct patch_file){ STR("f"), { PATCH_FILE, STR("x") }, { PATCH_PROGRAM, STR("x") } },
        "diff --git a/f b/f\nold mode 100644\nnew mode 100755\n");
    check_patch(
        &(struct patch_file){ STR("f"), { PATCH_FILE, STR("x") }, { PATCH_FILE, STR("x") } }, "");
}

TEST(a_file_that_became_a_link_is_removed_and_made)
{
    autobuf struct buf text = { 0 };

    patch_put(&text, &(struct patch_file){
                         STR("f"), { PATCH_FILE, STR("x\n") }, { PATCH_LINK, STR("to") } });
    CHECK(strstr(buf_cstr(&text), "deleted file mode 100644\n"));
    CHECK(strstr(buf_cstr(&text), "new file mode 120000\n"));
}

TEST(names_are_quoted_as_git_does)
{
    autobuf struct buf text = { 0 };

    patch_quote(&text, "a/", STR("plain name"));
    buf_putc(&text, '|');
    patch_quote(&text, "a/", STR("\a\b\t\n\v\f\r\x1b\x7f\xc3\"\\"));
    CHECK_STR(buf_cstr(&text), "a/plain name|\"a/\\a\\b\\t\\n\\v\\f\\r\\033\\177\\303\\\"\\\\\"");
}

TEST(base85_has_lines_of_52_bytes)
{
    autobuf struct buf text = { 0 };
    char data[53] = { 0 };

    patch_base85(&text, (struct str){ data, 53 });
    CHECK_INT(text.len, 1 + 65 + 1 + 1 + 5 + 1);
    CHECK(text.data[0] == 'z' && text.data[67] == 'A');
}

TEST(paths_that_lead_elsewhere)
{
    static const char *const bad[] = { "", "/a", "a/", "a//b", ".", "..", "a/..", "a/./b", "../a" };
    static const char *const good[] = { "a", "a/b", "...", ".a", "a/..b" };

    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        CHECK(!patch_path_ok(str_of(bad[i])));
    for (size_t i = 0; i < ARRAY_LEN(good); i++)
        CHECK(patch_path_ok(str_of(good[i])));
    CHECK(!patch_path_ok(STR("a\0b")));
}

TEST(paths_that_are_gits_own)
{
    static const char *const own[] = { ".git",           ".git/config", "sub/.git",
                                       "a/.GiT/hooks/x", ".git.",       ".git . ",
                                       "git~1/config",   "GIT~1",       ".git::$INDEX",
                                       "a\\.git",        ".git\\x" };
    static const char *const not [] = {
        ".gitignore", ".github/x", "git", "x.git", ".gi", "git~2", ".gitmodules", "a/.gitattributes"
    };

    for (size_t i = 0; i < ARRAY_LEN(own); i++)
        if (!patch_path_is_git(str_of(own[i]), false))
            test_fail(__FILE__, __LINE__, "%s", own[i]);
    for (size_t i = 0; i < ARRAY_LEN(not ); i++)
        if (patch_path_is_git(str_of(not [i]), false))
            test_fail(__FILE__, __LINE__, "%s", not [i]);
    CHECK(patch_path_is_git(STR(".gitmodules"), true) &&
          patch_path_is_git(STR("a/.GITMODULES"), true));
}

/* Would git really refuse what we leave out, and take what we do not? */
TEST(git_agrees_about_its_own_files)
{
    static const struct {
        const char *name;
        bool taken;
    } cases[] = { { ".git/config", false }, { ".GIT/x", false },    { "git~1/x", false },
                  { ".git. /x", false },    { ".gitignore", true }, { "git~2", true },
                  { "a/.gitmodules", true } };
    const char *top = test_dir();

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        autobuf struct buf text = { 0 };
        autofree char *patch = xprintf("%s/p%zu", top, i);
        autofree char *dir = xprintf("--directory=d%zu", i);
        const char *argv[] = { "git", "-C", top, "apply", "-q", dir, patch, NULL };

        patch_put(&text,
                  &(struct patch_file){ str_of(cases[i].name), { 0 }, { PATCH_FILE, STR("x") } });
        write_file(patch, buf_view(&text), 0644);
        CHECK_INT(patch_path_is_git(str_of(cases[i].name), false), !cases[i].taken);
        CHECK_INT(run((char **)argv) == 0, cases[i].taken);
    }
}
