/*
 * tree: archives and walks against hostile names, hostile neighbours and a naive model. The
 * unpacker is compiled into this program with its guards as switches (base/guard.h): each attack
 * that a guard stops must succeed without it.
 */
#define ATOLL_UNGUARDED
#include "tree/tar_in.c"

#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/wait.h>

#include "base/buf.h"
#include "base/hash.h"
#include "base/test.h"
#include "tree/sha.h"

static char base[64];

static void unpack_without(const char *guards)
{
    CHECK(setenv("ATOLL_WITHOUT", guards, 1) == 0);
}

static void remove_base(void)
{
    struct tree_fail failure;
    autoclose int shm = open("/dev/shm", O_PATH | O_DIRECTORY | O_CLOEXEC);

    (void)!tree_remove(shm, strrchr(base, '/') + 1, &failure);
}

/* In memory, where tens of thousands of files cost nothing. */
static int new_dir(char path[4096])
{
    static int count;

    if (!base[0]) {
        snprintf(base, sizeof(base), "/dev/shm/atoll-test-XXXXXX");
        CHECK(mkdtemp(base));
        CHECK(atexit(remove_base) == 0);
    }
    snprintf(path, 4096, "%s/d%d", base, count++);
    CHECK(mkdir(path, 0755) == 0);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK(fd >= 0);
    return fd;
}

static int put_buf(void *ctx, const void *data, size_t len)
{
    buf_append(ctx, data, len);
    return 0;
}

struct feed {
    struct str rest;
    size_t step;
};

static ssize_t get_buf(void *ctx, void *out, size_t len)
{
    struct feed *feed = ctx;
    size_t part = MIN(MIN(len, feed->step), feed->rest.n);

    if (part)
        memcpy(out, feed->rest.p, part);
    feed->rest = str_from(feed->rest, part);
    return (ssize_t)part;
}

static void write_file(int dir, const char *name, const char *data, size_t len)
{
    autoclose int fd = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

    CHECK(fd >= 0 && write(fd, data, len) == (ssize_t)len);
}

static bool there(int dir, const char *name)
{
    struct stat st;

    return fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

static void read_small(int dir, const char *name, char out[64])
{
    autoclose int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, out, 63);

    out[got > 0 ? got : 0] = 0;
}

/* ---- digests ---- */

TEST(sha256_is_that_of_libcrypto)
{
    char data[1000];

    for (int round = 0; round < 4000; round++) {
        size_t len = test_rand(sizeof(data)), at = 0;
        unsigned char want[32], got[32];
        struct sha_run run;

        sha_plain = round % 2;

        for (size_t i = 0; i < len; i++)
            data[i] = (char)test_rand(256);
        sha_begin(&run);
        while (at < len) {
            size_t part = 1 + test_rand((uint32_t)(len - at));

            sha_add(&run, data + at, part);
            at += part;
        }
        sha_end(&run, got);
        sha256(data, len, want);
        CHECK(memcmp(want, got, 32) == 0);
    }
    sha_plain = false;
}

/* ---- records ---- */

TEST(records_are_taken_as_they_were_put)
{
    struct stat st = { .st_mode = S_IFLNK | 0777, .st_size = 5, .st_mtim = { 77, 999999999 } };
    static char text[TREE_RECORD_MAX];
    struct tree_entry entry;
    size_t len = tree_record_put(text, &st, "a/b", "to", NULL);

    CHECK(tree_record_take(text, len, &entry) == (ssize_t)len);
    CHECK(entry.head.name_len == 3 && memcmp(entry.name, "a/b", 3) == 0);
    CHECK(entry.head.link_len == 2 && memcmp(entry.link, "to", 2) == 0);
    CHECK(entry.head.mtime == 77 && entry.head.mtime_ns == 999999999);
    for (size_t cut = 0; cut < len; cut++)
        CHECK(tree_record_take(text, cut, &entry) == 0);
}

static ssize_t take_named(const char *name, size_t name_len)
{
    static char text[sizeof(struct tree_record) + 2 * 65536];
    struct tree_record head = { .name_len = (uint16_t)name_len, .mode = S_IFREG | 0644 };
    struct tree_entry entry;

    memcpy(text, &head, sizeof(head));
    memcpy(text + sizeof(head), name, name_len);
    return tree_record_take(text, sizeof(text), &entry);
}

