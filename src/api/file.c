/*
 * Files in a sandbox. Every operation is a job of the sandbox's own init (box/job.h), which does it
 * as the workload's user; what comes back is read here as hostile bytes. Paths are bytes in the
 * query, percent-encoded, so every name can be said; relative ones begin at /workspace. What
 * changes something is audited when it is over, also when it failed half-way.
 *
 * Here: the operations whose answer is small. Contents go by file_up.c and file_down.c.
 */
#include "api/file.h"

#include <stdio.h>
#include <sys/stat.h>

#include "base/hash.h"

/* ---- an operation ---- */

struct fileop *fileop_new(struct call *call, const char *path_query, struct err *err)
{
    const char *path = call_query(call, path_query);
    struct box *box;

    if (call_box(call, &box, err) < 0)
        return NULL;
    if (!path || !path[0] || strlen(path) > TREE_PATH_MAX) {
        err_field(err, path_query, "a path of 1 to %d bytes is needed", TREE_PATH_MAX);
        return NULL;
    }
    return fileop_at(call, box, path, err);
}

struct fileop *fileop_at(struct call *call, struct box *box, const char *path, struct err *err)
{
    const char *user = call_query(call, "user");

    if (user && strcmp(user, "agent") != 0 && strcmp(user, "root") != 0) {
        err_field(err, "user", "agent or root");
        return NULL;
    }
    struct fileop *op = xnew(struct fileop);
    struct sandbox_view view;
    box_view(box, &view);
    snprintf(op->id, sizeof(op->id), "%s", view.id);
    op->call = call;
    op->box = box;
    op->path = path;
    return op;
}

void fileop_free(struct fileop *op)
{
    box_job_drop(&op->job);
    list_remove(&op->node);
    buf_free(&op->out);
    buf_free(&op->rest);
    free(op);
}

/* A body that is worth a stream of its own, for an operation that takes one. */
static bool takes_much(const struct http_req *req, const char *name)
{
    return (req->body_size < 0 || req->body_size >= SIDE_LEAST) &&
           (strcmp(name, "write") == 0 || strcmp(name, "append") == 0);
}

int fileop_start(struct fileop *op, const char *const *args, bool input, struct err *err)
{
    struct box_job_spec spec = { .user = call_query(op->call, "user"),
                                 .args = args,
                                 .input = input,
                                 .side = strcmp(args[0], "read") == 0 &&
                                         str_is(op->call->req->method, "GET"),
                                 .side_in = takes_much(op->call->req, args[0]) };

    if (box_job_start(op->box, &op->job, &spec, err) == 0)
        return 0;
    fileop_free(op);
    return -1;
}

/* ---- the record of a change ---- */

static int record(struct box_op *box_op, struct db *db, struct err *err)
{
    return call_record(container_of(box_op, struct fileop, op)->call, db, err);
}

static void recorded(struct box_op *box_op, const struct err *err)
{
    struct fileop *op = container_of(box_op, struct fileop, op);
    struct call *call = op->call;
    struct err saved = op->err;

    fileop_free(op);
    call_finish(call, err ? err : saved.code ? &saved : NULL);
}

void fileop_record(struct fileop *op, const struct err *err)
{
    autobuf struct buf text = { 0 };
    struct json_out json = json_to(&text);
    struct call *call = op->call;
    const char *to = call_query(call, "to");
    struct box *box;

    if (err)
        op->err = *err;
    /* A body may go on for long after its operation has failed, because the sandbox was deleted. */
    if (boxes_find(call->api->boxes, call_reach(call), op->id, &box, &(struct err){ 0 }) < 0) {
        recorded(&op->op, NULL);
        return;
    }
    json_open(&json, '{');
    json_kv_text(&json, "path", op->path);
    if (to)
        json_kv_text(&json, "to", to);
    if (op->bytes)
        json_kv_int(&json, "bytes", (int64_t)op->bytes);
    if (err)
        json_kv_text(&json, "error", err->msg);
    json_close(&json, '}');
    call->object = arena_printf(&call->arena, "sandbox/%s", op->id);
    call->detail = arena_memdup0(&call->arena, text.data, text.len);
    call->outcome = err ? "failed" : NULL;
    op->op = (struct box_op){
        .tenant = call->who.tenant, .by = call->who.id, .record = record, .done = recorded
    };
    box_note(box, &op->op);
}

