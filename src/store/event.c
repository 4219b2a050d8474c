/*
 * Events. A job takes the next number and puts the event into its list; the rows of all jobs are
 * written together when the transaction ends (engine.h), and the lists go to the loop after the
 * commit. A job that fails gives its numbers back, so the numbers on disk have no gaps.
 *
 * An event is one allocation: the struct and behind it its texts.
 */
#include <assert.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/limits.h"
#include "store/engine.h"
#include "store/store.h"

static char *put(char **at, struct str text)
{
    char *start = *at;

    if (text.n)
        memcpy(start, text.p, text.n);
    start[text.n] = 0;
    *at += text.n + 1;
    return start;
}

static struct event *event_new(struct str tenant, struct str type, struct str object,
                               struct str body)
{
    size_t texts = tenant.n + type.n + object.n + body.n + 4;
    struct event *event = xmalloc(sizeof(*event) + texts);
    char *at = (char *)(event + 1);

    *event = (struct event){ 0 };
    event->tenant = put(&at, tenant);
    event->type = put(&at, type);
    event->object = put(&at, object);
    event->body = (struct str){ put(&at, body), body.n };
    return event;
}

struct event *event_copy(const struct event *event)
{
    struct event *copy =
        event_new(str_of(event->tenant), str_of(event->type), str_of(event->object), event->body);

    copy->seq = event->seq;
    copy->at_ms = event->at_ms;
    return copy;
}

size_t event_size(const struct event *event)
{
    return sizeof(*event) + strlen(event->tenant) + strlen(event->type) + strlen(event->object) +
           event->body.n + 4;
}

void event_list_free(struct event *first)
{
    while (first) {
        struct event *next = first->next;

        free(first);
        first = next;
    }
}

/* ---- numbers ---- */

/* The newest number there is; read once, then known. */
static int head_of(struct db *db, const char *tenant, struct event_head **out, struct err *err)
{
    struct event_head *head = map_get(&db->event_heads, str_of(tenant));

    if (!head) {
        autoquery struct query *q = db_query(db, "SELECT event_seq FROM tenant WHERE id = $1");

        query_text(q, 1, tenant);
        int rc = query_step(q, err);
        if (rc < 0)
            return -1;
        if (rc == 0)
            return err_set(err, ERR_NOT_FOUND, "no tenant %s", tenant);
        head = xnew(struct event_head);
        head->seq = head->written = head->stored = query_col_i64(q, 0);
        map_put(&db->event_heads, str_of(tenant), head);
    }
    *out = head;
    return 0;
}

void event_heads_back(struct db *db, const struct event *first)
{
    for (; first; first = first->next) {
        struct event_head *head = map_get(&db->event_heads, str_of(first->tenant));

        if (head)
            head->seq--;
    }
}

void heads_forget(struct db *db)
{
    const struct map_slot *slot;
    size_t at = 0;

    while ((slot = map_next(&db->event_heads, &at)))
        free(slot->value);
    map_free(&db->event_heads);
    db->event_heads = (struct map){ 0 };
    db->audit_head = (struct audit_head){ 0 };
}

/* ---- writing ---- */

static int insert(struct db *db, const struct event *const *events, unsigned count, struct err *err)
{
    autoquery struct query *q =
        db_query_rows(db, "event (tenant, seq, at_ms, type, object, body) VALUES", 6, count);

    for (int at = 0; count--; at += 6, events++) {
        const struct event *event = *events;

        query_lent(q, at + 1, str_of(event->tenant));
        query_i64(q, at + 2, event->seq);
        query_i64(q, at + 3, event->at_ms);
        query_lent(q, at + 4, str_of(event->type));
        query_lent(q, at + 5, str_of(event->object));
        query_lent(q, at + 6, event->body);
    }
    return query_run(q, err) < 0 ? -1 : 0;
}

static int insert_all(struct db *db, const struct event *const *events, unsigned left,
                      struct err *err)
{
    for (unsigned count; left; left -= count, events += count) {
        count = rows_at_once(left);
        assert(count <= left);
        if (insert(db, events, count, err) < 0)
            return -1;
    }
    return 0;
}

