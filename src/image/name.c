/* Names of entries and digests: see own.h. */
#include <stdio.h>

#include "base/show.h"
#include "image/own.h"

static int add_part(struct image_name *name, size_t *len, struct str part, struct err *err)
{
    size_t base = strlen(name->base);

    if (part.n >= sizeof(name->base))
        return err_set(err, ERR_INVALID, "a name of %zu bytes: %s", part.n, name_show(part.p));
    if (base) { /* what was the last part is a directory after all */
        if (*len + base + 2 > sizeof(name->dir))
            return err_set(err, ERR_INVALID, "a path of more than %d bytes: %s", IMAGE_PATH_MAX,
                           name_show(name->dir));
        if (*len)
            name->dir[(*len)++] = '/';
        memcpy(name->dir + *len, name->base, base + 1);
        *len += base;
    }
    memcpy(name->base, part.p, part.n);
    name->base[part.n] = 0;
    return 0;
}

int name_parse(struct image_name *name, const char *text, struct err *err)
{
    struct str rest = str_of(text);
    unsigned depth = 0;
    size_t len = 0;

    name->dir[0] = name->base[0] = 0;
    while (rest.n) {
        struct str part = str_cut(&rest, '/');

        if (!part.n || str_is(part, "."))
            continue;
        if (str_is(part, "..") && guard(dots))
            return err_set(err, ERR_INVALID, "a name that leads out of the archive: %s",
                           name_show(text));
        if (++depth > IMAGE_DEPTH_MAX && guard(depth))
            return err_set(err, ERR_INVALID, "more than %d directories deep: %s", IMAGE_DEPTH_MAX,
                           name_show(text));
        if (add_part(name, &len, part, err) < 0)
            return -1;
    }
    return 0;
}

const char *name_show(const char *text)
{
    static char shown[2][128]; /* one thread */
    static unsigned turn;
    autobuf struct buf out = { 0 };
    struct str all = str_of(text);
    char *to = shown[turn++ % 2];

    show_text(&out, (struct str){ all.p, MIN(all.n, 96) });
    snprintf(to, sizeof(shown[0]), "%.*s%s", (int)MIN(out.len, 100), out.data ? out.data : "",
             all.n > 96 || out.len > 100 ? "…" : "");
    return to;
}

void digest_text(const unsigned char digest[SHA256_SIZE], char out[IMAGE_DIGEST_SIZE])
{
    memcpy(out, "sha256:", sizeof("sha256:"));
    hex_text(digest, SHA256_SIZE, out + 7);
}

bool digest_ok(struct str text)
{
    if (text.n != 7 + 64 || !str_starts(text, STR("sha256:")))
        return false;
    for (size_t i = 7; i < text.n; i++)
        if (!((text.p[i] >= '0' && text.p[i] <= '9') || (text.p[i] >= 'a' && text.p[i] <= 'f')))
            return false;
    return true;
}