/* ---- one file as JSON ---- */

static const char *type_of(uint32_t mode)
{
    switch (mode & S_IFMT) {
    case S_IFREG:
        return "file";
    case S_IFDIR:
        return "directory";
    case S_IFLNK:
        return "symlink";
    case S_IFIFO:
        return "fifo";
    case S_IFSOCK:
        return "socket";
    case S_IFCHR:
        return "character_device";
    default:
        return "block_device";
    }
}

static const char *base64_of(struct arena *arena, struct str bytes)
{
    autobuf struct buf text = { 0 };

    if (str_utf8(bytes))
        return NULL;
    base64_put(&text, bytes.p, bytes.n);
    return arena_memdup0(arena, text.data, text.len);
}

void file_put(struct json_out *json, const struct tree_entry *entry, const char *name)
{
    autoarena struct arena arena = { 0 };
    const struct tree_record *head = &entry->head;
    struct str bytes = name ? str_of(name) : (struct str){ entry->name, head->name_len };
    struct str link = { entry->link, head->link_len };
    char mode[8], sha256[SHA256_HEX_SIZE];
    struct file_view view = { .name = arena_memdup0(&arena, bytes.p, bytes.n),
                              .name_base64 = base64_of(&arena, bytes),
                              .type = type_of(head->mode),
                              .mode = mode,
                              .uid = head->uid,
                              .gid = head->gid,
                              .size = (int64_t)head->size };

    snprintf(mode, sizeof(mode), "%04o", head->mode & 07777);
    /* Times that no calendar of ours shows are not shown. */
    if (head->mtime > 0 && head->mtime < 253402300800ll)
        view.mtime = head->mtime * 1000 + head->mtime_ns / 1000000;
    if (link.n) {
        view.link = arena_memdup0(&arena, link.p, link.n);
        view.link_base64 = base64_of(&arena, link);
    }
    if (head->flags & TREE_HASHED) {
        hex_text(head->sha256, sizeof(head->sha256), sha256);
        view.sha256 = sha256;
    }
    field_encode(file_fields, &view, json);
}

/* ---- small answers ---- */

static void collect(struct box_job *job, struct str data)
{
    buf_str(&container_of(job, struct fileop, job)->out, data);
}

static int nonsense(struct err *err)
{
    return err_set(err, ERR_UNAVAILABLE, "the sandbox answered with nonsense");
}

static int put_stat(struct fileop *op, struct err *err)
{
    struct json_out json = call_json(op->call);
    struct tree_entry entry;
    ssize_t took = tree_record_take(op->out.data, op->out.len, &entry);

    if (took <= 0 || (size_t)took != op->out.len)
        return nonsense(err);
    file_put(&json, &entry, op->path);
    return 0;
}

static int put_list(struct fileop *op, int64_t limit, struct err *err)
{
    struct json_out json = call_json(op->call);
    struct str rest = buf_view(&op->out);
    int64_t count = 0;

    if (!buf_ok(&op->out))
        return err_set(err, ERR_LIMIT, "the list is too long; ask for fewer with limit");
    json_open(&json, '{');
    json_key(&json, "items");
    json_open(&json, '[');
    while (rest.n) {
        struct tree_entry entry;
        ssize_t took = tree_record_take(rest.p, rest.n, &entry);

        if (took <= 0 || memchr(entry.name, '/', entry.head.name_len))
            return nonsense(err);
        rest = str_from(rest, (size_t)took);
        if (count++ < limit)
            file_put(&json, &entry, NULL);
    }
    json_close(&json, ']');
    json_kv_bool(&json, "more", count > limit);
    json_close(&json, '}');
    return 0;
}

static void small_done(struct box_job *job, const struct err *err)
{
    struct fileop *op = container_of(job, struct fileop, job);
    struct call *call = op->call;
    struct err own = { 0 };

    if (op->changes) {
        struct json_out json = call_json(call);

        json_open(&json, '{');
        json_kv_text(&json, "path", op->path);
        json_close(&json, '}');
        fileop_record(op, err);
        return;
    }
    if (!err &&
        (strcmp(call->route->name, "file.stat") == 0 ? put_stat(op, &own)
                                                     : put_list(op, (int64_t)op->bytes, &own)) < 0)
        err = &own;
    struct err copy = err ? *err : (struct err){ 0 };
    fileop_free(op);
    call_finish(call, copy.code ? &copy : NULL);
}

