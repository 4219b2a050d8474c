/*
 * Messages: store and forward. A mailbox is a range of rows by number, so that a page of it is
 * found at once wherever it is; what is unread has an index of its own. How many messages went from
 * whom to whom, and how many wait in a mailbox, are counted as they come and go.
 */
#include "hub/own.h"

#include "base/clock.h"

/* ---- sending ---- */

static int check_rate(const struct hub_by *by, const char *from, struct err *err)
{
    int64_t wait = rate_take(&by->hub->sends, by->tenant, from, by->now_ms);

    if (!wait)
        return 0;
    err_set(err, ERR_RATE, "Rate limit exceeded: %lld messages in 60 seconds",
            (long long)by->hub->sends.most);
    if (err)
        err->retry_after = (int)((wait + 999) / 1000);
    return -1;
}

/* The files are there; as they will be shown. */
static int check_attachments(const struct hub_by *by, const struct hub_send *wish, const char **out,
                             struct err *err)
{
    autobuf struct buf text = { 0 };
    struct json_out json = json_to(&text);
    const struct hub_attachment *items = wish->attachments.items;

    *out = "[]";
    if (!wish->attachments.count)
        return 0;
    json_open(&json, '[');
    for (size_t i = 0; i < wish->attachments.count; i++) {
        struct hub_file file;

        if (hub_file_get(by, items[i].project, items[i].filename, items[i].version, &file, NULL,
                         err) < 0)
            return err_wrap(err, "attachments[%zu]", i);
        json_open(&json, '{');
        json_kv_text(&json, "project", items[i].project);
        json_kv_text(&json, "filename", file.filename);
        json_kv_int(&json, "version", file.version);
        json_kv_text(&json, "checksum", file.checksum);
        json_kv_int(&json, "size", file.size);
        json_close(&json, '}');
    }
    json_close(&json, ']');
    *out = arena_memdup0(by->arena, text.data, text.len);
    return 0;
}

/* The thread of the message that this one answers; that one's id begins a new one. */
static int find_thread(const struct hub_by *by, const char *reply_to, const char **out,
                       struct err *err)
{
    autoquery struct query *q =
        hub_query(by, "SELECT thread FROM hub_message WHERE tenant = $1 AND id = $2", reply_to);

    if (hub_row(q, "reply_to: message not found", err) < 0)
        return -1;
    *out = query_col_str(q, 0).n ? query_col_dup(q, 0, by->arena) : reply_to;
    return 0;
}

/* A message that answers another makes that one part of the thread. */
static int join_thread(const struct hub_by *by, const char *id, const char *thread, struct err *err)
{
    return hub_set(by,
                   "UPDATE hub_message SET thread = $1 WHERE tenant = $2 AND id = $3"
                   " AND thread = ''",
                   thread, id, err);
}

static int check_send(const struct hub_by *by, const struct hub_send *wish, struct hub_message *out,
                      const char **attachments, struct err *err)
{
    if (hub_name_check(wish->from, "from", err) < 0 || hub_self(by, wish->from, "from", err) < 0 ||
        hub_active(by, wish->from, err) < 0)
        return -1;
    *out = (struct hub_message){ .from = wish->from,
                                 .content = wish->content ? wish->content : "",
                                 .type = wish->type && wish->type[0] ? wish->type : "text",
                                 .thread = wish->thread ? wish->thread : "",
                                 .reply_to = wish->reply_to ? wish->reply_to : "",
                                 .timestamp = by->now_ms };
    if (by->hub->filter != HUB_FILTER_OFF && away_hit(by->hub->urls, str_of(out->content)))
        return err_set(err, ERR_INVALID,
                       "Sandbox: message content blocked (external URL detected)");
    if (hub_title_check(out->type, "type", err) < 0 ||
        (out->thread[0] && hub_name_check(out->thread, "thread", err) < 0) ||
        check_attachments(by, wish, attachments, err) < 0)
        return -1;
    const char *thread;
    if (out->reply_to[0] && find_thread(by, out->reply_to, &thread, err) < 0)
        return -1;
    if (out->reply_to[0] && !out->thread[0])
        out->thread = thread;
    return check_rate(by, wish->from, err);
}

