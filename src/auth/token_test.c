/* auth: rows of tokens, login codes and sessions; what is at rest, what ends, what comes back. */
#include "auth/auth_fake.h"

#include <fcntl.h>

static const struct token_row wish = { .name = "ci", .tenant = "acme", .role = ROLE_VIEWER };

static void sql(struct fake *fake, struct query *q)
{
    CHECK_OK(query_run(q, &fake->err), &fake->err);
    query_done(&q);
}

TEST(a_token_is_made_of_256_bits_and_only_its_hash_stays)
{
    autofake struct fake fake;
    struct token_row row, other;
    char plain[TOKEN_TEXT_SIZE], second[TOKEN_TEXT_SIZE];
    unsigned char hash[SHA256_SIZE];

    fake_open(&fake);
    CHECK_OK(token_create(fake.db, &wish, &row, plain, &fake.err), &fake.err);
    CHECK(strlen(plain) == TOKEN_TEXT_SIZE - 1 && token_shaped(str_of(plain)));
    CHECK(id_valid(str_of(row.id), "tok"));
    autobuf struct buf raw = { 0 };
    CHECK(base64_get(&raw, str_of(plain + 4)) && raw.len == 32);
    sha256(plain, strlen(plain), hash);
    CHECK(memcmp(hash, row.hash, sizeof(hash)) == 0);
    struct token_row named = wish;
    named.name[0] = 'x';
    CHECK_OK(token_create(fake.db, &named, &other, second, &fake.err), &fake.err);
    CHECK(strcmp(plain, second) != 0 && strcmp(row.id, other.id) != 0);
    CHECK(row.created_ms > 0 && row.revoked_ms == 0 && row.used_ms == 0);
    for (size_t i = 0; i < sizeof(row.sign_key); i++)
        CHECK(row.sign_key[i] == 0); /* not asked for */
}

static bool file_holds(const char *path, const char *needle)
{
    autoclose int fd = open(path, O_RDONLY | O_CLOEXEC);
    autobuf struct buf all = { 0 };

    while (fd >= 0) {
        char *room = buf_reserve(&all, 65536);
        ssize_t got = read(fd, room, 65536);

        if (got <= 0)
            break;
        all.len += (size_t)got;
    }
    return all.len && memmem(all.data, all.len, needle, strlen(needle));
}

TEST(no_secret_is_in_the_files)
{
    autofake struct fake fake;
    struct token_row row;
    struct session_row session;
    char plain[TOKEN_TEXT_SIZE], code[TOKEN_TEXT_SIZE], cookie[TOKEN_TEXT_SIZE];

    fake_open(&fake);
    struct token_row signing = wish;
    signing.signing = true;
    CHECK_OK(token_create(fake.db, &signing, &row, plain, &fake.err), &fake.err);
    CHECK_OK(login_link(fake.db, "acme", ROLE_ADMIN, code, &fake.err), &fake.err);
    CHECK_OK(login_exchange(fake.db, code, &session, cookie, &fake.err), &fake.err);
    static const char *const ends[] = { "", "-wal" };
    bool found_id = false;
    for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
        autofree char *path = xprintf("%s%s", fake.path, ends[i]);

        found_id |= file_holds(path, row.id);
        CHECK(!file_holds(path, plain + 4) && !file_holds(path, code + 4) &&
              !file_holds(path, cookie + 4));
    }
    CHECK(found_id); /* we looked in the right place */
}

TEST(names_are_unique_among_the_living)
{
    autofake struct fake fake;
    struct token_row row, again;
    char plain[TOKEN_TEXT_SIZE];

    fake_open(&fake);
    CHECK_OK(token_create(fake.db, &wish, &row, plain, &fake.err), &fake.err);
    plain[0] = 0;
    CHECK(token_create(fake.db, &wish, &again, plain, &fake.err) < 0);
    CHECK(fake.err.code == ERR_CONFLICT && strstr(fake.err.msg, "\"ci\"") && plain[0] == 0);
    struct token_row elsewhere = wish;
    memcpy(elsewhere.tenant, "other", 6);
    CHECK_OK(token_create(fake.db, &elsewhere, &again, plain, &fake.err), &fake.err);
    CHECK_OK(token_revoke(fake.db, "acme", "ci", &again, &fake.err), &fake.err);
    CHECK_STR(again.id, row.id);
    CHECK(again.revoked_ms > 0);
    CHECK_OK(token_create(fake.db, &wish, &row, plain, &fake.err), &fake.err);
    /* An expired one gives its name up. */
    struct query *q = db_query(fake.db, "UPDATE token SET expires_ms = 1000 WHERE id = $1");
    query_text(q, 1, row.id);
    sql(&fake, q);
    CHECK_OK(token_create(fake.db, &wish, &again, plain, &fake.err), &fake.err);
    CHECK(strcmp(again.id, row.id) != 0);
}