TEST(records_with_names_that_no_tree_has_are_refused)
{
    static const char *const bad[] = {
        "/a", "a/", "a//b", ".", "..", "a/../b", "a/./b", "../a", "/"
    };
    static char longest[5000];

    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        CHECK_INT(take_named(bad[i], strlen(bad[i])), -1);
    CHECK_INT(take_named("", 0), -1);
    CHECK_INT(take_named("a\0b", 3), -1);
    CHECK(take_named("...", 3) > 0 && take_named(".a/..b", 6) > 0);
    memset(longest, 'x', sizeof(longest));
    CHECK(take_named(longest, TREE_NAME_MAX) > 0);
    CHECK_INT(take_named(longest, TREE_NAME_MAX + 1), -1);
    for (size_t i = 1; i < sizeof(longest); i += 2)
        longest[i] = '/';
    CHECK(take_named(longest, TREE_PATH_MAX) > 0);
    CHECK_INT(take_named(longest, TREE_PATH_MAX + 2), -1);
}

/* ---- archives made by hand ---- */

static void octal_field(char *field, size_t len, uint64_t value)
{
    for (size_t i = len - 1; i-- > 0; value >>= 3)
        field[i] = (char)('0' + (value & 7));
}

static void add_raw(struct buf *out, char type, const char *name, const char *link, uint32_t mode,
                    uint64_t size)
{
    struct tar_raw raw = { .type = type };
    uint32_t sum = 0;
    char text[9];

    memcpy(raw.name, name, strnlen(name, sizeof(raw.name)));
    memcpy(raw.link, link, strnlen(link, sizeof(raw.link)));
    octal_field(raw.mode, 8, mode);
    octal_field(raw.uid, 8, 0);
    octal_field(raw.gid, 8, 0);
    octal_field(raw.size, 12, size);
    octal_field(raw.mtime, 12, 1000000000);
    memcpy(raw.magic, "ustar\00000", 8);
    memset(raw.sum, ' ', 8);
    for (size_t i = 0; i < sizeof(raw); i++)
        sum += ((unsigned char *)&raw)[i];
    snprintf(text, sizeof(text), "%06o", sum);
    memcpy(raw.sum, text, 7);
    buf_append(out, &raw, sizeof(raw));
}

static void add_data(struct buf *out, const char *data, size_t len)
{
    static const char zeros[TAR_BLOCK];

    buf_append(out, data, len);
    buf_append(out, zeros, (TAR_BLOCK - len % TAR_BLOCK) % TAR_BLOCK);
}

static void add(struct buf *out, char type, const char *name, const char *link, const char *data)
{
    add_raw(out, type, name, link, 0644, strlen(data));
    add_data(out, data, strlen(data));
}

static void add_end(struct buf *out)
{
    static const char zeros[2 * TAR_BLOCK];

    buf_append(out, zeros, sizeof(zeros));
}

static int unpack_max(int dir, const struct buf *archive, struct tree_fail *failure,
                      uint64_t entries_max)
{
    struct feed feed = { buf_view(archive), 1 + test_rand(5000) };
    struct tree_source source = { get_buf, &feed };
    struct untar_options options = { .entries_max = entries_max };
    struct untar_sum sum;

    return tree_untar(dir, &source, &options, &sum, failure);
}

static int unpack_into(int dir, const struct buf *archive, struct tree_fail *failure)
{
    return unpack_max(dir, archive, failure, 0);
}

/* An attack on the directory `out`, from an archive unpacked into `in`, both in `dir`. */
struct attack {
    const char *name;
    const char *guards; /* without which it works, and with any of which it does not */
    enum tree_why why;
    struct {
        char type;
        const char *name, *link, *data;
    } entries[4];
};