static int count_mail(const struct hub_by *by, const char *to, struct err *err)
{
    autoquery struct query *q =
        hub_query(by,
                  "INSERT INTO hub_mailbox (tenant, name, unacked) VALUES ($1, $2, 1)"
                  " ON CONFLICT (tenant, name) DO UPDATE SET unacked = hub_mailbox.unacked + 1"
                  " WHERE hub_mailbox.unacked < $3",
                  to);

    query_i64(q, 3, HUB_MAILBOX_MAX);
    int rows = query_run(q, err);
    if (rows < 0)
        return -1;
    return rows ? 0
                : err_set(err, ERR_CONFLICT, "the mailbox of %s is full: %d messages wait", to,
                          HUB_MAILBOX_MAX);
}

static int count_edge(const struct hub_by *by, const char *from, const char *to, struct err *err)
{
    return hub_change(by, err,
                      "INSERT INTO hub_edge (tenant, sender, recipient, messages)"
                      " VALUES ($1, $2, $3, 1) ON CONFLICT (tenant, sender, recipient)"
                      " DO UPDATE SET messages = hub_edge.messages + 1",
                      from, to);
}

/* A copy into a mailbox. */
static int put_copy(const struct hub_by *by, const struct hub_message *one, const char *attachments,
                    struct err *err)
{
    autoquery struct query *q = db_query(
        by->db,
        "INSERT INTO hub_message (tenant, recipient, seq, id, sender, content, type, at_ms, "
        "channel,"
        " thread, reply_to, attachments) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11,"
        " $12)");

    query_text(q, 1, by->tenant);
    query_text(q, 2, one->to);
    query_i64(q, 3, one->seq);
    query_text(q, 4, one->id);
    query_text(q, 5, one->from);
    query_text(q, 6, one->content);
    query_text(q, 7, one->type);
    query_i64(q, 8, one->timestamp);
    query_text(q, 9, one->channel ? one->channel : "");
    query_text(q, 10, one->thread);
    query_text(q, 11, one->reply_to);
    query_text(q, 12, attachments);
    if (query_run(q, err) < 0 || count_mail(by, one->to, err) < 0)
        return -1;
    return count_edge(by, one->from, one->to, err);
}

struct str hub_first_of(const char *text, size_t characters)
{
    struct str rest = str_of(text);
    size_t at = 0;

    while (at < rest.n && characters--) {
        size_t len = str_utf8_at(rest.p + at, rest.n - at, NULL);

        at += len ? len : 1;
    }
    return (struct str){ text, at };
}

static int tell_sent(const struct hub_by *by, struct hub_message *one, const char *object,
                     struct err *err)
{
    autobuf struct buf body = hub_room();
    struct json_out json = json_to(&body);

    json_open(&json, '{');
    json_kv_text(&json, "id", one->id);
    json_kv_text(&json, "from", one->from);
    json_kv_text(&json, "to", one->to);
    json_kv_str(&json, "content", hub_first_of(one->content, HUB_EVENT_CONTENT));
    json_kv_text(&json, "type", one->type);
    json_key(&json, "timestamp");
    char when[CLOCK_NAIVE_SIZE];
    clock_naive(one->timestamp, when);
    json_put_str(&json, str_of(when));
    if (one->channel)
        json_kv_text(&json, "channel", one->channel);
    json_close(&json, '}');
    if (hub_tell_json(by, "message_sent", object, &body, err) < 0)
        return -1;
    one->seq = event_last_seq(by->db);
    return 0;
}

int hub_message_send(const struct hub_by *by, const struct hub_send *wish, struct hub_message *out,
                     struct err *err)
{
    const char *attachments;

    if (hub_name_check(wish->to, "to", err) < 0 || check_send(by, wish, out, &attachments, err) < 0)
        return -1;
    out->to = wish->to;
    out->id = hub_uuid(by);
    if (tell_sent(by, out, arena_printf(by->arena, "hub/message/%s", out->to), err) < 0)
        return -1;
    if (out->reply_to[0] && join_thread(by, out->reply_to, out->thread, err) < 0)
        return -1;
    return put_copy(by, out, attachments, err);
}

/* ---- reading ---- */

#define COLUMNS                                                                                    \
    "id, sender, recipient, content, type, at_ms, delivered, acked, channel, thread, reply_to,"    \
    " attachments, seq FROM hub_message"

