/*
 * SQLite behind the seam: write-ahead log, synchronous=FULL (a commit that returned is on disk),
 * prepared statements only, no memory mapping (a torn file must be an error, not SIGBUS), nothing
 * that runs code out of the schema.
 *
 * The log is never moved into the database file inside a commit (wal_autocheckpoint is 0): the
 * writer asks how much waits (backlog) and does it between batches (settle).
 *
 * Two errors are not like the others. When fsync fails the kernel may already have dropped the
 * pages, so a later success would prove nothing: the process dies here and its supervisor starts
 * it again, which reads what is really on the disk. And a damaged page marks the connection, so
 * that the writer stops writing.
 */
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdio.h>

#include "base/buf.h"
#include "base/limits.h"
#include "base/log.h"
#include "store/beneath.h"
#include "store/engine.h"
#include "store/gather.h"
#include "store/pages.h"

#define APPLICATION_ID "1098149740" /* "Atol" in bytes 68..71 of the file */

struct conn {
    sqlite3 *handle;
    int frames; /* in the log after the last commit of this connection */
    int tried;  /* of these, how many stood there when settle last tried */
};

static const struct db_engine sqlite_engine;

static struct conn *conn_of(struct db *db)
{
    return db->conn;
}

static sqlite3 *handle_of(struct db *db)
{
    return conn_of(db)->handle;
}

/* ---- errors ---- */

/*
 * SQLite keeps errno for errors inside a statement but not for those of a COMMIT; there the last
 * one of the thread is what we have, and sqlite_step clears it beforehand.
 */
static int errno_of(struct db *db)
{
    return errno ? errno : sqlite3_system_errno(handle_of(db));
}

_Noreturn static void die_of_fsync(struct db *db, int rc)
{
    log_error("the disk did not keep what was written (fsync failed); stopping so that nothing is "
              "acknowledged that may be lost",
              kv_str("store", db->path), kv_int("sqlite", rc), kv_int("errno", errno_of(db)));
    abort();
}

/* An I/O error whose errno says that there is no room: quota and file size limit included. */
static bool no_room(int sys)
{
    return sys == ENOSPC || sys == EDQUOT || sys == EFBIG;
}

static int fail_io(struct db *db, int rc, struct err *err)
{
    int sys = errno_of(db);

    if (rc == SQLITE_IOERR_FSYNC || rc == SQLITE_IOERR_DIR_FSYNC)
        die_of_fsync(db, rc);
    if (no_room(sys))
        return err_set(err, ERR_NO_SPACE, "no room left for the store");
    (void)err_set(err, ERR_INTERNAL, "the store's disk answers with an error (%d: %s)", rc,
                  sys ? strerrordesc_np(sys) : "no errno");
    if (err)
        err->sys = sys;
    return -1;
}

static int fail(struct db *db, int rc, struct err *err)
{
    const char *said = sqlite3_errmsg(handle_of(db));

    switch (rc & 0xff) {
    case SQLITE_CONSTRAINT:
        return err_set(err, ERR_CONFLICT, "%s", said);
    case SQLITE_FULL:
        return err_set(err, ERR_NO_SPACE, "no room left for the store");
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        db->damaged = true;
        return err_set(err, ERR_INTERNAL, "the store's file is damaged: %s", said);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return err_set(err, ERR_UNAVAILABLE, "the store is held by another program");
    case SQLITE_INTERRUPT:
        return err_set(err, ERR_UNAVAILABLE, "the store is closing");
    case SQLITE_NOMEM:
        return err_set(err, ERR_UNAVAILABLE, "not enough memory for the store");
    case SQLITE_TOOBIG:
        return err_set(err, ERR_LIMIT, "a value is too large for the store");
    case SQLITE_IOERR:
        return fail_io(db, rc, err);
    case SQLITE_CANTOPEN:
    case SQLITE_PERM:
    case SQLITE_READONLY:
        return no_room(errno_of(db))
                   ? err_set(err, ERR_NO_SPACE, "no room left for the store")
                   : err_set(err, ERR_INTERNAL, "the store cannot be opened: %s", said);
    default:
        return err_set(err, ERR_INTERNAL, "the store says (%d): %s", rc, said);
    }
}

/* ---- queries ---- */

