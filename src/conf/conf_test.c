/* Sources against each other, every refusal with its words, every limit from both sides. */
#include "conf/conf.h"

#include <stdio.h>
#include <sys/stat.h>

#include "base/limits.h"
#include "base/mem.h"
#include "base/test.h"
#include "policy/host.h"

static void conf_drop(struct conf **conf)
{
    conf_free(*conf);
}
#define autoconf auto_with(conf_drop)

static const char *fails(const char *text)
{
    static struct err err;
    autoconf struct conf *conf = conf_new();

    err = (struct err){ 0 };
    CHECK(conf_parse(conf, str_of(text), "f", &err) < 0);
    CHECK(err.code == ERR_INVALID || err.code == ERR_LIMIT);
    return err.msg;
}

#define CHECK_HAS(text, part)                                                                      \
    do {                                                                                           \
        const char *text_ = (text);                                                                \
        if (!strstr(text_, part))                                                                  \
            test_fail(__FILE__, __LINE__, "\"%s\" has no \"%s\"", text_, part);                    \
    } while (0)

TEST(conf_defaults_fit_their_own_lines)
{
    autoconf struct conf *conf = conf_new();
    struct err err;

    CHECK_OK(conf_check(conf, &err), &err);
    CHECK_STR(conf_text(conf, "listen"), "127.0.0.1:8080");
    CHECK_INT(conf_int(conf, "event_keep"), EVENT_KEEP_MS);
    CHECK_INT(conf_int(conf, "head_timeout"), HTTP_HEAD_TIMEOUT_MS);
    CHECK_INT(conf_int(conf, "keepalive"), HTTP_KEEPALIVE_MS);
    CHECK_INT(conf_int(conf, "write_stall"), HTTP_WRITE_STALL_MS);
    CHECK_INT(conf_int(conf, "drain"), DRAIN_MS);
    CHECK_INT(conf_int(conf, "rate_per_second"), RATE_PER_SECOND);
    CHECK_INT(conf_int(conf, "rate_burst"), RATE_BURST);
    CHECK_INT(conf_int(conf, "conns_max"), HTTP_CONNS_MAX);
    CHECK_INT(conf_int(conf, "conns_per_peer_max"), HTTP_CONNS_PER_PEER_MAX);
    CHECK_STR(conf_text(conf, "tls_cert"), "");
    CHECK(conf_text(conf, "state")[0] == '/');
}

TEST(conf_higher_source_wins_in_any_order)
{
    static const char *const levels[] = { NULL, "debug", "warn", "error" };
    static const enum conf_source all[] = { CONF_FILE, CONF_ENV, CONF_FLAG };

    for (int round = 0; round < 60; round++) {
        autoconf struct conf *conf = conf_new();
        enum conf_source best = CONF_DEFAULT;
        unsigned start = test_rand(3);
        struct err err;
        const char *where;

        for (unsigned i = 0; i < 3; i++) {
            enum conf_source source = all[(start + i) % 3];

            if (test_rand(2))
                continue;
            CHECK_OK(conf_set(conf, source, "log_level", levels[source], "x", &err), &err);
            best = MAX(best, source);
        }
        CHECK_INT(conf_source(conf, "log_level", &where), best);
        CHECK_STR(where, best ? "x" : "default");
        CHECK_STR(conf_text(conf, "log_level"), best ? levels[best] : "info");
    }
}

