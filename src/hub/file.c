/*
 * Files of projects. Names are words of a small alphabet in a table, never paths of a disk, and
 * bytes are blobs of the store by their digest: a change of both is one commit, and a name leads
 * nowhere else. The digest is looked at again when the bytes are given out.
 */
#include "hub/own.h"

#include "base/hash.h"

/* ---- names ---- */

static bool name_ok(struct str name)
{
    if (!name.n || name.n > HUB_FILE_NAME_MAX)
        return false;
    for (size_t i = 0; i < name.n; i++) {
        char c = name.p[i];

        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
              c == '-' || c == '_' || c == '/' || c == '.'))
            return false;
        if (c == '.' && i + 1 < name.n && name.p[i + 1] == '.')
            return false;
    }
    if (name.p[name.n - 1] == '/')
        return false;
    while (name.n) { /* an empty segment, or "." */
        struct str part = str_cut(&name, '/');

        if (!part.n || str_is(part, "."))
            return false;
    }
    return true;
}

/* ---- blobs ---- */

static int blob_add(const struct hub_by *by, const char *hash, struct str data, struct err *err)
{
    autoquery struct query *q = hub_query(
        by, "INSERT INTO hub_blob (tenant, hash, refs, data) VALUES ($1, $2, 1, $3)", hash);
    int rows = hub_change(
        by, err, "UPDATE hub_blob SET refs = refs + 1 WHERE tenant = $1 AND hash = $2", hash);

    if (rows != 0)
        return rows < 0 ? -1 : 0;
    query_blob(q, 3, data.p ? data.p : "", data.n);
    return query_run(q, err) < 0 ? -1 : 0;
}

static int blob_drop(const struct hub_by *by, const char *hash, struct err *err)
{
    if (hub_change(by, err, "UPDATE hub_blob SET refs = refs - 1 WHERE tenant = $1 AND hash = $2",
                   hash) < 0)
        return -1;
    return hub_change(by, err, "DELETE FROM hub_blob WHERE tenant = $1 AND hash = $2 AND refs <= 0",
                      hash);
}

/* ---- quota: every version counts ---- */

static int count_bytes(const struct hub_by *by, const char *project, int64_t bytes, struct err *err)
{
    autoquery struct query *of_project =
        db_query(by->db, "UPDATE hub_project SET bytes = bytes + $1 WHERE tenant = $2 AND id = $3"
                         " AND bytes + $1 <= $4");
    autoquery struct query *of_tenant =
        db_query(by->db, "INSERT INTO hub_state (tenant, default_mode, bytes) VALUES ($1,"
                         " 'fully_autonomous', $2) ON CONFLICT (tenant) DO UPDATE SET"
                         " bytes = hub_state.bytes + $2 WHERE hub_state.bytes + $2 <= $3");

    query_i64(of_project, 1, bytes);
    query_text(of_project, 2, by->tenant);
    query_text(of_project, 3, project);
    query_i64(of_project, 4, bytes < 0 ? INT64_MAX : HUB_PROJECT_BYTES);
    int rows = query_run(of_project, err);
    if (rows < 0)
        return -1;
    if (rows == 0)
        return err_set(err, ERR_CONFLICT, "quota exceeded: a project has %lld bytes of files",
                       (long long)HUB_PROJECT_BYTES);
    query_text(of_tenant, 1, by->tenant);
    query_i64(of_tenant, 2, bytes);
    query_i64(of_tenant, 3, bytes < 0 ? INT64_MAX : HUB_TENANT_BYTES);
    rows = query_run(of_tenant, err);
    if (rows < 0)
        return -1;
    return rows ? 0
                : err_set(err, ERR_CONFLICT, "quota exceeded: all files together have %lld bytes",
                          (long long)HUB_TENANT_BYTES);
}

/* ---- rows ---- */

#define COLUMNS "name, hash, size, version, uploader, at_ms FROM hub_file"

static void take_row(const struct hub_by *by, struct query *q, const char *project,
                     struct hub_file *out)
{
    *out = (struct hub_file){ .project = project,
                              .filename = query_col_dup(q, 0, by->arena),
                              .checksum = query_col_dup(q, 1, by->arena),
                              .size = query_col_i64(q, 2),
                              .version = query_col_i64(q, 3),
                              .uploader = query_col_dup(q, 4, by->arena),
                              .updated_at = query_col_i64(q, 5) };
}

