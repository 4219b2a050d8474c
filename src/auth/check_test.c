/* auth: bearer tokens, browser sessions, Unix peers, open mode; each way in and each refusal. */
#include "auth/auth_fake.h"

static const struct token_row plain_wish = { .name = "ci",
                                             .tenant = "default",
                                             .role = ROLE_VIEWER };

/* ---- bearer ---- */

TEST(a_token_lets_its_owner_in_as_what_it_says)
{
    autofake struct fake fake;
    char bearer[7 + TOKEN_TEXT_SIZE];

    fake_open(&fake);
    struct token_row wish = { .name = "deploy",
                              .tenant = "acme",
                              .role = ROLE_AGENT,
                              .scopes = "event.*",
                              .expires_ms = fake_wall_ms + 5000 };
    struct token_row row = fake_token(&fake, &wish, bearer);
    CHECK_INT(fake_get(&fake, bearer), AUTH_OK);
    CHECK_STR(fake.who.id, row.id);
    CHECK_STR(fake.who.name, "deploy");
    CHECK_STR(fake.who.tenant, "acme");
    CHECK_STR(fake.who.scopes, "event.*");
    CHECK(fake.who.role == ROLE_AGENT && fake.who.via == VIA_TOKEN);
    CHECK_INT(fake.who.expires_ms, wish.expires_ms);
    /* The scheme's case does not matter (RFC 9110, 11.1). */
    for (int i = 0; i < 6; i++)
        bearer[i] ^= 0x20;
    CHECK_INT(fake_get(&fake, bearer), AUTH_OK);
    CHECK_INT(fake_get(&fake, NULL), AUTH_NOBODY);
    CHECK_INT(fake.err.code, ERR_UNAUTHENTICATED);
}

TEST(what_is_not_a_token_is_refused)
{
    autofake struct fake fake;
    char bearer[7 + TOKEN_TEXT_SIZE], token[TOKEN_TEXT_SIZE];

    fake_open(&fake);
    fake_token(&fake, &plain_wish, bearer);
    memcpy(token, bearer + 7, sizeof(token));
    autofree char *longer = xprintf("%sA", bearer), *twice = xprintf("Bearer  %s", token),
                  *basic = xprintf("Basic %s", token), *spaced = xprintf("%s ", bearer),
                  *comma = xprintf("%s,x", bearer), *shorter = xprintf("%.*s", 53, bearer),
                  *bearers = xprintf("Bearers %s", token), *tabbed = xprintf("Bearer\t%s", token),
                  *session = xprintf("Bearer ats_%s", token + 4),
                  *strange = xprintf("Bearer %.46s+", token);
    const char *const bad[] = { "",     "Bearer", "Bearer ", "Bearer x", token,
                                longer, shorter,  twice,     basic,      spaced,
                                comma,  bearers,  tabbed,    session,    strange };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        fake_mono_ms += 60000; /* not to run into the limit of failures */
        if (fake_get(&fake, bad[i]) != AUTH_REFUSED || fake.err.code != ERR_UNAUTHENTICATED)
            test_fail(__FILE__, __LINE__, "\"%s\" was not refused", bad[i]);
        CHECK(fake.who.role == 0);
    }
    CHECK_INT(fake_get(&fake, bearer), AUTH_OK);
}

TEST(unknown_expired_and_revoked_are_one_answer)
{
    autofake struct fake fake;
    char unknown[] = "Bearer atl_0123456789012345678901234567890123456789012";
    char expiring[7 + TOKEN_TEXT_SIZE], revoked[7 + TOKEN_TEXT_SIZE];
    struct err answers[3];

    fake_open(&fake);
    struct token_row wish = plain_wish;
    wish.expires_ms = fake_wall_ms + 100000;
    fake_token(&fake, &wish, expiring);
    struct token_row row =
        fake_token(&fake, &(struct token_row){ .name = "r", .role = ROLE_ADMIN }, revoked);
    CHECK_INT(fake_get(&fake, revoked), AUTH_OK);
    auth_token_revoked(fake.auth, row.id);
    CHECK_INT(fake_get(&fake, revoked), AUTH_REFUSED); /* on the same connection, at once */
    answers[0] = fake.err;
    fake_wall_ms = wish.expires_ms - 1;
    CHECK_INT(fake_get(&fake, expiring), AUTH_OK);
    fake_wall_ms = wish.expires_ms;
    CHECK_INT(fake_get(&fake, expiring), AUTH_REFUSED);
    answers[1] = fake.err;
    CHECK_INT(fake_get(&fake, unknown), AUTH_REFUSED);
    answers[2] = fake.err;
    CHECK_INT(answers[0].code, ERR_UNAUTHENTICATED);
    CHECK(memcmp(&answers[0], &answers[1], sizeof(answers[0])) == 0);
    CHECK(memcmp(&answers[0], &answers[2], sizeof(answers[0])) == 0);
}