static int write_heads(struct db *db, struct err *err)
{
    const struct map_slot *slot;
    size_t at = 0;

    while ((slot = map_next(&db->event_heads, &at))) {
        struct event_head *head = slot->value;

        if (head->stored == head->seq)
            continue;
        autoquery struct query *q =
            db_query(db, "UPDATE tenant SET event_seq = $1 WHERE id = $2 AND event_seq = $3");
        query_i64(q, 1, head->seq);
        query_str(q, 2, (struct str){ slot->key, slot->len });
        query_i64(q, 3, head->stored);
        int rows = query_run(q, err);
        if (rows < 0)
            return -1;
        if (rows == 0 || head->written != head->seq)
            return err_set(err, ERR_INTERNAL, "the newest event's number has moved");
        head->stored = head->seq;
    }
    return 0;
}

/* A row is only ever added behind the newest one. */
static int check_next(struct db *db, const struct event *event, struct err *err)
{
    struct event_head *head = map_get(&db->event_heads, str_of(event->tenant));

    if (!head || event->seq != ++head->written)
        return err_set(err, ERR_INTERNAL, "event %lld of %s is not the next one",
                       (long long)event->seq, event->tenant);
    return 0;
}

int events_write(struct db *db, const struct store_job *first, struct err *err)
{
    const struct event *some[ROWS_AT_ONCE];
    unsigned count = 0;

    for (; first; first = first->next)
        for (const struct event *event = first->events; event; event = event->next) {
            if (check_next(db, event, err) < 0)
                return err_wrap(err, "events");
            some[count++] = event;
            if (count == ROWS_AT_ONCE && insert_all(db, some, count, err) < 0)
                return err_wrap(err, "events");
            count %= ROWS_AT_ONCE;
        }
    if (insert_all(db, some, count, err) < 0 || write_heads(db, err) < 0)
        return err_wrap(err, "events");
    return 0;
}

/* ---- adding ---- */

int event_add(struct db *db, const char *tenant, const char *type, const char *object,
              struct str body, struct err *err)
{
    if (body.n > EVENT_BODY_MAX)
        return err_set(err, ERR_LIMIT, "an event's body may have %d bytes", EVENT_BODY_MAX);
    if (strlen(type) > EVENT_NAME_MAX || strlen(object) > EVENT_NAME_MAX)
        return err_set(err, ERR_LIMIT, "an event's type and object may have %d bytes each",
                       EVENT_NAME_MAX);

    struct event_head *head;
    if (db_check_job(db, err) < 0 || head_of(db, tenant, &head, err) < 0)
        return err_wrap(err, "event %s", type);
    struct event *event = event_new(str_of(tenant), str_of(type), str_of(object), body);
    event->at_ms = clock_wall_ms();
    db->last_seq = event->seq = ++head->seq;
    if (db->job) {
        *db->job->events_end = event;
        db->job->events_end = &event->next;
        return 0;
    }
    int rc = events_write(db, &(struct store_job){ .events = event }, err);
    free(event);
    if (rc < 0)
        heads_forget(db);
    return rc;
}

int64_t event_last_seq(const struct db *db)
{
    return db->last_seq;
}

/* ---- reading ---- */

static int read_tenant(struct db *db, const char *tenant, struct event_page *page, struct err *err)
{
    autoquery struct query *q =
        db_query(db, "SELECT event_seq, event_floor FROM tenant WHERE id = $1");
    query_text(q, 1, tenant);

    int rc = query_step(q, err);
    if (rc < 0)
        return -1;
    page->head = rc ? query_col_i64(q, 0) : 0;
    page->floor = rc ? query_col_i64(q, 1) : 1;
    return 0;
}

static struct event *read_row(struct query *q, const char *tenant)
{
    struct event *event =
        event_new(str_of(tenant), query_col_str(q, 2), query_col_str(q, 3), query_col_str(q, 4));

    event->seq = query_col_i64(q, 0);
    event->at_ms = query_col_i64(q, 1);
    return event;
}

