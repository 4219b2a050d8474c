/* auth: signed requests. Whatever is covered must not change, and nothing works twice. */
#include "auth/auth_fake.h"

struct signer {
    struct fake fake;
    struct token_row row;
    unsigned char key[SHA256_SIZE];
    char time[24], nonce[80], signature[SHA256_HEX_SIZE], nonce_key[160];
};

/* As a client does it, from the token alone; auth.h is the specification. */
static void sign(struct signer *s, const char *method, const char *target, const char *body,
                 int64_t time_ms, const char *nonce)
{
    unsigned char hash[SHA256_SIZE], mac[SHA256_SIZE];
    char hex[SHA256_HEX_SIZE];

    sha256(body, strlen(body), hash);
    hex_text(hash, sizeof(hash), hex);
    snprintf(s->time, sizeof(s->time), "%lld", (long long)time_ms);
    snprintf(s->nonce, sizeof(s->nonce), "%s", nonce);
    autofree char *text =
        xprintf("%s\n%s\n%s\n%s\n%s\n%s", method, target, s->time, s->nonce, hex, s->row.id);
    hmac_sha256((struct str){ (const char *)s->key, sizeof(s->key) }, str_of(text), mac);
    hex_text(mac, sizeof(mac), s->signature);
}

static void put_headers(struct signer *s)
{
    fake_header(&s->fake, "x-atoll-key", s->row.id);
    fake_header(&s->fake, "x-atoll-time", s->time);
    fake_header(&s->fake, "x-atoll-nonce", s->nonce);
    fake_header(&s->fake, "x-atoll-signature", s->signature);
}

/* Both steps; the code of the refusal, or ERR_NONE. */
static enum err_code send(struct signer *s, const char *method, const char *target,
                          const char *body)
{
    fake_request(&s->fake, method, target);
    put_headers(s);
    if (fake_check(&s->fake) != AUTH_BODY)
        return s->fake.err.code;
    s->fake.err = (struct err){ 0 };
    if (auth_signed(s->fake.auth, &s->fake.req, str_of(body), &s->fake.who, s->nonce_key,
                    &s->fake.err) < 0)
        return s->fake.err.code;
    return ERR_NONE;
}

static void start(struct signer *s)
{
    char bearer[7 + TOKEN_TEXT_SIZE];

    fake_open(&s->fake);
    s->row = fake_token(&s->fake,
                        &(struct token_row){ .name = "bot", .role = ROLE_AGENT, .signing = true },
                        bearer);
    hmac_sha256(str_of(bearer + 7), STR("atoll-sign-v1"), s->key);
}

static void stop(struct signer *s)
{
    fake_stop(&s->fake);
}
#define autosigner auto_with(stop)

#define TARGET "/api/v1/notes?a=1&b=2"
#define BODY "{\"text\":\"hello\"}"
#define NONCE "nonce-00"

TEST(a_signed_request_is_taken_and_named)
{
    autosigner struct signer s = { 0 };

    start(&s);
    sign(&s, "POST", TARGET, BODY, fake_wall_ms, NONCE);
    CHECK_INT(send(&s, "POST", TARGET, BODY), ERR_NONE);
    CHECK_STR(s.fake.who.id, s.row.id);
    CHECK(s.fake.who.via == VIA_SIGNED && s.fake.who.role == ROLE_AGENT);
    autofree char *want = xprintf("%s:" NONCE, s.row.id);
    CHECK_STR(s.nonce_key, want);
    sign(&s, "GET", "/", "", fake_wall_ms, "another-nonce");
    CHECK_INT(send(&s, "GET", "/", ""), ERR_NONE);
    /* Upper-case hex is the same number. */
    sign(&s, "GET", "/", "", fake_wall_ms, "yet-another");
    for (char *p = s.signature; *p; p++)
        if (*p >= 'a' && *p <= 'f')
            *p = (char)(*p - 32);
    CHECK_INT(send(&s, "GET", "/", ""), ERR_NONE);
}

