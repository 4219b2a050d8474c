/*
 * A pattern is compared part by part between slashes. "**" as a whole part stands for any number of
 * parts, and is tried from few to many as '*' is within a name: going back to the last one is
 * enough, so the time is at most parts of the path times parts of the pattern. Within a part
 * fnmatch(3) does what git does, but for a '[' without its end, with which git matches nothing.
 */
#include "diff/ignore.h"

#include <fnmatch.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/limits.h"
#include "base/mem.h"

struct ignore_rule {
    struct str dir;      /* of the file that the rule stands in */
    const char *pattern; /* its parts, each with a NUL behind it */
    size_t parts;
    bool negated, only_dirs, anywhere; /* anywhere: one part, about the name in any directory */
};

/* ---- reading rules ---- */

/* Spaces at the end do not count unless escaped. */
static struct str without_spaces(struct str line)
{
    if (line.n && line.p[line.n - 1] == '\r')
        line.n--;
    while (line.n && line.p[line.n - 1] == ' ') {
        size_t slashes = 0;

        while (slashes + 1 < line.n && line.p[line.n - 2 - slashes] == '\\')
            slashes++;
        if (slashes % 2)
            break;
        line.n--;
    }
    return line;
}

/* Does every '[' of the part have its end, and every backslash something behind it? */
static bool is_whole(const char *part)
{
    for (const char *p = part; *p; p++) {
        if (*p == '\\' && !*++p)
            return false;
        if (*p != '[' || (p > part && p[-1] == '\\'))
            continue;
        p++;
        p += *p == '!' || *p == '^';
        p += *p == ']';
        while (*p && *p != ']')
            p += *p == '\\' && p[1] ? 2 : 1;
        if (!*p)
            return false;
    }
    return true;
}

static void add_rule(struct ignore *ignore, struct ignore_rule rule)
{
    if (ignore->count == IGNORE_RULES_MAX)
        return;
    if (ignore->count == ignore->cap) {
        ignore->cap = ignore->cap ? ignore->cap * 2 : 64;
        ignore->rules = xrealloc(ignore->rules, ignore->cap * sizeof(*ignore->rules));
    }
    ignore->rules[ignore->count++] = rule;
}

/* One line, cut into its parts where it lies. */
static void take_line(struct ignore *ignore, struct str dir, char *line, size_t len)
{
    struct ignore_rule rule = { .dir = dir, .parts = 1 };

    if (line[0] == '!') {
        rule.negated = true;
        line++;
        len--;
    }
    if (len && line[len - 1] == '/') {
        rule.only_dirs = true;
        line[--len] = 0;
    }
    rule.anywhere = !memchr(line, '/', len);
    if (len && line[0] == '/') {
        line++;
        len--;
    }
    if (!len || memchr(line, 0, len))
        return;
    rule.pattern = line;
    for (size_t i = 0; i < len; i++)
        if (line[i] == '/') {
            line[i] = 0;
            rule.parts++;
        }
    const char *part = line;
    for (size_t i = 0; i < rule.parts; i++, part += strlen(part) + 1)
        if (!is_whole(part))
            return;
    add_rule(ignore, rule);
}

void ignore_add(struct ignore *ignore, struct str dir, struct str text)
{
    /* One block: the directory, then the lines, each of which gets a NUL as its end. */
    char *copy = xmalloc(dir.n + text.n + 2);

    if (dir.n)
        memcpy(copy, dir.p, dir.n);
    if (text.n)
        memcpy(copy + dir.n, text.p, text.n);
    copy[dir.n + text.n] = 0;
    ignore->texts = xrealloc(ignore->texts, (ignore->text_count + 1) * sizeof(*ignore->texts));
    ignore->texts[ignore->text_count++] = copy;
    struct str own = { copy, dir.n }, rest = { copy + dir.n, text.n };
    if (str_starts(rest, STR("\xef\xbb\xbf")))
        rest = str_from(rest, 3);
    while (rest.n) {
        struct str line = without_spaces(str_cut(&rest, '\n'));
        char *at = copy + (line.p - copy);

        if (!line.n || *at == '#')
            continue;
        at[line.n] = 0;
        take_line(ignore, own, at, line.n);
    }
}

/* ---- tracked files ---- */