/*
 * The rows must follow each other without a gap: a page with a hole in it would be a silent loss
 * to whoever reads on from its end.
 */
static int read_rows(struct db *db, const char *tenant, int64_t since, unsigned limit,
                     struct event **first, struct err *err)
{
    struct event **end = first;
    size_t bytes = 0;
    unsigned count = 0;
    int rc = 0;
    autoquery struct query *q =
        db_query(db, "SELECT seq, at_ms, type, object, body FROM event"
                     " WHERE tenant = $1 AND seq > $2 ORDER BY seq LIMIT $3");
    query_text(q, 1, tenant);
    query_i64(q, 2, since);
    query_i64(q, 3, limit);

    while (bytes < EVENT_PAGE_BYTES && (rc = query_step(q, err)) > 0) {
        struct event *event = read_row(q, tenant);

        *end = event;
        end = &event->next;
        bytes += event->body.n;
        if (event->seq != since + ++count)
            return err_set(err, ERR_INTERNAL, "event %lld of %s is missing from the store",
                           (long long)(since + count), tenant);
    }
    return rc < 0 ? -1 : 0;
}

int event_page(struct db *db, const char *tenant, int64_t since, unsigned limit,
               struct event_page *out, struct err *err)
{
    struct event_page page = { 0 };

    if (since < 0)
        since = 0;
    if (read_tenant(db, tenant, &page, err) < 0)
        return -1;
    if (since < page.floor - 1)
        return err_set(err, ERR_GONE,
                       "events up to %lld are no longer kept; ask for those after it",
                       (long long)page.floor - 1);
    if (since < page.head && read_rows(db, tenant, since, limit, &page.first, err) < 0) {
        event_list_free(page.first);
        return -1;
    }
    *out = page;
    return 0;
}

/* When it happened; -1 with an error. */
static int64_t time_of(struct db *db, const char *tenant, int64_t seq, struct err *err)
{
    autoquery struct query *q =
        db_query(db, "SELECT at_ms FROM event WHERE tenant = $1 AND seq = $2");

    query_text(q, 1, tenant);
    query_i64(q, 2, seq);
    int rc = query_step(q, err);
    if (rc == 0)
        err_set(err, ERR_INTERNAL, "event %lld of %s is missing from the store", (long long)seq,
                tenant);
    return rc > 0 ? query_col_i64(q, 0) : -1;
}

int event_before(struct db *db, const char *tenant, int64_t at_ms, int64_t *out, struct err *err)
{
    struct event_page page = { 0 };

    if (read_tenant(db, tenant, &page, err) < 0)
        return -1;
    int64_t before = page.floor - 1, not_before = page.head + 1;
    while (not_before - before > 1) {
        int64_t middle = before + (not_before - before) / 2;
        int64_t happened = time_of(db, tenant, middle, err);

        if (happened < 0)
            return -1;
        if (happened < at_ms)
            before = middle;
        else
            not_before = middle;
    }
    *out = before;
    return 0;
}

bool event_since_parse(struct str text, int64_t *out)
{
    int64_t since;

    if (!str_to_i64(text, &since) || since < 0)
        return false;
    *out = since;
    return true;
}

/* ---- filters ---- */

static bool type_fits(struct str type, struct str wanted)
{
    if (wanted.n && wanted.p[wanted.n - 1] == '*' &&
        (wanted.n == 1 || wanted.p[wanted.n - 2] == '.'))
        return str_starts(type, (struct str){ wanted.p, wanted.n - 1 });
    return wanted.n && str_eq(type, wanted);
}

static bool object_fits(struct str object, struct str wanted)
{
    return wanted.p[wanted.n - 1] == '/' ? str_starts(object, wanted) : str_eq(object, wanted);
}

bool event_matches(const struct event *event, const struct event_filter *filter)
{
    struct str types = str_of(filter->types), object = str_of(filter->object);
    bool fits = types.n == 0;

    if (object.n && !object_fits(str_of(event->object), object))
        return false;
    while (!fits && types.n)
        fits = type_fits(str_of(event->type), str_trim(str_cut(&types, ',')));
    return fits;
}
