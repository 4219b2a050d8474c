/*
 * See gather.h. Only the log's file is wrapped: its methods are ours, and the system's file stands
 * right behind ours in memory. Any other file is the system's own.
 */
#include "store/gather.h"

#include <pthread.h>
#include <sqlite3.h>
#include <string.h>

#include "base/limits.h"
#include "base/mem.h"

struct gathered {
    sqlite3_file base;
    char *bytes; /* owned; STORE_GATHER_MAX, once anything was written */
    int len;
    sqlite3_int64 at; /* where they belong */
};

static sqlite3_vfs *real;
static sqlite3_vfs ours;

static struct gathered *own(sqlite3_file *file)
{
    return (struct gathered *)(void *)file;
}

static sqlite3_file *below(sqlite3_file *file)
{
    return (sqlite3_file *)(void *)(own(file) + 1);
}

static int write_out(sqlite3_file *file)
{
    struct gathered *log = own(file);
    int len = log->len;

    log->len = 0; /* if it fails, so does whoever waits for it: SQLite writes all of it again */
    return len ? below(file)->pMethods->xWrite(below(file), log->bytes, len, log->at) : SQLITE_OK;
}

/* ---- the methods of the log ---- */

static int log_write(sqlite3_file *file, const void *data, int len, sqlite3_int64 at)
{
    struct gathered *log = own(file);
    int rc;

    if ((at != log->at + log->len || len > STORE_GATHER_MAX - log->len) &&
        (rc = write_out(file)) != SQLITE_OK)
        return rc;
    if (len > STORE_GATHER_MAX)
        return below(file)->pMethods->xWrite(below(file), data, len, at);
    if (!log->bytes)
        log->bytes = xmalloc(STORE_GATHER_MAX);
    if (!log->len)
        log->at = at;
    memcpy(log->bytes + log->len, data, (size_t)len);
    log->len += len;
    return SQLITE_OK;
}

static int log_read(sqlite3_file *file, void *out, int len, sqlite3_int64 at)
{
    int rc = write_out(file);

    return rc != SQLITE_OK ? rc : below(file)->pMethods->xRead(below(file), out, len, at);
}

static int log_truncate(sqlite3_file *file, sqlite3_int64 size)
{
    int rc = write_out(file);

    return rc != SQLITE_OK ? rc : below(file)->pMethods->xTruncate(below(file), size);
}

static int log_sync(sqlite3_file *file, int flags)
{
    int rc = write_out(file);

    return rc != SQLITE_OK ? rc : below(file)->pMethods->xSync(below(file), flags);
}

static int log_size(sqlite3_file *file, sqlite3_int64 *out)
{
    int rc = write_out(file);

    return rc != SQLITE_OK ? rc : below(file)->pMethods->xFileSize(below(file), out);
}

static int log_close(sqlite3_file *file)
{
    int rc = write_out(file), closed = below(file)->pMethods->xClose(below(file));

    free(own(file)->bytes);
    own(file)->bytes = NULL;
    return rc != SQLITE_OK ? rc : closed;
}

static int log_lock(sqlite3_file *file, int how)
{
    return below(file)->pMethods->xLock(below(file), how);
}

static int log_unlock(sqlite3_file *file, int how)
{
    return below(file)->pMethods->xUnlock(below(file), how);
}

static int log_reserved(sqlite3_file *file, int *out)
{
    return below(file)->pMethods->xCheckReservedLock(below(file), out);
}

static int log_control(sqlite3_file *file, int what, void *arg)
{
    return below(file)->pMethods->xFileControl(below(file), what, arg);
}

static int log_sector(sqlite3_file *file)
{
    return below(file)->pMethods->xSectorSize(below(file));
}

static int log_device(sqlite3_file *file)
{
    return below(file)->pMethods->xDeviceCharacteristics(below(file));
}

static const sqlite3_io_methods log_methods = {
    .iVersion = 1,
    .xClose = log_close,
    .xRead = log_read,
    .xWrite = log_write,
    .xTruncate = log_truncate,
    .xSync = log_sync,
    .xFileSize = log_size,
    .xLock = log_lock,
    .xUnlock = log_unlock,
    .xCheckReservedLock = log_reserved,
    .xFileControl = log_control,
    .xSectorSize = log_sector,
    .xDeviceCharacteristics = log_device,
};

/* ---- the VFS ---- */

static int open_file(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags, int *out)
{
    (void)vfs;
    if (!(flags & SQLITE_OPEN_WAL))
        return real->xOpen(real, name, file, flags, out);
    *own(file) = (struct gathered){ 0 };
    int rc = real->xOpen(real, name, below(file), flags, out);
    if (below(file)->pMethods) /* it is closed even when it failed to open */
        file->pMethods = &log_methods;
    return rc;
}

const char *gather_vfs(void)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    sqlite3_vfs *usual = sqlite3_vfs_find(NULL);

    pthread_mutex_lock(&lock);
    if (usual && usual != real) { /* the first time, or a test has put in another one */
        if (real)
            sqlite3_vfs_unregister(&ours);
        real = usual;
        ours = *usual;
        ours.zName = "gather";
        ours.szOsFile += (int)sizeof(struct gathered);
        ours.xOpen = open_file;
        if (sqlite3_vfs_register(&ours, 0) != SQLITE_OK)
            abort();
    }
    pthread_mutex_unlock(&lock);
    return ours.zName;
}
