/*
 * fault_vfs - a disk that misbehaves on demand, between SQLite and the real one. Only for tests.
 *
 * It can fail one call or every write, hand out a damaged page, and cut the power: every write
 * since a file's last fsync is then lost, kept, or kept without the one before it, by chance, as a
 * disk with a cache may do; and the process ends. Calls are serialised, so a cut is one instant.
 */
#pragma once

#include <fcntl.h>
#include <pthread.h>
#include <sqlite3.h>
#include <string.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "base/test.h"

enum { FAULT_FILES = 64 };

/* A write since the last fsync: what stood there and what was put. */
struct fault_write {
    struct fault_write *older;
    sqlite3_int64 at, old_size;
    size_t old_len, len; /* len 0: a truncation to `at` */
    char *old_bytes, *bytes;
};

struct fault_file {
    sqlite3_file base;
    sqlite3_file *real; /* behind this struct */
    char *path;         /* NULL for a nameless temporary */
    struct fault_write *unsynced;
};

static struct {
    pthread_mutex_t lock;
    sqlite3_vfs *real;
    sqlite3_vfs vfs;
    struct fault_file *files[FAULT_FILES]; /* open ones, for the cut */
    _Atomic long calls;                    /* writes, truncations and fsyncs so far */
    _Atomic long fail_at;                  /* the call that fails, once; 0: none */
    _Atomic int fail_code;
    _Atomic bool full;       /* every write fails with SQLITE_FULL */
    _Atomic bool sync_fails; /* with SQLITE_IOERR_FSYNC */
    _Atomic bool bad_reads;  /* pages of the database come back damaged */
    _Atomic bool records;    /* keeps track of what is not synced, for the cut */
    _Atomic long cut_at;     /* the call during which the power goes; 0: never */
} fault = { .lock = PTHREAD_MUTEX_INITIALIZER };

static struct fault_file *fault_of(sqlite3_file *file)
{
    return (struct fault_file *)(void *)file;
}

/* ---- cutting the power ---- */

static void fault_forget(struct fault_file *file)
{
    while (file->unsynced) {
        struct fault_write *write = file->unsynced;

        file->unsynced = write->older;
        free(write->old_bytes);
        free(write->bytes);
        free(write);
    }
}

static void fault_note(struct fault_file *file, const void *bytes, size_t len, sqlite3_int64 at)
{
    struct fault_write *write;
    size_t old_len = len;
    sqlite3_int64 size = 0;

    if (!fault.records || !file->path)
        return;
    write = xnew(struct fault_write);
    file->real->pMethods->xFileSize(file->real, &size);
    if (len == 0 || at + (sqlite3_int64)len > size) /* a truncation: keep what it cuts off */
        old_len = size > at ? (size_t)(size - at) : 0;
    *write = (struct fault_write){
        .older = file->unsynced, .at = at, .old_size = size, .old_len = old_len, .len = len
    };
    write->old_bytes = xmalloc(old_len);
    if (old_len)
        file->real->pMethods->xRead(file->real, write->old_bytes, (int)old_len, at);
    write->bytes = xmemdup0(bytes, len);
    file->unsynced = write;
}

/* Back to what was synced, then forward again with some of the writes. */
static void fault_lose(struct fault_file *file)
{
    int fd = open(file->path, O_RDWR | O_CLOEXEC);
    struct fault_write *forward = NULL, *next;

    if (fd < 0)
        return;
    for (struct fault_write *write = file->unsynced; write; write = next) {
        if (ftruncate(fd, write->old_size) < 0 ||
            pwrite(fd, write->old_bytes, write->old_len, write->at) < 0)
            abort();
        next = write->older;
        write->older = forward;
        forward = write;
    }
    for (; forward; forward = forward->older) {
        if (test_rand(3) == 0)
            continue;
        if (forward->len ? pwrite(fd, forward->bytes, forward->len, forward->at) < 0
                         : ftruncate(fd, forward->at) < 0)
            abort();
    }
    close(fd);
}

_Noreturn static void fault_cut(void)
{
    for (int i = 0; i < FAULT_FILES; i++)
        if (fault.files[i] && fault.files[i]->path)
            fault_lose(fault.files[i]);
    _exit(0);
}

/* One call that changes the disk: counts it, and says with what it fails. Locked. */
static int fault_call(bool sync)
{
    fault.calls++;
    if (fault.cut_at && fault.calls >= fault.cut_at)
        fault_cut();
    if (fault.fail_at && fault.calls == fault.fail_at)
        return fault.fail_code;
    if (sync && fault.sync_fails)
        return SQLITE_IOERR_FSYNC;
    return !sync && fault.full ? SQLITE_FULL : SQLITE_OK;
}

/* ---- files ---- */

static int fault_close(sqlite3_file *base)
{
    struct fault_file *file = fault_of(base);

    pthread_mutex_lock(&fault.lock);
    for (int i = 0; i < FAULT_FILES; i++)
        if (fault.files[i] == file)
            fault.files[i] = NULL;
    fault_forget(file);
    free(file->path);
    int rc = file->real->pMethods->xClose(file->real);
    pthread_mutex_unlock(&fault.lock);
    return rc;
}

