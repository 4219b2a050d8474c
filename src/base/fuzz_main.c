/*
 * Replays files through a fuzzer's entry point, for `make test`: the corpus of every x_fuzz.c is a
 * regression test. Arguments are files and directories (one level; a corpus is flat). An input is
 * copied into memory of exactly its size, so that a sanitizer sees one byte read too many. When an
 * input crashes, hangs or trips a sanitizer, its name is the last thing printed.
 */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/mem.h"

#define INPUT_MAX ((size_t)64 << 20)
#define INPUT_SECONDS_MAX 60

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
/* There in sanitizer builds, which end the process by themselves. */
void __sanitizer_set_death_callback(void (*fn)(void)) __attribute__((weak));

static const char *current = "";
static unsigned passed, failed;

static void name_culprit(void)
{
    ssize_t ignored = write(2, "input: ", 7);

    ignored += write(2, current, strlen(current));
    ignored += write(2, "\n", 1);
    (void)ignored;
}

static void on_signal(int sig)
{
    name_culprit();
    raise(sig); /* once more, with SA_RESETHAND: the default action */
}

static void watch_for_crashes(void)
{
    static const int signals[] = { SIGABRT, SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGALRM };
    struct sigaction act = { .sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND | SA_NODEFER };

    if (__sanitizer_set_death_callback)
        __sanitizer_set_death_callback(name_culprit);
    for (size_t i = 0; i < ARRAY_LEN(signals); i++) {
        struct sigaction old;

        /* A sanitizer's own handler tells more than ours. */
        if (sigaction(signals[i], NULL, &old) == 0 && old.sa_handler == SIG_DFL)
            sigaction(signals[i], &act, NULL);
    }
}

static bool read_file(const char *path, struct buf *out)
{
    autoclose int fd = open(path, O_RDONLY | O_CLOEXEC);

    while (fd >= 0) {
        char *room = buf_reserve(out, 65536);
        ssize_t got = room ? read(fd, room, 65536) : -1;

        if (got <= 0)
            return got == 0;
        out->len += (size_t)got;
    }
    return false;
}

static void replay_file(const char *path)
{
    autobuf struct buf input = { .max = INPUT_MAX };

    if (!read_file(path, &input)) {
        fprintf(stderr, "cannot read %s\n", path);
        failed++;
        return;
    }
    autofree uint8_t *exact = malloc(input.len ? input.len : 1);
    if (!exact)
        abort();
    if (input.len)
        memcpy(exact, input.data, input.len);
    current = path;
    alarm(INPUT_SECONDS_MAX);
    int rc = LLVMFuzzerTestOneInput(exact, input.len);
    alarm(0);
    if (rc != 0) {
        fprintf(stderr, "%s: returned %d\n", path, rc);
        failed++;
        return;
    }
    passed++;
}

static void replay_dir(const char *path)
{
    struct dirent **names = NULL;
    int count = scandir(path, &names, NULL, alphasort);

    if (count < 0) {
        fprintf(stderr, "cannot list %s\n", path);
        failed++;
        return;
    }
    for (int i = 0; i < count; i++) {
        if (names[i]->d_name[0] != '.') {
            autofree char *file = xprintf("%s/%s", path, names[i]->d_name);

            replay_file(file);
        }
        free(names[i]);
    }
    free(names);
}

int main(int argc, char **argv)
{
    watch_for_crashes();
    for (int i = 1; i < argc; i++) {
        struct stat st;

        if (stat(argv[i], &st) == 0 && S_ISDIR(st.st_mode))
            replay_dir(argv[i]);
        else
            replay_file(argv[i]);
    }
    if (passed + failed == 0) {
        fprintf(stderr, "%s: no inputs; give files or directories\n", argv[0]);
        failed++;
    }
    printf("%u passed, %u failed, 0 skipped\n", passed, failed);
    return failed ? 1 : 0;
}
