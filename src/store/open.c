/*
 * From a path to a connection.
 *
 * A store comes into being whole or not at all: it is built beside its place ("x.new"), flushed,
 * and renamed. So a file that is there is either a store or something else, and an empty or cut
 * one is damage, never "not made yet". What is damaged is refused and left untouched.
 *
 * One process writes. It holds flock on "x.lock", which the kernel releases however the process
 * ends. Nothing here opens the database file itself: POSIX locks fall with the first close() of
 * any descriptor of the file in the process, and SQLite's would fall with ours.
 */
#include "store/open.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "base/id.h"
#include "base/limits.h"
#include "store/store.h"

/* ---- small things about files ---- */

static bool is_there(const char *path, const char *suffix)
{
    autofree char *full = xprintf("%s%s", path, suffix);
    struct stat st;

    return stat(full, &st) == 0;
}

static int64_t size_of(const char *path, const char *suffix)
{
    autofree char *full = xprintf("%s%s", path, suffix);
    struct stat st;

    return stat(full, &st) == 0 ? (int64_t)st.st_size : 0;
}

static int open_dir_of(const char *path, struct err *err)
{
    const char *slash = strrchr(path, '/');
    autofree char *dir = slash ? xmemdup0(path, (size_t)(slash - path) + 1) : xstrdup(".");
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    return fd < 0 ? err_sys(err, "open the directory %s", dir) : fd;
}

/* A rename is durable when its directory is. */
static int sync_dir_of(const char *path, struct err *err)
{
    autoclose int fd = open_dir_of(path, err);

    if (fd < 0)
        return -1;
    return fsync(fd) < 0 ? err_sys(err, "flush the directory of %s", path) : 0;
}

/*
 * The store's files belong to whoever owns its directory, which is the unprivileged process that
 * serves; also when a command that root runs is the first to make them.
 */
static int give_to_owner(int fd, const char *path, struct err *err)
{
    struct stat st, now;

    if (geteuid() != 0)
        return 0;
    autoclose int dir = open_dir_of(path, err);
    if (dir < 0)
        return -1;
    /* An ordinary user is 0 too, in its own namespace, where the owner is right already. */
    if (fstat(dir, &st) == 0 && fstat(fd, &now) == 0 && st.st_uid == now.st_uid)
        return 0;
    if (fchown(fd, st.st_uid, st.st_gid) < 0)
        return err_sys(err, "give %s to the owner of its directory", path);
    return 0;
}

static int sync_file(const char *path, struct err *err)
{
    autoclose int fd = open(path, O_RDWR | O_CLOEXEC);

    if (fd < 0 || fsync(fd) < 0)
        return err_sys(err, "flush %s", path);
    return 0;
}

static int make_empty(const char *path, bool ours, struct err *err)
{
    autoclose int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

    if (fd < 0)
        return err_sys(err, "make %s", path);
    return ours ? give_to_owner(fd, path, err) : 0;
}

static void remove_database(const char *path)
{
    static const char *const suffixes[] = { "", "-journal", "-wal", "-shm" };

    for (size_t i = 0; i < ARRAY_LEN(suffixes); i++) {
        autofree char *full = xprintf("%s%s", path, suffixes[i]);

        unlink(full);
    }
}

/* Whole and on disk before it gets its name; ERR_CONFLICT when the name is taken. */
static int move_into_place(const char *from, const char *to, struct err *err)
{
    if (sync_file(from, err) < 0)
        return -1;
    if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) < 0)
        return errno == EEXIST ? err_set(err, ERR_CONFLICT, "%s exists already", to)
                               : err_sys(err, "rename %s to %s", from, to);
    return sync_dir_of(to, err);
}

/* ---- the lock ---- */

/*
 * Made if it is not there. Only a file made here is given away, and no link is followed: the
 * directory belongs to a process that root does not trust.
 */
