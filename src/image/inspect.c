/*
 * What an upload is. It is written down as it comes, then read once: a tree of files is a layer
 * already and its digest and sizes are known after that one reading; an archive of images has
 * manifest.json or index.json at its top, and is taken apart into files first (parts.c). Whatever
 * it was, afterwards the directory holds one file per layer, and each has been read to its end
 * once, with its digests compared and its entries counted.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "image/own.h"

#define UPLOAD "upload"

void image_info_free(struct image_info *info)
{
    arena_free(&info->arena);
    *info = (struct image_info){ 0 };
}

static int receive(const struct image_limits *limits, int fd, int dir, struct err *err)
{
    enum { SIZE = 131072 };
    autofree char *block = xmalloc(SIZE);
    autoclose int out =
        openat(dir, UPLOAD, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    uint64_t total = 0;

    if (out < 0)
        return err_sys(err, "make a file for the upload");
    for (;;) {
        ssize_t got = read(fd, block, SIZE);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return err_sys(err, "read the upload");
        if (got == 0)
            return 0;
        total += (uint64_t)got;
        if (total > limits->upload)
            return err_set(err, ERR_LIMIT, "the upload has more than %llu bytes",
                           (unsigned long long)limits->upload);
        for (ssize_t done = 0; done < got;) {
            ssize_t put = write(out, block + done, (size_t)(got - done));

            if (put < 0 && errno != EINTR)
                return err_sys(err, "keep the upload");
            done += put > 0 ? put : 0;
        }
    }
}

/* ---- reading a layer through ---- */

struct scan {
    struct image_layer layer;
    bool manifest, index, layout; /* manifest.json, index.json, oci-layout at the top */
};

static void notice(struct scan *scan, const char *text)
{
    while (*text == '/' || (text[0] == '.' && text[1] == '/'))
        text++;
    scan->manifest |= strcmp(text, "manifest.json") == 0;
    scan->index |= strcmp(text, "index.json") == 0;
    scan->layout |= strcmp(text, "oci-layout") == 0;
}

