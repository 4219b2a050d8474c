/*
 * How it works: each setting holds one slot per source, and reading takes the highest slot that is
 * set, so the order in which sources arrive does not matter. A value is checked when it is set, by
 * the type of its line in the table, and kept both as text (for showing) and as a number or list
 * (for using). Errors name the place (`where`) first, because that is what a reader must open.
 */
#include "conf/conf.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/limits.h"
#include "base/mem.h"
#include "conf/value.h"

struct slot {
    bool set;
    char *text, *where; /* owned */
    int64_t num;
    char **items; /* owned, with their strings; NULL-terminated */
    size_t count;
};

struct conf {
    size_t keys;
    struct slot *slots; /* owned; keys × CONF_SOURCES */
};

static void slot_clear(struct slot *slot)
{
    for (size_t i = 0; i < slot->count; i++)
        free(slot->items[i]);
    free(slot->items);
    free(slot->text);
    free(slot->where);
    *slot = (struct slot){ 0 };
}

void conf_free(struct conf *conf)
{
    if (!conf)
        return;
    for (size_t i = 0; i < conf->keys * CONF_SOURCES; i++)
        slot_clear(&conf->slots[i]);
    free(conf->slots);
    free(conf);
}

static struct slot *slot_at(const struct conf *conf, const struct conf_key *key,
                            enum conf_source source)
{
    return &conf->slots[(size_t)(key - conf_table) * CONF_SOURCES + source];
}

/* The slot that wins, or NULL when nobody set it. */
static const struct slot *slot_of(const struct conf *conf, const struct conf_key *key,
                                  enum conf_source *source)
{
    for (int i = CONF_SOURCES - 1; i >= 0; i--) {
        const struct slot *slot = slot_at(conf, key, (enum conf_source)i);

        if (slot->set) {
            *source = (enum conf_source)i;
            return slot;
        }
    }
    *source = CONF_DEFAULT;
    return NULL;
}

/* Names come from our own code here, so a wrong one is our mistake. */
static const struct conf_key *must_find(const char *name)
{
    const struct conf_key *key = conf_find(str_of(name));

    if (!key)
        abort();
    return key;
}

/* ---- setting ---- */

static int items_add(struct slot *list, const struct conf_key *key, struct str value,
                     struct err *err)
{
    struct str rest = value;

    while (rest.n) {
        struct str item = str_trim(str_cut(&rest, ','));

        if (!item.n)
            return err_set(err, ERR_INVALID, "%s has an empty item", key->name);
        if (list->count == CONF_LIST_MAX)
            return err_set(err, ERR_LIMIT, "%s has more than %d items", key->name, CONF_LIST_MAX);
        list->items[list->count++] = xmemdup0(item.p, item.n);
    }
    return 0;
}

/* Adds to what this source said before; all or nothing. */
static int list_set(struct slot *slot, const struct conf_key *key, struct str value,
                    struct err *err)
{
    auto_with(slot_clear) struct slot list = { 0 };
    autobuf struct buf joined = { 0 };

    list.items = xcalloc(CONF_LIST_MAX + 1, sizeof(*list.items));
    for (; list.count < slot->count; list.count++)
        list.items[list.count] = xstrdup(slot->items[list.count]);
    if (items_add(&list, key, value, err) < 0)
        return -1;
    for (size_t i = 0; i < list.count; i++)
        buf_printf(&joined, "%s%s", i ? "," : "", list.items[i]);
    list.text = buf_take(&joined, NULL);
    list.set = slot->set;
    list.where = take_ptr(&slot->where);

    struct slot old = *slot;
    *slot = list;
    list = old;
    return 0;
}

static int slot_fill(struct slot *slot, const struct conf_key *key, enum conf_source source,
                     const char *value, struct err *err)
{
    struct str text = str_trim(str_of(value));

    if (value_plain(key, text, err) < 0)
        return -1;
    if (key->type == CONF_LIST && source == CONF_DEFAULT)
        slot_clear(slot); /* a default is said once, and again only by conf_unpack */
    if (key->type == CONF_LIST)
        return list_set(slot, key, text, err);

    autofree char *kept = NULL;
    int64_t num = 0;
    if (value_read(key, text, source == CONF_FILE, &kept, &num, err) < 0)
        return -1;
    free(slot->text);
    slot->text = take_ptr(&kept);
    slot->num = num;
    return 0;
}