TEST(a_wish_must_make_sense)
{
    autofake struct fake fake;
    struct token_row row;
    char plain[TOKEN_TEXT_SIZE];

    fake_open(&fake);
    struct token_row bad = wish;
    bad.name[0] = 0;
    CHECK(token_create(fake.db, &bad, &row, plain, &fake.err) < 0 && fake.err.code == ERR_INVALID);
    bad = wish;
    bad.role = (enum role)3;
    CHECK(token_create(fake.db, &bad, &row, plain, &fake.err) < 0 && fake.err.code == ERR_INVALID);
    bad = wish;
    bad.expires_ms = clock_wall_ms() - 1;
    CHECK(token_create(fake.db, &bad, &row, plain, &fake.err) < 0 && fake.err.code == ERR_INVALID);
    struct token_row nowhere = wish;
    nowhere.tenant[0] = 0;
    CHECK_OK(token_create(fake.db, &nowhere, &row, plain, &fake.err), &fake.err);
    CHECK_STR(row.tenant, TENANT_DEFAULT);
}

TEST(revoking_finds_by_id_first_and_only_in_its_tenant)
{
    autofake struct fake fake;
    struct token_row first, second, out;
    char plain[TOKEN_TEXT_SIZE];

    fake_open(&fake);
    CHECK_OK(token_create(fake.db, &wish, &first, plain, &fake.err), &fake.err);
    /* A token whose name is the id of another. */
    struct token_row trap = wish;
    snprintf(trap.name, sizeof(trap.name), "%s", first.id);
    CHECK_OK(token_create(fake.db, &trap, &second, plain, &fake.err), &fake.err);
    CHECK(token_revoke(fake.db, "default", first.id, &out, &fake.err) < 0 &&
          fake.err.code == ERR_NOT_FOUND);
    CHECK(token_revoke(fake.db, "acme", "nothing", &out, &fake.err) < 0 &&
          fake.err.code == ERR_NOT_FOUND);
    CHECK(token_revoke(fake.db, "acme", "", &out, &fake.err) < 0 && fake.err.code == ERR_NOT_FOUND);
    CHECK_OK(token_revoke(fake.db, "acme", first.id, &out, &fake.err), &fake.err);
    CHECK_STR(out.name, "ci");
    CHECK(token_revoke(fake.db, "acme", first.id, &out, &fake.err) < 0 &&
          fake.err.code == ERR_CONFLICT);
    CHECK(token_revoke(fake.db, "acme", "ci", &out, &fake.err) < 0 &&
          fake.err.code == ERR_CONFLICT);
    CHECK_OK(token_revoke(fake.db, "acme", second.id, &out, &fake.err), &fake.err);
}

static void count_row(void *ctx, const struct token_row *row)
{
    char *seen = ctx;

    snprintf(seen + strlen(seen), 100 - strlen(seen), "%s ", row->name);
}

TEST(the_list_shows_the_living_and_the_recently_ended_of_one_tenant)
{
    autofake struct fake fake;
    struct token_row row;
    char plain[TOKEN_TEXT_SIZE], seen[100] = "";

    fake_open(&fake);
    static const char *const names[] = { "alive", "revoked", "long-gone", "expired" };
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        struct token_row one = wish;

        snprintf(one.name, sizeof(one.name), "%s", names[i]);
        CHECK_OK(token_create(fake.db, &one, &row, plain, &fake.err), &fake.err);
        struct query *q = db_query(fake.db, "UPDATE token SET created_ms = $1 WHERE id = $2");
        query_i64(q, 1, (int64_t)i + 1);
        query_text(q, 2, row.id);
        sql(&fake, q);
    }
    struct token_row other = { .name = "other", .tenant = "else", .role = ROLE_ADMIN };
    CHECK_OK(token_create(fake.db, &other, &row, plain, &fake.err), &fake.err);
    CHECK_OK(token_revoke(fake.db, "acme", "revoked", &row, &fake.err), &fake.err);
    sql(&fake, db_query(fake.db, "UPDATE token SET revoked_ms = 1000 WHERE name = 'long-gone'"));
    sql(&fake, db_query(fake.db, "UPDATE token SET expires_ms = 1000 WHERE name = 'expired'"));
    CHECK_OK(token_list(fake.db, "acme", count_row, seen, &fake.err), &fake.err);
    CHECK_STR(seen, "alive revoked ");
}

