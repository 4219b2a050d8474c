/* limit, replay: exact at their limits, fixed in memory, and never wrong about a busy entry. */
#include "auth/limit.h"

#include <stdio.h>

#include "auth/replay.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/test.h"

#define autolimit auto_with(limit_free)
#define autoreplay auto_with(replay_free)

TEST(no_minute_sees_more_failures_than_the_limit)
{
    autolimit struct limit limit = { 0 };
    static int64_t times[4000];
    int64_t now = 5;
    size_t count = 0;

    /* Tries at random instants; a try that is let through fails. */
    while (count < ARRAY_LEN(times)) {
        now += test_rand(9000);
        CHECK(limit_failed(&limit, "10.0.0.1", now) ==
              (count >= AUTH_FAILS_PER_MIN && times[count - AUTH_FAILS_PER_MIN] + 60000 > now));
        int64_t wait = limit_fail(&limit, "10.0.0.1", STR_NONE, now);
        if (wait) {
            CHECK(wait > 0 && wait <= 60000);
            CHECK(limit_fail(&limit, "10.0.0.1", STR_NONE, now + wait - 1) == 1);
            continue;
        }
        times[count++] = now;
    }
    for (size_t i = AUTH_FAILS_PER_MIN; i < count; i++)
        CHECK(times[i] - times[i - AUTH_FAILS_PER_MIN] >= 60000);
}

static void exhaust(struct limit *limit, const char *addr, int64_t now)
{
    for (int i = 0; i < AUTH_FAILS_PER_MIN; i++)
        CHECK_INT(limit_fail(limit, addr, STR_NONE, now), 0);
}

TEST(an_ipv6_peer_is_its_network)
{
    autolimit struct limit limit = { 0 };

    exhaust(&limit, "2001:db8:1:2::1", 0);
    CHECK(limit_failed(&limit, "2001:db8:1:2:ffff:1:2:3", 1));
    CHECK(limit_failed(&limit, "2001:0db8:0001:0002::1", 1));
    CHECK(!limit_failed(&limit, "2001:db8:1:3::1", 1));
    exhaust(&limit, "::ffff:192.0.2.1", 0);
    CHECK(!limit_failed(&limit, "::ffff:192.0.2.2", 1));
    exhaust(&limit, "192.0.2.9", 0);
    CHECK(limit_failed(&limit, "192.0.2.9", 1) && !limit_failed(&limit, "192.0.2.90", 1));
    exhaust(&limit, "unix:1000", 0);
    CHECK(limit_failed(&limit, "unix:1000", 1) && !limit_failed(&limit, "unix:100", 1));
    exhaust(&limit, "", 0); /* a peer without an address is still somebody */
}

TEST(a_flood_of_peers_changes_no_memory_and_few_verdicts)
{
    autolimit struct limit limit = { 0 };
    unsigned held = 0;

    for (int i = 0; i < 100; i++) {
        char addr[32];

        snprintf(addr, sizeof(addr), "192.0.2.%d", i);
        exhaust(&limit, addr, 1000);
    }
    void *memory = limit.fails;
    /* Older entries give way first: these came later and stay. */
    for (int i = 0; i < 50000; i++) {
        char addr[32];

        snprintf(addr, sizeof(addr), "10.%d.%d.%d", i >> 16, i >> 8 & 255, i & 255);
        (void)limit_fail(&limit, addr, STR_NONE, 0);
    }
    CHECK(limit.fails == memory);
    for (int i = 0; i < 100; i++) {
        char addr[32];

        snprintf(addr, sizeof(addr), "192.0.2.%d", i);
        held += limit_failed(&limit, addr, 1001);
    }
    CHECK_INT(held, 100);
}

TEST(a_credential_that_is_repeated_uses_up_itself_alone)
{
    autolimit struct limit limit = { 0 };
    int64_t judged = 0;

    for (int i = 0; i < 1000; i++)
        judged += limit_fail(&limit, "10.0.0.1", STR("revoked"), 5) == 0;
    CHECK_INT(judged, AUTH_FAILS_PER_MIN);
    CHECK(!limit_failed(&limit, "10.0.0.1", 5)); /* one guess */
    CHECK_INT(limit_fail(&limit, "10.0.0.1", STR("mistyped"), 5), 0);
    CHECK_INT(limit_fail(&limit, "10.0.0.2", STR("revoked"), 5), 0);
}

TEST(a_flood_of_credentials_pushes_nobody_out)
{
    autolimit struct limit limit = { 0 };
    int64_t judged = 0;

    for (int i = 0; i < AUTH_FAILS_PER_MIN; i++)
        CHECK_INT(limit_fail(&limit, "10.0.0.1", STR("revoked"), 5), 0);
    void *memory = limit.fails;
    for (int i = 0; i < 50000; i++) {
        char text[32];

        snprintf(text, sizeof(text), "guess %d", i);
        judged += limit_fail(&limit, "192.0.2.1", str_of(text), 6) == 0;
    }
    CHECK_INT(judged, AUTH_FAILS_PER_MIN);
    CHECK(limit.fails == memory);
    CHECK(limit_fail(&limit, "10.0.0.1", STR("revoked"), 7) > 0);
}

