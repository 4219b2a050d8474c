/* Layers into directories: what comes out, and what hostile archives get instead. */
#include <sched.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

#include "base/mem.h"
#include "image/own.h"
#include "image/tar_rig.h"

struct rig {
    struct buf tar;
    struct image_limits limits;
    struct image_counts counts;
    struct err err;
    const char *dir;
    int out;
};

static void rig_free(struct rig *rig)
{
    buf_free(&rig->tar);
    close(rig->out);
}
#define autorig auto_with(rig_free)

static void rig_init(struct rig *rig)
{
    *rig = (struct rig){ .limits = image_limits, .dir = test_dir() };
    rig->out = rig_dir_fd(rig->dir);
}

/* Another archive, into another directory. */
static void rig_again(struct rig *rig)
{
    rig_free(rig);
    rig_init(rig);
}

static int unpack_bytes(struct rig *rig, struct str bytes)
{
    autoclose int fd = rig_fd(bytes);

    rig->err = (struct err){ 0 };
    return image_unpack(&rig->limits, &fd, 1, rig->out, &rig->counts, &rig->err);
}

static int unpack(struct rig *rig)
{
    rig_end(&rig->tar);
    return unpack_bytes(rig, buf_view(&rig->tar));
}

static void refused(struct rig *rig, enum err_code code, const char *says)
{
    CHECK_INT(unpack(rig), -1);
    CHECK_INT(rig->err.code, code);
    if (!strstr(rig->err.msg, says))
        test_fail(__FILE__, __LINE__, "\"%s\" does not say \"%s\"", rig->err.msg, says);
}