TEST(conf_environment_and_flags)
{
    autoconf struct conf *conf = conf_new();
    struct err err;
    char *env[] = { (char *)"ATOLL_LISTEN=127.0.0.1:1, [::1]:2",
                    (char *)"ATOLL_LOG_LEVEL=", (char *)"ATOLL_ADDR=http://x",
                    (char *)"ATOLL_RATE_BURST=7", NULL };
    char *args[] = { (char *)"--log-level",
                     (char *)"warn",
                     (char *)"--log-level=error",
                     (char *)"--host=a,b",
                     (char *)"--host",
                     (char *)"c",
                     (char *)"--rate_burst",
                     (char *)"8",
                     (char *)"--state",
                     (char *)"rel/dir",
                     (char *)"--config",
                     (char *)"/c",
                     NULL };

    CHECK_OK(conf_env(conf, env, &err), &err);
    CHECK_STR(conf_list(conf, "listen")[0], "127.0.0.1:1");
    CHECK_STR(conf_list(conf, "listen")[1], "[::1]:2");
    CHECK(!conf_list(conf, "listen")[2]);
    CHECK_INT(conf_source(conf, "log_level", NULL), CONF_DEFAULT);
    CHECK_INT(conf_int(conf, "rate_burst"), 7);

    CHECK_OK(conf_args(conf, args, &err), &err);
    CHECK_STR(conf_text(conf, "log_level"), "error"); /* the last flag */
    CHECK_STR(conf_text(conf, "host"), "a,b,c");      /* lists grow */
    CHECK_INT(conf_int(conf, "rate_burst"), 8);
    autofree char *cwd = get_current_dir_name();
    autofree char *want = xprintf("%s/rel/dir", cwd);
    CHECK_STR(conf_text(conf, "state"), want);
}

TEST(conf_flags_refused)
{
    static const char *const bad[][2] = {
        { "--lisen", "did you mean 'listen'?" }, { "--frob", "unknown setting 'frob'" },
        { "stray", "unexpected argument" },      { "--", "unexpected argument" },
        { "--state", "--state needs a value" },  { "--readers=0", "--readers: readers is 0" },
        { "--no-listen", "unknown setting" },
    };

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        autoconf struct conf *conf = conf_new();
        char *args[] = { (char *)bad[i][0], NULL };
        struct err err = { 0 };

        CHECK(conf_args(conf, args, &err) < 0);
        CHECK_HAS(err.msg, bad[i][1]);
    }
}

TEST(conf_file_form)
{
    autoconf struct conf *conf = conf_new();
    struct err err;
    const char *text = "# first\n\n  log_level=debug # said why\n\tstate = /a#b  \n"
                       "host = x\nhost = y , z\nlisten =\ndrain = 0s";

    CHECK_OK(conf_parse(conf, str_of(text), "f", &err), &err);
    CHECK_STR(conf_text(conf, "log_level"), "debug");
    CHECK_STR(conf_text(conf, "state"), "/a#b");
    CHECK_STR(conf_text(conf, "host"), "x,y,z");
    CHECK_STR(conf_text(conf, "listen"), ""); /* an empty list is a choice */
    CHECK_INT(conf_source(conf, "listen", NULL), CONF_FILE);
    CHECK_INT(conf_int(conf, "drain"), 0);
    const char *where;
    conf_source(conf, "log_level", &where);
    CHECK_STR(where, "f:3");
}

TEST(conf_file_refusals_name_the_line)
{
    CHECK_STR(fails("log_level = info\nlog_levle = info"),
              "f:2: unknown setting 'log_levle'; did you mean 'log_level'?");
    CHECK_STR(fails("\nlog_level = info\n\nlog_level = warn"),
              "f:4: log_level was already set at f:2");
    CHECK_STR(fails("log_level = loud"),
              "f:1: log_level is 'loud', not one of debug|info|warn|error");
    CHECK_STR(fails("nonsense"), "f:1: not of the form 'key = value'");
    CHECK_STR(fails("\n\nstate = a/b"), "f:3: state is 'a/b'; in the file a path begins with '/'");
    CHECK_STR(fails("config = /x"), "f:1: config cannot be set in the file itself");
    CHECK_STR(fails("state ="), "f:1: state is empty");
    CHECK_STR(fails("host = a,,b"), "f:1: host has an empty item");
    CHECK_STR(fails("head_timeout = 10"),
              "f:1: head_timeout is '10', not a time such as 250ms, 30s, 5m, 2h or 7d");
    CHECK_STR(fails("head_timeout = 99ms"), "f:1: head_timeout is 99ms, outside 100ms..5m");
    CHECK_STR(fails("readers = two"), "f:1: readers is 'two', not a whole number");
    CHECK_STR(fails("readers = 33"), "f:1: readers is 33, outside 1..32");
    CHECK_STR(fails("log_level = info\r\n"), "f:1: log_level holds the control byte 0x0d");
    CHECK_STR(fails("host = \x1b[0m"), "f:1: host holds the control byte 0x1b");
    CHECK_STR(fails("host = \xff"), "f:1: host is not UTF-8");
    CHECK_STR(fails("log-level = info"),
              "f:1: unknown setting 'log-level'; did you mean 'log_level'?");
    CHECK_STR(fails("= x"), "f:1: unknown setting ''");
}

