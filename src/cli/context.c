/*
 * The file is JSON: {"current": "lab", "contexts": [{"name", "addr", "token", "ca"}]}. It is small,
 * so every command reads all of it and a change writes all of it: a temporary file beside it,
 * fsync, rename.
 */
#include "cli/context.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "base/id.h"
#include "base/json.h"

static const char file_name[] = "contexts.json";

bool context_name_ok(const char *name)
{
    size_t len = strlen(name);

    return len > 0 && len <= CONTEXT_NAME_MAX && name[0] != '-' && name[0] != '.' &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == len;
}

void context_text(char **slot, const char *text)
{
    char *copy = text ? xstrdup(text) : NULL;

    free(*slot);
    *slot = copy;
}

static void context_clear(struct context *context)
{
    free(context->name);
    free(context->addr);
    free(context->token);
    free(context->ca);
    *context = (struct context){ 0 };
}

void contexts_free(struct contexts *contexts)
{
    for (size_t i = 0; i < contexts->count; i++)
        context_clear(&contexts->list[i]);
    free(contexts->list);
    free(contexts->current);
    if (contexts->lock_fd >= 0)
        close(contexts->lock_fd);
    *contexts = (struct contexts){ .lock_fd = -1 };
}

struct context *contexts_find(const struct contexts *contexts, const char *name)
{
    for (size_t i = 0; i < contexts->count; i++)
        if (strcmp(contexts->list[i].name, name) == 0)
            return &contexts->list[i];
    return NULL;
}

int contexts_put(struct contexts *contexts, const char *name, struct context **out, struct err *err)
{
    struct context *found = contexts_find(contexts, name);

    if (!found && contexts->count == CONTEXTS_MAX)
        return err_set(err, ERR_LIMIT, "there are %d contexts already", CONTEXTS_MAX);
    if (!found) {
        contexts->list = xrealloc(contexts->list, (contexts->count + 1) * sizeof(*contexts->list));
        found = &contexts->list[contexts->count++];
        *found = (struct context){ .name = xstrdup(name) };
    }
    *out = found;
    return 0;
}

bool contexts_remove(struct contexts *contexts, const char *name)
{
    struct context *found = contexts_find(contexts, name);

    if (!found)
        return false;
    if (contexts->current && strcmp(contexts->current, name) == 0)
        context_text(&contexts->current, NULL);
    context_clear(found);
    *found = contexts->list[--contexts->count];
    return true;
}

/* ---- the file ---- */

/* $XDG_CONFIG_HOME/atoll or ~/.config/atoll; gives, or NULL without a home. */
static char *config_dir(void)
{
    const char *dir = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");

    if (dir && dir[0] == '/')
        return xprintf("%s/atoll", dir);
    return home && home[0] == '/' ? xprintf("%s/.config/atoll", home) : NULL;
}

static int slurp(int fd, struct buf *out, struct err *err)
{
    struct stat st;

    if (fstat(fd, &st) < 0)
        return err_sys(err, "look at it");
    if (!S_ISREG(st.st_mode))
        return err_set(err, ERR_INVALID, "not a regular file");
    if (st.st_mode & 077)
        return err_set(err, ERR_INVALID, "others may read it though it holds tokens; chmod 600 it");
    out->max = CONTEXTS_FILE_MAX + 4096;
    for (;;) {
        char *room = buf_reserve(out, 4096);
        ssize_t got = room ? read(fd, room, 4096) : 0;

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return err_sys(err, "read it");
        if (!room || out->len + (size_t)got > CONTEXTS_FILE_MAX)
            return err_set(err, ERR_LIMIT, "longer than %d bytes", CONTEXTS_FILE_MAX);
        if (got == 0)
            return 0;
        out->len += (size_t)got;
    }
}

/* A member that is a string, copied; NULL when missing or null. */
static char *member(const struct json *object, const char *key)
{
    struct str text = json_text(object, key);

    return text.p && text.n ? xmemdup0(text.p, text.n) : NULL;
}

static int from_json(const struct json *root, struct contexts *out, struct err *err)
{
    const struct json *list = json_get(root, "contexts");

    if (!list || list->type != JSON_ARRAY)
        return err_set(err, ERR_INVALID, "has no list of contexts");
    json_each(item, list)
    {
        struct context *context;
        autofree char *name = member(item, "name"), *addr = member(item, "addr");

        if (!name || !context_name_ok(name) || !addr || contexts_find(out, name))
            return err_set(err, ERR_INVALID, "holds a context without a proper name and address");
        if (contexts_put(out, name, &context, err) < 0)
            return -1;
        context->addr = take_ptr(&addr);
        context->token = member(item, "token");
        context->ca = member(item, "ca");
    }
    out->current = member(root, "current");
    return 0;
}