static const char *content(const struct rig *rig, const char *name)
{
    static char text[256];
    autoclose int fd = openat(rig->out, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

    if (got < 0)
        return NULL;
    text[got] = 0;
    return text;
}

static bool there(const struct rig *rig, const char *name, struct stat *st)
{
    return fstatat(rig->out, name, st, AT_SYMLINK_NOFOLLOW) == 0;
}

static bool is_opaque(const struct rig *rig, const char *name)
{
    autoclose int fd = openat(rig->out, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    char value[8];

    CHECK(fd >= 0);
    return fgetxattr(fd, "user.overlay.opaque", value, sizeof(value)) == 1 && value[0] == 'y';
}

static bool is_gone_mark(const struct rig *rig, const char *name)
{
    struct stat st;

    return there(rig, name, &st) && S_ISCHR(st.st_mode) && st.st_rdev == makedev(0, 0);
}

/* ---- names ---- */

TEST(names_are_split_and_cleaned)
{
    static const struct {
        const char *text, *dir, *base;
    } cases[] = {
        { "a", "", "a" },
        { "./a/", "", "a" },
        { "/usr/bin/x", "usr/bin", "x" },
        { "a//b/./c", "a/b", "c" },
        { "./", "", "" },
        { "", "", "" },
        { "/", "", "" },
        { "a/..b/...", "a/..b", "..." },
    };
    struct image_name *name = xnew(struct image_name);
    autofree void *owned = name;
    struct err err = { 0 };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        CHECK_OK(name_parse(name, cases[i].text, &err), &err);
        CHECK_STR(name->dir, cases[i].dir);
        CHECK_STR(name->base, cases[i].base);
    }
}

TEST(names_that_lead_out_are_refused)
{
    static const char *const bad[] = { "..", "../x", "a/../b", "/..", "a/..", "./../x" };
    struct image_name *name = xnew(struct image_name);
    autofree void *owned = name;
    struct err err;

    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        CHECK(name_parse(name, bad[i], &err) < 0 && err.code == ERR_INVALID);
}

static char *repeat(const char *text, size_t times, const char *last)
{
    struct buf out = { 0 };

    for (size_t i = 0; i < times; i++)
        buf_puts(&out, text);
    buf_puts(&out, last);
    return buf_take(&out, NULL);
}

TEST(names_have_limits)
{
    struct image_name *name = xnew(struct image_name);
    autofree void *owned = name;
    autofree char *deep = repeat("d/", IMAGE_DEPTH_MAX - 1, "x");
    autofree char *deeper = repeat("d/", IMAGE_DEPTH_MAX, "x");
    autofree char *part = repeat("p", 255, ""), *longer = repeat("p", 256, "");
    autofree char *path = repeat("0123456789abcde/", 255, "0123456789abcde");
    struct err err;

    CHECK_OK(name_parse(name, deep, &err), &err);
    CHECK(name_parse(name, deeper, &err) < 0 && strstr(err.msg, "deep"));
    CHECK_OK(name_parse(name, part, &err), &err);
    CHECK(name_parse(name, longer, &err) < 0 && strstr(err.msg, "256 bytes"));
    CHECK(name_parse(name, path, &err) < 0 && strstr(err.msg, "deep"));
    /* 16 parts of 255 are one byte too many for a path with its NUL. */
    autofree char *dir = repeat("a", 255, "/");
    autofree char *wide = repeat(dir, 16, "x"), *wider = repeat(dir, 17, "x");
    CHECK_OK(name_parse(name, wide, &err), &err);
    CHECK_INT(strlen(name->dir), IMAGE_PATH_MAX);
    CHECK(name_parse(name, wider, &err) < 0 && strstr(err.msg, "path of more than"));
}

/* ---- honest layers ---- */

TEST(every_kind_of_file_comes_out)
{
    autorig struct rig rig;
    struct stat st;
    char target[32] = { 0 };

    rig_init(&rig);
    rig_add(&rig.tar, (struct rig_entry){
                          .name = "usr", .type = '5', .mode = 0555, .mtime = 1000, .size = -1 });
    rig_add(&rig.tar, (struct rig_entry){ .name = "usr/file",
                                          .type = '0',
                                          .mode = 06751,
                                          .mtime = 2000,
                                          .data = STR("hello"),
                                          .size = -1 });
    rig_link(&rig.tar, '2', "usr/soft", "/etc/passwd");
    rig_link(&rig.tar, '1', "usr/hard", "./usr/file");
    rig_add(&rig.tar, (struct rig_entry){ .name = "fifo", .type = '6', .mode = 0640, .size = -1 });
    rig_file(&rig.tar, "not/told/of", "x");
    CHECK_OK(unpack(&rig), &rig.err);

    CHECK_STR(content(&rig, "usr/file"), "hello");
    CHECK(there(&rig, "usr/file", &st) && st.st_mtime == 2000 && st.st_nlink == 2);
    CHECK_INT(st.st_mode & 07777, 0751); /* without setuid and setgid */
    CHECK_INT(rig.counts.setuid, 1);
    CHECK(there(&rig, "usr", &st) && st.st_mtime == 1000);
    CHECK_INT(st.st_mode & 07777, geteuid() ? 0755 : 0555);
    CHECK(readlinkat(rig.out, "usr/soft", target, sizeof(target)) == 11);
    CHECK_STR(target, "/etc/passwd");
    CHECK(there(&rig, "fifo", &st) && S_ISFIFO(st.st_mode) && (st.st_mode & 0777) == 0640);
    CHECK(there(&rig, "not/told", &st) && (st.st_mode & 07777) == 0755);
    CHECK_INT(rig.counts.entries, 6);
    CHECK_INT(rig.counts.bytes, 6);
}

TEST(a_name_that_comes_again_is_replaced)
{
    autorig struct rig rig;
    struct stat st;

    rig_init(&rig);
    rig_link(&rig.tar, '2', "a", "/etc/passwd");
    rig_file(&rig.tar, "a", "one");
    rig_file(&rig.tar, "a", "two");
    rig_dir(&rig.tar, "b");
    rig_link(&rig.tar, '2', "b", "a");
    rig_file(&rig.tar, "c", "three");
    rig_dir(&rig.tar, "c");
    rig_file(&rig.tar, "c/d", "four");
    CHECK_OK(unpack(&rig), &rig.err);
    CHECK_STR(content(&rig, "a"), "two");
    CHECK(there(&rig, "b", &st) && S_ISLNK(st.st_mode));
    CHECK_STR(content(&rig, "c/d"), "four");
}

TEST(owners_are_kept_by_number)
{
    autorig struct rig rig;
    struct stat st;

    if (geteuid() != 0)
        test_skip("files can be given away by root alone");
    rig_init(&rig);
    rig_add(&rig.tar,
            (struct rig_entry){
                .name = "f", .type = '0', .mode = 0600, .uid = 65535, .gid = 42, .size = -1 });
    CHECK_OK(unpack(&rig), &rig.err);
    CHECK(there(&rig, "f", &st) && st.st_uid == 65535 && st.st_gid == 42);
    rig_again(&rig);
    rig_add(&rig.tar,
            (struct rig_entry){ .name = "g", .type = '0', .mode = 0600, .uid = 65536, .size = -1 });
    refused(&rig, ERR_INVALID, "65536");
}

TEST(only_plain_user_attributes_are_kept)
{
    autorig struct rig rig;
    char value[8];

    rig_init(&rig);
    rig_pax(&rig.tar, "SCHILY.xattr.user.note", STR("hi"));
    rig_file(&rig.tar, "a", "");
    rig_pax(&rig.tar, "SCHILY.xattr.user.overlay.redirect", STR("/etc"));
    rig_file(&rig.tar, "b", "");
    rig_pax(&rig.tar, "SCHILY.xattr.security.capability", STR("xxxx"));
    rig_file(&rig.tar, "c", "");
    rig_pax(&rig.tar, "SCHILY.xattr.user.overlay.opaque", STR("y"));
    rig_dir(&rig.tar, "d");
    CHECK_OK(unpack(&rig), &rig.err);
    autoclose int a = openat(rig.out, "a", O_RDONLY | O_CLOEXEC);
    autoclose int b = openat(rig.out, "b", O_RDONLY | O_CLOEXEC);
    autoclose int c = openat(rig.out, "c", O_RDONLY | O_CLOEXEC);
    CHECK(fgetxattr(a, "user.note", value, sizeof(value)) == 2 && memcmp(value, "hi", 2) == 0);
    CHECK_INT(flistxattr(b, NULL, 0), 0);
    CHECK(fgetxattr(c, "security.capability", value, sizeof(value)) < 0);
    CHECK(!is_opaque(&rig, "d"));
    CHECK_INT(rig.counts.xattrs, 3);
}

/* ---- whiteouts ---- */

TEST(whiteouts_become_what_overlayfs_reads)
{
    autorig struct rig rig;

    rig_init(&rig);
    rig_file(&rig.tar, "etc/.wh.passwd", "");
    rig_file(&rig.tar, "opt/.wh..wh..opq", "");
    rig_file(&rig.tar, "opt/.wh..wh.plnk", "");
    CHECK_OK(unpack(&rig), &rig.err);
    CHECK(is_gone_mark(&rig, "etc/passwd"));
    CHECK(is_opaque(&rig, "opt") && !is_opaque(&rig, "etc"));
    CHECK_INT(rig.counts.whiteouts, 2);
}

TEST(what_is_deleted_and_made_again_hides_what_was_below)
{
    autorig struct rig rig;

    rig_init(&rig);
    rig_file(&rig.tar, ".wh.first", "");
    rig_dir(&rig.tar, "first");
    rig_dir(&rig.tar, "second");
    rig_file(&rig.tar, "second/x", "kept");
    rig_file(&rig.tar, ".wh.second", "");
    rig_file(&rig.tar, ".wh.third", "");
    rig_file(&rig.tar, "third/x", "kept");
    rig_file(&rig.tar, "file", "kept");
    rig_file(&rig.tar, ".wh.file", "");
    CHECK_OK(unpack(&rig), &rig.err);
    CHECK(is_opaque(&rig, "first") && is_opaque(&rig, "second") && is_opaque(&rig, "third"));
    CHECK_STR(content(&rig, "second/x"), "kept");
    CHECK_STR(content(&rig, "third/x"), "kept");
    CHECK_STR(content(&rig, "file"), "kept");
}

TEST(an_opaque_directory_has_no_whiteouts)
{
    autorig struct rig rig;
    struct stat st;

    rig_init(&rig);
    rig_file(&rig.tar, "d/.wh.before", "");
    rig_file(&rig.tar, "d/.wh..wh..opq", "");
    rig_file(&rig.tar, "d/.wh.after", "");
    rig_file(&rig.tar, "d/kept", "x");
    CHECK_OK(unpack(&rig), &rig.err);
    CHECK(is_opaque(&rig, "d") && !there(&rig, "d/before", &st) && !there(&rig, "d/after", &st));
    CHECK_STR(content(&rig, "d/kept"), "x");
}

TEST(whiteouts_of_nothing_are_refused)
{
    static const char *const bad[] = { "a/.wh.", "a/.wh..", "a/.wh..." };

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        autorig struct rig rig;

        rig_init(&rig);
        rig_file(&rig.tar, bad[i], "");
        refused(&rig, ERR_INVALID, "hides nothing");
    }
    autorig struct rig rig;
    rig_init(&rig);
    rig_file(&rig.tar, ".wh..wh..opq", "");
    refused(&rig, ERR_UNPROCESSABLE, "hides all");
}

