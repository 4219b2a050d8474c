/*
 * `backup` has the running server make a consistent copy and brings it here; without a server it
 * copies the store of a local state directory itself. `restore` puts a copy in the store's place
 * while no server runs.
 *
 * Restoring never destroys: the backup is checked page by page and row by row before anything is
 * touched, copied beside the store, and then swapped in with one rename; what was there before is
 * kept under another name.
 * A kill at any point leaves either the old store or the new one in place.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/id.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "store/db.h"
#include "store/store.h"
#include "wire/layout.h"

static bool is_there(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0;
}

/* ---- a new file that has its name only when it is whole ---- */

struct fresh {
    int fd; /* owned */
    const char *path;
    char *part; /* owned; the name until then, NULL when it has none */
};

static void fresh_free(struct fresh *fresh)
{
    if (fresh->fd >= 0)
        close(fresh->fd);
    if (fresh->part)
        unlink(fresh->part);
    free(fresh->part);
}
#define autofresh auto_with(fresh_free)

static int fresh_open(struct fresh *fresh, const char *path, struct err *err)
{
    const char *slash = strrchr(path, '/');
    autofree char *dir = slash ? xmemdup0(path, (size_t)(slash - path) + 1) : xstrdup(".");
    char id[ID_SIZE];

    *fresh = (struct fresh){ .fd = -1, .path = path };
    if (is_there(path))
        return err_set(err, ERR_CONFLICT, "%s exists already", path);
    fresh->fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fresh->fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR)) {
        id_make(id, "part");
        fresh->part = xprintf("%s.%s", path, id);
        fresh->fd = open(fresh->part, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    }
    return fresh->fd < 0 ? err_sys(err, "make a file in %s", dir) : 0;
}

static int fresh_name(struct fresh *fresh, struct err *err)
{
    autofree char *self = xprintf("/proc/self/fd/%d", fresh->fd);
    int rc;

    if (fsync(fresh->fd) < 0)
        return err_sys(err, "write %s", fresh->path);
    if (fresh->part)
        rc = renameat2(AT_FDCWD, fresh->part, AT_FDCWD, fresh->path, RENAME_NOREPLACE);
    else
        rc = linkat(AT_FDCWD, self, AT_FDCWD, fresh->path, AT_SYMLINK_FOLLOW);
    if (rc < 0)
        return errno == EEXIST ? err_set(err, ERR_CONFLICT, "%s exists already", fresh->path)
                               : err_sys(err, "name %s", fresh->path);
    if (fresh->part)
        free(take_ptr(&fresh->part));
    return 0;
}

static int write_all(int fd, struct str bytes, struct err *err)
{
    while (bytes.n) {
        ssize_t done = write(fd, bytes.p, bytes.n);

        if (done < 0 && errno != EINTR)
            return err_sys(err, "write the backup");
        bytes = str_from(bytes, done > 0 ? (size_t)done : 0);
    }
    return 0;
}

/* ---- backup ---- */

static int download(struct cli *cli, const char *name, int fd, int64_t *bytes, struct err *err)
{
    autoclient struct client *client = NULL;
    autofree char *path = xprintf("/api/v1/backups/%s", name);
    struct client_request request = {
        .method = "GET", .path = path, .token = cli->at.token, .accept = "*/*"
    };
    struct client_options options = { .ca_file = cli->at.ca };
    struct client_reply reply;
    char part[8192];

    if (cli_deadline(cli, &options.deadline_ms, err) < 0 ||
        client_start(&client, &cli->at.target, &request, &options, &reply, err) < 0)
        return -1;
    if (reply.status != 200)
        return cli_refused_on(cli, client, &reply, err);
    for (;;) {
        /* The limit is for silence, not for the whole: a store may be large. */
        int64_t deadline;
        if (cli_deadline(cli, &deadline, err) < 0)
            return -1;
        client_deadline(client, deadline);
        ssize_t got = client_read(client, part, sizeof(part), err);

        if (got < 0)
            return -1;
        if (got == 0)
            return 0;
        if (write_all(fd, (struct str){ part, (size_t)got }, err) < 0)
            return -1;
        *bytes += got;
    }
}

/* The server's copy has served; should it stay, the server removes it by its name. */
static void forget(struct cli *cli, const char *name)
{
    const struct json *reply;
    struct err err;

    if (cli_call(cli, "DELETE", STR_NONE, &reply, &err, "/api/v1/backups/%s", name) < 0)
        cli_note(cli, "the server keeps its copy %s for an hour: %s", name, err.msg);
}

static int by_server(struct cli *cli, const char *file, int64_t *bytes, struct err *err)
{
    autofresh struct fresh fresh = { .fd = -1 };
    autobuf struct buf body = { 0 };
    struct json_out json = json_to(&body);
    const struct json *reply;
    char name[ID_SIZE];

    if (fresh_open(&fresh, file, err) < 0)
        return -1;
    id_make(name, BACKUP_OF_CLIENT);
    json_open(&json, '{');
    json_kv_text(&json, "name", name);
    json_close(&json, '}');
    if (cli_call(cli, "POST", buf_view(&body), &reply, err, "/api/v1/backups") < 0)
        return -1;
    int64_t promised = json_num(reply, "bytes", -1);
    int rc = download(cli, name, fresh.fd, bytes, err);
    forget(cli, name);
    if (rc < 0)
        return err_wrap(err, "download");
    if (promised >= 0 && promised != *bytes)
        return err_set(err, ERR_INTERNAL, "the server promised %lld bytes and sent %lld",
                       (long long)promised, (long long)*bytes);
    return fresh_name(&fresh, err);
}