TEST(there_are_only_so_many_tokens)
{
    autofake struct fake fake;
    struct token_row row;
    char plain[TOKEN_TEXT_SIZE];

    fake_open(&fake);
    struct query *q = db_query(
        fake.db, "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $1)"
                 " INSERT INTO token (id, name, tenant, role, scopes, hash, created_ms)"
                 " SELECT 'tok' || i, 'n' || i, 'default', 'viewer', '', randomblob(32), 1 FROM n");
    query_i64(q, 1, TOKENS_MAX - 1);
    sql(&fake, q);
    CHECK_OK(token_create(fake.db, &wish, &row, plain, &fake.err), &fake.err);
    struct token_row more = wish;
    more.name[0] = 'x';
    CHECK(token_create(fake.db, &more, &row, plain, &fake.err) < 0);
    CHECK_INT(fake.err.code, ERR_LIMIT);
    /* The expired and the revoked do not count. */
    sql(&fake, db_query(fake.db, "UPDATE token SET expires_ms = 5 WHERE id = 'tok1'"));
    CHECK_OK(token_create(fake.db, &more, &row, plain, &fake.err), &fake.err);
}

TEST(the_owners_token_is_made_once_and_replaced_when_its_file_is)
{
    autofake struct fake fake;
    struct token_row first, again, second, out;
    unsigned char hash[SHA256_SIZE] = { 1 }, other[SHA256_SIZE] = { 2 };

    fake_open(&fake);
    CHECK_OK(token_bootstrap(fake.db, hash, &first, &fake.err), &fake.err);
    CHECK(first.role == ROLE_ADMIN && strcmp(first.name, "bootstrap") == 0 && !first.scopes[0]);
    CHECK_OK(token_bootstrap(fake.db, hash, &again, &fake.err), &fake.err);
    CHECK_STR(again.id, first.id);
    CHECK_OK(token_bootstrap(fake.db, other, &second, &fake.err), &fake.err);
    CHECK(strcmp(second.id, first.id) != 0);
    CHECK(token_bootstrap(fake.db, hash, &out, &fake.err) < 0); /* the older one has ended */
    CHECK_INT(fake.err.code, ERR_CONFLICT);
    CHECK_OK(token_revoke(fake.db, TENANT_DEFAULT, "bootstrap", &out, &fake.err), &fake.err);
    CHECK_STR(out.id, second.id);
    CHECK(token_bootstrap(fake.db, other, &out, &fake.err) < 0);
}

TEST(the_living_come_back_after_a_restart_and_the_ended_do_not)
{
    autofake struct fake fake;
    char alive[7 + TOKEN_TEXT_SIZE], revoked[7 + TOKEN_TEXT_SIZE], expired[7 + TOKEN_TEXT_SIZE];
    char code[TOKEN_TEXT_SIZE], secret[2][TOKEN_TEXT_SIZE];
    struct token_row out;
    struct session_row sessions[2];

    fake_open(&fake);
    struct token_row signs = { .name = "signs", .role = ROLE_ADMIN, .signing = true };
    struct token_row row = fake_token(&fake, &signs, alive);
    fake_token(&fake, &(struct token_row){ .name = "alive", .role = ROLE_ADMIN }, alive);
    fake_token(&fake, &(struct token_row){ .name = "revoked", .role = ROLE_ADMIN }, revoked);
    fake_token(&fake,
               &(struct token_row){
                   .name = "expired", .role = ROLE_ADMIN, .expires_ms = fake_wall_ms + 60000 },
               expired);
    CHECK_OK(token_revoke(fake.db, TENANT_DEFAULT, "revoked", &out, &fake.err), &fake.err);
    for (int i = 0; i < 2; i++) {
        CHECK_OK(login_link(fake.db, "acme", ROLE_VIEWER, code, &fake.err), &fake.err);
        CHECK_OK(login_exchange(fake.db, code, &sessions[i], secret[i], &fake.err), &fake.err);
    }
    CHECK_OK(session_end(fake.db, sessions[1].id, &fake.err), &fake.err);
    fake_wall_ms += 60001;
    fake_stop(&fake);
    fake_start(&fake, &(struct auth_options){ 0 });
    CHECK(fake.auth->tokens.by_id.used == 2 && fake.auth->sessions.by_id.used == 1);
    CHECK_INT(fake_get(&fake, alive), AUTH_OK);
    CHECK_INT(fake_get(&fake, revoked), AUTH_REFUSED);
    CHECK_INT(fake_get(&fake, expired), AUTH_REFUSED);
    const struct live *live = live_by_id(&fake.auth->tokens, row.id, fake_wall_ms);
    CHECK(live->signing && memcmp(live->key, row.sign_key, sizeof(live->key)) == 0);
    char csrf[65], held[65];
    session_csrf(&sessions[0], csrf);
    CHECK_OK(auth_session_csrf(fake.auth, sessions[0].id, held), &fake.err);
    CHECK_STR(held, csrf);
}

