/* The state directory: made, kept, handed over, refused. */
#include "daemon/state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "base/mem.h"
#include "base/test.h"
#include "net/sock.h"
#include "wire/layout.h"

#define OTHER 64200

static mode_t mode_of(const char *dir, const char *name)
{
    autofree char *path = xprintf("%s%s", dir, name);
    struct stat st;

    CHECK(stat(path, &st) == 0);
    return st.st_mode & 07777;
}

static uid_t owner_of(const char *dir, const char *name)
{
    autofree char *path = xprintf("%s%s", dir, name);
    struct stat st;

    CHECK(lstat(path, &st) == 0);
    return st.st_uid;
}

static void put(const char *dir, const char *name, const char *text, mode_t mode)
{
    autofree char *path = xprintf("%s/%s", dir, name);
    autoclose int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);

    CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    CHECK(fchmod(fd, mode) == 0);
}

static char *get(const char *dir, const char *name)
{
    autofree char *path = xprintf("%s/%s", dir, name);
    autoclose int fd = open(path, O_RDONLY | O_CLOEXEC);
    char text[256];
    ssize_t len = read(fd, text, sizeof(text));

    CHECK(len >= 0);
    return xmemdup0(text, (size_t)len);
}

/* Opens, takes the token's hash, closes. */
static int use(const char *dir, unsigned char hash[SHA256_SIZE], struct err *err)
{
    autostate struct state state = STATE_NONE;

    if (state_open(&state, dir, -1, err) < 0)
        return -1;
    return state_token(&state, hash, err);
}

TEST(a_directory_is_made_with_its_parents_and_modes)
{
    autofree char *dir = xprintf("%s/a/b/state", test_dir());
    unsigned char hash[SHA256_SIZE];
    struct err err;
    mode_t mask = umask(077);

    CHECK_OK(use(dir, hash, &err), &err);
    umask(mask);
    CHECK_INT(mode_of(dir, ""), 0711);
    CHECK_INT(mode_of(dir, "/data"), 0700);
    CHECK_INT(mode_of(dir, "/lock"), 0600);
    CHECK_INT(mode_of(dir, "/admin.token"), 0600);
    autofree char *pid = xprintf("%d\n", getpid()), *lock = get(dir, "lock");
    CHECK_STR(lock, pid);
}

TEST(the_token_is_made_once_and_hashed)
{
    autofree char *dir = xprintf("%s/state", test_dir());
    unsigned char first[SHA256_SIZE], second[SHA256_SIZE], of_text[SHA256_SIZE];
    struct err err;

    CHECK_OK(use(dir, first, &err), &err);
    autofree char *token = get(dir, "admin.token");
    CHECK_INT(strlen(token), 48); /* "atl_", 43 characters, newline */
    CHECK(strncmp(token, "atl_", 4) == 0 && token[47] == '\n');
    sha256(token, 47, of_text);
    CHECK(memcmp(first, of_text, SHA256_SIZE) == 0);
    CHECK_OK(use(dir, second, &err), &err);
    CHECK(memcmp(first, second, SHA256_SIZE) == 0);
    /* without a newline it is the same token */
    token[47] = 0;
    put(dir, "admin.token", token, 0600);
    CHECK_OK(use(dir, second, &err), &err);
    CHECK(memcmp(first, second, SHA256_SIZE) == 0);
}

TEST(a_start_that_was_killed_leaves_no_half_token)
{
    autofree char *dir = xprintf("%s/state", test_dir());
    unsigned char hash[SHA256_SIZE];
    struct err err;

    CHECK(mkdir(dir, 0711) == 0);
    put(dir, "admin.token.tmp", "atl_hal", 0600);
    CHECK_OK(use(dir, hash, &err), &err);
    autofree char *path = xprintf("%s/admin.token.tmp", dir);
    CHECK(access(path, F_OK) < 0);
}

static void check_token_refused(const char *text, mode_t mode, const char *why)
{
    autofree char *dir = xprintf("%s/state", test_dir());
    unsigned char hash[SHA256_SIZE];
    struct err err;

    CHECK(mkdir(dir, 0711) == 0);
    put(dir, "admin.token", text, mode);
    CHECK(use(dir, hash, &err) < 0);
    CHECK(strstr(err.msg, why));
    autofree char *after = get(dir, "admin.token");
    CHECK_STR(after, text);
}

