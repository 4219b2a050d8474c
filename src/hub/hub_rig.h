/*
 * rig - a hub over a store of its own, for x_test.c files. A test is one job: what it calls runs
 * where the server runs it, on the writer thread, and sees what it wrote.
 */
#pragma once

#include "base/clock.h"
#include "hub/own.h"
#include "store/testing.h"

static struct hub *rig_hub;
static struct arena rig_arena;

static void rig_heard(void *ctx, const struct event *event)
{
    (void)ctx;
    hub_heard(rig_hub, event);
}

typedef void (*rig_fn)(struct hub_by *by);

static int rig_run(struct db *db, void *ctx, struct err *err)
{
    rig_fn fn = *(rig_fn *)ctx;
    struct hub_by by = { .db = db,
                         .arena = &rig_arena,
                         .hub = rig_hub,
                         .tenant = "default",
                         .actor = "somebody",
                         .now_ms = clock_wall_ms() };

    (void)err;
    fn(&by);
    return 0;
}

UNUSED_OK static void rig_job(rig_fn fn)
{
    struct err err;

    CHECK_OK(test_write(rig_run, &fn, &err), &err);
}

UNUSED_OK static void rig_open(void)
{
    static const char *const allow[] = { "localhost", NULL };
    static const char *const schemes[] = { "http", "https", NULL };
    struct hub_options options = { .message_rate = 60,
                                   .heartbeat_rate = 120,
                                   .stale_ms = 30000,
                                   .keep_ms = 1000,
                                   .url_allow = allow,
                                   .url_schemes = schemes };
    struct err err;

    autofree char *path = test_path("hub.db");

    CHECK_OK(hub_new(&rig_hub, &options, &err), &err);
    test_open(path, rig_heard, NULL);
    rig_hub->loop = test_loop;
    rig_hub->store = test_store;
}

UNUSED_OK static void rig_close(void)
{
    store_close(test_store);
    test_store = NULL;
    hub_free(rig_hub);
    rig_hub = NULL;
    loop_free(test_loop);
    test_loop = NULL;
    arena_free(&rig_arena);
}

UNUSED_OK static void rig(rig_fn fn)
{
    rig_open();
    rig_job(fn);
    rig_close();
}

/* The code that a call fails with; ERR_NONE when it does not. */
#define CODE(call_)                                                                                \
    __extension__({                                                                                \
        struct err err = { 0 };                                                                    \
        (call_) < 0 ? (int)err.code : (int)ERR_NONE;                                               \
    })
#define WELL(call_)                                                                                \
    do {                                                                                           \
        struct err err = { 0 };                                                                    \
        if ((call_) < 0)                                                                           \
            test_fail(__FILE__, __LINE__, "%s: %s", #call_, err.msg);                              \
    } while (0)
#define FAILS(call_, code_) CHECK_INT(CODE(call_), code_)

UNUSED_OK static void add_agent(struct hub_by *by, const char *name, const char *tag)
{
    const char *tags[] = { tag, NULL };
    struct hub_register wish = { .name = name, .capabilities = tags };
    struct hub_agent out;

    WELL(hub_register(by, &wish, &out, &err));
}

UNUSED_OK static const char *add_project(struct hub_by *by)
{
    struct hub_project project = { .name = "p", .creator = "maker" };

    WELL(hub_project_create(by, &project, &err));
    return project.id;
}

UNUSED_OK static const char *add_task(struct hub_by *by, const char *project, const char *tag)
{
    const char *tags[] = { tag, NULL };
    struct hub_task_wish wish = { .title = "t", .required_capabilities = tags };
    struct hub_task out;

    WELL(hub_task_create(by, project, &wish, false, &out, &err));
    return out.id;
}

UNUSED_OK static int move_to(struct hub_by *by, const char *project, const char *id,
                             const char *status, struct err *err)
{
    struct hub_patch wish = { .status = status };
    struct hub_proposal proposal;
    struct hub_task out;

    return hub_patch(by, project, id, &wish, 1, &out, &proposal, err);
}

UNUSED_OK static const char *status_of(struct hub_by *by, const char *id)
{
    struct hub_task task;

    WELL(hub_task_find(by, NULL, id, &task, &err));
    return task.status;
}

UNUSED_OK static int claim(struct hub_by *by, const char *project, const char *id,
                           const char *agent, struct err *err)
{
    struct hub_proposal proposal;

    return hub_claim(by, project, id, agent, &proposal, err);
}
