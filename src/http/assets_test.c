/* Which bytes of an asset go to whom. */
#include "http/assets.h"

#include <stdio.h>
#include <zlib.h>

#include "base/test.h"
#include "http/http_fake.h"

static char plain[5000], gz[8000];

/* A table of one asset with known plain bytes, its real gzip form, and a marker as br form. */
static const struct asset *table(bool with_br)
{
    static struct asset assets[2];
    z_stream stream = { 0 };

    for (size_t i = 0; i < sizeof(plain); i++)
        plain[i] = (char)('a' + i * i % 23);
    CHECK(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
    stream.next_in = (Bytef *)plain;
    stream.avail_in = sizeof(plain);
    stream.next_out = (Bytef *)gz;
    stream.avail_out = sizeof(gz);
    CHECK(deflate(&stream, Z_FINISH) == Z_STREAM_END);
    assets[0] = (struct asset){
        .path = "/app.js",
        .type = "text/javascript",
        .etag = "abc123",
        .gz = { gz, stream.total_out },
        .plain_size = sizeof(plain),
    };
    if (with_br)
        assets[0].br = STR("br bytes");
    deflateEnd(&stream);
    return assets;
}

static void ask(const struct asset *asset, const char *method, const char *name, const char *value)
{
    static const struct http_header extra = { STR("x-extra"), STR("1") };

    fake_reset(NULL, HTTP_1_1, method);
    if (name)
        fake_header(name, value);
    asset_serve(&fake.req, asset, &extra, 1);
    CHECK(fake.ended);
    CHECK(strstr(buf_cstr(&fake.head), "x-extra: 1\n"));
}

static bool says(const char *line)
{
    return strstr(buf_cstr(&fake.head), line) != NULL;
}

static bool body_is(const void *data, size_t len)
{
    return fake.body.len == len && (!len || memcmp(fake.body.data, data, len) == 0);
}

TEST(found_by_exact_path)
{
    const struct asset *assets = table(true);

    CHECK(asset_find(assets, STR("/app.js")) == assets);
    CHECK(!asset_find(assets, STR("/app.jss")));
    CHECK(!asset_find(assets, STR("/app.j")));
    CHECK(!asset_find(assets, STR("")));
    CHECK(!asset_find(NULL, STR("/app.js")));
}

TEST(encoding_is_negotiated)
{
    static const struct {
        const char *accept, *coding; /* of a client; what it gets, NULL is plain */
    } cases[] = {
        { NULL, NULL },
        { "", NULL },
        { "gzip", "gzip" },
        { "GZIP", "gzip" },
        { "gzip, deflate, br", "br" },
        { "br;q=0, gzip;q=0.5", "gzip" },
        { "br;q=0.000, gzip;q=0", NULL },
        { "br;q=0.001", "br" },
        { "*", "br" },
        { "*;q=0", NULL },
        { "*;q=0, gzip", "gzip" },
        { "br;q=0, *", "gzip" },
        { "identity", NULL },
        { "deflate", NULL },
    };
    const struct asset *asset = table(true);

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const char *want = cases[i].coding;

        ask(asset, "GET", cases[i].accept ? "accept-encoding" : NULL, cases[i].accept);
        CHECK_INT(fake.status, 200);
        CHECK(says("content-type: text/javascript\n") && says("vary: accept-encoding\n"));
        if (!want)
            CHECK(!says("content-encoding") && body_is(plain, sizeof(plain)) &&
                  says("etag: \"abc123\"\n"));
        else if (strcmp(want, "br") == 0)
            CHECK(says("content-encoding: br\n") && body_is("br bytes", 8) &&
                  says("etag: \"abc123-br\"\n"));
        else
            CHECK(says("content-encoding: gzip\n") && body_is(gz, asset->gz.n) &&
                  says("etag: \"abc123-gz\"\n"));
    }
    ask(table(false), "GET", "accept-encoding", "br, gzip");
    CHECK(says("content-encoding: gzip\n"));
}

TEST(etags_save_the_body)
{
    static const struct {
        const char *tags;
        int status;
    } cases[] = {
        { "\"abc123\"", 304 },
        { "\"abc123-br\"", 304 },
        { "W/\"abc123-gz\"", 304 },
        { "\"x\", \"abc123\"", 304 },
        { "*", 304 },
        { "\"abc1234\"", 200 },
        { "\"abc12\"", 200 },
        { "abc123", 200 },
        { "\"abc123-xx\"", 200 },
        { "\"", 200 },
        { "", 200 },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        ask(table(true), "GET", "if-none-match", cases[i].tags);
        if (fake.status != cases[i].status)
            test_fail(__FILE__, __LINE__, "%s gave %d", cases[i].tags, fake.status);
        CHECK((fake.status == 304) == (fake.body.len == 0));
        CHECK(says("etag: ") && says("cache-control: no-cache\n"));
    }
}

TEST(hashed_names_are_immutable)
{
    struct asset asset = *table(true);

    asset.immutable = true;
    ask(&asset, "GET", NULL, NULL);
    CHECK(says("cache-control: public, max-age=31536000, immutable\n"));
}

TEST(parts_are_of_the_plain_bytes)
{
    const struct asset *asset = table(true);

    fake_reset(NULL, HTTP_1_1, "GET");
    fake_header("accept-encoding", "br");
    fake_header("range", "bytes=10-19");
    asset_serve(&fake.req, asset, NULL, 0);
    CHECK_INT(fake.status, 206);
    CHECK(says("content-range: bytes 10-19/5000\n") && !says("content-encoding"));
    CHECK(body_is(plain + 10, 10));

    ask(asset, "GET", "range", "bytes=-5");
    CHECK(fake.status == 206 && body_is(plain + sizeof(plain) - 5, 5));
    ask(asset, "GET", "range", "bytes=5000-");
    CHECK(fake.status == 416 && says("content-range: bytes */5000\n") && !fake.body.len);
    ask(asset, "HEAD", "range", "bytes=0-1");
    CHECK_INT(fake.status, 200);
}

TEST(if_range_guards_a_part)
{
    static const struct {
        const char *tag;
        int status;
    } cases[] = { { "\"abc123\"", 206 }, { "W/\"abc123\"", 200 }, { "\"other\"", 200 } };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        fake_reset(NULL, HTTP_1_1, "GET");
        fake_header("range", "bytes=0-0");
        fake_header("if-range", cases[i].tag);
        asset_serve(&fake.req, table(true), NULL, 0);
        CHECK_INT(fake.status, cases[i].status);
    }
}

TEST(other_methods_are_refused)
{
    ask(table(true), "POST", NULL, NULL);
    CHECK(fake.status == 405 && says("allow: GET, HEAD\n") && !fake.body.len);
}

TEST(a_damaged_asset_is_an_error_not_garbage)
{
    struct asset asset = *table(true);

    asset.plain_size--;
    ask(&asset, "GET", NULL, NULL);
    CHECK(fake.status == 500 && !fake.body.len);
    asset.plain_size += 2;
    ask(&asset, "GET", NULL, NULL);
    CHECK(fake.status == 500 && !fake.body.len);
}