static int load_from(int dir_fd, struct contexts *out, struct err *err)
{
    autoarena struct arena arena = { 0 };
    autobuf struct buf text = { 0 };
    struct json *root;

    autoclose int fd = openat(dir_fd, file_name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 && errno == ENOENT)
        return 0;
    if (fd < 0)
        return err_sys(err, "open it");
    if (slurp(fd, &text, err) < 0)
        return -1;
    if (json_parse(&arena, buf_view(&text), &root, err) < 0)
        return -1;
    return from_json(root, out, err);
}

static int load(struct contexts *out, bool change, struct err *err)
{
    struct contexts found = { .lock_fd = -1 };
    autofree char *dir = config_dir();

    *out = found;
    if (!dir)
        return change ? err_set(err, ERR_INVALID, "HOME is not set") : 0;
    if (change) {
        autofree char *above = xmemdup0(dir, strlen(dir) - strlen("/atoll"));

        if ((mkdir(above, 0700) < 0 && errno != EEXIST) ||
            (mkdir(dir, 0700) < 0 && errno != EEXIST))
            return err_sys(err, "make %s", dir);
    }
    found.lock_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (found.lock_fd < 0 && errno == ENOENT && !change)
        return 0;
    if (found.lock_fd < 0)
        return err_sys(err, "open %s", dir);
    if (change && flock(found.lock_fd, LOCK_EX) < 0)
        err_sys(err, "lock %s", dir);
    else if (load_from(found.lock_fd, &found, err) < 0)
        err_wrap(err, "%s/%s", dir, file_name);
    else {
        *out = found;
        if (!change)
            close(take_fd(&out->lock_fd));
        return 0;
    }
    contexts_free(&found);
    return -1;
}

int contexts_load(struct contexts *out, struct err *err)
{
    return load(out, false, err);
}

int contexts_open(struct contexts *out, struct err *err)
{
    return load(out, true, err);
}

static void to_json(const struct contexts *contexts, struct buf *out)
{
    struct json_out json = json_to(out);

    json_open(&json, '{');
    json_kv_text(&json, "current", contexts->current);
    json_key(&json, "contexts");
    json_open(&json, '[');
    for (size_t i = 0; i < contexts->count; i++) {
        const struct context *context = &contexts->list[i];

        json_open(&json, '{');
        json_kv_text(&json, "name", context->name);
        json_kv_text(&json, "addr", context->addr);
        json_kv_text(&json, "token", context->token);
        json_kv_text(&json, "ca", context->ca);
        json_close(&json, '}');
    }
    json_close(&json, ']');
    json_close(&json, '}');
    buf_putc(out, '\n');
}

static int write_new(int dir_fd, const char *name, struct str text, struct err *err)
{
    autoclose int fd =
        openat(dir_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);

    if (fd < 0)
        return err_sys(err, "make %s", name);
    while (text.n) {
        ssize_t done = write(fd, text.p, text.n);

        if (done < 0 && errno != EINTR)
            return err_sys(err, "write %s", name);
        text = str_from(text, done > 0 ? (size_t)done : 0);
    }
    return fsync(fd) < 0 ? err_sys(err, "write %s", name) : 0;
}

int contexts_save(const struct contexts *contexts, struct err *err)
{
    autobuf struct buf text = { 0 };
    char id[ID_SIZE];

    to_json(contexts, &text);
    if (text.len > CONTEXTS_FILE_MAX)
        return err_set(err, ERR_LIMIT, "the contexts are longer than %d bytes", CONTEXTS_FILE_MAX);
    id_make(id, "new");
    autofree char *temporary = xprintf(".%s.%s", file_name, id);
    int rc = write_new(contexts->lock_fd, temporary, buf_view(&text), err);
    if (rc == 0 && renameat(contexts->lock_fd, temporary, contexts->lock_fd, file_name) < 0)
        rc = err_sys(err, "replace %s", file_name);
    if (rc < 0)
        unlinkat(contexts->lock_fd, temporary, 0);
    else
        (void)!fsync(contexts->lock_fd);
    return rc;
}
