/*
 * Backups of the store: made in a directory of the server's, brought away in pieces, removed.
 *
 * Two kinds of files there belong to nobody: what a killed server was writing, and the copies that
 * `atoll backup` has made for itself and could not remove because it was killed. The first are
 * removed at the start, the second then and once they are an hour old.
 */
#include "api/own.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>

#include "base/log.h"

struct backup {
    const char *name, *path;
    int64_t bytes;
};

static const struct field backup_wish_fields[] = {
    FIELD(backup, name, F_STRING, F_REQUIRED, .min = 1, .max = 64,
          .help = "File name: letters, digits, - _ and ."),
    { 0 },
};

static const struct field backup_fields[] = {
    FIELD(backup, name, F_STRING, F_READONLY, .help = "File name"),
    FIELD(backup, path, F_STRING, F_READONLY, .help = "Where the server put it"),
    FIELD(backup, bytes, F_INT, F_READONLY, .help = "Its size"),
    { 0 },
};

static int backup_path(struct call *call, const char *name, const char **out, struct err *err)
{
    size_t len = strlen(name);

    if (len == 0 || len > 64 || name[0] == '.' ||
        strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") != len)
        return err_field(err, "name",
                         "1 to 64 letters, digits, - _ and ., not beginning with a dot");
    *out = arena_printf(&call->arena, "%s/backups/%s", call->api->options.data_dir, name);
    return 0;
}

static int backup_post(struct call *call, struct err *err)
{
    struct backup wish = { 0 };
    const char *path;
    struct stat st;

    if (call_decode(call, &wish, err) < 0 || backup_path(call, wish.name, &path, err) < 0)
        return -1;
    const char *dir = arena_printf(&call->arena, "%s/backups", call->api->options.data_dir);
    if (mkdir(dir, 0700) < 0 && errno != EEXIST)
        return err_sys(err, "make the backups directory");
    if (store_backup(call->db, path, err) < 0)
        return -1;
    if (stat(path, &st) < 0)
        return err_sys(err, "look at the backup");
    call->object = arena_printf(&call->arena, "backup/%s", wish.name);
    struct backup made = { wish.name, path, st.st_size };
    return call_reply(call, &made);
}

/* Sent in pieces as the peer takes them, some each round, so that others have their turn. */
struct download {
    int fd;
    struct http_req *req;
    struct loop *loop;
    struct timer again;
};

#define PIECES_PER_ROUND 32

static void download_free(struct download *download)
{
    timer_cancel(download->loop, &download->again);
    close(download->fd);
    free(download);
}

static void download_more(struct http_req *req)
{
    struct download *download = req->app;
    char piece[8192];

    for (int i = 0; i < PIECES_PER_ROUND; i++) {
        ssize_t got = read(download->fd, piece, sizeof(piece));

        if (got <= 0) {
            if (got < 0)
                http_cut(req, "the backup could not be read");
            else
                http_reply_end(req, NULL, 0);
            download_free(download);
            return;
        }
        enum http_flow flow = http_reply_write(req, (struct str){ piece, (size_t)got });
        if (flow != HTTP_OK)
            return; /* on_drain goes on, or on_gone has freed it */
    }
    timer_set(download->loop, &download->again, 0);
}

static void download_again(struct timer *timer)
{
    download_more(container_of(timer, struct download, again)->req);
}

static void download_gone(struct http_req *req)
{
    download_free(req->app);
}

static int backup_get(struct call *call, struct err *err)
{
    struct http_header headers[CALL_EXTRA_MAX + 3];
    const char *path;

    if (backup_path(call, call_param(call, "name"), &path, err) < 0)
        return -1;
    autoclose int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return errno == ENOENT ? err_set(err, ERR_NOT_FOUND, "no such backup")
                               : err_sys(err, "open the backup");
    struct http_req *req = call->req;
    unsigned count = call_headers(call, headers, CALL_EXTRA_MAX);
    headers[count++] = (struct http_header){ STR("content-type"), STR("application/octet-stream") };
    headers[count++] = (struct http_header){ STR("content-disposition"), STR("attachment") };
    struct download *download = xnew(struct download);
    *download = (struct download){
        .fd = take_fd(&fd), .req = req, .loop = call->api->loop, .again.fn = download_again
    };
    req->app = download;
    req->on_gone = download_gone;
    req->on_drain = download_more;
    http_reply_begin(req, 200, headers, count);
    call->req = NULL;
    call_free(call);
    download_more(req);
    return 0;
}

static int backup_delete(struct call *call, struct err *err)
{
    const char *path;

    if (backup_path(call, call_param(call, "name"), &path, err) < 0)
        return -1;
    if (unlink(path) < 0)
        return errno == ENOENT ? err_set(err, ERR_NOT_FOUND, "no such backup")
                               : err_sys(err, "remove the backup");
    call->object = arena_printf(&call->arena, "backup/%s", call_param(call, "name"));
    call->status = 204;
    return 0;
}

/* ---- what belongs to nobody ---- */

#define TIDY_EVERY_MS 3600000
#define TIDY_AGE_S 3600

struct tidy {
    struct store_job job;
    struct api *api;
    bool starting;
};

/* "x.part…" of store_backup, or a file that SQLite keeps beside it. */
static bool is_part(struct str name)
{
    static const char *const beside[] = { "-journal", "-wal", "-shm" };

    for (size_t i = 0; i < ARRAY_LEN(beside); i++) {
        size_t len = strlen(beside[i]);

        if (name.n > len && memcmp(name.p + name.n - len, beside[i], len) == 0)
            name.n -= len;
    }
    while (name.n && memchr(name.p, '.', name.n))
        str_cut(&name, '.');
    return id_valid(name, "part");
}

static bool is_forgotten(int dir, const char *name, bool starting)
{
    struct stat st;

    if (is_part(str_of(name)))
        return starting;
    if (!id_valid(str_of(name), BACKUP_OF_CLIENT))
        return false;
    return starting || (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
                        st.st_mtime < time(NULL) - TIDY_AGE_S);
}

static int tidy_run(struct store_job *job, struct db *db, struct err *err)
{
    const struct tidy *tidy = container_of(job, struct tidy, job);
    autofree char *path = xprintf("%s/backups", tidy->api->options.data_dir);
    DIR *dir = opendir(path);
    const struct dirent *entry;

    (void)db, (void)err;
    while (dir && (entry = readdir(dir))) {
        if (!is_forgotten(dirfd(dir), entry->d_name, tidy->starting))
            continue;
        if (unlinkat(dirfd(dir), entry->d_name, 0) == 0)
            log_info("a forgotten backup was removed", kv_str("name", entry->d_name));
    }
    if (dir)
        closedir(dir);
    return 0;
}

static void tidy_done(struct store_job *job)
{
    free(container_of(job, struct tidy, job));
}

static void tidy(struct api *api, bool starting)
{
    struct tidy *tidy = xnew(struct tidy);

    tidy->job = (struct store_job){ .run = tidy_run, .done = tidy_done };
    tidy->api = api;
    tidy->starting = starting;
    store_read(api->store, &tidy->job);
    timer_set(api->loop, &api->own->tidy, TIDY_EVERY_MS);
}

static void on_tidy(struct timer *timer)
{
    tidy(container_of(timer, struct api_private, tidy)->api, false);
}

void backups_init(struct api *api)
{
    api->own->api = api;
    api->own->tidy.fn = on_tidy;
    tidy(api, true);
}

void backups_free(struct api *api)
{
    timer_cancel(api->loop, &api->own->tidy);
}

const struct route backup_routes[] = {
    { .name = "backup.create",
      .method = "POST",
      .path = "/api/v1/backups",
      .on = ON_READER,
      .roles = ROLE_ADMIN,
      .fn = backup_post,
      .takes = backup_wish_fields,
      .gives = backup_fields,
      .flags = ROUTE_CREATES | ROUTE_NODE,
      .summary = "A consistent copy of the store, made while it serves. Refuses to overwrite." },
    { .name = "backup.read",
      .method = "GET",
      .path = "/api/v1/backups/{name}",
      .on = ON_STREAM,
      .roles = ROLE_ADMIN,
      .fn = backup_get,
      .flags = ROUTE_NODE,
      .summary = "Download a backup." },
    { .name = "backup.delete",
      .method = "DELETE",
      .path = "/api/v1/backups/{name}",
      .on = ON_READER,
      .roles = ROLE_ADMIN,
      .fn = backup_delete,
      .flags = ROUTE_NODE,
      .summary = "Remove a backup from the server's disk." },
    { 0 },
};
