/* What serve packs the api process unpacks, and a reload changes only what it may. */
#include "daemon/settings.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>

#include "base/limits.h"
#include "base/test.h"

static struct conf *conf_with(const char *const *args)
{
    struct conf *conf = conf_new();
    struct err err;
    char *copy[16] = { 0 };

    for (size_t i = 0; args[i]; i++)
        copy[i] = xstrdup(args[i]);
    CHECK_OK(conf_args(conf, copy, &err), &err);
    for (size_t i = 0; args[i]; i++)
        free(copy[i]);
    return conf;
}

#define CONF(...) conf_with((const char *const[]){ __VA_ARGS__, NULL })

static void pack_start(struct buf *out, const struct conf *conf)
{
    struct start start = { .state = "/some/where",
                           .owner_uid = 4242,
                           .listeners = { { "unix:/some/where/atoll.sock", false },
                                          { "127.0.0.1:8443", true } },
                           .listener_count = 2 };
    autoarena struct arena arena = { 0 };

    for (size_t i = 0; i < SHA256_SIZE; i++)
        start.admin_hash[i] = start.egress_key.bytes[i] = (unsigned char)(i * 7);
    hosts_add(&start.hosts, &arena, "localhost:8443");
    start_pack(&start, conf, out);
}

TEST(the_start_arrives_as_packed)
{
    struct conf *conf = CONF("--log-level", "debug");
    autobuf struct buf text = { 0 };
    autoarena struct arena arena = { 0 };
    struct start start;
    struct err err;

    pack_start(&text, conf);
    CHECK_OK(start_unpack(&start, &arena, buf_view(&text), &err), &err);
    CHECK_STR(start.state, "/some/where");
    CHECK_INT(start.owner_uid, 4242);
    CHECK_INT(start.admin_hash[31], (unsigned char)(31 * 7));
    CHECK_INT(start.egress_key.bytes[31], (unsigned char)(31 * 7));
    CHECK_INT(start.listener_count, 2);
    CHECK_STR(start.listeners[1].text, "127.0.0.1:8443");
    CHECK(start.listeners[1].tls && !start.listeners[0].tls);
    CHECK_INT(start.hosts.count, 1);
    CHECK_STR(start.hosts.items[0], "localhost:8443");
    conf_free(conf);
}

TEST(a_broken_start_is_refused)
{
    autoarena struct arena arena = { 0 };
    struct start start;
    struct err err;

    CHECK(start_unpack(&start, &arena, STR(""), &err) < 0);
    CHECK(start_unpack(&start, &arena, STR("{}"), &err) < 0);
    CHECK(start_unpack(&start, &arena, STR("{\"admin_hash\":\"12\"}"), &err) < 0);
#define HEX64 "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
    CHECK(start_unpack(&start, &arena, STR("{\"admin_hash\":\"" HEX64 "\"}"), &err) < 0);
    CHECK(strstr(err.msg, "egress_key"));
}

/* The settings of a server started with `first` and reloaded with `now`. */
static struct settings reloaded(struct conf *first, struct conf *now)
{
    static struct arena arena;
    static struct buf start, settings;
    struct settings out = { 0 };
    struct err err;

    arena_free(&arena);
    buf_clear(&start);
    buf_clear(&settings);
    pack_start(&start, first);
    CHECK_OK(settings_pack(now, &settings, &err), &err);
    CHECK_OK(settings_unpack(&out, &arena, buf_view(&start), buf_view(&settings), &err), &err);
    conf_free(first);
    conf_free(now);
    return out;
}

TEST(a_reload_changes_what_it_may)
{
    struct settings got = reloaded(CONF("--log-level", "info", "--rate-burst", "10"),
                                   CONF("--log-level", "debug", "--host", "a.example"));

    CHECK_STR(conf_text(got.conf, "log_level"), "debug");
    CHECK_STR(conf_text(got.conf, "host"), "a.example");
    CHECK_INT(conf_int(got.conf, "rate_burst"), 40000); /* no longer set: the default again */
    CHECK_STR(got.stale, "");
    conf_free(got.conf);
}

TEST(a_reload_does_not_change_what_needs_a_restart)
{
    struct settings got = reloaded(
        CONF("--listen", "0.0.0.0:80", "--auth", "token", "--state", "/a"),
        CONF("--listen", "127.0.0.1:81", "--auth", "open", "--state", "/a", "--readers", "9"));

    CHECK_STR(conf_text(got.conf, "auth"), "token");
    CHECK_STR(conf_text(got.conf, "listen"), "0.0.0.0:80");
    CHECK_INT(conf_int(got.conf, "readers"), 2);
    CHECK_STR(got.stale, "listen, auth, readers");
    conf_free(got.conf);
}

TEST(tls_files_are_read_and_bounded)
{
    autofree char *path = xprintf("%s/pem", test_dir());
    autobuf struct buf out = { 0 };
    struct err err;

    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && write(fd, "PEM\n\"", 5) == 5);
    struct settings got =
        reloaded(CONF("--log-level", "info"), CONF("--tls-cert", path, "--tls-key", path));
    CHECK(str_is(got.tls_cert, "PEM\n\"") && str_is(got.tls_key, "PEM\n\""));
    conf_free(got.conf);

    struct conf *conf = CONF("--tls-cert", path, "--tls-key", path);
    autofree char *long_text = xmalloc(TLS_FILE_MAX);
    memset(long_text, 'x', TLS_FILE_MAX);
    CHECK(pwrite(fd, long_text, TLS_FILE_MAX, 0) == TLS_FILE_MAX);
    CHECK_OK(settings_pack(conf, &out, &err), &err);
    CHECK(pwrite(fd, "x", 1, TLS_FILE_MAX) == 1);
    CHECK(settings_pack(conf, &out, &err) < 0);
    CHECK(ftruncate(fd, 0) == 0 && ftruncate(fd, 5) == 0);
    CHECK(settings_pack(conf, &out, &err) < 0);
    CHECK(strstr(err.msg, "not PEM"));
    close(fd);
    CHECK(unlink(path) == 0);
    CHECK(settings_pack(conf, &out, &err) < 0);
    CHECK(strstr(err.msg, "tls_cert: open"));
    conf_free(conf);
}

TEST(sealed_memory_is_whole_and_cannot_change)
{
    autobuf struct buf back = { 0 };
    struct err err;
    autoclose int fd = sealed_make("test", STR("some text"), &err);

    CHECK_OK(fd, &err);
    CHECK_OK(sealed_read(fd, &back, &err), &err);
    CHECK(str_is(buf_view(&back), "some text"));
    CHECK(write(fd, "x", 1) < 0 && ftruncate(fd, 1) < 0);

    autoclose int open_fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    CHECK(write(open_fd, "x", 1) == 1);
    CHECK(sealed_read(open_fd, &back, &err) < 0);
    CHECK_INT(err.code, ERR_FORBIDDEN);
    CHECK(sealed_read(0, &back, &err) < 0);
}

TEST(settings_have_a_size)
{
    autobuf struct buf big = { 0 }, back = { 0 };
    struct err err;

    memset(buf_reserve(&big, SETTINGS_MAX + 1), 'x', SETTINGS_MAX + 1);
    big.len = SETTINGS_MAX;
    autoclose int fits = sealed_make("test", buf_view(&big), &err);
    CHECK_OK(sealed_read(fits, &back, &err), &err);
    CHECK_INT(back.len, SETTINGS_MAX);
    big.len++;
    autoclose int over = sealed_make("test", buf_view(&big), &err);
    CHECK(sealed_read(over, &back, &err) < 0);
    CHECK_INT(err.code, ERR_LIMIT);
}
