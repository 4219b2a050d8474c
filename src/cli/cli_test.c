/*
 * The command line as its user sees it: arguments in; output, exit status and requests out. The
 * server is a thread on a Unix socket that gives prepared answers and notes what it was asked.
 */
#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "base/test.h"
#include "conf/conf.h"
#include "net/sock.h"

/* ---- a server with prepared answers ---- */

#define FAKE_MAX 16

struct fake {
    const char *answers[FAKE_MAX + 1]; /* one connection each; "" stays silent */
    char *asked[FAKE_MAX];             /* owned */
    size_t count;
    int listener;
    const char *state;
    pthread_t thread;
};

static char *hear(int fd)
{
    autobuf struct buf heard = { .max = 65536 };

    for (;;) {
        char *room = buf_reserve(&heard, 4096);
        ssize_t got = room ? recv(fd, room, 4096, 0) : 0;

        if (got <= 0)
            break;
        heard.len += (size_t)got;
        const char *end = strstr(buf_cstr(&heard), "\r\n\r\n");
        const char *length = strstr(buf_cstr(&heard), "Content-Length: ");
        if (end && (!length ||
                    heard.len >= (size_t)(end - heard.data) + 4 + strtoul(length + 16, NULL, 10)))
            break;
    }
    return buf_take(&heard, NULL);
}

static void *fake_run(void *arg)
{
    struct fake *fake = arg;

    while (fake->answers[fake->count]) {
        autoclose int fd = accept4(fake->listener, NULL, NULL, SOCK_CLOEXEC);
        const char *answer = fake->answers[fake->count];
        char rest[256];

        if (fd < 0)
            return NULL;
        fake->asked[fake->count++] = hear(fd);
        send(fd, answer, strlen(answer), MSG_NOSIGNAL);
        if (!answer[0])
            while (recv(fd, rest, sizeof(rest), 0) > 0)
                ;
    }
    return NULL;
}

static void fake_begin(struct fake *fake)
{
    autofree char *address = NULL;
    char actual[SOCK_TEXT_SIZE];
    struct err err = { 0 };

    fake->state = test_dir();
    address = xprintf("unix:%s/atoll.sock", fake->state);
    fake->listener = sock_listen(address, 8, actual, &err);
    CHECK_OK(fake->listener, &err);
    fcntl(fake->listener, F_SETFL, 0); /* the thread may wait */
    CHECK(pthread_create(&fake->thread, NULL, fake_run, fake) == 0);
    setenv("ATOLL_STATE", fake->state, 1);
    setenv("HOME", fake->state, 1);
    unsetenv("XDG_CONFIG_HOME");
    unsetenv("ATOLL_ADDR");
    unsetenv("ATOLL_TOKEN");
    unsetenv("ATOLL_CONTEXT");
}

static void fake_end(struct fake *fake)
{
    shutdown(fake->listener, SHUT_RDWR);
    pthread_join(fake->thread, NULL);
    close(fake->listener);
    for (size_t i = 0; i < fake->count; i++)
        free(fake->asked[i]);
    unsetenv("ATOLL_STATE");
}
#define autofake auto_with(fake_end)

/* ---- one run of the program ---- */

struct ran {
    int rc;
    char *out, *err; /* owned */
};

static void ran_free(struct ran *ran)
{
    free(ran->out);
    free(ran->err);
}
#define autoran auto_with(ran_free)

static char *slurp(int fd)
{
    autobuf struct buf text = { 0 };
    ssize_t got;

    lseek(fd, 0, SEEK_SET);
    while ((got = read(fd, buf_reserve(&text, 4096), 4096)) > 0)
        text.len += (size_t)got;
    close(fd);
    return buf_take(&text, NULL);
}

/* Arguments separated by blanks; "%20" stands for one inside. */
static struct ran run(const char *line)
{
    char *argv[32] = { xstrdup("atoll") };
    struct str rest = str_of(line);
    int argc = 1;

    while (rest.n) {
        struct str word = str_cut(&rest, ' ');
        char *copy = argv[argc++] = xmemdup0(word.p, word.n), *blank;

        while ((blank = strstr(copy, "%20"))) {
            *blank = ' ';
            memmove(blank + 1, blank + 3, strlen(blank + 3) + 1);
        }
    }
    int out = memfd_create("out", MFD_CLOEXEC), err = memfd_create("err", MFD_CLOEXEC);
    struct ran ran = { .rc = cli_run(argc, argv, out, err) };
    ran.out = slurp(out);
    ran.err = slurp(err);
    for (int i = 0; i < argc; i++)
        free(argv[i]);
    return ran;
}

#define CHECK_HAS(text, part)                                                                      \
    do {                                                                                           \
        const char *text_ = (text);                                                                \
        if (!strstr(text_, part))                                                                  \
            test_fail(__FILE__, __LINE__, "\"%s\" has no \"%s\"", text_, part);                    \
    } while (0)

#define OK "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
/* An answer that ends with its connection. */
#define ANSWER(status, body) "HTTP/1.1 " status " x\r\nConnection: close\r\n\r\n" body

/* ---- arguments ---- */