TEST(two_authorization_headers_are_refused_even_when_equal)
{
    autofake struct fake fake;
    char bearer[7 + TOKEN_TEXT_SIZE];

    fake_open(&fake);
    fake_token(&fake, &plain_wish, bearer);
    CHECK_INT(fake_get(&fake, bearer), AUTH_OK); /* remembered by now */
    fake_request(&fake, "GET", "/");
    fake_header(&fake, "authorization", bearer);
    fake_header(&fake, "authorization", bearer);
    CHECK_INT(fake_check(&fake), AUTH_REFUSED);
    CHECK_INT(fake.err.code, ERR_UNAUTHENTICATED);
}

/* A WebSocket that offers "bearer." and what the token of `bearer` is in base64url. */
static enum auth_result fake_offer(struct fake *fake, const char *bearer, bool upgrade)
{
    static char offer[256];
    autobuf struct buf text = { 0 };

    buf_puts(&text, "atoll.v1, bearer.");
    base64url_put(&text, bearer + 7, strlen(bearer + 7));
    snprintf(offer, sizeof(offer), "%s", buf_cstr(&text));
    fake_request(fake, "GET", "/api/v1/events");
    if (upgrade)
        fake_header(fake, "upgrade", "websocket");
    fake_header(fake, "sec-websocket-protocol", offer);
    return fake_check(fake);
}

TEST(a_websocket_may_offer_its_token)
{
    autofake struct fake fake;
    char bearer[7 + TOKEN_TEXT_SIZE];

    fake_open(&fake);
    fake_token(&fake, &plain_wish, bearer);
    CHECK_INT(fake_offer(&fake, bearer, true), AUTH_OK);
    CHECK_INT(fake_offer(&fake, bearer, false), AUTH_NOBODY); /* of nothing else */
    CHECK_INT(fake_offer(&fake, "Bearer atl_0123456789012345678901234567890123456789012", true),
              AUTH_REFUSED);
    (void)fake_offer(&fake, bearer, true);
    fake_header(&fake, "authorization", bearer);
    CHECK_INT(fake_check(&fake), AUTH_REFUSED); /* two, even when they are equal */
    /* What is no token of ours is somebody else's business. */
    CHECK_INT(fake_offer(&fake, "Bearer theirs", true), AUTH_NOBODY);
    fake_header(&fake, "authorization", bearer);
    CHECK_INT(fake_check(&fake), AUTH_OK);
    fake_header(&fake, "sec-websocket-protocol", "bearer., bearer.?");
    CHECK_INT(fake_check(&fake), AUTH_OK);
}

TEST(a_connection_remembers_its_token_and_no_other)
{
    autofake struct fake fake;
    char first[7 + TOKEN_TEXT_SIZE], second[7 + TOKEN_TEXT_SIZE];

    fake_open(&fake);
    struct token_row one = fake_token(&fake, &plain_wish, first);
    struct token_row two =
        fake_token(&fake, &(struct token_row){ .name = "two", .role = ROLE_ADMIN }, second);
    CHECK_INT(fake_get(&fake, first), AUTH_OK);
    CHECK(fake.peer.app);
    CHECK_INT(fake_get(&fake, second), AUTH_OK);
    CHECK_STR(fake.who.id, two.id);
    CHECK_INT(fake_get(&fake, first), AUTH_OK);
    CHECK_STR(fake.who.id, one.id);
    second[20] ^= 1; /* as long as what is remembered, but another */
    CHECK_INT(fake_get(&fake, second), AUTH_REFUSED);
    /* Without the header nothing is remembered for it. */
    CHECK_INT(fake_get(&fake, NULL), AUTH_NOBODY);
    /* Somebody else's revocation costs only another look. */
    auth_token_revoked(fake.auth, two.id);
    CHECK_INT(fake_get(&fake, first), AUTH_OK);
    CHECK_STR(fake.who.id, one.id);
}