/* version 0: the newest. 1: found. */
static int find(const struct hub_by *by, const char *project, const char *name, int64_t version,
                struct hub_file *out, struct err *err)
{
    autoquery struct query *q =
        hub_query(by,
                  "SELECT " COLUMNS " WHERE tenant = $1 AND project = $2 AND name = $3"
                  " AND ($4 = 0 OR version = $4) ORDER BY version DESC LIMIT 1",
                  project, name);

    query_i64(q, 4, version);
    int rc = query_step(q, err);
    if (rc > 0)
        take_row(by, q, project, out);
    return rc;
}

static int drop_version(const struct hub_by *by, const struct hub_file *file, struct err *err)
{
    autoquery struct query *q =
        hub_query(by,
                  "DELETE FROM hub_file WHERE tenant = $1 AND project = $2 AND name = $3"
                  " AND version = $4",
                  file->project, file->filename);

    query_i64(q, 4, file->version);
    if (query_run(q, err) < 0 || blob_drop(by, file->checksum, err) < 0)
        return -1;
    return count_bytes(by, file->project, -file->size, err);
}

static int insert(const struct hub_by *by, const struct hub_file *file, struct err *err)
{
    autoquery struct query *q =
        hub_query(by,
                  "INSERT INTO hub_file (tenant, project, name, hash, uploader, version, newest,"
                  " size, at_ms) VALUES ($1, $2, $3, $4, $5, $6, 1, $7, $8)",
                  file->project, file->filename, file->checksum, file->uploader);

    query_i64(q, 6, file->version);
    query_i64(q, 7, file->size);
    query_i64(q, 8, file->updated_at);
    if (hub_change(by, err,
                   "UPDATE hub_file SET newest = 0 WHERE tenant = $1 AND project = $2"
                   " AND name = $3",
                   file->project, file->filename) < 0)
        return -1;
    return query_run(q, err);
}

/* ---- uploading ---- */

static int check_put(const struct hub_by *by, const char *project, struct str filename,
                     const char *uploader, struct str data, struct err *err)
{
    if (hub_project_exists(by, project, err) < 0)
        return err->code == ERR_NOT_FOUND ? err_set(err, ERR_INVALID, "Project not found") : -1;
    if (!name_ok(filename))
        return err_set(err, ERR_INVALID, "Invalid filename");
    if (data.n > HUB_FILE_MAX)
        return err_set(err, ERR_INVALID, "File too large (max %d bytes)", HUB_FILE_MAX);
    if (hub_name_check(uploader, "uploader", err) < 0 ||
        hub_self(by, uploader, "uploader", err) < 0)
        return -1;
    if (by->hub->filter == HUB_FILTER_ALL && away_hit(by->hub->urls, data))
        return err_set(err, ERR_INVALID, "Sandbox: file blocked (external URL detected)");
    return hub_active(by, uploader, err);
}

/* Room for one more name, and for one more version of it. */
static int make_room(const struct hub_by *by, const struct hub_file *file, struct err *err)
{
    struct hub_file old;
    int64_t names;
    autoquery struct query *q =
        hub_query(by,
                  "SELECT count(*) FROM hub_file WHERE tenant = $1 AND project = $2"
                  " AND newest = 1",
                  file->project);

    if (file->version > HUB_VERSIONS_MAX) {
        int rc =
            find(by, file->project, file->filename, file->version - HUB_VERSIONS_MAX, &old, err);

        return rc <= 0 ? rc : drop_version(by, &old, err);
    }
    if (file->version > 1)
        return 0;
    if (hub_number(q, 0, &names, err) < 0)
        return -1;
    return names < HUB_FILES_MAX ? 0
                                 : err_set(err, ERR_CONFLICT,
                                           "quota exceeded: a project has %d files", HUB_FILES_MAX);
}

int hub_file_put(const struct hub_by *by, const char *project, struct str filename,
                 const char *uploader, struct str data, struct hub_file *out, struct err *err)
{
    autobuf struct buf body = { 0 };
    struct json_out json = json_to(&body);
    unsigned char digest[SHA256_SIZE];
    struct hub_file newest = { 0 };
    char *hash = arena_alloc(by->arena, SHA256_HEX_SIZE);

    if (check_put(by, project, filename, uploader, data, err) < 0)
        return -1;
    sha256(data.p, data.n, digest);
    hex_text(digest, sizeof(digest), hash);
    *out = (struct hub_file){ .project = project,
                              .filename = arena_memdup0(by->arena, filename.p, filename.n),
                              .checksum = hash,
                              .uploader = uploader,
                              .size = (int64_t)data.n,
                              .updated_at = by->now_ms };
    if (find(by, project, out->filename, 0, &newest, err) < 0)
        return -1;
    out->version = newest.version + 1;
    if (make_room(by, out, err) < 0 || count_bytes(by, project, out->size, err) < 0 ||
        blob_add(by, hash, data, err) < 0 || insert(by, out, err) < 0)
        return -1;
    json_open(&json, '{');
    json_kv_text(&json, "project", project);
    json_kv_text(&json, "filename", out->filename);
    json_kv_text(&json, "uploader", uploader);
    json_kv_int(&json, "size", out->size);
    json_kv_int(&json, "version", out->version);
    json_close(&json, '}');
    return hub_tell_json(by, "file_uploaded", hub_project_object(by, project, "file"), &body, err);
}