static void take_row(const struct hub_by *by, struct query *q, struct hub_message *out)
{
    *out = (struct hub_message){ .id = query_col_dup(q, 0, by->arena),
                                 .from = query_col_dup(q, 1, by->arena),
                                 .to = query_col_dup(q, 2, by->arena),
                                 .content = query_col_dup(q, 3, by->arena),
                                 .type = query_col_dup(q, 4, by->arena),
                                 .timestamp = query_col_i64(q, 5),
                                 .delivered = query_col_i64(q, 6),
                                 .acknowledged = query_col_i64(q, 7),
                                 .channel = hub_or_null(query_col_dup(q, 8, by->arena)),
                                 .thread = hub_or_null(query_col_dup(q, 9, by->arena)),
                                 .reply_to = hub_or_null(query_col_dup(q, 10, by->arena)),
                                 .attachments = hub_json(by, query_col_str(q, 11)),
                                 .seq = query_col_i64(q, 12) };
}

static int take_page(const struct hub_by *by, struct query *q, unsigned limit, struct hub_page *out,
                     struct err *err)
{
    size_t cap = MIN(limit, 16u), bytes = 0;
    int rc = 0;

    *out = (struct hub_page){ .items = arena_alloc(by->arena, (cap + 1) * sizeof(*out->items)) };
    while (out->count < limit && bytes < HUB_PAGE_BYTES && (rc = query_step(q, err)) > 0) {
        if (out->count == cap)
            out->items = hub_twice(by, out->items, sizeof(*out->items), &cap);
        take_row(by, q, &out->items[out->count]);
        bytes += strlen(out->items[out->count++].content);
    }
    return rc < 0 ? -1 : 0;
}

/* Where a message stands, for going on behind it. */
static int seq_of(const struct hub_by *by, const char *id, const char *field, int64_t *out,
                  struct err *err)
{
    autoquery struct query *q =
        hub_query(by, "SELECT seq FROM hub_message WHERE tenant = $1 AND id = $2", id);

    if (hub_number(q, -1, out, err) < 0)
        return -1;
    return *out < 0 ? err_field(err, field, "message not found") : 0;
}

/* Somebody else's mail is shown to people; to an agent that nobody would miss, there is none. */
static int may_read(const struct hub_by *by, const char *name, struct err *err)
{
    struct hub_standing standing;
    int64_t mail;
    if (!by->agent || strcmp(by->agent, name) == 0)
        return 1;
    autoquery struct query *q =
        hub_query(by, "SELECT 1 FROM hub_mailbox WHERE tenant = $1 AND name = $2", name);
    if (hub_standing(by, name, &standing, err) < 0 || hub_number(q, 0, &mail, err) < 0)
        return -1;
    if (standing.known || mail)
        return err_set(err, ERR_FORBIDDEN, "%s may not read the mail of %s", by->agent, name);
    return 0;
}

/* The numbers come out of an index that holds nothing else, so that what was read costs nothing. */
static struct query *inbox_query(struct db *db, const struct hub_inbox *wish)
{
    if (wish->unread)
        return db_query(db, "SELECT " COLUMNS
                            " WHERE tenant = $1 AND recipient = $2 AND seq IN (SELECT seq FROM"
                            " hub_message WHERE tenant = $1 AND recipient = $2 AND seq > $3"
                            " AND delivered = 0 AND acked = 0 ORDER BY seq LIMIT $4) ORDER BY seq");
    return db_query(db, "SELECT " COLUMNS " WHERE tenant = $1 AND recipient = $2 AND seq > $3"
                        " ORDER BY seq LIMIT $4");
}

int hub_inbox(const struct hub_by *by, const struct hub_inbox *wish, struct hub_page *out,
              struct err *err)
{
    int64_t after = 0;

    *out = (struct hub_page){ 0 };
    int rc = may_read(by, wish->name, err);
    if (rc <= 0)
        return rc;
    if (wish->after && seq_of(by, wish->after, "after", &after, err) < 0)
        return -1;
    autoquery struct query *q = inbox_query(by->db, wish);
    query_text(q, 1, by->tenant);
    query_text(q, 2, wish->name);
    query_i64(q, 3, after);
    query_i64(q, 4, wish->limit);
    if (take_page(by, q, wish->limit, out, err) < 0)
        return -1;
    for (size_t i = 0; !wish->unread && !wish->peek && !by->looks && i < out->count; i++) {
        out->mark |= !out->items[i].delivered;
        out->items[i].delivered = true;
    }
    return 0;
}