/* ---- hostile layers ---- */

TEST(nothing_is_written_through_a_symbolic_link)
{
    static const char *const names[] = { "link/file", "link/deeper/file", "link/.wh.file",
                                         "link/.wh..wh..opq" };

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        autorig struct rig rig;
        const char *outside = test_dir();
        autoclose int dir = rig_dir_fd(outside);
        autofree char *deeper = xprintf("%s/deeper", outside);
        struct stat st;

        CHECK(mkdir(deeper, 0755) == 0);
        rig_init(&rig);
        rig_link(&rig.tar, '2', "link", outside);
        rig_file(&rig.tar, names[i], "evil");
        refused(&rig, ERR_INVALID, "symbolic link");
        CHECK(fstatat(dir, "file", &st, AT_SYMLINK_NOFOLLOW) < 0);
        CHECK(fstatat(dir, "deeper/file", &st, AT_SYMLINK_NOFOLLOW) < 0);
    }
}

TEST(a_link_within_is_not_followed_either)
{
    autorig struct rig rig;

    rig_init(&rig);
    rig_dir(&rig.tar, "real");
    rig_link(&rig.tar, '2', "link", "real");
    rig_file(&rig.tar, "link/file", "x");
    refused(&rig, ERR_INVALID, "symbolic link");
}

