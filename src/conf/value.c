/*
 * Types and ranges. A range is written in the table in the type's own notation ("1s..1h"), so the
 * same text serves the check, the message and the manual.
 */
#include "conf/value.h"

#include <limits.h>

#include "base/limits.h"
#include "base/mem.h"
#include "base/near.h"

const struct conf_key *conf_find(struct str name)
{
    for (const struct conf_key *key = conf_table; key->name; key++) {
        size_t len = strlen(key->name), at = 0;

        while (len == name.n && at < len &&
               (key->name[at] == name.p[at] || (key->name[at] == '_' && name.p[at] == '-')))
            at++;
        if (len == name.n && at == len)
            return key;
    }
    return NULL;
}

void conf_flag_name(const struct conf_key *key, struct buf *out)
{
    buf_puts(out, "--");
    for (const char *p = key->name; *p; p++)
        buf_putc(out, *p == '_' ? '-' : *p);
}

void conf_env_name(const struct conf_key *key, struct buf *out)
{
    buf_puts(out, "ATOLL_");
    for (const char *p = key->name; *p; p++)
        buf_putc(out, *p >= 'a' && *p <= 'z' ? (char)(*p - 'a' + 'A') : *p);
}

const char *key_near(struct str name)
{
    const char *best = NULL;
    unsigned least = UINT_MAX;

    for (const struct conf_key *key = conf_table; key->name; key++) {
        unsigned distance = near_distance(name, str_of(key->name));

        if (distance < least)
            least = distance, best = key->name;
    }
    return near_enough(least, name) ? best : NULL;
}

/* ---- places ---- */

/* $VARIABLE/atoll, or ~/below/atoll; relative values are ignored, as the XDG rules demand. */
static char *user_dir(const char *variable, const char *below)
{
    const char *dir = getenv(variable), *home = getenv("HOME");

    if (dir && dir[0] == '/')
        return xprintf("%s/atoll", dir);
    return home && home[0] == '/' ? xprintf("%s/%s/atoll", home, below) : NULL;
}

char *conf_state_default(void)
{
    char *dir = geteuid() == 0 ? NULL : user_dir("XDG_STATE_HOME", ".local/state");

    return dir ? dir : xstrdup("/var/lib/atoll");
}

char *user_file(void)
{
    autofree char *dir = user_dir("XDG_CONFIG_HOME", ".config");

    return dir ? xprintf("%s/atoll.conf", dir) : NULL;
}

/* ---- values ---- */

int value_plain(const struct conf_key *key, struct str text, struct err *err)
{
    if (text.n > CONF_VALUE_MAX)
        return err_set(err, ERR_LIMIT, "%s is longer than %d bytes", key->name, CONF_VALUE_MAX);
    for (size_t i = 0; i < text.n; i++)
        if ((unsigned char)text.p[i] < 0x20 || text.p[i] == 0x7f)
            return err_set(err, ERR_INVALID, "%s holds the control byte 0x%02x", key->name,
                           (unsigned)(unsigned char)text.p[i]);
    if (!str_utf8(text))
        return err_set(err, ERR_INVALID, "%s is not UTF-8", key->name);
    if (!text.n && key->type != CONF_LIST)
        return err_set(err, ERR_INVALID, "%s is empty", key->name);
    return 0;
}

static bool read_number(enum conf_type type, struct str text, int64_t *num)
{
    uint64_t value;

    if (type == CONF_INT)
        return str_to_i64(text, num);
    if (!(type == CONF_MS ? str_to_ms(text, &value) : str_to_bytes(text, &value)))
        return false;
    if (value > INT64_MAX)
        return false;
    *num = (int64_t)value;
    return true;
}

static int number(const struct conf_key *key, struct str text, int64_t *num, struct err *err)
{
    const char *form = key->type == CONF_MS      ? "a time such as 250ms, 30s, 5m, 2h or 7d"
                       : key->type == CONF_BYTES ? "a size such as 4096, 64k, 512M or 2G"
                                                 : "a whole number";
    int64_t value, low, high;

    if (!read_number(key->type, text, &value))
        return err_set(err, ERR_INVALID, "%s is '%.*s', not %s", key->name, STR_FMT(text), form);
    if (key->choices) {
        const char *dots = strstr(key->choices, "..");

        if (!dots ||
            !read_number(key->type, (struct str){ key->choices, (size_t)(dots - key->choices) },
                         &low) ||
            !read_number(key->type, str_of(dots + 2), &high))
            abort(); /* the table is wrong */
        if (value < low || value > high)
            return err_set(err, ERR_INVALID, "%s is %.*s, outside %s", key->name, STR_FMT(text),
                           key->choices);
    }
    *num = value;
    return 0;
}

static int truth(const struct conf_key *key, struct str text, int64_t *num, struct err *err)
{
    static const char *const words[] = { "false", "true", "off", "on", "no", "yes" };

    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (str_is(text, words[i])) {
            *num = i & 1;
            return 0;
        }
    return err_set(err, ERR_INVALID, "%s is '%.*s', not true or false", key->name, STR_FMT(text));
}

static int choice(const struct conf_key *key, struct str text, int64_t *num, struct err *err)
{
    struct str rest = str_of(key->choices);

    for (int64_t i = 0; rest.n; i++)
        if (str_eq(str_cut(&rest, '|'), text)) {
            *num = i;
            return 0;
        }
    return err_set(err, ERR_INVALID, "%s is '%.*s', not one of %s", key->name, STR_FMT(text),
                   key->choices);
}

static int path(const struct conf_key *key, struct str text, bool absolute, char **kept,
                struct err *err)
{
    if (text.p[0] == '/') {
        *kept = xmemdup0(text.p, text.n);
        return 0;
    }
    if (absolute)
        return err_set(err, ERR_INVALID, "%s is '%.*s'; in the file a path begins with '/'",
                       key->name, STR_FMT(text));
    autofree char *cwd = get_current_dir_name();
    if (!cwd)
        return err_sys(err, "%s: working directory", key->name);
    *kept = xprintf("%s/%.*s", strcmp(cwd, "/") == 0 ? "" : cwd, STR_FMT(text));
    return 0;
}

int value_read(const struct conf_key *key, struct str text, bool absolute, char **kept,
               int64_t *num, struct err *err)
{
    int rc = 0;

    switch (key->type) {
    case CONF_PATH:
        return path(key, text, absolute, kept, err);
    case CONF_BOOL:
        rc = truth(key, text, num, err);
        break;
    case CONF_ENUM:
        rc = choice(key, text, num, err);
        break;
    case CONF_INT:
    case CONF_BYTES:
    case CONF_MS:
        rc = number(key, text, num, err);
        break;
    case CONF_TEXT:
    case CONF_LIST:
        break;
    }
    if (rc == 0)
        *kept = xmemdup0(text.p, text.n);
    return rc;
}
