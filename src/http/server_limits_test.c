/*
 * What the server does about peers that are slow, many, greedy or idle, and how it ends: each guard
 * here has a test that hangs or fails when the guard is taken out.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <malloc.h>
#include <sys/ioctl.h>
#include <sys/resource.h>

#include "base/log.h"
#include "http/http_rig.h"

#define H "\r\nHost: a\r\n"

/* ---- producers ---- */

static char block[16384];
static _Atomic size_t most_unsent, written, flood_size;
static _Atomic unsigned fulls, cuts, finished;

static void produce(struct http_req *req)
{
    enum http_flow flow = HTTP_OK;

    while (flow == HTTP_OK && written < flood_size) {
        flow = http_reply_write(req, (struct str){ block, sizeof(block) });
        written += sizeof(block);
        if (http_unsent(req) > most_unsent)
            most_unsent = http_unsent(req);
    }
    if (flow == HTTP_FULL)
        fulls++;
    if (flow == HTTP_CUT) {
        cuts++;
    } else if (written >= flood_size) {
        finished++;
        http_reply_end(req, NULL, 0);
    }
}

/* Stops when told, goes on when drained. */
static void route_flood(struct http_req *req)
{
    written = 0;
    req->on_drain = produce;
    http_reply_begin(req, 200, NULL, 0);
    produce(req);
}

/* Never listens. */
static void route_rude(struct http_req *req)
{
    enum http_flow flow = HTTP_OK;

    http_reply_begin(req, 200, NULL, 0);
    while (flow != HTTP_CUT && written < 100u << 20) {
        flow = http_reply_write(req, (struct str){ block, sizeof(block) });
        written += sizeof(block);
        if (http_unsent(req) > most_unsent)
            most_unsent = http_unsent(req);
    }
    cuts += flow == HTTP_CUT;
}

static void all_read(struct http_req *req, struct str body)
{
    (void)body;
    http_reply(req, 200, NULL, 0, STR("read"));
}

static void on_request(void *ctx, struct http_req *req)
{
    (void)ctx;
    rig.requests++;
    req->on_gone = rig_count_gone;
    if (str_is(req->path, "/flood")) {
        route_flood(req);
    } else if (str_is(req->path, "/patient")) {
        http_patient(req);
        route_flood(req);
    } else if (str_is(req->path, "/rude")) {
        route_rude(req);
    } else if (str_is(req->path, "/read")) {
        http_read_all(req, 1 << 20, all_read);
    } else if (str_is(req->path, "/events")) {
        http_reply_begin(req, 200, NULL, 0);
        http_slim(req);
        http_reply_write(req, STR("first\n"));
    } else if (!str_is(req->path, "/never")) {
        http_reply(req, 200, NULL, 0, STR("ok"));
    }
}

static void start(const struct http_options *options)
{
    log_setup(LOG_ERROR + 1, LOG_TEXT, "test");
    most_unsent = written = 0;
    fulls = cuts = finished = 0;
    flood_size = 64u << 20;
    rig_start(on_request, options);
}

/* ---- whoever still sends when all was said ---- */

/* What was refused is thrown away for a while, so that its sender comes to read why. */
TEST(who_still_sends_is_listened_to_up_to_a_limit)
{
    static char rest[65536];
    autobuf struct buf in = { .max = 1 << 20 };

    start(NULL);
    autoclose int fd = rig_connect();
    int64_t began_ms = clock_mono_ms();
    rig_puts(fd, "POST /read HTTP/1.1" H "Content-Length: 1073741824\r\n\r\n");
    rig_read_end(fd, &in);
    CHECK(in.len > 12 && memcmp(in.data, "HTTP/1.1 413", 12) == 0);
    for (size_t sent = 0; sent < HTTP_LINGER_BYTES_MAX; sent += sizeof(rest))
        rig_send(fd, (struct str){ rest, sizeof(rest) });
    int unread;
    do {
        CHECK_INT(ioctl(fd, SIOCOUTQ, &unread), 0);
    } while (unread > 0);
    poll(NULL, 0, 50);
    CHECK_INT(rig_conns(), 1);
    rig_puts(fd, "x");
    rig_wait(rig_conns() == 0, 1);
    CHECK(clock_mono_ms() - began_ms < HTTP_LINGER_MS); /* or it was the time that ended it */
    rig_stop();
}