TEST(conf_hidden_nul_is_refused)
{
    autoconf struct conf *conf = conf_new();
    struct err err = { 0 };

    CHECK(conf_parse(conf, STR("state = /a\0b"), "f", &err) < 0);
    CHECK_STR(err.msg, "f:1: holds a NUL byte");
}

TEST(conf_ranges_include_their_ends)
{
    autoconf struct conf *conf = conf_new();
    struct err err;

    CHECK_OK(conf_set(conf, CONF_FLAG, "readers", "1", NULL, &err), &err);
    CHECK_OK(conf_set(conf, CONF_FLAG, "readers", "32", NULL, &err), &err);
    CHECK_OK(conf_set(conf, CONF_FLAG, "head_timeout", "100ms", NULL, &err), &err);
    CHECK_OK(conf_set(conf, CONF_FLAG, "head_timeout", "5m", NULL, &err), &err);
    CHECK_INT(conf_int(conf, "head_timeout"), 300000);
    CHECK(conf_set(conf, CONF_FLAG, "readers", "-1", NULL, &err) < 0);
    CHECK_STR(err.field, "readers");
    CHECK_INT(conf_int(conf, "readers"), 32); /* a refused value changes nothing */
}

TEST(conf_limits)
{
    autoconf struct conf *conf = conf_new();
    autobuf struct buf text = { 0 };
    struct err err = { 0 };

    buf_puts(&text, "/");
    while (text.len < CONF_VALUE_MAX)
        buf_putc(&text, 'a');
    CHECK_OK(conf_set(conf, CONF_FLAG, "state", buf_cstr(&text), NULL, &err), &err);
    buf_putc(&text, 'a');
    CHECK(conf_set(conf, CONF_FLAG, "state", buf_cstr(&text), NULL, &err) < 0);
    CHECK_INT(err.code, ERR_LIMIT);

    for (int i = 0; i < CONF_LIST_MAX; i++)
        CHECK_OK(conf_set(conf, CONF_FLAG, "host", "h", NULL, &err), &err);
    CHECK(conf_set(conf, CONF_FLAG, "host", "h", NULL, &err) < 0);
    CHECK_INT(err.code, ERR_LIMIT);
    CHECK(conf_list(conf, "host")[CONF_LIST_MAX - 1] && !conf_list(conf, "host")[CONF_LIST_MAX]);

    buf_clear(&text);
    while (text.len < CONF_FILE_MAX)
        buf_putc(&text, '#');
    CHECK_OK(conf_parse(conf, buf_view(&text), "f", &err), &err);
    buf_putc(&text, '#');
    CHECK(conf_parse(conf, buf_view(&text), "f", &err) < 0);
    CHECK_INT(err.code, ERR_LIMIT);
}

static char *put_file(const char *dir, const char *name, const char *text, mode_t mode)
{
    char *path = xprintf("%s/%s", dir, name);
    FILE *file = fopen(path, "we");

    CHECK(file && fputs(text, file) >= 0 && fclose(file) == 0 && chmod(path, mode) == 0);
    return path;
}

TEST(conf_file_on_disk)
{
    const char *dir = test_dir();
    autofree char *good = put_file(dir, "good", "readers = 5\n", 0644);
    autofree char *loose = put_file(dir, "loose", "readers = 5\n", 0666);
    autofree char *fifo = xprintf("%s/fifo", dir), *gone = xprintf("%s/gone", dir);
    autoconf struct conf *conf = conf_new();
    struct err err = { 0 };
    const char *where;

    CHECK(mkfifo(fifo, 0600) == 0);
    CHECK(conf_file(conf, loose, true, &err) < 0);
    CHECK_HAS(err.msg, "writable by everybody");
    CHECK(conf_file(conf, fifo, true, &err) < 0);
    CHECK_HAS(err.msg, "not a regular file");
    CHECK(conf_file(conf, gone, true, &err) < 0);
    CHECK_HAS(err.msg, gone);
    CHECK_OK(conf_file(conf, gone, false, &err), &err);
    CHECK_OK(conf_file(conf, good, true, &err), &err);
    CHECK_INT(conf_int(conf, "readers"), 5);
    conf_source(conf, "readers", &where);
    autofree char *want = xprintf("%s:1", good);
    CHECK_STR(where, want);
}