/* `$1`… are names to SQLite, numbered as they appear; PostgreSQL numbers them as written. */
static bool parameters_ascend(sqlite3_stmt *stmt)
{
    char want[16];

    for (int i = 1; i <= sqlite3_bind_parameter_count(stmt); i++) {
        const char *name = sqlite3_bind_parameter_name(stmt, i);

        snprintf(want, sizeof(want), "$%d", i);
        if (!name || strcmp(name, want) != 0)
            return false;
    }
    return true;
}

static int sqlite_prepare(struct query *q, struct err *err)
{
    sqlite3_stmt *stmt = NULL;
    const char *rest = NULL;
    int rc =
        sqlite3_prepare_v3(handle_of(q->db), q->text, -1, SQLITE_PREPARE_PERSISTENT, &stmt, &rest);

    if (rc != SQLITE_OK)
        return fail(q->db, rc, err);
    if (!stmt || *rest || !parameters_ascend(stmt)) {
        sqlite3_finalize(stmt);
        return err_set(err, ERR_INTERNAL, "not one statement with ascending $1…: %s", q->text);
    }
    q->stmt = stmt;
    q->writes = !sqlite3_stmt_readonly(stmt);
    return 0;
}

static void sqlite_finalize(struct query *q)
{
    sqlite3_finalize(q->stmt);
}

static void sqlite_reset(struct query *q)
{
    sqlite3_reset(q->stmt);
    sqlite3_clear_bindings(q->stmt); /* values may be secrets: they do not stay */
}

static int sqlite_bind(struct query *q, int at, const struct db_value *value, bool stays)
{
    void (*how)(void *) = stays ? SQLITE_STATIC : SQLITE_TRANSIENT;
    const char *p = value->bytes.p;
    size_t n = value->bytes.n;
    int rc = value->kind == VALUE_INT    ? sqlite3_bind_int64(q->stmt, at, value->num)
             : value->kind == VALUE_TEXT ? sqlite3_bind_text64(q->stmt, at, p, n, how, SQLITE_UTF8)
             : value->kind == VALUE_BLOB ? sqlite3_bind_blob64(q->stmt, at, p, n, how)
                                         : sqlite3_bind_null(q->stmt, at);

    return rc == SQLITE_OK ? 0 : -1;
}

static int sqlite_step(struct query *q, struct err *err)
{
    errno = 0;
    int rc = sqlite3_step(q->stmt);

    if (rc == SQLITE_ROW)
        return 1;
    return rc == SQLITE_DONE ? 0 : fail(q->db, rc, err);
}

static int sqlite_changes(struct query *q)
{
    return q->writes ? sqlite3_changes(handle_of(q->db)) : 0;
}

static int64_t sqlite_col_i64(struct query *q, int col)
{
    return sqlite3_column_int64(q->stmt, col);
}

static struct str sqlite_col_str(struct query *q, int col)
{
    int type = sqlite3_column_type(q->stmt, col);

    if (type == SQLITE_NULL)
        return STR_NONE;
    const char *p = type == SQLITE_BLOB ? sqlite3_column_blob(q->stmt, col)
                                        : (const char *)sqlite3_column_text(q->stmt, col);
    return (struct str){ p ? p : "", (size_t)sqlite3_column_bytes(q->stmt, col) };
}

static int sqlite_script(struct db *db, const char *sql, struct err *err)
{
    int rc = sqlite3_exec(handle_of(db), sql, NULL, NULL, NULL);

    return rc == SQLITE_OK ? 0 : fail(db, rc, err);
}

static bool sqlite_in_transaction(struct db *db)
{
    return !sqlite3_get_autocommit(handle_of(db));
}

/* ---- the file as a whole ---- */

static int sqlite_check(struct db *db, bool deep, struct err *err)
{
    autoquery struct query *q =
        db_query(db, deep ? "PRAGMA integrity_check(1)" : "PRAGMA quick_check(1)");
    int rc = query_step(q, err);

    if (rc < 0)
        return -1;
    struct str said = rc ? query_col_str(q, 0) : STR("nothing");
    if (!str_is(said, "ok")) {
        db->damaged = true;
        return err_set(err, ERR_INTERNAL, "the store's file is damaged: %.*s", STR_FMT(said));
    }
    return 0;
}

static void sqlite_interrupt(struct db *db)
{
    sqlite3_interrupt(handle_of(db));
}

static int sqlite_copy(struct db *db, const char *to_path, struct err *err)
{
    autoquery struct query *q = db_query(db, "VACUUM INTO $1");

    query_text(q, 1, to_path);
    return query_run(q, err) < 0 ? -1 : 0;
}

