/* The tables of images. */
#include "model/image.h"

#include "base/limits.h"

static const struct field config_fields[] = {
    FIELD(image_config, env, F_STRINGS, F_REQUIRED, .max = IMAGE_ENV_MAX, .each_max = 32768,
          .help = "Environment of every command, below what sandbox and command say"),
    FIELD(image_config, user, F_STRING, F_REQUIRED, .max = 255,
          .help = "root or 0: commands run as root unless said; anybody else: as agent"),
    FIELD(image_config, workdir, F_STRING, F_REQUIRED, .max = 4095,
          .help = "Working directory of commands that name none"),
    FIELD(image_config, entrypoint, F_STRINGS, F_REQUIRED, .max = 256, .each_max = 32768,
          .help = "What `atoll run` without a command runs, followed by `cmd`"),
    FIELD(image_config, cmd, F_STRINGS, F_REQUIRED, .max = 256, .each_max = 32768,
          .help = "See `entrypoint`"),
    FIELD(image_config, labels, F_MAP, F_REQUIRED, .max = 256, .help = "What its maker noted"),
    { 0 },
};

static const struct field part_fields[] = {
    FIELD(image_part, diff_id, F_STRING, F_REQUIRED, .min = 71, .max = 71,
          .help = "Digest of the layer's tar; one that two images have is kept once"),
    FIELD(image_part, packed, F_INT, F_REQUIRED, .min = 0, .max = (int64_t)IMAGE_BYTES_MAX,
          .help = "Bytes in the archive"),
    FIELD(image_part, bytes, F_INT, F_REQUIRED, .min = 0, .max = (int64_t)IMAGE_BYTES_MAX,
          .help = "Bytes of its files"),
    FIELD(image_part, entries, F_INT, F_REQUIRED, .min = 0, .max = IMAGE_ENTRIES_MAX,
          .help = "Files, directories and links"),
    { 0 },
};

const struct field image_told_fields[] = {
    FIELD(image_told, format, F_ENUM, F_REQUIRED, .choices = "tar|docker|oci"),
    FIELD(image_told, digest, F_STRING, F_REQUIRED, .min = 71, .max = 71),
    FIELD(image_told, architecture, F_STRING, F_REQUIRED, .max = 32),
    FIELD(image_told, name, F_STRING, F_REQUIRED, .max = 1024),
    FIELD(image_told, config, F_OBJECT, F_REQUIRED, .of = config_fields,
          .of_size = sizeof(struct image_config)),
    FIELD(image_told, layers, F_LIST, F_REQUIRED, .of = part_fields,
          .of_size = sizeof(struct image_part), .min = 1, .max = IMAGE_LAYERS_MAX),
    { 0 },
};

const struct field image_fields[] = {
    FIELD(image_view, name, F_STRING, F_READONLY, .help = "Its name, as a sandbox's `image`"),
    FIELD(image_view, digest, F_STRING, F_READONLY,
          .help = "Of its manifest (oci), its config (docker) or its tar"),
    FIELD(image_view, format, F_STRING, F_READONLY, .help = "tar, docker or oci"),
    FIELD(image_view, architecture, F_STRING, F_READONLY, .help = "amd64, arm64"),
    FIELD(image_view, bytes, F_INT, F_READONLY, .help = "Of its files, shared layers included"),
    FIELD(image_view, layers, F_LIST, F_READONLY, .of = part_fields,
          .of_size = sizeof(struct image_part), .help = "The lowest first"),
    FIELD(image_view, config, F_OBJECT, F_READONLY, .of = config_fields,
          .of_size = sizeof(struct image_config), .help = "What its maker wishes for commands"),
    FIELD(image_view, sandboxes, F_INT, F_READONLY,
          .help = "How many sandboxes and snapshots need it; it can be removed when none does"),
    FIELD(image_view, by, F_STRING, F_READONLY, .help = "Who imported it"),
    FIELD(image_view, created_at, F_TIME, F_READONLY, .help = "When that was"),
    { 0 },
};

static bool is_plain(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

/* Letters and digits, with . _ - between them. */
static bool part_ok(struct str part)
{
    if (!part.n || !is_plain(part.p[0]) || !is_plain(part.p[part.n - 1]))
        return false;
    for (size_t i = 0; i < part.n; i++)
        if (!is_plain(part.p[i]) && !strchr("._-", part.p[i]))
            return false;
    return true;
}

/* "registry:5000", the first part of a name that has others behind it. */
static bool host_ok(struct str part)
{
    struct str port = part, host = str_cut(&port, ':');

    if (!memchr(part.p, ':', part.n))
        return part_ok(part);
    for (size_t i = 0; i < port.n; i++)
        if (port.p[i] < '0' || port.p[i] > '9')
            return false;
    return part_ok(host) && port.n > 0 && port.n <= 5;
}

/* [HOST[:PORT]/][PART/…]PART[:TAG] */
static bool image_name_ok(const char *name)
{
    struct str rest = str_of(name);

    for (bool first = true; memchr(rest.p, '/', rest.n); first = false) {
        struct str part = str_cut(&rest, '/');

        if (first ? !host_ok(part) : !part_ok(part))
            return false;
    }
    bool tagged = memchr(rest.p, ':', rest.n) != NULL;
    struct str base = str_cut(&rest, ':');
    return part_ok(base) && (!tagged || part_ok(rest));
}

int image_name_check(const char *name, struct err *err)
{
    if (strlen(name) > IMAGE_NAME_MAX)
        return err_field(err, "name", "at most %d bytes", IMAGE_NAME_MAX);
    if (!image_name_ok(name))
        return err_field(err, "name",
                         "NAME or NAME:TAG, where NAME may have parts between slashes, of "
                         "lower-case letters and digits, with . _ - between them");
    return 0;
}

static bool digest_ok(const char *text)
{
    if (strncmp(text, "sha256:", 7) != 0 || strlen(text) != 71)
        return false;
    return strspn(text + 7, "0123456789abcdef") == 64;
}

int image_told_check(const struct image_told *told, struct err *err)
{
    const struct image_part *parts = told->layers.items;
    const char *workdir = told->config->workdir;

    if (!digest_ok(told->digest))
        return err_set(err, ERR_INVALID, "the image's digest is none");
    for (size_t i = 0; i < told->layers.count; i++)
        if (!digest_ok(parts[i].diff_id))
            return err_set(err, ERR_INVALID, "the digest of layer %zu is none", i);
    if (*workdir && *workdir != '/')
        return err_set(err, ERR_INVALID, "the image's working directory is no absolute path");
    for (const char **env = told->config->env; *env; env++)
        if (!strchr(*env, '=') || **env == '=')
            return err_set(err, ERR_INVALID,
                           "a setting of the image's environment is not NAME=VALUE");
    return 0;
}

const char *image_user(const struct image_config *config)
{
    struct str group = str_of(config->user), user = str_cut(&group, ':');

    return str_is(user, "root") || str_is(user, "0") ? "root" : NULL;
}
