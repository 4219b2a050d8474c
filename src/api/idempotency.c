/*
 * Idempotency-Key: a creation that was acknowledged once is acknowledged again with the same
 * answer, for 24 hours and across restarts, and never done twice.
 *
 * The answer is stored in the transaction that did the work. All creations pass through the one
 * writer thread, so two requests with one key cannot both miss it. The key belongs to a principal.
 * A reply that holds a secret (a new token) is kept without it: what is hashed at rest must not
 * lie beside its hash in clear.
 */
#include "api/own.h"

#include "base/clock.h"

int idempotency_find(struct running *run, struct db *db, struct err *err)
{
    struct call *call = &run->call;
    autoquery struct query *q =
        db_query(db, "SELECT route, body_hash, status, reply FROM idempotency"
                     " WHERE tenant = $1 AND principal = $2 AND key = $3"
                     " AND at_ms > $4");
    query_text(q, 1, call->who.tenant);
    query_text(q, 2, call->who.id);
    query_str(q, 3, run->idempotency);
    query_i64(q, 4, clock_wall_ms() - IDEMPOTENCY_KEEP_MS);

    int row = query_step(q, err);
    if (row <= 0)
        return row;
    struct str hash = query_col_str(q, 1);
    if (!str_is(query_col_str(q, 0), call->route->name) || hash.n != sizeof(run->body_hash) ||
        memcmp(hash.p, run->body_hash, hash.n) != 0)
        return err_set(err, ERR_UNPROCESSABLE,
                       "this Idempotency-Key was used for a different request");
    call->status = (int)query_col_i64(q, 2);
    buf_clear(&call->reply);
    buf_str(&call->reply, query_col_str(q, 3));
    run->replayed = true;
    return 1;
}

/* The reply without the fields that its table calls secret. */
static struct str without_secrets(struct call *call)
{
    struct json *tree;
    struct err err;
    bool secret = false;

    for (const struct field *f = call->route->gives; f && f->name; f++)
        secret |= (f->flags & F_SECRET) != 0;
    if (!secret || json_parse(&call->arena, buf_view(&call->reply), &tree, &err) < 0)
        return buf_view(&call->reply);
    struct buf out = { 0 };
    struct json_out json = json_to(&out);
    json_open(&json, '{');
    json_each(member, tree)
    {
        bool hide = false;

        for (const struct field *f = call->route->gives; f->name; f++)
            hide |= (f->flags & F_SECRET) && str_is(member->key, f->name);
        json_key_str(&json, member->key);
        if (hide)
            json_put_null(&json);
        else
            json_put(&json, member);
    }
    json_close(&json, '}');
    struct str kept = arena_str(&call->arena, buf_view(&out));
    buf_free(&out);
    return kept;
}

int idempotency_keep(struct running *run, struct db *db, struct err *err)
{
    struct call *call = &run->call;

    if (call->reply.len > IDEMPOTENCY_REPLY_MAX)
        return err_set(err, ERR_INTERNAL, "reply too large to keep for Idempotency-Key");
    autoquery struct query *q = db_query(
        db,
        "INSERT INTO idempotency (tenant, principal, key, route, body_hash, status, reply, at_ms)"
        " VALUES ($1, $2, $3, $4, $5, $6, $7, $8)"
        " ON CONFLICT (tenant, principal, key) DO UPDATE SET route = excluded.route,"
        " body_hash = excluded.body_hash, status = excluded.status, reply = excluded.reply,"
        " at_ms = excluded.at_ms"); /* only an expired row can be there */
    query_text(q, 1, call->who.tenant);
    query_text(q, 2, call->who.id);
    query_str(q, 3, run->idempotency);
    query_text(q, 4, call->route->name);
    query_blob(q, 5, run->body_hash, sizeof(run->body_hash));
    query_i64(q, 6, call->status ? call->status : call->route->flags & ROUTE_CREATES ? 201 : 200);
    query_str(q, 7, without_secrets(call));
    query_i64(q, 8, clock_wall_ms());
    return query_run(q, err) < 0 ? -1 : 0;
}
