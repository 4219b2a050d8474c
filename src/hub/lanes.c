/* The board as it is drawn: columns with their limits, lanes, and who edits what. */
#include "hub/own.h"

#include <stdlib.h>

struct board {
    const struct hub_by *by;
    const char *lanes;
    struct hub_task *tasks; /* in the order of lists; in the arena */
    size_t count, cap;
    const char **names; /* of lanes */
    size_t name_count, name_cap;
};

static void add_lane(struct board *board, const char *name)
{
    for (size_t i = 0; i < board->name_count; i++)
        if (strcmp(board->names[i], name) == 0)
            return;
    if (board->name_count == board->name_cap) {
        size_t cap = board->name_cap ? 2 * board->name_cap : 16;
        const char **more = arena_alloc(board->by->arena, cap * sizeof(*more));

        if (board->name_count)
            memcpy(more, board->names, board->name_count * sizeof(*more));
        board->names = more;
        board->name_cap = cap;
    }
    board->names[board->name_count++] = name;
}

static bool stands_in(const struct board *board, const struct hub_task *task, const char *lane)
{
    switch (board->lanes[0]) {
    case 'a':
        return strcmp(task->assigned_to ? task->assigned_to : "", lane) == 0;
    case 'p':
        return strcmp(task->priority, lane) == 0;
    case 'l':
        return lane[0] ? hub_has(task->labels, lane) : !task->labels[0];
    default:
        return true;
    }
}

static void take_task(void *ctx, const void *item)
{
    const struct hub_task *task = item;
    struct board *board = ctx;

    if (board->count == board->cap)
        board->tasks = hub_twice(board->by, board->tasks, sizeof(*board->tasks), &board->cap);
    board->tasks[board->count++] = *task;
    if (board->lanes[0] == 'a')
        add_lane(board, task->assigned_to ? task->assigned_to : "");
    for (const char **label = task->labels; board->lanes[0] == 'l' && *label; label++)
        add_lane(board, *label);
    if (board->lanes[0] == 'l' && !task->labels[0])
        add_lane(board, "");
}

/* The nameless one last. */
static int by_name(const void *a, const void *b)
{
    const char *x = *(const char *const *)a, *y = *(const char *const *)b;

    return !x[0] || !y[0] ? !x[0] - !y[0] : strcmp(x, y);
}

static int by_completion(const void *a, const void *b)
{
    const struct hub_task *x = *(const struct hub_task *const *)a;
    const struct hub_task *y = *(const struct hub_task *const *)b;

    return (x->completed_at < y->completed_at) - (x->completed_at > y->completed_at);
}

static void put_done(struct board *board, struct json_out *json, const char *lane)
{
    const struct hub_task **done =
        arena_alloc(board->by->arena, (board->count + 1) * sizeof(*done));
    size_t count = 0;

    for (size_t i = 0; i < board->count; i++)
        if (strcmp(board->tasks[i].status, "done") == 0 && stands_in(board, &board->tasks[i], lane))
            done[count++] = &board->tasks[i];
    if (count)
        qsort(done, count, sizeof(*done), by_completion);
    for (size_t i = 0; i < MIN(count, (size_t)HUB_DONE_SHOWN); i++)
        field_encode(hub_task_fields, done[i], json);
}

static void put_lane(struct board *board, struct json_out *json, const char *lane)
{
    json_open(json, '{');
    json_kv_text(json, "lane", lane);
    json_key(json, "columns");
    json_open(json, '{');
    for (int s = 0; hub_statuses[s]; s++) {
        json_key(json, hub_statuses[s]);
        json_open(json, '[');
        if (strcmp(hub_statuses[s], "done") == 0)
            put_done(board, json, lane);
        else
            for (size_t i = 0; i < board->count; i++)
                if (strcmp(board->tasks[i].status, hub_statuses[s]) == 0 &&
                    stands_in(board, &board->tasks[i], lane))
                    field_encode(hub_task_fields, &board->tasks[i], json);
        json_close(json, ']');
    }
    json_close(json, '}');
    json_close(json, '}');
}

static int put_columns(struct board *board, struct json_out *json, const char *project,
                       struct err *err)
{
    json_key(json, "columns");
    json_open(json, '[');
    for (int s = 0; hub_statuses[s]; s++) {
        int64_t most, count = 0;

        if (hub_wip_of(board->by, project, hub_statuses[s], &most, err) < 0)
            return -1;
        for (size_t i = 0; i < board->count; i++)
            count += strcmp(board->tasks[i].status, hub_statuses[s]) == 0;
        json_open(json, '{');
        json_kv_text(json, "status", hub_statuses[s]);
        json_key(json, "limit");
        most < 0 ? json_put_null(json) : json_put_int(json, most);
        json_kv_int(json, "count", count);
        json_close(json, '}');
    }
    json_close(json, ']');
    return 0;
}

static void put_lease(void *ctx, const void *lease)
{
    field_encode(hub_lease_fields, lease, ctx);
}

int hub_board(const struct hub_by *by, const char *project, const char *lanes,
              struct json_out *json, struct err *err)
{
    static const char *const kinds[] = { "none", "agent", "priority", "label", NULL };
    const struct hub_tasks_wish wish = { .project = project, .whole = true };
    struct board board = { .by = by, .lanes = lanes ? lanes : "none" };
    struct hub_project found;

    if (!hub_has(kinds, board.lanes))
        return err_field(err, "lanes", "must be one of none, agent, priority, label");
    if (hub_project_get(by, project, &found, err) < 0 ||
        hub_tasks(by, &wish, take_task, &board, err) < 0)
        return -1;
    if (board.lanes[0] == 'n')
        add_lane(&board, "");
    for (int i = 0; board.lanes[0] == 'p' && i < 4; i++)
        add_lane(&board, arena_printf(by->arena, "P%d", i));
    if (board.name_count)
        qsort(board.names, board.name_count, sizeof(*board.names), by_name);
    json_open(json, '{');
    json_kv_text(json, "project", found.id);
    json_kv_text(json, "name", found.name);
    json_kv_text(json, "lanes_by", board.lanes);
    if (put_columns(&board, json, project, err) < 0)
        return -1;
    json_key(json, "lanes");
    json_open(json, '[');
    for (size_t i = 0; i < board.name_count; i++)
        put_lane(&board, json, board.names[i]);
    json_close(json, ']');
    json_key(json, "leases");
    json_open(json, '[');
    if (hub_leases(by, project, NULL, NULL, put_lease, json, err) < 0)
        return -1;
    json_close(json, ']');
    json_close(json, '}');
    return 0;
}