static int scan_file(const struct image_limits *limits, int dir, const char *file,
                     struct scan *scan, struct err *err)
{
    autoclose int fd = openat(dir, file, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    autostream struct image_stream stream = { .fd = -1 };
    struct archive_entry *entry;
    struct stat st;
    int rc;

    *scan = (struct scan){ 0 };
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_sys(err, "open %s", file);
    if (stream_open(&stream, limits, fd, err) < 0)
        return -1;
    while ((rc = stream_next(&stream, &entry, err)) > 0) {
        const char *text = archive_entry_pathname(entry);
        int64_t size = archive_entry_size(entry);

        notice(scan, text ? text : "");
        if (size < 0 ||
            ((uint64_t)size > limits->bytes - scan->layer.bytes && guard(bytes_counted)))
            return err_set(err, ERR_LIMIT, "files of more than %llu bytes",
                           (unsigned long long)limits->bytes);
        scan->layer.bytes += (uint64_t)size;
    }
    scan->layer.packed = (uint64_t)st.st_size;
    scan->layer.entries = stream.entries;
    return rc < 0 ? -1 : stream_digest(&stream, scan->layer.diff_id, err);
}

static int hash_file(int dir, const char *file, char out[IMAGE_DIGEST_SIZE], struct err *err)
{
    enum { SIZE = 131072 };
    autofree char *block = xmalloc(SIZE);
    autoclose int fd = openat(dir, file, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    struct sha256_stream *hash = sha256_new();
    unsigned char digest[SHA256_SIZE];
    ssize_t got = -1;

    while (fd >= 0 && (got = read(fd, block, SIZE)) > 0)
        sha256_put(hash, block, (size_t)got);
    sha256_end(hash, digest);
    if (got < 0)
        return err_sys(err, "read %s", file);
    digest_text(digest, out);
    return 0;
}

/* ---- archives of images ---- */

static int check_layer(const struct image_limits *limits, struct image_parts *parts,
                       const struct image_plan *plan, struct image_info *info, uint32_t k,
                       struct err *err)
{
    char file[32], name[32], digest[IMAGE_DIGEST_SIZE];
    struct scan scan;
    uint64_t size;

    if (parts_find(parts, plan->files[k], file, &size, err) < 0)
        return -1;
    if (plan->digests[k].n) {
        if (hash_file(parts->dir, file, digest, err) < 0)
            return -1;
        if (!str_is(plan->digests[k], digest) && guard(digest))
            return err_set(err, ERR_INVALID, "it is not what its digest says");
    }
    if (scan_file(limits, parts->dir, file, &scan, err) < 0)
        return -1;
    if (strcmp(scan.layer.diff_id, info->layers[k].diff_id) != 0 && guard(diff_id))
        return err_set(err, ERR_INVALID, "what is in it is not what the config's diff id says");
    info->layers[k] = scan.layer;
    snprintf(name, sizeof(name), "layer.%u", k);
    if (linkat(parts->dir, file, parts->dir, name, 0) < 0)
        return err_sys(err, "name it");
    return 0;
}

static int inspect_archive(const struct image_limits *limits, int dir, const char *arch, bool oci,
                           struct image_info *info, struct err *err)
{
    autoparts struct image_parts parts = { .limits = limits, .dir = dir };
    struct image_plan plan = { 0 };

    {
        autoclose int fd = openat(dir, UPLOAD, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
        autostream struct image_stream stream = { .fd = -1 };

        if (fd < 0 || unlinkat(dir, UPLOAD, 0) < 0)
            return err_sys(err, "open the upload");
        if (stream_open(&stream, limits, fd, err) < 0 || parts_load(&parts, &stream, err) < 0)
            return -1;
    }
    if ((oci ? oci_read : docker_read)(&parts, arch, info, &plan, err) < 0)
        return -1;
    for (uint32_t k = 0; k < info->layer_count; k++)
        if (check_layer(limits, &parts, &plan, info, k, err) < 0)
            return err_wrap(err, "layer %u", k);
    return 0;
}

static int inspect_tree(int dir, const char *arch, const struct scan *scan, struct image_info *info,
                        struct err *err)
{
    if (scan->layer.entries == 0)
        return err_set(err, ERR_INVALID, "the archive has no entries");
    info->format = "tar";
    info->architecture = arch;
    info->layer_count = 1;
    info->layers = arena_new(&info->arena, struct image_layer);
    *info->layers = scan->layer;
    info->digest = info->layers->diff_id;
    if (renameat(dir, UPLOAD, dir, "layer.0") < 0)
        return err_sys(err, "name the layer");
    return 0;
}

int image_inspect(const struct image_limits *limits, int fd, int dir, const char *arch,
                  struct image_info *out, struct err *err)
{
    autoinfo struct image_info info = { 0 };
    struct scan scan;

    if (receive(limits, fd, dir, err) < 0 || scan_file(limits, dir, UPLOAD, &scan, err) < 0)
        return -1;
    bool oci = scan.index && scan.layout;
    if (oci || scan.manifest) {
        if (inspect_archive(limits, dir, arch, oci, &info, err) < 0)
            return -1;
    } else if (inspect_tree(dir, arch, &scan, &info, err) < 0) {
        return -1;
    }
    *out = info;
    info = (struct image_info){ 0 };
    return 0;
}

/* ---- told ---- */

static void put_member(struct json_out *json, const char *key, const struct json *value,
                       char otherwise)
{
    json_key(json, key);
    if (value && value->type >= JSON_STRING) {
        json_put(json, value);
        return;
    }
    if (otherwise == '"') {
        json_put_str(json, STR(""));
        return;
    }
    json_open(json, otherwise);
    json_close(json, otherwise == '[' ? ']' : '}');
}

int image_info_put(const struct image_info *info, struct buf *out, struct err *err)
{
    static const struct {
        const char *key, *theirs;
        char otherwise;
    } members[] = { { "env", "Env", '[' },
                    { "user", "User", '"' },
                    { "workdir", "WorkingDir", '"' },
                    { "entrypoint", "Entrypoint", '[' },
                    { "cmd", "Cmd", '[' },
                    { "labels", "Labels", '{' } };
    struct json_out json = json_to(out);

    json_open(&json, '{');
    json_kv_text(&json, "format", info->format);
    json_kv_text(&json, "digest", info->digest);
    json_kv_text(&json, "architecture", info->architecture);
    json_kv_text(&json, "name", info->name ? info->name : "");
    json_key(&json, "config");
    json_open(&json, '{');
    for (size_t i = 0; i < ARRAY_LEN(members); i++)
        put_member(&json, members[i].key, json_get(info->config, members[i].theirs),
                   members[i].otherwise);
    json_close(&json, '}');
    json_key(&json, "layers");
    json_open(&json, '[');
    for (uint32_t k = 0; k < info->layer_count; k++) {
        json_open(&json, '{');
        json_kv_text(&json, "diff_id", info->layers[k].diff_id);
        json_kv_int(&json, "packed", (int64_t)info->layers[k].packed);
        json_kv_int(&json, "bytes", (int64_t)info->layers[k].bytes);
        json_kv_int(&json, "entries", (int64_t)info->layers[k].entries);
        json_close(&json, '}');
    }
    json_close(&json, ']');
    json_close(&json, '}');
    if (!buf_ok(out) || out->len > IMAGE_INFO_MAX)
        return err_set(err, ERR_LIMIT, "the image's config has more than %d bytes", IMAGE_INFO_MAX);
    return 0;
}
