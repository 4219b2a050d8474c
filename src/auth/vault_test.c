/* auth: values that only the key opens, and the secrets of agents. */
#include "auth/auth_fake.h"
#include "auth/vault.h"

#include <fcntl.h>

static struct vault_keys keys = { .own = { { 1, 2, 3 } } };
static struct seal_private egress = { { 4, 5, 6 } };

static int keep(struct fake *fake, const char *tenant, const char *name, struct str value,
                const char *by, struct secret_row *row)
{
    return vault_put(fake->db, &keys, tenant, name, &(struct vault_value){ .value = value }, by,
                     row, &fake->err);
}

static void put(struct fake *fake, const char *tenant, const char *name, const char *value)
{
    struct secret_row row;

    CHECK_OK(keep(fake, tenant, name, str_of(value), "tok1", &row), &fake->err);
}

TEST(a_value_is_replaced_and_found_by_its_tenant_alone)
{
    autofake struct fake fake;
    autobuf struct buf plain = { 0 };
    struct secret_row row;

    fake_open(&fake);
    put(&fake, "acme", "API_KEY", "first");
    CHECK_OK(keep(&fake, "acme", "API_KEY", STR("second"), "tok2", &row), &fake.err);
    CHECK_INT(row.version, 2);
    CHECK_STR(row.by, "tok2");
    CHECK(row.changed_ms >= row.created_ms && !row.agent);
    CHECK_OK(vault_open(fake.db, &keys.own, "acme", "API_KEY", &plain, &fake.err), &fake.err);
    CHECK(str_is(buf_view(&plain), "second"));
    CHECK(vault_open(fake.db, &keys.own, "other", "API_KEY", &plain, &fake.err) < 0);
    CHECK_INT(fake.err.code, ERR_NOT_FOUND);
    struct seal_key wrong = { { 9 } };
    CHECK(vault_open(fake.db, &wrong, "acme", "API_KEY", &plain, &fake.err) < 0);
    CHECK_INT(fake.err.code, ERR_INTERNAL);
}

TEST(a_value_moved_to_another_row_does_not_open)
{
    autofake struct fake fake;
    autobuf struct buf plain = { 0 };

    fake_open(&fake);
    put(&fake, "acme", "a", "mine");
    put(&fake, "evil", "a", "theirs");
    struct query *q =
        db_query(fake.db, "UPDATE secret SET sealed = (SELECT sealed FROM secret WHERE"
                          " tenant = 'acme') WHERE tenant = 'evil'");
    CHECK_OK(query_run(q, &fake.err), &fake.err);
    query_done(&q);
    CHECK(vault_open(fake.db, &keys.own, "evil", "a", &plain, &fake.err) < 0);
    CHECK_INT(plain.len, 0);
}

TEST(no_value_and_no_secret_is_in_the_files)
{
    autofake struct fake fake;
    static char data[65536];
    char plain[AGENT_SECRET_SIZE];
    struct secret_row row;

    fake_open(&fake);
    put(&fake, "acme", "API_KEY", "a-value-to-be-searched");
    CHECK_OK(agent_secret_create(fake.db, "acme", "agent-1", "tok1", &row, plain, &fake.err),
             &fake.err);
    for (const char *const *end = (const char *const[]){ "", "-wal", NULL }; *end; end++) {
        autofree char *path = xprintf("%s%s", fake.path, *end);
        autoclose int fd = open(path, O_RDONLY | O_CLOEXEC);
        autobuf struct buf all = { 0 };
        ssize_t got;

        while (fd >= 0 && (got = read(fd, data, sizeof(data))) > 0)
            buf_append(&all, data, (size_t)got);
        CHECK(!all.len || !memmem(all.data, all.len, "a-value-to-be", 13));
        CHECK(!all.len || !memmem(all.data, all.len, plain, AGENT_SECRET_SIZE - 1));
    }
}

static int put_request(struct fake *fake, const char *name, const char *value,
                       const char *const *hosts, struct secret_row *row)
{
    struct err err;

    CHECK_OK(seal_public_of(&egress, &keys.egress, &err), &err);
    return vault_put(fake->db, &keys, "acme", name,
                     &(struct vault_value){ str_of(value), true, hosts }, "tok1", row, &fake->err);
}