/* ---- readers that do not read ---- */

TEST(a_producer_that_listens_is_stopped_and_goes_on)
{
    autobuf struct buf in = { .max = 128u << 20 };

    start(NULL);
    flood_size = 24u << 20;
    autoclose int fd = rig_connect();
    rig_puts(fd, "GET /flood HTTP/1.1" H "\r\nGET / HTTP/1.1" H "\r\n");
    poll(NULL, 0, 100);
    CHECK(!finished);
    while (in.len < flood_size) /* counted as it comes: the framing is checked elsewhere */
        CHECK(rig_more(fd, &in));
    rig_wait(finished, 1);
    CHECK(fulls > 1);
    CHECK(most_unsent <= HTTP_OUT_HIGH + 2 * sizeof(block));
    rig_until(fd, &in, in.len > 1000 ? in.len - 1000 : 0, "\r\n\r\nok"); /* the next request */
    CHECK_INT(rig.gone, 0);
    rig_stop();
}

TEST(a_reader_that_stops_is_cut_in_time)
{
    struct http_options options = { .write_stall_ms = 200 };

    start(&options);
    autoclose int fd = rig_connect();
    rig_puts(fd, "GET /flood HTTP/1.1" H "\r\n");
    int64_t began = clock_mono_ms();
    rig_wait(rig.gone, 1);
    int64_t took = clock_mono_ms() - began;
    CHECK(took >= 150 && took < test_patience(5000));
    CHECK(most_unsent <= HTTP_OUT_HIGH + 2 * sizeof(block));
    CHECK_INT(rig_conns(), 0);
    rig_stop();
}

TEST(a_reader_that_is_waited_for_is_not_cut_until_its_answer_has_ended)
{
    struct http_options options = { .write_stall_ms = 200 };
    static char data[1 << 16];

    start(&options);
    flood_size = 16u << 20;
    autoclose int fd = rig_connect();
    rig_puts(fd, "GET /patient HTTP/1.1" H "\r\n");
    poll(NULL, 0, 1000);
    CHECK_INT(rig_conns(), 1);
    for (size_t got = 0; got < flood_size;) {
        ssize_t n = read(fd, data, sizeof(data));

        CHECK(n > 0);
        got += (size_t)n;
    }
    rig_puts(fd, "GET /flood HTTP/1.1" H "\r\n"); /* the next one on the same connection is */
    rig_wait(rig.gone, 1);
    CHECK_INT(rig_conns(), 0);
    rig_stop();
}

TEST(a_producer_that_does_not_listen_is_cut_at_the_limit)
{
    start(NULL);
    autoclose int fd = rig_connect();
    rig_puts(fd, "GET /rude HTTP/1.1" H "\r\n");
    rig_wait(rig.gone, 1);
    CHECK_INT(cuts, 1);
    CHECK(most_unsent <= HTTP_OUT_MAX && most_unsent > HTTP_OUT_MAX - 2 * sizeof(block));
    CHECK_INT(rig_conns(), 0);
    rig_stop();
}

/* Answers to a pipeline that is never read stop being made. */
TEST(a_pipeline_that_is_not_read_waits)
{
    struct http_options options = { .write_stall_ms = 300 };

    start(&options);
    flood_size = sizeof(block); /* each answer one block */
    autoclose int fd = rig_connect();
    fcntl(fd, F_SETFL, O_NONBLOCK);
    unsigned sent = 0;
    for (int idle = 0; sent < 200000 && idle < 50;) {
        static const char request[] = "GET /flood HTTP/1.1" H "\r\n";

        if (send(fd, request, sizeof(request) - 1, MSG_NOSIGNAL) == sizeof(request) - 1) {
            sent++;
            idle = 0;
        } else {
            poll(NULL, 0, 1);
            idle++;
        }
    }
    rig_wait(rig.gone + (rig_conns() == 0), 1u);
    CHECK(rig.requests < sent);
    CHECK(most_unsent <= HTTP_OUT_HIGH + 2 * sizeof(block));
    rig_stop();
}