static int allowed(const struct slot *slot, const struct conf_key *key, enum conf_source source,
                   struct err *err)
{
    if (source == CONF_FILE && strcmp(key->name, "config") == 0)
        return err_set(err, ERR_INVALID, "config cannot be set in the file itself");
    if (slot->set && key->type != CONF_LIST && source != CONF_FLAG && source != CONF_DEFAULT)
        return err_set(err, ERR_INVALID, "%s was already set at %s", key->name, slot->where);
    return 0;
}

static int set_key(struct conf *conf, enum conf_source source, const struct conf_key *key,
                   const char *value, const char *where, struct err *err)
{
    struct slot *slot = slot_at(conf, key, source);

    if (allowed(slot, key, source, err) < 0 || slot_fill(slot, key, source, value, err) < 0) {
        if (err)
            snprintf(err->field, sizeof(err->field), "%s", key->name);
        return where ? err_wrap(err, "%s", where) : -1;
    }
    free(slot->where);
    slot->where = xstrdup(where ? where : conf_source_name(source));
    slot->set = true;
    return 0;
}

static int unknown(struct str name, const char *where, struct err *err)
{
    const char *near = key_near(name);

    err_set(err, ERR_INVALID, "%s: unknown setting '%.*s'%s%s%s", where ? where : "settings",
            (int)MIN(name.n, 64), name.n ? name.p : "", near ? "; did you mean '" : "",
            near ? near : "", near ? "'?" : "");
    return -1;
}

int conf_set(struct conf *conf, enum conf_source source, const char *name, const char *value,
             const char *where, struct err *err)
{
    const struct conf_key *key = conf_find(str_of(name));

    if (!key)
        return unknown(str_of(name), where, err);
    return set_key(conf, source, key, value, where, err);
}

struct conf *conf_new(void)
{
    struct conf *conf = xnew(struct conf);
    autofree char *state = conf_state_default();

    while (conf_table[conf->keys].name)
        conf->keys++;
    conf->slots = xcalloc(conf->keys * CONF_SOURCES, sizeof(*conf->slots));
    for (const struct conf_key *key = conf_table; key->name; key++) {
        const char *value = strcmp(key->name, "state") == 0 ? state : key->otherwise;
        struct err err;

        /* A default that its own line refuses is a mistake in the table. */
        if (value && set_key(conf, CONF_DEFAULT, key, value, "default", &err) < 0) {
            fprintf(stderr, "atoll: default of %s: %s\n", key->name, err.msg);
            abort();
        }
    }
    return conf;
}

/* ---- the file ---- */

static int parse_line(struct conf *conf, struct str line, const char *where, struct err *err)
{
    for (size_t i = 0; i < line.n; i++)
        if (line.p[i] == '#' && (i == 0 || line.p[i - 1] == ' ' || line.p[i - 1] == '\t'))
            line.n = i;
    line = str_trim(line);
    if (!line.n)
        return 0;
    if (!memchr(line.p, '=', line.n))
        return err_set(err, ERR_INVALID, "%s: not of the form 'key = value'", where);
    if (str_has_nul(line))
        return err_set(err, ERR_INVALID, "%s: holds a NUL byte", where);

    struct str name = str_trim(str_cut(&line, '='));
    const struct conf_key *key = conf_find(name);
    if (!key || !str_is(name, key->name)) /* in the file only the underscore form */
        return unknown(name, where, err);
    autofree char *value = xmemdup0(line.p, line.n);
    return set_key(conf, CONF_FILE, key, value, where, err);
}

int conf_parse(struct conf *conf, struct str text, const char *where, struct err *err)
{
    unsigned number = 0;

    if (text.n > CONF_FILE_MAX)
        return err_set(err, ERR_LIMIT, "%s: longer than %d bytes", where, CONF_FILE_MAX);
    while (text.n) {
        autofree char *here = xprintf("%s:%u", where, ++number);

        if (parse_line(conf, str_cut(&text, '\n'), here, err) < 0)
            return -1;
    }
    return 0;
}

static int file_fits(int fd, const char *path, struct err *err)
{
    struct stat st;

    if (fstat(fd, &st) < 0)
        return err_sys(err, "%s", path);
    if (!S_ISREG(st.st_mode))
        return err_set(err, ERR_INVALID, "%s: not a regular file", path);
    if (st.st_mode & S_IWOTH)
        return err_set(err, ERR_INVALID, "%s: writable by everybody; chmod o-w it", path);
    return 0;
}

