/* A page of a list (page.h). */
#include "api/page.h"

#include <stdio.h>

int page_open(struct page *page, struct call *call, const char *prefix, struct err *err)
{
    *page = (struct page){ .call = call, .after = call_query(call, "after") };
    if (page->after && !id_valid(str_of(page->after), prefix))
        return err_field(err, "after", "the id that another page ended with");
    if (call_query_int(call, "limit", 1, PAGE_MAX, PAGE_DEFAULT, &page->limit, err) < 0)
        return -1;
    page->json = call_json(call);
    json_open(&page->json, '{');
    json_key(&page->json, "items");
    json_open(&page->json, '[');
    return 0;
}

static bool full(const struct page *page)
{
    return page->put >= page->limit || page->call->reply.len >= PAGE_BYTES;
}

bool page_take(struct page *page, const char *id, bool fits, const void *view)
{
    if ((fits && full(page)) || page->looked >= PAGE_LOOK_MAX) {
        page->more = true;
        return false;
    }
    page->looked++;
    snprintf(page->last, sizeof(page->last), "%s", id);
    if (fits) {
        field_encode(page->call->route->items, view, &page->json);
        page->put++;
    }
    return true;
}

void page_close(struct page *page)
{
    json_close(&page->json, ']');
    json_kv_text(&page->json, "next", page->more ? page->last : NULL);
    json_close(&page->json, '}');
}