TEST(what_has_expired_is_swept_out_of_memory)
{
    autofake struct fake fake;
    char bearer[7 + TOKEN_TEXT_SIZE];

    fake_open(&fake);
    struct token_row wish = plain_wish;
    wish.expires_ms = fake_wall_ms + 1000000;
    fake_token(&fake, &wish, bearer);
    wish.name[0] = 'x';
    fake_token(&fake, &wish, bearer);
    fake_token(&fake, &(struct token_row){ .name = "stays", .role = ROLE_ADMIN }, bearer);
    CHECK_INT(fake.auth->tokens.by_id.used, 3);
    fake_wall_ms += 1000000;
    fake.auth->sweep.fn(&fake.auth->sweep);
    CHECK(fake.auth->tokens.by_id.used == 1 && fake.auth->tokens.by_hash.used == 1);
    CHECK_INT(fake_get(&fake, bearer), AUTH_OK);
    /* Nor does anything enter that has ended before its commit came back. */
    struct token_row late = { .id = "tok_late", .role = ROLE_ADMIN, .expires_ms = fake_wall_ms };
    auth_token_added(fake.auth, &late);
    late.expires_ms = 0;
    late.revoked_ms = 1;
    auth_token_added(fake.auth, &late);
    CHECK_INT(fake.auth->tokens.by_id.used, 1);
}

/* ---- browser sessions ---- */

struct browser {
    struct session_row row;
    char cookie[sizeof(SESSION_COOKIE) + TOKEN_TEXT_SIZE], csrf[65];
};

static struct browser log_in(struct fake *fake)
{
    struct browser browser;
    char code[TOKEN_TEXT_SIZE], secret[TOKEN_TEXT_SIZE];

    CHECK_OK(login_link(fake->db, "acme", ROLE_OPERATOR, code, &fake->err), &fake->err);
    CHECK_OK(login_exchange(fake->db, code, &browser.row, secret, &fake->err), &fake->err);
    auth_session_added(fake->auth, &browser.row);
    session_csrf(&browser.row, browser.csrf);
    snprintf(browser.cookie, sizeof(browser.cookie), SESSION_COOKIE "=%s", secret);
    return browser;
}

static enum auth_result with_cookie(struct fake *fake, const char *method, const char *cookie,
                                    const char *csrf)
{
    fake_request(fake, method, "/api/v1/tokens");
    fake_header(fake, "cookie", cookie);
    if (csrf)
        fake_header(fake, "x-atoll-csrf", csrf);
    return fake_check(fake);
}

TEST(a_login_link_opens_one_session)
{
    autofake struct fake fake;
    struct session_row row, again;
    char code[TOKEN_TEXT_SIZE], secret[TOKEN_TEXT_SIZE], csrf[65], held[65];

    fake_open(&fake);
    CHECK_OK(login_link(fake.db, "acme", ROLE_OPERATOR, code, &fake.err), &fake.err);
    CHECK_OK(login_exchange(fake.db, code, &row, secret, &fake.err), &fake.err);
    CHECK(row.role == ROLE_OPERATOR && strcmp(row.tenant, "acme") == 0 &&
          id_valid(str_of(row.id), "ses"));
    CHECK(row.expires_ms >= fake_wall_ms + LOGIN_SESSION_MS);
    auth_session_added(fake.auth, &row);
    session_csrf(&row, csrf);
    CHECK_OK(auth_session_csrf(fake.auth, row.id, held), &fake.err);
    CHECK_STR(held, csrf);
    CHECK(auth_session_csrf(fake.auth, "ses_unknown", held) < 0);
    /* Used up. */
    CHECK(login_exchange(fake.db, code, &again, secret, &fake.err) < 0);
    CHECK_INT(fake.err.code, ERR_UNAUTHENTICATED);
    struct err used = fake.err;
    code[10] ^= 1;
    CHECK(login_exchange(fake.db, code, &again, secret, &fake.err) < 0);
    CHECK(memcmp(&used, &fake.err, sizeof(used)) == 0);
    static const char *const bad[] = { "", "x", "atc_",
                                       "atl_0123456789012345678901234567890123456789012" };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        CHECK(login_exchange(fake.db, bad[i], &again, secret, &fake.err) < 0);
        CHECK(memcmp(&used, &fake.err, sizeof(used)) == 0);
    }
}