/* Everything that the api process has is here, and it does not open the value. */
TEST(one_for_requests_opens_for_the_egress_process_alone)
{
    static const char *const hosts[] = { "api.a.org", "*.b.org GET /x/", NULL };
    autobuf struct buf context = { 0 }, sealed = { 0 }, plain = { 0 };
    autofake struct fake fake;
    struct seal_private wrong;
    struct secret_row row, again;

    fake_open(&fake);
    CHECK_OK(put_request(&fake, "KEY", "sk-the-value", hosts, &row), &fake.err);
    CHECK(row.request && inject_placeholder_ok(str_of(row.placeholder)));
    CHECK_STR(row.hosts, "api.a.org\n*.b.org GET /x/");
    CHECK(vault_open(fake.db, &keys.own, "acme", "KEY", &plain, &fake.err) < 0);
    CHECK_INT(fake.err.code, ERR_NOT_FOUND);
    CHECK_OK(vault_sealed(fake.db, "acme", "KEY", &again, &context, &sealed, &fake.err), &fake.err);
    CHECK_STR(again.placeholder, row.placeholder);
    CHECK(!memmem(sealed.data, sealed.len, "sk-the", 6));
    CHECK(unseal(&keys.own, buf_view(&context), buf_view(&sealed), &plain, &fake.err) < 0);
    memcpy(&wrong, &keys.egress, sizeof(wrong));
    CHECK(unseal_mine(&wrong, buf_view(&context), buf_view(&sealed), &plain, &fake.err) < 0);
    CHECK_INT(plain.len, 0);
    CHECK_OK(unseal_mine(&egress, buf_view(&context), buf_view(&sealed), &plain, &fake.err),
             &fake.err);
    CHECK(str_is(buf_view(&plain), "sk-the-value"));
    CHECK(vault_sealed(fake.db, "evil", "KEY", &again, &context, &sealed, &fake.err) < 0);
    CHECK_INT(fake.err.code, ERR_NOT_FOUND);
}

/* Whoever can write to the store cannot have a secret sent to another host. */
TEST(hosts_that_are_changed_in_the_store_do_not_open_it)
{
    static const char *const hosts[] = { "api.a.org", NULL };
    autobuf struct buf context = { 0 }, sealed = { 0 }, plain = { 0 };
    autofake struct fake fake;
    struct secret_row row;

    fake_open(&fake);
    CHECK_OK(put_request(&fake, "KEY", "sk-the-value", hosts, &row), &fake.err);
    struct query *q = db_query(fake.db, "UPDATE secret SET hosts = 'evil.org'");
    CHECK_OK(query_run(q, &fake.err), &fake.err);
    query_done(&q);
    CHECK_OK(vault_sealed(fake.db, "acme", "KEY", &row, &context, &sealed, &fake.err), &fake.err);
    CHECK(unseal_mine(&egress, buf_view(&context), buf_view(&sealed), &plain, &fake.err) < 0);
}

TEST(a_value_changes_its_use_only_with_another_value)
{
    static const char *const hosts[] = { "api.a.org", NULL };
    autobuf struct buf context = { 0 }, sealed = { 0 }, plain = { 0 };
    char placeholder[INJECT_PLACEHOLDER_LEN + 1];
    autofake struct fake fake;
    struct secret_row row;

    fake_open(&fake);
    CHECK_OK(put_request(&fake, "KEY", "sk-the-first", hosts, &row), &fake.err);
    memcpy(placeholder, row.placeholder, sizeof(placeholder));
    CHECK_OK(put_request(&fake, "KEY", "sk-the-second", hosts, &row), &fake.err);
    CHECK_STR(row.placeholder, placeholder); /* sandboxes that run have it */
    CHECK_INT(row.version, 2);
    put(&fake, "acme", "KEY", "for the server");
    CHECK(vault_sealed(fake.db, "acme", "KEY", &row, &context, &sealed, &fake.err) < 0);
    CHECK_OK(vault_open(fake.db, &keys.own, "acme", "KEY", &plain, &fake.err), &fake.err);
    CHECK(str_is(buf_view(&plain), "for the server"));
}

TEST(what_cannot_go_into_a_request_is_refused)
{
    static const char *const hosts[] = { "api.a.org", NULL }, *const none[] = { NULL },
                             *const bad[] = { "10.0.0.1", NULL };
    autofake struct fake fake;
    struct secret_row row;

    fake_open(&fake);
    CHECK(put_request(&fake, "KEY", "two\nlines of it", hosts, &row) < 0);
    CHECK_STR(fake.err.field, "value");
    CHECK(!strstr(fake.err.msg, "lines of it"));
    CHECK(put_request(&fake, "KEY", "short", hosts, &row) < 0);
    CHECK(put_request(&fake, "KEY", "long enough", none, &row) < 0);
    CHECK_STR(fake.err.field, "hosts");
    CHECK(put_request(&fake, "KEY", "long enough", bad, &row) < 0);
    CHECK_STR(fake.err.field, "hosts");
    CHECK(vault_put(fake.db, &keys, "acme", "KEY", &(struct vault_value){ STR("x"), false, hosts },
                    "t", &row, &fake.err) < 0);
    CHECK_STR(fake.err.field, "hosts");
}