TEST(usage_mistakes_end_with_64)
{
    static const char *const bad[][2] = {
        { "", "Usage: atoll COMMAND" },
        { "token", "Usage: atoll token COMMAND" },
        { "frobnicate", "there is no command 'frobnicate'" },
        { "tokn list", "did you mean `atoll token create`?" },
        { "token lst", "did you mean `atoll token list`?" },
        { "helth", "did you mean `atoll health`?" },
        { "health extra", "unexpected argument 'extra'" },
        { "health --jsn", "did you mean --json?" },
        { "health -j", "unknown flag -j" },
        { "exec box ls -l", "unknown flag -l" },
        { "exec -w", "-w needs a value" },
        { "health --timeout", "--timeout needs a value" },
        { "health --timeout never", "not a time such as" },
        { "health --timeout 0s", "not a time such as" },
        { "health --json=1", "--json takes no value" },
        { "health --help=1", "--help takes no value" },
        { "health --addr ftp://x", "is not http://HOST:PORT" },
        { "token create", "`atoll token create` needs NAME" },
        { "token create x", "--role is missing" },
        { "token create x --role viewer --ttl 5", "--ttl is '5'" },
        { "event tail --since -1", "not a number from 0 on" },
        { "event tail --since x", "not a number from 0 on" },
        { "audit tail --limit 1001", "at most 1000" },
        { "audit verify --head xyz", "not 64 hex digits" },
        { "audit verify --head 0:aa", "not HASH or ROW:HASH" },
        { "completion csh", "not one of bash, zsh, fish" },
        { "context set lab", "a new context needs --addr" },
        { "context set a/b --addr http://x", "is no context name" },
        { "context set lab --addr lab", "is not http://HOST:PORT" },
        { "config show --frob 1", "unknown setting" },
        { "config show --readers 99", "outside 1..32" },
        { "help nonsense", "there is no command 'nonsense'" },
        { "docs nonsense", "there is no page" },
    };

    setenv("HOME", test_dir(), 1);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        autoran struct ran ran = run(bad[i][0]);

        if (ran.rc != EXIT_USAGE || ran.out[0])
            test_fail(__FILE__, __LINE__, "%s: %d, %s", bad[i][0], ran.rc, ran.out);
        CHECK_HAS(ran.err, bad[i][1]);
    }
}

TEST(some_flags_have_a_letter)
{
    char *argv[] = { "atoll", "exec", "-it", "-eA=1", "-e", "B=2", "box",
                     "-w",    "/tmp", "--",  "ls",    "-l", NULL };
    struct cli cli = { 0 };
    struct err err = { 0 };
    size_t at = 0;

    CHECK_OK(cli_parse(&cli, (int)ARRAY_LEN(argv) - 1, argv, &err), &err);
    CHECK(cli_has(&cli, "interactive") && cli_has(&cli, "tty") && !cli_has(&cli, "user"));
    CHECK_STR(cli_next(&cli, "env", &at), "A=1");
    CHECK_STR(cli_next(&cli, "env", &at), "B=2");
    CHECK_STR(cli_text(&cli, "cwd"), "/tmp");
    CHECK_INT((int)cli.arg_count, 3);
    CHECK_STR(cli.args[2], "-l");
    arena_free(&cli.arena);

    autoran struct ran ran = run("exec box ls -l");
    CHECK_HAS(ran.err, "put -- before the command");
}

TEST(usage_as_json)
{
    autoran struct ran ran = run("--json tokn"), bare = run("--json");

    CHECK_INT(ran.rc, EXIT_USAGE);
    CHECK_STR(ran.err, "{\"error\":{\"code\":\"usage\",\"message\":\"there is no command 'tokn'\","
                       "\"field\":null,\"request_id\":null,"
                       "\"hint\":\"did you mean `atoll token create`?\"}}\n");
    CHECK_INT(bare.rc, EXIT_USAGE);
    CHECK_HAS(bare.err, "\"message\":\"a command is missing\"");
}

TEST(every_command_explains_itself)
{
    for (const struct command *const *at = commands; *at; at++) {
        autofree char *line = xprintf("%s --help", (*at)->name);
        autoran struct ran ran = run(line);

        CHECK_INT(ran.rc, EXIT_OK);
        CHECK_HAS(ran.out, (*at)->name);
        CHECK_INT(ran.err[0], 0);
        for (const struct cli_flag *flag = (*at)->flags; flag && flag->name; flag++) {
            autofree char *text = xprintf("--%s", flag->name);

            CHECK_HAS(ran.out, text);
        }
        for (const struct command *const *other = commands; *other != *at; other++)
            CHECK(strcmp((*other)->name, (*at)->name) != 0);
    }
}

TEST(other_names_are_the_same_commands)
{
    for (const struct alias *alias = aliases; alias->name; alias++) {
        const struct command *found = command_find(alias->name);

        CHECK(found && strcmp(found->name, alias->is) == 0);
        for (const struct command *const *at = commands; *at; at++)
            CHECK(strcmp((*at)->name, alias->name) != 0);
    }
    CHECK_STR(command_find("sandbox list")->name, "ls");
    CHECK_STR(command_find("volume get")->name, "volume show");
    CHECK_STR(command_find("volume delete")->name, "volume rm");
    CHECK_STR(command_find("token ls")->name, "token list");
    CHECK(!command_find("sandbox serve") && !command_find("get"));

    /* A word alone may be a command, and the beginning of others. */
    autoran struct ran status = run("health status --help"), dog = run("health watchdog --help");
    CHECK_HAS(status.out, "Usage: atoll health [");
    CHECK_HAS(dog.out, "Usage: atoll health watchdog");

    autoran struct ran group = run("sandbox --help"), one = run("sandbox delete --help"),
                       near = run("sandbox frob");
    CHECK_HAS(group.out, "The same as `atoll exec`.");
    CHECK_HAS(one.out, "Usage: atoll rm ID|NAME");
    CHECK_INT(near.rc, EXIT_USAGE);
}

TEST(help_in_all_its_forms)
{
    static const char *const lines[] = { "help", "--help", "-h" };
    autoran struct ran serve = run("serve --help"), group = run("token --help"),
                       other = run("help token create"), version = run("--version");

    for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
        autoran struct ran ran = run(lines[i]);

        CHECK_INT(ran.rc, EXIT_OK);
        CHECK_HAS(ran.out, "  token create NAME ");
        CHECK(!strstr(ran.out, "docs PAGE")); /* hidden */
    }
    CHECK_HAS(serve.out, "--listen ADDR");
    CHECK_HAS(serve.out, "Default: 127.0.0.1:8080.");
    CHECK_HAS(group.out, "token revoke");
    CHECK_HAS(other.out, "Usage: atoll token create NAME");
    CHECK_STR(version.out, "atoll " ATOLL_VERSION "\n");
}

