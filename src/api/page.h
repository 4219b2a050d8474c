/*
 * page - lists that grow with use, answered a page at a time by handlers on the loop.
 *
 * The items of such a list have ids and a fixed order. A page goes on behind the id `after` and
 * ends at the first of four bounds: the `limit` that was asked for, PAGE_DEFAULT unless said;
 * PAGE_BYTES bytes of answer; PAGE_LOOK_MAX items looked at, so that a filter that fits few of them
 * does not hold the loop; the end of the list. The answer is {"items":[…],"next":ID}: `next` is the
 * `after` of the next page, and null only at the end. A page may therefore be shorter than its
 * limit, or empty, and still have a `next`.
 *
 * What comes and goes between two pages moves nothing else: no item is given twice, and none that
 * was there all the time is left out.
 */
#pragma once

#include "api/api.h"

#define PAGE_QUERY "after:string,limit:int"
#define PAGE_SUMMARY                                                                               \
    "a page of at most `limit` (100) behind the id `after`. `next` is the `after` of the next "    \
    "page, null at the end; a page may be shorter than `limit` and have a `next`."

struct page {
    struct call *call;
    struct json_out json;
    const char *after; /* an id; NULL: begin at the first */
    int64_t limit, put;
    unsigned looked;
    bool more;          /* it ended before the list did */
    char last[ID_SIZE]; /* the last one looked at */
};

/* Reads `after`, an id with this prefix, and `limit`, and begins the answer. */
must_use int page_open(struct page *page, struct call *call, const char *prefix, struct err *err);
/*
 * The next item: its row is added by the route's `items` if it fits. False: the page was full, this
 * item is the next page's, and page_close is to follow.
 */
must_use bool page_take(struct page *page, const char *id, bool fits, const void *view);
void page_close(struct page *page);