static uint32_t number(const char *p)
{
    const uint8_t *b = (const uint8_t *)p;

    return (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
}

struct index_reading {
    const char *p;
    size_t n, at;
    uint32_t version;
    char *names; /* what is found, behind one another */
    size_t len, cap, last;
};

static void keep_name(struct index_reading *in, size_t kept, const char *more, size_t len)
{
    size_t begin = in->len;

    if (!in->names || in->cap < in->len + kept + len + 1) {
        in->cap = (in->len + kept + len + 1) * 2;
        in->names = xrealloc(in->names, in->cap);
    }
    memmove(in->names + begin, in->names + in->last, kept);
    memcpy(in->names + begin + kept, more, len);
    in->len += kept + len;
    in->names[in->len++] = 0;
    in->last = begin;
}

/* How much of the name before is dropped: git's own variable-length number. */
static bool take_dropped(struct index_reading *in, size_t *out)
{
    size_t value = 0;

    for (bool first = true;; first = false) {
        if (in->at >= in->n || value > SIZE_MAX >> 9)
            return false;
        uint8_t byte = (uint8_t)in->p[in->at++];
        value = (first ? 0 : (value + 1) << 7) | (byte & 127);
        if (!(byte & 128))
            break;
    }
    *out = value;
    return true;
}

static bool take_entry(struct index_reading *in)
{
    size_t begin = in->at, dropped = 0, before = 0;

    if (in->n - in->at < 62)
        return false;
    bool is_tree = (number(in->p + begin + 24) & 0170000) == 0040000; /* of a sparse index */
    bool extended = in->p[begin + 60] & 0x40;
    in->at += extended ? 64 : 62;
    if (is_tree || (extended && in->version < 3))
        return false;
    if (in->version == 4) {
        before = in->len ? in->len - 1 - in->last : 0;
        if (!take_dropped(in, &dropped) || dropped > before)
            return false;
        before -= dropped;
    }
    if (in->at >= in->n)
        return false;
    const char *name = in->p + in->at, *end = memchr(name, 0, in->n - in->at);
    if (!end)
        return false;
    keep_name(in, before, name, (size_t)(end - name));
    size_t used = in->at + (size_t)(end - name) - begin;
    in->at = begin + (in->version == 4 ? used + 1 : (used + 8) / 8 * 8);
    return in->at <= in->n;
}

static int by_name(const void *a, const void *b)
{
    const struct str *x = a, *y = b;
    int order = memcmp(x->p, y->p, MIN(x->n, y->n));

    return order ? order : (x->n > y->n) - (x->n < y->n);
}

bool ignore_read_index(struct ignore *ignore, struct str bytes)
{
    struct index_reading in = { .p = bytes.p, .n = bytes.n, .at = 12 };

    if (bytes.n < 12 + 20 || memcmp(bytes.p, "DIRC", 4) != 0)
        return false;
    in.version = number(bytes.p + 4);
    uint32_t count = number(bytes.p + 8);
    bool ok = in.version >= 2 && in.version <= 4 && count <= bytes.n / 62;
    in.n -= 20; /* the checksum */
    for (uint32_t i = 0; ok && i < count; i++)
        ok = take_entry(&in);
    /* With a shared index beside this one ("link") this is not the whole list. */
    ok = ok && (in.n - in.at < 4 || memcmp(in.p + in.at, "link", 4) != 0);
    if (!ok) {
        free(in.names);
        return false;
    }
    free(ignore->names);
    free(ignore->tracked);
    ignore->names = in.names;
    ignore->tracked = xcalloc((size_t)count + 1, sizeof(*ignore->tracked));
    ignore->tracked_count = count;
    const char *name = in.names;
    for (uint32_t i = 0; i < count; i++, name += strlen(name) + 1)
        ignore->tracked[i] = str_of(name);
    if (count)
        qsort(ignore->tracked, count, sizeof(*ignore->tracked), by_name);
    ignore->knows_tracked = true;
    return true;
}

bool ignore_is_tracked(const struct ignore *ignore, struct str path)
{
    return ignore->tracked_count && bsearch(&path, ignore->tracked, ignore->tracked_count,
                                            sizeof(*ignore->tracked), by_name);
}

/* ---- matching ---- */

static bool part_matches(const char *pattern, struct str name)
{
    autofree char *text = xmemdup0(name.p, name.n);

    return fnmatch(pattern, text, FNM_PATHNAME) == 0;
}

static bool is_any_parts(const char *part)
{
    size_t stars = strspn(part, "*");

    return stars >= 2 && !part[stars];
}

/* `path` is below the rule's directory. */
static bool path_matches(const struct ignore_rule *rule, struct str path)
{
    const char *pattern = rule->pattern, *again = NULL;
    size_t left = rule->parts, again_left = 0;
    struct str rest = path, again_rest = STR_NONE;

    for (;;) {
        if (left && is_any_parts(pattern)) {
            pattern += strlen(pattern) + 1;
            if (--left == 0)
                return rest.n > 0; /* everything inside, not the directory itself */
            again = pattern;
            again_left = left;
            again_rest = rest;
            continue;
        }
        struct str after = rest, part = str_cut(&after, '/');
        if (left && rest.n && part_matches(pattern, part)) {
            pattern += strlen(pattern) + 1;
            left--;
            rest = after;
            if (!left && !rest.n)
                return true;
            continue;
        }
        if (!again || !again_rest.n)
            return false;
        (void)str_cut(&again_rest, '/'); /* one part more for the last "**" */
        if (!again_rest.n)
            return false;
        rest = again_rest;
        pattern = again;
        left = again_left;
    }
}

static bool rule_matches(const struct ignore_rule *rule, struct str path, bool is_dir)
{
    struct str below = path;

    if (rule->only_dirs && !is_dir)
        return false;
    if (rule->dir.n) {
        if (!str_starts(path, rule->dir) || path.n <= rule->dir.n || path.p[rule->dir.n] != '/')
            return false;
        below = str_from(path, rule->dir.n + 1);
    }
    if (!rule->anywhere)
        return path_matches(rule, below);
    const char *slash = memrchr(below.p, '/', below.n);
    return part_matches(rule->pattern,
                        slash ? str_from(below, (size_t)(slash + 1 - below.p)) : below);
}

/* Of this path alone. */
static bool says(const struct ignore *ignore, struct str path, bool is_dir)
{
    for (size_t i = ignore->count; i-- > 0;)
        if (rule_matches(&ignore->rules[i], path, is_dir))
            return !ignore->rules[i].negated;
    return false;
}

bool ignore_match(const struct ignore *ignore, struct str path, bool is_dir)
{
    for (size_t n = 1; n < path.n; n++)
        if (path.p[n] == '/' && says(ignore, (struct str){ path.p, n }, true))
            return true; /* nothing below such a directory can be taken in again */
    return path.n && says(ignore, path, is_dir);
}

void ignore_free(struct ignore *ignore)
{
    for (size_t i = 0; i < ignore->text_count; i++)
        free(ignore->texts[i]);
    free(ignore->texts);
    free(ignore->rules);
    free(ignore->names);
    free(ignore->tracked);
    *ignore = (struct ignore){ 0 };
}