TEST(a_token_that_is_bad_or_not_secret_is_refused)
{
    static const char good[] = "atl_0123456789012345678901234567890123456789012\n";

    check_token_refused(good, 0640, "can be read by others");
    check_token_refused(good, 0604, "can be read by others");
    check_token_refused("", 0600, "does not hold a token");
    check_token_refused("atl_short\n", 0600, "does not hold a token");
    check_token_refused("atx_0123456789012345678901234567890123456789012\n", 0600, "does not hold");
    check_token_refused("atl_01234567890123456789012345678901234567890 2\n", 0600, "does not hold");
    check_token_refused("atl_0123456789012345678901234567890123456789012\n\n", 0600,
                        "does not hold");
}

TEST(the_key_of_the_egress_process_is_made_once)
{
    autofree char *dir = xprintf("%s/state", test_dir());
    autofree char *path = xprintf("%s/%s", dir, STATE_EGRESS_KEY);
    struct state state = STATE_NONE;
    struct seal_public first, again, of_file;
    struct seal_private mine;
    autoclose int fd = -1, other = -1;
    struct stat st;
    struct err err;

    CHECK_OK(state_open(&state, dir, -1, &err), &err);
    CHECK_OK(state_egress_key(&state, &first, &fd, &err), &err);
    CHECK_OK(state_egress_key(&state, &again, &other, &err), &err);
    CHECK(memcmp(&first, &again, sizeof(first)) == 0);
    CHECK(pread(fd, &mine, sizeof(mine), 0) == (ssize_t)sizeof(mine));
    CHECK_OK(seal_public_of(&mine, &of_file, &err), &err);
    CHECK(memcmp(&first, &of_file, sizeof(first)) == 0);
    CHECK(stat(path, &st) == 0 && (st.st_mode & 07777) == 0600);
    CHECK(chmod(path, 0640) == 0);
    CHECK(state_egress_key(&state, &again, &fd, &err) < 0);
    CHECK(strstr(err.msg, STATE_EGRESS_KEY) && strstr(err.msg, dir));
    state_close(&state);
}

TEST(a_second_user_of_the_directory_is_told_who_has_it)
{
    autofree char *dir = xprintf("%s/state", test_dir());
    autofree char *pid = xprintf("process id %d ", getpid());
    struct state first = STATE_NONE, second = STATE_NONE;
    struct err err;

    CHECK_OK(state_open(&first, dir, -1, &err), &err);
    CHECK(state_open(&second, dir, -1, &err) < 0);
    CHECK_INT(err.code, ERR_CONFLICT);
    CHECK(strstr(err.msg, pid) && strstr(err.msg, dir));
    state_close(&first);
    CHECK_OK(state_open(&second, dir, -1, &err), &err);
    state_close(&second);
}

TEST(a_directory_that_others_can_change_is_refused)
{
    const char *dir = test_dir();
    struct state state = STATE_NONE;
    struct err err;

    for (mode_t bad = 020; bad >= 02; bad = bad == 020 ? 02 : 0) {
        CHECK(chmod(dir, 0711 | bad) == 0);
        CHECK(state_open(&state, dir, -1, &err) < 0);
        CHECK_INT(err.code, ERR_FORBIDDEN);
        CHECK(strstr(err.msg, "others may write"));
    }
    CHECK(chmod(dir, 0755) == 0);
    CHECK_OK(state_open(&state, dir, -1, &err), &err);
    state_close(&state);
    CHECK_INT(mode_of(dir, ""), 0755); /* what was there keeps its mode */
    CHECK(state_open(&state, "relative", -1, &err) < 0);
    if (geteuid() != 0)
        return;
    CHECK(chown(dir, OTHER, OTHER) == 0);
    CHECK(state_open(&state, dir, -1, &err) < 0);
    CHECK(strstr(err.msg, "belongs to uid 64200"));
}

