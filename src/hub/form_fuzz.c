/* Any bytes as a form: what is given out lies within them. The first line is the type. */
#include <stdlib.h>

#include "hub/hub.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(struct str all, struct str part)
{
    if (part.n && (part.p < all.p || part.p + part.n > all.p + all.n))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str body = { (const char *)data, size };
    struct str type = str_cut(&body, '\n');
    struct hub_form form;

    if (hub_form_parse(type, body, &form, NULL) < 0)
        return 0;
    if (!form.has_file)
        abort();
    check(body, form.filename);
    check(body, form.data);
    check(body, form.uploader);
    return 0;
}
