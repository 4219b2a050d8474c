/*
 * The command line as its user sees it, whatever the command: arguments, help and exit status, how
 * the server is found and the token chosen, completions and pages.
 */
#include "cli/cli_rig.h"

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
    CHECK_STR(
        ran.err,
        "{\"error\":{\"code\":\"usage\",\"reason\":null,\"message\":\"there is no command 'tokn'\","
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

    /* What a noun means without a verb; a verb comes first. */
    autoran struct ran bare = run("snapshot box --help"), verb = run("snapshot ls box --help"),
                       more = run("snapshot box clean twice");
    CHECK_HAS(bare.out, "Usage: atoll snapshot create ");
    CHECK_HAS(verb.out, "Usage: atoll snapshot ls ");
    CHECK_HAS(more.err, "unexpected argument 'twice'");

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

TEST(the_role_is_pointed_to_where_it_is_about_that)
{
    static const struct {
        const char *reason, *message;
        bool role;
    } cases[] = {
        { "\"role\"", "whatever the words are", true },
        { "null", "/etc/x: Permission denied", false },
        { "null", "role x: Permission denied", false },
        { "\"of a newer server\"", "no", false },
        { "7", "no", false },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        autofree char *body =
            xprintf("{\"error\":{\"code\":\"forbidden\",\"reason\":%s,\"message\":\"%s\"}}",
                    cases[i].reason, cases[i].message);
        autofree char *answer =
            xprintf("HTTP/1.1 403 x\r\nContent-Length: %zu\r\n\r\n%s", strlen(body), body);
        autofake struct fake fake = { .answers = { answer } };

        fake_begin(&fake);
        autoran struct ran ran = run("token list");
        CHECK_INT(ran.rc, 4);
        CHECK_HAS(ran.err, cases[i].message);
        CHECK((strstr(ran.err, "atoll whoami") != NULL) == cases[i].role);
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
    CHECK(!strstr(ran.err, "--private")); /* which is for `run` */
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
    autofree char *file = xprintf("file %s:1\n", path);
    const char *readers = strstr(ran.out, "\nreaders ");
    CHECK_INT(ran.rc, 0);
    CHECK_HAS(ran.out, file);
    CHECK(readers && readers[9 + strspn(readers + 9, " ")] == '3');
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
