/* auth: when a token was last used is kept, and costs a busy server one write a minute. */
#include "auth/auth_fake.h"

static const struct token_row wish = { .name = "ci", .role = ROLE_VIEWER };

struct rig {
    struct fake fake;
    struct store *store;
    struct token_row row;
    char bearer[7 + TOKEN_TEXT_SIZE];
};

/* The token is made by one who writes alone; then a server's store takes over. */
static void rig_open(struct rig *rig)
{
    struct fake *fake = &rig->fake;

    fake_open(fake);
    rig->row = fake_token(fake, &wish, rig->bearer);
    store_close_alone(take_ptr(&fake->db));
    CHECK_OK(store_open(&rig->store, fake->loop, &(struct store_options){ .path = fake->path },
                        &fake->err),
             &fake->err);
    auth_reload(fake->auth, &(struct auth_options){ .store = rig->store });
}

static void rig_close(struct rig *rig)
{
    store_close(rig->store);
    fake_stop(&rig->fake);
}
#define autorig auto_with(rig_close)

struct look {
    struct store_job job;
    struct rig *rig;
    int64_t used_ms;
};

static void look_at(void *ctx, const struct token_row *row)
{
    *(int64_t *)ctx = row->used_ms;
}

static int look_run(struct store_job *job, struct db *db, struct err *err)
{
    struct look *look = container_of(job, struct look, job);

    return token_list(db, TENANT_DEFAULT, look_at, &look->used_ms, err);
}

static void look_done(struct store_job *job)
{
    loop_stop(container_of(job, struct look, job)->rig->fake.loop);
}

/* What the row says once everything handed in before is done. */
static int64_t written(struct rig *rig)
{
    struct look look = { .job = { .run = look_run, .done = look_done }, .rig = rig };

    store_write(rig->store, &look.job);
    loop_run(rig->fake.loop);
    CHECK_OK(look.job.rc, &look.job.err);
    return look.used_ms;
}

TEST(a_first_use_is_written_at_once_and_later_ones_once_a_minute)
{
    autorig struct rig rig = { 0 };
    struct auth *auth;

    rig_open(&rig);
    auth = rig.fake.auth;
    CHECK_INT(written(&rig), 0);
    CHECK(!timer_is_set(&auth->used));

    int64_t first = fake_wall_ms;
    CHECK_INT(fake_get(&rig.fake, rig.bearer), AUTH_OK);
    CHECK(timer_is_set(&auth->used));
    CHECK_INT(written(&rig), 0); /* not by the request itself */
    used_soon(&auth->used);
    timer_cancel(rig.fake.loop, &auth->used);
    CHECK_INT(written(&rig), first);

    fake_wall_ms = first + TOKEN_USED_EVERY_MS - 1;
    CHECK_INT(fake_get(&rig.fake, rig.bearer), AUTH_OK);
    CHECK(!timer_is_set(&auth->used));
    used_write(auth);
    CHECK_INT(written(&rig), first);

    fake_wall_ms = first + TOKEN_USED_EVERY_MS;
    used_write(auth); /* the minute is over: what was noted meanwhile follows without another use */
    CHECK_INT(written(&rig), first + TOKEN_USED_EVERY_MS - 1);
}

TEST(a_wrong_token_leaves_no_trace)
{
    autorig struct rig rig = { 0 };

    rig_open(&rig);
    rig.bearer[20] = rig.bearer[20] == 'A' ? 'B' : 'A';
    CHECK_INT(fake_get(&rig.fake, rig.bearer), AUTH_REFUSED);
    used_write(rig.fake.auth);
    CHECK_INT(written(&rig), 0);
}

TEST(what_was_noted_is_known_after_a_restart)
{
    autorig struct rig rig = { 0 };

    rig_open(&rig);
    CHECK_INT(fake_get(&rig.fake, rig.bearer), AUTH_OK);
    used_soon(&rig.fake.auth->used);
    timer_cancel(rig.fake.loop, &rig.fake.auth->used);
    rig.row.used_ms = written(&rig);
    auth_token_added(rig.fake.auth, &rig.row); /* as auth_load does */
    fake_wall_ms += TOKEN_USED_EVERY_MS - 1;
    CHECK_INT(fake_get(&rig.fake, rig.bearer), AUTH_OK);
    CHECK(!timer_is_set(&rig.fake.auth->used));
}
