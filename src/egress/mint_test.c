/* Certificates that a stranger's verifier takes, for the name they are for and no other. */
#include "egress/mint.h"

#include <fcntl.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>

#include "base/id.h"
#include "base/test.h"

#define BOX "01hzxsandbox"
#define NOW INT64_C(1800000000)

static void drop(struct mint **mint)
{
    mint_free(*mint);
}
#define automint auto_with(drop)

static struct host host_of(const char *text)
{
    struct host host;
    struct err err;

    CHECK_OK(host_parse(str_of(text), &host, &err), &err);
    return host;
}

static X509 *leaf_of(struct mint *mint, const char *name, int64_t now_s)
{
    struct host host = host_of(name);
    struct err err;
    X509 *cert;

    CHECK_OK(mint_leaf(mint, &host, now_s, &cert, &err), &err);
    return cert;
}

static X509 *ca_of(const struct mint *mint)
{
    autobuf struct buf pem = { 0 };
    struct err err;

    CHECK_OK(mint_ca_pem(mint, &pem, &err), &err);
    BIO *bio = BIO_new_mem_buf(pem.data, (int)pem.len);
    X509 *cert = PEM_read_bio_X509(bio, NULL, NULL, NULL);
    CHECK(cert);
    BIO_free(bio);
    return cert;
}

/* X509_V_OK or why not. */
static int verify(X509 *ca, X509 *leaf, const char *name, int64_t now_s)
{
    X509_STORE *store = X509_STORE_new();
    X509_STORE_CTX *ctx = X509_STORE_CTX_new();

    CHECK(X509_STORE_add_cert(store, ca) == 1);
    CHECK(X509_STORE_CTX_init(ctx, store, leaf, NULL) == 1);
    X509_VERIFY_PARAM *param = X509_STORE_CTX_get0_param(ctx);
    X509_VERIFY_PARAM_set_purpose(param, X509_PURPOSE_SSL_SERVER);
    X509_VERIFY_PARAM_set_flags(param, X509_V_FLAG_X509_STRICT);
    X509_VERIFY_PARAM_set1_host(param, name, 0);
    X509_VERIFY_PARAM_set_time(param, now_s);
    X509_verify_cert(ctx);
    int why = X509_STORE_CTX_get_error(ctx);
    X509_STORE_CTX_free(ctx);
    X509_STORE_free(store);
    return why;
}

TEST(a_certificate_is_good_for_its_name_and_time)
{
    automint struct mint *mint = NULL;
    struct seal_private key;
    struct err err;

    random_bytes(&key, sizeof(key));
    CHECK_OK(mint_new(&mint, &key, STR(BOX), NOW, &err), &err);
    X509 *ca = ca_of(mint), *leaf = leaf_of(mint, "api.example.org", NOW);
    CHECK_INT(verify(ca, leaf, "api.example.org", NOW), X509_V_OK);
    CHECK_INT(verify(ca, leaf, "example.org", NOW), X509_V_ERR_HOSTNAME_MISMATCH);
    CHECK_INT(verify(ca, leaf, "x.api.example.org", NOW), X509_V_ERR_HOSTNAME_MISMATCH);
    CHECK_INT(verify(ca, leaf, "api.example.org", NOW + MINT_LEAF_S + 1),
              X509_V_ERR_CERT_HAS_EXPIRED);
    CHECK_INT(verify(ca, leaf, "api.example.org", NOW - MINT_BACK_S - 1),
              X509_V_ERR_CERT_NOT_YET_VALID);
    CHECK(!(X509_get_extension_flags(leaf) & EXFLAG_CA) && X509_check_ca(ca) == 1);
    CHECK_INT(X509_get_pathlen(ca), 0);
    X509_free(ca);
}

TEST(a_long_name_and_an_address)
{
    static const char label[] = "abcdefghijabcdefghijabcdefghijabcdefghijabcdefghijabcdefghijabc";
    automint struct mint *mint = NULL;
    struct seal_private key;
    struct host host;
    char name[256];
    struct err err;
    X509 *cert;

    random_bytes(&key, sizeof(key));
    CHECK_OK(mint_new(&mint, &key, STR(BOX), NOW, &err), &err);
    snprintf(name, sizeof(name), "%s.%s.%s.%.60s1", label, label, label, label);
    X509 *ca = ca_of(mint);
    CHECK_INT(verify(ca, leaf_of(mint, name, NOW), name, NOW), X509_V_OK);
    X509_free(ca);
    host = host_of("192.0.2.1");
    CHECK(mint_leaf(mint, &host, NOW, &cert, &err) < 0);
    CHECK_INT(err.code, ERR_INVALID);
}