TEST(a_cookie_reads_freely_but_changes_only_with_the_csrf_value)
{
    autofake struct fake fake;

    fake_open(&fake);
    struct browser browser = log_in(&fake);
    CHECK_INT(with_cookie(&fake, "GET", browser.cookie, NULL), AUTH_OK);
    CHECK_STR(fake.who.id, browser.row.id);
    CHECK_STR(fake.who.tenant, "acme");
    CHECK(fake.who.role == ROLE_OPERATOR && fake.who.via == VIA_COOKIE);
    CHECK_INT(with_cookie(&fake, "HEAD", browser.cookie, NULL), AUTH_OK);
    static const char *const changes[] = { "POST", "PUT", "PATCH", "DELETE", "get", "CONNECT" };
    char wrong[65];
    memcpy(wrong, browser.csrf, sizeof(wrong));
    wrong[63] = wrong[63] == '0' ? '1' : '0';
    for (size_t i = 0; i < ARRAY_LEN(changes); i++) {
        CHECK_INT(with_cookie(&fake, changes[i], browser.cookie, browser.csrf), AUTH_OK);
        const char *bad[] = { NULL, "", wrong, "0" };
        for (size_t k = 0; k < ARRAY_LEN(bad); k++) {
            CHECK_INT(with_cookie(&fake, changes[i], browser.cookie, bad[k]), AUTH_REFUSED);
            CHECK_INT(fake.err.code, ERR_FORBIDDEN);
        }
    }
    fake_request(&fake, "POST", "/");
    fake_header(&fake, "cookie", browser.cookie);
    fake_header(&fake, "x-atoll-csrf", browser.csrf);
    fake_header(&fake, "x-atoll-csrf", browser.csrf);
    CHECK_INT(fake_check(&fake), AUTH_REFUSED);
    CHECK_INT(fake.err.code, ERR_FORBIDDEN);
    /* The value of one session does not serve another. */
    struct browser other = log_in(&fake);
    CHECK_INT(with_cookie(&fake, "POST", browser.cookie, other.csrf), AUTH_REFUSED);
}

TEST(an_ended_or_expired_session_is_refused)
{
    autofake struct fake fake;

    fake_open(&fake);
    struct browser browser = log_in(&fake), other = log_in(&fake);
    CHECK_OK(session_end(fake.db, browser.row.id, &fake.err), &fake.err);
    CHECK(session_end(fake.db, browser.row.id, &fake.err) < 0 && fake.err.code == ERR_NOT_FOUND);
    auth_session_ended(fake.auth, browser.row.id);
    CHECK_INT(with_cookie(&fake, "GET", browser.cookie, NULL), AUTH_REFUSED);
    CHECK_INT(fake.err.code, ERR_UNAUTHENTICATED);
    CHECK_INT(with_cookie(&fake, "GET", other.cookie, NULL), AUTH_OK);
    fake_wall_ms = other.row.expires_ms - 1;
    CHECK_INT(with_cookie(&fake, "GET", other.cookie, NULL), AUTH_OK);
    fake_wall_ms = other.row.expires_ms;
    CHECK_INT(with_cookie(&fake, "GET", other.cookie, NULL), AUTH_REFUSED);
    char held[65];
    CHECK(auth_session_csrf(fake.auth, other.row.id, held) < 0);
}

