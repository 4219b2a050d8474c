/* Any bytes as a client's first message: the verdict about a whole one does not change with what
 * follows it, and no piece of it is called bad if the whole is not. */
#include "egress/hello.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct host host = { 0 }, again = { 0 };
    enum hello all = hello_read(data, size, &host);

    if (size > 4096)
        return 0;
    for (size_t i = 0; i < size; i++) {
        enum hello part = hello_read(data, i, &again);

        if (all == HELLO_MORE && part != HELLO_MORE)
            abort();
        if (all > HELLO_MORE && part == HELLO_BAD)
            abort();
        if (part > HELLO_MORE && part != all)
            abort();
    }
    if (all == HELLO_NAMED && host.kind != HOST_NAME)
        abort();
    return 0;
}