static const struct attack attacks[] = {
    { "dots", "untar_clean,untar_beneath", TREE_OUTSIDE, { { '0', "../out/x", "", "evil" } } },
    { "its own link",
      "untar_beneath",
      TREE_OUTSIDE,
      { { '2', "l", "../out", "" }, { '0', "l/x", "", "evil" } } },
    { "a directory behind a link",
      "untar_beneath",
      TREE_OUTSIDE,
      { { '2', "l", "../out", "" }, { '5', "l/x", "", "" } } },
    { "directories on the way",
      "untar_beneath",
      TREE_OUTSIDE,
      { { '2', "l", "../out", "" }, { '0', "l/x/y", "", "evil" } } },
    { "a file through a link",
      "untar_exclusive",
      TREE_SYSTEM,
      { { '2', "l", "../out/x", "" }, { '0', "l", "", "evil" } } },
    { "a hard link out", "untar_link", TREE_OUTSIDE, { { '1', "h", "../out/secret", "" } } },
};

static void run_attack(const struct attack *attack, const char *without, bool succeeds)
{
    autobuf struct buf archive = { 0 };
    struct tree_fail failure = { 0 };
    char path[4096], text[64];
    struct stat st;
    autoclose int dir = new_dir(path);

    CHECK(mkdirat(dir, "in", 0755) == 0 && mkdirat(dir, "out", 0755) == 0);
    autoclose int in = openat(dir, "in", O_RDONLY | O_CLOEXEC);
    write_file(dir, "out/secret", "old", 3);
    for (size_t i = 0; i < ARRAY_LEN(attack->entries) && attack->entries[i].type; i++)
        add(&archive, attack->entries[i].type, attack->entries[i].name, attack->entries[i].link,
            attack->entries[i].data);
    add_end(&archive);
    unpack_without(without);
    int rc = unpack_into(in, &archive, &failure);
    unpack_without("");
    CHECK(fstatat(dir, "out/secret", &st, 0) == 0);
    bool escaped = there(dir, "out/x") || st.st_nlink > 1;
    if (escaped != succeeds)
        test_fail(__FILE__, __LINE__, "%s without %s: escaped %d", attack->name, without, escaped);
    if (*without)
        return;
    if (attack->why == TREE_SYSTEM) { /* replaced, not followed */
        CHECK_INT(rc, 0);
        read_small(in, "l", text);
        CHECK_STR(text, "evil");
        return;
    }
    CHECK_INT(rc, -1);
    CHECK_INT(failure.why, attack->why);
}

TEST(nothing_is_unpacked_outside_and_every_guard_is_needed)
{
    for (size_t i = 0; i < ARRAY_LEN(attacks); i++) {
        const char *guards = attacks[i].guards;

        run_attack(&attacks[i], "", false);
        if (strchr(guards, ',')) {
            char first[32];

            snprintf(first, sizeof(first), "%.*s", (int)strcspn(guards, ","), guards);
            run_attack(&attacks[i], first, false);
            run_attack(&attacks[i], strchr(guards, ',') + 1, false);
        }
        run_attack(&attacks[i], guards, true);
    }
}

TEST(setuid_is_cleared)
{
    for (int without = 0; without < 2; without++) {
        autobuf struct buf archive = { 0 };
        struct tree_fail failure;
        char path[4096];
        struct stat st;
        autoclose int dir = new_dir(path);

        add_raw(&archive, '0', "f", "", 06755, 0);
        add_raw(&archive, '5', "d", "", 07777, 0);
        add_end(&archive);
        if (without)
            unpack_without("untar_mode");
        CHECK_INT(unpack_into(dir, &archive, &failure), 0);
        unpack_without("");
        CHECK(fstatat(dir, "f", &st, 0) == 0);
        CHECK_INT(st.st_mode & 07777, without ? 06755 : 0755);
        CHECK(fstatat(dir, "d", &st, 0) == 0);
        CHECK_INT(st.st_mode & 07777, without ? 07777 : 0777);
    }
}

/* ---- racing ---- */

static atomic_bool racing;
static char race_path[4096];

/* Swaps the directory in/d for a link to out, and back, as fast as it can. */
static void *racer(void *ctx)
{
    char dir[4200], link[4200], side[4200];

    (void)ctx;
    snprintf(dir, sizeof(dir), "%s/in/d", race_path);
    snprintf(link, sizeof(link), "%s/link", race_path);
    snprintf(side, sizeof(side), "%s/in/side", race_path);
    while (racing) {
        if (symlink("../out", link) < 0 && errno != EEXIST)
            break;
        if (rename(dir, side) == 0) {
            (void)!rename(link, dir);
            unlink(dir);
            (void)!rename(side, dir);
        }
    }
    return NULL;
}