/* What a subscriber sends behind its request is not kept, and does not hide that it leaves. */
TEST(a_subscriber_that_talks_costs_nothing_and_can_leave)
{
    autobuf struct buf in = { 0 };

    start(NULL);
    autoclose int fd = rig_connect();
    rig_puts(fd, "GET /events HTTP/1.1" H "\r\n");
    rig_until(fd, &in, 0, "first\n");
    for (int i = 0; i < 1000; i++) /* 16 MB: more than all buffers on the way */
        rig_send(fd, (struct str){ block, sizeof(block) });
    CHECK_INT(rig.gone, 0);
    close(take_fd(&fd));
    rig_wait(rig.gone, 1);
    rig_stop();
}

/* ---- taking turns ---- */

static struct timer round_end;
static _Atomic unsigned first_round;

static void count_round(struct timer *timer)
{
    (void)timer;
    first_round = rig.requests;
}

static void start_counting(void)
{
    round_end.fn = count_round;
    timer_set(rig.loop, &round_end, 0);
}

static void on_request_counted(void *ctx, struct http_req *req)
{
    (void)ctx;
    if (rig.requests++ == 0)
        start_counting();
    http_reply(req, 200, NULL, 0, STR_NONE);
}

/* One peer's pipeline does not keep the loop to itself. */
TEST(a_pipeline_is_answered_in_portions)
{
    autobuf struct buf out = { 0 }, in = { 0 };

    log_setup(LOG_ERROR + 1, LOG_TEXT, "test");
    rig_start(on_request_counted, NULL);
    autoclose int fd = rig_connect();
    for (int i = 0; i < 10 * HTTP_PIPELINE_MAX; i++)
        buf_puts(&out, "GET / HTTP/1.1" H "\r\n");
    rig_send(fd, buf_view(&out));
    shutdown(fd, SHUT_WR);
    rig_read_end(fd, &in);
    CHECK_INT(rig.requests, 10 * HTTP_PIPELINE_MAX);
    CHECK(first_round > 0 && first_round <= 2 * HTTP_PIPELINE_MAX);
    rig_stop();
}

/* ---- peers that go on after the end ---- */

TEST(a_peer_that_sends_for_ever_after_its_answer_is_cut)
{
    start(NULL);
    autoclose int fd = rig_connect();
    rig_puts(fd, "POST / HTTP/1.1" H "Content-Length: 1000000000\r\n\r\n");
    size_t sent = 0;
    while (sent < 200u << 20) {
        ssize_t n = send(fd, block, sizeof(block), MSG_NOSIGNAL);

        if (n < 0)
            break;
        sent += (size_t)n;
    }
    CHECK(sent < 100u << 20);
    CHECK_INT(rig_conns(), 0);
    rig_stop();
}

TEST(a_peer_that_stays_after_its_answer_is_cut)
{
    autobuf struct buf in = { 0 };

    start(NULL);
    autoclose int fd = rig_connect();
    rig_puts(fd, "GET / HTTP/1.1" H "Connection: close\r\n\r\n");
    rig_read_end(fd, &in); /* and now does not close */
    int64_t began = clock_mono_ms();
    while (rig_conns() && clock_mono_ms() - began < test_patience(9000))
        poll(NULL, 0, 10);
    CHECK_INT(rig_conns(), 0);
    rig_stop();
}

/* A body that nobody wants is read past only so far. */
TEST(an_unwanted_chunked_body_ends_the_connection)
{
    autobuf struct buf in = { 0 };
    autoanswer struct answer answer = { 0 };

    start(NULL);
    autoclose int fd = rig_connect();
    rig_puts(fd, "POST / HTTP/1.1" H "Transfer-Encoding: chunked\r\n\r\n");
    rig_answer(fd, &in, false, &answer);
    CHECK(answer.status == 200 && !answer.close);
    for (int i = 0; i < 6; i++) { /* 96 kB */
        rig_puts(fd, "4000\r\n");
        rig_send(fd, (struct str){ block, sizeof(block) });
        rig_puts(fd, "\r\n");
    }
    CHECK(!rig_more(fd, &in));
    rig_stop();
}