int hub_inbox_mark(const struct hub_by *by, const char *name, const struct hub_page *page,
                   struct err *err)
{
    autoquery struct query *q =
        db_query(by->db, "UPDATE hub_message SET delivered = 1 WHERE tenant = $1 AND recipient = $2"
                         " AND seq >= $3 AND seq <= $4 AND delivered = 0");

    query_text(q, 1, by->tenant);
    query_text(q, 2, name);
    query_i64(q, 3, page->items[0].seq);
    query_i64(q, 4, page->items[page->count - 1].seq);
    return query_run(q, err) < 0 ? -1 : 0;
}

static int unwait(const struct hub_by *by, const char *name, struct err *err)
{
    return hub_change(
        by, err, "UPDATE hub_mailbox SET unacked = unacked - 1 WHERE tenant = $1 AND name = $2",
        name);
}

int hub_message_ack(const struct hub_by *by, const char *id, struct err *err)
{
    autoquery struct query *look =
        hub_query(by, "SELECT recipient, acked FROM hub_message WHERE tenant = $1 AND id = $2", id);

    if (hub_row(look, "message not found", err) < 0)
        return -1;
    const char *to = query_col_dup(look, 0, by->arena);
    if (by->agent && strcmp(by->agent, to) != 0)
        return err_set(err, ERR_FORBIDDEN, "%s may not acknowledge the mail of %s", by->agent, to);
    if (query_col_i64(look, 1))
        return 0;
    return hub_change(by, err, "UPDATE hub_message SET acked = 1 WHERE tenant = $1 AND id = $2",
                      id) < 0
               ? -1
               : unwait(by, to, err);
}

int hub_history(const struct hub_by *by, const char *a, const char *b, const char *before,
                unsigned limit, struct hub_page *out, struct err *err)
{
    int64_t end = INT64_MAX;
    autoquery struct query *q = db_query(
        by->db, "SELECT " COLUMNS " WHERE tenant = $1 AND recipient = $2 AND seq IN (SELECT seq"
                " FROM hub_message WHERE tenant = $1 AND sender = $3 AND recipient = $2"
                " AND seq < $4 ORDER BY seq DESC LIMIT $5) AND sender = $3"
                " UNION ALL SELECT " COLUMNS " WHERE tenant = $1 AND recipient = $3 AND $2 <> $3"
                " AND seq IN (SELECT seq FROM hub_message WHERE tenant = $1 AND sender = $2"
                " AND recipient = $3 AND seq < $4 ORDER BY seq DESC LIMIT $5) AND sender = $2"
                " ORDER BY 13 DESC LIMIT $5");

    *out = (struct hub_page){ 0 };
    if (before && seq_of(by, before, "before", &end, err) < 0)
        return -1;
    query_text(q, 1, by->tenant);
    query_text(q, 2, a);
    query_text(q, 3, b);
    query_i64(q, 4, end);
    query_i64(q, 5, limit);
    if (limit && take_page(by, q, limit, out, err) < 0)
        return -1;
    if (out->count && by->agent && strcmp(by->agent, a) != 0 && strcmp(by->agent, b) != 0)
        return err_set(err, ERR_FORBIDDEN, "%s is not part of this conversation", by->agent);
    return 0;
}

int hub_thread(const struct hub_by *by, const char *thread, const char *after, unsigned limit,
               struct hub_page *out, struct err *err)
{
    int64_t since = 0;
    autoquery struct query *q =
        db_query(by->db, "SELECT " COLUMNS " WHERE tenant = $1 AND thread = $2 AND thread <> ''"
                         " AND seq > $3 AND ($4 = '' OR sender = $4 OR recipient = $4) ORDER BY seq"
                         " LIMIT $5");

    *out = (struct hub_page){ 0 };
    if (after && seq_of(by, after, "after", &since, err) < 0)
        return -1;
    query_text(q, 1, by->tenant);
    query_text(q, 2, thread);
    query_i64(q, 3, since);
    query_text(q, 4, by->agent ? by->agent : "");
    query_i64(q, 5, limit);
    return limit ? take_page(by, q, limit, out, err) : 0;
}

