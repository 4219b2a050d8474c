/*
 * json under a fuzzer: whatever is accepted is UTF-8, holds no NUL, and comes back the same after
 * writing and reading it again; whatever is refused says why.
 */
#include <string.h>

#include "base/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool what)
{
    if (!what)
        abort();
}

static void write_tree(const struct json *root, struct buf *buf)
{
    struct json_out out = json_to(buf);

    json_put(&out, root);
    must(buf_ok(buf));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    autoarena struct arena arena = { 0 };
    autobuf struct buf once = { 0 }, twice = { 0 };
    struct str text = { (const char *)data, size };
    struct json *root = NULL, *again = NULL;
    struct err err = { 0 };

    if (json_parse(&arena, text, &root, &err) < 0) {
        must(!root && err.code != ERR_NONE && err.msg[0]);
        return 0;
    }
    must(str_utf8(text) && !str_has_nul(text));
    write_tree(root, &once);
    must(str_utf8(buf_view(&once)));
    must(json_parse(&arena, buf_view(&once), &again, &err) == 0);
    must(again->type == root->type && again->count == root->count);
    write_tree(again, &twice);
    must(str_eq(buf_view(&once), buf_view(&twice)));
    return 0;
}