TEST(an_agent_has_one_secret_in_the_whole_server)
{
    autofake struct fake fake;
    char plain[AGENT_SECRET_SIZE], other[AGENT_SECRET_SIZE];
    unsigned char hash[SHA256_SIZE];
    struct secret_row row;

    fake_open(&fake);
    CHECK_OK(agent_secret_create(fake.db, "acme", "agent-1", "t", &row, plain, &fake.err),
             &fake.err);
    CHECK_INT(strlen(plain), 64);
    sha256(plain, 64, hash);
    CHECK(memcmp(hash, row.hash, sizeof(hash)) == 0 && row.agent);
    CHECK(agent_secret_create(fake.db, "acme", "agent-1", "t", &row, other, &fake.err) < 0);
    CHECK_INT(fake.err.code, ERR_CONFLICT);
    CHECK(agent_secret_create(fake.db, "evil", "agent-1", "t", &row, other, &fake.err) < 0);
    CHECK_INT(fake.err.code, ERR_CONFLICT);
    CHECK_INT(other[0], 0);
    CHECK(keep(&fake, "acme", "agent-1", STR("x"), "t", &row) < 0);
    CHECK_INT(fake.err.code, ERR_CONFLICT);
    CHECK(secret_delete(fake.db, "evil", "agent-1", &row, &fake.err) < 0);
    CHECK_OK(secret_delete(fake.db, "acme", "agent-1", &row, &fake.err), &fake.err);
    CHECK(secret_delete(fake.db, "acme", "agent-1", &row, &fake.err) < 0);
    CHECK_INT(fake.err.code, ERR_NOT_FOUND);
}

TEST(a_new_secret_takes_over_when_it_was_used)
{
    autofake struct fake fake;
    char plain[AGENT_SECRET_SIZE], next[AGENT_SECRET_SIZE];
    struct secret_row first, row;

    fake_open(&fake);
    CHECK_OK(agent_secret_create(fake.db, "acme", "agent-1", "t", &first, plain, &fake.err),
             &fake.err);
    CHECK(agent_secret_rotate(fake.db, "evil", "agent-1", 99, &row, next, &fake.err) < 0);
    CHECK_INT(fake.err.code, ERR_NOT_FOUND);
    CHECK_OK(agent_secret_rotate(fake.db, "acme", "agent-1", 99, &row, next, &fake.err), &fake.err);
    CHECK(strcmp(plain, next) != 0 && row.next_until_ms == 99 && row.version == 2);
    CHECK(memcmp(row.hash, first.hash, sizeof(row.hash)) == 0);
    CHECK_OK(agent_secret_settle(fake.db, "agent-1", first.hash, &fake.err), &fake.err); /* none */
    CHECK_OK(agent_secret_settle(fake.db, "agent-1", row.next, &fake.err), &fake.err);
    struct secret_row last;
    CHECK_OK(secret_delete(fake.db, "acme", "agent-1", &last, &fake.err), &fake.err);
    CHECK(memcmp(last.hash, row.next, sizeof(last.hash)) == 0 && last.next_until_ms == 0);
}

TEST(names_have_a_form_and_a_length)
{
    static const char *const bad[] = { "", ".", "-a", ".a", "a/b", "a b", "a\n", "\xc3\xa4" };
    char name[SECRET_NAME_MAX + 2];
    struct err err;

    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        CHECK(secret_name_check(bad[i], "name", &err) < 0);
    CHECK_STR(err.field, "name");
    memset(name, 'a', sizeof(name));
    name[SECRET_NAME_MAX] = 0;
    CHECK_OK(secret_name_check(name, "name", &err), &err);
    CHECK_OK(secret_name_check("_A.b-9", "name", &err), &err);
    name[SECRET_NAME_MAX] = 'a';
    name[SECRET_NAME_MAX + 1] = 0;
    CHECK(secret_name_check(name, "name", &err) < 0);
}

TEST(values_and_their_number_have_limits)
{
    autofake struct fake fake;
    autobuf struct buf value = { 0 };
    struct secret_row row;

    fake_open(&fake);
    memset(buf_reserve(&value, SECRET_VALUE_MAX + 1), 'v', SECRET_VALUE_MAX + 1);
    value.len = SECRET_VALUE_MAX;
    CHECK_OK(keep(&fake, "t", "a", buf_view(&value), "t", &row), &fake.err);
    value.len++;
    CHECK(keep(&fake, "t", "a", buf_view(&value), "t", &row) < 0);
    CHECK_INT(fake.err.code, ERR_INVALID);
    for (int i = 1; i < SECRETS_MAX; i++) {
        char name[16];

        snprintf(name, sizeof(name), "n%d", i);
        put(&fake, "t", name, "x");
    }
    CHECK(keep(&fake, "t", "one-more", STR("x"), "t", &row) < 0);
    CHECK_INT(fake.err.code, ERR_LIMIT);
    put(&fake, "t", "n1", "another"); /* in place of one that is there */
    put(&fake, "u", "n1", "x");
}