static int by_file(const char *state, const char *file, int64_t *bytes, struct err *err)
{
    autofree char *path = xprintf("%s/" STATE_DATA "/" STATE_DB, state);
    struct db *db = NULL;
    struct stat st;

    if (store_open_alone(&db, path, false, err) < 0)
        return -1;
    int rc = store_backup(db, file, err);
    store_close_alone(db);
    if (rc == 0 && stat(file, &st) == 0)
        *bytes = st.st_size;
    return rc;
}

static int backup_run(struct cli *cli, struct err *err)
{
    const char *file = cli->args[0];
    struct json_out json = json_to(&cli->out);
    struct err unreached;
    int64_t bytes = 0;

    int rc = by_server(cli, file, &bytes, err);
    bool offline = rc < 0 && err->code == ERR_UNAVAILABLE && cli->at.state;
    if (offline) {
        unreached = *err;
        rc = by_file(cli->at.state, file, &bytes, err);
        if (rc < 0 && err->code == ERR_NOT_FOUND)
            *err = unreached; /* no store here either: the server was meant */
    }
    if (rc == 0 && store_check(file, err) < 0) {
        unlink(file);
        rc = -1;
    }
    if (rc < 0)
        return err_wrap(err, "backup");
    if (cli->json) {
        json_open(&json, '{');
        json_kv_text(&json, "path", file);
        json_kv_int(&json, "bytes", bytes);
        json_kv_text(&json, "from", offline ? "file" : "server");
        json_close(&json, '}');
        buf_putc(&cli->out, '\n');
    } else {
        buf_printf(&cli->out, "%s: %lld bytes, checked\n", file, (long long)bytes);
    }
    return EXIT_OK;
}

const struct command cmd_backup = {
    .name = "backup",
    .args = "FILE",
    .help = "Copy the store into a new file, while the server runs or not.",
    .more = "The copy is consistent, holds everything acknowledged before it began, and is "
            "checked after it has arrived. An existing file is never overwritten. --timeout "
            "limits how long the server may be silent (10 minutes: it writes its copy first), not "
            "the whole.",
    .traits = CMD_REMOTE,
    .timeout_ms = 600000,
    .run = backup_run,
};

/* ---- restore ---- */

/* The lock of the state directory: whoever holds it is the server. */
static int take_lock(const char *state, int *out, struct err *err)
{
    autofree char *path = xprintf("%s/" STATE_LOCK, state);
    autoclose int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

    if (fd < 0)
        return err_sys(err, "open %s", path);
    if (flock(fd, LOCK_EX | LOCK_NB) < 0)
        return errno == EWOULDBLOCK
                   ? err_set(err, ERR_CONFLICT, "the server of %s is running; stop it first", state)
                   : err_sys(err, "lock %s", path);
    *out = take_fd(&fd);
    return 0;
}

static int make_dir(const char *path, mode_t mode, struct err *err)
{
    return mkdir(path, mode) < 0 && errno != EEXIST ? err_sys(err, "make %s", path) : 0;
}

/* When root restores, the files are still the server's: what is there gets its directory's owner.
 */
static int own_like(const char *dir, const char *path, struct err *err)
{
    struct stat st;

    if (geteuid() != 0)
        return 0;
    if (stat(dir, &st) < 0)
        return err_sys(err, "look at %s", dir);
    if (lchown(path, st.st_uid, st.st_gid) < 0 && errno != ENOENT)
        return err_sys(err, "give %s to its user", path);
    return 0;
}

/* A copy of `from`, owned like the directory it stands in. */
static int copy_in(const char *from, const char *to, const char *data_dir, struct err *err)
{
    struct db *db = NULL;

    if (store_open_alone(&db, from, false, err) < 0)
        return -1;
    int rc = store_backup(db, to, err);
    store_close_alone(db);
    return rc < 0 ? -1 : own_like(data_dir, to, err);
}

/* The newest number that a disk was given; 0 when the store does not say. */
static int64_t last_disk(struct db *db)
{
    struct err ignored;
    autoquery struct query *q = db_query(db, "SELECT last FROM disk_number WHERE id = 1");

    return query_step(q, &ignored) > 0 ? query_col_i64(q, 0) : 0;
}

/*
 * What the backup says of disks was true then. One that was being made or dropped may be in use by
 * now, so the next start must not drop it; and no number may be given out a second time.
 */
static int update_disks(struct db *db, int64_t last, struct err *err)
{
    autoquery struct query *rows = db_query(db, "DELETE FROM disk WHERE state <> 'ready'");
    autoquery struct query *number =
        db_query(db, "UPDATE disk_number SET last = $1 WHERE id = 1 AND last < $1");

    query_i64(number, 1, last);
    return query_run(rows, err) < 0 || query_run(number, err) < 0 ? -1 : 0;
}