/* ---- giving out ---- */

static int read_blob(const struct hub_by *by, const struct hub_file *file, struct str *out,
                     struct err *err)
{
    unsigned char digest[SHA256_SIZE];
    char hash[SHA256_HEX_SIZE];
    autoquery struct query *q =
        hub_query(by, "SELECT data FROM hub_blob WHERE tenant = $1 AND hash = $2", file->checksum);
    int rc = query_step(q, err);

    if (rc < 0)
        return -1;
    *out = rc ? arena_str(by->arena, query_col_str(q, 0)) : STR_NONE;
    sha256(out->p, out->n, digest);
    hex_text(digest, sizeof(digest), hash);
    if (!rc || strcmp(hash, file->checksum) != 0)
        return err_set(err, ERR_NOT_FOUND, "Checksum mismatch");
    return 0;
}

int hub_file_get(const struct hub_by *by, const char *project, const char *filename,
                 int64_t version, struct hub_file *out, struct str *data, struct err *err)
{
    if (hub_project_exists(by, project, err) < 0)
        return err->code == ERR_NOT_FOUND ? err_set(err, ERR_NOT_FOUND, "Project not found") : -1;
    int rc = find(by, project, filename, version, out, err);
    if (rc < 0)
        return -1;
    if (rc == 0)
        return err_set(err, ERR_NOT_FOUND, "File not found");
    return data ? read_blob(by, out, data, err) : 0;
}

static struct query *files_query(const struct hub_by *by, const char *project, const char *filename)
{
    if (filename)
        return hub_query(by,
                         "SELECT " COLUMNS " WHERE tenant = $1 AND project = $2 AND name = $3"
                         " ORDER BY version DESC",
                         project, filename);
    return hub_query(by,
                     "SELECT " COLUMNS " WHERE tenant = $1 AND project = $2 AND newest = 1"
                     " ORDER BY name",
                     project);
}

int hub_files(const struct hub_by *by, const char *project, const char *filename, hub_item_fn *fn,
              void *ctx, struct err *err)
{
    autoquery struct query *q = files_query(by, project, filename);
    int rc;

    while ((rc = query_step(q, err)) > 0) {
        struct hub_file file;

        take_row(by, q, project, &file);
        fn(ctx, &file);
    }
    return rc;
}

/* ---- deleting ---- */

static int drop_all(const struct hub_by *by, const char *project, const char *filename,
                    struct err *err)
{
    struct hub_file file;
    int rc;

    while ((rc = find(by, project, filename, 0, &file, err)) > 0)
        if (drop_version(by, &file, err) < 0)
            return -1;
    return rc;
}

int hub_file_delete(const struct hub_by *by, const char *project, const char *filename,
                    struct err *err)
{
    struct hub_file file;

    if (hub_file_get(by, project, filename, 0, &file, NULL, err) < 0)
        return -1;
    if (by->agent && strcmp(by->agent, file.uploader) != 0)
        return err_set(err, ERR_FORBIDDEN, "%s did not upload this file", by->agent);
    if ((by->agent && hub_active(by, by->agent, err) < 0) ||
        drop_all(by, project, filename, err) < 0)
        return -1;
    return hub_tell(by, "file_deleted", hub_project_object(by, project, "file"), err, "project",
                    project, "filename", filename, "by", by->agent ? by->agent : HUB_HUMAN, NULL);
}

int hub_files_drop(const struct hub_by *by, const char *project, struct err *err)
{
    const char **names;
    autoquery struct query *q = hub_query(
        by, "SELECT name FROM hub_file WHERE tenant = $1 AND project = $2 AND newest = 1", project);

    if (hub_column(by, q, &names, err) < 0)
        return -1;
    for (; *names; names++)
        if (drop_all(by, project, *names, err) < 0)
            return -1;
    return 0;
}
