/* log: lines are whole, bounded, valid, and say what was meant, whatever the values are. */
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/show.h"
#include "base/test.h"

/* Standard error goes to a file in memory between these two. */
static int kept_fd = -1, file_fd = -1;

static void capture(void)
{
    fflush(stderr);
    file_fd = memfd_create("log", MFD_CLOEXEC);
    kept_fd = fcntl(2, F_DUPFD_CLOEXEC, 3);
    CHECK(file_fd >= 0 && kept_fd >= 0 && dup2(file_fd, 2) == 2);
    CHECK(fcntl(2, F_SETFL, O_APPEND) == 0);
}

static char *captured(size_t *len)
{
    struct buf all = { 0 };

    dup2(kept_fd, 2);
    close(kept_fd);
    lseek(file_fd, 0, SEEK_SET);
    for (;;) {
        char *room = buf_reserve(&all, 65536);
        ssize_t got = read(file_fd, room, 65536);

        if (got <= 0)
            break;
        all.len += (size_t)got;
    }
    close(file_fd);
    return buf_take(&all, len);
}

/* What the line says after the time of day, or with the time in front in JSON. */
static void check_line(const char *want)
{
    autofree char *line = captured(NULL);

    CHECK(strlen(line) > 14 && line[12] == 'Z');
    CHECK_STR(line + 14, want);
}

static char tapped_text[128];
static enum log_level tapped_level;

static void hear(enum log_level level, int64_t at_ms, const char *role, struct str text)
{
    CHECK(at_ms > 0);
    CHECK_STR(role, "api");
    tapped_level = level;
    snprintf(tapped_text, sizeof(tapped_text), "%.*s", STR_FMT(text));
}

TEST(a_tap_hears_what_is_logged_and_nothing_else)
{
    log_setup(LOG_INFO, LOG_JSON, "api");
    capture();
    log_tap(hear);
    log_warn("denied", kv_str("host", "evil\n"), kv_int("count", 3));
    log_debug("too little");
    log_tap(NULL);
    log_error("not heard");
    autofree char *all = captured(NULL);
    CHECK(strstr(all, "not heard") && !strstr(all, "too little"));
    CHECK_INT(tapped_level, LOG_WARN);
    CHECK_STR(tapped_text, "denied host=\"evil\\n\" count=3");
}

TEST(text_lines_read_well)
{
    log_setup(LOG_INFO, LOG_TEXT, "api");
    capture();
    log_warn("egress denied, answered 403", kv_str("host", "evil\n"), kv_str("rule", "default"),
             kv_int("n", -5), kv_str("empty", ""), kv_str("none", NULL), kv_str("eq", "a=b"),
             kv_str("q", "say \"\\\""));
    check_line(
        "warn  api: egress denied, answered 403 host=\"evil\\n\" rule=default n=-5 empty=\"\" "
        "none=\"\" eq=\"a=b\" q=\"say \\\"\\\\\\\"\"\n");
    capture();
    log_error("odd", kv_str("name", "caf\xc3\xa9"), kv_str("esc", "\x1b[31m"),
              kv_str("c1", "\xc2\x9b"), kv_str("bidi", "\xe2\x80\xae"), kv_str("bad", "\xff"));
    check_line(
        "error api: odd name=\"caf\xc3\xa9\" esc=\"\\x1b[31m\" c1=\"\\u{9b}\" bidi=\"\\u{202e}\" "
        "bad=\"\\xff\"\n");
}

TEST(the_level_decides)
{
    log_setup(LOG_WARN, LOG_TEXT, "api");
    CHECK(!log_wants(LOG_INFO) && log_wants(LOG_WARN) && log_wants(LOG_ERROR));
    capture();
    log_info("no");
    log_debug("no", kv_int("a", 1));
    log_warn("yes");
    check_line("warn  api: yes\n");
    log_setup(LOG_DEBUG, LOG_TEXT, "api");
    capture();
    log_debug("now");
    check_line("debug api: now\n");
}

TEST(logging_leaves_errno_alone)
{
    log_setup(LOG_INFO, LOG_TEXT, "api");
    capture();
    close(2);
    errno = EXDEV;
    log_error("nowhere to go");
    CHECK_INT(errno, EXDEV);
    dup2(file_fd, 2);
    autofree char *nothing = captured(NULL);
    CHECK_STR(nothing, "");
}