static struct fileop *small_new(struct call *call, const char *path_query, bool changes,
                                struct err *err)
{
    struct fileop *op = fileop_new(call, path_query, err);

    if (!op)
        return NULL;
    op->changes = changes;
    op->job.data = collect;
    op->job.done = small_done;
    return op;
}

static const char *switch_of(struct call *call, const char *name, int64_t otherwise,
                             struct err *err)
{
    int64_t value;

    if (call_query_int(call, name, 0, 1, otherwise, &value, err) < 0)
        return NULL;
    return value ? "1" : "0";
}

static int file_stat(struct call *call, struct err *err)
{
    const char *follow = switch_of(call, "follow", 0, err);
    struct fileop *op = follow ? small_new(call, "path", false, err) : NULL;

    if (!op)
        return -1;
    return fileop_start(op, (const char *[]){ "stat", op->path, follow, NULL }, false, err);
}

static int file_list(struct call *call, struct err *err)
{
    const char *after = call_query(call, "after");
    int64_t limit;

    if (call_query_int(call, "limit", 1, FILE_LIST_MAX, PAGE_MAX, &limit, err) < 0)
        return -1;
    struct fileop *op = small_new(call, "path", false, err);
    if (!op)
        return -1;
    op->bytes = (uint64_t)limit;
    char *count = arena_printf(&call->arena, "%lld", (long long)limit + 1);
    return fileop_start(op, (const char *[]){ "list", op->path, after ? after : "", count, NULL },
                        false, err);
}

static int file_mkdir(struct call *call, struct err *err)
{
    const char *parents = switch_of(call, "parents", 0, err), *mode = call_query(call, "mode");
    struct fileop *op = parents ? small_new(call, "path", true, err) : NULL;

    if (!op)
        return -1;
    return fileop_start(
        op, (const char *[]){ "mkdir", op->path, mode ? mode : "755", parents, NULL }, false, err);
}

static int file_move(struct call *call, struct err *err)
{
    const char *replace = switch_of(call, "replace", 0, err), *to = call_query(call, "to");

    if (!replace)
        return -1;
    if (!to || !to[0] || strlen(to) > TREE_PATH_MAX)
        return err_field(err, "to", "a path of 1 to %d bytes is needed", TREE_PATH_MAX);
    struct fileop *op = small_new(call, "path", true, err);
    if (!op)
        return -1;
    return fileop_start(op, (const char *[]){ "move", op->path, to, replace, NULL }, false, err);
}

static int file_remove(struct call *call, struct err *err)
{
    const char *recursive = switch_of(call, "recursive", 0, err);
    struct fileop *op = recursive ? small_new(call, "path", true, err) : NULL;

    if (!op)
        return -1;
    return fileop_start(op, (const char *[]){ "remove", op->path, recursive, NULL }, false, err);
}

#define FILES "/api/v1/sandboxes/{id}/files"

