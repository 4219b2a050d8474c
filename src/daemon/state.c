/*
 * Everything below the state directory goes by its descriptor. Files appear whole: the token is
 * written beside its name, flushed, renamed, and the directory flushed, so that a start that was
 * killed leaves either no token or a good one.
 *
 * When the user of the api process changes (uid_base, or a first start as root after one as an
 * ordinary user), the data directory and the plain files in it are handed over. Only what belonged
 * to the directory's former owner and has a single name is touched: nothing that somebody may have
 * linked in.
 */
#include "daemon/state.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "base/id.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "host/leaks.h"
#include "net/sock.h"
#include "wire/layout.h"

#define TOKEN_PREFIX "atl_"
#define TOKEN_SECRET_SIZE 32
#define TOKEN_CHARS 47 /* prefix and 43 of base64url */
#define HANDED_OVER_MAX 10000

void state_close(struct state *state)
{
    const int fds[] = { state->dir_fd, state->lock_fd, state->data_fd };

    for (size_t i = 0; i < ARRAY_LEN(fds); i++)
        if (fds[i] >= 0)
            close(fds[i]);
    *state = STATE_NONE;
}

/* ---- the directory ---- */

/* Makes the directory and those above it; true when it was not there. */
static int make_dirs(const char *dir, bool *made, struct err *err)
{
    autofree char *path = xstrdup(dir);

    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        if (mkdir(path, 0755) < 0 && errno != EEXIST)
            return err_sys(err, "make the directory %s", path);
        *slash = '/';
    }
    *made = mkdir(path, 0711) == 0;
    if (!*made && errno != EEXIST)
        return err_sys(err, "make the state directory %s", path);
    return 0;
}

static int check_owner(int fd, const char *dir, struct err *err)
{
    struct stat st;

    if (fstat(fd, &st) < 0)
        return err_sys(err, "look at %s", dir);
    if (st.st_uid != geteuid())
        return err_set(err, ERR_FORBIDDEN,
                       "the state directory %s belongs to uid %u and this is uid %u: run as that "
                       "user, or choose another directory with --state",
                       dir, st.st_uid, geteuid());
    if (st.st_mode & 022)
        return err_set(err, ERR_FORBIDDEN,
                       "others may write in the state directory %s: `chmod go-w` it, or choose "
                       "another directory with --state",
                       dir);
    return 0;
}

static int open_dir(const char *dir, int *out, struct err *err)
{
    bool made = false;

    if (make_dirs(dir, &made, err) < 0)
        return -1;
    autoclose int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return err_sys(err, "open the state directory %s", dir);
    if (made && fchmod(fd, 0711) < 0) /* whatever the umask */
        return err_sys(err, "change the mode of %s", dir);
    if (check_owner(fd, dir, err) < 0)
        return -1;
    *out = take_fd(&fd);
    return 0;
}

/* ---- the lock ---- */

static int in_use(const char *dir, struct err *err)
{
    int pid = host_lock_holder(dir, NULL);

    if (pid <= 0)
        return err_set(err, ERR_CONFLICT, "another process is using the state directory %s", dir);
    return err_set(err, ERR_CONFLICT,
                   "the server with process id %d is using the state directory %s: stop it, or "
                   "choose another directory with --state",
                   pid, dir);
}

/* Is whoever wrote itself into the file there no more? */
static bool owner_gone(int fd)
{
    char text[32] = "";
    int64_t pid;

    if (pread(fd, text, sizeof(text) - 1, 0) <= 0)
        return false;
    struct str rest = str_of(text);
    return str_to_i64(str_cut(&rest, '\n'), &pid) && pid > 0 && pid <= INT_MAX &&
           kill((pid_t)pid, 0) < 0 && errno == ESRCH;
}

/*
 * A server that was killed may leave a child that it had just made, with the lock, for a moment.
 * What holds it after its owner has ended is waited for; a server that runs is not.
 */
