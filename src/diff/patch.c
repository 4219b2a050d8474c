/*
 * How it works: a header says what kind of change it is, then hunks of text or a binary patch give
 * the bytes (gitformat: diff-format, "generate-patch-format"; apply.c is what must read it). A file
 * that became a symlink, or the other way round, is removed and made, as git does it. Binary
 * patches hold both directions, deflated, so that they can be undone too.
 */
#include "diff/patch.h"

#include <stdio.h>
#include <zlib.h>

#include "base/hash.h"
#include "base/limits.h"
#include "base/mem.h"
#include "diff/lines.h"

#define CONTEXT 3
#define HASH_SHORT 7
#define BINARY_LINE 52 /* bytes of one line of base 85 */
#define HASH_NONE "0000000000000000000000000000000000000000"

/* ---- paths ---- */

bool patch_path_ok(struct str path)
{
    if (!path.n || str_has_nul(path) || path.p[path.n - 1] == '/')
        return false;
    while (path.n) {
        struct str part = str_cut(&path, '/');

        if (!part.n || str_is(part, ".") || str_is(part, ".."))
            return false;
    }
    return true;
}

/* What NTFS drops from the end of a name, and its second names for one. */
static bool part_is_git(struct str part)
{
    if (part.n >= 5 && str_eq_nocase((struct str){ part.p, 5 }, STR("git~1")))
        part = str_from(part, 5);
    else if (part.n >= 4 && str_eq_nocase((struct str){ part.p, 4 }, STR(".git")))
        part = str_from(part, 4);
    else
        return false;
    while (part.n && (part.p[0] == ' ' || part.p[0] == '.'))
        part = str_from(part, 1);
    return !part.n || part.p[0] == ':' || part.p[0] == '\\';
}

bool patch_path_is_git(struct str path, bool link)
{
    struct str part = STR_NONE;

    while (path.n) {
        struct str rest = part = str_cut(&path, '/');

        while (rest.n)
            if (part_is_git(str_cut(&rest, '\\')))
                return true;
        if (part_is_git(part))
            return true;
    }
    return link && part.n >= 11 && str_eq_nocase((struct str){ part.p, 11 }, STR(".gitmodules"));
}

void patch_quote(struct buf *out, const char *prefix, struct str name)
{
    static const char letters[] = "abtnvfr"; /* of 7 to 13 */
    bool plain = true;

    for (size_t i = 0; i < name.n; i++) {
        unsigned char c = (unsigned char)name.p[i];

        plain = plain && c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
    }
    if (plain) {
        buf_puts(out, prefix);
        buf_str(out, name);
        return;
    }
    buf_putc(out, '"');
    buf_puts(out, prefix);
    for (size_t i = 0; i < name.n; i++) {
        unsigned char c = (unsigned char)name.p[i];

        if (c == '"' || c == '\\')
            buf_printf(out, "\\%c", c);
        else if (c >= 7 && c <= 13)
            buf_printf(out, "\\%c", letters[c - 7]);
        else if (c < 0x20 || c >= 0x7f)
            buf_printf(out, "\\%03o", c);
        else
            buf_putc(out, (char)c);
    }
    buf_putc(out, '"');
}

/* ---- binary ---- */

void patch_base85(struct buf *out, struct str data)
{
    static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                 "!#$%&()*+-;<=>?@^_`{|}~";

    while (data.n) {
        size_t n = MIN(data.n, (size_t)BINARY_LINE);

        buf_putc(out, (char)(n <= 26 ? 'A' + n - 1 : 'a' + n - 27));
        for (size_t at = 0; at < n; at += 4) {
            uint32_t word = 0;
            char text[5];

            for (size_t i = 0; i < 4; i++)
                word = word << 8 | (at + i < n ? (unsigned char)data.p[at + i] : 0);
            for (size_t i = 5; i-- > 0; word /= 85)
                text[i] = digits[word % 85];
            buf_append(out, text, sizeof(text));
        }
        buf_putc(out, '\n');
        data = str_from(data, n);
    }
}

static void put_literal(struct buf *out, struct str data)
{
    uLongf len = compressBound(data.n);
    autofree Bytef *packed = xmalloc(len);

    if (compress2(packed, &len, (const Bytef *)data.p, data.n, Z_DEFAULT_COMPRESSION) != Z_OK)
        abort(); /* the room is enough by compressBound: only memory can be missing */
    buf_printf(out, "literal %zu\n", data.n);
    patch_base85(out, (struct str){ (const char *)packed, len });
    buf_putc(out, '\n');
}

/* ---- text ---- */

struct hunk {
    const struct lines *before, *after;
    const struct lines_script *script;
    size_t first, end; /* changes */
    uint32_t lead, tail;
};

static void put_line(struct buf *out, char mark, struct str line)
{
    buf_putc(out, mark);
    buf_str(out, line);
    if (line.n && line.p[line.n - 1] != '\n')
        buf_puts(out, "\n\\ No newline at end of file\n");
}

static void put_span(struct buf *out, char mark, uint32_t at, uint32_t count)
{
    buf_printf(out, "%c%u", mark, count ? at + 1 : at);
    if (count != 1)
        buf_printf(out, ",%u", count);
}

