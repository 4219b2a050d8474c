/* Who is believed, on both sides of an interception. */
#include "egress/trust.h"

#include <fcntl.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <time.h>

#include "base/id.h"
#include "net/tls_rig.h"

#define BOX "01hzxsandbox"

struct rig {
    struct seal_private key;
    struct trust *trust, *strangers; /* the second trusts nobody */
    struct mint *mint;
    int pair[2];
    struct tls_conn *server, *client;
};

static int64_t now_s(void)
{
    return (int64_t)time(NULL);
}

static struct host host_of(const char *text)
{
    struct host host;
    struct err err;

    CHECK_OK(host_parse(str_of(text), &host, &err), &err);
    return host;
}

static void rig_make(struct rig *rig)
{
    autobuf struct buf pem = { 0 };
    struct err err;

    *rig = (struct rig){ 0 };
    random_bytes(&rig->key, sizeof(rig->key));
    CHECK_OK(trust_empty(&rig->trust, &err), &err);
    CHECK_OK(trust_empty(&rig->strangers, &err), &err);
    CHECK_OK(mint_new(&rig->mint, &rig->key, STR(BOX), now_s(), &err), &err);
    CHECK_OK(mint_ca_pem(rig->mint, &pem, &err), &err);
    CHECK_INT(trust_add(rig->trust, buf_view(&pem), &err), 1);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, rig->pair) == 0);
}

static void rig_free(struct rig *rig)
{
    tls_conn_free(rig->server);
    tls_conn_free(rig->client);
    close(rig->pair[0]);
    close(rig->pair[1]);
    mint_free(rig->mint);
    trust_free(rig->trust);
    trust_free(rig->strangers);
}
#define autorig auto_with(rig_free)

static void serve(struct rig *rig, const char *name)
{
    struct host host = host_of(name);
    struct err err;

    CHECK_OK(trust_server(rig->trust, rig->mint, &host, now_s(), rig->pair[0], STR_NONE,
                          &rig->server, &err),
             &err);
}

static void call(struct rig *rig, struct trust *trust, const char *name)
{
    struct host host = host_of(name);
    struct err err;

    CHECK_OK(trust_client(trust, &host, rig->pair[1], &rig->client, &err), &err);
}

/* Both ends in turn; true when both are done. */
static bool shake(struct rig *rig)
{
    int server = TLS_AGAIN, client = TLS_AGAIN;

    for (int i = 0; i < 20; i++) {
        if (client == TLS_AGAIN)
            client = tls_handshake(rig->client);
        if (server == TLS_AGAIN)
            server = tls_handshake(rig->server);
        if (client == TLS_FAILED || server == TLS_FAILED)
            return false;
    }
    return client == 0 && server == 0;
}

TEST(both_ends_agree_on_http1_and_bytes_pass)
{
    autorig struct rig rig;
    const unsigned char *alpn;
    char text[8] = "";
    unsigned len;
    struct err err;

    rig_make(&rig);
    serve(&rig, "api.example.org");
    call(&rig, rig.trust, "api.example.org");
    CHECK(shake(&rig));
    CHECK_OK(trust_checked(rig.client, &err), &err);
    SSL_get0_alpn_selected(tls_conn_ssl(rig.client), &alpn, &len);
    CHECK(len == 8 && memcmp(alpn, "http/1.1", 8) == 0);
    CHECK_STR(SSL_get_servername(tls_conn_ssl(rig.server), TLSEXT_NAMETYPE_host_name),
              "api.example.org");
    CHECK_INT(tls_write(rig.client, "hello", 5), 5);
    CHECK_INT(tls_read(rig.server, text, sizeof(text)), 5);
    CHECK_STR(text, "hello");
}

TEST(a_host_that_nobody_vouches_for_is_refused)
{
    autorig struct rig rig;
    struct err err;

    rig_make(&rig);
    serve(&rig, "api.example.org");
    call(&rig, rig.strangers, "api.example.org");
    CHECK(!shake(&rig));
    CHECK(trust_checked(rig.client, &err) < 0);
    CHECK_INT(err.code, ERR_FORBIDDEN);
    CHECK(strstr(err.msg, "refused"));
}

/* The server of a test is our own, which would refuse the wrong name itself: so its check is off.
 */
static void anybody(struct rig *rig)
{
    SSL_CTX_set_tlsext_servername_callback(SSL_get_SSL_CTX(tls_conn_ssl(rig->server)), NULL);
}

TEST(a_certificate_of_another_name_is_refused)
{
    static const char *const rows[][2] = { { "other.example.org", "api.example.org" },
                                           { "example.org", "api.example.org" },
                                           { "api.example.org", "example.org" } };
    struct err err;

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        autorig struct rig rig;

        rig_make(&rig);
        serve(&rig, rows[i][0]);
        anybody(&rig);
        call(&rig, rig.trust, rows[i][1]);
        CHECK(!shake(&rig));
        CHECK(trust_checked(rig.client, &err) < 0);
        CHECK(strstr(err.msg, "ostname"));
    }
}

TEST(nothing_is_believed_before_the_handshake)
{
    autorig struct rig rig;
    struct err err;

    rig_make(&rig);
    serve(&rig, "api.example.org");
    call(&rig, rig.trust, "api.example.org");
    CHECK(trust_checked(rig.client, &err) < 0);
    CHECK_INT(err.code, ERR_FORBIDDEN);
}

