/*
 * A tree, its copy, random changes to the copy, and the changes taken back: afterwards the tree is
 * the copy. Then everything that must not happen.
 */
#include "cli/apply.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "base/test.h"

/* Two directories and what is known about them. */
struct world {
    char *here, *there; /* owned */
    int here_fd, there_fd;
    struct manifest before, after;
    struct changes changes;
    struct stage stage;
    struct buf said;
    struct cli cli;
    int said_fd;
};

static void world_free(struct world *w)
{
    stage_remove(&w->stage);
    changes_free(&w->changes);
    manifest_free(&w->before);
    manifest_free(&w->after);
    buf_free(&w->said);
    close(w->here_fd);
    close(w->there_fd);
    close(w->said_fd);
    free(w->here);
    free(w->there);
}
#define autoworld auto_with(world_free)

static void world_init(struct world *w)
{
    const char *top = test_dir();

    *w = (struct world){ .stage = STAGE_NONE };
    w->here = xprintf("%s/here", top);
    w->there = xprintf("%s/there", top);
    CHECK(mkdir(w->here, 0755) == 0 && mkdir(w->there, 0755) == 0);
    w->here_fd = open(w->here, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    w->there_fd = open(w->there, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    autofree char *said = xprintf("%s/said", top);
    w->said_fd = open(said, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    w->cli.err_fd = w->said_fd;
}

static int put_record(void *ctx, const void *data, size_t len)
{
    buf_append(ctx, data, len);
    return 0;
}

static void take_manifest(int dir, struct manifest *out)
{
    autobuf struct buf bytes = { 0 };
    static struct tree_fail fail;
    struct err err = { 0 };

    CHECK(tree_manifest(dir, &(struct tree_sink){ put_record, &bytes }, &fail) == 0);
    CHECK_OK(manifest_read(out, &bytes, &err), &err);
}

static void copy_data(struct world *w, size_t at, struct err *err)
{
    const struct change *change = &w->changes.at[at];
    autofree char *path = xmemdup0(change->path.p, change->path.n);
    autoclose int from = openat(w->there_fd, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    autoclose int to = stage_new(&w->stage, at, err);
    char data[4096];
    ssize_t got;

    CHECK(from >= 0 && to >= 0);
    while ((got = read(from, data, sizeof(data))) > 0)
        CHECK(write(to, data, (size_t)got) == got);
    CHECK_OK(stage_keep(&w->stage, at, to, change->after, err), err);
}

/* After the changes to `there`: what they are, and their contents beside `here`. */
static void world_look(struct world *w)
{
    struct err err = { 0 };

    take_manifest(w->there_fd, &w->after);
    changes_between(&w->before, &w->after, &w->changes);
    CHECK_OK(stage_make(&w->stage, fcntl(w->here_fd, F_DUPFD_CLOEXEC, 3), w->changes.count, &err),
             &err);
    for (size_t i = 0; i < w->changes.count; i++)
        if (change_has_data(&w->changes.at[i]))
            copy_data(w, i, &err);
}

static int world_apply_with(struct world *w, const struct apply_options *options, struct err *err)
{
    int rc = apply_changes(&w->cli, options, &w->before, &w->changes, &w->stage, err);

    stage_remove(&w->stage);
    return rc;
}

static int world_apply(struct world *w, bool git, struct err *err)
{
    return world_apply_with(w, &(struct apply_options){ .root = w->here_fd, .git = git }, err);
}

static bool world_said(struct world *w, const char *text)
{
    char data[8192] = "";

    CHECK(pread(w->said_fd, data, sizeof(data) - 1, 0) >= 0);
    return strstr(data, text) != NULL;
}

static void put(int dir, const char *path, const char *text, mode_t mode)
{
    autoclose int fd =
        openat(dir, path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);

    CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    CHECK(fchmod(fd, mode) == 0);
}

static bool holds(int dir, const char *path, const char *text)
{
    autoclose int fd = openat(dir, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    char data[256] = "";

    return fd >= 0 && read(fd, data, sizeof(data) - 1) >= 0 && strcmp(data, text) == 0;
}

static bool there_is(int dir, const char *path)
{
    struct stat st;

    return fstatat(dir, path, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

static mode_t mode_at(int dir, const char *path)
{
    struct stat st;

    CHECK(fstatat(dir, path, &st, AT_SYMLINK_NOFOLLOW) == 0);
    return st.st_mode & 07777;
}

/* The same file in both, as at the copy. */
static void both(const struct world *w, const char *path, const char *text)
{
    put(w->here_fd, path, text, 0644);
    put(w->there_fd, path, text, 0644);
}

/* ---- random trees ---- */

static void random_name(struct buf *out)
{
    static const char *const names[] = { "a", "b", "a-b", "new\nline", "\x1b[31m", "d" };

    buf_clear(out);
    for (uint32_t i = test_rand(3); i > 0; i--)
        buf_printf(out, "%s/", names[test_rand(ARRAY_LEN(names))]);
    buf_puts(out, names[test_rand(ARRAY_LEN(names))]);
}

static void random_step(const int *dirs, size_t count)
{
    autobuf struct buf name = { 0 };
    static struct tree_fail fail;
    uint32_t kind = test_rand(8), value = test_rand(5);
    char text[32];

    random_name(&name);
    snprintf(text, sizeof(text), "text %u", value);
    for (size_t i = 0; i < count; i++) { /* whatever works works in all of them */
        const char *path = buf_cstr(&name);

        if (kind < 3)
            mkdirat(dirs[i], path, value % 2 ? 0755 : 0700);
        else if (kind == 3)
            (void)!tree_remove(dirs[i], path, &fail);
        else if (kind == 4)
            (void)!symlinkat("a", dirs[i], path);
        else if (!there_is(dirs[i], path) || value == 0) {
            (void)!tree_remove(dirs[i], path, &fail);
            autoclose int fd = openat(dirs[i], path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
            CHECK(fd < 0 ||
                  (write(fd, text, strlen(text)) > 0 && fchmod(fd, value % 2 ? 0755 : 0644) == 0));
        }
    }
}

static void check_same(const struct manifest *a, const struct manifest *b)
{
    autochanges struct changes none = { 0 };

    changes_between(a, b, &none);
    for (size_t i = 0; i < none.count; i++)
        fprintf(stderr, "%c %.*s\n", change_letter(&none.at[i]), STR_FMT(none.at[i].path));
    CHECK_INT(none.count, 0);
}

TEST(the_tree_becomes_the_copy)
{
    umask(022);
    for (int round = 0; round < 100; round++) {
        autoworld struct world w;
        automanifest struct manifest now = { 0 };
        struct err err = { 0 };

        world_init(&w);
        for (uint32_t i = test_rand(60); i > 0; i--)
            random_step((int[]){ w.here_fd, w.there_fd }, 2);
        take_manifest(w.there_fd, &w.before);
        for (uint32_t i = test_rand(60); i > 0; i--)
            random_step(&w.there_fd, 1);
        world_look(&w);
        CHECK_OK(world_apply(&w, false, &err), &err);
        take_manifest(w.here_fd, &now);
        check_same(&now, &w.after);
    }
}

/* ---- what must not happen ---- */

TEST(a_file_that_changed_here_is_not_overwritten_and_nothing_is_done)
{
    autoworld struct world w;
    struct err err = { 0 };

    world_init(&w);
    both(&w, "a", "old");
    both(&w, "b", "old");
    take_manifest(w.there_fd, &w.before);
    put(w.there_fd, "a", "new", 0644);
    put(w.there_fd, "b", "new", 0644);
    put(w.there_fd, "c", "new", 0644);
    put(w.here_fd, "b", "mine", 0644);
    world_look(&w);
    CHECK(world_apply(&w, false, &err) < 0);
    CHECK_INT(err.code, ERR_CONFLICT);
    CHECK(world_said(&w, "changed here too: b\n"));
    CHECK(holds(w.here_fd, "a", "old") && holds(w.here_fd, "b", "mine") &&
          !there_is(w.here_fd, "c"));
}

TEST(a_new_file_that_is_here_too_is_not_overwritten)
{
    autoworld struct world w;
    struct err err = { 0 };

    world_init(&w);
    take_manifest(w.there_fd, &w.before);
    put(w.there_fd, "new", "theirs", 0644);
    put(w.here_fd, "new", "mine", 0644);
    world_look(&w);
    CHECK(world_apply(&w, false, &err) < 0);
    CHECK_INT(err.code, ERR_CONFLICT);
    CHECK(holds(w.here_fd, "new", "mine"));
}

TEST(what_is_here_already_is_no_conflict)
{
    autoworld struct world w;
    struct err err = { 0 };

    world_init(&w);
    both(&w, "a", "old");
    take_manifest(w.there_fd, &w.before);
    both(&w, "a", "new");
    both(&w, "b", "new");
    world_look(&w);
    CHECK_OK(world_apply(&w, false, &err), &err);
    CHECK(holds(w.here_fd, "a", "new"));
}

TEST(a_removed_file_that_changed_here_stays)
{
    autoworld struct world w;
    struct err err = { 0 };

    world_init(&w);
    both(&w, "a", "old");
    take_manifest(w.there_fd, &w.before);
    CHECK(unlinkat(w.there_fd, "a", 0) == 0);
    put(w.here_fd, "a", "mine", 0644);
    world_look(&w);
    CHECK(world_apply(&w, false, &err) < 0);
    CHECK(holds(w.here_fd, "a", "mine"));
}

TEST(a_directory_with_files_that_were_not_copied_stays)
{
    autoworld struct world w;
    struct err err = { 0 };

    world_init(&w);
    CHECK(mkdirat(w.here_fd, "d", 0755) == 0 && mkdirat(w.there_fd, "d", 0755) == 0);
    both(&w, "d/a", "old");
    take_manifest(w.there_fd, &w.before);
    put(w.here_fd, "d/mine", "mine", 0644);
    CHECK(unlinkat(w.there_fd, "d/a", 0) == 0 && unlinkat(w.there_fd, "d", AT_REMOVEDIR) == 0);
    world_look(&w);
    CHECK_OK(world_apply(&w, false, &err), &err);
    CHECK(holds(w.here_fd, "d/mine", "mine") && !there_is(w.here_fd, "d/a"));
}

TEST(a_directory_with_files_that_were_not_copied_becomes_nothing_else)
{
    autoworld struct world w;
    struct err err = { 0 };

    world_init(&w);
    CHECK(mkdirat(w.here_fd, "d", 0755) == 0 && mkdirat(w.there_fd, "d", 0755) == 0);
    take_manifest(w.there_fd, &w.before);
    put(w.here_fd, "d/mine", "mine", 0644);
    CHECK(unlinkat(w.there_fd, "d", AT_REMOVEDIR) == 0);
    put(w.there_fd, "d", "a file now", 0644);
    world_look(&w);
    CHECK(world_apply(&w, false, &err) < 0);
    CHECK_INT(err.code, ERR_CONFLICT);
    CHECK(holds(w.here_fd, "d/mine", "mine"));
}

/* The user's own link stands where a directory was copied: nothing goes through it. */
TEST(nothing_is_written_through_a_link)
{
    autoworld struct world w;
    struct err err = { 0 };
    const char *outside = test_dir();

    world_init(&w);
    CHECK(mkdirat(w.here_fd, "d", 0755) == 0 && mkdirat(w.there_fd, "d", 0755) == 0);
    take_manifest(w.there_fd, &w.before);
    put(w.there_fd, "d/new", "new", 0644);
    CHECK(unlinkat(w.here_fd, "d", AT_REMOVEDIR) == 0 && symlinkat(outside, w.here_fd, "d") == 0);
    world_look(&w);
    CHECK(world_apply(&w, false, &err) < 0);
    autoclose int out = open(outside, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK(!there_is(out, "new"));
}

TEST(links_that_lead_out_are_left_out)
{
    static const struct {
        const char *path, *target;
        bool ok;
    } cases[] = {
        { "l", "a", true },
        { "l", "a/b", true },
        { "l", "./a", true },
        { "d/l", "../a", true },
        { "d/e/l", "../../a", true },
        { "l", "..a", true },
        { "l", "/etc/passwd", false },
        { "l", "..", false },
        { "l", "../a", false },
        { "d/l", "../../a", false },
        { "d/l", "x/../../a", false },
        { "l", "a/..", false },
        { "d/e/l", "f/../a", false },
        { "l", "", false },
        { "l", ".//../a", false },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        if (apply_link_ok(str_of(cases[i].path), str_of(cases[i].target)) != cases[i].ok)
            test_fail(__FILE__, __LINE__, "%s -> %s", cases[i].path, cases[i].target);

    autoworld struct world w;
    struct err err = { 0 };
    world_init(&w);
    take_manifest(w.there_fd, &w.before);
    CHECK(symlinkat("/etc/passwd", w.there_fd, "out") == 0);
    CHECK(symlinkat("good", w.there_fd, "in") == 0);
    world_look(&w);
    CHECK_OK(world_apply(&w, false, &err), &err);
    CHECK(!there_is(w.here_fd, "out") && there_is(w.here_fd, "in"));
    CHECK(world_said(&w, "not taken back: out: a link that could lead out of the directory"));
}

TEST(gits_own_files_are_taken_only_when_asked_for)
{
    for (int git = 0; git < 2; git++) {
        autoworld struct world w;
        struct err err = { 0 };

        world_init(&w);
        take_manifest(w.there_fd, &w.before);
        CHECK(mkdirat(w.there_fd, ".git", 0755) == 0);
        put(w.there_fd, ".git/config", "[core]\n", 0644);
        CHECK(mkdirat(w.there_fd, "d", 0755) == 0 && mkdirat(w.there_fd, "d/.GIT", 0755) == 0);
        put(w.there_fd, "d/.GIT/config", "[core]\n", 0644);
        put(w.there_fd, ".gitignore", "x\n", 0644);
        world_look(&w);
        CHECK_OK(world_apply(&w, git, &err), &err);
        CHECK_INT(there_is(w.here_fd, ".git/config"), git);
        CHECK_INT(there_is(w.here_fd, "d/.GIT/config"), git);
        CHECK(there_is(w.here_fd, ".gitignore"));
    }
}

/* Without the name: git takes it for a repository all the same. */
TEST(a_hidden_repository_is_gits_own_too)
{
    static const char *const parts[][3] = { { "objects", "refs", NULL },
                                            { "commondir", NULL, NULL } };

    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        autoworld struct world w;
        struct err err = { 0 };

        world_init(&w);
        take_manifest(w.there_fd, &w.before);
        CHECK(mkdirat(w.there_fd, "d", 0755) == 0 && mkdirat(w.there_fd, "d/sub", 0755) == 0);
        put(w.there_fd, "d/HEAD", "ref: refs/heads/x\n", 0644);
        put(w.there_fd, "d/config", "[core]\n", 0644);
        put(w.there_fd, "d/sub/x", "x", 0644);
        put(w.there_fd, "HEAD", "alone it is just a file", 0644);
        for (const char *const *name = parts[i]; *name; name++) {
            autofree char *path = xprintf("d/%s", *name);
            CHECK(mkdirat(w.there_fd, path, 0755) == 0);
        }
        world_look(&w);
        CHECK_OK(world_apply(&w, false, &err), &err);
        CHECK(!there_is(w.here_fd, "d/config") && !there_is(w.here_fd, "d/sub/x"));
        CHECK(there_is(w.here_fd, "HEAD"));
    }
}

TEST(set_id_bits_and_the_rights_of_others_are_dropped)
{
    autoworld struct world w;
    struct err err = { 0 };

    umask(022);
    world_init(&w);
    both(&w, "old", "x");
    CHECK(fchmodat(w.here_fd, "old", 0640, 0) == 0); /* the user's own choice, not copied */
    take_manifest(w.there_fd, &w.before);
    put(w.there_fd, "suid", "x", 06777);
    put(w.there_fd, "old", "y", 0644);
    world_look(&w);
    CHECK_OK(world_apply(&w, false, &err), &err);
    CHECK_INT(mode_at(w.here_fd, "suid"), 0755);
    CHECK_INT(mode_at(w.here_fd, "old"), 0640);
    CHECK(holds(w.here_fd, "old", "y"));
}

TEST(contents_that_are_not_what_was_promised_are_refused)
{
    autoworld struct world w;
    struct err err = { 0 };

    world_init(&w);
    take_manifest(w.there_fd, &w.before);
    put(w.there_fd, "f", "promised", 0644);
    take_manifest(w.there_fd, &w.after);
    changes_between(&w.before, &w.after, &w.changes);
    CHECK_OK(stage_make(&w.stage, fcntl(w.here_fd, F_DUPFD_CLOEXEC, 3), 1, &err), &err);
    autoclose int fd = stage_new(&w.stage, 0, &err);
    CHECK(write(fd, "provided", 8) == 8);
    CHECK(stage_keep(&w.stage, 0, fd, w.changes.at[0].after, &err) < 0);
    CHECK_INT(err.code, ERR_CONFLICT);
    CHECK(!w.stage.have[0]);
}

TEST(the_stage_leaves_nothing_behind)
{
    autoworld struct world w;
    automanifest struct manifest now = { 0 };

    world_init(&w);
    take_manifest(w.there_fd, &w.before);
    put(w.there_fd, "f", "x", 0644);
    world_look(&w);
    stage_remove(&w.stage);
    take_manifest(w.here_fd, &now);
    CHECK_INT(now.count, 0);
}

/* Somebody works here at the same time: between the look and the step. */
static void change_here(void *ctx)
{
    const struct world *w = ctx;

    put(w->here_fd, "late", "mine", 0644);
}

TEST(a_file_that_changes_in_the_last_moment_stays)
{
    static const char *const before[] = { "old", "old", NULL }, *const after[] = { "new", NULL,
                                                                                   "new" };

    for (size_t i = 0; i < ARRAY_LEN(before); i++) { /* modified, removed, added */
        autoworld struct world w;
        struct err err = { 0 };

        world_init(&w);
        if (before[i])
            both(&w, "late", before[i]);
        take_manifest(w.there_fd, &w.before);
        if (after[i])
            put(w.there_fd, "late", after[i], 0644);
        else
            CHECK(unlinkat(w.there_fd, "late", 0) == 0);
        world_look(&w);
        CHECK(world_apply_with(
                  &w,
                  &(struct apply_options){ .root = w.here_fd, .planned = change_here, .ctx = &w },
                  &err) < 0);
        CHECK_INT(err.code, ERR_CONFLICT);
        CHECK(holds(w.here_fd, "late", "mine"));
    }
}

/* ---- the list itself ---- */

TEST(a_broken_or_doubled_list_is_refused)
{
    static char record[TREE_RECORD_MAX];
    struct stat st = { .st_mode = S_IFREG | 0644 };
    size_t len = tree_record_put(record, &st, "name", NULL, NULL);
    struct err err = { 0 };

    for (int round = 0; round < 2; round++) {
        autobuf struct buf bytes = { 0 };
        automanifest struct manifest none = { 0 };

        buf_append(&bytes, record, len);
        buf_append(&bytes, record, round ? len : len - 1);
        CHECK(manifest_read(&none, &bytes, &err) < 0);
        CHECK_INT(none.count, 0);
    }
}

TEST(the_summary_shows_names_as_text)
{
    autoworld struct world w;
    autobuf struct buf text = { 0 };

    world_init(&w);
    put(w.there_fd, "gone", "x", 0644);
    put(w.there_fd, "mode", "x", 0644);
    take_manifest(w.there_fd, &w.before);
    CHECK(unlinkat(w.there_fd, "gone", 0) == 0 && fchmodat(w.there_fd, "mode", 0755, 0) == 0);
    CHECK(mkdirat(w.there_fd, "d", 0755) == 0 && mkdirat(w.there_fd, "empty", 0755) == 0);
    put(w.there_fd, "d/\x1b]0;evil\a\nA forged", "x", 0644);
    take_manifest(w.there_fd, &w.after);
    changes_between(&w.before, &w.after, &w.changes);
    changes_summary(&w.changes, 100, &text);
    CHECK_STR(buf_cstr(&text), "A d/\\x1b]0;evil\\x07\\nA forged\nA empty/\nD gone\n"
                               "M mode (mode 755, was 644)\n"
                               "4 files changed: 2 added, 1 modified, 1 removed\n");
    buf_clear(&text);
    changes_summary(&w.changes, 1, &text);
    CHECK(strstr(buf_cstr(&text), "… and 3 more\n4 files changed"));
}

static bool named_x(const void *ctx, const char *path)
{
    const char *slash = strrchr(path, '/');

    return strcmp(slash ? slash + 1 : path, ctx) == 0;
}

TEST(what_is_left_out_of_the_changes_is_so_with_all_below_it)
{
    autoworld struct world w;
    autobuf struct buf text = { 0 };

    world_init(&w);
    put(w.there_fd, "old", "x", 0644);
    take_manifest(w.there_fd, &w.before);
    CHECK(mkdirat(w.there_fd, "x", 0755) == 0 && mkdirat(w.there_fd, "x/y", 0755) == 0);
    CHECK(mkdirat(w.there_fd, "d", 0755) == 0 && mkdirat(w.there_fd, "e", 0755) == 0);
    put(w.there_fd, "x/y/z", "x", 0644);
    put(w.there_fd, "d/x", "x", 0644);
    put(w.there_fd, "e/x", "x", 0644);
    put(w.there_fd, "e/xx", "x", 0644);
    put(w.there_fd, "old", "y", 0644);
    take_manifest(w.there_fd, &w.after);
    changes_between(&w.before, &w.after, &w.changes);
    CHECK_INT(changes_leave_out(&w.changes, named_x, "x"), 3);
    changes_summary(&w.changes, 100, &text);
    CHECK_STR(buf_cstr(&text), "A d/\nA e/xx\nM old\n"
                               "3 files changed: 2 added, 1 modified, 0 removed\n");
}