TEST(our_cookie_is_found_among_others_and_only_ours)
{
    autofake struct fake fake;

    fake_open(&fake);
    struct browser browser = log_in(&fake);
    const char *value = strchr(browser.cookie, '=') + 1;
    autofree char *among = xprintf("a=1; junk; =; %s; z=\"q;\"", browser.cookie),
                  *tight = xprintf("a=1;%s", browser.cookie),
                  *longer_name = xprintf("x" SESSION_COOKIE "=%s", value),
                  *other_case = xprintf("Atoll_Session=%s", value),
                  *quoted = xprintf(SESSION_COOKIE "=\"%s\"", value),
                  *two = xprintf("%s; %s", browser.cookie, browser.cookie),
                  *spaced = xprintf(SESSION_COOKIE " =%s", value),
                  *token = xprintf(SESSION_COOKIE "=atl_%s", value + 4);
    CHECK_INT(with_cookie(&fake, "GET", among, NULL), AUTH_OK);
    CHECK_INT(with_cookie(&fake, "GET", tight, NULL), AUTH_OK);
    CHECK_INT(with_cookie(&fake, "GET", longer_name, NULL), AUTH_NOBODY);
    CHECK_INT(with_cookie(&fake, "GET", other_case, NULL), AUTH_NOBODY);
    CHECK_INT(with_cookie(&fake, "GET", spaced, NULL), AUTH_NOBODY);
    CHECK_INT(with_cookie(&fake, "GET", "", NULL), AUTH_NOBODY);
    CHECK_INT(with_cookie(&fake, "GET", quoted, NULL), AUTH_REFUSED);
    CHECK_INT(with_cookie(&fake, "GET", two, NULL), AUTH_REFUSED);
    CHECK_INT(with_cookie(&fake, "GET", token, NULL), AUTH_REFUSED);
    CHECK_INT(with_cookie(&fake, "GET", SESSION_COOKIE, NULL), AUTH_REFUSED);
    /* HTTP/2 may split the header; two of ours stay two. */
    fake_request(&fake, "GET", "/");
    fake_header(&fake, "cookie", "a=1");
    fake_header(&fake, "cookie", browser.cookie);
    CHECK_INT(fake_check(&fake), AUTH_OK);
    fake_header(&fake, "cookie", browser.cookie);
    CHECK_INT(fake_check(&fake), AUTH_REFUSED);
}

TEST(a_cookie_is_no_bearer_token_and_the_reverse)
{
    autofake struct fake fake;
    char bearer[7 + TOKEN_TEXT_SIZE];

    fake_open(&fake);
    fake_token(&fake, &plain_wish, bearer);
    struct browser browser = log_in(&fake);
    autofree char *as_bearer = xprintf("Bearer %s", strchr(browser.cookie, '=') + 1),
                  *as_cookie = xprintf(SESSION_COOKIE "=%s", bearer + 7);
    CHECK_INT(fake_get(&fake, as_bearer), AUTH_REFUSED);
    CHECK_INT(with_cookie(&fake, "GET", as_cookie, NULL), AUTH_REFUSED);
    /* Both at once: the token decides, also when it does not hold. */
    fake_request(&fake, "POST", "/");
    fake_header(&fake, "cookie", browser.cookie);
    fake_header(&fake, "authorization", bearer);
    CHECK_INT(fake_check(&fake), AUTH_OK);
    CHECK(fake.who.via == VIA_TOKEN);
    bearer[30] ^= 1;
    fake_request(&fake, "GET", "/");
    fake_header(&fake, "cookie", browser.cookie);
    fake_header(&fake, "authorization", bearer);
    CHECK_INT(fake_check(&fake), AUTH_REFUSED);
}

/* ---- by position ---- */

TEST(root_and_the_owner_are_admin_on_the_unix_socket)
{
    autofake struct fake fake;
    char bearer[7 + TOKEN_TEXT_SIZE];

    fake_open(&fake);
    fake_token(&fake, &plain_wish, bearer);
    static const struct {
        unsigned uid;
        const char *id;
    } peers[] = { { 0, "unix:0" }, { 1000, "unix:1000" }, { 1001, NULL }, { 65534, NULL } };
    for (size_t i = 0; i < ARRAY_LEN(peers); i++) {
        fake_reconnect(&fake, "unix:uid=x");
        fake.peer.local = true;
        fake.peer.loopback = false;
        fake.peer.uid = peers[i].uid;
        enum auth_result result = fake_get(&fake, NULL);
        CHECK_INT(result, peers[i].id ? AUTH_OK : AUTH_NOBODY);
        if (peers[i].id) {
            CHECK_STR(fake.who.id, peers[i].id);
            CHECK_STR(fake.who.tenant, "default");
            CHECK(fake.who.role == ROLE_ADMIN && fake.who.via == VIA_UNIX);
        }
        CHECK_INT(fake_get(&fake, bearer), AUTH_OK); /* a token is more exact */
        CHECK(fake.who.role == ROLE_VIEWER);
        bearer[30] ^= 1;
        CHECK_INT(fake_get(&fake, bearer), AUTH_REFUSED); /* and not ignored when wrong */
        bearer[30] ^= 1;
    }
    /* The uid of a TCP peer is not known, whatever stands there. */
    fake_reconnect(&fake, "127.0.0.1");
    fake.peer.uid = 0;
    CHECK_INT(fake_get(&fake, NULL), AUTH_NOBODY);
}