static int settle_disks(const char *fresh, int64_t last, struct err *err)
{
    autofree char *lock = xprintf("%s.lock", fresh);
    struct db *db = NULL;

    if (store_open_alone(&db, fresh, true, err) < 0)
        return -1;
    int rc = update_disks(db, last, err);
    store_close_alone(db);
    unlink(lock);
    return rc < 0 ? err_wrap(err, "what the backup says of disks") : 0;
}

/* Brings what is in the old store's log into its file, if the store still opens. */
static int settle(const char *db_path, int64_t *last, struct err *err)
{
    struct db *db = NULL;

    if (!is_there(db_path) || store_open_alone(&db, db_path, true, err) == 0) {
        *last = db ? last_disk(db) : 0;
        store_close_alone(db);
        return 0;
    }
    return err->code == ERR_CONFLICT ? -1 : 0; /* broken is why one restores */
}

static int rename_if_there(const char *from, const char *to, const char *suffix, struct err *err)
{
    autofree char *source = xprintf("%s%s", from, suffix), *target = xprintf("%s%s", to, suffix);

    if (renameat2(AT_FDCWD, source, AT_FDCWD, target, RENAME_NOREPLACE) < 0 && errno != ENOENT)
        return err_sys(err, "rename %s to %s", source, target);
    return 0;
}

/* The new file takes the old one's name and the old one `aside`, with no moment of neither. */
static int swap_in(const char *fresh, const char *db_path, const char *aside, struct err *err)
{
    static const char *const logs[] = { "-wal", "-shm", "-journal" };

    for (size_t i = 0; i < ARRAY_LEN(logs); i++)
        if (rename_if_there(db_path, aside, logs[i], err) < 0)
            return -1;
    if (renameat2(AT_FDCWD, fresh, AT_FDCWD, db_path, RENAME_NOREPLACE) == 0)
        return 0;
    if (errno != EEXIST)
        return err_sys(err, "put the store in place");
    if (renameat2(AT_FDCWD, fresh, AT_FDCWD, db_path, RENAME_EXCHANGE) < 0)
        return err_sys(err, "put the store in place");
    return rename_if_there(fresh, aside, "", err);
}

static int sync_dir(const char *path, struct err *err)
{
    autoclose int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    return fd < 0 || fsync(fd) < 0 ? err_sys(err, "flush %s", path) : 0;
}

static int put_back(const char *file, const char *state, char **aside, struct err *err)
{
    autofree char *data = xprintf("%s/" STATE_DATA, state);
    autofree char *db_path = xprintf("%s/" STATE_DB, data);
    int64_t last = 0;
    char id[ID_SIZE];

    id_make(id, "");
    autofree char *fresh = xprintf("%s.restore-%s.tmp", db_path, id);
    *aside = xprintf("%s.before-%s", db_path, id);
    if (make_dir(data, 0700, err) < 0)
        return -1;
    if (copy_in(file, fresh, data, err) < 0 || settle(db_path, &last, err) < 0 ||
        settle_disks(fresh, last, err) < 0 || own_like(data, fresh, err) < 0 ||
        swap_in(fresh, db_path, *aside, err) < 0) {
        unlink(fresh);
        return -1;
    }
    return sync_dir(data, err);
}

static int restore_run(struct cli *cli, struct err *err)
{
    struct json_out json = json_to(&cli->out);
    autofree char *aside = NULL;
    autoclose int lock_fd = -1;
    bool named;
    autofree char *state = cli_state_dir(cli, &named);

    if (store_check(cli->args[0], err) < 0)
        return err_wrap(err, "restore");
    if (make_dir(state, 0711, err) < 0 || take_lock(state, &lock_fd, err) < 0 ||
        put_back(cli->args[0], state, &aside, err) < 0)
        return err_wrap(err, "restore");
    bool kept = is_there(aside);
    if (cli->json) {
        json_open(&json, '{');
        json_kv_text(&json, "state", state);
        json_kv_text(&json, "kept", kept ? aside : NULL);
        json_close(&json, '}');
        buf_putc(&cli->out, '\n');
        return EXIT_OK;
    }
    buf_printf(&cli->out, "restored %s into %s\n", cli->args[0], state);
    if (kept)
        buf_printf(&cli->out, "the store before it is kept as %s\n", aside);
    return EXIT_OK;
}

static const struct cli_flag restore_flags[] = {
    { "state", "DIR", "State directory to restore into (ATOLL_STATE)" },
    { 0 },
};

const struct command cmd_restore = {
    .name = "restore",
    .args = "FILE",
    .help = "Put a backup in the store's place, while the server is stopped.",
    .more = "The backup is checked first, every page and the audit chain. The store that was "
            "there is kept beside the new one, under a name that is printed. Disks that the backup "
            "does not know are kept aside: `atoll disk ls` lists them after the next start.",
    .flags = restore_flags,
    .run = restore_run,
};