int conf_file(struct conf *conf, const char *path, bool must_exist, struct err *err)
{
    /* Not blocking: a FIFO of that name must not hold the start. */
    autoclose int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    autobuf struct buf text = { .max = CONF_FILE_MAX + 4097 };

    if (fd < 0 && errno == ENOENT && !must_exist)
        return 0;
    if (fd < 0)
        return err_sys(err, "settings file %s", path);
    if (file_fits(fd, path, err) < 0)
        return -1;
    while (text.len <= CONF_FILE_MAX) {
        ssize_t got = read(fd, buf_reserve(&text, 4096), 4096);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return err_sys(err, "settings file %s", path);
        if (got == 0)
            break;
        text.len += (size_t)got;
    }
    return conf_parse(conf, buf_view(&text), path, err);
}

int conf_load(struct conf *conf, struct err *err)
{
    const char *named = conf_text(conf, "config");
    autofree char *own = geteuid() == 0 ? NULL : user_file();

    if (named[0])
        return conf_file(conf, named, true, err);
    struct stat st;
    if (own && stat(own, &st) == 0)
        return conf_file(conf, own, true, err);
    return conf_file(conf, CONF_FILE_SYSTEM, false, err);
}

/* ---- environment and flags ---- */

int conf_env(struct conf *conf, char **environ_, struct err *err)
{
    for (const struct conf_key *key = conf_table; key->name; key++) {
        autobuf struct buf name = { 0 };
        struct str assign, found = STR_NONE;

        conf_env_name(key, &name);
        buf_putc(&name, '=');
        for (char **var = environ_; var && *var && !found.p; var++) {
            assign = str_of(*var);
            if (str_starts(assign, buf_view(&name)))
                found = str_from(assign, name.len);
        }
        if (!found.n)
            continue;
        name.len--;
        if (set_key(conf, CONF_ENV, key, found.p, buf_cstr(&name), err) < 0)
            return -1;
    }
    return 0;
}

/* The setting that a flag names; *no is true for the --no-… form of a boolean. */
static const struct conf_key *flag_key(struct str name, bool *no)
{
    const struct conf_key *key = conf_find(name);

    *no = false;
    if (key || !str_starts(name, STR("no-")))
        return key;
    key = conf_find(str_from(name, 3));
    *no = true;
    return key && key->type == CONF_BOOL ? key : NULL;
}

int conf_args(struct conf *conf, char **args, struct err *err)
{
    for (; args && *args; args++) {
        struct str name = str_of(*args), value;
        bool no;

        if (!str_starts(name, STR("--")) || name.n == 2)
            return err_set(err, ERR_INVALID, "unexpected argument '%s'", *args);
        value = str_from(name, 2);
        name = str_cut(&value, '=');
        bool inlined = name.p[name.n] == '=';
        const struct conf_key *key = flag_key(name, &no);
        if (!key)
            return unknown(name, "flags", err);

        autobuf struct buf where = { 0 };
        conf_flag_name(key, &where);
        const char *text = value.p;
        if (key->type == CONF_BOOL && !inlined)
            text = no ? "false" : "true";
        else if (!inlined && !(text = *++args))
            return err_field(err, key->name, "%s needs a value", buf_cstr(&where));
        if (set_key(conf, CONF_FLAG, key, text, buf_cstr(&where), err) < 0)
            return -1;
    }
    return 0;
}

/* ---- reading ---- */

const char *conf_text(const struct conf *conf, const char *name)
{
    enum conf_source source;
    const struct slot *slot = slot_of(conf, must_find(name), &source);

    return slot ? slot->text : "";
}

int64_t conf_int(const struct conf *conf, const char *name)
{
    enum conf_source source;
    const struct slot *slot = slot_of(conf, must_find(name), &source);

    return slot ? slot->num : 0;
}

bool conf_bool(const struct conf *conf, const char *name)
{
    return conf_int(conf, name) != 0;
}

const char *const *conf_list(const struct conf *conf, const char *name)
{
    static const char *const none[] = { NULL };
    enum conf_source source;
    const struct slot *slot = slot_of(conf, must_find(name), &source);

    return slot && slot->items ? (const char *const *)slot->items : none;
}

enum conf_source conf_source(const struct conf *conf, const char *name, const char **where)
{
    enum conf_source source;
    const struct slot *slot = slot_of(conf, must_find(name), &source);

    if (where)
        *where = slot ? slot->where : "default";
    return source;
}

const char *conf_source_name(enum conf_source source)
{
    static const char *const names[CONF_SOURCES] = { "default", "file", "environment", "flag" };

    return (unsigned)source < CONF_SOURCES ? names[source] : "?";
}

bool conf_same(const struct conf *a, const struct conf *b, const char *name)
{
    return strcmp(conf_text(a, name), conf_text(b, name)) == 0;
}
