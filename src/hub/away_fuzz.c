/* Any bytes as a message: read to their end, and a stop behind them changes no verdict to allowed.
 */
#include <stdlib.h>

#include "base/buf.h"
#include "hub/away.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const allow[] = { "localhost", "127.0.0.0/8", "::1", NULL };
    static const char *const schemes[] = { "http", "https", NULL };
    static struct away *filter;
    autobuf struct buf text = { 0 };

    if (!filter && away_new(&filter, allow, schemes, NULL) < 0)
        abort();
    bool hit = away_hit(filter, (struct str){ (const char *)data, size });
    buf_puts(&text, "http://evil.com ");
    buf_append(&text, data, size);
    if (!away_hit(filter, buf_view(&text)))
        abort();
    buf_clear(&text);
    buf_append(&text, data, size);
    buf_puts(&text, " x");
    if (hit && !away_hit(filter, buf_view(&text)))
        abort();
    return 0;
}
