/* own - what the files of the hub share among themselves. */
#pragma once

#include <stdarg.h>

#include "base/json.h"
#include "base/list.h"
#include "base/map.h"
#include "base/uuid.h"
#include "hub/away.h"
#include "hub/hub.h"
#include "hub/rate.h"
#include "loop/loop.h"

struct hub {
    struct loop *loop;
    struct store *store;
    int64_t stale_ms, keep_ms;
    enum hub_filter filter;
    struct away *urls; /* owned */
    struct rate sends; /* writer thread, and these: random bytes for the next ids */
    unsigned char ids[32][UUID_RANDOM];
    unsigned ids_left;
    struct rate beats; /* loop thread, as all below */
    struct map live;   /* "tenant/name" → struct live (live.c) */
    struct timer tick;
    bool draining, writing;
    bool leases, lease_news; /* there may be some; one came since the last look */
    int64_t kept_ms;         /* when old messages were last looked for */
    struct list waiting;     /* for what is being written (hub_settle) */
};

/* ---- by.c ---- */

const char *hub_uuid(const struct hub_by *by);
/* For the body of an event: as much as most have, at once. */
static inline struct buf hub_room(void)
{
    struct buf body = { 0 };

    (void)buf_reserve(&body, 512);
    return body;
}
/* An event; keys and texts (NULL is null), ended by a NULL key. */
must_use int hub_tell_words(const struct hub_by *by, const char *type, const char *object,
                            struct err *err, const char *const *words);
#define hub_tell(by, type, object, err, ...)                                                       \
    hub_tell_words(by, type, object, err, (const char *const[]){ __VA_ARGS__ })
must_use int hub_tell_json(const struct hub_by *by, const char *type, const char *object,
                           struct buf *body, struct err *err);
const char *hub_agent_object(const struct hub_by *by, const char *name);
const char *hub_project_object(const struct hub_by *by, const char *project, const char *rest);
/* Lists in TEXT columns. */
const char **hub_strings(const struct hub_by *by, struct str json);
const char *hub_strings_text(const struct hub_by *by, const char *const *items);
struct json *hub_json(const struct hub_by *by, struct str json);
const char *hub_json_text(const struct hub_by *by, const struct json *json);
bool hub_has(const char *const *items, const char *item);
/* NULL for an empty one: what is shown as null. */
const char *hub_or_null(const char *text);
/*
 * A statement whose $1 is the tenant and whose others, from $2, are these texts; what is no text is
 * bound behind them. hub_change runs it: how many rows, or -1.
 */
struct query *hub_query_texts(const struct hub_by *by, const char *literal_sql,
                              const char *const *texts, size_t count);
