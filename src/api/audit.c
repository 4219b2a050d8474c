/* The audit log: read it, and have its chain checked. Backups of the store stand here too. */
#include "api/own.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/clock.h"

static void audit_one(void *ctx, const struct audit *row, const char *hash_hex)
{
    struct json_out *json = ctx;
    char when[CLOCK_TEXT_SIZE];

    clock_text(row->at_ms, when);
    json_open(json, '{');
    json_kv_int(json, "seq", row->seq);
    json_kv_text(json, "time", when);
    json_kv_text(json, "tenant", row->tenant);
    json_kv_text(json, "actor", row->actor);
    json_kv_text(json, "role", row->role);
    json_kv_text(json, "action", row->action);
    json_kv_text(json, "object", row->object);
    json_kv_text(json, "outcome", row->outcome);
    json_kv_text(json, "request_id", row->request_id);
    json_kv_text(json, "peer", row->peer);
    json_key(json, "detail");
    json_put_raw(json, str_of(row->detail));
    json_kv_text(json, "hash", hash_hex);
    json_close(json, '}');
}

static int audit_get(struct call *call, struct err *err)
{
    struct json_out json = call_json(call);
    int64_t since, limit;

    if (call_query_int(call, "since", 0, INT64_MAX, -1, &since, err) < 0 ||
        call_query_int(call, "limit", 1, PAGE_MAX, PAGE_DEFAULT, &limit, err) < 0)
        return -1;
    json_open(&json, '{');
    json_key(&json, "items");
    json_open(&json, '[');
    if (audit_list(call->db, call->who.tenant, since, (unsigned)limit, audit_one, &json, err) < 0)
        return -1;
    json_close(&json, ']');
    json_close(&json, '}');
    return 0;
}

struct verdict_view {
    bool ok;
    int64_t rows;
    int64_t bad_seq;
    const char *why, *head;
};

static const struct field verdict_fields[] = {
    FIELD(verdict_view, ok, F_BOOL, F_READONLY, .help = "Whether every row fits"),
    FIELD(verdict_view, rows, F_INT, F_READONLY, .help = "Rows checked"),
    FIELD(verdict_view, bad_seq, F_INT, F_READONLY,
          .help = "The first row that does not fit; 0 when all do"),
    FIELD(verdict_view, why, F_STRING, F_READONLY, .help = "What is wrong with it"),
    FIELD(verdict_view, head, F_STRING, F_READONLY,
          .help = "Hash of the last row; note it elsewhere to detect a rollback"),
    { 0 },
};

static int verify_get(struct call *call, struct err *err)
{
    struct audit_verdict verdict = { 0 };

    if (audit_verify(call->db, &verdict, err) < 0)
        return -1;
    struct verdict_view view = { verdict.bad_seq == 0, verdict.rows, verdict.bad_seq, verdict.why,
                                 verdict.head };
    return call_reply(call, &view);
}

/* ---- backups ---- */

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

const struct route audit_routes[] = {
    { .name = "audit.read",
      .method = "GET",
      .path = "/api/v1/audit",
      .on = ON_READER,
      .roles = ROLE_STEER,
      .fn = audit_get,
      .query = "since:int,limit:int",
      .summary = "Audit rows after number `since`, oldest first; without it the newest." },
    { .name = "audit.verify",
      .method = "GET",
      .path = "/api/v1/audit/verify",
      .on = ON_READER,
      .roles = ROLE_STEER,
      .fn = verify_get,
      .flags = ROUTE_NODE,
      .gives = verdict_fields,
      .summary = "Check the hash chain from the first row to the last." },
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
