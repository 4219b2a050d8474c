/*
 * Who uses what now: the sandboxes that live, the busiest first. Processor time is told by the
 * kernel as a sum, so each round is compared with the one before; a terminal shows round after
 * round, anything else gets one.
 */
#include <poll.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cli/sandbox.h"

#define FIRST_MS 500 /* between the two looks that the first round needs */

struct seen {
    char id[40], name[64], state[16];
    int64_t cpu_us, at_us, memory, limit, pids, percent;
};

struct look {
    struct seen *items; /* owned */
    size_t count;
};

static void look_free(struct look *look)
{
    free(look->items);
}

static void copy(char *to, size_t size, struct str text)
{
    snprintf(to, size, "%.*s", (int)MIN(text.n, size - 1), text.p ? text.p : "");
}

static int take_look(struct cli *cli, struct look *out, struct err *err)
{
    const struct json *reply, *stats;

    cli_forget(cli);
    if (cli_get(cli, &reply, err, "/api/v1/sandboxes") < 0)
        return err_wrap(err, "list sandboxes");
    const struct json *items = json_get(reply, "items");
    out->items = xcalloc(items ? items->count + 1 : 1, sizeof(*out->items));
    json_each(item, items)
    {
        struct seen *seen = &out->items[out->count];
        struct err gone = { 0 };

        copy(seen->id, sizeof(seen->id), json_text(item, "id"));
        copy(seen->name, sizeof(seen->name), json_text(item, "name"));
        copy(seen->state, sizeof(seen->state), json_text(item, "state"));
        seen->limit = json_num(item, "memory", 0);
        if (strcmp(seen->state, "running") != 0 && strcmp(seen->state, "paused") != 0)
            continue;
        if (cli_get(cli, &stats, &gone, "/api/v1/sandboxes/%s/stats", seen->id) < 0)
            continue; /* it ended meanwhile */
        seen->cpu_us = json_num(stats, "cpu_us", 0);
        seen->at_us = clock_mono_us();
        seen->memory = json_num(stats, "memory", 0);
        seen->pids = json_num(stats, "pids", 0);
        out->count++;
    }
    return 0;
}

static int busiest_first(const void *a, const void *b)
{
    const struct seen *one = a, *two = b;

    if (one->percent != two->percent)
        return one->percent < two->percent ? 1 : -1;
    if (one->memory != two->memory)
        return one->memory < two->memory ? 1 : -1;
    return strcmp(one->id, two->id);
}

static void compare(struct look *now, const struct look *before)
{
    for (size_t i = 0; i < now->count; i++)
        for (size_t k = 0; k < before->count; k++) {
            struct seen *seen = &now->items[i];
            const struct seen *was = &before->items[k];

            if (strcmp(seen->id, was->id) == 0 && seen->at_us > was->at_us)
                seen->percent = (seen->cpu_us - was->cpu_us) * 100 / (seen->at_us - was->at_us);
        }
    qsort(now->items, now->count, sizeof(*now->items), busiest_first);
}

static int put_look(struct cli *cli, const struct look *look, struct err *err)
{
    autobuf struct buf text = { 0 };
    autoarena struct arena arena = { 0 };
    struct json_out json = json_to(&text);
    struct json *root;

    json_open(&json, '{');
    json_key(&json, "items");
    json_open(&json, '[');
    for (size_t i = 0; i < look->count; i++) {
        const struct seen *seen = &look->items[i];

        json_open(&json, '{');
        json_kv_text(&json, "id", seen->id);
        json_kv_text(&json, "name", seen->name[0] ? seen->name : NULL);
        json_kv_text(&json, "state", seen->state);
        json_kv_int(&json, "cpu_percent", seen->percent);
        json_kv_int(&json, "memory", seen->memory);
        json_kv_int(&json, "memory_limit", seen->limit);
        json_kv_int(&json, "pids", seen->pids);
        json_close(&json, '}');
    }
    json_close(&json, ']');
    json_close(&json, '}');
    if (cli->json) {
        buf_str(&cli->out, buf_view(&text));
        buf_putc(&cli->out, '\n');
        return 0;
    }
    if (json_parse(&arena, buf_view(&text), &root, err) < 0)
        return -1;
    return cli_table(cli, json_get(root, "items"),
                     "id,name,state,>cpu_percent,>memory,>memory_limit,>pids");
}

static int top_run(struct cli *cli, struct err *err)
{
    bool live = cli_width(cli) > 0 && !cli->json && !cli_has(cli, "once");
    int64_t every_ms, wait_ms = FIRST_MS;
    auto_with(look_free) struct look before = { 0 };

    if (cli_ms(cli, "every", 2000, &every_ms, err) < 0 || take_look(cli, &before, err) < 0)
        return -1;
    do {
        struct look now = { 0 };

        poll(NULL, 0, (int)MIN(wait_ms, (int64_t)3600000));
        wait_ms = every_ms;
        if (take_look(cli, &now, err) < 0) {
            look_free(&now);
            return -1;
        }
        compare(&now, &before);
        look_free(&before);
        before = now;
        if (live)
            buf_puts(&cli->out, "\033[H\033[2J");
        if (put_look(cli, &now, err) < 0 || cli_flush(cli, err) < 0)
            return -1;
    } while (live);
    return EXIT_OK;
}

static const struct cli_flag top_flags[] = {
    { "every", "TIME", "Between two rounds on a terminal (2s)" },
    { "once", NULL, "One round, also on a terminal" },
    { 0 },
};

const struct command cmd_top = {
    .name = "top",
    .help = "Show the sandboxes that live by processor time and memory, the busiest first.",
    .more =
        "On a terminal round after round until Ctrl-C; otherwise once. 100 percent is one core. "
        "Looking does not keep a sandbox awake.",
    .flags = top_flags,
    .traits = CMD_REMOTE,
    .run = top_run,
};
