/* The file of contexts: its permissions, its limits, two writers at once, damage. */
#include "cli/context.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/test.h"

/* A home of its own; gives the path of the file in it. */
static char *home(void)
{
    const char *dir = test_dir();

    unsetenv("XDG_CONFIG_HOME");
    setenv("HOME", dir, 1);
    return xprintf("%s/.config/atoll/contexts.json", dir);
}

static void add(const char *name, const char *addr)
{
    autocontexts struct contexts contexts = { .lock_fd = -1 };
    struct context *context;
    struct err err = { 0 };

    CHECK_OK(contexts_open(&contexts, &err), &err);
    CHECK_OK(contexts_put(&contexts, name, &context, &err), &err);
    context_text(&context->addr, addr);
    context_text(&context->token, "secret");
    CHECK_OK(contexts_save(&contexts, &err), &err);
}

TEST(context_survives_and_is_private)
{
    autofree char *path = home();
    autocontexts struct contexts contexts = { .lock_fd = -1 };
    struct err err = { 0 };
    struct stat st;

    CHECK_OK(contexts_load(&contexts, &err), &err);
    CHECK_INT(contexts.count, 0);
    add("lab", "http://a");
    add("prod", "https://b");
    add("lab", "http://c"); /* changes the first */
    CHECK(stat(path, &st) == 0);
    CHECK_INT(st.st_mode & 0777, 0600);
    contexts_free(&contexts);
    CHECK_OK(contexts_load(&contexts, &err), &err);
    CHECK_INT(contexts.count, 2);
    CHECK_STR(contexts_find(&contexts, "lab")->addr, "http://c");
    CHECK_STR(contexts_find(&contexts, "lab")->token, "secret");
    CHECK(!contexts_find(&contexts, "lab")->ca && !contexts_find(&contexts, "none"));
}

TEST(context_removal_forgets_the_current)
{
    autofree char *path = home();
    autocontexts struct contexts contexts = { .lock_fd = -1 };
    struct err err = { 0 };

    (void)path;
    add("a", "http://a");
    add("b", "http://b");
    CHECK_OK(contexts_open(&contexts, &err), &err);
    context_text(&contexts.current, "a");
    CHECK(!contexts_remove(&contexts, "c"));
    CHECK(contexts_remove(&contexts, "a"));
    CHECK(!contexts.current);
    CHECK_OK(contexts_save(&contexts, &err), &err);
    contexts_free(&contexts);
    CHECK_OK(contexts_load(&contexts, &err), &err);
    CHECK_INT(contexts.count, 1);
    CHECK_STR(contexts.list[0].name, "b");
}

static void *add_some(void *arg)
{
    for (int i = 0; i < 10; i++) {
        autofree char *name = xprintf("%s%d", (const char *)arg, i);

        add(name, "http://x");
    }
    return NULL;
}

TEST(context_writers_do_not_lose_each_other)
{
    autofree char *path = home();
    autocontexts struct contexts contexts = { .lock_fd = -1 };
    struct err err = { 0 };
    pthread_t threads[4];
    const char *names[] = { "a", "b", "c", "d" };

    (void)path;
    for (size_t i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, add_some, (void *)(uintptr_t)names[i]) == 0);
    for (size_t i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    CHECK_OK(contexts_load(&contexts, &err), &err);
    CHECK_INT(contexts.count, 40);
}

static void put_file(const char *path, struct str text, mode_t mode)
{
    autoclose int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    CHECK(fd >= 0 && write(fd, text.p, text.n) == (ssize_t)text.n && fchmod(fd, mode) == 0);
}

TEST(context_refuses_what_it_cannot_trust)
{
    static const char *const bad[] = {
        "",
        "[]",
        "{}",
        "{\"contexts\":{}}",
        "{\"contexts\":[{\"name\":\"a\"}]}",
        "{\"contexts\":[{\"name\":\"-a\",\"addr\":\"x\"}]}",
        "{\"contexts\":[{\"name\":\"a\",\"addr\":\"x\"},{\"name\":\"a\",\"addr\":\"y\"}]}",
        "{\"contexts\":[",
    };
    autofree char *path = home();
    autocontexts struct contexts contexts = { .lock_fd = -1 };
    struct err err = { 0 };

    add("a", "http://a");
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        put_file(path, str_of(bad[i]), 0600);
        CHECK(contexts_load(&contexts, &err) < 0);
        CHECK(strstr(err.msg, path)); /* says which file */
        CHECK_INT(contexts.count, 0);
    }
    put_file(path, STR("{\"contexts\":[]}"), 0640);
    CHECK(contexts_load(&contexts, &err) < 0);
    CHECK(strstr(err.msg, "chmod 600"));
    CHECK(remove(path) == 0 && mkfifo(path, 0600) == 0);
    CHECK(contexts_load(&contexts, &err) < 0);
}

TEST(context_limits)
{
    autofree char *path = home();
    autocontexts struct contexts contexts = { .lock_fd = -1 };
    struct context *context;
    struct err err = { 0 };

    (void)path;
    CHECK_OK(contexts_open(&contexts, &err), &err);
    for (int i = 0; i < CONTEXTS_MAX; i++) {
        autofree char *name = xprintf("c%d", i);

        CHECK_OK(contexts_put(&contexts, name, &context, &err), &err);
        context_text(&context->addr, "http://x");
    }
    CHECK(contexts_put(&contexts, "one-more", &context, &err) < 0);
    CHECK_INT(err.code, ERR_LIMIT);
    CHECK_OK(contexts_put(&contexts, "c0", &context, &err), &err);
    CHECK_OK(contexts_save(&contexts, &err), &err);

    autobuf struct buf big = { 0 };
    while (big.len < CONTEXTS_FILE_MAX)
        buf_putc(&big, 't');
    context_text(&context->token, buf_cstr(&big));
    CHECK(contexts_save(&contexts, &err) < 0);
    CHECK_INT(err.code, ERR_LIMIT);
    /* The same from the other side: what is read. */
    buf_clear(&big);
    buf_puts(&big, "{\"contexts\":[]}");
    while (big.len < CONTEXTS_FILE_MAX)
        buf_putc(&big, ' ');
    contexts_free(&contexts);
    put_file(path, buf_view(&big), 0600);
    CHECK_OK(contexts_load(&contexts, &err), &err);
    buf_putc(&big, ' ');
    put_file(path, buf_view(&big), 0600);
    CHECK(contexts_load(&contexts, &err) < 0);
    CHECK_INT(err.code, ERR_LIMIT);
}

TEST(context_names)
{
    char longest[CONTEXT_NAME_MAX + 2];

    memset(longest, 'a', sizeof(longest));
    longest[CONTEXT_NAME_MAX + 1] = 0;
    CHECK(!context_name_ok(longest));
    longest[CONTEXT_NAME_MAX] = 0;
    CHECK(context_name_ok(longest) && context_name_ok("A.b-c_9"));
    CHECK(!context_name_ok("") && !context_name_ok("-x") && !context_name_ok(".x"));
    CHECK(!context_name_ok("a b") && !context_name_ok("a/b") && !context_name_ok("a\n"));
}

TEST(context_without_a_home)
{
    autocontexts struct contexts contexts = { .lock_fd = -1 };
    struct err err = { 0 };

    unsetenv("HOME");
    unsetenv("XDG_CONFIG_HOME");
    CHECK_OK(contexts_load(&contexts, &err), &err);
    CHECK(contexts_open(&contexts, &err) < 0);
}