/* The same from inside: whenever the unpacker asks for bytes, the directory may be another. */
static int swap_dir = -1;
static bool swapped;

static ssize_t get_and_swap(void *ctx, void *out, size_t len)
{
    if (test_rand(2)) {
        swapped = !swapped;
        (void)!renameat2(swap_dir, "in/d", swap_dir, "other", RENAME_EXCHANGE);
    }
    return get_buf(ctx, out, len);
}

static unsigned swap_race(const char *without)
{
    autobuf struct buf archive = { 0 };
    struct tree_fail failure;
    struct untar_sum sum;
    char path[4096];
    unsigned escapes = 0, done = 0;
    autoclose int dir = new_dir(path);

    CHECK(mkdirat(dir, "in", 0755) == 0 && mkdirat(dir, "out", 0755) == 0);
    CHECK(mkdirat(dir, "in/d", 0755) == 0 && symlinkat("../out", dir, "other") == 0);
    autoclose int in = openat(dir, "in", O_RDONLY | O_CLOEXEC);
    swap_dir = dir;
    add(&archive, '0', "first", "", "x");
    add(&archive, '0', "d/x", "", "evil");
    add(&archive, '5', "d/y", "", "");
    add(&archive, '2', "d/l", "t", "");
    add(&archive, '1', "d/h", "first", "");
    add(&archive, '0', "d/z/f", "", "evil");
    add_end(&archive);
    unpack_without(without);
    for (int i = 0; i < 20000; i++) {
        struct feed feed = { buf_view(&archive), TAR_BLOCK };
        struct tree_source source = { get_and_swap, &feed };

        done += tree_untar(in, &source, NULL, &sum, &failure) == 0;
        for (const char *name = "xylhz"; *name; name++) {
            char file[] = { 'o', 'u', 't', '/', *name, 0 };

            escapes += there(dir, file);
            if (there(dir, file))
                CHECK_INT(tree_remove(dir, file, &failure), 0);
        }
    }
    unpack_without("");
    CHECK(done > 0); /* the guard does not refuse everything */
    return escapes;
}

TEST(swapping_directories_for_links_never_leads_out)
{
    CHECK_INT(swap_race(""), 0);
    CHECK(swap_race("untar_beneath") > 1000);
}

/* A tree is removed while somebody swaps what is in it for links to what must stay. */
TEST(removing_never_follows_a_swap)
{
    struct tree_fail failure;
    pthread_t thread;
    autoclose int dir = new_dir(race_path);

    CHECK(mkdirat(dir, "in", 0755) == 0 && mkdirat(dir, "out", 0755) == 0);
    write_file(dir, "out/stays", "x", 1);
    racing = true;
    CHECK(pthread_create(&thread, NULL, racer, NULL) == 0);
    for (int i = 0; i < 2000; i++) {
        if (mkdirat(dir, "in/d", 0755) == 0 && mkdirat(dir, "in/d/e", 0755) == 0)
            (void)!mkdirat(dir, "in/d/e/f", 0755);
        (void)!tree_remove(dir, "in/d", &failure);
        CHECK(there(dir, "out/stays"));
    }
    racing = false;
    pthread_join(thread, NULL);
}

/* ---- what is no archive ---- */

static void refused(const struct buf *archive, enum tree_why why)
{
    struct tree_fail failure = { 0 };
    char path[4096];
    autoclose int dir = new_dir(path);

    CHECK_INT(unpack_into(dir, archive, &failure), -1);
    CHECK_INT(failure.why, why);
}

static void pax(struct buf *out, const char *records)
{
    add(out, 'x', "pax", "", records);
}

