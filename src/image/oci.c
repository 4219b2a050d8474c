/*
 * Which files of an archive make an image: the OCI image layout (index.json, an index or more, a
 * manifest, a config, layers: each named by its digest and checked against it) and the older form
 * of `docker save` (manifest.json names config and layers by file). All of it is a stranger's JSON;
 * a member that has the wrong type counts as missing, and what is missing and needed is an error
 * that says where.
 */
#include <stdio.h>

#include "base/mem.h"
#include "image/own.h"

static const struct json *array_of(const struct json *object, const char *key)
{
    const struct json *value = json_get(object, key);

    return value && value->type == JSON_ARRAY ? value : NULL;
}

/* ---- the config ---- */

static int check_strings(const struct json *config, const char *key, struct err *err)
{
    const struct json *value = json_get(config, key);

    if (!value || value->type == JSON_NULL)
        return 0;
    if (value->type != JSON_ARRAY)
        return err_set(err, ERR_INVALID, "the config's %s is no list", key);
    json_each(item, value) if (item->type != JSON_STRING) return err_set(
        err, ERR_INVALID, "the config's %s is no list of strings", key);
    return 0;
}

static int check_config(const struct json *config, struct err *err)
{
    const struct json *labels = json_get(config, "Labels");

    if (check_strings(config, "Env", err) < 0 || check_strings(config, "Entrypoint", err) < 0 ||
        check_strings(config, "Cmd", err) < 0)
        return -1;
    if (labels && labels->type != JSON_NULL && labels->type != JSON_OBJECT)
        return err_set(err, ERR_INVALID, "the config's Labels are no object");
    json_each(label, labels) if (label->type != JSON_STRING) return err_set(
        err, ERR_INVALID, "a label of the config is no string");
    return 0;
}

static int take_layers(const struct json *file, struct image_info *info, size_t layers,
                       struct err *err)
{
    const struct json *ids = array_of(json_get(file, "rootfs"), "diff_ids");
    struct image_layer *layer;

    if (!ids || ids->count == 0)
        return err_set(err, ERR_INVALID, "the config names no layers");
    if (ids->count > IMAGE_LAYERS_MAX)
        return err_set(err, ERR_LIMIT, "%u layers; at most %d", ids->count, IMAGE_LAYERS_MAX);
    if (ids->count != layers)
        return err_set(err, ERR_INVALID, "the manifest has %zu layers, the config %u", layers,
                       ids->count);
    info->layer_count = ids->count;
    layer = info->layers = arena_alloc(&info->arena, ids->count * sizeof(*layer));
    json_each(id, ids)
    {
        if (id->type != JSON_STRING || !digest_ok(id->text))
            return err_set(err, ERR_INVALID, "a diff id of the config is no sha256 digest");
        memcpy((layer++)->diff_id, id->text.p, id->text.n);
    }
    return 0;
}

static int config_read(struct image_parts *parts, struct str name, const char *arch, size_t layers,
                       struct image_info *info, struct err *err)
{
    const struct json *file, *config;

    if (parts_json(parts, &info->arena, name, &file, err) < 0)
        return -1;
    struct str machine = json_text(file, "architecture"), os = json_text(file, "os");
    if (!str_is(machine, arch) || (os.n && !str_is(os, "linux")))
        return err_set(err, ERR_UNPROCESSABLE, "the image is for %.*s/%.*s; this machine is %s",
                       STR_FMT(os.n ? os : STR("?")), STR_FMT(machine.n ? machine : STR("?")),
                       arch);
    info->architecture = arch;
    config = json_get(file, "config");
    if (config && config->type == JSON_OBJECT) {
        if (check_config(config, err) < 0)
            return -1;
        info->config = config;
    }
    return take_layers(file, info, layers, err);
}

static void plan_init(struct image_plan *plan, struct arena *arena, size_t layers)
{
    plan->files = arena_alloc(arena, layers * sizeof(*plan->files));
    plan->digests = arena_alloc(arena, layers * sizeof(*plan->digests));
}

/* ---- OCI ---- */

/* The file of a descriptor: "blobs/sha256/…". */
static int blob_name(struct arena *arena, const struct json *descriptor, struct str *out,
                     struct err *err)
{
    struct str digest = json_text(descriptor, "digest");

    if (!digest_ok(digest))
        return err_set(err, ERR_INVALID, "a descriptor without a sha256 digest");
    *out = str_of(arena_printf(arena, "blobs/sha256/%.*s", (int)digest.n - 7, digest.p + 7));
    return 0;
}

/* A small blob, checked against its descriptor. */
static int blob_json(struct image_parts *parts, struct arena *arena, const struct json *descriptor,
                     const struct json **out, struct err *err)
{
    struct str digest = json_text(descriptor, "digest"), name, text;
    unsigned char sum[SHA256_SIZE];
    char have[IMAGE_DIGEST_SIZE];

    if (blob_name(arena, descriptor, &name, err) < 0 ||
        parts_text(parts, arena, name, &text, err) < 0)
        return -1;
    sha256(text.p, text.n, sum);
    digest_text(sum, have);
    if (!str_is(digest, have))
        return err_set(err, ERR_INVALID, "%.*s is not what its digest says", STR_FMT(name));
    return parts_json(parts, arena, name, out, err);
}

