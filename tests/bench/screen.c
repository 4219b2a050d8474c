/*
 * screen WHO KIND MEGABYTES - how fast a terminal's state takes what a program writes, in MB for
 * each second of CPU time. WHO is atoll (our screen) or vterm (libvterm, as packaged); KIND is
 * plain, colour or redraw.
 */
#include <stdio.h>
#include <time.h>
#include <vterm.h>

#include "term/screen.h"

enum { ROWS = 24, COLS = 80, PIECE = 4096 };

static void make_input(struct buf *out, const char *kind, size_t len)
{
    for (unsigned i = 0; out->len < len; i++) {
        if (strcmp(kind, "plain") == 0)
            buf_printf(out, "%08u a line of a log as programs write it, of usual length\r\n", i);
        else if (strcmp(kind, "colour") == 0)
            buf_printf(
                out,
                "\033[32m%08u\033[0m \033[1;34mINFO\033[0m \033[38;5;%um module\033[0m: text\r\n",
                i, i % 256);
        else
            buf_printf(out,
                       "\033[%u;1H\033[7mrow %u\033[0m of a program that draws its screen\033[K",
                       i % ROWS + 1, i);
    }
}

static void feed_ours(void *screen, const char *bytes, size_t len)
{
    screen_feed(screen, (struct str){ bytes, len });
}

static void feed_vterm(void *vt, const char *bytes, size_t len)
{
    vterm_input_write(vt, bytes, len);
}

static double seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static double rate(void (*feed)(void *, const char *, size_t), void *to, const struct buf *input)
{
    double start = seconds();

    for (size_t at = 0; at < input->len; at += PIECE)
        feed(to, input->data + at, MIN(input->len - at, PIECE));
    return (double)input->len / 1e6 / (seconds() - start);
}

int main(int argc, char **argv)
{
    autobuf struct buf input = { .max = (size_t)1 << 30 };

    if (argc != 4)
        return 2;
    make_input(&input, argv[2], (size_t)strtoul(argv[3], NULL, 10) << 20);
    if (strcmp(argv[1], "atoll") == 0) {
        autoscreen struct screen *screen = screen_new(ROWS, COLS, 1000);

        printf("%.1f\n", rate(feed_ours, screen, &input));
        return 0;
    }
    VTerm *vt = vterm_new(ROWS, COLS);
    vterm_set_utf8(vt, 1);
    vterm_screen_reset(vterm_obtain_screen(vt), 1);
    printf("%.1f\n", rate(feed_vterm, vt, &input));
    vterm_free(vt);
    return 0;
}