TEST(a_directory_entry_does_not_go_through_a_link)
{
    autorig struct rig rig;
    const char *outside = test_dir();
    struct stat before, after;

    rig_init(&rig);
    CHECK(stat(outside, &before) == 0);
    rig_link(&rig.tar, '2', "link", outside);
    rig_add(&rig.tar, (struct rig_entry){ .name = "link", .type = '5', .mode = 0777, .size = -1 });
    CHECK_OK(unpack(&rig), &rig.err); /* replaces the link */
    CHECK(stat(outside, &after) == 0 && before.st_mode == after.st_mode);
    CHECK(there(&rig, "link", &after) && S_ISDIR(after.st_mode));
}

TEST(modes_set_at_the_end_do_not_follow_a_late_link)
{
    autorig struct rig rig;
    const char *outside = test_dir();
    struct stat before, after;

    rig_init(&rig);
    CHECK(stat(outside, &before) == 0);
    rig_add(&rig.tar, (struct rig_entry){ .name = "d", .type = '5', .mode = 0777, .size = -1 });
    rig_link(&rig.tar, '2', "d", outside);
    CHECK_OK(unpack(&rig), &rig.err);
    CHECK(stat(outside, &after) == 0 && before.st_mode == after.st_mode &&
          before.st_mtim.tv_nsec == after.st_mtim.tv_nsec);
}

