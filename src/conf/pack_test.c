/* Settings through JSON and back. */
#include "base/limits.h"
#include "base/mem.h"
#include "base/test.h"
#include "conf/conf.h"

static void conf_drop(struct conf **conf)
{
    conf_free(*conf);
}
#define autoconf auto_with(conf_drop)

TEST(pack_carries_every_setting_and_its_source)
{
    autoconf struct conf *conf = conf_new(), *copy = conf_new();
    autobuf struct buf packed = { 0 }, again = { 0 };
    struct err err = { 0 };

    CHECK_OK(conf_parse(conf, STR("host = a,b\nlisten =\nreaders = 3"), "f \"q\"", &err), &err);
    CHECK_OK(conf_set(conf, CONF_FLAG, "log_level", "warn", "--log-level", &err), &err);
    CHECK_OK(conf_set(conf, CONF_DEFAULT, "state", "/elsewhere", "default", &err), &err);
    conf_pack(conf, &packed);
    CHECK_OK(conf_unpack(copy, buf_view(&packed), &err), &err);
    for (const struct conf_key *key = conf_table; key->name; key++) {
        const char *here, *there;

        CHECK(conf_same(conf, copy, key->name));
        CHECK_INT(conf_source(conf, key->name, &here), conf_source(copy, key->name, &there));
        CHECK_STR(there, here);
        CHECK_INT(conf_int(conf, key->name), conf_int(copy, key->name));
    }
    CHECK_STR(conf_text(copy, "state"), "/elsewhere");
    CHECK_STR(conf_list(copy, "host")[1], "b");
    conf_pack(copy, &again);
    CHECK(str_eq(buf_view(&packed), buf_view(&again)));
}

TEST(pack_refuses_what_it_did_not_write)
{
    static const char *const bad[] = {
        "",
        "[]",
        "{\"listen\":1}",
        "{\"listen\":{\"from\":\"flag\",\"where\":\"x\"}}",
        "{\"listen\":{\"from\":\"moon\",\"where\":\"x\",\"value\":\"\"}}",
        "{\"lost\":{\"from\":\"flag\",\"where\":\"x\",\"value\":\"1\"}}",
        "{\"readers\":{\"from\":\"flag\",\"where\":\"x\",\"value\":\"99\"}}",
    };

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        autoconf struct conf *conf = conf_new();
        struct err err = { 0 };

        CHECK(conf_unpack(conf, str_of(bad[i]), &err) < 0);
        CHECK_INT(err.code, ERR_INVALID);
    }
    autoconf struct conf *conf = conf_new();
    autofree char *big = xcalloc(1, CONF_FILE_MAX + 1);
    struct err err = { 0 };
    CHECK(conf_unpack(conf, (struct str){ big, CONF_FILE_MAX + 1 }, &err) < 0);
    CHECK_INT(err.code, ERR_LIMIT);
}