TEST(flags_stand_anywhere_and_the_last_wins)
{
    autofake struct fake fake = { .answers = { OK
                                               "Content-Length: 15\r\n\r\n{\"status\":\"ok\"}" } };

    fake_begin(&fake);
    autoran struct ran ran = run("--timeout 1h health --timeout=2s --json");
    CHECK_INT(ran.rc, EXIT_ERROR); /* not "ready" */
    CHECK_STR(ran.out, "{\"status\":\"ok\"}\n");
}

TEST(arity_is_read_from_the_words)
{
    static const struct {
        const char *args;
        size_t least, most;
    } cases[] = { { NULL, 0, 0 },
                  { "NAME", 1, 1 },
                  { "NAME [OTHER]", 1, 2 },
                  { "[COMMAND…]", 0, CLI_ARGS_MAX },
                  { "A B", 2, 2 } };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct command command = { .args = cases[i].args };
        size_t least, most;

        command_arity(&command, &least, &most);
        CHECK_INT(least, cases[i].least);
        CHECK_INT(most, cases[i].most);
    }
}

/* ---- exit status ---- */

TEST(errors_of_the_server_choose_the_exit_status)
{
    static const struct {
        const char *status, *code;
        int rc;
    } cases[] = {
        { "400 x", "invalid", 1 },     { "401 x", "unauthenticated", 4 },
        { "403 x", "forbidden", 4 },   { "404 x", "not_found", 2 },
        { "409 x", "conflict", 3 },    { "410 x", "gone", 2 },
        { "421 x", "misdirected", 4 }, { "429 x", "rate_limited", 1 },
        { "500 x", "internal", 1 },    { "503 x", "unavailable", 1 },
        { "504 x", "timeout", 5 },     { "409 x", "no such code as this", 3 },
        { "404 x", "ok", 2 },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        autofree char *body = xprintf("{\"error\":{\"code\":\"%s\",\"message\":\"it \\u001b is\","
                                      "\"field\":\"name\",\"request_id\":\"rq1\"}}",
                                      cases[i].code);
        autofree char *answer = xprintf("HTTP/1.1 %s\r\nContent-Length: %zu\r\n\r\n%s",
                                        cases[i].status, strlen(body), body);
        autofake struct fake fake = { .answers = { answer, answer } };

        fake_begin(&fake);
        autoran struct ran ran = run("token list"), json = run("token list --json");
        CHECK_INT(ran.rc, cases[i].rc);
        CHECK_HAS(ran.err, "atoll: token list: it \\x1b is (request rq1)\n");
        CHECK_INT(json.rc, cases[i].rc);
        CHECK_HAS(json.err, "\"field\":\"name\",\"request_id\":\"rq1\"");
        CHECK(!ran.out[0] && !json.out[0]);
    }
}

TEST(errors_without_json_are_still_errors)
{
    autofake struct fake fake = {
        .answers = { "HTTP/1.1 404 x\r\nContent-Length: 4\r\n\r\n<p>\x1b",
                     "HTTP/1.1 302 x\r\nLocation: http://evil\r\nContent-Length: 0\r\n\r\n",
                     OK "Content-Length: 4\r\n\r\n{\"a\"", OK "Content-Length: 9\r\n\r\n{}",
                     "nonsense\r\n\r\n" }
    };

    fake_begin(&fake);
    autoran struct ran missing = run("whoami"), moved = run("whoami"), broken = run("whoami"),
                       cut = run("whoami"), alien = run("whoami");
    CHECK_INT(missing.rc, 2);
    CHECK_HAS(missing.err, "the server answered with status 404");
    CHECK_INT(moved.rc, 1);
    CHECK_HAS(moved.err, "status 302");
    CHECK_INT(broken.rc, 1);
    CHECK_HAS(broken.err, "the server's answer");
    CHECK_INT(cut.rc, 1);
    CHECK_HAS(cut.err, "ends in the middle");
    CHECK_INT(alien.rc, 1);
    CHECK_INT(fake.count, 5); /* nothing was followed or tried again */
}

TEST(silence_ends_with_5)
{
    autofake struct fake fake = { .answers = { "" } };

    fake_begin(&fake);
    autoran struct ran ran = run("whoami --timeout 100ms");
    CHECK_INT(ran.rc, 5);
    CHECK_HAS(ran.err, "--timeout gives it longer than 100ms");
}

TEST(nobody_there_ends_with_1_and_a_hint)
{
    setenv("ATOLL_STATE", test_dir(), 1);
    autoran struct ran ran = run("health");
    CHECK_INT(ran.rc, 1);
    CHECK_HAS(ran.err, "nobody listens on unix:");
    CHECK_HAS(ran.err, "is the server running?");
    unsetenv("ATOLL_STATE");
}

TEST(output_that_cannot_be_written)
{
    char *argv[] = { (char *)"atoll", (char *)"version", NULL };
    int err = memfd_create("err", MFD_CLOEXEC), full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    int pair[2];

    signal(SIGPIPE, SIG_IGN);
    CHECK_INT(cli_run(2, argv, full, err), EXIT_ERROR);
    autofree char *said = slurp(err);
    CHECK_HAS(said, "No space left");
    close(full);

    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
    close(pair[1]);
    err = memfd_create("err", MFD_CLOEXEC);
    CHECK_INT(cli_run(2, argv, pair[0], err), EXIT_PIPE);
    autofree char *quiet = slurp(err);
    CHECK_STR(quiet, "");
    close(pair[0]);
}

/* ---- finding the server ---- */

static void put_token(const char *dir, const char *text)
{
    autofree char *path = xprintf("%s/admin.token", dir);
    autoclose int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

    CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
}