#define HUB_TEXTS(by, ...) ((const char *const[]){ (by)->tenant, ##__VA_ARGS__ })
#define hub_query(by, sql, ...)                                                                    \
    hub_query_texts(by, "" sql, HUB_TEXTS(by, ##__VA_ARGS__),                                      \
                    sizeof(HUB_TEXTS(by, ##__VA_ARGS__)) / sizeof(const char *))
must_use int hub_change_texts(const struct hub_by *by, const char *literal_sql,
                              const char *const *texts, size_t count, struct err *err);
#define hub_change(by, err, sql, ...)                                                              \
    hub_change_texts(by, "" sql, HUB_TEXTS(by, ##__VA_ARGS__),                                     \
                     sizeof(HUB_TEXTS(by, ##__VA_ARGS__)) / sizeof(const char *), err)
/* An UPDATE of one text, which is $1; $2 is the tenant and $3 what names the row. As hub_change. */
must_use int hub_set(const struct hub_by *by, const char *literal_sql, const char *text,
                     const char *name, struct err *err);
/* Its first row is there, or ERR_NOT_FOUND with this text. */
must_use int hub_row(struct query *q, const char *missing, struct err *err);
/* A number that a statement of one row and column answers with; `otherwise` without a row. */
must_use int hub_number(struct query *q, int64_t otherwise, int64_t *out, struct err *err);
/* The first column of all rows, NULL-terminated. */
must_use int hub_column(const struct hub_by *by, struct query *q, const char ***out,
                        struct err *err);
/* Room in the arena for twice as many (of none: 64), with those that there are. */
void *hub_twice(const struct hub_by *by, const void *items, size_t size, size_t *cap);
/* A copy in lower case (of ASCII). */
char *hub_lower(const struct hub_by *by, struct str text);
/* ERR_FORBIDDEN where an agent says in `field` that it is somebody else. */
must_use int hub_self(const struct hub_by *by, const char *name, const char *field,
                      struct err *err);
/* What the URL filter says of a text that is no message (setting hub_url_filter = all). */
must_use int hub_text_check(const struct hub_by *by, const char *text, struct err *err);
must_use int hub_metadata_check(const struct json *metadata, struct err *err);

/* No control, bidi or invisible characters in what is shown to people. */
must_use int hub_shown_check(const char *text, const char *field, struct err *err);

/* ---- agent.c ---- */

/* What counts when an agent acts. */
struct hub_standing {
    bool known, paused, revoked;
    bool checkpointed;
    const char *mode;         /* the default one when it is not known */
    const char *capabilities; /* as the row has them */
};
must_use int hub_standing(const struct hub_by *by, const char *name, struct hub_standing *out,
                          struct err *err);
/* The same of one that is registered; others are ERR_NOT_FOUND. */
must_use int hub_standing_known(const struct hub_by *by, const char *name, struct hub_standing *out,
                                struct err *err);
/* ERR_CONFLICT while it is paused or revoked; nobody ("") and people may. */
must_use int hub_active(const struct hub_by *by, const char *name, struct err *err);
must_use int hub_standing_active(const struct hub_standing *standing, const char *name,
                                 struct err *err);
must_use int hub_agent_task(const struct hub_by *by, const char *name, const char *task,
                            struct err *err);
must_use int hub_tags_of(const struct hub_by *by, const char *name, const char ***out,
                         struct err *err);
must_use int hub_tags_check(const char *const *tags, const char *field, struct err *err);
/* Lower-case and trimmed, without empty ones and doubles. */
const char **hub_tags_clean(const struct hub_by *by, const char *const *tags);
/* "{'a', 'b'}" */
const char *hub_tags_text(const struct hub_by *by, const char *const *tags);

/* revoke.c */
must_use int hub_checkpoint_drop(const struct hub_by *by, const char *name, struct err *err);

/* ---- project.c ---- */

must_use int hub_project_exists(const struct hub_by *by, const char *id, struct err *err);

must_use int hub_wip_of(const struct hub_by *by, const char *project, const char *status,
                        int64_t *out, struct err *err); /* -1: no limit */

/* ---- task.c ---- */

extern const char *const hub_statuses[]; /* six, NULL-terminated */
bool hub_status_ok(const char *status);
/* Column, also as the original spelled it ("TaskStatus.IN_PROGRESS"); NULL: none. */
const char *hub_status_of(const struct hub_by *by, const char *text);
/* 1: found; 0: there is none in that project (NULL: in any). */
must_use int hub_task_find(const struct hub_by *by, const char *project, const char *id,
                           struct hub_task *out, struct err *err);
/* The same where there must be one: ERR_NOT_FOUND. */
must_use int hub_task_must(const struct hub_by *by, const char *project, const char *id,
                           struct hub_task *out, struct err *err);
/* What lists and single tasks show besides their row. `most` transitions, 0: all. */
must_use int hub_task_fill(const struct hub_by *by, struct hub_task *task, int64_t most,
                           struct err *err);
int64_t hub_approvals_required(const struct hub_task *task);
must_use int hub_approvals(const struct hub_by *by, const struct hub_task *task, int64_t *out,
                           struct err *err);
/* What a claim changes of its row; all of it as it is now. */
must_use int hub_task_save_owner(const struct hub_by *by, struct hub_task *task, struct err *err);
must_use int hub_task_save(const struct hub_by *by, struct hub_task *task, struct err *err);

/* ---- board.c ---- */

/* Moves it, with all that follows; the matrix was looked at. */
must_use int hub_move(const struct hub_by *by, struct hub_task *task, const char *status,
                      const char *who, const char *note, struct err *err);

/*
 * What an approved proposal does, if it can still be done; ERR_CONFLICT otherwise. `wish` is that
 * of a move.
 */
struct hub_step;
must_use int hub_step_approved(const struct hub_by *by, const char *project, const char *id,
                               struct hub_step *step, const struct hub_patch *wish,
                               struct err *err);

/* ---- step.c ---- */

enum hub_way { HUB_CLAIMS, HUB_MOVES, HUB_CREATES, HUB_ASSIGNS };

/* A task gets an owner or another column. */
struct hub_step {
    enum hub_way way;
    const char *agent;  /* who does it; "" or HUB_HUMAN: people */
    const char *holder; /* whose the task becomes; not of HUB_MOVES */
    const char *to;     /* the column, of HUB_MOVES */
    const char *from;   /* where the task was when it was proposed; NULL: anywhere */
    bool approved;      /* by a person: the mode was heeded */
    bool takes;         /* set by hub_step_check: `agent` becomes the owner */
};

/* Of creations and assignments: who gives a task to itself takes it; others act as people do. */
static inline struct hub_step hub_step_giving(enum hub_way way, const char *who, const char *holder)
{
    return (struct hub_step){ .way = way,
                              .agent = strcmp(who, holder) == 0 ? who : HUB_HUMAN,
                              .holder = holder };
}

enum { HUB_STEP_DO, HUB_STEP_PROPOSE, HUB_STEP_DONE };

/*
 * The one decision: do it, propose it to people, or nothing is left to do. ERR_CONFLICT of an agent
 * that is paused or revoked and of a task that is somebody else's or not approved, ERR_FORBIDDEN by
 * mode or owner, ERR_INVALID by column, capability or limit. `task` NULL: there is none.
 */
must_use int hub_step_check(const struct hub_by *by, const struct hub_task *task,
                            struct hub_step *step, struct err *err);
/* May it change the task at all? Its owner, creator and reviewers may, and people. */
must_use int hub_mover_check(const struct hub_by *by, const struct hub_task *task,
                             const char *agent, struct err *err);
/* Makes the agent its owner. */
must_use int hub_take_task(const struct hub_by *by, struct hub_task *task, const char *agent,
                           struct err *err);
/* 1: no room in that column for one more task of `holder` ("": of nobody); *limit says how many. */
must_use int hub_wip_full(const struct hub_by *by, const struct hub_task *task, const char *holder,
                          const char *status, int64_t *limit, struct err *err);
const char *hub_owner(const struct hub_task *task); /* NULL: nobody */
bool hub_owns(const struct hub_task *task, const char *agent);
bool hub_is_person(const char *name);

/* ---- proposal.c ---- */

/* `wish` is that of a move, NULL for a claim. */
must_use int hub_propose(const struct hub_by *by, const struct hub_task *task,
                         const struct hub_step *step, const struct hub_patch *wish,
                         struct hub_proposal *out, struct err *err);

/* ---- file.c, lease.c ---- */

must_use int hub_files_drop(const struct hub_by *by, const char *project, struct err *err);
must_use int hub_leases_end(const struct hub_by *by, const char *agent, const char *why,
                            struct err *err);
must_use int hub_leases_drop(const struct hub_by *by, const char *project, struct err *err);
/* Within a write job: those whose time is over, of any tenant; how many. */
must_use int hub_leases_sweep(struct db *db, int64_t now_ms, struct err *err);

/* ---- message.c ---- */

/* The first characters of a text, not bytes. */
struct str hub_first_of(const char *text, size_t characters);

/* Within a write job: acknowledged messages that are too old; how many. */
must_use int hub_messages_sweep(struct db *db, int64_t before_ms, struct err *err);

/* task.c: what a PATCH changes besides the column. */
must_use int hub_patch_words(const struct hub_by *by, struct hub_task *task,
                             const struct hub_patch *wish, uint64_t present, struct err *err);