TEST(open_mode_opens_to_the_machine_itself_only)
{
    autofake struct fake fake;

    fake_open(&fake);
    CHECK_INT(fake_get(&fake, NULL), AUTH_NOBODY); /* must be asked for */
    auth_reload(fake.auth, &(struct auth_options){ .open = true, .owner_uid = 1000 });
    CHECK_INT(fake_get(&fake, NULL), AUTH_OK);
    CHECK_STR(fake.who.id, "open");
    CHECK(fake.who.role == ROLE_ADMIN && fake.who.via == VIA_OPEN);
    fake.peer.loopback = false;
    CHECK_INT(fake_get(&fake, NULL), AUTH_NOBODY);
    CHECK_INT(with_cookie(&fake, "GET", SESSION_COOKIE "=stale", NULL), AUTH_REFUSED);
    fake.peer.local = true;
    fake.peer.uid = 77;
    CHECK_INT(fake_get(&fake, NULL), AUTH_OK);
    CHECK_STR(fake.who.id, "open");
    /* A wrong token is wrong here too; a cookie from before is only noise. */
    CHECK_INT(fake_get(&fake, "Bearer atl_0123456789012345678901234567890123456789012"),
              AUTH_REFUSED);
    CHECK_INT(with_cookie(&fake, "GET", SESSION_COOKIE "=stale", NULL), AUTH_OK);
}

/* ---- brute force ---- */

#define WRONG "Bearer atl_0123456789012345678901234567890123456789012"

TEST(failures_are_refused_at_the_limit_and_forgiven_after_a_minute)
{
    autofake struct fake fake;
    char bearer[7 + TOKEN_TEXT_SIZE];

    fake_open(&fake);
    fake_token(&fake, &plain_wish, bearer);
    for (int i = 0; i < AUTH_FAILS_PER_MIN; i++) {
        CHECK_INT(fake_get(&fake, WRONG), AUTH_REFUSED);
        CHECK_INT(fake.err.code, ERR_UNAUTHENTICATED);
        fake_mono_ms += 100;
    }
    CHECK_INT(fake_get(&fake, WRONG), AUTH_REFUSED);
    CHECK_INT(fake.err.code, ERR_RATE);
    CHECK_INT(fake.err.retry_after, 59); /* the first failure is a second old */
    CHECK_INT(fake_get(&fake, NULL), AUTH_NOBODY);
    fake_reconnect(&fake, "192.0.2.1"); /* a new connection changes nothing */
    CHECK_INT(fake_get(&fake, WRONG), AUTH_REFUSED);
    CHECK_INT(fake.err.code, ERR_RATE);
    fake_mono_ms = 1000000 + 60000 - 1;
    CHECK_INT(fake_get(&fake, WRONG), AUTH_REFUSED);
    CHECK_INT(fake.err.retry_after, 1);
    fake_mono_ms++;
    /* One was forgiven, so one more is judged, and then it is over again. */
    CHECK_INT(fake_get(&fake, WRONG), AUTH_REFUSED);
    CHECK_INT(fake.err.code, ERR_UNAUTHENTICATED);
    CHECK_INT(fake_get(&fake, WRONG), AUTH_REFUSED);
    CHECK_INT(fake.err.code, ERR_RATE);
}

static int guess(struct fake *fake, int number)
{
    char bearer[64];

    snprintf(bearer, sizeof(bearer), "Bearer atl_%043d", number);
    CHECK_INT(fake_get(fake, bearer), AUTH_REFUSED);
    return (int)fake->err.code;
}

/* ---- whoever has a valid credential gets in, whatever others at the address do ---- */