#define HEALTHY OK "Content-Length: 14\r\n\r\n{\"ready\":true}"

TEST(the_owners_token_goes_with_the_local_socket)
{
    autofake struct fake fake = { .answers = { HEALTHY, HEALTHY, HEALTHY } };

    fake_begin(&fake);
    put_token(fake.state, "atl_owner\n");
    autoran struct ran ran = run("health"), flag = run("health --token atl_other");
    setenv("ATOLL_TOKEN", "atl_env", 1);
    autoran struct ran env = run("health");
    CHECK(ran.rc == 0 && flag.rc == 0 && env.rc == 0);
    CHECK_HAS(fake.asked[0], "\r\nAuthorization: Bearer atl_owner\r\n");
    CHECK_HAS(fake.asked[0], "\r\nHost: localhost\r\n");
    CHECK_HAS(fake.asked[1], "\r\nAuthorization: Bearer atl_other\r\n");
    CHECK_HAS(fake.asked[2], "\r\nAuthorization: Bearer atl_env\r\n");
    unsetenv("ATOLL_TOKEN");
}

TEST(health_needs_no_token)
{
    autofake struct fake fake = {
        .answers = { ANSWER("401", "{}"), ANSWER("200", "{\"status\":\"ok\"}"), ANSWER("401", "{}"),
                     ANSWER("503", "{}"), ANSWER("401", "{}") }
    };

    fake_begin(&fake);
    autoran struct ran well = run("health"), ill = run("health"), wrong = run("health --token x");
    CHECK_INT(well.rc, 0);
    CHECK_HAS(fake.asked[1], "GET /readyz ");
    CHECK_HAS(well.out, "Status  ok\n");
    CHECK_INT(ill.rc, 1);
    CHECK_INT(wrong.rc, 4); /* a token that is given must be right */
    CHECK_INT(fake.count, 5);
}

/* The address may lead to anybody: the owner's token goes there only when its directory is named.
 */
TEST(the_owners_token_is_not_sent_to_any_address)
{
    autofake struct fake fake = { .answers = { HEALTHY, HEALTHY } };

    fake_begin(&fake);
    put_token(fake.state, "atl_owner\n");
    autofree char *plain = xprintf("health --addr unix:%s/atoll.sock", fake.state);
    unsetenv("ATOLL_STATE");
    autoran struct ran ran = run(plain);
    setenv("ATOLL_STATE", fake.state, 1);
    autoran struct ran named = run(plain);
    CHECK(ran.rc == 0 && named.rc == 0);
    CHECK(!strstr(fake.asked[0], "Authorization"));
    CHECK_HAS(fake.asked[1], "Bearer atl_owner");
}

/* Not even that of the directory that would be looked in without the address. */
TEST(the_token_of_the_usual_directory_is_not_sent_either)
{
    autofake struct fake fake = { .answers = { HEALTHY, HEALTHY } };
    uid_t self = geteuid();

    fake_begin(&fake);
    unsetenv("ATOLL_STATE");
    autofree char *usual = xprintf("%s/atoll", fake.state), *token = NULL;
    autofree char *socket = xprintf("%s/atoll.sock", fake.state), *line = NULL;
    CHECK(mkdir(usual, 0755) == 0);
    put_token(usual, "atl_owner\n");
    token = xprintf("%s/admin.token", usual);
    line = xprintf("health --addr unix:%s", socket);
    CHECK(chmod(token, 0644) == 0 && chmod(socket, 0666) == 0 && chmod(fake.state, 0755) == 0);
    setenv("XDG_STATE_HOME", fake.state, 1);
    CHECK(self != 0 || seteuid(65534) == 0); /* root has another usual directory */
    autofree char *found = conf_state_default();
    autoran struct ran ran = run(line);
    CHECK(self != 0 || seteuid(0) == 0);
    unsetenv("XDG_STATE_HOME");
    CHECK_STR(found, usual);
    CHECK_INT(ran.rc, 0);
    CHECK(!strstr(fake.asked[0], "Authorization"));
}

TEST(contexts_are_made_used_and_forgotten)
{
    autofake struct fake fake = { .answers = { HEALTHY, HEALTHY } };

    fake_begin(&fake);
    unsetenv("ATOLL_STATE");
    autofree char *set =
        xprintf("context set lab --addr unix:%s/atoll.sock --token atl_lab", fake.state);
    autoran struct ran made = run(set), second = run("context set far --addr http://127.0.0.1:1"),
                       list = run("context list"), json = run("context list --json"),
                       first = run("health"), chosen = run("health --context far --timeout 1s"),
                       use = run("context use far --json"), after = run("health --timeout 1s"),
                       back = run("health --context lab"), none = run("health --context nil"),
                       rm = run("context rm far"), twice = run("context rm far"),
                       unset = run("context use far");

    CHECK_INT(made.rc, 0);
    CHECK_STR(made.out, "context lab is set and current\n");
    CHECK_STR(second.out, "context far is set\n");
    CHECK_HAS(list.out, "CURRENT  NAME  ADDRESS");
    CHECK(!strstr(list.out, "atl_lab") && !strstr(json.out, "atl_lab")); /* never printed */
    CHECK_HAS(json.out, "\"name\":\"lab\",\"current\":true");
    CHECK_HAS(json.out, "\"has_token\":true");
    CHECK_INT(first.rc, 0);
    CHECK_HAS(fake.asked[0], "Bearer atl_lab");
    CHECK_INT(chosen.rc, 1);
    CHECK_HAS(use.out, "\"name\":\"far\",\"current\":true");
    CHECK_INT(after.rc, 1);
    CHECK_INT(back.rc, 0);
    CHECK_INT(none.rc, 2);
    CHECK_INT(rm.rc, 0);
    CHECK_INT(twice.rc, 2);
    CHECK_INT(unset.rc, 2);
    CHECK_INT(fake.count, 2);
}

