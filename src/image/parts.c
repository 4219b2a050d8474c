/*
 * The files of an archive of images, by name. Such an archive may hold its manifest last and its
 * layers in any order, so all of it is taken in first: each file becomes one in our directory,
 * named by a number of ours; nothing of the archive is ever a name on a disk. Older `docker save`
 * has one layer's file as a symbolic link to another's: links are followed here, in the map, a few
 * steps far.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "image/own.h"

#define LINKS_MAX 8

struct image_part {
    uint32_t number;
    uint64_t size;
    const char *link; /* to this name instead; in the arena */
};

void parts_free(struct image_parts *parts)
{
    map_free(&parts->by_name);
    arena_free(&parts->arena);
}

static void part_file(uint32_t number, char out[32])
{
    snprintf(out, 32, "part.%u", number);
}

static int save(struct image_parts *parts, struct image_part *part, struct image_stream *stream,
                struct err *err)
{
    char file[32];
    struct str data;
    int64_t at;
    int rc;

    part_file(part->number, file);
    autoclose int fd =
        openat(parts->dir, file, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_sys(err, "make %s", file);
    while ((rc = stream_data(stream, &data, &at, err)) > 0) {
        if (at < 0 || (uint64_t)at + data.n > part->size)
            return err_set(err, ERR_INVALID, "a file has more bytes than it says");
        for (size_t done = 0; done < data.n;) {
            ssize_t put = pwrite(fd, data.p + done, data.n - done, at + (int64_t)done);

            if (put < 0 && errno != EINTR)
                return err_sys(err, "write %s", file);
            done += put > 0 ? (size_t)put : 0;
        }
    }
    if (rc == 0 && ftruncate(fd, (off_t)part->size) < 0)
        return err_sys(err, "write %s", file);
    return rc;
}

/* Joined to one name: the map's keys look like this. */
static char *key_of(struct arena *arena, const struct image_name *name)
{
    return arena_printf(arena, "%s%s%s", name->dir, *name->dir ? "/" : "", name->base);
}

/* Where a symbolic link in `name`'s directory leads: "../x/layer.tar" in "y" is "x/layer.tar". */
static int link_target(struct arena *arena, const struct image_name *name, const char *text,
                       const char **out, struct err *err)
{
    autobuf struct buf path = { .max = IMAGE_PATH_MAX };
    struct str rest = str_of(text);

    if (*text != '/')
        buf_puts(&path, name->dir);
    while (rest.n) {
        struct str part = str_cut(&rest, '/');

        if (!part.n || str_is(part, "."))
            continue;
        if (!str_is(part, "..")) {
            buf_puts(&path, path.len ? "/" : "");
            buf_str(&path, part);
            continue;
        }
        if (!path.len)
            return err_set(err, ERR_INVALID, "a link that leads out of the archive: %s",
                           name_show(text));
        while (path.len && path.data[--path.len] != '/')
            ;
    }
    if (!buf_ok(&path))
        return err_set(err, ERR_INVALID, "a link that is too long: %s", name_show(text));
    *out = arena_memdup0(arena, path.data ? path.data : "", path.len);
    return 0;
}

static int take(struct image_parts *parts, struct image_stream *stream, struct image_name *name,
                struct archive_entry *entry, struct err *err)
{
    struct image_part *part = arena_new(&parts->arena, struct image_part);
    const char *hardlink = archive_entry_hardlink(entry), *symlink = archive_entry_symlink(entry);
    const char *key = key_of(&parts->arena, name);
    int64_t size = archive_entry_size(entry);

    if (map_get(&parts->by_name, str_of(key)))
        return err_set(err, ERR_INVALID, "the archive has %s twice", name_show(key));
    if (parts->count >= parts->limits->parts)
        return err_set(err, ERR_LIMIT, "more than %llu files in the archive",
                       (unsigned long long)parts->limits->parts);
    if (size < 0 || (uint64_t)size > parts->limits->bytes)
        return err_set(err, ERR_LIMIT, "%s is too large", name_show(key));
    part->number = parts->count++;
    part->size = (uint64_t)size;
    if (hardlink) {
        if (name_parse(name, hardlink, err) < 0)
            return -1;
        part->link = key_of(&parts->arena, name);
    } else if (symlink) {
        if (link_target(&parts->arena, name, symlink, &part->link, err) < 0)
            return -1;
    } else if (save(parts, part, stream, err) < 0) {
        return err_wrap(err, "%s", name_show(key));
    }
    map_put(&parts->by_name, str_of(key), part);
    return 0;
}

int parts_load(struct image_parts *parts, struct image_stream *stream, struct err *err)
{
    struct image_name *name = arena_new(&parts->arena, struct image_name);
    struct archive_entry *entry;
    int rc;

    while ((rc = stream_next(stream, &entry, err)) > 0) {
        const char *text = archive_entry_pathname(entry);
        mode_t type = archive_entry_filetype(entry);

        if (!text || name_parse(name, text, err) < 0)
            return text ? -1 : err_set(err, ERR_INVALID, "an entry without a name");
        if (!archive_entry_hardlink(entry) && type != AE_IFREG && type != AE_IFLNK)
            continue; /* directories, and what has no place here */
        if (take(parts, stream, name, entry, err) < 0)
            return -1;
    }
    return rc;
}

int parts_find(struct image_parts *parts, struct str name, char file[32], uint64_t *size,
               struct err *err)
{
    struct image_part *part = map_get(&parts->by_name, name);

    for (unsigned i = 0; part && part->link; i++) {
        if (i == LINKS_MAX)
            return err_set(err, ERR_INVALID, "%.*s is a link to a link to a link…", STR_FMT(name));
        part = map_get(&parts->by_name, str_of(part->link));
    }
    if (!part)
        return err_set(err, ERR_UNPROCESSABLE, "the archive has no %.*s", STR_FMT(name));
    part_file(part->number, file);
    *size = part->size;
    return 0;
}

int parts_json(struct image_parts *parts, struct arena *arena, struct str name,
               const struct json **out, struct err *err)
{
    struct str text;

    if (parts_text(parts, arena, name, &text, err) < 0)
        return -1;
    struct json *tree;
    if (json_parse(arena, text, &tree, err) < 0)
        return err_wrap(err, "%.*s", STR_FMT(name));
    *out = tree;
    return 0;
}

int parts_text(struct image_parts *parts, struct arena *arena, struct str name, struct str *out,
               struct err *err)
{
    char file[32];
    uint64_t size;

    if (parts_find(parts, name, file, &size, err) < 0)
        return -1;
    if (size > IMAGE_JSON_MAX)
        return err_set(err, ERR_LIMIT, "%.*s has %llu bytes; at most %d are read", STR_FMT(name),
                       (unsigned long long)size, IMAGE_JSON_MAX);
    autoclose int fd = openat(parts->dir, file, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    char *text = arena_alloc(arena, size + 1);
    for (size_t done = 0; fd >= 0 && done < size;) {
        ssize_t got = pread(fd, text + done, size - done, (off_t)done);

        if (got <= 0)
            return err_sys(err, "read %s", file);
        done += (size_t)got;
    }
    if (fd < 0)
        return err_sys(err, "open %s", file);
    *out = (struct str){ text, size };
    return 0;
}