TEST(conf_load_reads_the_named_file)
{
    const char *dir = test_dir();
    autofree char *path = put_file(dir, "c", "readers = 6\n", 0600), *gone = xprintf("%s/no", dir);
    autoconf struct conf *conf = conf_new(), *other = conf_new();
    struct err err = { 0 };

    CHECK_OK(conf_set(conf, CONF_ENV, "config", path, NULL, &err), &err);
    CHECK_OK(conf_load(conf, &err), &err);
    CHECK_INT(conf_int(conf, "readers"), 6);
    CHECK(!conf_same(conf, other, "readers") && conf_same(conf, other, "listen"));
    CHECK_OK(conf_set(other, CONF_ENV, "config", gone, NULL, &err), &err);
    CHECK(conf_load(other, &err) < 0);
}

static int check_of(const char *text, struct err *err)
{
    autoconf struct conf *conf = conf_new();

    CHECK_OK(conf_parse(conf, str_of(text), "f", err), err);
    return conf_check(conf, err);
}

TEST(conf_check_keeps_open_on_loopback)
{
    struct err err = { 0 };

    CHECK_OK(check_of("auth=open", &err), &err);
    CHECK_OK(check_of("auth=open\nlisten=127.9.9.9:1,[::1]:1,localhost:2,unix:/x", &err), &err);
    CHECK_OK(check_of("insecure=true\nlisten=0.0.0.0:1,[::]:1,10.0.0.1:1", &err), &err);
    static const char *const wide[] = { "0.0.0.0:1", "[::]:1", "10.0.0.1:1", "128.0.0.1:1",
                                        "[::ffff:10.0.0.1]:1" };
    for (size_t i = 0; i < ARRAY_LEN(wide); i++) {
        autofree char *text = xprintf("auth=open\nlisten=127.0.0.1:1\nlisten=%s", wide[i]);

        CHECK(check_of(text, &err) < 0);
        CHECK_HAS(err.msg, "auth = open is refused");
        CHECK_STR(err.field, "auth");
    }
}

TEST(conf_check_keeps_plain_text_on_loopback)
{
    static const char *const wide[] = { "0.0.0.0:1", "[::]:1", "10.0.0.1:1", "128.0.0.1:1",
                                        "[::ffff:10.0.0.1]:1" };
    struct err err = { 0 };

    CHECK_OK(check_of("listen=127.9.9.9:1,[::1]:1,localhost:2,unix:/x", &err), &err);
    CHECK_OK(check_of("tls_cert=/c\ntls_key=/k\nlisten=https://0.0.0.0:1", &err), &err);
    for (size_t i = 0; i < ARRAY_LEN(wide); i++) {
        autofree char *text = xprintf("listen=127.0.0.1:1\nlisten=%s", wide[i]);
        autofree char *both = xprintf("insecure=true\n%s", text);

        CHECK(check_of(text, &err) < 0);
        CHECK_HAS(err.msg, "without TLS");
        CHECK_STR(err.field, "listen");
        CHECK_OK(check_of(both, &err), &err);
    }
}

TEST(conf_check_wants_tls_whole)
{
    struct err err = { 0 };

    CHECK_OK(check_of("tls_cert=/c\ntls_key=/k\nlisten=https://127.0.0.1:1", &err), &err);
    CHECK(check_of("tls_cert=/c", &err) < 0);
    CHECK_STR(err.field, "tls_key");
    CHECK(check_of("tls_key=/k", &err) < 0);
    CHECK_STR(err.field, "tls_cert");
    CHECK(check_of("listen=https://127.0.0.1:1", &err) < 0);
    CHECK_HAS(err.msg, "needs tls_cert");
}