TEST(a_named_state_directory_beats_the_current_context)
{
    autofake struct fake fake = { .answers = { HEALTHY, HEALTHY } };

    fake_begin(&fake);
    autoran struct ran set = run("context set far --addr http://127.0.0.1:1"), ran = run("health");
    CHECK_INT(ran.rc, 0);
    unsetenv("ATOLL_STATE");
    autofree char *line = xprintf("health --state %s", fake.state);
    autoran struct ran flag = run(line), current = run("health --timeout 1s");
    CHECK_INT(flag.rc, 0);
    CHECK_INT(current.rc, 1);
}

TEST(a_token_in_the_clear_is_warned_about)
{
    struct cli cli = { .err_fd = memfd_create("err", MFD_CLOEXEC) };
    struct err err = { 0 };

    setenv("ATOLL_ADDR", "http://192.0.2.1:80", 1);
    setenv("ATOLL_TOKEN", "atl_x", 1);
    CHECK_OK(endpoint_find(&cli, &err), &err);
    autofree char *said = slurp(cli.err_fd);
    CHECK_HAS(said, "unencrypted to 192.0.2.1");
    endpoint_free(&cli.at);
    cli.err_fd = memfd_create("err", MFD_CLOEXEC);
    setenv("ATOLL_ADDR", "https://192.0.2.1:80", 1);
    CHECK_OK(endpoint_find(&cli, &err), &err);
    autofree char *quiet = slurp(cli.err_fd);
    CHECK_STR(quiet, "");
    endpoint_free(&cli.at);
    unsetenv("ATOLL_ADDR");
    unsetenv("ATOLL_TOKEN");
}

/* ---- commands ---- */

TEST(token_create_sends_what_was_said)
{
    autofake struct fake fake = { .answers = { ANSWER(
                                      "201", "{\"id\":\"tok1\",\"name\":\"ci\",\"role\":\"agent\","
                                             "\"tenant\":\"t\",\"scopes\":\"\",\"expires_at\":null,"
                                             "\"token\":\"atl_abc\"}") } };

    fake_begin(&fake);
    autoran struct ran ran = run("token create c%20i --role agent --tenant t --scope a.*,b "
                                 "--scope c --ttl 30d --signing");
    CHECK_INT(ran.rc, 0);
    CHECK_HAS(fake.asked[0], "POST /api/v1/tokens HTTP/1.1\r\n");
    CHECK_HAS(fake.asked[0], "\r\nIdempotency-Key: cli");
    CHECK_HAS(fake.asked[0], "\r\n\r\n{\"name\":\"c i\",\"role\":\"agent\",\"tenant\":\"t\","
                             "\"scopes\":[\"a.*\",\"b\",\"c\"],\"ttl_ms\":2592000000,"
                             "\"signing\":true}");
    CHECK_HAS(ran.out, "Token    atl_abc\n");
    CHECK_HAS(ran.out, "Expires  never\n");
    CHECK_HAS(ran.err, "not shown again");
}

TEST(token_create_leaves_out_what_was_not_said)
{
    autofake struct fake fake = { .answers = { OK "Content-Length: 2\r\n\r\n{}" } };

    fake_begin(&fake);
    autoran struct ran ran = run("token create x --role viewer");
    CHECK_INT(ran.rc, 0);
    CHECK_HAS(fake.asked[0], "\r\n\r\n{\"name\":\"x\",\"role\":\"viewer\"}");
}

/* ---- commands that are a table: what they ask ---- */

struct asks {
    const char *line, *head, *body;
};

TEST(views_put_arguments_and_flags_where_they_belong)
{
    static const struct asks asks[] = {
        { "message send ada h%20i", "POST /messages/send ",
          "{\"from\":\"human\",\"to\":\"ada\",\"content\":\"h i\"}" },
        { "message send ada x --from eve --reply-to 7", "POST /messages/send ",
          "{\"from\":\"eve\",\"to\":\"ada\",\"content\":\"x\",\"reply_to\":\"7\"}" },
        { "message ls a/b", "GET /messages/a%2Fb?peek=true ", "" },
        { "message ls a --mark --unread --limit 7", "GET /messages/a?unread=true&limit=7 ", "" },
        { "agent can ada x y", "POST /agents/ada/capabilities ", "{\"tags\":[\"x\",\"y\"]}" },
        { "agent register ada --capability x --capability y", "POST /agents/register ",
          "{\"name\":\"ada\",\"capabilities\":[\"x\",\"y\"]}" },
        { "agent heartbeat ada", "POST /agents/ada/heartbeat ", "{}" },
        { "agent peers --status online --type t", "GET /agents?status=online&type=t ", "" },
        { "agent who-can a&b", "GET /capabilities/match?tag=a%26b ", "" },
        { "project limit p in_review 4", "PATCH /projects/p/wip ",
          "{\"status\":\"in_review\",\"limit\":4}" },
        { "project metrics p --window 1h --bucket 600s",
          "GET /projects/p/metrics?window=3600&bucket=600 ", "" },
        { "task move p t blocked --blocked-by 1 --blocked-by 2", "PATCH /projects/p/tasks/t ",
          "{\"status\":\"blocked\",\"blocked_by\":[\"1\",\"2\"]}" },
        { "task reviewer p t ada", "POST /projects/p/tasks/t/reviewers/ada ", "{}" },
        { "task proposals", "GET /proposals?state=pending ", "" },
        { "task proposals --which expired", "GET /proposals?state=expired ", "" },
        { "lease take p src docs --agent ada --ttl 2m", "POST /projects/p/leases ",
          "{\"agent\":\"ada\",\"paths\":[\"src\",\"docs\"],\"ttl_seconds\":120}" },
    };

    for (size_t i = 0; i < ARRAY_LEN(asks); i++) {
        autofake struct fake fake = { .answers = { OK "Content-Length: 2\r\n\r\n{}" } };
        autofree char *end = xprintf("\r\n\r\n%s", asks[i].body);

        fake_begin(&fake);
        autoran struct ran ran = run(asks[i].line);
        CHECK_STR(ran.err, "");
        CHECK_INT(ran.rc, 0);
        CHECK(strncmp(fake.asked[0], asks[i].head, strlen(asks[i].head)) == 0);
        CHECK_STR(strstr(fake.asked[0], "\r\n\r\n"), end);
    }
}