static int open_lock(const char *lock, struct err *err)
{
    autoclose int fd = open(lock, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);

    if (fd >= 0)
        return give_to_owner(fd, lock, err) < 0 ? -1 : take_fd(&fd);
    if (errno == EEXIST)
        fd = open(lock, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 ? err_sys(err, "open %s", lock) : take_fd(&fd);
}

static int take_lock(const char *path, int *out, struct err *err)
{
    autofree char *lock = xprintf("%s.lock", path);
    autoclose int fd = open_lock(lock, err);

    if (fd < 0)
        return -1;
    if (flock(fd, LOCK_EX | LOCK_NB) < 0)
        return errno == EWOULDBLOCK
                   ? err_set(err, ERR_CONFLICT, "the store %s is in use by another process", path)
                   : err_sys(err, "lock %s", lock);
    *out = take_fd(&fd);
    return 0;
}

/* ---- making a store ---- */

static int build_tables(const char *path, const struct migration *steps, struct err *err)
{
    autodb struct db *db = NULL;

    if (sqlite_open(&db, path, DB_CREATE, err) < 0)
        return -1;
    return schema_create(db, steps, err);
}

/* Opening it to write makes it keep a log from now on, which is a change of the file as well. */
static int give_log(const char *path, struct err *err)
{
    autodb struct db *db = NULL;

    return sqlite_open(&db, path, DB_WRITE, err);
}

static int build(const char *path, const struct migration *steps, struct err *err)
{
    return build_tables(path, steps, err) < 0 ? -1 : give_log(path, err);
}

static int make_store(const char *path, const struct migration *steps, struct err *err)
{
    autofree char *fresh = xprintf("%s.new", path);

    if (size_of(path, "-wal") > 0)
        return err_set(err, ERR_INTERNAL,
                       "%s is missing, but its log %s-wal is there: put the file back or move the "
                       "log away",
                       path, path);
    remove_database(fresh); /* of a start that was killed */
    if (make_empty(fresh, true, err) < 0 || build(fresh, steps, err) < 0 ||
        move_into_place(fresh, path, err) < 0) {
        remove_database(fresh);
        return -1;
    }
    return 0;
}

/* ---- trusting one ---- */

/* An empty file is a perfect empty database to SQLite; to us it is a store that lost everything. */
static int check_size(const char *path, struct err *err)
{
    struct stat st;

    if (stat(path, &st) < 0)
        return errno == ENOENT ? err_set(err, ERR_NOT_FOUND, "there is no store at %s", path)
                               : err_sys(err, "look at %s", path);
    if (!S_ISREG(st.st_mode))
        return err_set(err, ERR_INTERNAL, "not a regular file");
    if (st.st_size < 512)
        return err_set(err, ERR_INTERNAL, "the store's file is cut to %lld bytes",
                       (long long)st.st_size);
    return 0;
}

/*
 * A store that somebody has open, or that was killed, has its log beside it and is read through
 * it. One without a log is read as a plain file, which works on a read-only disk as well and
 * leaves nothing behind.
 */
static enum db_mode read_mode(const char *path)
{
    return is_there(path, "-wal") ? DB_READ : DB_READ_COPY;
}

static bool is_large(const char *path)
{
    return size_of(path, "") > STORE_CHECK_NOW_MAX;
}

/*
 * By a connection that cannot write: what is not ours, or not whole, stays as it is. (A change
 * that was cut off by a kill while the file had no log yet can only be undone by writing.)
 */
static int check_first(const char *path, const struct migration *steps, struct err *err)
{
    enum db_mode mode = size_of(path, "-journal") > 0 ? DB_WRITE : read_mode(path);
    autodb struct db *db = NULL;
    int version;

    if (check_size(path, err) < 0 || sqlite_open(&db, path, mode, err) < 0 ||
        (!is_large(path) && db->engine->check(db, true, err) < 0) ||
        schema_check(db, steps, &version, err) < 0)
        return err_wrap(err, "%s is refused and was left as it is", path);
    return 0;
}

static int open_existing(struct db **out, const char *path, const struct migration *steps,
                         struct err *err)
{
    autodb struct db *db = NULL;

    if (check_first(path, steps, err) < 0)
        return -1;
    if (sqlite_open(&db, path, DB_WRITE, err) < 0 || schema_migrate(db, steps, err) < 0)
        return err_wrap(err, "%s", path);
    *out = take_ptr(&db);
    return 0;
}

int store_open_steps(struct db **out, const char *path, const struct migration *steps,
                     struct err *err)
{
    autoclose int lock_fd = -1;

    if (take_lock(path, &lock_fd, err) < 0)
        return -1;
    if (!is_there(path, "") && make_store(path, steps, err) < 0)
        return -1;
    if (open_existing(out, path, steps, err) < 0)
        return -1;
    (*out)->unread = is_large(path);
    (*out)->lock_fd = take_fd(&lock_fd);
    return 0;
}

int store_open_writer(struct db **out, const char *path, struct err *err)
{
    return store_open_steps(out, path, schema_migrations, err);
}

int store_open_reader(struct db **out, const char *path, struct err *err)
{
    return sqlite_open(out, path, DB_READ, err);
}

/* ---- without a server ---- */

static int open_to_read(struct db **out, const char *path, struct err *err)
{
    autodb struct db *db = NULL;
    int version;

    if (check_size(path, err) < 0)
        return -1;
    if (sqlite_open(&db, path, read_mode(path), err) < 0 ||
        schema_check(db, schema_migrations, &version, err) < 0)
        return err_wrap(err, "%s", path);
    *out = take_ptr(&db);
    return 0;
}

int store_open_alone(struct db **out, const char *path, bool write, struct err *err)
{
    autodb struct db *db = NULL;

    if ((write ? store_open_writer(&db, path, err) : open_to_read(&db, path, err)) < 0)
        return -1;
    if (db->unread && db->engine->check(db, false, err) < 0)
        return err_wrap(err, "%s is refused and was left as it is", path);
    *out = take_ptr(&db);
    return 0;
}

void store_close_alone(struct db *db)
{
    struct err err;

    if (db && db->lock_fd >= 0 && db->engine->settle(db, true, &err) < 0)
        db->damaged = true; /* the log stays and is read at the next open */
    db_close(db);
}

int store_check(const char *path, struct err *err)
{
    autodb struct db *db = NULL;
    struct audit_verdict verdict = { 0 };

    if (open_to_read(&db, path, err) < 0)
        return -1;
    if (db->engine->check(db, true, err) < 0)
        return err_wrap(err, "%s", path);
    if (audit_verify(db, &verdict, err) < 0)
        return err_wrap(err, "%s", path);
    if (verdict.bad_seq)
        return err_set(err, ERR_INTERNAL, "%s: audit: %s", path, verdict.why);
    return 0;
}

/* ---- backup ---- */

static int copy_to(const char *path, const char *part, struct err *err)
{
    autodb struct db *db = NULL;

    if (sqlite_open(&db, path, read_mode(path), err) < 0)
        return -1;
    return db->engine->copy(db, part, err);
}

/*
 * By a connection of its own, because the caller's may be in the middle of a transaction. The copy
 * gets its name when it is whole and on disk.
 */
int store_backup(struct db *db, const char *to_path, struct err *err)
{
    char unique[ID_SIZE];

    id_make(unique, "part");
    autofree char *part = xprintf("%s.%s", to_path, unique);
    if (is_there(to_path, ""))
        return err_set(err, ERR_CONFLICT, "%s exists already", to_path);
    if (make_empty(part, false, err) < 0)
        return err_wrap(err, "backup");
    if (copy_to(db->path, part, err) < 0 || give_log(part, err) < 0 ||
        move_into_place(part, to_path, err) < 0) {
        remove_database(part);
        return err_wrap(err, "backup to %s", to_path);
    }
    return 0;
}
