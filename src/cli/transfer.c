/*
 * A manifest comes as JSON, an object a line. Each line becomes one of the tree room's records, so
 * that there is one place that says which names are good: where records are taken.
 */
#include "cli/transfer.h"

#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/limits.h"
#include "base/mem.h"

#define LINE_MAX_ (8 * (size_t)TREE_PATH_MAX) /* names in base64 and with every byte escaped */
#define STALL_MS 120000                       /* a sandbox that sends nothing for this long */

/* ---- one line ---- */

static uint32_t kind_of(struct str type)
{
    static const struct {
        const char *name;
        uint32_t kind;
    } kinds[] = { { "file", S_IFREG },        { "directory", S_IFDIR },
                  { "symlink", S_IFLNK },     { "fifo", S_IFIFO },
                  { "socket", S_IFSOCK },     { "character_device", S_IFCHR },
                  { "block_device", S_IFBLK } };

    for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
        if (str_is(type, kinds[i].name))
            return kinds[i].kind;
    return 0;
}

static bool octal(struct str text, uint32_t *out)
{
    uint32_t value = 0;

    for (size_t i = 0; i < text.n; i++) {
        if (text.p[i] < '0' || text.p[i] > '7' || value > 07777 / 8)
            return false;
        value = value * 8 + (uint32_t)(text.p[i] - '0');
    }
    *out = value;
    return text.n > 0;
}

/* A name that is no UTF-8 has its bytes in a member of their own. */
static bool bytes_of(const struct json *line, const char *plain, const char *encoded,
                     struct buf *out)
{
    struct str base64 = json_text(line, encoded);

    if (base64.p)
        return base64_get(out, base64) && !str_has_nul(buf_view(out));
    buf_str(out, json_text(line, plain));
    return !str_has_nul(buf_view(out));
}

static int take_file(struct buf *out, const struct json *line, struct err *err)
{
    autobuf struct buf name = { 0 }, link = { 0 };
    autofree char *record = xmalloc(TREE_RECORD_MAX);
    struct stat st = { 0 };
    uint8_t sha256[32];

    struct str digest = json_text(line, "sha256");
    uint32_t kind = kind_of(json_text(line, "type")), mode;
    int64_t size = json_num(line, "size", -1);
    if (!kind || !octal(json_text(line, "mode"), &mode) || size < 0 ||
        !bytes_of(line, "name", "name_base64", &name) ||
        !bytes_of(line, "link", "link_base64", &link) || name.len > TREE_PATH_MAX ||
        link.len > TREE_PATH_MAX || (digest.p && !hex_bytes(digest, sha256, sizeof(sha256))))
        return err_set(err, ERR_INTERNAL, "the list of files is not to be understood");
    st.st_mode = kind | mode;
    st.st_size = size;
    size_t len = tree_record_put(record, &st, buf_cstr(&name), link.len ? buf_cstr(&link) : NULL,
                                 digest.p ? sha256 : NULL);
    buf_append(out, record, len);
    return buf_ok(out) ? 0 : err_set(err, ERR_LIMIT, "too many files");
}

int transfer_line(struct buf *out, struct str text, struct err *err)
{
    autoarena struct arena arena = { 0 };
    struct json *line;

    if (json_parse(&arena, text, &line, err) < 0)
        return err_wrap(err, "the list of files");
    return take_file(out, line, err);
}

/* ---- requests ---- */

static int begin(struct cli *cli, const char *path, struct client **client, struct err *err)
{
    struct client_options options = { .ca_file = cli->at.ca };
    struct client_request request = { .method = "GET", .path = path, .token = cli->at.token };
    struct client_reply reply = { 0 };

    if (endpoint_find(cli, err) < 0 || cli_deadline(cli, &options.deadline_ms, err) < 0 ||
        client_start(client, &cli->at.target, &request, &options, &reply, err) < 0)
        return -1;
    return reply.status == 200 ? 0 : cli_refused_on(cli, *client, &reply, err);
}

static ssize_t more(struct client *client, void *out, size_t len, struct err *err)
{
    client_deadline(client, clock_mono_ms() + STALL_MS);
    return client_read(client, out, len, err);
}

/* The lines of an answer, one by one; nothing is left in the end. */
static int each_line(struct cli *cli, const char *target,
                     int (*take)(void *ctx, struct str line, struct err *err), void *ctx,
                     struct err *err)
{
    autobuf struct buf text = { 0 };
    autoclient struct client *client = NULL;
    autofree char *chunk = xmalloc(65536);
    ssize_t got;

