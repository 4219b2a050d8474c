/*
 * See pages.h. Every page in the cache has a number up to `largest`, but for one that may be at
 * `passing`. Both may be too large, never too small: then the real cache looks for itself.
 */
#include "store/pages.h"

#include <string.h>

#include "base/mem.h"

struct pages {
    sqlite3_pcache *real;
    unsigned largest;
    unsigned passing; /* 0: none */
};

static sqlite3_pcache_methods2 below;

static struct pages *own(sqlite3_pcache *cache)
{
    return (struct pages *)(void *)cache;
}

static int init(void *arg)
{
    (void)arg;
    return below.xInit ? below.xInit(below.pArg) : SQLITE_OK;
}

static void end(void *arg)
{
    (void)arg;
    if (below.xShutdown)
        below.xShutdown(below.pArg);
}

static sqlite3_pcache *create(int page, int extra, int purgeable)
{
    sqlite3_pcache *real = below.xCreate(page, extra, purgeable);

    if (!real)
        return NULL;
    struct pages *pages = xnew(struct pages);
    pages->real = real;
    return (sqlite3_pcache *)(void *)pages;
}

static void set_size(sqlite3_pcache *cache, int count)
{
    below.xCachesize(own(cache)->real, count);
}

static int count(sqlite3_pcache *cache)
{
    return below.xPagecount(own(cache)->real);
}

static sqlite3_pcache_page *fetch(sqlite3_pcache *cache, unsigned key, int make)
{
    struct pages *pages = own(cache);

    if (make && key > pages->largest)
        pages->largest = key;
    return below.xFetch(pages->real, key, make);
}

static void unpin(sqlite3_pcache *cache, sqlite3_pcache_page *page, int discard)
{
    below.xUnpin(own(cache)->real, page, discard);
}

static void rekey(sqlite3_pcache *cache, sqlite3_pcache_page *page, unsigned old, unsigned new)
{
    struct pages *pages = own(cache);

    below.xRekey(pages->real, page, old, new);
    if (old == pages->passing)
        pages->passing = 0;
    if (new <= pages->largest)
        return;
    if (pages->passing)
        pages->largest = new;
    else
        pages->passing = new;
}

static void drop_from(sqlite3_pcache *cache, unsigned limit)
{
    struct pages *pages = own(cache);

    if (limit > pages->largest && limit > pages->passing)
        return;
    below.xTruncate(pages->real, limit);
    if (pages->largest >= limit)
        pages->largest = limit - 1;
    if (pages->passing >= limit)
        pages->passing = 0;
}

static void destroy(sqlite3_pcache *cache)
{
    below.xDestroy(own(cache)->real);
    free(cache);
}

static void shrink(sqlite3_pcache *cache)
{
    below.xShrink(own(cache)->real);
}

sqlite3_pcache_methods2 pages_before(const sqlite3_pcache_methods2 *real)
{
    below = *real;
    return (sqlite3_pcache_methods2){
        .iVersion = 1,
        .xInit = init,
        .xShutdown = end,
        .xCreate = create,
        .xCachesize = set_size,
        .xPagecount = count,
        .xFetch = fetch,
        .xUnpin = unpin,
        .xRekey = rekey,
        .xTruncate = drop_from,
        .xDestroy = destroy,
        .xShrink = shrink,
    };
}

void pages_apply(void)
{
    sqlite3_pcache_methods2 real, ours;

    if (sqlite3_config(SQLITE_CONFIG_GETPCACHE2, &real) != SQLITE_OK || real.iVersion != 1)
        return; /* it is slower, and right */
    ours = pages_before(&real);
    (void)sqlite3_config(SQLITE_CONFIG_PCACHE2, &ours);
}