static void put_node(void *ctx, const void *item)
{
    const struct hub_agent *agent = item;
    struct json_out *json = ctx;

    json_open(json, '{');
    json_kv_text(json, "id", agent->name);
    json_kv_text(json, "type", agent->type);
    json_close(json, '}');
}

int hub_graph(const struct hub_by *by, struct json_out *json, struct err *err)
{
    autoquery struct query *q =
        db_query(by->db, "SELECT e.sender, e.recipient, e.messages FROM hub_edge e"
                         " JOIN hub_agent s ON s.tenant = e.tenant AND s.name = e.sender"
                         " JOIN hub_agent r ON r.tenant = e.tenant AND r.name = e.recipient"
                         " WHERE e.tenant = $1 AND e.messages > 0");
    int rc;

    json_open(json, '{');
    json_key(json, "nodes");
    json_open(json, '[');
    if (hub_agents(by, NULL, NULL, put_node, json, err) < 0)
        return -1;
    json_close(json, ']');
    json_key(json, "edges");
    json_open(json, '[');
    query_text(q, 1, by->tenant);
    while ((rc = query_step(q, err)) > 0) {
        json_open(json, '{');
        json_kv_str(json, "from", query_col_str(q, 0));
        json_kv_str(json, "to", query_col_str(q, 1));
        json_kv_int(json, "count", query_col_i64(q, 2));
        json_close(json, '}');
    }
    json_close(json, ']');
    json_close(json, '}');
    return rc;
}

/* ---- channels ---- */

#define EVERYONE "all"

static struct query *members_query(const struct hub_by *by, const char *channel)
{
    struct query *q =
        strcmp(channel, EVERYONE) == 0
            ? db_query(by->db, "SELECT name FROM hub_agent WHERE tenant = $1 AND name <> $2"
                               " ORDER BY seq")
            : db_query(by->db, "SELECT agent FROM hub_channel_member WHERE tenant = $1"
                               " AND agent <> $2 AND channel = $3 ORDER BY agent");

    query_text(q, 1, by->tenant);
    if (strcmp(channel, EVERYONE) != 0)
        query_text(q, 3, channel);
    return q;
}

static int channel_exists(const struct hub_by *by, const char *channel, struct err *err)
{
    autoquery struct query *q =
        hub_query(by, "SELECT 1 FROM hub_channel WHERE tenant = $1 AND name = $2", channel);

    return strcmp(channel, EVERYONE) == 0 ? 0 : hub_row(q, "channel not found", err);
}

int hub_publish(const struct hub_by *by, const char *channel, const struct hub_send *wish,
                struct hub_message *out, int64_t *recipients, struct err *err)
{
    const char *attachments;
    int rc;

    if (channel_exists(by, channel, err) < 0 || check_send(by, wish, out, &attachments, err) < 0)
        return -1;
    out->id = hub_uuid(by);
    out->to = channel;
    out->channel = channel;
    if (tell_sent(by, out, arena_printf(by->arena, "hub/channel/%s", channel), err) < 0)
        return -1;
    struct hub_message copy = *out;
    *recipients = 0;
    autoquery struct query *q = members_query(by, channel);
    query_text(q, 2, wish->from);
    while ((rc = query_step(q, err)) > 0) {
        copy.to = query_col_dup(q, 0, by->arena);
        copy.id = hub_uuid(by);
        if (put_copy(by, &copy, attachments, err) < 0)
            return -1;
        ++*recipients;
    }
    return rc;
}

static int make_channel(const struct hub_by *by, const char *channel, struct err *err)
{
    int64_t count;
    autoquery struct query *q =
        hub_query(by, "SELECT count(*) FROM hub_channel WHERE tenant = $1 AND name <> $2", channel);
    autoquery struct query *put =
        hub_query(by,
                  "INSERT INTO hub_channel (tenant, name, created_ms) VALUES ($1, $2, $3)"
                  " ON CONFLICT (tenant, name) DO NOTHING",
                  channel);

    if (hub_number(q, 0, &count, err) < 0)
        return -1;
    if (count >= HUB_CHANNELS_MAX)
        return err_set(err, ERR_CONFLICT, "there are %d channels already", HUB_CHANNELS_MAX);
    query_i64(put, 3, by->now_ms);
    return query_run(put, err) < 0 ? -1 : 0;
}