static int lock(int fd)
{
    for (int left = STATE_LOCK_WAIT_MS;; left -= STATE_LOCK_LOOK_MS) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0)
            return 0;
        if (errno != EWOULDBLOCK)
            return -1;
        if (left <= 0 || !owner_gone(fd)) {
            errno = EWOULDBLOCK;
            return -1;
        }
        poll(NULL, 0, STATE_LOCK_LOOK_MS);
    }
}

static int take_lock(int dir_fd, const char *dir, int *out, struct err *err)
{
    autoclose int fd = openat(dir_fd, STATE_LOCK, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    char text[32];

    if (fd < 0)
        return err_sys(err, "open %s/%s", dir, STATE_LOCK);
    if (lock(fd) < 0)
        return errno == EWOULDBLOCK ? in_use(dir, err)
                                    : err_sys(err, "lock %s/%s", dir, STATE_LOCK);
    int len = snprintf(text, sizeof(text), "%d\n", getpid());
    if (ftruncate(fd, 0) < 0 || pwrite(fd, text, (size_t)len, 0) != len)
        return err_sys(err, "write %s/%s", dir, STATE_LOCK);
    *out = take_fd(&fd);
    return 0;
}

/* ---- the data directory ---- */

/* Whose things become whose. */
struct hand_over {
    uid_t from, to;
    int left; /* so many more entries */
};

/* One entry; *sub gets a descriptor when it is a directory. */
static int hand_over_one(struct hand_over *how, int dir_fd, const char *name, int *sub,
                         struct err *err)
{
    autoclose int fd = openat(dir_fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return err_sys(err, "look at %s in the data directory", name);
    bool plain = S_ISDIR(st.st_mode) || (S_ISREG(st.st_mode) && st.st_nlink == 1);
    if (!plain || st.st_uid != how->from)
        return 0;
    if (fchownat(fd, "", how->to, how->to, AT_EMPTY_PATH) < 0)
        return err_sys(err, "give %s to uid %u", name, how->to);
    if (S_ISDIR(st.st_mode))
        *sub = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return 0;
}

/* The entries of a directory, and with `deeper` those of the directories in it. */
static int hand_over_all(struct hand_over *how, int dir_fd, bool deeper, struct err *err)
{
    int copy = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = copy < 0 ? NULL : fdopendir(copy);
    struct dirent *entry;
    int rc = 0;

    if (!dir) {
        if (copy >= 0)
            close(copy);
        return err_sys(err, "list the data directory");
    }
    while (rc == 0 && how->left-- > 0 && (entry = readdir(dir))) {
        autoclose int sub = -1;

        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        rc = hand_over_one(how, dir_fd, entry->d_name, &sub, err);
        if (rc == 0 && sub >= 0 && deeper)
            rc = hand_over_all(how, sub, false, err);
    }
    closedir(dir);
    return rc;
}

static int hand_over(int data_fd, uid_t from, uid_t to, struct err *err)
{
    struct hand_over how = { from, to, HANDED_OVER_MAX };

    if (hand_over_all(&how, data_fd, true, err) < 0)
        return -1;
    if (fchown(data_fd, to, to) < 0)
        return err_sys(err, "give the data directory to uid %u", to);
    log_info("the data directory changed hands", kv_int("from", from), kv_int("to", to));
    return 0;
}

static int open_data(int dir_fd, const char *dir, int64_t api_uid, struct state *out,
                     struct err *err)
{
    uid_t owner = api_uid < 0 ? geteuid() : (uid_t)api_uid;
    bool made = mkdirat(dir_fd, STATE_DATA, 0700) == 0;
    struct stat st;

    if (!made && errno != EEXIST)
        return err_sys(err, "make %s/%s", dir, STATE_DATA);
    autoclose int fd = openat(dir_fd, STATE_DATA, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_sys(err, "open %s/%s", dir, STATE_DATA);
    if (st.st_uid != owner && geteuid() != 0)
        return err_set(err, ERR_FORBIDDEN,
                       "%s/%s belongs to uid %u; was this server started by root before?", dir,
                       STATE_DATA, st.st_uid);
    if (made && st.st_uid != owner && fchown(fd, owner, owner) < 0) {
        if (errno != EINVAL)
            return err_sys(err, "give %s/%s to uid %u", dir, STATE_DATA, owner);
        unlinkat(dir_fd, STATE_DATA, AT_REMOVEDIR);
        return err_set(err, ERR_INVALID,
                       "uid %u does not exist in this container's user namespace: choose another "
                       "with uid_base",
                       owner);
    }
    if (!made && st.st_uid != owner && hand_over(fd, st.st_uid, owner, err) < 0)
        return -1;
    if ((st.st_mode & 07777) != 0700 && fchmod(fd, 0700) < 0)
        return err_sys(err, "change the mode of %s/%s", dir, STATE_DATA);
    out->data_fd = take_fd(&fd);
    out->data_made = made;
    return 0;
}

static bool has(int dir_fd, const char *name)
{
    return faccessat(dir_fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/*
 * The key and the directory of outputs are made after the database, and the token after the data
 * directory: a first start that was killed leaves none of them alone.
 */
int state_check_store(const struct state *state, struct err *err)
{
    const struct {
        const char *name;
        bool there;
    } left[] = {
        { STATE_DISKS, has(state->dir_fd, STATE_DISKS) },
        { STATE_DATA "/" STATE_KEY, has(state->data_fd, STATE_KEY) },
        { STATE_DATA "/" STATE_SPOOL, has(state->data_fd, STATE_SPOOL) },
        { STATE_TOKEN, state->data_made && has(state->dir_fd, STATE_TOKEN) },
    };
    autobuf struct buf names = { 0 };

    if (has(state->data_fd, STATE_DB))
        return 0;
    for (size_t i = 0; i < ARRAY_LEN(left); i++)
        if (left[i].there)
            buf_printf(&names, "%s%s", names.len ? ", " : "", left[i].name);
    if (!names.len)
        return 0;
    if (state->data_made) /* the next try must find what this one found */
        unlinkat(state->dir_fd, STATE_DATA, AT_REMOVEDIR);
    return err_set(err, ERR_CONFLICT,
                   "%s has no database (%s/%s), but what belongs to one: %s. Put the database back "
                   "(is something not mounted yet? `atoll restore FILE` takes a backup), or start "
                   "once with --new-store for an empty one, which knows none of it",
                   state->dir, STATE_DATA, STATE_DB, buf_cstr(&names));
}

int state_open(struct state *out, const char *dir, int64_t api_uid, struct err *err)
{
    autostate struct state state = STATE_NONE;

    state.dir = dir;
    if (dir[0] != '/')
        return err_set(err, ERR_INVALID, "the state directory %s is not an absolute path", dir);
    if (open_dir(dir, &state.dir_fd, err) < 0 ||
        take_lock(state.dir_fd, dir, &state.lock_fd, err) < 0 ||
        open_data(state.dir_fd, dir, api_uid, &state, err) < 0)
        return -1;
    *out = state;
    state = STATE_NONE;
    return 0;
}

/* ---- the admin token ---- */

static bool token_good(struct str text)
{
    if (text.n != TOKEN_CHARS || !str_starts(text, STR(TOKEN_PREFIX)))
        return false;
    for (size_t i = sizeof(TOKEN_PREFIX) - 1; i < text.n; i++) {
        char c = text.p[i];

        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
              c == '-' || c == '_'))
            return false;
    }
    return true;
}

/* 1: read; 0: there is none; -1. */
static int token_read(const struct state *state, char text[TOKEN_CHARS + 1], struct err *err)
{
    autoclose int fd = openat(state->dir_fd, STATE_TOKEN, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    char raw[TOKEN_CHARS + 8];
    struct stat st;

    if (fd < 0)
        return errno == ENOENT ? 0 : err_sys(err, "open %s/%s", state->dir, STATE_TOKEN);
    if (fstat(fd, &st) < 0)
        return err_sys(err, "look at %s/%s", state->dir, STATE_TOKEN);
    if (!S_ISREG(st.st_mode) || st.st_uid != geteuid() || st.st_mode & 077)
        return err_set(err, ERR_FORBIDDEN,
                       "%s/%s can be read by others: remove it, and a new one is made at the next "
                       "start",
                       state->dir, STATE_TOKEN);
    ssize_t len = read(fd, raw, sizeof(raw));
    if (len < 0)
        return err_sys(err, "read %s/%s", state->dir, STATE_TOKEN);
    struct str token = { raw, (size_t)len };
    if (token.n && token.p[token.n - 1] == '\n')
        token.n--;
    if (!token_good(token))
        return err_set(err, ERR_INVALID,
                       "%s/%s does not hold a token: remove it, and a new one is made at the next "
                       "start",
                       state->dir, STATE_TOKEN);
    memcpy(text, token.p, token.n);
    text[token.n] = 0;
    return 1;
}

static int token_write(const struct state *state, const char *text, struct err *err)
{
    static const char fresh[] = STATE_TOKEN ".tmp";

    if (unlinkat(state->dir_fd, fresh, 0) < 0 && errno != ENOENT)
        return err_sys(err, "remove %s/%s", state->dir, fresh);
    autoclose int fd =
        openat(state->dir_fd, fresh, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_sys(err, "make %s/%s", state->dir, fresh);
    if (dprintf(fd, "%s\n", text) < 0 || fchmod(fd, 0600) < 0 || fsync(fd) < 0 ||
        renameat(state->dir_fd, fresh, state->dir_fd, STATE_TOKEN) < 0 || fsync(state->dir_fd) < 0)
        return err_sys(err, "write %s/%s", state->dir, STATE_TOKEN);
    return 0;
}

int state_token(const struct state *state, unsigned char hash[SHA256_SIZE], struct err *err)
{
    char text[TOKEN_CHARS + 1];
    int found = token_read(state, text, err);

    if (found < 0)
        return -1;
    if (!found) {
        unsigned char secret[TOKEN_SECRET_SIZE];
        autobuf struct buf made = { 0 };

        random_bytes(secret, sizeof(secret));
        buf_puts(&made, TOKEN_PREFIX);
        base64url_put(&made, secret, sizeof(secret));
        memcpy(text, buf_cstr(&made), sizeof(text));
        explicit_bzero(secret, sizeof(secret));
        explicit_bzero(made.data, made.len);
        if (token_write(state, text, err) < 0)
            return -1;
    }
    sha256(text, TOKEN_CHARS, hash);
    explicit_bzero(text, sizeof(text));
    return 0;
}

/* ---- the key of the egress process ---- */

int state_egress_key(const struct state *state, struct seal_public *out, int *fd, struct err *err)
{
    struct seal_key key;
    struct seal_private mine;

    if (seal_key_load(&key, state->dir_fd, STATE_EGRESS_KEY, err) < 0)
        return err_wrap(err, "%s", state->dir);
    memcpy(mine.bytes, key.bytes, sizeof(mine.bytes));
    int rc = seal_public_of(&mine, out, err);
    explicit_bzero(&key, sizeof(key));
    explicit_bzero(&mine, sizeof(mine));
    if (rc < 0)
        return -1;
    *fd = openat(state->dir_fd, STATE_EGRESS_KEY, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    return *fd < 0 ? err_sys(err, "open %s/%s", state->dir, STATE_EGRESS_KEY) : 0;
}

/* ---- the Unix socket ---- */

int state_listen(const struct state *state, int backlog, struct err *err)
{
    char path[64], actual[SOCK_TEXT_SIZE];

    /* By way of the descriptor: a socket's address has room for 107 bytes, a path for 4096. */
    snprintf(path, sizeof(path), "unix:/proc/self/fd/%d/%s", state->dir_fd, STATE_SOCKET);
    autoclose int fd = sock_listen(path, backlog, actual, err);
    if (fd < 0)
        return err_wrap(err, "the socket %s/%s", state->dir, STATE_SOCKET);
    if (fchmodat(state->dir_fd, STATE_SOCKET, 0666, 0) < 0)
        return err_sys(err, "change the mode of %s/%s", state->dir, STATE_SOCKET);
    return take_fd(&fd);
}