TEST(conf_listeners)
{
    struct conf_listen at;
    struct err err = { 0 };

    CHECK_OK(conf_listen_parse("https://[0:0::1]:443", &at, &err), &err);
    CHECK(at.tls && at.loopback && !at.is_unix && at.port == 443);
    CHECK_STR(at.host, "::1");
    CHECK_OK(conf_listen_parse("http://localhost:0", &at, &err), &err);
    CHECK(!at.tls && at.loopback && at.port == 0);
    CHECK_STR(at.host, "127.0.0.1");
    CHECK_OK(conf_listen_parse("unix:/run/x", &at, &err), &err);
    CHECK(at.is_unix && at.loopback);
    CHECK_STR(at.path, "/run/x");
    static const char *const bad[] = {
        "",       "127.0.0.1", "127.0.0.1:65536", "example.com:1", "::1:80",  "[1.2.3.4]:1",
        "unix:x", "unix:",     "ftp://1.1.1.1:1", "127.0.0.1:+1",  "127.1:80"
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        CHECK(conf_listen_parse(bad[i], &at, &err) < 0);

    CHECK_OK(conf_listen_parse(":80", &at, &err), &err);
    CHECK_STR(at.host, "127.0.0.1");

    char path[CONF_LISTEN_PATH_MAX + 8] = "unix:/";
    memset(path + 6, 'p', CONF_LISTEN_PATH_MAX - 1);
    CHECK_OK(conf_listen_parse(path, &at, &err), &err);
    CHECK_INT(strlen(at.path), CONF_LISTEN_PATH_MAX);
    path[strlen(path)] = 'p';
    CHECK(conf_listen_parse(path, &at, &err) < 0);
    CHECK(check_of("listen=127.0.0.1:1,localhost:1", &err) < 0);
    CHECK_HAS(err.msg, "listed twice");
    CHECK_OK(check_of("listen=127.0.0.1:0,127.0.0.1:0", &err), &err);
}

TEST(conf_resolvers)
{
    struct err err = { 0 };
    struct host host;
    uint16_t port;

    CHECK_OK(conf_resolver_parse("10.1.2.3", &host, &port, &err), &err);
    CHECK_INT(port, 53);
    CHECK_INT(host.addr.bytes[3], 3);
    CHECK_OK(conf_resolver_parse("[2001:db8::1]:5353", &host, &port, &err), &err);
    CHECK_INT(port, 5353);
    CHECK_INT(host.addr.family, 6);
    static const char *const bad[] = { "ns.example", "localhost:53", "10.1:53",      "10.0.0.1:",
                                       "10.0.0.1:0", "::1",          "1.1.1.1:65536" };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        autofree char *text = xprintf("egress_resolver=%s", bad[i]);

        CHECK(check_of(text, &err) < 0);
        CHECK_STR(err.field, "egress_resolver");
    }
    CHECK_OK(check_of("egress_resolver=1.1.1.1,1.1.1.2:54,[::1]", &err), &err);
    CHECK(check_of("egress_resolver=1.1.1.1,1.1.1.2,1.1.1.3,1.1.1.4", &err) < 0);
    CHECK_HAS(err.msg, "at most 3");
}

TEST(conf_names)
{
    autobuf struct buf out = { 0 };

    CHECK(conf_find(STR("log-level")) == conf_find(STR("log_level")));
    CHECK(!conf_find(STR("log_leve")) && !conf_find(STR("")) && !conf_find(STR("Listen")));
    conf_flag_name(conf_find(STR("log_level")), &out);
    buf_putc(&out, ' ');
    conf_env_name(conf_find(STR("log_level")), &out);
    CHECK_STR(buf_cstr(&out), "--log-level ATOLL_LOG_LEVEL");
}

TEST(conf_state_default_follows_the_user)
{
    autofree char *dir = NULL;

    setenv("XDG_STATE_HOME", "/xs", 1);
    dir = conf_state_default();
    CHECK_STR(dir, geteuid() == 0 ? "/var/lib/atoll" : "/xs/atoll");
    unsetenv("XDG_STATE_HOME");
}
