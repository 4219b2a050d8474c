/* The processes of a sandbox, as its init tells them: hostile bytes, so every length is checked. */
#include "api/own.h"

#include "box/job.h"

#define PROCESSES_BYTES_MAX (16u << 20)

struct process_view {
    int64_t pid, parent, uid, threads, rss, cpu_us;
    const char *state, *command;
};

static const struct field process_fields[] = {
    FIELD(process_view, pid, F_INT, F_READONLY, .help = "Process id inside"),
    FIELD(process_view, parent, F_INT, F_READONLY, .help = "Of the process that started it"),
    FIELD(process_view, uid, F_INT, F_READONLY, .help = "Whose it is, as seen inside"),
    FIELD(process_view, state, F_STRING, F_READONLY,
          .help = "The kernel's letter: R runs, S sleeps, D waits, T is stopped, Z has ended…"),
    FIELD(process_view, threads, F_INT, F_READONLY, .help = "Threads"),
    FIELD(process_view, rss, F_INT, F_READONLY, .help = "Bytes of memory that are its own"),
    FIELD(process_view, cpu_us, F_INT, F_READONLY, .help = "Processor time, microseconds"),
    FIELD(process_view, command, F_STRING, F_READONLY, .help = "Program and arguments"),
    { 0 },
};

struct listing {
    struct box_job job;
    struct call *call;
    struct buf out;
};

static void listing_data(struct box_job *job, struct str data)
{
    buf_str(&container_of(job, struct listing, job)->out, data);
}

static int nonsense(struct err *err)
{
    return err_set(err, ERR_UNAVAILABLE, "the sandbox answered with nonsense");
}

static int put_all(struct call *call, struct str rest, struct err *err)
{
    struct json_out json = call_json(call);

    json_open_list(&json, "items");
    while (rest.n) {
        struct init_process record;
        char state[2] = "?";

        if (rest.n < sizeof(record))
            return nonsense(err);
        memcpy(&record, rest.p, sizeof(record));
        rest = str_from(rest, sizeof(record));
        if (record.text_len > INIT_PROCESS_TEXT || record.text_len > rest.n)
            return nonsense(err);
        if (record.state >= 'A' && record.state <= 'z')
            state[0] = (char)record.state;
        struct process_view view = {
            .pid = record.pid,
            .parent = record.parent,
            .uid = record.uid,
            .threads = record.threads,
            .rss = (int64_t)(record.rss & INT64_MAX),
            .cpu_us = (int64_t)(record.cpu_us & INT64_MAX),
            .state = state,
            .command = arena_memdup0(&call->arena, rest.p, record.text_len),
        };
        field_encode(process_fields, &view, &json);
        rest = str_from(rest, record.text_len);
    }
    json_close_list(&json);
    return 0;
}

static void listing_done(struct box_job *job, const struct err *failed)
{
    struct listing *listing = container_of(job, struct listing, job);
    struct call *call = listing->call;
    autobuf struct buf out = listing->out;
    struct err err = failed ? *failed : (struct err){ 0 };

    listing->out = (struct buf){ 0 };
    if (!failed && !buf_ok(&out))
        err_set(&err, ERR_LIMIT, "there are too many processes to list");
    else if (!failed && put_all(call, buf_view(&out), &err) < 0)
        buf_clear(&call->reply);
    call_finish(call, err.code ? &err : NULL);
}

static int processes_get(struct call *call, struct err *err)
{
    struct listing *listing = arena_new(&call->arena, struct listing);
    const char *const args[] = { "ps", NULL };
    struct box_job_spec spec = { .args = args };
    struct box *box;

    if (call_box(call, &box, err) < 0)
        return -1;
    listing->call = call;
    listing->out.max = PROCESSES_BYTES_MAX;
    listing->job.data = listing_data;
    listing->job.done = listing_done;
    return box_job_start(box, &listing->job, &spec, err);
}

const struct route process_routes[] = {
    { .name = "process.list",
      .method = "GET",
      .path = "/api/v1/sandboxes/{id}/processes",
      .on = ON_LATER,
      .roles = ROLE_LOOK,
      .fn = processes_get,
      .items = process_fields,
      .flags = ROUTE_AWAKE,
      .summary = "The processes in it, as its own /proc tells." },
    { 0 },
};