TEST(hard_links_stay_in_the_layer)
{
    static const char *const bad[] = { "/etc/hostname", "../x",         "nowhere", "dir", ".",
                                       "gone",          "link/hostname" };

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        autorig struct rig rig;
        struct stat st;

        rig_init(&rig);
        rig_dir(&rig.tar, "dir");
        rig_link(&rig.tar, '2', "link", "/etc");
        rig_file(&rig.tar, ".wh.gone", "");
        rig_link(&rig.tar, '1', "hard", bad[i]);
        refused(&rig, ERR_INVALID, "hard link");
        CHECK(!there(&rig, "hard", &st));
    }
}

TEST(a_hard_link_to_a_symbolic_link_is_to_the_link)
{
    autorig struct rig rig;
    struct stat st;

    rig_init(&rig);
    rig_link(&rig.tar, '2', "soft", "/etc/hostname");
    rig_link(&rig.tar, '1', "hard", "soft");
    rig_link(&rig.tar, '1', "hard", "soft"); /* twice, and to itself: nothing happens */
    rig_link(&rig.tar, '1', "soft", "soft");
    CHECK_OK(unpack(&rig), &rig.err);
    CHECK(there(&rig, "hard", &st) && S_ISLNK(st.st_mode) && st.st_nlink == 2);
}

TEST(devices_are_left_out)
{
    autorig struct rig rig;
    struct stat st;

    rig_init(&rig);
    rig_add(&rig.tar, (struct rig_entry){
                          .name = "dev/null", .type = '3', .major = 1, .minor = 3, .size = -1 });
    rig_add(&rig.tar, (struct rig_entry){
                          .name = "dev/sda", .type = '4', .major = 8, .minor = 0, .size = -1 });
    rig_add(&rig.tar, (struct rig_entry){ .name = "usr/gone", .type = '3', .size = -1 });
    CHECK_OK(unpack(&rig), &rig.err);
    CHECK(!there(&rig, "dev/null", &st) && !there(&rig, "dev/sda", &st));
    CHECK(!there(&rig, "usr/gone", &st)); /* 0/0 itself is a device like others */
    CHECK_INT(rig.counts.devices, 3);
}

TEST(mount_points_must_be_directories)
{
    static const char *const points[] = { "dev", "./proc", "/sys", "tmp", "run", "etc" };

    for (size_t i = 0; i < ARRAY_LEN(points); i++) {
        autorig struct rig rig;

        rig_init(&rig);
        rig_link(&rig.tar, '2', points[i], "/somewhere");
        refused(&rig, ERR_UNPROCESSABLE, "is a symbolic link");
    }
    autorig struct rig rig;
    rig_init(&rig);
    rig_file(&rig.tar, "dev", "");
    refused(&rig, ERR_UNPROCESSABLE, "is no directory");
}

TEST(a_workspace_may_be_a_link_and_no_file)
{
    static const char *const spellings[] = { "workspace", "./workspace", "/workspace" };
    autorig struct rig rig;
    struct stat st;

    rig_init(&rig);
    rig_file(&rig.tar, "srv/workspace", "deeper ones are nobody's affair");
    rig_link(&rig.tar, '2', "workspace", "/srv");
    CHECK_OK(unpack(&rig), &rig.err);
    CHECK(there(&rig, "workspace", &st) && S_ISLNK(st.st_mode));
    for (size_t i = 0; i < ARRAY_LEN(spellings); i++) {
        rig_again(&rig);
        rig_file(&rig.tar, spellings[i], "x");
        refused(&rig, ERR_UNPROCESSABLE, "/workspace is no directory");
        rig_again(&rig);
        rig_file(&rig.tar, "f", "x");
        rig_link(&rig.tar, '1', spellings[i], "f");
        refused(&rig, ERR_UNPROCESSABLE, "/workspace is no directory");
    }
}