/* Who joins or leaves is registered, and oneself. */
static int check_member(const struct hub_by *by, const char *agent, struct err *err)
{
    struct hub_standing standing;

    return hub_standing_known(by, agent, &standing, err) < 0 ? -1 : hub_acts(by, agent, err);
}

int hub_channel_join(const struct hub_by *by, const char *channel, const char *agent,
                     struct err *err)
{
    if (hub_name_check(channel, "channel", err) < 0 || check_member(by, agent, err) < 0)
        return -1;
    if (strcmp(channel, EVERYONE) == 0)
        return err_set(err, ERR_CONFLICT, "everyone is in the channel " EVERYONE);
    if (make_channel(by, channel, err) < 0)
        return -1;
    int rows = hub_change(by, err,
                          "INSERT INTO hub_channel_member (tenant, channel, agent)"
                          " VALUES ($1, $2, $3) ON CONFLICT (tenant, channel, agent) DO NOTHING",
                          channel, agent);
    if (rows <= 0)
        return rows;
    return hub_tell(by, "channel_joined", arena_printf(by->arena, "hub/channel/%s", channel), err,
                    "channel", channel, "agent", agent, NULL);
}

int hub_channel_leave(const struct hub_by *by, const char *channel, const char *agent,
                      struct err *err)
{
    if (channel_exists(by, channel, err) < 0 || check_member(by, agent, err) < 0)
        return -1;
    int rows = hub_change(
        by, err, "DELETE FROM hub_channel_member WHERE tenant = $1 AND channel = $2 AND agent = $3",
        channel, agent);
    if (rows < 0 || hub_change(by, err,
                               "DELETE FROM hub_channel WHERE tenant = $1 AND name = $2"
                               " AND NOT EXISTS (SELECT 1 FROM hub_channel_member"
                               " WHERE tenant = $1 AND channel = $2)",
                               channel) < 0)
        return -1;
    if (rows == 0)
        return 0;
    return hub_tell(by, "channel_left", arena_printf(by->arena, "hub/channel/%s", channel), err,
                    "channel", channel, "agent", agent, NULL);
}

int hub_channels(const struct hub_by *by, hub_item_fn *fn, void *ctx, struct err *err)
{
    autoquery struct query *q =
        hub_query(by, "SELECT name, created_ms FROM hub_channel WHERE tenant = $1 ORDER BY name");
    int rc;

    while ((rc = query_step(q, err)) > 0) {
        autoarena struct arena arena = { 0 };
        struct hub_by own = *by;
        struct hub_channel one = { .name = query_col_dup(q, 0, &arena),
                                   .created_at = query_col_i64(q, 1) };

        own.arena = &arena;
        autoquery struct query *members = members_query(&own, one.name);
        query_text(members, 2, "");
        if (hub_column(&own, members, &one.members, err) < 0)
            return -1;
        fn(ctx, &one);
    }
    return rc;
}

/* ---- retention ---- */

int hub_messages_sweep(struct db *db, int64_t before_ms, struct err *err)
{
    autoquery struct query *edges = db_query(
        db, "UPDATE hub_edge SET messages = messages - (SELECT count(*) FROM (SELECT sender,"
            " recipient, tenant FROM hub_message WHERE acked = 1 AND at_ms < $1 ORDER BY at_ms,"
            " tenant, recipient, seq LIMIT $2) m WHERE m.tenant = hub_edge.tenant AND m.sender = "
            "hub_edge.sender"
            " AND m.recipient = hub_edge.recipient) WHERE (tenant, sender, recipient) IN (SELECT"
            " tenant, sender, recipient FROM hub_message WHERE acked = 1 AND at_ms < $1"
            " ORDER BY at_ms, tenant, recipient, seq LIMIT $2)");
    autoquery struct query *q = db_query(
        db, "DELETE FROM hub_message WHERE (tenant, recipient, seq) IN (SELECT tenant, recipient,"
            " seq FROM hub_message WHERE acked = 1 AND at_ms < $1 ORDER BY at_ms, tenant,"
            " recipient, seq LIMIT $2)");

    query_i64(edges, 1, before_ms);
    query_i64(edges, 2, STORE_SWEEP_ROWS);
    query_i64(q, 1, before_ms);
    query_i64(q, 2, STORE_SWEEP_ROWS);
    if (query_run(edges, err) < 0)
        return -1;
    return query_run(q, err);
}
