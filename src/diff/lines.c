/*
 * How it works: equal lines get equal numbers. Lines that the other text does not have are changed
 * whatever else happens, so they are set aside; what is left is compared with Myers' algorithm in
 * linear space ("An O(ND) difference algorithm and its variations", 1986): from both corners of the
 * grid of all pairs of lines, the furthest points that d changes can reach are pushed on until they
 * meet; there the grid is cut into two smaller ones. The smaller ones wait on a stack of our own,
 * which stays short because every cut halves the number of changes.
 */
#include "diff/lines.h"

#include "base/limits.h"
#include "base/map.h"
#include "base/mem.h"

#define STACK_MAX 128
#define NOWHERE INT32_MIN

/* ---- lines ---- */

bool lines_split(struct lines *lines, struct str text)
{
    uint32_t count = 0, cap = 0;
    struct str *at = NULL;

    for (size_t from = 0; from < text.n;) {
        const char *end = memchr(text.p + from, '\n', text.n - from);
        size_t n = end ? (size_t)(end - text.p) + 1 - from : text.n - from;

        if (count == DIFF_LINES_MAX) {
            free(at);
            return false;
        }
        if (count == cap) {
            cap = cap ? cap * 2 : 64;
            at = xrealloc(at, cap * sizeof(*at));
        }
        at[count++] = (struct str){ text.p + from, n };
        from += n;
    }
    *lines = (struct lines){ at, count };
    return true;
}

void lines_free(struct lines *lines)
{
    free(lines->at);
    *lines = (struct lines){ 0 };
}

void lines_script_free(struct lines_script *script)
{
    free(script->at);
    *script = (struct lines_script){ 0 };
}

/* ---- numbers for lines ---- */

/* Both texts as numbers: the first `old_count` are the old text's. */
struct numbers {
    uint32_t *ids;           /* per line */
    uint32_t (*seen)[2];     /* per number: in which text it occurs */
    uint32_t old_count, all; /* lines */
    uint32_t count;          /* numbers */
    uint32_t *slots, mask;   /* hash table of 1 + line index; 0 is empty */
    const struct lines *text[2];
};

static struct str line_of(const struct numbers *n, uint32_t at)
{
    return at < n->old_count ? n->text[0]->at[at] : n->text[1]->at[at - n->old_count];
}

/* The hash is seeded (base/map.h): a text cannot be written so that its lines collide. */
static void number_line(struct numbers *n, uint32_t at)
{
    struct str line = line_of(n, at);
    uint32_t slot = map_hash(line.p, line.n) & n->mask;

    while (n->slots[slot] && !str_eq(line_of(n, n->slots[slot] - 1), line))
        slot = (slot + 1) & n->mask;
    if (!n->slots[slot]) {
        n->slots[slot] = at + 1;
        n->ids[at] = n->count++;
    } else {
        n->ids[at] = n->ids[n->slots[slot] - 1];
    }
    n->seen[n->ids[at]][at >= n->old_count] = 1;
}

static void number_all(struct numbers *n, const struct lines *before, const struct lines *after)
{
    uint32_t size = 16;

    *n = (struct numbers){ .old_count = before->count, .all = before->count + after->count };
    n->text[0] = before;
    n->text[1] = after;
    while (size < n->all * 2)
        size *= 2;
    n->mask = size - 1;
    n->slots = xcalloc(size, sizeof(*n->slots));
    n->ids = xcalloc(n->all + 1, sizeof(*n->ids));
    n->seen = xcalloc(n->all + 1, sizeof(*n->seen));
    for (uint32_t i = 0; i < n->all; i++)
        number_line(n, i);
}

static void numbers_free(struct numbers *n)
{
    free(n->slots);
    free(n->ids);
    free(n->seen);
}

/* ---- the search ---- */

/* One text in the search: its lines that the other one has too. */
struct side {
    uint32_t *ids;   /* owned */
    uint32_t *place; /* owned; which line of the whole text that is */
    bool *changed;   /* owned; per line of the whole text */
    uint32_t count;
};

struct grid {
    int32_t a0, a1, b0, b1;
};

struct search {
    struct side a, b;
    int32_t *fwd, *bwd; /* owned; furthest x per diagonal, from either corner */
    int64_t work;       /* steps left */
    struct grid stack[STACK_MAX];
    unsigned depth;
};

static void side_init(struct side *side, const struct numbers *n, bool after)
{
    uint32_t from = after ? n->old_count : 0, to = after ? n->all : n->old_count;

    side->ids = xcalloc(to - from + 1, sizeof(*side->ids));
    side->place = xcalloc(to - from + 1, sizeof(*side->place));
    side->changed = xcalloc(to - from + 1, sizeof(*side->changed));
    for (uint32_t i = from; i < to; i++) {
        if (!n->seen[n->ids[i]][!after]) {
            side->changed[i - from] = true;
            continue;
        }
        side->ids[side->count] = n->ids[i];
        side->place[side->count++] = i - from;
    }
}

static void search_free(struct search *s)
{
    struct side *sides[] = { &s->a, &s->b };

    for (size_t i = 0; i < ARRAY_LEN(sides); i++) {
        free(sides[i]->ids);
        free(sides[i]->place);
        free(sides[i]->changed);
    }
    free(s->fwd);
    free(s->bwd);
}

/* Everything in it is replaced. */
static void mark(struct search *s, const struct grid *g)
{
    for (int32_t i = g->a0; i < g->a1; i++)
        s->a.changed[s->a.place[i]] = true;
    for (int32_t i = g->b0; i < g->b1; i++)
        s->b.changed[s->b.place[i]] = true;
}