TEST(a_valid_credential_passes_beside_one_that_is_repeated_and_beside_guesses)
{
    autofake struct fake fake;
    char bearer[7 + TOKEN_TEXT_SIZE];

    fake_open(&fake);
    fake_token(&fake, &plain_wish, bearer);
    struct browser browser = log_in(&fake);
    for (int i = 0; i < 3 * AUTH_FAILS_PER_MIN; i++) {
        fake_reconnect(&fake, "192.0.2.1");
        CHECK_INT(fake_get(&fake, WRONG), AUTH_REFUSED);
        CHECK_INT(fake_get(&fake, bearer), AUTH_OK);
        CHECK_INT(with_cookie(&fake, "GET", browser.cookie, NULL), AUTH_OK);
    }
    /* What one client repeats is one guess: nine more are judged, and the tenth is not. */
    for (int i = 1; i < AUTH_FAILS_PER_MIN; i++)
        CHECK_INT(guess(&fake, i), ERR_UNAUTHENTICATED);
    for (int i = 0; i < 1000; i++)
        CHECK_INT(guess(&fake, 1000 + i), ERR_RATE);
    CHECK_INT(fake_get(&fake, bearer), AUTH_OK);
    CHECK_INT(with_cookie(&fake, "GET", browser.cookie, NULL), AUTH_OK);
    fake_reconnect(&fake, "192.0.2.2"); /* and the guesses are those of one address */
    CHECK_INT(guess(&fake, 5000), ERR_UNAUTHENTICATED);
}

TEST(every_kind_of_failed_credential_counts)
{
    autofake struct fake fake;
    static const char *const headers[][2] = {
        { "authorization", WRONG },
        { "authorization", "Basic eDp5" },
        { "authorization", "" },
        { "cookie", SESSION_COOKIE "=ats_0123456789012345678901234567890123456789012" },
        { "cookie", SESSION_COOKIE "=x" },
        { "x-atoll-key", "tok_x" },
        { "x-atoll-signature", "00" },
    };

    fake_open(&fake);
    for (size_t i = 0; i < ARRAY_LEN(headers); i++) {
        char addr[32];

        snprintf(addr, sizeof(addr), "198.51.100.%zu", i);
        fake_reconnect(&fake, addr);
        for (int k = 0; k <= AUTH_FAILS_PER_MIN; k++) {
            fake_request(&fake, "GET", "/");
            fake_header(&fake, headers[i][0], headers[i][1]);
            CHECK_INT(fake_check(&fake), AUTH_REFUSED);
            CHECK_INT(fake.err.code, k < AUTH_FAILS_PER_MIN ? ERR_UNAUTHENTICATED : ERR_RATE);
        }
    }
    /* What is checked elsewhere counts by auth_failed. */
    fake_reconnect(&fake, "198.51.100.200");
    for (int k = 0; k <= AUTH_FAILS_PER_MIN; k++) {
        err_set(&fake.err, ERR_UNAUTHENTICATED, "a wrong login code");
        auth_failed(fake.auth, &fake.peer, STR_NONE, &fake.err);
        CHECK_INT(fake.err.code, k < AUTH_FAILS_PER_MIN ? ERR_UNAUTHENTICATED : ERR_RATE);
    }
}

/* ---- Basic ---- */

static int basic(struct fake *fake, const char *pair)
{
    autobuf struct buf value = { 0 };

    buf_printf(&value, "Basic ");
    base64_put(&value, pair, strlen(pair));
    return (int)fake_get(fake, buf_cstr(&value));
}

TEST(a_token_is_the_password_of_basic)
{
    autofake struct fake fake;
    char bearer[7 + TOKEN_TEXT_SIZE];

    fake_open(&fake);
    struct token_row row = fake_token(&fake, &plain_wish, bearer);
    autofree char *named = xprintf("alice:%s", bearer + 7), *unnamed = xprintf(":%s", bearer + 7),
                  *alone = xprintf("%s", bearer + 7), *user = xprintf("%s:", bearer + 7),
                  *longer = xprintf("alice:%sx", bearer + 7),
                  *colon = xprintf("a:b:%s", bearer + 7);

    CHECK_INT(basic(&fake, named), AUTH_OK);
    CHECK_STR(fake.who.id, row.id);
    CHECK_INT(basic(&fake, named), AUTH_OK); /* as the connection remembers it */
    CHECK_INT(basic(&fake, unnamed), AUTH_OK);
    CHECK_INT(basic(&fake, alone), AUTH_REFUSED);
    CHECK_INT(basic(&fake, user), AUTH_REFUSED);
    CHECK_INT(basic(&fake, longer), AUTH_REFUSED);
    CHECK_INT(basic(&fake, colon), AUTH_REFUSED);
    CHECK_INT(fake_get(&fake, "Basic !"), AUTH_REFUSED);
    auth_token_revoked(fake.auth, row.id);
    CHECK_INT(basic(&fake, named), AUTH_REFUSED);
}