TEST(views_say_what_is_missing_or_wrong)
{
    static const char *const bad[][2] = {
        { "task claim p t", "--agent is missing" },
        { "lease take p src", "--agent is missing" },
        { "project limit p ready many", "is 'many', which is no number" },
        { "message ls a --limit x", "--limit is 'x', which is no number" },
        { "lease renew p l --ttl soon", "not a time such as" },
        { "lease take p", "needs" },
    };

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        autoran struct ran ran = run(bad[i][0]);

        CHECK_INT(ran.rc, 64);
        CHECK_HAS(ran.err, bad[i][1]);
    }
}

TEST(errors_of_the_hub_are_understood)
{
    autofake struct fake fake = { .answers = {
                                      ANSWER("409", "{\"error\":\"Task is \\u001balready\"}"),
                                  } };

    fake_begin(&fake);
    autoran struct ran ran = run("task claim p t --agent a");
    CHECK_HAS(ran.err, "task claim p: Task is \\x1balready");
}

TEST(names_from_elsewhere_cannot_command_the_terminal)
{
    static const char body[] =
        "{\"items\":[{\"id\":\"tok1\",\"name\":\"\\u001b]0;x\\u0007\\u202e\","
        "\"scopes\":\"\"},{\"id\":7},null,{\"name\":[\"a\",1]}]}";
    autofree char *answer = xprintf(OK "Content-Length: %zu\r\n\r\n%s", sizeof(body) - 1, body);
    autofake struct fake fake = { .answers = { answer, answer } };

    fake_begin(&fake);
    autoran struct ran ran = run("token list"), json = run("token list --json");
    CHECK_INT(ran.rc, 0);
    CHECK_HAS(ran.out, "tok1  \\x1b]0;x\\x07\\u{202e}");
    CHECK(!strchr(ran.out, 0x1b));
    autofree char *exact = xprintf("%s\n", body);
    CHECK_STR(json.out, exact);
}

TEST(names_are_escaped_in_paths)
{
    autofake struct fake fake = { .answers = { OK "Content-Length: 2\r\n\r\n{}" } };

    fake_begin(&fake);
    autoran struct ran ran = run("token revoke a/../b%20ü?x");
    CHECK_INT(ran.rc, 0);
    CHECK_HAS(fake.asked[0], "DELETE /api/v1/tokens/a%2F..%2Fb%20%C3%BC%3Fx HTTP/1.1\r\n");
    CHECK_HAS(fake.asked[0], "\r\nContent-Length: 0\r\n");
}

TEST(login_prints_a_link_for_the_browser)
{
    autofake struct fake fake = { .answers = {
                                      OK "Content-Length: 24\r\n\r\n{\"url_path\":\"/#login=C\"}",
                                  } };

    fake_begin(&fake);
    setenv("ATOLL_LISTEN", "unix:/x,https://[::1]:8443", 1);
    setenv("ATOLL_TLS_CERT", "/c", 1);
    setenv("ATOLL_TLS_KEY", "/k", 1);
    autoran struct ran ran = run("login");
    CHECK_STR(ran.out, "https://[::1]:8443/#login=C\n");
    unsetenv("ATOLL_LISTEN");
    unsetenv("ATOLL_TLS_CERT");
    unsetenv("ATOLL_TLS_KEY");
}

/* ---- events ---- */

#define STREAM "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\nretry: 1000\n: atoll\n\n"
#define EVENT(n)                                                                                   \
    "id: " #n "\nevent: note\ndata: {\"seq\":" #n                                                  \
    ",\"time\":\"T\",\"type\":\"note\",\"object\":\"\",\"data\":{\"x\":\"\\u0007\"}}\n\n"

TEST(event_tail_goes_on_after_breaks_without_gap_or_repeat)
{
    autofake struct fake fake = {
        .answers = { STREAM EVENT(1) EVENT(2) "id: 3\nevent: note\ndata: {\"seq\":3,",
                     "HTTP/1.1 503 x\r\nRetry-After: 0\r\nContent-Length: 0\r\n\r\n",
                     STREAM EVENT(2) EVENT(3),
                     STREAM EVENT(4) "event: reset\ndata: {\"reason\":\"stop\"}\n\n",
                     ANSWER("410",
                            "{\"error\":{\"code\":\"gone\",\"message\":\"too old now\"}}") }
    };

    fake_begin(&fake);
    autoran struct ran ran = run("event tail --since 0 --type note,x.* --object a/");
    CHECK_INT(ran.rc, 2);
    CHECK_STR(ran.out, "1 T note - {\"x\":\"\\u0007\"}\n2 T note - {\"x\":\"\\u0007\"}\n"
                       "3 T note - {\"x\":\"\\u0007\"}\n4 T note - {\"x\":\"\\u0007\"}\n");
    CHECK_HAS(fake.asked[0], "GET /api/v1/events?since=0&type=note%2Cx.%2A&object=a%2F HTTP/1.1");
    CHECK_HAS(fake.asked[0], "\r\nAccept: text/event-stream\r\n");
    CHECK(!strstr(fake.asked[0], "Last-Event-ID"));
    CHECK_HAS(fake.asked[1], "?since=2&");
    CHECK_HAS(fake.asked[1], "\r\nLast-Event-ID: 2\r\n");
    CHECK_HAS(fake.asked[2], "?since=2&");
    CHECK_HAS(fake.asked[3], "?since=3&");
    CHECK_HAS(fake.asked[4], "?since=4&");
    CHECK_HAS(ran.err, "connecting again, from event 2");
    CHECK_HAS(ran.err, "connected again");
    CHECK_HAS(ran.err, "too old now");
}

