/*
 * Whatever the bytes: decoding accepts exactly what a naive reader accepts, never grows the text
 * and never yields NUL; an accepted path stays inside "/" when its decoded segments are walked;
 * every byte of a query but the separators is given back once.
 */
#include "http/url.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define must(cond)                                                                                 \
    do {                                                                                           \
        if (!(cond))                                                                               \
            abort();                                                                               \
    } while (0)

static bool naive_ok(struct str text)
{
    for (size_t i = 0; i < text.n; i++) {
        if (text.p[i] == 0)
            return false;
        if (text.p[i] != '%')
            continue;
        char digits[3] = { i + 1 < text.n ? text.p[i + 1] : 0, i + 2 < text.n ? text.p[i + 2] : 0,
                           0 };
        if (strspn(digits, "0123456789abcdefABCDEF") != 2 || strtol(digits, NULL, 16) == 0)
            return false;
        i += 2;
    }
    return true;
}

static void check_path(struct arena *arena, struct str path)
{
    int depth = 0;

    if (!url_path_ok(path))
        return;
    for (struct str rest = str_from(path, 1); rest.n;) {
        struct str name;

        must(url_decode(arena, str_cut(&rest, '/'), false, &name));
        must(name.n > 0 && !memchr(name.p, '/', name.n) && !memchr(name.p, '\\', name.n));
        must(!str_is(name, ".") && !str_is(name, ".."));
        depth++;
    }
    must(depth > 0 || path.n == 1);
}

static void check_query(struct str query)
{
    struct str rest = query, key, value;
    size_t bytes = 0;

    while (url_query_next(&rest, &key, &value)) {
        must(!key.n || (!memchr(key.p, '&', key.n) && !memchr(key.p, '=', key.n)));
        must(!value.n || !memchr(value.p, '&', value.n));
        bytes += key.n + value.n;
    }
    must(bytes <= query.n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str text = { (const char *)data, size }, out = STR_NONE;
    autoarena struct arena arena = { 0 };

    for (int plus = 0; plus < 2; plus++) {
        bool good = url_decode(&arena, text, plus, &out);

        must(good == naive_ok(text));
        must(!good || (out.n <= text.n && !str_has_nul(out)));
    }
    check_path(&arena, text);
    check_query(text);
    if (url_host_ok(text))
        for (size_t i = 0; i < size; i++)
            must(data[i] > ' ' && data[i] < 0x7f && !memchr("/\\@#?%", data[i], 6));
    return 0;
}
