/* See bytes.h. */
#include "base/bytes.h"

#include <stdio.h>

const char *bytes_text(int64_t bytes, char out[BYTES_TEXT_SIZE])
{
    static const char units[] = "KMGTPE";
    double value = (double)bytes;
    int at = -1;

    while (value >= 1023.95 && units[at + 1]) { /* "1024.0 MiB" is never shown */
        value /= 1024;
        at++;
    }
    if (at < 0)
        snprintf(out, BYTES_TEXT_SIZE, "%lld byte%s", (long long)bytes, bytes == 1 ? "" : "s");
    else
        snprintf(out, BYTES_TEXT_SIZE, "%.*f %ciB", bytes % (1ll << (10 * (at + 1))) ? 1 : 0, value,
                 units[at]);
    return out;
}
