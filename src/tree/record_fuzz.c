/* Records of a hostile sandbox: taken one after another, as the api does. */
#include <stdlib.h>
#include <string.h>

#include "tree/tree.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *at = (const char *)data;
    struct tree_entry entry;
    ssize_t took;

    while (size && (took = tree_record_take(at, size, &entry)) > 0) {
        if ((size_t)took > size || entry.name < at || entry.head.name_len == 0 ||
            entry.link + entry.head.link_len != at + took || entry.name[0] == '/' ||
            memchr(entry.name, 0, entry.head.name_len))
            abort();
        at += took;
        size -= (size_t)took;
    }
    return 0;
}
