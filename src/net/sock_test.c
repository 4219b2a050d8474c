/* Address texts, listening and connecting, long Unix paths, stale and living socket files. */
#include "net/sock.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "base/test.h"

TEST(address_texts)
{
    static const struct {
        const char *text;
        bool good;
    } cases[] = {
        { "127.0.0.1:8080", true },
        { "0.0.0.0:0", true },
        { "[::1]:8080", true },
        { "[::]:65535", true },
        { "localhost:1", true },
        { ":8080", true },
        { "unix:/run/a", true },
        { "127.0.0.1", false },
        { "127.0.0.1:", false },
        { "127.0.0.1:65536", false },
        { "127.0.0.1:+1", false },
        { "127.0.0.1:08", false },
        { "::1:80", false },
        { "[::1]", false },
        { "[::1]80", false },
        { "[127.0.0.1]:80", false },
        { "example.org:80", false },
        { "unix:run/a", false },
        { "unix:/run/", false },
        { "unix:", false },
        { "", false },
        { "[::1", false },
        { "256.0.0.1:1", false },
        { "127.1:1", false },
        { "127.0.0.1:1x", false },
        { "[]:1", false },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct sock_addr addr;
        struct err err = { 0 };

        if ((sock_parse(cases[i].text, &addr, &err) == 0) != cases[i].good)
            test_fail(__FILE__, __LINE__, "\"%s\": %s", cases[i].text, err.msg);
    }
}

/* One byte each way proves that the two ends are the same connection. */
static void check_talk(int listener, int client)
{
    autoclose int server = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    char byte = 0;

    if (server < 0) { /* non-blocking: the connection is complete, so this cannot wait */
        test_fail(__FILE__, __LINE__, "accept");
    }
    CHECK(write(client, "x", 1) == 1 && read(server, &byte, 1) == 1 && byte == 'x');
    CHECK(write(server, "y", 1) == 1 && read(client, &byte, 1) == 1 && byte == 'y');
}

static void check_flags(int fd, bool blocking)
{
    CHECK(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    CHECK(!(fcntl(fd, F_GETFL) & O_NONBLOCK) == blocking);
}

static void listen_and_talk(const char *text)
{
    char actual[SOCK_TEXT_SIZE];
    struct err err = { 0 };
    autoclose int listener = sock_listen(text, 16, actual, &err);

    CHECK_OK(listener, &err);
    check_flags(listener, false);
    autoclose int client = sock_connect(actual, 1000, &err);
    CHECK_OK(client, &err);
    check_flags(client, true);
    check_talk(listener, client);
}

TEST(listen_on_every_family)
{
    listen_and_talk("127.0.0.1:0");
    listen_and_talk("localhost:0");
    listen_and_talk("[::1]:0");
}

TEST(connect_resolves_names)
{
    char actual[SOCK_TEXT_SIZE], text[64];
    struct err err = { 0 };
    autoclose int listener = sock_listen("127.0.0.1:0", 16, actual, &err);

    CHECK_OK(listener, &err);
    /* "LOCALHOST" is not our own word for 127.0.0.1, so it takes the resolver's way. */
    snprintf(text, sizeof(text), "LOCALHOST%s", strrchr(actual, ':'));
    autoclose int client = sock_connect(text, 1000, &err);
    CHECK_OK(client, &err);
    check_talk(listener, client);
}

TEST(unix_socket_is_private_and_its_path_may_be_long)
{
    autofree char *path = xprintf("%s/", test_dir());
    struct stat st;

    for (int i = 0; i < 3; i++) { /* about 3 * 50 bytes more: past sun_path */
        autofree char *text = xprintf("unix:%ssock", path);

        listen_and_talk(text);
        CHECK(stat(text + 5, &st) == 0 && S_ISSOCK(st.st_mode));
        CHECK_INT(st.st_mode & 0777, 0600);

        char *deeper = xprintf("%s%050d/", path, i);
        free(path);
        path = deeper;
        CHECK(mkdir(path, 0700) == 0);
    }
    CHECK(strlen(path) > 150);
}

TEST(stale_socket_is_replaced_and_a_living_one_is_not)
{
    autofree char *text = xprintf("unix:%s/sock", test_dir());
    char actual[SOCK_TEXT_SIZE];
    struct err err = { 0 };
    int dead = sock_listen(text, 16, actual, &err);

    CHECK_OK(dead, &err);
    CHECK_STR(actual, text);
    CHECK_INT(sock_listen(text, 16, actual, &err), -1);
    CHECK_INT(err.code, ERR_CONFLICT);
    close(dead);
    listen_and_talk(text);
}

TEST(other_files_are_left_alone)
{
    autofree char *path = xprintf("%s/file", test_dir());
    autofree char *text = xprintf("unix:%s", path);
    char actual[SOCK_TEXT_SIZE];
    struct err err = { 0 };
    autoclose int file = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);

    CHECK(file >= 0);
    CHECK_INT(sock_listen(text, 16, actual, &err), -1);
    CHECK_INT(err.code, ERR_CONFLICT);
    CHECK(access(path, F_OK) == 0);
}

TEST(errors_say_what_is_wrong)
{
    char actual[SOCK_TEXT_SIZE], other[SOCK_TEXT_SIZE];
    struct err err = { 0 };
    int listener = sock_listen("127.0.0.1:0", 16, actual, &err);

    CHECK_OK(listener, &err);
    CHECK_INT(sock_listen(actual, 16, other, &err), -1);
    CHECK_INT(err.code, ERR_CONFLICT);
    close(listener);
    CHECK_INT(sock_connect(actual, 1000, &err), -1);
    CHECK_INT(err.code, ERR_UNAVAILABLE);
    CHECK_INT(sock_connect("unix:/nonexistent/atoll", 1000, &err), -1);
    CHECK_INT(err.code, ERR_UNAVAILABLE);
    CHECK_INT(sock_connect("unix:relative", 1000, &err), -1);
    CHECK_INT(err.code, ERR_INVALID);
}

/* A listener whose backlog is full swallows the handshake: the connection must not hang. */
TEST(connect_gives_up_in_time)
{
    char actual[SOCK_TEXT_SIZE];
    struct err err = { 0 };
    int fds[64], count = 0;
    autoclose int listener = sock_listen("127.0.0.1:0", 0, actual, &err);

    CHECK_OK(listener, &err);
    while (count < 64 && (fds[count] = sock_connect(actual, 100, &err)) >= 0)
        count++;
    for (int i = 0; i < count; i++)
        close(fds[i]);
    CHECK(count < 64);
    CHECK_INT(err.code, ERR_TIMEOUT);
}