/* ---- peers that do not write ---- */

static void check_closed_silently(int fd, int from_ms, int to_ms)
{
    autobuf struct buf in = { 0 };
    int64_t began = clock_mono_ms();

    rig_read_end(fd, &in);
    CHECK_INT(in.len, 0);
    CHECK(clock_mono_ms() - began >= from_ms && clock_mono_ms() - began < test_patience(to_ms));
}

TEST(who_says_nothing_is_dropped)
{
    struct http_options options = { .head_timeout_ms = 150 };

    start(&options);
    autoclose int fd = rig_connect();
    check_closed_silently(fd, 120, 5000);
    rig_stop();
}

TEST(who_stays_idle_is_dropped)
{
    struct http_options options = { .keepalive_ms = 150 };
    autobuf struct buf in = { 0 };
    autoanswer struct answer answer = { 0 };

    start(&options);
    autoclose int fd = rig_connect();
    for (int i = 0; i < 3; i++) { /* each request starts the time anew */
        rig_puts(fd, "GET / HTTP/1.1" H "\r\n");
        rig_answer(fd, &in, false, &answer);
        CHECK_INT(answer.status, 200);
        poll(NULL, 0, 75);
    }
    check_closed_silently(fd, 20, 5000);
    rig_stop();
}

/* A byte now and then does not buy time. */
TEST(a_head_that_drips_is_refused)
{
    static const char *const starts[] = { "", "GET / HTTP/1.1\r\n", "GET / HTTP/1.1" H "X: " };
    struct http_options options = { .head_timeout_ms = 150 };

    start(&options);
    for (size_t i = 0; i < ARRAY_LEN(starts); i++) {
        autoclose int fd = rig_connect();
        autobuf struct buf in = { 0 };
        autoanswer struct answer answer = { 0 };
        int64_t began = clock_mono_ms();

        rig_puts(fd, starts[i]);
        while (rig_silent(fd, 20) && clock_mono_ms() - began < test_patience(5000))
            (void)!send(fd, "G", 1, MSG_NOSIGNAL);
        rig_answer(fd, &in, false, &answer);
        CHECK(answer.status == 408 && answer.close);
        CHECK(clock_mono_ms() - began < test_patience(4000));
    }
    CHECK_INT(rig.requests, 0);
    rig_stop();
}

TEST(the_preface_cannot_drip_either)
{
    struct http_options options = { .head_timeout_ms = 150 };

    start(&options);
    autoclose int fd = rig_connect();
    autobuf struct buf in = { 0 };
    static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r";
    size_t sent = 0;
    while (sent < sizeof(preface) - 1 && rig_silent(fd, 20))
        (void)!send(fd, preface + sent++, 1, MSG_NOSIGNAL);
    CHECK(sent < sizeof(preface) - 1); /* closed before it was complete, at 50 bytes per second */
    rig_read_end(fd, &in);
    CHECK_INT(in.len, 0);
    rig_stop();
}

TEST(a_body_that_drips_is_refused)
{
    struct http_options options = { .body_window_ms = 200 };

    start(&options);
    autoclose int fd = rig_connect();
    autobuf struct buf in = { 0 };
    autoanswer struct answer answer = { 0 };
    rig_puts(fd, "POST /read HTTP/1.1" H "Content-Length: 100000\r\n\r\n");
    for (int i = 0; i < 200 && rig_silent(fd, 10); i++)
        (void)!send(fd, "x", 1, MSG_NOSIGNAL); /* 100 bytes per second */
    rig_answer(fd, &in, false, &answer);
    CHECK(answer.status == 408 && answer.close);
    CHECK_INT(rig.gone, 1);
    rig_stop();
}

