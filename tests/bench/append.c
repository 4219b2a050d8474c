/*
 * append DIRECTORY SECONDS - how many small appends per second this disk makes durable, one by one.
 *
 * A 4 KiB append and an fdatasync, over and over: what a program gets that commits each write by
 * itself. Prints the rate. The file is removed at once, so nothing is left whatever happens.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
    static char page[4096];
    unsigned long count = 0;

    if (argc != 3 || chdir(argv[1]) < 0) {
        fprintf(stderr, "usage: append DIRECTORY SECONDS\n");
        return 64;
    }
    char name[] = "append-XXXXXX";
    int fd = mkostemp(name, O_CLOEXEC);
    if (fd < 0 || unlink(name) < 0) {
        fprintf(stderr, "append: %s\n", strerror(errno));
        return 1;
    }
    memset(page, 'a', sizeof(page));
    double start = now(), end = start + strtod(argv[2], NULL);
    while (now() < end) {
        if (write(fd, page, sizeof(page)) != (ssize_t)sizeof(page) || fdatasync(fd) < 0) {
            fprintf(stderr, "append: %s\n", strerror(errno));
            return 1;
        }
        count++;
    }
    printf("%.1f\n", (double)count / (now() - start));
    return 0;
}