TEST(a_directory_with_entries_is_not_replaced)
{
    autorig struct rig rig;

    rig_init(&rig);
    rig_file(&rig.tar, "d/x", "x");
    rig_file(&rig.tar, "d", "x");
    refused(&rig, ERR_INVALID, "replaces a directory");
}

TEST(a_file_has_nothing_in_it)
{
    autorig struct rig rig;

    rig_init(&rig);
    rig_file(&rig.tar, "f", "x");
    rig_file(&rig.tar, "f/x", "x");
    refused(&rig, ERR_INVALID, "no directory");
}

TEST(sizes_that_lie_are_found)
{
    autorig struct rig rig;

    rig_init(&rig);
    rig_add(&rig.tar,
            (struct rig_entry){ .name = "f", .type = '0', .data = STR("abc"), .size = 1 << 20 });
    refused(&rig, ERR_INVALID, "f: ");
    rig_again(&rig);
    rig_pax(&rig.tar, "size", STR("1000000000000000"));
    rig_file(&rig.tar, "f", "abc");
    refused(&rig, ERR_LIMIT, "bytes");
    rig_again(&rig);
    rig_file(&rig.tar, "f", "abc");
    rig.tar.data[124] = '9'; /* and a header whose sum is wrong */
    refused(&rig, ERR_INVALID, "archive");
}

/* ---- limits ---- */

static void many(struct rig *rig, unsigned count)
{
    rig_init(rig);
    for (unsigned i = 0; i < count; i++) {
        char name[32];

        snprintf(name, sizeof(name), "f%u", i);
        rig_file(&rig->tar, name, "1234567890");
    }
}

TEST(entries_have_a_limit)
{
    autorig struct rig at = { 0 }, past = { 0 };

    many(&at, 20);
    at.limits.entries = 20;
    CHECK_OK(unpack(&at), &at.err);
    many(&past, 21);
    past.limits.entries = 20;
    refused(&past, ERR_LIMIT, "more than 20 entries");
}

TEST(bytes_have_a_limit)
{
    autorig struct rig at = { 0 }, past = { 0 };

    many(&at, 20);
    at.limits.bytes = 200;
    CHECK_OK(unpack(&at), &at.err);
    many(&past, 20);
    past.limits.bytes = 199;
    refused(&past, ERR_LIMIT, "199 bytes");
}

TEST(names_of_directories_have_a_limit)
{
    for (unsigned past = 0; past < 2; past++) {
        autorig struct rig rig;

        rig_init(&rig);
        rig.limits.dirs_bytes = 3200 - past;
        for (unsigned i = 0; i < 100; i++) { /* 24 bytes and "/ddddd00" each */
            char name[32];

            snprintf(name, sizeof(name), "ddddd%02u", i);
            rig_dir(&rig.tar, name);
        }
        if (past)
            refused(&rig, ERR_LIMIT, "directories");
        else
            CHECK_OK(unpack(&rig), &rig.err);
    }
}

TEST(attributes_have_limits)
{
    autorig struct rig rig;
    autofree char *large = repeat("v", IMAGE_XATTR_MAX + 1, "");

    rig_init(&rig);
    rig_pax(&rig.tar, "SCHILY.xattr.user.note", str_of(large));
    rig_file(&rig.tar, "a", "");
    refused(&rig, ERR_LIMIT, "attribute of 65537 bytes");

    for (unsigned past = 0; past < 2; past++) {
        autorig struct rig two = { 0 };
        autobuf struct buf records = { 0 };

        rig_init(&two);
        for (unsigned i = 0; i < IMAGE_XATTRS_MAX + past; i++) {
            char key[64];

            snprintf(key, sizeof(key), "SCHILY.xattr.trusted.n%u", i);
            rig_record(&records, key, STR("v"));
        }
        rig_records(&two.tar, &records);
        rig_file(&two.tar, "a", "");
        if (past)
            refused(&two, ERR_LIMIT, "more than 128 attributes");
        else
            CHECK_OK(unpack(&two), &two.err);
    }
}