TEST(whatever_is_covered_must_not_change)
{
    autosigner struct signer s = { 0 };

    start(&s);
    sign(&s, "POST", TARGET, BODY, fake_wall_ms, NONCE);
    static const char *const changed[][3] = {
        { "PUT", TARGET, BODY },
        { "post", TARGET, BODY },
        { "POST", "/api/v1/notez?a=1&b=2", BODY },
        { "POST", "/api/v1/notes?a=1&b=3", BODY },
        { "POST", "/api/v1/notes?b=2&a=1", BODY },
        { "POST", "/api/v1/notes", BODY },
        { "POST", "/api/v1/notes?a=1&b=2&c", BODY },
        { "POST", "/api/v1/%6eotes?a=1&b=2", BODY },
        { "POST", TARGET, "{\"text\":\"hellO\"}" },
        { "POST", TARGET, "{\"text\":\"hello\"} " },
        { "POST", TARGET, "" },
    };
    for (size_t i = 0; i < ARRAY_LEN(changed); i++) {
        fake_mono_ms += 60000;
        if (send(&s, changed[i][0], changed[i][1], changed[i][2]) != ERR_UNAUTHENTICATED)
            test_fail(__FILE__, __LINE__, "%s %s %s was taken", changed[i][0], changed[i][1],
                      changed[i][2]);
    }
    struct signer kept = s;
    fake_mono_ms += 60000;
    s.time[strlen(s.time) - 1] ^= 1;
    CHECK_INT(send(&s, "POST", TARGET, BODY), ERR_UNAUTHENTICATED);
    memcpy(s.time, kept.time, sizeof(s.time));
    s.nonce[0] = 'N';
    CHECK_INT(send(&s, "POST", TARGET, BODY), ERR_UNAUTHENTICATED);
    memcpy(s.nonce, kept.nonce, sizeof(s.nonce));
    s.signature[0] = s.signature[0] == '0' ? '1' : '0';
    CHECK_INT(send(&s, "POST", TARGET, BODY), ERR_UNAUTHENTICATED);
    memcpy(s.signature, kept.signature, sizeof(s.signature));
    /* Nothing of that used the request up. */
    CHECK_INT(send(&s, "POST", TARGET, BODY), ERR_NONE);
}

TEST(the_key_must_be_alive_and_made_for_signing)
{
    autosigner struct signer s = { 0 };
    char bearer[7 + TOKEN_TEXT_SIZE];
    struct err answers[4];

    start(&s);
    struct token_row signing = s.row;
    /* A token without signing, whose owner tries anyway. */
    s.row = fake_token(&s.fake, &(struct token_row){ .name = "no", .role = ROLE_AGENT }, bearer);
    hmac_sha256(str_of(bearer + 7), STR("atoll-sign-v1"), s.key);
    sign(&s, "GET", "/", "", fake_wall_ms, NONCE);
    CHECK_INT(send(&s, "GET", "/", ""), ERR_UNAUTHENTICATED);
    answers[0] = s.fake.err;
    /* The all-zero key that stands in for nobody's must open nothing. */
    memset(s.key, 0, sizeof(s.key));
    sign(&s, "GET", "/", "", fake_wall_ms, NONCE);
    CHECK_INT(send(&s, "GET", "/", ""), ERR_UNAUTHENTICATED);
    s.row.id[20] = s.row.id[20] == '0' ? '1' : '0'; /* unknown */
    sign(&s, "GET", "/", "", fake_wall_ms, NONCE);
    CHECK_INT(send(&s, "GET", "/", ""), ERR_UNAUTHENTICATED);
    answers[1] = s.fake.err;
    /* Revoked, and expired. */
    s.row = signing;
    memcpy(s.key, signing.sign_key, sizeof(s.key));
    sign(&s, "GET", "/", "", fake_wall_ms, NONCE);
    auth_token_revoked(s.fake.auth, s.row.id);
    CHECK_INT(send(&s, "GET", "/", ""), ERR_UNAUTHENTICATED);
    answers[2] = s.fake.err;
    s.row.expires_ms = fake_wall_ms + 10;
    auth_token_added(s.fake.auth, &s.row);
    fake_wall_ms += 10;
    CHECK_INT(send(&s, "GET", "/", ""), ERR_UNAUTHENTICATED);
    answers[3] = s.fake.err;
    for (int i = 1; i < 4; i++)
        CHECK(memcmp(&answers[0], &answers[i], sizeof(answers[0])) == 0);
    /* The cookie's or another token's secret is no signing key, and a session id no key id. */
    s.row = signing;
    fake_mono_ms += 60000;
    memcpy(s.row.id, "ses", 3);
    sign(&s, "GET", "/", "", fake_wall_ms, NONCE);
    CHECK_INT(send(&s, "GET", "/", ""), ERR_UNAUTHENTICATED);
}

