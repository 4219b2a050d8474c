/*
 * When a token was last used. A request only notes the time in memory; the row follows within a
 * second or so of the first use, and after that at most once a minute, one write job for all
 * tokens. So a busy server pays one small write a minute, and a token that somebody tries for the
 * first time shows it at once. The last minute's use may be lost with the process: it is there to
 * find tokens that nobody needs any more, and a kill does not make one of them.
 */
#include "auth/own.h"

#define SOON_MS 1000

struct use {
    char id[ID_SIZE];
    int64_t at_ms;
};

struct used_job {
    struct store_job job;
    size_t count;
    struct use uses[];
};

int token_used(struct db *db, const char *id, int64_t at_ms, struct err *err)
{
    autoquery struct query *q =
        db_query(db, "UPDATE token SET used_ms = $1 WHERE id = $2 AND used_ms < $3");

    query_i64(q, 1, at_ms);
    query_text(q, 2, id);
    query_i64(q, 3, at_ms);
    return query_run(q, err) < 0 ? err_wrap(err, "note that a token was used") : 0;
}

static int used_run(struct store_job *job, struct db *db, struct err *err)
{
    const struct used_job *used = container_of(job, struct used_job, job);

    for (size_t i = 0; i < used->count; i++)
        if (token_used(db, used->uses[i].id, used->uses[i].at_ms, err) < 0)
            return -1;
    return 0;
}

static void used_done(struct store_job *job)
{
    free(container_of(job, struct used_job, job)); /* failed: the next use is noted again */
}

static bool is_due(const struct live *live, int64_t now_ms)
{
    return live->used_ms > live->noted_ms && now_ms - live->noted_ms >= TOKEN_USED_EVERY_MS;
}

void used_write(struct auth *auth)
{
    int64_t now_ms = auth->wall_ms();
    struct map_slot *slot;
    size_t at = 0, due = 0;

    while ((slot = map_next(&auth->tokens.by_id, &at)))
        due += is_due(slot->value, now_ms);
    if (!due || !auth->options.store)
        return;
    struct used_job *used = xcalloc(1, sizeof(*used) + due * sizeof(used->uses[0]));
    used->job = (struct store_job){ .run = used_run, .done = used_done };
    at = 0;
    while ((slot = map_next(&auth->tokens.by_id, &at))) {
        struct live *live = slot->value;

        if (!is_due(live, now_ms))
            continue;
        struct use *use = &used->uses[used->count++];
        memcpy(use->id, live->who.id, sizeof(use->id));
        use->at_ms = live->noted_ms = live->used_ms;
    }
    store_write(auth->options.store, &used->job);
}

void used_soon(struct timer *timer)
{
    used_write(container_of(timer, struct auth, used));
}

void used_note(struct auth *auth, struct live *live, int64_t now_ms)
{
    live->used_ms = now_ms;
    if (is_due(live, now_ms) && !timer_is_set(&auth->used))
        timer_set(auth->loop, &auth->used, SOON_MS);
}