/* The furthest x on diagonal k after one more change: from the diagonal above, or the one below. */
static int32_t step(const int32_t *reach, int32_t k, int32_t n, int32_t m)
{
    int32_t down = reach[k + 1], right = reach[k - 1];

    if (down != NOWHERE && down - k > m)
        down = NOWHERE;
    right = right == NOWHERE || right == n ? NOWHERE : right + 1;
    return MAX(down, right);
}

/* One corner's turn with `d` changes. True when it met the other: the point is in *x and *y. */
static bool push(struct search *s, const struct grid *g, bool back, int32_t d, int32_t *x,
                 int32_t *y)
{
    int32_t n = g->a1 - g->a0, m = g->b1 - g->b0, delta = n - m;
    int32_t *reach = back ? s->bwd : s->fwd;
    const int32_t *other = back ? s->fwd : s->bwd;
    const uint32_t *a = s->a.ids + (back ? g->a1 - 1 : g->a0);
    const uint32_t *b = s->b.ids + (back ? g->b1 - 1 : g->b0);
    int32_t reached = back ? d : d - 1;
    ptrdiff_t dir = back ? -1 : 1;
    bool meets = (delta & 1) == !back; /* only then can the two paths end on one diagonal */

    for (int32_t k = -(d - 2 * MAX(0, d - m)); k <= d - 2 * MAX(0, d - n); k += 2) {
        int32_t i = step(reach, k, n, m), j;

        s->work--;
        reach[k] = i;
        if (i == NOWHERE)
            continue;
        j = i - k;
        while (i < n && j < m && a[dir * i] == b[dir * j])
            i++, j++, s->work--;
        reach[k] = i;
        int32_t z = delta - k;
        if (meets && z >= -reached && z <= reached && z >= -m && z <= n && other[z] != NOWHERE &&
            i + other[z] >= n) {
            *x = back ? n - i : i;
            *y = back ? m - j : j;
            return true;
        }
    }
    return false;
}

/* A point that the shortest path passes. False when the work is used up. */
static bool middle(struct search *s, const struct grid *g, int32_t *x, int32_t *y)
{
    int32_t n = g->a1 - g->a0, m = g->b1 - g->b0;

    for (int32_t k = -m - 1; k <= n + 1; k++)
        s->fwd[k] = s->bwd[k] = NOWHERE;
    s->fwd[1] = s->bwd[1] = 0;
    for (int32_t d = 0; d <= (n + m + 1) / 2 && s->work > 0; d++)
        if (push(s, g, false, d, x, y) || push(s, g, true, d, x, y))
            return true;
    return false;
}

static void trim(const struct search *s, struct grid *g)
{
    while (g->a0 < g->a1 && g->b0 < g->b1 && s->a.ids[g->a0] == s->b.ids[g->b0])
        g->a0++, g->b0++;
    while (g->a0 < g->a1 && g->b0 < g->b1 && s->a.ids[g->a1 - 1] == s->b.ids[g->b1 - 1])
        g->a1--, g->b1--;
}

static void solve(struct search *s, struct grid g)
{
    int32_t x, y;

    trim(s, &g);
    if (g.a0 == g.a1 || g.b0 == g.b1 || s->depth + 2 > STACK_MAX || !middle(s, &g, &x, &y)) {
        mark(s, &g);
        return;
    }
    struct grid upper = { g.a0, g.a0 + x, g.b0, g.b0 + y };
    struct grid lower = { g.a0 + x, g.a1, g.b0 + y, g.b1 };
    s->stack[s->depth++] = lower;
    s->stack[s->depth++] = upper;
}

static void search(struct search *s, const struct numbers *n)
{
    side_init(&s->a, n, false);
    side_init(&s->b, n, true);
    size_t diagonals = (size_t)s->a.count + s->b.count + 5;
    s->fwd = xcalloc(diagonals, sizeof(*s->fwd));
    s->bwd = xcalloc(diagonals, sizeof(*s->bwd));
    int32_t *bases[] = { s->fwd, s->bwd };
    s->fwd += s->b.count + 2; /* diagonal 0 */
    s->bwd += s->b.count + 2;
    s->stack[s->depth++] = (struct grid){ 0, (int32_t)s->a.count, 0, (int32_t)s->b.count };
    while (s->depth)
        solve(s, s->stack[--s->depth]);
    s->fwd = bases[0];
    s->bwd = bases[1];
}

/* ---- the result ---- */

static void script_of(const struct search *s, const struct lines *before, const struct lines *after,
                      struct lines_script *out)
{
    uint32_t i = 0, j = 0;
    size_t cap = 0;

    *out = (struct lines_script){ 0 };
    while (i < before->count || j < after->count) {
        struct lines_change change = { .old_at = i, .new_at = j };

        while (i < before->count && s->a.changed[i])
            i++;
        while (j < after->count && s->b.changed[j])
            j++;
        change.old_count = i - change.old_at;
        change.new_count = j - change.new_at;
        if (!change.old_count && !change.new_count) {
            i++, j++;
            continue;
        }
        if (out->count == cap) {
            cap = cap ? cap * 2 : 16;
            out->at = xrealloc(out->at, cap * sizeof(*out->at));
        }
        out->at[out->count++] = change;
    }
}

void lines_compare_within(const struct lines *before, const struct lines *after, int64_t work,
                          struct lines_script *out)
{
    auto_with(search_free) struct search s = { .work = work };
    auto_with(numbers_free) struct numbers n;

    number_all(&n, before, after);
    search(&s, &n);
    script_of(&s, before, after, out);
}

void lines_compare(const struct lines *before, const struct lines *after, struct lines_script *out)
{
    lines_compare_within(before, after, DIFF_WORK_MAX, out);
}