TEST(time_may_differ_by_exactly_the_skew)
{
    autosigner struct signer s = { 0 };
    static const struct {
        int64_t off_ms;
        enum err_code code;
    } cases[] = {
        { -AUTH_SKEW_MS, ERR_NONE },
        { -AUTH_SKEW_MS - 1, ERR_UNAUTHENTICATED },
        { AUTH_SKEW_MS, ERR_NONE },
        { AUTH_SKEW_MS + 1, ERR_UNAUTHENTICATED },
    };

    start(&s);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char nonce[32];

        snprintf(nonce, sizeof(nonce), "time-%04zu", i);
        sign(&s, "GET", "/", "", fake_wall_ms + cases[i].off_ms, nonce);
        CHECK_INT(send(&s, "GET", "/", ""), cases[i].code);
    }
    static const char *const bad[] = {
        "", "0", "-1", "abc", "1e12", " 1", "99999999999999999999", "9223372036854775807"
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        fake_mono_ms += 60000;
        sign(&s, "GET", "/", "", fake_wall_ms, "time-bad1");
        snprintf(s.time, sizeof(s.time), "%s", bad[i]);
        CHECK_INT(send(&s, "GET", "/", ""), ERR_UNAUTHENTICATED);
    }
    /* A body that dribbles in past the time is too late, though the head was in time. */
    sign(&s, "POST", "/", BODY, fake_wall_ms, "time-late");
    fake_request(&s.fake, "POST", "/");
    put_headers(&s);
    CHECK_INT(fake_check(&s.fake), AUTH_BODY);
    fake_wall_ms += AUTH_SKEW_MS + 1;
    CHECK(auth_signed(s.fake.auth, &s.fake.req, STR(BODY), &s.fake.who, s.nonce_key, &s.fake.err) <
          0);
    CHECK_INT(s.fake.err.code, ERR_UNAUTHENTICATED);
}

TEST(nonces_have_a_length_and_an_alphabet)
{
    autosigner struct signer s = { 0 };
    char most[AUTH_NONCE_MAX + 2];

    start(&s);
    memset(most, 'n', sizeof(most));
    most[AUTH_NONCE_MAX + 1] = 0;
    const char *const bad[] = { "",         "1234567",        most, "nonce 00", "nonce:00",
                                "nonce/00", "nonce\xc3\xa9-0" };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        fake_mono_ms += 60000;
        sign(&s, "GET", "/", "", fake_wall_ms, bad[i]);
        CHECK_INT(send(&s, "GET", "/", ""), ERR_UNAUTHENTICATED);
    }
    most[AUTH_NONCE_MAX] = 0;
    const char *const fine[] = { "12345678", "A-Z_a-z_0-9", most };
    for (size_t i = 0; i < ARRAY_LEN(fine); i++) {
        sign(&s, "GET", "/", "", fake_wall_ms, fine[i]);
        CHECK_INT(send(&s, "GET", "/", ""), ERR_NONE);
        CHECK(strlen(s.nonce_key) == strlen(s.row.id) + 1 + strlen(fine[i]));
    }
}