TEST(a_text_that_is_no_token_is_told_so)
{
    autofake struct fake fake;

    fake_open(&fake);
    CHECK_INT(fake_get(&fake, "Bearer wrong"), AUTH_REFUSED);
    CHECK_STR(fake.err.msg, "not a token of this server: those begin with atl_");
    CHECK_INT(fake_get(&fake, WRONG), AUTH_REFUSED);
    CHECK_STR(fake.err.msg, "the credentials are not valid");
}

/* ---- pace ---- */

TEST(a_principal_may_ask_its_burst_and_then_its_rate)
{
    autofake struct fake fake;

    fake_open(&fake);
    auth_reload(fake.auth, &(struct auth_options){ .rate_per_second = 10, .rate_burst = 5 });
    struct principal who = { .id = "tok_a" }, other = { .id = "tok_b" };
    for (int i = 0; i < 5; i++)
        CHECK_OK(auth_rate(fake.auth, &who, &fake.err), &fake.err);
    CHECK(auth_rate(fake.auth, &who, &fake.err) < 0);
    CHECK_INT(fake.err.code, ERR_RATE);
    CHECK_INT(fake.err.retry_after, 1);
    CHECK_OK(auth_rate(fake.auth, &other, &fake.err), &fake.err);
    fake_mono_ms += 99;
    CHECK(auth_rate(fake.auth, &who, &fake.err) < 0);
    fake_mono_ms += 1;
    CHECK_OK(auth_rate(fake.auth, &who, &fake.err), &fake.err);
    CHECK(auth_rate(fake.auth, &who, &fake.err) < 0);
    /* Unset means the limits of the house. */
    auth_reload(fake.auth, &(struct auth_options){ 0 });
    struct principal fresh = { .id = "tok_c" };
    for (int i = 0; i < RATE_BURST; i++)
        CHECK_OK(auth_rate(fake.auth, &fresh, &fake.err), &fake.err);
    CHECK(auth_rate(fake.auth, &fresh, &fake.err) < 0);
}

/* ---- roles and scopes ---- */

TEST(roles_have_exact_names)
{
    static const char *const names[] = { "sandbox", "agent", "viewer", "operator", "admin" };
    enum role role = 0;

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        CHECK(role_parse(str_of(names[i]), &role) && role == 1u << i);
        CHECK_STR(role_name(role), names[i]);
    }
    CHECK(!role_parse(STR("Admin"), &role) && !role_parse(STR(""), &role) &&
          !role_parse(STR("admins"), &role) && !role_parse(STR("nobody"), &role));
    CHECK_INT(role, ROLE_ADMIN);
    CHECK_STR(role_name((enum role)3), "nobody");
}

TEST(scopes_allow_what_they_name)
{
    static const struct {
        const char *scopes, *action;
        bool allowed;
    } cases[] = {
        { "", "token.create", true },
        { "*", "token.create", true },
        { "token.create", "token.create", true },
        { "token.create", "token.createx", false },
        { "token.create", "token.revoke", false },
        { "token.*", "token.create", true },
        { "token.*", "token.a.b", true },
        { "token.*", "token.", false },
        { "token.*", "token", false },
        { "token.*", "tokenizer.run", false },
        { "tok*", "token.create", false },
        { "*.create", "token.create", false },
        { ".*", ".x", false },
        { "token.*,event.read", "event.read", true },
        { "token.*,event.read", "event.write", false },
        { "event.read,token.*", "token.x", true },
        { ",", "token.create", false },
        { "token.create ", "token.create", false },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct principal who = { 0 };

        snprintf(who.scopes, sizeof(who.scopes), "%s", cases[i].scopes);
        if (principal_scope(&who, cases[i].action) != cases[i].allowed)
            test_fail(__FILE__, __LINE__, "\"%s\" and %s", cases[i].scopes, cases[i].action);
    }
}