TEST(malformed_archives_are_refused)
{
    static const char *const records[] = {
        "5 a=b\n",
        "7 a=b\n",
        "6 a=b ",
        "6 abc\n",
        "06 a=b\n\n",
        "6=a b\n",
        "a",
        "999999999999 a=b\n",
        "99999999999999999999 a=b\n",
        "10 size=x\n",
        "11 size=-1\n",
        "19 GNU.sparse.a=b\n",
        "7 path=\n",
        "5 =b\n",
    };
    autobuf struct buf archive = { 0 };

    refused(&archive, TREE_ARCHIVE); /* nothing at all */
    add(&archive, '0', "f", "", "x");
    refused(&archive, TREE_ARCHIVE); /* no end mark */
    for (size_t cut = 1; cut < archive.len; cut += 97) {
        struct buf part = { .data = archive.data, .len = cut };

        refused(&part, TREE_ARCHIVE);
    }
    for (size_t i = 0; i < ARRAY_LEN(records); i++) {
        buf_clear(&archive);
        pax(&archive, records[i]);
        add(&archive, '0', "f", "", "");
        add_end(&archive);
        refused(&archive, TREE_ARCHIVE);
    }
    buf_clear(&archive);
    add(&archive, '0', "f", "", "x");
    archive.data[3] ^= 1; /* the checksum sees it */
    add_end(&archive);
    refused(&archive, TREE_ARCHIVE);
    for (const char *type = "12345"; *type; type++) { /* only files have contents */
        buf_clear(&archive);
        add(&archive, *type, "f", "l", "contents");
        add_end(&archive);
        refused(&archive, strchr("34", *type) ? TREE_KIND : TREE_ARCHIVE);
    }
}

TEST(limits_of_archives)
{
    autobuf struct buf archive = { 0 };
    struct tree_fail failure;
    char path[4096], name[TREE_DEPTH_MAX * 2 + 8], record[TREE_DEPTH_MAX * 2 + 40];
    autoclose int dir = new_dir(path);

    for (int i = 0; i < 3; i++)
        add(&archive, '0', (const char *[]){ "a", "b", "c" }[i], "", "");
    add_end(&archive);
    CHECK_INT(unpack_max(dir, &archive, &failure, 3), 0);
    CHECK_INT(unpack_max(dir, &archive, &failure, 2), -1);
    CHECK_INT(failure.why, TREE_LIMIT);
    for (int over = 0; over < 2; over++) {
        size_t depth = (size_t)(TREE_DEPTH_MAX + over);

        for (size_t i = 0; i < depth; i++)
            memcpy(name + 2 * i, "d/", 2);
        name[2 * depth - 1] = 0;
        size_t len = strlen(name) + 11;
        snprintf(record, sizeof(record), "%zu path=%s\n", len, name);
        buf_clear(&archive);
        pax(&archive, record);
        add(&archive, '5', "short", "", "");
        add_end(&archive);
        CHECK_INT(unpack_into(dir, &archive, &failure), -over);
        CHECK(!over || failure.why == TREE_LIMIT);
    }
    CHECK_INT(tree_remove(dir, "d", &failure), 0);
    buf_clear(&archive);
    add_raw(&archive, 'x', "pax", "", 0644, TREE_PAX_MAX + 1);
    add_end(&archive);
    CHECK_INT(unpack_into(dir, &archive, &failure), -1);
    CHECK_INT(failure.why, TREE_LIMIT);
}

/* ---- there and back ---- */

static void grow_tree(int dir, int depth)
{
    static char data[70000];
    int count = (int)test_rand(6);

    for (int i = 0; i < count; i++) {
        char name[260];
        size_t len = 1 + test_rand(test_rand(4) ? 20 : 250);

        for (size_t k = 0; k < len; k++) {
            unsigned char c = (unsigned char)(1 + test_rand(255));

            name[k] = (char)(c == '/' || c == '.' ? 'x' : c);
        }
        name[len] = 0;
        uint32_t kind = test_rand(4);
        if (kind == 0 && depth < 6 && mkdirat(dir, name, 0755) == 0) {
            autoclose int inner = openat(dir, name, O_RDONLY | O_CLOEXEC);

            grow_tree(inner, depth + 1);
        } else if (kind == 1) {
            (void)!symlinkat(name, dir, "link");
        } else if (kind >= 2 && !there(dir, name)) {
            uint32_t size = test_rand(test_rand(3) ? 2000 : sizeof(data));

            memset(data, (int)test_rand(256), size);
            write_file(dir, name, data, size);
        }
    }
}

