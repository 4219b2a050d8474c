/* See progress.h. A small copy that takes less than SHOW_MS shows nothing before its end. */
#include "cli/progress.h"

#include "base/clock.h"
#include "base/mem.h"

#define SHOW_MS 200
#define SHOW_BYTES 4000000

static struct {
    uint64_t bytes;
    int64_t begun_ms, shown_ms;
    bool shown;
} meter;

static void show(struct cli *cli, const char *end)
{
    int64_t ms = MAX(clock_mono_ms() - meter.begun_ms, (int64_t)1);
    autofree char *line = xprintf("\r%.1f MB, %.1f MB/s\033[K%s", (double)meter.bytes / 1e6,
                                  (double)meter.bytes / 1e3 / (double)ms, end);

    meter.shown = true;
    (void)!write(cli->err_fd, line, strlen(line));
}

static void moved(struct cli *cli, size_t bytes)
{
    int64_t now = clock_mono_ms();

    meter.bytes += bytes;
    if (now - meter.shown_ms < SHOW_MS && (meter.shown || meter.bytes < SHOW_BYTES))
        return;
    meter.shown_ms = now;
    show(cli, "");
}

void progress_begin(struct cli *cli)
{
    if (!isatty(cli->err_fd) || cli->json)
        return;
    meter.bytes = 0;
    meter.shown = false;
    meter.begun_ms = meter.shown_ms = clock_mono_ms();
    cli->moved = moved;
}

void progress_end(struct cli *cli, bool keep)
{
    static const char gone[] = "\r\033[K";

    if (!cli->moved)
        return;
    cli->moved = NULL;
    if (keep && meter.bytes)
        show(cli, "\n");
    else if (meter.shown)
        (void)!write(cli->err_fd, gone, sizeof(gone) - 1);
}