    if (begin(cli, target, &client, err) < 0)
        return -1;
    while ((got = more(client, chunk, 65536, err)) > 0) {
        buf_append(&text, chunk, (size_t)got);
        struct str rest = buf_view(&text);
        while (rest.n && memchr(rest.p, '\n', rest.n))
            if (take(ctx, str_cut(&rest, '\n'), err) < 0)
                return -1;
        if (rest.n > LINE_MAX_)
            return err_set(err, ERR_LIMIT, "a line of the list of files is too long");
        buf_consume(&text, text.len - rest.n);
    }
    if (got < 0 || text.len)
        return got < 0 ? -1 : err_set(err, ERR_INTERNAL, "the list of files ends in a line");
    return 0;
}

static int take_entry(void *ctx, struct str line, struct err *err)
{
    return transfer_line(ctx, line, err);
}

int transfer_manifest(struct cli *cli, const char *id, const char *path, struct manifest *out,
                      struct err *err)
{
    autofree char *target =
        xprintf("/api/v1/sandboxes/%s/files/manifest?path=%s", id, cli_escape(cli, path));
    autobuf struct buf records = { .max = (size_t)FILE_MANIFEST_MAX };

    if (each_line(cli, target, take_entry, &records, err) < 0)
        return -1;
    return manifest_read(out, &records, err);
}

struct two_sides {
    struct buf before, after;
};

static int take_side(void *ctx, struct str text, struct err *err)
{
    struct two_sides *to = ctx;
    autoarena struct arena arena = { 0 };
    struct json *line;

    if (json_parse(&arena, text, &line, err) < 0)
        return err_wrap(err, "the list of changes");
    struct str side = json_text(line, "side");
    if (!str_is(side, "before") && !str_is(side, "after"))
        return err_set(err, ERR_INTERNAL, "the list of changes is not to be understood");
    return take_file(str_is(side, "before") ? &to->before : &to->after, json_get(line, "file"),
                     err);
}

int transfer_changes(struct cli *cli, const char *id, struct manifest *before,
                     struct manifest *after, struct err *err)
{
    autofree char *target = xprintf("/api/v1/sandboxes/%s/changes", id);
    struct two_sides to = { { .max = (size_t)FILE_MANIFEST_MAX },
                            { .max = (size_t)FILE_MANIFEST_MAX } };
    int rc = each_line(cli, target, take_side, &to, err);

    if (rc == 0)
        rc = manifest_read(before, &to.before, err);
    if (rc == 0 && (rc = manifest_read(after, &to.after, err)) < 0)
        manifest_free(before);
    buf_free(&to.before);
    buf_free(&to.after);
    return rc;
}

int transfer_file(struct cli *cli, const char *id, const char *path, uint64_t max, int fd,
                  struct err *err)
{
    autofree char *target =
        xprintf("/api/v1/sandboxes/%s/files?path=%s", id, cli_escape(cli, path));
    autoclient struct client *client = NULL;
    autofree char *chunk = xmalloc(65536);
    uint64_t total = 0;
    ssize_t got;

    if (begin(cli, target, &client, err) < 0)
        return -1;
    while ((got = more(client, chunk, 65536, err)) > 0) {
        total += (uint64_t)got;
        if (cli->moved)
            cli->moved(cli, (size_t)got);
        if (total > max)
            return err_set(err, ERR_CONFLICT, "it grew while it was fetched");
        for (size_t at = 0; at < (size_t)got;) {
            ssize_t done = write(fd, chunk + at, (size_t)got - at);

            if (done < 0)
                return err_sys(err, "keep what comes back");
            at += (size_t)done;
        }
    }
    return got < 0 ? -1 : 0;
}

/* ---- a tree, up ---- */

int transfer_failed(const struct tree_fail *fail, struct err *err)
{
    const char *why = tree_why_text(fail->why);

    errno = fail->error;
    if (why[0])
        err_set(err, ERR_INVALID, "%s", why);
    else
        err_sys(err, "read");
    return fail->path[0] ? err_wrap(err, "%s", fail->path) : -1;
}

struct sending {
    struct cli *cli;
    struct client *client;
    struct err err; /* why a piece could not be sent */
};