static int fault_read(sqlite3_file *base, void *out, int len, sqlite3_int64 at)
{
    struct fault_file *file = fault_of(base);
    int rc = file->real->pMethods->xRead(file->real, out, len, at);

    pthread_mutex_lock(&fault.lock);
    if (fault.bad_reads && len == 4096 && at > 0)
        memset(out, 0xa5, 64);
    pthread_mutex_unlock(&fault.lock);
    return rc;
}

static int fault_write_(sqlite3_file *base, const void *bytes, int len, sqlite3_int64 at)
{
    struct fault_file *file = fault_of(base);

    pthread_mutex_lock(&fault.lock);
    int rc = fault_call(false);
    if (rc == SQLITE_OK) {
        fault_note(file, bytes, (size_t)len, at);
        rc = file->real->pMethods->xWrite(file->real, bytes, len, at);
    }
    pthread_mutex_unlock(&fault.lock);
    return rc;
}

static int fault_truncate(sqlite3_file *base, sqlite3_int64 size)
{
    struct fault_file *file = fault_of(base);

    pthread_mutex_lock(&fault.lock);
    int rc = fault_call(false);
    if (rc == SQLITE_OK) {
        fault_note(file, NULL, 0, size);
        rc = file->real->pMethods->xTruncate(file->real, size);
    }
    pthread_mutex_unlock(&fault.lock);
    return rc;
}

static int fault_sync(sqlite3_file *base, int flags)
{
    struct fault_file *file = fault_of(base);

    pthread_mutex_lock(&fault.lock);
    int rc = fault_call(true);
    if (rc == SQLITE_OK) /* a real fsync would only make the test slow: nobody pulls a plug here */
        fault_forget(file);
    (void)flags;
    pthread_mutex_unlock(&fault.lock);
    return rc;
}

#define FAULT_PASS(name, params, args)                                                             \
    static int fault_##name params                                                                 \
    {                                                                                              \
        sqlite3_file *real = fault_of(base)->real;                                                 \
        return real->pMethods->x##name args;                                                       \
    }
FAULT_PASS(FileSize, (sqlite3_file * base, sqlite3_int64 *size), (real, size))
FAULT_PASS(Lock, (sqlite3_file * base, int level), (real, level))
FAULT_PASS(Unlock, (sqlite3_file * base, int level), (real, level))
FAULT_PASS(CheckReservedLock, (sqlite3_file * base, int *out), (real, out))
FAULT_PASS(FileControl, (sqlite3_file * base, int op, void *arg), (real, op, arg))
FAULT_PASS(SectorSize, (sqlite3_file * base), (real))
FAULT_PASS(DeviceCharacteristics, (sqlite3_file * base), (real))
FAULT_PASS(ShmMap, (sqlite3_file * base, int page, int size, int grow, void volatile **out),
           (real, page, size, grow, out))
FAULT_PASS(ShmLock, (sqlite3_file * base, int at, int count, int flags), (real, at, count, flags))
FAULT_PASS(ShmUnmap, (sqlite3_file * base, int remove), (real, remove))

static void fault_ShmBarrier(sqlite3_file *base)
{
    sqlite3_file *real = fault_of(base)->real;

    real->pMethods->xShmBarrier(real);
}

static const sqlite3_io_methods fault_methods = {
    .iVersion = 2,
    .xClose = fault_close,
    .xRead = fault_read,
    .xWrite = fault_write_,
    .xTruncate = fault_truncate,
    .xSync = fault_sync,
    .xFileSize = fault_FileSize,
    .xLock = fault_Lock,
    .xUnlock = fault_Unlock,
    .xCheckReservedLock = fault_CheckReservedLock,
    .xFileControl = fault_FileControl,
    .xSectorSize = fault_SectorSize,
    .xDeviceCharacteristics = fault_DeviceCharacteristics,
    .xShmMap = fault_ShmMap,
    .xShmLock = fault_ShmLock,
    .xShmBarrier = fault_ShmBarrier,
    .xShmUnmap = fault_ShmUnmap,
};

static int fault_open(sqlite3_vfs *vfs, const char *path, sqlite3_file *base, int flags, int *out)
{
    struct fault_file *file = fault_of(base);

    (void)vfs;
    *file = (struct fault_file){ .real = (sqlite3_file *)(void *)(file + 1) };
    int rc = fault.real->xOpen(fault.real, path, file->real, flags, out);
    if (rc != SQLITE_OK)
        return rc;
    file->base.pMethods = &fault_methods;
    file->path = path ? xstrdup(path) : NULL;
    pthread_mutex_lock(&fault.lock);
    for (int i = 0; i < FAULT_FILES; i++) {
        if (!fault.files[i]) {
            fault.files[i] = file;
            break;
        }
    }
    pthread_mutex_unlock(&fault.lock);
    return SQLITE_OK;
}

/* From now on every connection of the process goes through here. */
__attribute__((unused)) static void fault_install(void)
{
    if (fault.real)
        return;
    fault.real = sqlite3_vfs_find(NULL);
    CHECK(fault.real != NULL);
    fault.vfs = *fault.real;
    fault.vfs.zName = "fault";
    fault.vfs.pNext = NULL;
    fault.vfs.szOsFile = (int)sizeof(struct fault_file) + fault.real->szOsFile;
    fault.vfs.xOpen = fault_open;
    CHECK(sqlite3_vfs_register(&fault.vfs, 1) == SQLITE_OK);
}