TEST(each_header_must_be_there_exactly_once)
{
    autosigner struct signer s = { 0 };

    start(&s);
    sign(&s, "GET", "/", "", fake_wall_ms, NONCE);
    for (size_t missing = 0; missing < 4; missing++) {
        fake_mono_ms += 60000;
        fake_request(&s.fake, "GET", "/");
        put_headers(&s);
        s.fake.headers[missing] = s.fake.headers[--s.fake.req.header_count];
        CHECK_INT(fake_check(&s.fake), AUTH_REFUSED);
        CHECK_INT(s.fake.err.code, ERR_UNAUTHENTICATED);
    }
    for (size_t twice = 0; twice < 4; twice++) {
        fake_mono_ms += 60000;
        fake_request(&s.fake, "GET", "/");
        put_headers(&s);
        s.fake.headers[s.fake.req.header_count++] = s.fake.headers[twice];
        CHECK_INT(fake_check(&s.fake), AUTH_REFUSED);
        /* The second step does not rely on the first. */
        CHECK(auth_signed(s.fake.auth, &s.fake.req, STR_NONE, &s.fake.who, s.nonce_key,
                          &s.fake.err) < 0);
    }
    /* One alone, beside a good bearer token: still an attempt to sign. */
    char bearer[7 + TOKEN_TEXT_SIZE];
    fake_mono_ms += 60000;
    fake_token(&s.fake, &(struct token_row){ .name = "b", .role = ROLE_ADMIN }, bearer);
    CHECK_INT(fake_get(&s.fake, bearer), AUTH_OK);
    fake_header(&s.fake, "x-atoll-nonce", "nonce-00");
    CHECK_INT(fake_check(&s.fake), AUTH_REFUSED);
    CHECK_INT(send(&s, "GET", "/", ""), ERR_NONE);
}

TEST(a_replay_is_refused_by_memory_and_by_the_store)
{
    autosigner struct signer s = { 0 };

    start(&s);
    sign(&s, "POST", TARGET, BODY, fake_wall_ms, NONCE);
    CHECK_INT(send(&s, "POST", TARGET, BODY), ERR_NONE);
    CHECK_OK(auth_nonce_put(s.fake.db, s.nonce_key, &s.fake.err), &s.fake.err);
    CHECK_INT(send(&s, "POST", TARGET, BODY), ERR_UNAUTHENTICATED);
    /* The same nonce with another content is signed rightly, but the store knows the nonce. */
    sign(&s, "POST", TARGET, "{}", fake_wall_ms, NONCE);
    CHECK_INT(send(&s, "POST", TARGET, "{}"), ERR_NONE);
    CHECK(auth_nonce_put(s.fake.db, s.nonce_key, &s.fake.err) < 0);
    CHECK_INT(s.fake.err.code, ERR_UNAUTHENTICATED);
    /* Another key may use the same nonce. */
    CHECK_OK(auth_nonce_put(s.fake.db, "tok_other:" NONCE, &s.fake.err), &s.fake.err);
}

TEST(a_replay_is_refused_after_a_restart)
{
    autosigner struct signer s = { 0 };

    start(&s);
    sign(&s, "POST", TARGET, BODY, fake_wall_ms, NONCE);
    CHECK_INT(send(&s, "POST", TARGET, BODY), ERR_NONE);
    CHECK_OK(auth_nonce_put(s.fake.db, s.nonce_key, &s.fake.err), &s.fake.err);
    fake_stop(&s.fake);
    fake_start(&s.fake, &(struct auth_options){ 0 });
    CHECK_INT(send(&s, "POST", TARGET, BODY), ERR_NONE); /* memory is gone, the key is not */
    CHECK(auth_nonce_put(s.fake.db, s.nonce_key, &s.fake.err) < 0);
    CHECK_INT(s.fake.err.code, ERR_UNAUTHENTICATED);
}

TEST(a_nonce_is_kept_as_long_as_its_request_could_be_shown)
{
    autosigner struct signer s = { 0 };
    int64_t put_ms = clock_wall_ms();

    start(&s);
    CHECK_OK(auth_nonce_put(s.fake.db, "tok_x:" NONCE, &s.fake.err), &s.fake.err);
    /* Made with a clock 60 s ahead, a request is good for 120 s. */
    CHECK_OK(store_sweep_at(s.fake.db, put_ms + 2ll * AUTH_SKEW_MS, &s.fake.err), &s.fake.err);
    CHECK(auth_nonce_put(s.fake.db, "tok_x:" NONCE, &s.fake.err) < 0);
    CHECK_OK(store_sweep_at(s.fake.db, clock_wall_ms() + 2ll * AUTH_SKEW_MS + 1, &s.fake.err),
             &s.fake.err);
    CHECK_OK(auth_nonce_put(s.fake.db, "tok_x:" NONCE, &s.fake.err), &s.fake.err);
}