TEST(event_tail_begins_at_the_newest)
{
    autofake struct fake fake = {
        .answers = { OK "Content-Length: 31\r\n\r\n{\"items\":[],\"next\":0,\"head\":41}",
                     STREAM EVENT(41) EVENT(42), "HTTP/1.1 401 x\r\nContent-Length: 0\r\n\r\n" }
    };

    fake_begin(&fake);
    autoran struct ran ran = run("event tail --json");
    CHECK_INT(ran.rc, 4);
    CHECK_HAS(fake.asked[1], "?since=41 ");
    CHECK_STR(ran.out, "{\"seq\":42,\"time\":\"T\",\"type\":\"note\",\"object\":\"\","
                       "\"data\":{\"x\":\"\\u0007\"}}\n");
}

TEST(event_tail_fails_at_once_when_it_never_connected)
{
    autofake struct fake fake = { .answers = { "HTTP/1.1 503 x\r\nContent-Length: 0\r\n\r\n",
                                               OK "Content-Length: 2\r\n\r\n{}" /* no stream */ } };

    fake_begin(&fake);
    autoran struct ran down = run("event tail --since 0"), alien = run("event tail --since 0");
    CHECK_INT(down.rc, 1);
    CHECK_INT(alien.rc, 1);
    CHECK_HAS(alien.err, "no event stream");
    CHECK_INT(fake.count, 2);
}

TEST(event_tail_reads_pages_to_the_end)
{
    autofake struct fake fake = {
        .answers = { ANSWER("200", "{\"items\":[{\"seq\":1},{\"seq\":2}],\"next\":3,\"head\":4}"),
                     ANSWER("200", "{\"items\":[{\"seq\":4}],\"next\":4,\"head\":4}") }
    };

    fake_begin(&fake);
    autoran struct ran ran = run("event tail --no-follow --json");
    CHECK_INT(ran.rc, 0);
    CHECK_STR(ran.out, "{\"seq\":1}\n{\"seq\":2}\n{\"seq\":4}\n");
    CHECK_HAS(fake.asked[0], "?since=0&limit=1000 ");
    CHECK_HAS(fake.asked[1], "?since=3&limit=1000 ");
}

/* ---- audit ---- */

TEST(audit_tail_prints_rows)
{
    autofake struct fake fake = {
        .answers = { ANSWER("200", "{\"items\":[{\"seq\":9,\"time\":\"T\",\"actor\":\"tok1\","
                                   "\"role\":\"admin\",\"action\":\"a\\u001bb\",\"object\":\"\","
                                   "\"outcome\":\"ok\",\"request_id\":\"r\",\"detail\":"
                                   "{\"name\":\"x\"}}]}") }
    };

    fake_begin(&fake);
    autoran struct ran ran = run("audit tail");
    CHECK_INT(ran.rc, 0);
    CHECK_STR(ran.out, "9 T tok1 admin a\\x1bb - ok r {\"name\":\"x\"}\n");
    CHECK_HAS(fake.asked[0], "GET /api/v1/audit?limit=20 ");
}

#define H64 "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
#define VERDICT(ok, bad)                                                                           \
    OK "Connection: close\r\n\r\n{\"ok\":" #ok ",\"rows\":5,\"bad_seq\":" #bad                     \
       ",\"why\":\"row 3 was edited\",\"head\":\"" H64 "\"}"

TEST(audit_verify_tells_good_from_bad)
{
    autofake struct fake fake = {
        .answers = { VERDICT(true, 0), VERDICT(false, 3), VERDICT(true, null), VERDICT(true, 0),
                     VERDICT(true, 0), VERDICT(true, 0), VERDICT(true, 0),
                     OK "Connection: close\r\n\r\n{\"items\":[{\"seq\":4,\"hash\":\"" H64
                        "\"}]}" }
    };

    fake_begin(&fake);
    autoran struct ran good = run("audit verify"), bad = run("audit verify"),
                       json = run("audit verify --json"), head = run("audit verify --head " H64),
                       old = run("audit verify --head 1" H64),
                       at5 = run("audit verify --head 5:" H64),
                       beyond = run("audit verify --head 6:" H64),
                       at4 = run("audit verify --head 4:" H64);
    CHECK_INT(good.rc, 0);
    CHECK_STR(good.out, "ok: 5 rows fit together\nhead 5:" H64 "\n");
    CHECK_INT(bad.rc, 1);
    CHECK_STR(bad.out, "NOT OK at row 3: row 3 was edited\n");
    CHECK_STR(json.out,
              "{\"ok\":true,\"rows\":5,\"bad_seq\":null,\"why\":null,\"head\":\"" H64 "\"}\n");
    CHECK_INT(head.rc, 0);
    CHECK_INT(old.rc, EXIT_USAGE);
    CHECK_INT(at5.rc, 0);
    CHECK_INT(beyond.rc, 1);
    CHECK_HAS(beyond.out, "the log ends at 5");
    CHECK_INT(at4.rc, 0);
    CHECK_HAS(fake.asked[7], "/api/v1/audit?since=3&limit=1 ");
}

/* ---- backup by a server ---- */

TEST(backup_asks_for_nothing_when_the_file_is_there)
{
    autofake struct fake fake = { .answers = { ANSWER("201", "{\"bytes\":3}") } };

    fake_begin(&fake);
    put_token(fake.state, "x");
    autofree char *line = xprintf("backup %s/admin.token", fake.state);
    autoran struct ran ran = run(line);
    CHECK_INT(ran.rc, 3);
    CHECK_INT(fake.count, 0);
}

