/*
 * The runner behind TEST. cmocka prints and isolates; what is ours is registration in source
 * order, the seed, temporary directories, and a closing line "N passed, N failed, N skipped" that
 * tools/run-tests adds up.
 */
#include "base/test.h"

#include <errno.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"

static struct test_case *first, **last = &first;
static uint64_t rand_state;
static char *dirs[256];
static size_t dir_count;
static char base_dir[256]; /* all directories of this program, also those its children ask for */
static unsigned passed, skipped;

void test_register(struct test_case *test)
{
    *last = test;
    last = &test->next;
}

void test_fail(const char *file, int line, const char *fmt, ...)
{
    va_list args;

    fprintf(stderr, "%s:%d: ", file, line);
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fputc('\n', stderr);
    _fail(file, line);
    abort();
}

void test_skip(const char *why)
{
    const char *must = getenv("ATOLL_MUST_WORK");

    if (must && strcmp(must, "1") == 0)
        test_fail("skip", 0, "must work here, but: %s", why);
    fprintf(stderr, "skipped: %s\n", why);
    skipped++;
    _skip("skip", 0);
    abort();
}

uint32_t test_rand(uint32_t below)
{
    rand_state += 0x9e3779b97f4a7c15u; /* splitmix64 */
    uint64_t z = rand_state;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    return below ? (uint32_t)(z % below) : 0;
}

int test_patience(int ms)
{
    enum { most = 20 };
    double load = 0;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);

    if (getloadavg(&load, 1) < 1 || cores < 1)
        load = 0;
    return ms * (int)MIN(2 + load / (double)MAX(cores, 1), (double)most);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    (void)!remove(path); /* what cannot be removed does not keep the rest */
    return 0;
}

/* Who was killed a moment ago may still be writing, and the kernel unmounting. */
static void remove_base_dir(void)
{
    for (int i = 0; i < 100; i++) {
        nftw(base_dir, remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
        if (access(base_dir, F_OK) < 0)
            return;
        usleep(10000);
    }
}

/* Named by mkdtemp as well, because children of the program ask too, at the same time. */
const char *test_dir(void)
{
    char *path = xprintf("%s/XXXXXX", base_dir);

    if (dir_count == ARRAY_LEN(dirs) || !mkdtemp(path))
        test_fail(__FILE__, __LINE__, "cannot make a temporary directory");
    dirs[dir_count++] = path;
    return path;
}

static void make_base_dir(void)
{
    const char *tmp = getenv("TMPDIR");

    snprintf(base_dir, sizeof(base_dir), "%s/atoll-test-XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(base_dir) || chmod(base_dir, 0711) < 0) {
        fprintf(stderr, "cannot make a temporary directory: %s\n", strerror(errno));
        exit(1);
    }
}

static void run_one(void **state)
{
    struct test_case *test = *state;

    test->fn();
    passed++;
}

int main(int argc, char **argv)
{
    const char *seed = getenv("ATOLL_TEST_SEED");
    struct CMUnitTest *tests = NULL;
    size_t count = 0;

    rand_state = seed ? strtoull(seed, NULL, 10) : (uint64_t)clock_wall_ms();
    fprintf(stderr, "seed %llu\n", (unsigned long long)rand_state);
    for (struct test_case *t = first; t; t = t->next) {
        if (argc > 1 && !strstr(t->name, argv[1]))
            continue;
        tests = xrealloc(tests, (count + 1) * sizeof(*tests));
        tests[count++] =
            (struct CMUnitTest){ .name = t->name, .test_func = run_one, .initial_state = t };
    }
    make_base_dir();
    int failed = _cmocka_run_group_tests(argv[0], tests, count, NULL, NULL);
    while (dir_count)
        free(dirs[--dir_count]);
    remove_base_dir();
    free(tests);
    /* A filter that matches nothing must not look like success. */
    if (count == 0)
        failed = 1;
    printf("%u passed, %d failed, %u skipped\n", passed, failed, skipped);
    return failed ? 1 : 0;
}
