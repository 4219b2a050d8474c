/*
 * Reading headers, strictly: a checksum that does not fit, a number with anything but its digits,
 * a record whose length lies or a NUL inside a name make it no archive at all, because two readers
 * that guess differently about the same bytes is how files are smuggled.
 */
#include <string.h>

#include "tree/tar.h"

/* Octal digits between spaces and NULs, or GNU's base 256. */
static bool number(const char *field, size_t len, bool negative_ok, int64_t *out)
{
    const unsigned char *at = (const unsigned char *)field;
    uint64_t value = 0;
    size_t i = 0;

    if (at[0] & 0x80) {
        bool negative = at[0] == 0xff;

        if (at[0] != 0x80 && !negative)
            return false;
        for (i = 1; i + 8 < len; i++)
            if (at[i] != (negative ? 0xff : 0))
                return false; /* more than 64 bits */
        for (; i < len; i++)
            value = value << 8 | at[i];
        if (negative ? !negative_ok || value < (UINT64_C(1) << 63) : value > INT64_MAX)
            return false;
        *out = (int64_t)value;
        return true;
    }
    while (i < len && at[i] == ' ')
        i++;
    for (; i < len && at[i] >= '0' && at[i] <= '7'; i++)
        value = value << 3 | (uint64_t)(at[i] - '0'); /* at most 12 digits: no overflow */
    for (; i < len; i++)
        if (at[i] != ' ' && at[i] != 0)
            return false;
    *out = (int64_t)value;
    return true;
}

static bool sum_ok(const char *block, const struct tar_raw *raw)
{
    const unsigned char *bytes = (const unsigned char *)block;
    size_t at = offsetof(struct tar_raw, sum);
    uint32_t sum = 0;
    int64_t said;

    for (size_t i = 0; i < TAR_BLOCK; i++)
        sum += i >= at && i < at + sizeof(raw->sum) ? ' ' : bytes[i];
    return number(raw->sum, sizeof(raw->sum), false, &said) && said == sum;
}

/* A field that ends at its first NUL; nothing but NULs may follow. */
static bool text(const char *field, size_t len, char *out)
{
    size_t used = strnlen(field, len);

    for (size_t i = used; i < len; i++)
        if (field[i])
            return false;
    memcpy(out, field, used);
    out[used] = 0;
    return true;
}

static bool take_names(const struct tar_raw *raw, struct tar_head *out)
{
    bool posix = memcmp(raw->magic, "ustar\0", 6) == 0;
    size_t len = 0;

    if (posix && raw->prefix[0]) {
        if (!text(raw->prefix, sizeof(raw->prefix), out->path))
            return false;
        len = strlen(out->path);
        out->path[len++] = '/';
    }
    /* Old writers leave rubbish behind the NUL of a name; newer ones do not, and we are strict. */
    return text(raw->name, sizeof(raw->name), out->path + len) &&
           text(raw->link, sizeof(raw->link), out->link);
}

int tar_head_parse(const char block[TAR_BLOCK], struct tar_head *out)
{
    struct tar_raw raw;
    int64_t mode, size, mtime;
    bool zero = true;

    for (size_t i = 0; i < TAR_BLOCK && zero; i++)
        zero = block[i] == 0;
    if (zero)
        return 0;
    memcpy(&raw, block, sizeof(raw));
    *out = (struct tar_head){ .type = raw.type };
    if (!sum_ok(block, &raw) || !number(raw.mode, sizeof(raw.mode), false, &mode) ||
        !number(raw.size, sizeof(raw.size), false, &size) ||
        !number(raw.mtime, sizeof(raw.mtime), true, &mtime) || !take_names(&raw, out))
        return -1;
    if (out->type == 0 || out->type == '7')
        out->type = '0';
    out->mode = (uint32_t)mode & 07777;
    out->size = (uint64_t)size;
    out->mtime = mtime;
    return 1;
}

/* ---- extended headers ---- */

static bool decimal(const char *p, size_t n, uint64_t *out)
{
    if (n == 0 || n > 18)
        return false;
    *out = 0;
    for (size_t i = 0; i < n; i++) {
        if (p[i] < '0' || p[i] > '9')
            return false;
        *out = *out * 10 + (uint64_t)(p[i] - '0');
    }
    return true;
}