static int send_piece(void *ctx, const void *data, size_t len)
{
    struct sending *sending = ctx;

    if (sending->cli->moved)
        sending->cli->moved(sending->cli, len);
    client_deadline(sending->client, clock_mono_ms() + STALL_MS);
    return client_write(sending->client, data, len, &sending->err);
}

/* Its answer, also when it gave it before it had everything. */
static int tree_answer(struct cli *cli, struct client *client, struct err *err)
{
    struct client_reply reply = { 0 };

    client_deadline(client, clock_mono_ms() + STALL_MS);
    if (client_finish(client, &reply, err) < 0)
        return -1;
    return reply.status < 300 ? 0 : cli_refused_on(cli, client, &reply, err);
}

/* A body of unknown length, by PUT. */
static int open_put(struct cli *cli, const char *target, const char *type, struct client **client,
                    struct err *err)
{
    struct client_options options = { .ca_file = cli->at.ca };
    struct client_request request = {
        .method = "PUT", .path = target, .token = cli->at.token, .stream = type
    };

    if (endpoint_find(cli, err) < 0 || cli_deadline(cli, &options.deadline_ms, err) < 0)
        return -1;
    request.token = cli->at.token;
    options.ca_file = cli->at.ca;
    return client_open(client, &cli->at.target, &request, &options, err);
}

int transfer_tree(struct cli *cli, const char *id, const char *path, int root,
                  const struct tree_filter *filter, struct err *err)
{
    autofree char *target =
        xprintf("/api/v1/sandboxes/%s/files/tree?path=%s", id, cli_escape(cli, path));
    autoclient struct client *client = NULL;
    struct sending sending = { .cli = cli };
    struct tree_sink sink = { send_piece, &sending };
    autofree struct tree_fail *fail = xnew(struct tree_fail);

    if (open_put(cli, target, "application/x-tar", &client, err) < 0)
        return -1;
    sending.client = client;
    int rc = tree_tar(root, filter, &sink, fail);
    if (rc == 0 || sending.err.code == ERR_UNAVAILABLE)
        return tree_answer(cli, client, err);
    if (sending.err.code == ERR_NONE)
        return transfer_failed(fail, err);
    *err = sending.err;
    return -1;
}

int transfer_file_up(struct cli *cli, const char *id, const char *path, int fd, unsigned mode,
                     struct err *err)
{
    autofree char *target = xprintf("/api/v1/sandboxes/%s/files?path=%s&mode=%o", id,
                                    cli_escape(cli, path), mode & 0777);
    autoclient struct client *client = NULL;
    autofree char *chunk = xmalloc(65536);
    struct sending sending = { .cli = cli };
    ssize_t got;

    if (open_put(cli, target, "application/octet-stream", &client, err) < 0)
        return -1;
    sending.client = client;
    while ((got = read(fd, chunk, 65536)) > 0)
        if (send_piece(&sending, chunk, (size_t)got) < 0)
            break;
    if (got < 0)
        return err_sys(err, "read");
    if (sending.err.code != ERR_NONE && sending.err.code != ERR_UNAVAILABLE) {
        *err = sending.err;
        return -1;
    }
    return tree_answer(cli, client, err);
}

/* ---- and down ---- */

struct receiving {
    struct cli *cli;
    struct client *client;
    struct err err;
};

static ssize_t receive_piece(void *ctx, void *out, size_t len)
{
    struct receiving *receiving = ctx;

    errno = EIO;
    ssize_t got = more(receiving->client, out, len, &receiving->err);
    if (got > 0 && receiving->cli->moved)
        receiving->cli->moved(receiving->cli, (size_t)got);
    return got;
}

int transfer_tree_back(struct cli *cli, const char *id, const char *path, int root, struct err *err)
{
    autofree char *target =
        xprintf("/api/v1/sandboxes/%s/files/tree?path=%s", id, cli_escape(cli, path));
    autoclient struct client *client = NULL;
    autofree struct tree_fail *fail = xnew(struct tree_fail);
    struct receiving receiving = { .cli = cli };
    struct tree_source source = { receive_piece, &receiving };
    struct untar_sum sum;

    if (begin(cli, target, &client, err) < 0)
        return -1;
    receiving.client = client;
    if (tree_untar(root, &source, NULL, &sum, fail) == 0)
        return 0;
    if (receiving.err.code == ERR_NONE)
        return transfer_failed(fail, err);
    *err = receiving.err;
    return -1;
}
