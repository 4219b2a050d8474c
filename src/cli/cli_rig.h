/*
 * cli_rig - a server with prepared answers, and runs of the program against it. The server is a
 * thread on a Unix socket that notes what it was asked. Only for x_test.c files of this room.
 */
#pragma once

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
#include "cli/cli.h"
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

static inline char *hear(int fd)
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

static inline void *fake_run(void *arg)
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

static inline void fake_begin(struct fake *fake)
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

static inline void fake_end(struct fake *fake)
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

static inline void ran_free(struct ran *ran)
{
    free(ran->out);
    free(ran->err);
}
#define autoran auto_with(ran_free)

static inline char *slurp(int fd)
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
static inline struct ran run(const char *line)
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

/* What the owner of a state directory shows. */
static inline void put_token(const char *dir, const char *text)
{
    autofree char *path = xprintf("%s/admin.token", dir);
    autoclose int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

    CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
}