static void manifest_of(int dir, struct buf *out)
{
    struct tree_sink sink = { put_buf, out };
    struct tree_fail failure;

    CHECK_INT(tree_manifest(dir, &sink, &failure), 0);
}

TEST(what_is_packed_is_unpacked_the_same)
{
    for (int round = 0; round < 60; round++) {
        autobuf struct buf archive = { 0 }, again = { 0 }, want = { 0 }, got = { 0 };
        struct tree_sink sink = { put_buf, &archive }, twice = { put_buf, &again };
        struct tree_fail failure = { 0 };
        char path[4096];
        autoclose int from = new_dir(path), to = new_dir(path);

        grow_tree(from, 0);
        CHECK_INT(tree_tar(from, NULL, &sink, &failure), 0);
        CHECK(archive.len % TAR_BLOCK == 0);
        CHECK_INT(unpack_into(to, &archive, &failure), 0);
        CHECK_INT(tree_tar(to, NULL, &twice, &failure), 0);
        CHECK(str_eq(buf_view(&archive), buf_view(&again)));
        manifest_of(from, &want);
        manifest_of(to, &got);
        CHECK_INT(want.len, got.len);
        for (size_t a = 0, b = 0; a < want.len;) {
            struct tree_entry x, y;

            a += (size_t)tree_record_take(want.data + a, want.len - a, &x);
            b += (size_t)tree_record_take(got.data + b, got.len - b, &y);
            CHECK_INT(a, b);
            CHECK(x.head.mode == y.head.mode && x.head.mtime == y.head.mtime &&
                  memcmp(x.head.sha256, y.head.sha256, 32) == 0 &&
                  memcmp(x.name, y.name, x.head.name_len) == 0);
        }
    }
}

/* A header holds 100 bytes of a name: every way to cut one, also just behind a '/'. */
TEST(names_of_any_length_are_packed_and_unpacked)
{
    for (size_t len = 90; len <= 160; len++) {
        autobuf struct buf archive = { 0 };
        struct tree_sink sink = { put_buf, &archive };
        struct tree_fail failure = { 0 };
        char path[4096], dir[200], file[210];
        autoclose int from = new_dir(path), to = new_dir(path);

        memset(dir, 'd', len);
        dir[len] = 0;
        snprintf(file, sizeof(file), "%s/f", dir);
        CHECK_INT(mkdirat(from, dir, 0755), 0);
        write_file(from, file, "hello", 5);
        CHECK_INT(tree_tar(from, NULL, &sink, &failure), 0);
        CHECK_INT(unpack_into(to, &archive, &failure), 0);
        CHECK(there(to, file));
    }
}

static bool named_skip(void *ctx, const char *path, const struct stat *st)
{
    (void)ctx;
    return strcmp(path, "keep/skip") == 0 && S_ISDIR(st->st_mode);
}

TEST(what_a_filter_leaves_out_is_left_out_with_all_below_it)
{
    autobuf struct buf archive = { 0 };
    struct tree_sink sink = { put_buf, &archive };
    struct tree_filter filter = { named_skip, NULL };
    struct tree_fail failure = { 0 };
    char path[4096];
    autoclose int from = new_dir(path), to = new_dir(path);

    CHECK(mkdirat(from, "keep", 0755) == 0 && mkdirat(from, "keep/skip", 0755) == 0);
    CHECK(mkdirat(from, "skip", 0755) == 0);
    write_file(from, "keep/skip/deep", "x", 1);
    write_file(from, "keep/file", "x", 1);
    CHECK_INT(tree_tar(from, &filter, &sink, &failure), 0);
    CHECK_INT(unpack_into(to, &archive, &failure), 0);
    CHECK(there(to, "keep/file") && there(to, "skip"));
    CHECK(!there(to, "keep/skip"));
}