/* Towards the sandbox: a client that names another host, or none. */
TEST(a_hello_for_another_host_is_refused)
{
    static const char *const names[] = { "evil.example.org", NULL };

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        autorig struct rig rig;

        rig_make(&rig);
        serve(&rig, "api.example.org");
        SSL *ssl = tls_client(rig.pair[1], NULL, 0);
        if (names[i])
            CHECK(SSL_set_tlsext_host_name(ssl, names[i]) == 1);
        SSL_set_connect_state(ssl);
        rig.client = tls_conn_wrap(ssl);
        CHECK(!shake(&rig));
    }
}

TEST(who_speaks_http2_alone_is_told_so)
{
    static const struct {
        const char *alpn;
        int version_max;
        bool want;
    } rows[] = {
        { "\x02h2", 0, false },         { "\x02h2\x08http/1.1", 0, true }, { NULL, 0, true },
        { NULL, TLS1_2_VERSION, true }, { NULL, TLS1_1_VERSION, false },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        autorig struct rig rig;

        rig_make(&rig);
        serve(&rig, "api.example.org");
        SSL *ssl = tls_client(rig.pair[1], rows[i].alpn, rows[i].version_max);
        CHECK(SSL_set_tlsext_host_name(ssl, "API.example.org") == 1);
        SSL_set_connect_state(ssl);
        rig.client = tls_conn_wrap(ssl);
        CHECK_INT(shake(&rig), rows[i].want);
    }
}

/* What one sandbox began cannot be taken up by another. */
TEST(no_session_can_be_resumed)
{
    for (int version = TLS1_2_VERSION; version <= TLS1_3_VERSION; version++) {
        autorig struct rig rig;
        char text[8];

        rig_make(&rig);
        serve(&rig, "api.example.org");
        SSL *ssl = tls_client(rig.pair[1], NULL, version);
        CHECK(SSL_set_tlsext_host_name(ssl, "api.example.org") == 1);
        SSL_set_connect_state(ssl);
        rig.client = tls_conn_wrap(ssl);
        CHECK(shake(&rig));
        CHECK_INT(tls_read(rig.client, text, sizeof(text)), TLS_AGAIN); /* a ticket would come */
        CHECK(!SSL_SESSION_is_resumable(SSL_get_session(ssl)) ||
              !SSL_SESSION_has_ticket(SSL_get_session(ssl)));
    }
}

TEST(what_is_no_list_of_certificates_is_refused)
{
#define TORN "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    autobuf struct buf pem = { 0 };
    autorig struct rig rig;
    struct err err;

    rig_make(&rig);
    CHECK(trust_add(rig.trust, STR("nothing"), &err) < 0);
    CHECK(trust_add(rig.trust, STR(""), &err) < 0);
    CHECK(trust_add(rig.trust, STR(TORN), &err) < 0);
    CHECK_OK(mint_ca_pem(rig.mint, &pem, &err), &err);
    buf_puts(&pem, "and a comment\n");
    CHECK_INT(trust_add(rig.trust, buf_view(&pem), &err), 1);
    buf_puts(&pem, TORN);
    CHECK(trust_add(rig.trust, buf_view(&pem), &err) < 0);
    CHECK_INT(err.code, ERR_INVALID);
}

TEST(an_address_is_no_name)
{
    autorig struct rig rig;
    struct host host = host_of("192.0.2.1");
    struct tls_conn *conn;
    struct err err;

    rig_make(&rig);
    CHECK(trust_client(rig.trust, &host, rig.pair[1], &conn, &err) < 0);
    CHECK(trust_server(rig.trust, rig.mint, &host, now_s(), rig.pair[0], STR_NONE, &conn, &err) <
          0);
}

/* What was read before is as good as what is still to be read, and nothing of it is lost. */
TEST(the_first_message_was_read_already)
{
    for (size_t cut = 1; cut < 600; cut += 97) {
        autorig struct rig rig;
        struct host host = host_of("api.example.org");
        char first[4096], text[8] = "";
        struct err err;

        rig_make(&rig);
        call(&rig, rig.trust, "api.example.org");
        CHECK_INT(tls_handshake(rig.client), TLS_AGAIN);
        ssize_t got = recv(rig.pair[0], first, cut, MSG_DONTWAIT); /* the rest is in the socket */
        CHECK(got > 0);
        CHECK_OK(trust_server(rig.trust, rig.mint, &host, now_s(), rig.pair[0],
                              (struct str){ first, (size_t)got }, &rig.server, &err),
                 &err);
        CHECK(shake(&rig));
        CHECK_INT(tls_write(rig.client, "hello", 5), 5);
        CHECK_INT(tls_read(rig.server, text, sizeof(text)), 5);
        CHECK_STR(text, "hello");
    }
}

TEST(who_ended_a_handshake_and_why)
{
    enum { UNKNOWN_CA = 48, UNRECOGNIZED_NAME = 112 };
    bool ours;

    for (int i = 0; i < 3; i++) {
        autorig struct rig rig;

        rig_make(&rig);
        serve(&rig, "api.example.org");
        call(&rig, i == 0 ? rig.strangers : rig.trust,
             i == 1 ? "other.example.org" : "api.example.org");
        CHECK_INT(shake(&rig), i == 2);
        (void)!tls_handshake(rig.server);
        CHECK_INT(trust_alert(rig.server, &ours), i == 0   ? UNKNOWN_CA
                                                  : i == 1 ? UNRECOGNIZED_NAME
                                                           : -1);
        CHECK_INT(ours, i == 1);
    }
}