static struct json *parse_line(struct arena *arena, struct str line)
{
    struct json *json = NULL;
    struct err err = { 0 };

    if (json_parse(arena, line, &json, &err) < 0)
        test_fail(__FILE__, __LINE__, "%s: %.*s", err.msg, STR_FMT(line));
    return json;
}

TEST(json_lines_are_json_whatever_the_values_are)
{
    log_setup(LOG_INFO, LOG_JSON, "api");
    for (int round = 0; round < 1000; round++) {
        autoarena struct arena arena = { 0 };
        char bytes[40];
        size_t len = test_rand(sizeof(bytes));
        bool visible = true;

        for (size_t i = 0; i < len; i++)
            bytes[i] =
                (char)(1 + (test_rand(2) ? test_rand(255)
                                         : (uint32_t)("\xc2\xe1\xf3\x9f"[test_rand(4)] & 0xff)));
        struct str value = { bytes, len };
        capture();
        log_info("said", kv_slice("value", value), kv_int("n", INT64_MIN));
        size_t size;
        autofree char *line = captured(&size);
        CHECK(size && line[size - 1] == '\n' && !memchr(line, '\n', size - 1));
        struct json *json = parse_line(&arena, (struct str){ line, size });
        CHECK(str_is(json_text(json, "msg"), "said") && str_is(json_text(json, "level"), "info"));
        CHECK(str_is(json_text(json, "role"), "api") && json_text(json, "time").n == 24);
        CHECK(json_num(json, "n", 0) == INT64_MIN);
        /* The value itself, wherever it was UTF-8; and on the wire nothing hidden. */
        if (str_utf8(value))
            CHECK(str_eq(json_text(json, "value"), value));
        for (size_t i = 0; i + 1 < size;) {
            uint32_t code;
            size_t step = str_utf8_at(line + i, size - i, &code);

            visible = visible && step && !show_hidden(code);
            i += step ? step : 1;
        }
        CHECK(visible);
    }
}

TEST(json_keeps_what_it_escapes)
{
    autoarena struct arena arena = { 0 };
    size_t size;

    log_setup(LOG_INFO, LOG_JSON, "api");
    capture();
    log_info("x", kv_str("a", "\xc3\xa9\xe2\x80\xae\xf3\xa0\x81\xa1\xc2\x9b"), kv_str("b", "\xff"),
             kv_slice("c", (struct str){ "n\0l", 3 }));
    autofree char *line = captured(&size);
    CHECK(strstr(
        line,
        "\"a\":\"\xc3\xa9\\u202e\\udb40\\udc61\\u009b\",\"b\":\"\\ufffd\",\"c\":\"n\\u0000l\"}"));
    *strstr(line, ",\"c\"") = '}'; /* our reader takes no NUL */
    struct json *json =
        parse_line(&arena, (struct str){ line, (size_t)(strchr(line, '}') - line) + 1 });
    CHECK(str_is(json_text(json, "a"), "\xc3\xa9\xe2\x80\xae\xf3\xa0\x81\xa1\xc2\x9b"));
}

TEST(a_value_is_cut_at_its_limit)
{
    char value[LOG_VALUE_MAX + 2];

    memset(value, 'v', sizeof(value));
    log_setup(LOG_INFO, LOG_JSON, "api");
    for (size_t len = LOG_VALUE_MAX; len <= LOG_VALUE_MAX + 1; len++) {
        autoarena struct arena arena = { 0 };
        size_t size;

        capture();
        log_info("x", kv_slice("v", (struct str){ value, len }));
        autofree char *line = captured(&size);
        struct str got = json_text(parse_line(&arena, (struct str){ line, size }), "v");
        CHECK_INT(got.n, len == LOG_VALUE_MAX ? LOG_VALUE_MAX : LOG_VALUE_MAX + 3);
        CHECK((memcmp(got.p + got.n - 3, "…", 3) == 0) == (len > LOG_VALUE_MAX));
    }
    /* A sequence that straddles the limit is left out, not torn. */
    autoarena struct arena arena = { 0 };
    size_t size;
    value[LOG_VALUE_MAX - 1] = '\xe2'; /* the euro sign */
    value[LOG_VALUE_MAX] = '\x82';
    value[LOG_VALUE_MAX + 1] = '\xac';
    capture();
    log_info("x", kv_slice("v", (struct str){ value, LOG_VALUE_MAX + 2 }));
    autofree char *line = captured(&size);
    struct str got = json_text(parse_line(&arena, (struct str){ line, size }), "v");
    CHECK_INT(got.n, LOG_VALUE_MAX - 1 + 3);
}

