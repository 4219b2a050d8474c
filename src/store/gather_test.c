/* gather: the log against a plain file, whatever is written, read, cut and measured in between. */
#include "store/gather.h"

#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

#include "base/limits.h"
#include "base/mem.h"
#include "base/test.h"

#define SIZE (4 * STORE_GATHER_MAX)

static unsigned char model[SIZE], seen[SIZE], bytes[2 * STORE_GATHER_MAX];
static sqlite3_int64 model_size;

static sqlite3_file *open_log(const char *path, sqlite3_file *file)
{
    sqlite3_vfs *vfs = sqlite3_vfs_find(gather_vfs());

    CHECK(vfs != NULL);
    autofree char *db = xmemdup0(path, strlen(path) - strlen("-wal"));
    FILE *made = fopen(db, "ae"); /* the log has its mode from there */
    CHECK(made != NULL && fclose(made) == 0);
    file = file ? file : xcalloc(1, (size_t)vfs->szOsFile);
    CHECK_INT(vfs->xOpen(vfs, path, file,
                         SQLITE_OPEN_WAL | SQLITE_OPEN_CREATE | SQLITE_OPEN_READWRITE, NULL),
              SQLITE_OK);
    return file;
}

static long on_disk(const char *path)
{
    FILE *file = fopen(path, "re");

    CHECK(file != NULL && fseek(file, 0, SEEK_END) == 0);
    long size = ftell(file);
    fclose(file);
    return size;
}

static void write_some(sqlite3_file *file, sqlite3_int64 at, size_t len)
{
    for (size_t i = 0; i < len; i++)
        bytes[i] = (unsigned char)test_rand(256);
    CHECK_INT(file->pMethods->xWrite(file, bytes, (int)len, at), SQLITE_OK);
    memcpy(model + at, bytes, len);
    model_size = MAX(model_size, at + (sqlite3_int64)len);
}

static void check_all(sqlite3_file *file)
{
    sqlite3_int64 size = -1;

    CHECK_INT(file->pMethods->xFileSize(file, &size), SQLITE_OK);
    CHECK_INT(size, model_size);
    if (!size)
        return;
    CHECK_INT(file->pMethods->xRead(file, seen, (int)size, 0), SQLITE_OK);
    CHECK(memcmp(seen, model, (size_t)size) == 0);
}

TEST(a_gathered_log_is_the_file_that_was_written)
{
    autofree char *path = xprintf("%s/db-wal", test_dir());
    sqlite3_file *file = open_log(path, NULL);
    sqlite3_int64 at = 0;

    for (int round = 0; round < 4000; round++) {
        size_t len = test_rand(20) ? 1 + test_rand(5000) : 1 + test_rand(sizeof(bytes) - 1);

        switch (test_rand(40)) {
        case 0:
            check_all(file);
            break;
        case 1: /* cut */
            model_size = model_size ? (sqlite3_int64)test_rand((uint32_t)model_size) : 0;
            at = model_size;
            CHECK_INT(file->pMethods->xTruncate(file, model_size), SQLITE_OK);
            break;
        case 2: /* somewhere in the middle, as when the log begins anew */
            at = model_size ? (sqlite3_int64)test_rand((uint32_t)model_size) : 0;
            break;
        case 3:
            CHECK_INT(file->pMethods->xSync(file, SQLITE_SYNC_NORMAL), SQLITE_OK);
            CHECK_INT(on_disk(path), model_size);
            break;
        case 4:
            CHECK_INT(file->pMethods->xClose(file), SQLITE_OK);
            CHECK_INT(on_disk(path), model_size);
            file = open_log(path, file);
            break;
        default:
            if (at + (sqlite3_int64)len > SIZE)
                at = 0;
            write_some(file, at, len);
            at += (sqlite3_int64)len;
        }
    }
    check_all(file);
    CHECK_INT(file->pMethods->xClose(file), SQLITE_OK);
    free(file);
}

/* What it is for: pieces that follow each other wait for the sync. */
TEST(pieces_that_follow_each_other_are_written_together)
{
    autofree char *path = xprintf("%s/db2-wal", test_dir());
    sqlite3_file *file = open_log(path, NULL);

    model_size = 0;
    for (int i = 0; i < 10; i++)
        write_some(file, i * 4120, 4120);
    CHECK_INT(on_disk(path), 0);
    CHECK_INT(file->pMethods->xSync(file, SQLITE_SYNC_NORMAL), SQLITE_OK);
    CHECK_INT(on_disk(path), 10 * 4120);
    check_all(file);
    CHECK_INT(file->pMethods->xClose(file), SQLITE_OK);
    free(file);
}
