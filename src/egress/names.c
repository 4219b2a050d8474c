/* Two maps over one list, and a place in what is kept for each name. */
#include "egress/names.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "wire/egress.h"

#define FIRST 256u                     /* 198.18.1.0; before it are addresses of ours */
#define LAST (~EGRESS_NET_MASK - 256u) /* 198.19.254.255 */

_Static_assert(LAST - FIRST > EGRESS_NAMES_MAX * 2, "an address is not soon another name's");

struct name {
    struct list link;
    struct kept_name *kept;
    struct host host;
    uint32_t addr;
};

static struct str addr_key(const uint32_t *addr)
{
    return (struct str){ (const char *)addr, sizeof(*addr) };
}

/* The last write of a name that comes, and the first of one that goes. */
static void addr_write(struct kept_name *kept, uint32_t addr)
{
    __atomic_store_n(&kept->addr, addr, __ATOMIC_RELEASE);
}

static void name_free(struct names *names, struct name *name)
{
    map_del(&names->by_name, host_str(&name->host));
    map_del(&names->by_addr, addr_key(&name->addr));
    list_remove(&name->link);
    names->count--;
    free(name);
}

static struct name *oldest(const struct names *names)
{
    return list_entry(names->used.next, struct name, link);
}

static struct name *name_add(struct names *names, struct kept_name *kept, const struct host *host,
                             uint32_t addr)
{
    struct name *name = xnew(struct name);

    name->kept = kept;
    name->host = *host;
    name->addr = addr;
    map_put(&names->by_name, host_str(&name->host), name);
    map_put(&names->by_addr, addr_key(&name->addr), name);
    list_append(&names->used, &name->link);
    names->count++;
    return name;
}

static void touch(struct names *names, struct name *name)
{
    name->kept->used = ++names->kept->turn;
    list_remove(&name->link);
    list_append(&names->used, &name->link);
}

/* ---- found ---- */

static bool addr_ok(uint32_t addr)
{
    return (addr & EGRESS_NET_MASK) == EGRESS_NET && addr - EGRESS_NET >= FIRST &&
           addr - EGRESS_NET <= LAST;
}

static bool found(struct names *names, struct kept_name *kept, struct host *host)
{
    if (!addr_ok(kept->addr) || !memchr(kept->text, 0, sizeof(kept->text)) ||
        host_parse_name(str_of(kept->text), host, NULL) < 0)
        return false;
    return !map_get(&names->by_name, host_str(host)) &&
           !map_get(&names->by_addr, addr_key(&kept->addr));
}

static int by_use(const void *a, const void *b)
{
    const struct kept_name *x = *(struct kept_name *const *)a, *y = *(struct kept_name *const *)b;

    return (x->used > y->used) - (x->used < y->used);
}

void names_open(struct names *names, struct kept *kept)
{
    uint32_t top = MIN(kept->top, (uint32_t)EGRESS_NAMES_MAX);
    struct kept_name **all = xmalloc((top + 1) * sizeof(struct kept_name *));
    struct host host;

    *names = (struct names){ .kept = kept };
    for (uint32_t i = 0; i < top; i++)
        all[i] = &kept->names[i];
    qsort(all, top, sizeof(struct kept_name *), by_use);
    for (uint32_t i = 0; i < top; i++)
        if (found(names, all[i], &host))
            name_add(names, all[i], &host, all[i]->addr);
    free(all);
    kept->top = names->count ? top : 0;
}

void names_free(struct names *names)
{
    while (names->count)
        name_free(names, oldest(names));
    map_free(&names->by_name);
    map_free(&names->by_addr);
}

/* ---- used ---- */

static uint32_t addr_next(struct names *names)
{
    uint32_t *next = &names->kept->next, addr;

    do {
        if (*next < FIRST || *next > LAST)
            *next = FIRST;
        addr = EGRESS_NET + (*next)++;
    } while (map_get(&names->by_addr, addr_key(&addr)));
    return addr;
}

/* One that was never used, or that of the name that was used longest ago. */
static struct kept_name *place(struct names *names)
{
    struct kept *kept = names->kept;

    if (kept->top < EGRESS_NAMES_MAX)
        return &kept->names[kept->top];
    struct name *name = oldest(names);
    struct kept_name *its = name->kept;
    addr_write(its, 0);
    name_free(names, name);
    return its;
}

uint32_t names_put(struct names *names, const struct host *host)
{
    struct name *name = map_get(&names->by_name, host_str(host));

    if (!name) {
        struct kept_name *kept = place(names);

        memcpy(kept->text, host->text, sizeof(kept->text));
        name = name_add(names, kept, host, addr_next(names));
        addr_write(kept, name->addr);
        if (kept == &names->kept->names[names->kept->top])
            names->kept->top++;
    }
    touch(names, name);
    return name->addr;
}

bool names_get(struct names *names, uint32_t addr, struct host *out)
{
    struct name *name = map_get(&names->by_addr, addr_key(&addr));

    if (!name)
        return false;
    touch(names, name);
    *out = name->host;
    return true;
}