const struct route file_routes[] = {
    { .name = "file.read",
      .method = "GET",
      .path = FILES,
      .on = ON_STREAM,
      .roles = ROLE_LOOK,
      .fn = file_read,
      .query = "path:string,user:string",
      .flags = ROUTE_AWAKE,
      .summary = "The bytes of a regular file; Range is honoured. In all of these, `path` is "
                 "percent-encoded bytes, relative to /workspace unless absolute, and `user` "
                 "(agent or root) whose rights count." },
    { .name = "file.write",
      .method = "PUT",
      .path = FILES,
      .on = ON_STREAM,
      .roles = ROLE_USE,
      .fn = file_write,
      .gives = file_fields,
      .query = "path:string,user:string,mode:string,sync:int",
      .flags = ROUTE_BODY | ROUTE_AWAKE,
      .summary = "The body, of any type and size, becomes the file at once when all of it has "
                 "arrived; `mode` is octal (as before, or 644), `sync`=1 waits for the disk." },
    { .name = "file.remove",
      .method = "DELETE",
      .path = FILES,
      .on = ON_LATER,
      .roles = ROLE_USE,
      .fn = file_remove,
      .flags = ROUTE_AWAKE,
      .query = "path:string,user:string,recursive:int",
      .summary = "Remove a file or an empty directory, or with `recursive`=1 a whole tree." },
    { .name = "file.append",
      .method = "POST",
      .path = FILES "/append",
      .on = ON_STREAM,
      .roles = ROLE_USE,
      .fn = file_append,
      .gives = file_fields,
      .query = "path:string,user:string,sync:int",
      .flags = ROUTE_BODY | ROUTE_AWAKE,
      .summary = "The body behind what the file holds; it is made if it is not there." },
    { .name = "file.list",
      .method = "GET",
      .path = FILES "/list",
      .on = ON_LATER,
      .roles = ROLE_LOOK,
      .fn = file_list,
      .items = file_fields,
      .flags = ROUTE_AWAKE,
      .query = "path:string,user:string,after:string,limit:int",
      .summary = "What is in a directory, sorted by name: `items` behind the name `after`, at "
                 "most `limit`, and whether there are `more`." },
    { .name = "file.stat",
      .method = "GET",
      .path = FILES "/stat",
      .on = ON_LATER,
      .roles = ROLE_LOOK,
      .fn = file_stat,
      .flags = ROUTE_AWAKE,
      .gives = file_fields,
      .query = "path:string,user:string,follow:int",
      .summary = "About one file; of a symlink itself unless `follow`=1." },
    { .name = "file.mkdir",
      .method = "POST",
      .path = FILES "/mkdir",
      .on = ON_LATER,
      .roles = ROLE_USE,
      .fn = file_mkdir,
      .flags = ROUTE_AWAKE,
      .query = "path:string,user:string,mode:string,parents:int",
      .summary = "Make a directory (`mode` octal, 755); with `parents`=1 those above it too, and "
                 "one that is there already will do." },
    { .name = "file.move",
      .method = "POST",
      .path = FILES "/move",
      .on = ON_LATER,
      .roles = ROLE_USE,
      .fn = file_move,
      .flags = ROUTE_AWAKE,
      .query = "path:string,to:string,user:string,replace:int",
      .summary = "Another name for `path`; one that is taken only with `replace`=1." },
    { .name = "tree.read",
      .method = "GET",
      .path = FILES "/tree",
      .on = ON_STREAM,
      .roles = ROLE_LOOK,
      .fn = tree_get,
      .query = "path:string,user:string",
      .flags = ROUTE_AWAKE,
      .summary = "Everything below a directory as a tar archive, sorted: directories, files, "
                 "symlinks. Cut off if it cannot be completed." },
    { .name = "tree.write",
      .method = "PUT",
      .path = FILES "/tree",
      .on = ON_STREAM,
      .roles = ROLE_USE,
      .fn = tree_put,
      .gives = file_change_fields,
      .query = "path:string,user:string",
      .flags = ROUTE_BODY | ROUTE_AWAKE,
      .summary = "The body, a tar archive (ustar, pax, GNU long names; not compressed), unpacked "
                 "into a directory that is there. Names that lead out of it, devices and sparse "
                 "files are refused; what came before stays." },
    { .name = "tree.manifest",
      .method = "GET",
      .path = FILES "/manifest",
      .on = ON_STREAM,
      .roles = ROLE_LOOK,
      .fn = manifest_get,
      .query = "path:string,user:string",
      .flags = ROUTE_AWAKE,
      .summary = "Everything below a directory, sorted, one JSON object a line, with the digests "
                 "of regular files. Cut off if it cannot be completed." },
    { .name = "sandbox.changes",
      .method = "GET",
      .path = "/api/v1/sandboxes/{id}/changes",
      .on = ON_STREAM,
      .roles = ROLE_LOOK,
      .fn = changes_get,
      .query = "user:string",
      .flags = ROUTE_AWAKE,
      .summary =
          "What was changed in its view of a directory (`binds` with `view`), one JSON object "
          "a line: {\"side\": \"before\" or \"after\", \"file\": …}, the file as in a manifest. A "
          "changed file has both, a new one only after, a removed one only before; a touched one "
          "has two that are alike. Cut off if it cannot be completed." },
    { .name = "file.watch",
      .method = "GET",
      .path = FILES "/watch",
      .on = ON_STREAM,
      .roles = ROLE_LOOK,
      .fn = watch_get,
      .query = "path:string,user:string,recursive:int",
      .flags = ROUTE_AWAKE,
      .summary = "Changes below a directory as events: `ready`, then `change` with what, path and "
                 "directory; `lost` when some were missed. Best effort with `recursive`=1." },
    { 0 },
};