static bool take_text(const char *value, size_t len, char out[TREE_PATH_MAX + 1])
{
    if (len == 0 || len > TREE_PATH_MAX || memchr(value, 0, len))
        return false;
    memcpy(out, value, len);
    out[len] = 0;
    return true;
}

static bool take_mtime(const char *value, size_t len, int64_t *out)
{
    bool negative = len && value[0] == '-';
    const char *dot = memchr(value, '.', len);
    size_t whole = dot ? (size_t)(dot - value) : len;
    uint64_t seconds;

    if (!decimal(value + negative, whole - negative, &seconds))
        return false;
    for (size_t i = whole + 1; i < len; i++)
        if (value[i] < '0' || value[i] > '9')
            return false;
    *out = negative ? -(int64_t)seconds : (int64_t)seconds;
    return true;
}

static bool is(const char *key, size_t len, const char *name)
{
    return len == strlen(name) && memcmp(key, name, len) == 0;
}

static bool take_record(const char *key, size_t key_len, const char *value, size_t len,
                        struct tar_extra *out)
{
    if (is(key, key_len, "path"))
        return out->has_path = take_text(value, len, out->path);
    if (is(key, key_len, "linkpath"))
        return out->has_link = take_text(value, len, out->link);
    if (is(key, key_len, "size"))
        return out->has_size = decimal(value, len, &out->size);
    if (is(key, key_len, "mtime"))
        return out->has_mtime = take_mtime(value, len, &out->mtime);
    /* Sparse files keep their map in the data: read as plain files they would be wrong. */
    return key_len < 11 || memcmp(key, "GNU.sparse.", 11) != 0;
}

bool tar_pax_parse(const char *data, size_t len, struct tar_extra *out)
{
    while (len) {
        const char *space = memchr(data, ' ', MIN(len, (size_t)19));
        uint64_t whole;

        if (!space || !decimal(data, (size_t)(space - data), &whole) || whole > len ||
            whole < (uint64_t)(space - data) + 4 || data[whole - 1] != '\n')
            return false;
        const char *key = space + 1, *end = data + whole - 1;
        const char *equals = memchr(key, '=', (size_t)(end - key));
        if (!equals || equals == key ||
            !take_record(key, (size_t)(equals - key), equals + 1, (size_t)(end - equals - 1), out))
            return false;
        data += whole;
        len -= (size_t)whole;
    }
    return true;
}

bool tar_long_parse(const char *data, size_t len, char type, struct tar_extra *out)
{
    if (len && data[len - 1] == 0)
        len--;
    if (type == 'L')
        return out->has_path = take_text(data, len, out->path);
    return out->has_link = take_text(data, len, out->link);
}

void tar_extra_apply(const struct tar_extra *extra, struct tar_head *head)
{
    if (extra->has_path)
        memcpy(head->path, extra->path, strlen(extra->path) + 1);
    if (extra->has_link)
        memcpy(head->link, extra->link, strlen(extra->link) + 1);
    if (extra->has_size)
        head->size = extra->size;
    if (extra->has_mtime)
        head->mtime = extra->mtime;
    /*
     * Before there was a type for directories, a '/' at the end said so. Only of the whole name:
     * the header of a long one holds its beginning, which may end with any byte.
     */
    size_t len = strlen(head->path);
    if (head->type == '0' && len && head->path[len - 1] == '/')
        head->type = '5';
}

int tar_path_clean(char *path, enum tree_why *why)
{
    size_t to = 0, depth = 0;
    const char *at = path;

    *why = TREE_OUTSIDE;
    if (*at == '/')
        return -1;
    while (*at) {
        size_t part = strcspn(at, "/");

        if (part == 2 && at[0] == '.' && at[1] == '.')
            return -1;
        if (part && !(part == 1 && at[0] == '.')) {
            if (part > TREE_NAME_MAX || ++depth > TREE_DEPTH_MAX) {
                *why = TREE_LIMIT;
                return -1;
            }
            if (to)
                path[to++] = '/';
            memmove(path + to, at, part);
            to += part;
        }
        at += part;
        at += strspn(at, "/");
    }
    path[to] = 0;
    return to ? 1 : 0;
}