static struct query *damage(struct db *db, int which)
{
    switch (which) {
    case 0:
        return db_query(db, "UPDATE token SET hash = 'short'");
    case 1:
        return db_query(db, "UPDATE token SET role = 'emperor'");
    case 2:
        return db_query(db, "UPDATE token SET scopes = hex(zeroblob(200))");
    default:
        return db_query(db, "UPDATE token SET signing = 1");
    }
}

TEST(a_row_that_does_not_fit_refuses_to_load)
{
    for (int which = 0; which < 4; which++) {
        autofake struct fake fake;
        char bearer[7 + TOKEN_TEXT_SIZE];

        fake_open(&fake);
        fake_token(&fake, &wish, bearer);
        sql(&fake, damage(fake.db, which));
        CHECK(auth_load(fake.auth, fake.db, &fake.err) < 0);
        CHECK_INT(fake.err.code, ERR_INTERNAL);
    }
}

TEST(a_login_link_expires)
{
    autofake struct fake fake;
    struct session_row row;
    char code[TOKEN_TEXT_SIZE], cookie[TOKEN_TEXT_SIZE];

    fake_open(&fake);
    CHECK_OK(login_link(fake.db, "acme", ROLE_ADMIN, code, &fake.err), &fake.err);
    struct query *q = db_query(fake.db, "UPDATE login_code SET expires_ms = $1");
    query_i64(q, 1, clock_wall_ms());
    sql(&fake, q);
    CHECK(login_exchange(fake.db, code, &row, cookie, &fake.err) < 0);
    CHECK_INT(fake.err.code, ERR_UNAUTHENTICATED);
    q = db_query(fake.db, "UPDATE login_code SET expires_ms = $1");
    query_i64(q, 1, clock_wall_ms() + 60000);
    sql(&fake, q);
    CHECK_OK(login_exchange(fake.db, code, &row, cookie, &fake.err), &fake.err);
}

TEST(there_are_only_so_many_links_and_sessions)
{
    autofake struct fake fake;
    struct session_row row;
    char code[TOKEN_TEXT_SIZE], cookie[TOKEN_TEXT_SIZE];

    fake_open(&fake);
    struct query *q = db_query(
        fake.db, "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $1)"
                 " INSERT INTO login_code (hash, tenant, role, expires_ms)"
                 " SELECT randomblob(32), 'default', 'viewer', $2 FROM n");
    query_i64(q, 1, LOGIN_CODES_MAX - 1);
    query_i64(q, 2, clock_wall_ms() + 600000);
    sql(&fake, q);
    CHECK_OK(login_link(fake.db, "acme", ROLE_ADMIN, code, &fake.err), &fake.err);
    char more[TOKEN_TEXT_SIZE];
    CHECK(login_link(fake.db, "acme", ROLE_ADMIN, more, &fake.err) < 0 &&
          fake.err.code == ERR_LIMIT);
    q = db_query(
        fake.db,
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $1)"
        " INSERT INTO session (id, tenant, role, hash, csrf, created_ms, expires_ms)"
        " SELECT 'ses' || i, 'default', 'viewer', randomblob(32), randomblob(32), 1, $2 FROM n");
    query_i64(q, 1, SESSIONS_MAX - 1);
    query_i64(q, 2, clock_wall_ms() + 600000);
    sql(&fake, q);
    CHECK_OK(login_exchange(fake.db, code, &row, cookie, &fake.err), &fake.err);
    CHECK_OK(login_link(fake.db, "acme", ROLE_ADMIN, code, &fake.err), &fake.err);
    CHECK(login_exchange(fake.db, code, &row, cookie, &fake.err) < 0 && fake.err.code == ERR_LIMIT);
}