TEST(a_body_at_the_minimum_rate_is_fine)
{
    struct http_options options = { .body_window_ms = 1000 };

    start(&options);
    autoclose int fd = rig_connect();
    autobuf struct buf in = { 0 };
    autoanswer struct answer answer = { 0 };
    rig_puts(fd, "POST /read HTTP/1.1" H "Content-Length: 50000\r\n\r\n");
    for (int i = 0; i < 25; i++) { /* two windows and more; a busy machine may stop us for one */
        rig_send(fd, (struct str){ block, 2000 });
        poll(NULL, 0, 100);
    }
    rig_answer(fd, &in, false, &answer);
    CHECK_INT(answer.status, 200);
    rig_stop();
}

/* The application's own time does not count against the peer. */
TEST(an_application_may_take_its_time)
{
    struct http_options options = { .head_timeout_ms = 50,
                                    .keepalive_ms = 50,
                                    .body_window_ms = 50 };

    start(&options);
    autoclose int fd = rig_connect();
    rig_puts(fd, "POST /never HTTP/1.1" H "Content-Length: 5\r\n\r\n");
    rig_wait(rig.requests, 1);
    CHECK(rig_silent(fd, 300));
    CHECK_INT(rig.gone, 0);
    rig_stop();
}

/* ---- too many ---- */

TEST(connections_are_capped)
{
    struct http_options by_all = { .conns_max = 3 }, by_peer = { .conns_per_peer_max = 3 };
    const struct http_options *caps[] = { &by_all, &by_peer };

    for (size_t i = 0; i < ARRAY_LEN(caps); i++) {
        autoanswer struct answer answer = { 0 };
        int fds[3];

        start(caps[i]);
        for (int at = 0; at < 3; at++) {
            autobuf struct buf in = { 0 };

            fds[at] = rig_connect();
            rig_puts(fds[at], "GET / HTTP/1.1" H "\r\n");
            rig_answer(fds[at], &in, false, &answer);
            CHECK_INT(answer.status, 200);
        }
        autoclose int refused = rig_connect();
        autobuf struct buf in = { 0 };
        rig_read_end(refused, &in);
        CHECK(in.len > 12 && memcmp(in.data, "HTTP/1.1 503", 12) == 0);
        close(fds[0]);
        for (int wait = 0; wait < 1000 && rig_conns() == 3; wait++)
            poll(NULL, 0, 1);
        rig_ask("GET / HTTP/1.1" H "\r\n", &answer); /* and there is room again */
        CHECK_INT(answer.status, 200);
        close(fds[1]);
        close(fds[2]);
        rig_stop();
    }
}

static int64_t cpu_ms(void)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000 +
           (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1000;
}

/* Without a descriptor left a waiting peer is refused, and the loop does not spin on it. */
TEST(out_of_descriptors)
{
    struct rlimit old, low;
    int hogs[200], hog_count = 0;
    autoanswer struct answer answer = { 0 };
    autobuf struct buf in = { 0 };
    struct sock_addr addr;
    struct err err;

    start(NULL);
    CHECK_OK(sock_parse(rig.addr, &addr, &err), &err);
    rig_ask("GET / HTTP/1.1" H "\r\n", &answer); /* the spare descriptor is there now */
    for (int wait = 0; wait < 1000 && rig_conns(); wait++)
        poll(NULL, 0, 1);
    autoclose int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(client >= 0 && getrlimit(RLIMIT_NOFILE, &old) == 0);
    low = (struct rlimit){ .rlim_cur = (rlim_t)client + 100, .rlim_max = old.rlim_max };
    CHECK(setrlimit(RLIMIT_NOFILE, &low) == 0);
    while (hog_count < 200 && (hogs[hog_count] = dup(client)) >= 0)
        hog_count++;
    CHECK(hog_count < 200 && errno == EMFILE);
    CHECK(connect(client, (struct sockaddr *)&addr.inet, addr.inet_len) == 0);
    int64_t before = cpu_ms();
    rig_read_end(client, &in);
    CHECK(in.len > 12 && memcmp(in.data, "HTTP/1.1 503", 12) == 0);
    poll(NULL, 0, 200);
    CHECK(cpu_ms() - before < 100);
    while (hog_count)
        close(hogs[--hog_count]);
    CHECK(setrlimit(RLIMIT_NOFILE, &old) == 0);
    rig_ask("GET / HTTP/1.1" H "\r\n", &answer);
    CHECK_INT(answer.status, 200);
    rig_stop();
}