/* A file of zeros, compressed: how many bytes come out of each. */
static int unpack_zeros(struct rig *rig, size_t size)
{
    autobuf struct buf packed = { 0 };
    autofree char *zeros = xcalloc(1, size);

    rig_add(&rig->tar, (struct rig_entry){
                           .name = "zeros", .type = '0', .data = { zeros, size }, .size = -1 });
    rig_end(&rig->tar);
    rig_gzip(&packed, buf_view(&rig->tar));
    return unpack_bytes(rig, buf_view(&packed));
}

TEST(bombs_are_seen_by_what_comes_out)
{
    autorig struct rig rig = { 0 };

    rig_init(&rig);
    rig.limits.ratio_free = 8 << 20;
    CHECK_INT(unpack_zeros(&rig, 16 << 20), -1);
    CHECK_INT(rig.err.code, ERR_LIMIT);
    CHECK(strstr(rig.err.msg, "more than 200 bytes"));
    buf_free(&rig.tar);
    close(rig.out);
    rig_init(&rig); /* the same, below what is free */
    rig.limits.ratio_free = 32 << 20;
    CHECK_OK(unpack_zeros(&rig, 16 << 20), &rig.err);
}

TEST(compressed_twice_is_refused)
{
    autorig struct rig rig = { 0 };
    autobuf struct buf once = { 0 }, twice = { 0 };

    rig_init(&rig);
    rig_file(&rig.tar, "f", "x");
    rig_end(&rig.tar);
    rig_gzip(&once, buf_view(&rig.tar));
    CHECK_OK(unpack_bytes(&rig, buf_view(&once)), &rig.err);
    rig_gzip(&twice, buf_view(&once));
    CHECK_INT(unpack_bytes(&rig, buf_view(&twice)), -1);
    CHECK(strstr(rig.err.msg, "more than once"));
}

TEST(a_full_disk_is_said_as_such)
{
    autorig struct rig rig = { 0 };
    autofree char *large = repeat("0123456789abcdef", 16384, "");

    rig_init(&rig);
    if (geteuid() != 0 || unshare(CLONE_NEWNS) < 0 ||
        mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("tmpfs", rig.dir, "tmpfs", 0, "size=64k") < 0)
        test_skip("cannot mount a small file system");
    close(rig.out);
    rig.out = rig_dir_fd(rig.dir);
    rig_file(&rig.tar, "large", large);
    refused(&rig, ERR_NO_SPACE, "no room for large");
    CHECK(umount2(rig.dir, MNT_DETACH) == 0);
}

TEST(anything_cut_off_or_flipped_ends_cleanly)
{
    autobuf struct buf tar = { 0 }, packed = { 0 };

    rig_dir(&tar, "d");
    rig_file(&tar, "d/f", "some content that is long enough to be cut somewhere in the middle");
    rig_link(&tar, '2', "d/l", "f");
    rig_link(&tar, '1', "d/h", "d/f");
    rig_file(&tar, "d/.wh.x", "");
    rig_end(&tar);
    rig_gzip(&packed, buf_view(&tar));
    for (unsigned round = 0; round < 400; round++) {
        autorig struct rig rig = { 0 };
        struct str from = buf_view(round % 2 ? &packed : &tar);
        autofree char *copy = xmemdup0(from.p, from.n);
        size_t len = round % 4 < 2 ? from.n : test_rand((uint32_t)from.n);
        static const char *dir;

        if (round % 4 < 2)
            copy[test_rand((uint32_t)from.n)] ^= (char)(1 + test_rand(255));
        dir = round == 0 ? test_dir() : dir;
        rig = (struct rig){ .limits = image_limits, .out = rig_dir_fd(dir) };
        if (unpack_bytes(&rig, (struct str){ copy, len }) < 0)
            CHECK(rig.err.code && rig.err.msg[0]);
    }
}