static int on_commit(void *ctx, sqlite3 *handle, const char *name, int frames)
{
    struct conn *conn = ctx;

    (void)handle, (void)name;
    if (frames < conn->frames)
        conn->tried = 0; /* the log began anew from its start */
    conn->frames = frames;
    return SQLITE_OK;
}

static int sqlite_backlog(struct db *db)
{
    const struct conn *conn = conn_of(db);

    return conn->frames - conn->tried;
}

/*
 * PASSIVE never waits. It cannot begin the log anew while a reader still looks at an old part of
 * it; should that go on until the log is far too long, RESTART waits for such readers a little.
 */
static int sqlite_settle(struct db *db, bool wholly, struct err *err)
{
    struct conn *conn = conn_of(db);
    int mode = wholly                                ? SQLITE_CHECKPOINT_TRUNCATE
               : conn->frames > STORE_LOG_FRAMES_MAX ? SQLITE_CHECKPOINT_RESTART
                                                     : SQLITE_CHECKPOINT_PASSIVE;

    conn->tried = conn->frames;
    if (mode == SQLITE_CHECKPOINT_RESTART)
        sqlite3_busy_timeout(conn->handle, STORE_LOG_WAIT_MS);
    errno = 0;
    int rc = sqlite3_wal_checkpoint_v2(conn->handle, NULL, mode, NULL, NULL);
    int sys = errno;
    sqlite3_busy_timeout(conn->handle, STORE_BUSY_MS);
    errno = sys;
    if (rc == SQLITE_OK || (rc & 0xff) == SQLITE_BUSY)
        return 0;
    return fail(db, rc, err);
}

/*
 * Zeros, which are no frames, up to STORE_LOG_ROOM: a commit that overwrites waits for the disk
 * once, one that makes the file longer also for the file system's journal, two or three times as
 * long.
 */
static int sqlite_make_room(struct db *db, struct err *err)
{
    static const char zeros[65536];
    sqlite3_file *log = NULL;
    sqlite3_int64 size = 0;

    int rc = sqlite3_file_control(handle_of(db), "main", SQLITE_FCNTL_JOURNAL_POINTER, &log);
    if (rc != SQLITE_OK || !log || !log->pMethods)
        return 0; /* no log yet */
    errno = 0;
    rc = log->pMethods->xFileSize(log, &size);
    if (rc == SQLITE_OK && size >= STORE_LOG_ROOM)
        return 0;
    for (; rc == SQLITE_OK && size < STORE_LOG_ROOM; size += (int)sizeof(zeros))
        rc = log->pMethods->xWrite(log, zeros, (int)sizeof(zeros), size);
    if (rc == SQLITE_OK)
        rc = log->pMethods->xSync(log, SQLITE_SYNC_DATAONLY);
    return rc == SQLITE_OK ? 0 : fail(db, rc, err);
}

static void sqlite_close_conn(struct db *db)
{
    if (!db->conn)
        return;
    int rc = sqlite3_close(handle_of(db));
    assert(rc == SQLITE_OK); /* every statement of ours was finalised */
    (void)rc;
    free(db->conn);
}

static const struct db_engine sqlite_engine = {
    .name = "sqlite",
    .blob_type = "BLOB",
    .clustered = "WITHOUT ROWID",
    .number_type = "INTEGER", /* this very word makes it the row's own number */
    .begin_write = "BEGIN IMMEDIATE",
    .insert = "INSERT OR FAIL INTO", /* ABORT, which is usual, copies every page that it touches */
    .mark = "PRAGMA application_id = " APPLICATION_ID ";",
    .mark_query = "PRAGMA application_id",
    .mark_value = APPLICATION_ID,
    .prepare = sqlite_prepare,
    .finalize = sqlite_finalize,
    .reset = sqlite_reset,
    .bind = sqlite_bind,
    .step = sqlite_step,
    .changes = sqlite_changes,
    .col_i64 = sqlite_col_i64,
    .col_str = sqlite_col_str,
    .script = sqlite_script,
    .in_transaction = sqlite_in_transaction,
    .check = sqlite_check,
    .interrupt = sqlite_interrupt,
    .copy = sqlite_copy,
    .backlog = sqlite_backlog,
    .settle = sqlite_settle,
    .make_room = sqlite_make_room,
    .close = sqlite_close_conn,
};

/* ---- opening ---- */

/*
 * The process's own settings, before the first connection. Journals of savepoints stay in memory:
 * they are as small as a batch, and the api process may not write outside its directory.
 */