TEST(the_data_directory_changes_hands)
{
    if (geteuid() != 0)
        test_skip("needs root");
    const char *dir = test_dir();
    autofree char *data = xprintf("%s/data", dir), *link = xprintf("%s/data/hard", dir);
    autofree char *secret = xprintf("%s/secret", dir), *sub = xprintf("%s/data/backups", dir);
    struct state state = STATE_NONE;
    struct err err;

    CHECK_OK(state_open(&state, dir, OTHER, &err), &err);
    state_close(&state);
    CHECK_INT(owner_of(dir, "/data"), OTHER);
    CHECK_INT(mode_of(dir, "/data"), 0700);

    put(data, "atoll.db", "x", 0600);
    put(data, "roots", "x", 0600);
    CHECK(mkdir(sub, 0700) == 0);
    put(sub, "copy.db", "x", 0600);
    autofree char *db = xprintf("%s/atoll.db", data), *copy = xprintf("%s/copy.db", sub);
    CHECK(chown(db, OTHER, OTHER) == 0 && chown(sub, OTHER, OTHER) == 0 &&
          chown(copy, OTHER, OTHER) == 0);
    put(dir, "secret", "x", 0600); /* somebody linked it in */
    CHECK(chown(secret, OTHER, OTHER) == 0);
    CHECK(linkat(AT_FDCWD, secret, AT_FDCWD, link, 0) == 0);

    CHECK_OK(state_open(&state, dir, OTHER + 1, &err), &err);
    state_close(&state);
    CHECK_INT(owner_of(dir, "/data"), OTHER + 1);
    CHECK_INT(owner_of(dir, "/data/atoll.db"), OTHER + 1);
    CHECK_INT(owner_of(dir, "/data/backups/copy.db"), OTHER + 1);
    CHECK_INT(owner_of(dir, "/data/roots"), 0);    /* was not the former owner's */
    CHECK_INT(owner_of(dir, "/data/hard"), OTHER); /* has another name */
}

static int open_and_check(const char *dir, struct err *err)
{
    struct state state = STATE_NONE;

    if (state_open(&state, dir, -1, err) < 0)
        return -1;
    int rc = state_check_store(&state, err);
    state_close(&state);
    return rc;
}

/* What belongs to a database, and none: refused as often as it is tried. */
TEST(a_directory_that_lost_its_database_is_refused)
{
    static const char *const left[] = { "/disks.img", "/data/secrets.key", "/data/spool" };
    const char *dir = test_dir();
    struct err err = { 0 };

    CHECK_OK(open_and_check(dir, &err), &err);
    for (size_t i = 0; i < ARRAY_LEN(left); i++) {
        autofree char *path = xprintf("%s%s", dir, left[i]);
        autofree char *db = xprintf("%s/data/atoll.db", dir);

        CHECK(mkdir(path, 0700) == 0);
        for (int tries = 0; tries < 2; tries++) {
            CHECK(open_and_check(dir, &err) < 0);
            CHECK_INT(err.code, ERR_CONFLICT);
            CHECK(strstr(err.msg, left[i] + 1) && strstr(err.msg, "--new-store"));
        }
        CHECK(mkdir(db, 0700) == 0);
        CHECK_OK(open_and_check(dir, &err), &err);
        CHECK(rmdir(db) == 0 && rmdir(path) == 0);
    }
    /* A first start that was killed leaves a token beside an empty data directory. */
    autofree char *token = xprintf("%s/admin.token", dir), *data = xprintf("%s/data", dir);
    CHECK(mkdir(token, 0700) == 0);
    CHECK_OK(open_and_check(dir, &err), &err);
    CHECK(rmdir(data) == 0);
    CHECK(open_and_check(dir, &err) < 0 && open_and_check(dir, &err) < 0);
}

/* A directory whose path is longer than a socket's address. */
TEST(a_socket_below_a_long_path_listens)
{
    autobuf struct buf dir = { 0 };
    struct state state = STATE_NONE;
    struct err err;

    buf_puts(&dir, test_dir());
    for (int i = 0; i < 8; i++)
        buf_puts(&dir, "/a-name-of-forty-characters-to-make-it-long");
    CHECK_OK(state_open(&state, buf_cstr(&dir), -1, &err), &err);
    autoclose int fd = state_listen(&state, 8, &err);
    CHECK_OK(fd, &err);
    CHECK_INT(mode_of(buf_cstr(&dir), "/atoll.sock"), 0666);

    struct sockaddr_un addr = { .sun_family = AF_UNIX };
    snprintf(addr.sun_path, sizeof(addr.sun_path), "/proc/self/fd/%d/atoll.sock", state.dir_fd);
    autoclose int client = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(connect(client, (struct sockaddr *)&addr, sizeof(addr)) == 0);
    close(take_fd(&fd));
    fd = state_listen(&state, 8, &err); /* over the file that is left */
    CHECK_OK(fd, &err);
    state_close(&state);
}