/* The manifest for this machine, or the only one that says nothing; NULL and what there is. */
static const struct json *choose(const struct json *manifests, const char *arch, struct buf *others)
{
    const struct json *unsaid = NULL;

    json_each(item, manifests)
    {
        const struct json *platform = json_get(item, "platform");
        struct str machine = json_text(platform, "architecture");

        if (!machine.n) {
            unsaid = unsaid ? unsaid : item;
            continue;
        }
        if (str_is(machine, arch) && str_is(json_text(platform, "os"), "linux"))
            return item;
        if (!str_is(machine, "unknown")) /* attestations */
            buf_printf(others, "%s%.*s", others->len ? ", " : "", (int)MIN(machine.n, 32),
                       machine.p);
    }
    return unsaid;
}

static void name_from(struct image_info *info, const struct json *descriptor)
{
    static const char *const keys[] = { "io.containerd.image.name",
                                        "org.opencontainers.image.ref.name" };
    const struct json *notes = json_get(descriptor, "annotations");

    for (size_t i = 0; i < ARRAY_LEN(keys) && !info->name; i++) {
        struct str name = json_text(notes, keys[i]);

        if (name.n)
            info->name = arena_memdup0(&info->arena, name.p, name.n);
    }
}

/* Down from index.json to a manifest; its descriptor says its digest. */
static int find_manifest(struct image_parts *parts, const char *arch, struct image_info *info,
                         const struct json **out, struct err *err)
{
    const struct json *here;

    if (parts_json(parts, &info->arena, STR("index.json"), &here, err) < 0)
        return -1;
    for (unsigned i = 0; i < IMAGE_INDEXES_MAX; i++) {
        autobuf struct buf others = { .max = 200 };
        const struct json *manifests = array_of(here, "manifests");

        if (!manifests) {
            *out = here;
            return 0;
        }
        const struct json *next = choose(manifests, arch, &others);
        if (!next)
            return err_set(err, ERR_UNPROCESSABLE, "no image for %s in the archive%s%s", arch,
                           others.len ? "; there is " : "", buf_cstr(&others));
        name_from(info, next);
        if (blob_json(parts, &info->arena, next, &here, err) < 0)
            return -1;
        struct str digest = json_text(next, "digest");
        info->digest = arena_memdup0(&info->arena, digest.p, digest.n);
    }
    return err_set(err, ERR_INVALID, "an index that names an index that names an index…");
}

int oci_read(struct image_parts *parts, const char *arch, struct image_info *info,
             struct image_plan *plan, struct err *err)
{
    const struct json *manifest, *config;
    struct str name;
    size_t i = 0;

    info->format = "oci";
    if (find_manifest(parts, arch, info, &manifest, err) < 0)
        return -1;
    const struct json *layers = array_of(manifest, "layers");
    if (!layers || !info->digest)
        return err_set(err, ERR_INVALID, "the manifest has no layers");
    if (blob_json(parts, &info->arena, json_get(manifest, "config"), &config, err) < 0 ||
        blob_name(&info->arena, json_get(manifest, "config"), &name, err) < 0 ||
        config_read(parts, name, arch, layers->count, info, err) < 0)
        return err_wrap(err, "config");
    plan_init(plan, &info->arena, layers->count);
    json_each(layer, layers)
    {
        if (blob_name(&info->arena, layer, &plan->files[i], err) < 0)
            return err_wrap(err, "layer %zu", i);
        plan->digests[i++] = json_text(layer, "digest");
    }
    return 0;
}

/* ---- docker save ---- */

/* The config's file is named by its digest: "HEX.json" or "blobs/sha256/HEX". */
static int check_config_name(struct image_parts *parts, struct str name, struct image_info *info,
                             struct err *err)
{
    struct str text, stem = name;
    unsigned char sum[SHA256_SIZE], want[SHA256_SIZE];
    char *digest = arena_alloc(&info->arena, IMAGE_DIGEST_SIZE);

    if (parts_text(parts, &info->arena, name, &text, err) < 0)
        return -1;
    sha256(text.p, text.n, sum);
    digest_text(sum, digest);
    info->digest = digest;
    for (size_t i = 0; i < name.n; i++)
        if (name.p[i] == '/')
            stem = str_from(name, i + 1);
    if (stem.n == 64 + 5 && memcmp(stem.p + 64, ".json", 5) == 0)
        stem.n = 64;
    if (hex_bytes(stem, want, sizeof(want)) && memcmp(want, sum, sizeof(sum)) != 0)
        return err_set(err, ERR_INVALID, "%.*s is not what its name says", STR_FMT(name));
    return 0;
}

int docker_read(struct image_parts *parts, const char *arch, struct image_info *info,
                struct image_plan *plan, struct err *err)
{
    const struct json *file;
    size_t i = 0;

    info->format = "docker";
    if (parts_json(parts, &info->arena, STR("manifest.json"), &file, err) < 0)
        return -1;
    const struct json *image = file->type == JSON_ARRAY ? file->first : NULL;
    const struct json *layers = array_of(image, "Layers");
    struct str config = json_text(image, "Config");
    if (!layers || !config.n)
        return err_set(err, ERR_INVALID, "manifest.json names no image");
    if (file->count > 1)
        return err_set(err, ERR_UNPROCESSABLE, "the archive has %u images; save one at a time",
                       file->count);
    const struct json *tag = json_first(array_of(image, "RepoTags"));
    if (tag && tag->type == JSON_STRING)
        info->name = arena_memdup0(&info->arena, tag->text.p, tag->text.n);
    if (check_config_name(parts, config, info, err) < 0 ||
        config_read(parts, config, arch, layers->count, info, err) < 0)
        return err_wrap(err, "config");
    plan_init(plan, &info->arena, layers->count);
    json_each(layer, layers)
    {
        if (layer->type != JSON_STRING)
            return err_set(err, ERR_INVALID, "a layer of manifest.json is no name");
        plan->files[i++] = layer->text;
    }
    return 0;
}