static void put_hunk(struct buf *out, const struct hunk *h)
{
    const struct lines_change *first = &h->script->at[h->first], *last = &h->script->at[h->end - 1];
    uint32_t old_at = first->old_at - h->lead, new_at = first->new_at - h->lead;
    uint32_t at = old_at;

    buf_puts(out, "@@ ");
    put_span(out, '-', old_at, last->old_at + last->old_count + h->tail - old_at);
    buf_putc(out, ' ');
    put_span(out, '+', new_at, last->new_at + last->new_count + h->tail - new_at);
    buf_puts(out, " @@\n");
    for (const struct lines_change *change = first; change <= last; change++) {
        while (at < change->old_at)
            put_line(out, ' ', h->before->at[at++]);
        for (uint32_t i = 0; i < change->old_count; i++)
            put_line(out, '-', h->before->at[at++]);
        for (uint32_t i = 0; i < change->new_count; i++)
            put_line(out, '+', h->after->at[change->new_at + i]);
    }
    for (uint32_t i = 0; i < h->tail; i++)
        put_line(out, ' ', h->before->at[at++]);
}

static void put_hunks(struct buf *out, const struct lines *before, const struct lines *after)
{
    autoscript struct lines_script script = { 0 };

    lines_compare(before, after, &script);
    for (size_t i = 0; i < script.count;) {
        struct hunk h = { before, after, &script, .first = i };
        uint32_t end;

        h.lead = MIN((uint32_t)CONTEXT, script.at[i].old_at);
        do { /* changes whose context would touch share a hunk */
            end = script.at[i].old_at + script.at[i].old_count;
            i++;
        } while (i < script.count && script.at[i].old_at - end <= 2 * CONTEXT);
        h.end = i;
        h.tail = MIN((uint32_t)CONTEXT, before->count - end);
        put_hunk(out, &h);
    }
}

/* ---- one file ---- */

static void blob_name(const struct patch_side *side, char name[SHA1_HEX_SIZE])
{
    char head[32];
    unsigned char digest[SHA1_SIZE];

    if (!side->mode) {
        snprintf(name, SHA1_HEX_SIZE, "%s", HASH_NONE);
        return;
    }
    int len = snprintf(head, sizeof(head), "blob %zu", side->data.n);
    const struct str parts[] = { { head, (size_t)len + 1 }, side->data };
    sha1_parts(parts, ARRAY_LEN(parts), digest);
    hex_text(digest, sizeof(digest), name);
}

static void put_name(struct buf *out, const char *sign, const char *prefix,
                     const struct patch_side *side, struct str path)
{
    buf_puts(out, sign);
    if (side->mode)
        patch_quote(out, prefix, path);
    else
        buf_puts(out, "/dev/null");
    /* Where the name ends, if it holds a space: otherwise a date might seem to follow. */
    if (side->mode && memchr(path.p, ' ', path.n))
        buf_putc(out, '\t');
    buf_putc(out, '\n');
}

static void put_head(struct buf *out, const struct patch_file *file)
{
    buf_puts(out, "diff --git ");
    patch_quote(out, "a/", file->path);
    buf_putc(out, ' ');
    patch_quote(out, "b/", file->path);
    buf_putc(out, '\n');
    if (!file->before.mode)
        buf_printf(out, "new file mode %06o\n", file->after.mode);
    else if (!file->after.mode)
        buf_printf(out, "deleted file mode %06o\n", file->before.mode);
    else if (file->before.mode != file->after.mode)
        buf_printf(out, "old mode %06o\nnew mode %06o\n", file->before.mode, file->after.mode);
}

/* A binary patch is only taken with the whole names. */
static void put_index(struct buf *out, const struct patch_file *file, bool whole)
{
    char old_name[SHA1_HEX_SIZE], new_name[SHA1_HEX_SIZE];
    int n = whole ? SHA1_HEX_SIZE - 1 : HASH_SHORT;

    blob_name(&file->before, old_name);
    blob_name(&file->after, new_name);
    buf_printf(out, "index %.*s..%.*s", n, old_name, n, new_name);
    if (file->before.mode == file->after.mode)
        buf_printf(out, " %06o", file->after.mode);
    buf_putc(out, '\n');
}

static void put_one(struct buf *out, const struct patch_file *file)
{
    autolines struct lines before = { 0 }, after = { 0 };
    bool text = !str_has_nul(file->before.data) && !str_has_nul(file->after.data) &&
                lines_split(&before, file->before.data) && lines_split(&after, file->after.data);

    put_head(out, file);
    if (file->before.mode && file->after.mode && str_eq(file->before.data, file->after.data))
        return;
    put_index(out, file, !text);
    if (!text) {
        buf_puts(out, "GIT binary patch\n");
        put_literal(out, file->after.data);
        put_literal(out, file->before.data);
    } else if (before.count || after.count) {
        put_name(out, "--- ", "a/", &file->before, file->path);
        put_name(out, "+++ ", "b/", &file->after, file->path);
        put_hunks(out, &before, &after);
    }
}

void patch_put(struct buf *out, const struct patch_file *file)
{
    const struct patch_side *before = &file->before, *after = &file->after;

    if (before->mode == after->mode && str_eq(before->data, after->data))
        return;
    if (before->mode && after->mode &&
        (before->mode == PATCH_LINK) != (after->mode == PATCH_LINK)) {
        put_one(out, &(struct patch_file){ file->path, *before, { 0 } });
        put_one(out, &(struct patch_file){ file->path, { 0 }, *after });
        return;
    }
    put_one(out, file);
}