TEST(a_bucket_agrees_with_exact_arithmetic)
{
    for (int round = 0; round < 50; round++) {
        autolimit struct limit limit = { 0 };
        int64_t rate = 1 + test_rand(5000), burst = 1 + test_rand(100), now = test_rand(1000);
        int64_t milli = burst * 1000, last = now;

        for (int i = 0; i < 2000; i++) {
            now += test_rand(3) ? 0 : test_rand(50);
            milli += (now - last) * rate;
            if (milli > burst * 1000)
                milli = burst * 1000;
            last = now;
            int64_t wait = limit_rate(&limit, "tok_1", rate, burst, now);
            CHECK((wait == 0) == (milli >= 1000));
            if (wait == 0)
                milli -= 1000;
            else
                CHECK(milli + wait * rate >= 1000 && milli + (wait - 1) * rate < 1000);
        }
    }
}

TEST(a_bucket_takes_its_burst_and_not_one_more)
{
    autolimit struct limit limit = { 0 };

    for (int i = 0; i < RATE_BURST; i++)
        CHECK_INT(limit_rate(&limit, "tok_a", RATE_PER_SECOND, RATE_BURST, 7), 0);
    CHECK_INT(limit_rate(&limit, "tok_a", RATE_PER_SECOND, RATE_BURST, 7), 1);
    CHECK_INT(limit_rate(&limit, "tok_b", RATE_PER_SECOND, RATE_BURST, 7), 0);
    /* A century away, and a clock that went back: neither overflows, neither punishes. */
    CHECK_INT(limit_rate(&limit, "tok_a", RATE_PER_SECOND, RATE_BURST, 3155760000000), 0);
    CHECK_INT(limit_rate(&limit, "tok_a", RATE_PER_SECOND, RATE_BURST, 5), 0);
}

TEST(a_flood_of_principals_changes_no_memory)
{
    autolimit struct limit limit = { 0 };

    CHECK_INT(limit_rate(&limit, "tok_busy", 1, 1, 1000), 0);
    void *memory = limit.rates;
    for (int i = 0; i < 50000; i++) {
        char id[32];

        snprintf(id, sizeof(id), "tok_%d", i);
        CHECK_INT(limit_rate(&limit, id, 1, 1, 0), 0);
    }
    CHECK(limit.rates == memory);
    CHECK(limit_rate(&limit, "tok_busy", 1, 1, 1000) > 0);
}

/* ---- replay ---- */

static void make_signature(unsigned char out[32], uint64_t number)
{
    memset(out, 0, 32);
    number = (number + 1) * 0x9e3779b97f4a7c15u;
    memcpy(out, &number, sizeof(number));
}

TEST(a_signature_is_seen_for_twice_the_skew_at_least)
{
    autoreplay struct replay replay = { 0 };
    unsigned char signature[32], zero[32] = { 0 };
    const int64_t keep = 2ll * AUTH_SKEW_MS;

    for (int64_t start = 1; start < 10 * keep; start += 17777) {
        make_signature(signature, (uint64_t)start);
        CHECK_INT(replay_note(&replay, signature, start), REPLAY_NEW);
        CHECK_INT(replay_note(&replay, signature, start), REPLAY_SEEN);
        if (start > keep) { /* one from before is still known, one from long ago is not */
            make_signature(signature, (uint64_t)(start - keep / 17777 * 17777));
            CHECK_INT(replay_note(&replay, signature, start), REPLAY_SEEN);
        }
    }
    CHECK_INT(replay_note(&replay, zero, 10 * keep), REPLAY_NEW);
    CHECK_INT(replay_note(&replay, zero, 10 * keep + keep), REPLAY_SEEN);
    /* After a silence both tables are of the past. */
    CHECK_INT(replay_note(&replay, zero, 100 * keep), REPLAY_NEW);
}

TEST(memory_of_signatures_is_full_at_its_limit)
{
    autoreplay struct replay replay = { 0 };
    unsigned char signature[32];

    for (uint64_t i = 0; i < AUTH_REPLAYS_MAX; i++) {
        make_signature(signature, i);
        CHECK_INT(replay_note(&replay, signature, 10), REPLAY_NEW);
    }
    CHECK_INT(replay_note(&replay, signature, 10), REPLAY_SEEN);
    make_signature(signature, AUTH_REPLAYS_MAX);
    CHECK_INT(replay_note(&replay, signature, 10), REPLAY_FULL);
    CHECK_INT(replay_note(&replay, signature, 10 + 2 * AUTH_SKEW_MS), REPLAY_NEW);
}