TEST(a_tree_of_any_depth_is_removed)
{
    struct tree_fail failure;
    char path[4096];
    autoclose int dir = new_dir(path);
    int at = fcntl(dir, F_DUPFD_CLOEXEC, 0);

    for (int i = 0; i < 60000; i++) {
        if (mkdirat(at, "d", 0755) < 0 || (i % 1000 == 0 && mkdirat(at, "e", 0755) < 0))
            break;
        int next = openat(at, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        CHECK(next >= 0);
        close(at);
        at = next;
    }
    close(at);
    CHECK_INT(tree_remove(dir, "d", &failure), 0);
    CHECK(!there(dir, "d"));
}

TEST(removing_takes_links_and_not_what_they_lead_to)
{
    struct tree_fail failure;
    char path[4096];
    autoclose int dir = new_dir(path);

    CHECK(mkdirat(dir, "d", 0755) == 0 && mkdirat(dir, "keep", 0755) == 0);
    write_file(dir, "keep/f", "x", 1);
    CHECK(symlinkat("../keep", dir, "d/l") == 0 && symlinkat("keep", dir, "l") == 0);
    CHECK_INT(tree_remove(dir, "l", &failure), 0);
    CHECK_INT(tree_remove(dir, "d", &failure), 0);
    CHECK(there(dir, "keep/f") && !there(dir, "d"));
    CHECK_INT(tree_remove(dir, "d", &failure), -1);
    CHECK_INT(failure.error, ENOENT);
}

/* ---- places ---- */

TEST(magic_links_and_kernel_file_systems_are_no_places_for_files)
{
    static const char *const magic[] = { "/proc/self/root/etc", "/proc/self/cwd", "/proc/self/fd/0",
                                         "/proc/self/exe" };
    char path[4096];
    autoclose int dir = new_dir(path), proc = open("/proc", O_PATH | O_CLOEXEC);

    for (size_t i = 0; i < ARRAY_LEN(magic); i++) {
        errno = 0;
        CHECK_INT(tree_open_any(magic[i], O_PATH, 0), -1);
        CHECK_INT(errno, ELOOP);
    }
    CHECK(!tree_place_ok(proc) && tree_place_ok(dir));
    /* Links of the ordinary kind lead anywhere by path, and nowhere beneath a directory. */
    CHECK(symlinkat("/etc", dir, "link") == 0);
    snprintf(path + strlen(path), 16, "/link");
    autoclose int any = tree_open_any(path, O_PATH | O_DIRECTORY, 0);
    CHECK(any >= 0);
    CHECK_INT(tree_open(dir, "link", O_PATH | O_DIRECTORY, 0), -1);
    CHECK_INT(tree_open(dir, "..", O_PATH | O_DIRECTORY, 0), -1);
    CHECK_INT(tree_open(dir, "/etc", O_PATH | O_DIRECTORY, 0), -1);
}

/* For good, in a process of its own: nothing of this must stay with the other tests. */
static int beneath_child(const char *path)
{
    static const struct {
        const char *path;
        int error;
    } cases[] = {
        { "f", 0 },        { "d/../f", 0 },         { ".", 0 },           { "inside", 0 },
        { "..", EXDEV },   { "d/../..", EXDEV },    { "/etc", EXDEV },    { "out", EXDEV },
        { "up/x", EXDEV }, { "out/passwd", EXDEV }, { "chain/f", EXDEV }, { "none", ENOENT },
    };

    if (chdir(path) < 0)
        return 100;
    tree_stay_beneath();
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        errno = 0;
        autoclose int fd = tree_open_any(cases[i].path, O_PATH, 0);
        if ((fd >= 0 ? 0 : errno) != cases[i].error)
            return (int)i + 1;
    }
    autoclose int made = tree_open_any("out/made", O_WRONLY | O_CREAT, 0644);
    return made < 0 && errno == EXDEV ? 0 : 99;
}

TEST(who_stays_beneath_is_led_out_by_nothing)
{
    char path[4096];
    autoclose int dir = new_dir(path);
    int status = -1;

    CHECK(mkdirat(dir, "d", 0755) == 0);
    write_file(dir, "f", "x", 1);
    CHECK(symlinkat("f", dir, "inside") == 0 && symlinkat("/etc", dir, "out") == 0);
    CHECK(symlinkat("..", dir, "up") == 0 && symlinkat("d/../../..", dir, "chain") == 0);
    /* check-style: allow fork: the child only opens files and ends */
    pid_t pid = fork();
    if (pid == 0)
        _exit(beneath_child(path));
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK_INT(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 0);
}
