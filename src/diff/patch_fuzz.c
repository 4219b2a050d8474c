/*
 * lines and patch under a fuzzer: the first byte says how much is the old text, the rest is both.
 * The script turns one into the other; hunks have as many lines as they say; a binary patch, read
 * back, holds the data.
 */
#include <string.h>
#include <zlib.h>

#include "base/mem.h"
#include "diff/lines.h"
#include "diff/patch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool what)
{
    if (!what)
        abort();
}

static void check_lines(struct str before, struct str after, int64_t work)
{
    autolines struct lines a = { 0 }, b = { 0 };
    autoscript struct lines_script script = { 0 };
    autobuf struct buf made = { 0 };
    uint32_t at = 0;

    must(lines_split(&a, before) && lines_split(&b, after));
    lines_compare_within(&a, &b, work, &script);
    for (size_t i = 0; i < script.count; i++) {
        const struct lines_change *c = &script.at[i];

        must(c->old_at >= at && c->old_count <= a.count - c->old_at &&
             c->new_count <= b.count - c->new_at);
        while (at < c->old_at)
            buf_str(&made, a.at[at++]);
        at += c->old_count;
        for (uint32_t j = 0; j < c->new_count; j++)
            buf_str(&made, b.at[c->new_at + j]);
    }
    while (at < a.count)
        buf_str(&made, a.at[at++]);
    must(str_eq(buf_view(&made), after));
}

static void unbase85(struct buf *out, struct str *rest)
{
    static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                 "!#$%&()*+-;<=>?@^_`{|}~";

    for (struct str line; (line = str_cut(rest, '\n')).n;) {
        size_t n =
            line.p[0] <= 'Z' ? (size_t)(line.p[0] - 'A' + 1) : (size_t)(line.p[0] - 'a' + 27);

        must((line.n - 1) % 5 == 0 && (line.n - 1) / 5 == (n + 3) / 4);
        for (size_t at = 1; at < line.n; at += 5) {
            uint64_t word = 0;

            for (size_t i = 0; i < 5; i++) {
                const char *digit = strchr(digits, line.p[at + i]);

                must(digit != NULL);
                word = word * 85 + (size_t)(digit - digits);
            }
            must(word <= UINT32_MAX);
            for (size_t i = 0; i < 4 && n; i++, n--)
                buf_putc(out, (char)(word >> (24 - 8 * i)));
        }
    }
}

static void check_binary(struct str patch, struct str after)
{
    autobuf struct buf packed = { 0 };
    const char *at = memmem(patch.p, patch.n, "\nliteral ", 9);
    uLongf len = after.n + 1;
    autofree Bytef *plain = xmalloc(len);

    must(at != NULL);
    struct str rest = str_from(patch, (size_t)(at - patch.p) + 9);
    uint64_t said;
    must(str_to_u64(str_cut(&rest, '\n'), &said) && said == after.n);
    unbase85(&packed, &rest);
    must(uncompress(plain, &len, (const Bytef *)packed.data, packed.len) == Z_OK);
    must(len == after.n && memcmp(plain, after.p, len) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    autobuf struct buf text = { 0 };

    if (size < 2)
        return 0;
    size_t cut = (size - 1) * data[0] / 255;
    struct str before = { (const char *)data + 1, cut };
    struct str after = { (const char *)data + 1 + cut, size - 1 - cut };

    check_lines(before, after, 1 << 20);
    check_lines(before, after, data[0]);
    patch_put(&text,
              &(struct patch_file){ STR("f"), { PATCH_FILE, before }, { PATCH_FILE, after } });
    must(buf_ok(&text) && (text.len > 0) == !str_eq(before, after));
    if (text.len && (str_has_nul(before) || str_has_nul(after)))
        check_binary(buf_view(&text), after);
    buf_clear(&text);
    patch_quote(&text, "", before);
    for (size_t i = 0; i < text.len; i++)
        must(text.data[i] >= 0x20 && text.data[i] < 0x7f);
    (void)patch_path_ok(before);
    (void)patch_path_is_git(after, true);
    return 0;
}