static void configure_once(void)
{
    sqlite3_config(SQLITE_CONFIG_STMTJRNL_SPILL, -1);
    sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0); /* a global lock in every malloc */
    pages_apply();
    beneath_apply();
}

/* "file:" and the path, percent-encoded: no byte of a path means anything else to SQLite then. */
static void put_uri(struct buf *out, const char *path, bool immutable)
{
    buf_puts(out, path[0] == '/' ? "file://" : "file:");
    for (const char *p = path; *p; p++) {
        bool plain = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') ||
                     (*p >= '0' && *p <= '9') || *p == '/' || *p == '.' || *p == '-' || *p == '_';

        if (plain)
            buf_putc(out, *p);
        else
            buf_printf(out, "%%%02x", (unsigned char)*p);
    }
    if (immutable)
        buf_puts(out, "?immutable=1");
}

static const char settings_all[] = "PRAGMA trusted_schema = OFF;"
                                   "PRAGMA foreign_keys = ON;"
                                   "PRAGMA recursive_triggers = ON;" /* REPLACE removes, too */
                                   "PRAGMA mmap_size = 0;"
                                   "PRAGMA temp_store = MEMORY;"
                                   "PRAGMA cell_size_check = ON;"
                                   "PRAGMA synchronous = FULL;"
                                   "PRAGMA cache_size = -4096;";

static bool throw_away;

void sqlite_throw_away(void)
{
    throw_away = true;
}

/* A log file that has grown stays at this size: overwriting it is cheaper than appending. */
static const char settings_writer[] = "PRAGMA wal_autocheckpoint = 0;"
                                      "PRAGMA cache_size = -16384;"
                                      "PRAGMA journal_size_limit = 67108864;";

/* The answer is the mode that is in force, which is not always the one that was asked for. */
static int set_log_mode(struct db *db, struct err *err)
{
    autoquery struct query *q = db_query(db, "PRAGMA journal_mode = WAL");
    int rc = query_step(q, err);

    if (rc < 0)
        return -1;
    if (rc == 0 || !str_is(query_col_str(q, 0), "wal"))
        return err_set(err, ERR_INTERNAL, "the file system cannot hold a write-ahead log");
    return 0;
}

static int set_up(struct db *db, enum db_mode mode, struct err *err)
{
    sqlite3 *handle = handle_of(db);

    sqlite3_extended_result_codes(handle, 1);
    sqlite3_busy_timeout(handle, STORE_BUSY_MS);
    sqlite3_db_config(handle, SQLITE_DBCONFIG_DEFENSIVE, 1, (int *)NULL);
    if (mode == DB_READ) /* who only reads does not tidy up either */
        sqlite3_db_config(handle, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, (int *)NULL);
    sqlite3_db_config(handle, SQLITE_DBCONFIG_DQS_DDL, 0, (int *)NULL);
    sqlite3_db_config(handle, SQLITE_DBCONFIG_DQS_DML, 0, (int *)NULL);
    if (sqlite_script(db, settings_all, err) < 0 ||
        (throw_away && sqlite_script(db, "PRAGMA synchronous = OFF", err) < 0))
        return -1;
    if (mode != DB_WRITE)
        return 0;
    if (set_log_mode(db, err) < 0 || sqlite_script(db, settings_writer, err) < 0)
        return -1;
    sqlite3_wal_hook(handle, on_commit, db->conn);
    return 0;
}

int sqlite_open(struct db **out, const char *path, enum db_mode mode, struct err *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    autobuf struct buf uri = { 0 };
    autodb struct db *db = db_new(&sqlite_engine, path);
    bool writes = mode == DB_CREATE || mode == DB_WRITE;
    int flags = (writes ? SQLITE_OPEN_READWRITE : SQLITE_OPEN_READONLY) | SQLITE_OPEN_URI |
                SQLITE_OPEN_NOMUTEX;

    pthread_once(&once, configure_once);
    put_uri(&uri, path, mode == DB_READ_COPY);
    struct conn *conn = xnew(struct conn);
    db->conn = conn;
    int rc = sqlite3_open_v2(buf_cstr(&uri), &conn->handle, flags,
                             mode == DB_WRITE ? gather_vfs() : NULL);
    if (!conn->handle)
        return err_set(err, ERR_UNAVAILABLE, "not enough memory for the store");
    if (rc != SQLITE_OK)
        return fail(db, rc, err);
    if (set_up(db, mode, err) < 0)
        return -1;
    *out = take_ptr(&db);
    return 0;
}