TEST(backup_leaves_nothing_of_a_bad_copy)
{
    static const char *const second[] = {
        ANSWER("200", "abc"), /* not as long as promised */
        "HTTP/1.1 200 x\r\nContent-Length: 5\r\n\r\nabc",
        "HTTP/1.1 200 x\r\nContent-Length: 5\r\n\r\nabcde", /* whole, but no store */
        ANSWER("404", "{}"),
    };

    for (size_t i = 0; i < ARRAY_LEN(second); i++) {
        autofake struct fake fake = { .answers = { ANSWER("201", "{\"bytes\":5}"), second[i],
                                                   ANSWER("204", "") } };

        fake_begin(&fake);
        autofree char *line = xprintf("backup %s/copy", fake.state), *path = NULL;
        path = xprintf("%s/copy", fake.state);
        autoran struct ran ran = run(line);
        CHECK_INT(ran.rc, i == 3 ? 2 : 1);
        CHECK(open(path, O_RDONLY | O_CLOEXEC) < 0 && errno == ENOENT);
        CHECK_INT(fake.count, 3); /* and the server's copy is removed */
        if (i == 0)
            CHECK_HAS(ran.err, "promised 5 bytes and sent 3");
    }
}

/* ---- settings, completions, pages ---- */

TEST(config_show_names_the_source)
{
    const char *dir = test_dir();
    autofree char *path = xprintf("%s/atoll.conf", dir);
    autoclose int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

    CHECK(fd >= 0 && dprintf(fd, "readers = 3\nlog_level = warn\nrate_burst = 5\n") > 0);
    setenv("ATOLL_LOG_LEVEL", "debug", 1);
    setenv("ATOLL_CONFIG", path, 1);
    autoran struct ran ran = run("--state /s config show --rate-burst 6"),
                       json = run("config show --json"),
                       bad = run("config show --auth open --listen "
                                 "0.0.0.0:1");
    autofree char *file = xprintf("file %s:1\n", path), *line = xprintf("readers             3 ");
    CHECK_INT(ran.rc, 0);
    CHECK_HAS(ran.out, file);
    CHECK_HAS(ran.out, line);
    CHECK_HAS(ran.out, "environment ATOLL_LOG_LEVEL\n");
    CHECK_HAS(ran.out, "flag --rate-burst\n");
    CHECK_HAS(ran.out, "flag --state\n");
    CHECK_HAS(json.out, "{\"name\":\"log_level\",\"value\":\"debug\",\"source\":\"environment\","
                        "\"where\":\"ATOLL_LOG_LEVEL\",\"default\":\"info\",\"reload\":true}");
    CHECK_INT(bad.rc, 64);
    CHECK_HAS(bad.err, "auth = open is refused");
    unsetenv("ATOLL_LOG_LEVEL");
    unsetenv("ATOLL_CONFIG");
}

TEST(completions_know_every_command_and_flag)
{
    static const char *const shells[] = { "bash", "zsh", "fish" };

    for (size_t i = 0; i < ARRAY_LEN(shells); i++) {
        autofree char *line = xprintf("completion %s", shells[i]);
        autoran struct ran ran = run(line);

        CHECK_INT(ran.rc, 0);
        for (const struct command *const *at = commands; *at; at++) {
            struct str rest = str_of((*at)->name), first = str_cut(&rest, ' ');
            autofree char *word = xmemdup0(rest.n ? rest.p : first.p, rest.n ? rest.n : first.n);

            if (!((*at)->traits & CMD_HIDDEN))
                CHECK_HAS(ran.out, word);
            for (const struct cli_flag *flag = (*at)->flags; flag && flag->name; flag++)
                CHECK_HAS(ran.out, flag->name);
        }
        for (const struct conf_key *key = conf_table; key->name; key++) {
            autobuf struct buf flag = { 0 };

            conf_flag_name(key, &flag);
            CHECK_HAS(ran.out, buf_cstr(&flag) + 2);
        }
        CHECK(!strstr(ran.out, "docs"));
    }
    autoran struct ran fish = run("completion fish"), zsh = run("completion zsh");
    CHECK_HAS(fish.out, "\ncomplete -c atoll -f -n '__fish_seen_subcommand_from token; and not "
                        "__fish_seen_subcommand_from create list revoke' -a revoke\n");
    CHECK_HAS(fish.out, "-n '__fish_seen_subcommand_from token; and __fish_seen_subcommand_from "
                        "create' -l role -r -d 'admin");
    CHECK_HAS(zsh.out, "\n        'event tail:Print events as they happen, one line each.'\n");
    CHECK_HAS(zsh.out, "'--ca=[Authorities that may sign the server'\\''s certificate (ATOLL_CA)]"
                       ":FILE:_files'");
}

TEST(pages_hold_every_command_flag_and_setting)
{
    autoran struct ran man = run("docs man1"), conf = run("docs conf5"), md = run("docs commands"),
                       settings = run("docs settings");

    for (const struct command *const *at = commands; *at; at++) {
        autobuf struct buf item = { 0 };
        autofree char *title = xprintf("## `atoll %s", (*at)->name);
        bool hidden = (*at)->traits & CMD_HIDDEN;

        buf_puts(&item, ".It Cm ");
        for (const char *p = (*at)->name; *p; p++)
            buf_printf(&item, "%s%c", *p == '-' ? "\\" : "", *p);
        CHECK(hidden == !strstr(man.out, buf_cstr(&item)));
        CHECK(hidden == !strstr(md.out, title));
    }
    for (const struct conf_key *key = conf_table; key->name; key++) {
        autofree char *item = xprintf(".It Cm %s\n", key->name);
        autofree char *cell = xprintf("| `%s` |", key->name);

        CHECK_HAS(conf.out, item);
        CHECK_HAS(settings.out, cell);
    }
}