/* After a restart of the process, and for another sandbox. */
TEST(the_authority_is_the_same_for_the_same_sandbox_alone)
{
    automint struct mint *first = NULL, *again = NULL, *other = NULL, *foreign = NULL;
    struct seal_private key, key2;
    struct err err;

    random_bytes(&key, sizeof(key));
    random_bytes(&key2, sizeof(key2));
    CHECK_OK(mint_new(&first, &key, STR(BOX), NOW, &err), &err);
    CHECK_OK(mint_new(&again, &key, STR(BOX), NOW + 1000, &err), &err);
    CHECK_OK(mint_new(&other, &key, STR("01hzyanother"), NOW, &err), &err);
    CHECK_OK(mint_new(&foreign, &key2, STR(BOX), NOW, &err), &err);
    X509 *ca = ca_of(first);
    CHECK_INT(verify(ca, leaf_of(again, "a.org", NOW + 1000), "a.org", NOW + 1000), X509_V_OK);
    CHECK(verify(ca, leaf_of(other, "a.org", NOW), "a.org", NOW) != X509_V_OK);
    X509 *theirs = ca_of(other); /* not by its name alone */
    CHECK(EVP_PKEY_eq(X509_get0_pubkey(ca), X509_get0_pubkey(theirs)) == 0);
    X509_free(theirs);
    CHECK(verify(ca, leaf_of(foreign, "a.org", NOW), "a.org", NOW) != X509_V_OK);
    X509_free(ca);
}

TEST(certificates_are_kept_and_there_is_a_limit)
{
    automint struct mint *mint = NULL;
    struct seal_private key;
    struct err err;
    char name[64];

    random_bytes(&key, sizeof(key));
    CHECK_OK(mint_new(&mint, &key, STR(BOX), NOW, &err), &err);
    X509 *kept = leaf_of(mint, "kept.org", NOW), *first = leaf_of(mint, "first.org", NOW);
    X509_up_ref(kept);
    X509_up_ref(first);
    for (int i = 0; i < MINT_LEAVES_MAX - 2; i++) { /* full, and none has gone */
        snprintf(name, sizeof(name), "n%d.org", i);
        leaf_of(mint, name, NOW);
    }
    CHECK(leaf_of(mint, "first.org", NOW) == first);
    CHECK(leaf_of(mint, "kept.org", NOW) == kept);
    for (int i = 0; i < MINT_LEAVES_MAX - 1; i++) {
        snprintf(name, sizeof(name), "m%d.org", i);
        leaf_of(mint, name, NOW);
    }
    CHECK(leaf_of(mint, "kept.org", NOW) == kept);
    CHECK(leaf_of(mint, "first.org", NOW) != first); /* the least recently used has gone */
    CHECK(X509_cmp(leaf_of(mint, "kept.org", NOW + MINT_LEAF_S / 2 + 1), kept) != 0);
    X509_free(kept);
    X509_free(first);
}

TEST(nothing_outlives_its_authority)
{
    automint struct mint *mint = NULL;
    struct seal_private key;
    struct err err;

    random_bytes(&key, sizeof(key));
    CHECK_OK(mint_new(&mint, &key, STR(BOX), NOW, &err), &err);
    X509 *late = leaf_of(mint, "a.org", NOW + MINT_CA_S - 100), *ca = ca_of(mint);
    CHECK_INT(ASN1_TIME_compare(X509_get0_notAfter(late), X509_get0_notAfter(ca)), 0);
    CHECK(!mint_stale(mint, NOW + MINT_CA_S / 2));
    CHECK(mint_stale(mint, NOW + MINT_CA_S / 2 + 1));
    X509_free(ca);
}

static void write_file(const char *name, const X509 *cert, char path[4096])
{
    snprintf(path, 4096, "%s/%s", test_dir(), name);
    FILE *file = fopen(path, "we");
    CHECK(file && PEM_write_X509(file, cert) == 1 && fclose(file) == 0);
}

/* The program of the same library with everything strict, as others would run it. */
TEST(openssl_verify_agrees)
{
    automint struct mint *mint = NULL;
    struct seal_private key;
    char ca_path[4096], leaf_path[4096];
    struct err err;
    pid_t pid;
    int status;

    random_bytes(&key, sizeof(key));
    CHECK_OK(mint_new(&mint, &key, STR(BOX), (int64_t)time(NULL), &err), &err);
    X509 *ca = ca_of(mint);
    write_file("ca.pem", ca, ca_path);
    write_file("leaf.pem", leaf_of(mint, "api.example.org", (int64_t)time(NULL)), leaf_path);
    X509_free(ca);
    static const char *const names[] = { "api.example.org", "other.example.org" };
    for (int i = 0; i < 2; i++) {
        char *argv[] = { "openssl",
                         "verify",
                         "-x509_strict",
                         "-purpose",
                         "sslserver",
                         "-verify_hostname",
                         (char *)(uintptr_t)names[i],
                         "-no-CApath",
                         "-CAfile",
                         ca_path,
                         leaf_path,
                         NULL };
        posix_spawn_file_actions_t quiet;

        posix_spawn_file_actions_init(&quiet);
        posix_spawn_file_actions_addopen(&quiet, 1, "/dev/null", O_WRONLY, 0);
        posix_spawn_file_actions_adddup2(&quiet, 1, 2);
        if (posix_spawnp(&pid, "openssl", &quiet, NULL, argv, environ) != 0)
            test_skip("no openssl program");
        posix_spawn_file_actions_destroy(&quiet);
        CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
        CHECK_INT(WEXITSTATUS(status) == 0, i == 0);
    }
}