/* ---- several layers in one directory ---- */

static int unpack_two(struct rig *rig, struct buf *lower, struct buf *upper)
{
    rig_end(lower);
    rig_end(upper);
    autoclose int one = rig_fd(buf_view(lower)), two = rig_fd(buf_view(upper));
    const int fds[] = { one, two };

    rig->err = (struct err){ 0 };
    return image_unpack(&rig->limits, fds, 2, rig->out, &rig->counts, &rig->err);
}

TEST(layers_lie_on_top_of_one_another)
{
    autorig struct rig rig;
    autobuf struct buf lower = { 0 }, upper = { 0 };
    struct stat st;

    rig_init(&rig);
    rig_file(&lower, "kept", "1");
    rig_file(&lower, "changed", "1");
    rig_file(&lower, "gone", "1");
    rig_file(&lower, "deep/a/b/c", "1");
    rig_file(&lower, "deep/a/d", "1");
    rig_file(&lower, "opaque/old", "1");
    rig_file(&lower, "opaque/olds/x", "1");
    rig_file(&lower, "tree/x/y", "1");
    rig_link(&lower, '2', "link", "kept");
    rig_file(&lower, ".wh.nothing", "");
    rig_file(&upper, "opaque/new", "2"); /* before the mark that hides what is below */
    rig_file(&upper, "opaque/.wh..wh..opq", "");
    rig_file(&upper, "changed", "2");
    rig_file(&upper, ".wh.gone", "");
    rig_file(&upper, ".wh.deep", "");
    rig_file(&upper, "tree", "a file now");
    rig_dir(&upper, "link");
    rig_file(&upper, "no/.wh.such", "");
    CHECK_OK(unpack_two(&rig, &lower, &upper), &rig.err);
    CHECK_STR(content(&rig, "kept"), "1");
    CHECK_STR(content(&rig, "changed"), "2");
    CHECK(!there(&rig, "gone", &st) && !there(&rig, "deep", &st));
    CHECK_STR(content(&rig, "opaque/new"), "2");
    CHECK(!there(&rig, "opaque/old", &st) && !there(&rig, "opaque/olds", &st));
    CHECK(!is_opaque(&rig, "opaque") && !there(&rig, "nothing", &st));
    CHECK_STR(content(&rig, "tree"), "a file now");
    CHECK(there(&rig, "link", &st) && S_ISDIR(st.st_mode));
}

TEST(a_deep_tree_goes_without_a_deep_stack)
{
    autorig struct rig rig;
    autobuf struct buf lower = { 0 }, upper = { 0 };
    autofree char *deep = repeat("d/", IMAGE_DEPTH_MAX - 1, "x");
    struct stat st;

    rig_init(&rig);
    rig_file(&lower, deep, "1");
    rig_file(&upper, ".wh.d", "");
    CHECK_OK(unpack_two(&rig, &lower, &upper), &rig.err);
    CHECK(!there(&rig, "d", &st));
}

TEST(what_is_hidden_is_never_outside)
{
    static const char *const names[] = { "link/.wh.file", "link/.wh..wh..opq", ".wh.link" };

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        autorig struct rig rig;
        autobuf struct buf lower = { 0 }, upper = { 0 };
        const char *outside = test_dir();
        autoclose int dir = rig_dir_fd(outside);
        autoclose int file = openat(dir, "file", O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
        struct stat st;

        rig_init(&rig);
        rig_link(&lower, '2', "link", outside);
        rig_file(&upper, names[i], "");
        (void)unpack_two(&rig, &lower, &upper);
        CHECK(fstatat(dir, "file", &st, 0) == 0);
    }
    autorig struct rig rig;
    autobuf struct buf lower = { 0 }, upper = { 0 };
    rig_init(&rig);
    rig_file(&lower, "a/x", "");
    rig_file(&upper, "a/.wh...", "");
    CHECK(unpack_two(&rig, &lower, &upper) < 0 && strstr(rig.err.msg, "hides nothing"));
}