TEST(a_line_is_bounded_and_still_whole)
{
    char value[LOG_VALUE_MAX];

    memset(value, 1, sizeof(value)); /* each byte becomes \u0001 */
    for (int as_json = 0; as_json < 2; as_json++) {
        log_setup(LOG_INFO, as_json ? LOG_JSON : LOG_TEXT, "api");
        /* From fits easily to does not, past every possible remainder. */
        for (size_t len = 400; len < sizeof(value); len++) {
            autoarena struct arena arena = { 0 };
            struct str text = { value, len };
            size_t size;

            capture();
            log_info("x", kv_int("first", 1), kv_slice("a", text), kv_slice("b", text),
                     kv_int("last", 2));
            autofree char *line = captured(&size);
            CHECK(size <= LOG_LINE_MAX && line[size - 1] == '\n');
            CHECK(!memchr(line, '\n', size - 1) && strstr(line, "first"));
            bool whole = strstr(line, "last") != NULL, told = strstr(line, "cut") != NULL;
            CHECK(whole != told);
            if (as_json)
                CHECK(json_true(parse_line(&arena, (struct str){ line, size }), "cut") == told);
        }
    }
}

#define THREADS 4
#define LINES 500

static void *log_much(void *arg)
{
    char value[LOG_VALUE_MAX];

    memset(value, *(const char *)arg, sizeof(value));
    for (int i = 0; i < LINES; i++) {
        struct str text = { value, 1 + (size_t)i * 7 % sizeof(value) };

        log_info("thread", kv_slice("v", text), kv_slice("w", text), kv_int("i", i));
    }
    return NULL;
}

static void start_threads(pthread_t threads[THREADS])
{
    static const char names[] = "abcd";

    for (size_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, log_much, (void *)&names[i]) == 0);
}

static void join_threads(const pthread_t threads[THREADS])
{
    for (size_t i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
}

static void check_lines(struct str all)
{
    unsigned lines = 0;

    while (all.n) {
        autoarena struct arena arena = { 0 };
        struct json *json = parse_line(&arena, str_cut(&all, '\n'));
        struct str v = json_text(json, "v");

        CHECK(v.n && str_eq(v, json_text(json, "w")));
        for (size_t i = 0; i < v.n; i++)
            CHECK(v.p[i] == v.p[0]);
        lines++;
    }
    CHECK_INT(lines, THREADS * LINES);
}

TEST(lines_of_threads_do_not_mix_in_a_file)
{
    pthread_t threads[THREADS];
    size_t size;

    log_setup(LOG_INFO, LOG_JSON, "api");
    capture();
    start_threads(threads);
    join_threads(threads);
    autofree char *all = captured(&size);
    check_lines((struct str){ all, size });
}

TEST(lines_of_threads_do_not_mix_in_a_pipe)
{
    autobuf struct buf all = { 0 };
    pthread_t threads[THREADS];
    int ends[2];

    log_setup(LOG_INFO, LOG_JSON, "api");
    CHECK(pipe2(ends, O_CLOEXEC) == 0);
    capture();
    dup2(ends[1], 2);
    close(ends[1]);
    start_threads(threads);
    /* Read while they write: the pipe is full most of the time, where long writes would tear. */
    for (unsigned lines = 0; lines < THREADS * LINES;) {
        char *room = buf_reserve(&all, 3000);
        ssize_t got = read(ends[0], room, 3000);

        if (got <= 0)
            break;
        for (ssize_t i = 0; i < got; i++)
            lines += room[i] == '\n';
        all.len += (size_t)got;
    }
    join_threads(threads);
    autofree char *nothing = captured(NULL);
    close(ends[0]);
    check_lines(buf_view(&all));
    log_setup(LOG_INFO, LOG_TEXT, "atoll");
}
