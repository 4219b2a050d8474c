/* Keys and certificates good and bad, handshakes over a socket pair, and what a broken peer does.
 */
#include "net/tls.h"

#include <pthread.h>
#include <sys/socket.h>

#include "base/buf.h"
#include "net/tls_rig.h"

TEST(keys_and_certificates_are_checked)
{
    autopem struct tls_pem one = tls_pem_new("one"), two = tls_pem_new("two");
    autofree char *chain = xprintf("%s%s", one.cert, two.cert);
    autofree char *broken_chain = xprintf("%s-----BEGIN CERTIFICATE-----\nAAAA\n", one.cert);
    const struct {
        const char *cert, *key;
        bool good;
    } cases[] = {
        { one.cert, one.key, true }, { chain, one.key, true },         { one.cert, two.key, false },
        { "", one.key, false },      { one.cert, "", false },          { one.key, one.cert, false },
        { "x", "y", false },         { broken_chain, one.key, false },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct tls *tls = NULL;
        struct err err = { 0 };
        int got = tls_new(&tls, str_of(cases[i].cert), str_of(cases[i].key), &err);

        if ((got == 0) != cases[i].good)
            test_fail(__FILE__, __LINE__, "case %zu: %s", i, err.msg);
        CHECK(cases[i].good == (tls != NULL));
        tls_free(tls);
    }
}

/* ---- handshakes ---- */

struct client {
    int fd, version_max;
    const char *alpn;
    bool shaken;
    char chosen[16], common_name[64];
};

static void *client_thread(void *arg)
{
    struct client *client = arg;
    SSL *ssl = tls_client(client->fd, client->alpn, client->version_max);
    const unsigned char *name = NULL;
    unsigned len = 0;
    char echo[64] = "";

    client->shaken = SSL_connect(ssl) == 1;
    SSL_get0_alpn_selected(ssl, &name, &len);
    if (len < sizeof(client->chosen))
        memcpy(client->chosen, name ? (const char *)name : "", len);
    if (client->shaken) {
        X509 *cert = SSL_get1_peer_certificate(ssl);

        X509_NAME_get_text_by_NID(X509_get_subject_name(cert), NID_commonName, client->common_name,
                                  sizeof(client->common_name));
        X509_free(cert);
        CHECK(SSL_write(ssl, "hello", 5) == 5);
        CHECK(SSL_read(ssl, echo, sizeof(echo)) == 5 && memcmp(echo, "hello", 5) == 0);
        SSL_shutdown(ssl);
    }
    SSL_free(ssl);
    close(client->fd);
    return NULL;
}

/* The server's side, echoing once, on a blocking socket: TLS_AGAIN then never comes. */
static bool serve_once(struct tls *tls, int fd, bool *h2)
{
    struct tls_conn *conn = NULL;
    struct err err;
    char data[64];
    ssize_t got = 0;

    CHECK_OK(tls_conn_new(&conn, tls, fd, &err), &err);
    bool shaken = tls_handshake(conn) == 0;
    *h2 = shaken && tls_is_h2(conn);
    if (shaken && (got = tls_read(conn, data, sizeof(data))) > 0) {
        CHECK(tls_write(conn, data, (size_t)got) == got);
        CHECK(tls_read(conn, data, sizeof(data)) == 0); /* the goodbye */
    }
    tls_conn_free(conn);
    return shaken;
}

static bool shake(struct tls *tls, struct client *client, bool *h2)
{
    pthread_t thread;
    int fds[2];

    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
    client->fd = fds[1];
    CHECK(pthread_create(&thread, NULL, client_thread, client) == 0);
    bool shaken = serve_once(tls, fds[0], h2);
    close(fds[0]);
    pthread_join(thread, NULL);
    return shaken && client->shaken;
}

TEST(handshakes_choose_a_protocol)
{
    static const struct {
        const char *alpn, *chosen;
        int version_max;
        bool good, h2;
    } cases[] = {
        { NULL, "", 0, true, false },
        { "\x02h2", "h2", 0, true, true },
        { "\x08http/1.1", "http/1.1", 0, true, false },
        { "\x08http/1.1\x02h2", "h2", 0, true, true },
        { "\x02h2\x08http/1.1", "h2", TLS1_2_VERSION, true, true },
        { "\x05other", "", 0, false, false },
        { NULL, "", TLS1_1_VERSION, false, false },
    };
    autopem struct tls_pem pem = tls_pem_new("one");
    struct tls *tls;
    struct err err;

    CHECK_OK(tls_new(&tls, str_of(pem.cert), str_of(pem.key), &err), &err);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct client client = { .alpn = cases[i].alpn, .version_max = cases[i].version_max };
        bool h2 = false;

        if (shake(tls, &client, &h2) != cases[i].good || h2 != cases[i].h2)
            test_fail(__FILE__, __LINE__, "case %zu", i);
        if (cases[i].good)
            CHECK_STR(client.chosen, cases[i].chosen);
    }
    tls_free(tls);
}

TEST(a_certificate_can_be_replaced)
{
    autopem struct tls_pem one = tls_pem_new("one"), two = tls_pem_new("two");
    struct tls *tls;
    struct err err;
    struct client client = { 0 };
    bool h2;

    CHECK_OK(tls_new(&tls, str_of(one.cert), str_of(one.key), &err), &err);
    CHECK(shake(tls, &client, &h2));
    CHECK_STR(client.common_name, "one");
    CHECK(tls_reload(tls, str_of(two.cert), str_of(one.key), &err) < 0);
    CHECK(shake(tls, &client, &h2));
    CHECK_STR(client.common_name, "one");
    CHECK_OK(tls_reload(tls, str_of(two.cert), str_of(two.key), &err), &err);
    CHECK(shake(tls, &client, &h2));
    CHECK_STR(client.common_name, "two");
    tls_free(tls);
}

TEST(garbage_fails_and_silence_waits)
{
    autopem struct tls_pem pem = tls_pem_new("one");
    struct tls *tls;
    struct tls_conn *conn;
    struct err err;
    int fds[2];

    CHECK_OK(tls_new(&tls, str_of(pem.cert), str_of(pem.key), &err), &err);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0);
    CHECK_OK(tls_conn_new(&conn, tls, fds[0], &err), &err);
    CHECK_INT(tls_handshake(conn), TLS_AGAIN);
    CHECK(!tls_wants_write(conn) && !tls_pending(conn));
    CHECK(write(fds[1], "\x16\x03\x01\x00\x05xxxxx", 10) == 10);
    CHECK_INT(tls_handshake(conn), TLS_FAILED);
    tls_conn_free(conn);
    tls_free(tls);
    close(fds[0]);
    close(fds[1]);
}