/* ---- memory ---- */

/* Sanitizers bring an allocator that keeps no such books. */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

/* What the server itself allocates for a subscriber that waits for events. */
TEST(an_idle_subscriber_costs_less_than_a_kilobyte)
{
    enum { COUNT = 200 };
    int fds[COUNT];

    start(NULL);
    autoanswer struct answer answer = { 0 };
    rig_ask("GET / HTTP/1.1" H "\r\n", &answer);
    for (int wait = 0; wait < 1000 && rig_conns(); wait++)
        poll(NULL, 0, 1);
    size_t before = mallinfo2().uordblks;
    for (unsigned i = 0; i < COUNT; i++) {
        static const char request[] = "GET /events HTTP/1.1" H "User-Agent: somebody\r\n"
                                      "Accept: text/event-stream\r\nCookie: a=b\r\n\r\n";
        char first[1024];

        fds[i] = rig_connect();
        rig_puts(fds[i], request);
        CHECK(recv(fds[i], first, sizeof(first), 0) > 0);
    }
    rig_wait(rig.requests, COUNT + 1u);
    CHECK_INT(rig_conns(), COUNT);
    size_t each = (mallinfo2().uordblks - before) / COUNT;
    fprintf(stderr, "%zu bytes for each idle subscriber\n", each);
    CHECK(each > 100 && each <= 1024);
    for (int i = 0; i < COUNT; i++)
        close(fds[i]);
    rig_wait(rig.gone, (unsigned)COUNT);
    rig_stop();
}

#endif

/* ---- draining ---- */

static void drained(void *ctx)
{
    (void)ctx;
    rig.drained++;
}

static void drain_slowly(void)
{
    http_server_drain(rig.server, 5000, drained, NULL);
}

static void drain_quickly(void)
{
    http_server_drain(rig.server, 100, drained, NULL);
}

TEST(draining_finishes_what_is_under_way)
{
    autobuf struct buf in = { 0 };
    autoanswer struct answer answer = { 0 };
    struct err err;

    start(NULL);
    autoclose int idle = rig_connect(), fresh = rig_connect(), busy = rig_connect();
    rig_puts(idle, "GET / HTTP/1.1" H "\r\n");
    rig_answer(idle, &in, false, &answer);
    rig_puts(busy, "POST /read HTTP/1.1" H "Content-Length: 5\r\n\r\nab");
    rig_wait(rig.requests, 2);
    rig_on_loop(drain_slowly);
    CHECK(!rig_more(idle, &in));
    CHECK(!rig_more(fresh, &in));
    CHECK(sock_connect(rig.addr, 200, &err) < 0);
    CHECK(!rig.drained);
    rig_puts(busy, "cde");
    rig_answer(busy, &in, false, &answer);
    CHECK(answer.status == 200 && answer.close && body_is(&answer, "read"));
    CHECK(!rig_more(busy, &in));
    close(take_fd(&busy));
    close(take_fd(&idle));
    close(take_fd(&fresh));
    rig_wait(rig.drained, 1);
    CHECK_INT(rig.gone, 0);
    rig_stop();
}

TEST(draining_does_not_wait_for_ever)
{
    autobuf struct buf in = { 0 };

    start(NULL);
    autoclose int fd = rig_connect();
    rig_puts(fd, "GET /events HTTP/1.1" H "\r\n");
    rig_until(fd, &in, 0, "first\n");
    rig_on_loop(drain_quickly);
    rig_wait(rig.drained, 1);
    CHECK_INT(rig.gone, 1);
    rig_stop();
}

TEST(an_empty_server_drains_at_once)
{
    start(NULL);
    rig_on_loop(drain_slowly);
    int64_t began = clock_mono_ms();
    rig_wait(rig.drained, 1);
    CHECK(clock_mono_ms() - began < test_patience(2000));
    rig_stop();
}
