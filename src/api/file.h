/* file - what the handlers of files share; inside the api room. */
#pragma once

#include "api/own.h"
#include "box/job.h"
#include "model/file.h"

#define SIDE_LEAST 65536 /* less is as soon there by the usual way */

/* One operation on its way: a job in the sandbox and the call that waits for it. */
struct fileop {
    struct box_job job;
    struct box_op op;
    struct call *call;    /* NULL: answered, or nobody waits */
    struct box *box;      /* while its job is under way */
    char id[BOX_ID_SIZE]; /* of the box */
    const char *path;     /* in the call's arena */
    struct buf out;       /* output that is not passed on yet */
    struct err err;       /* of the job */
    bool changes;         /* to be recorded */
    /* up */
    struct buf rest;
    uint64_t bytes;
    bool last, read_paused, failed;
    uint64_t discarded;
    /* down */
    struct http_req *req; /* once the answer has begun */
    struct list node;     /* in the api's files */
    char who[ID_SIZE];
    enum { DOWN_FILE, DOWN_TAR, DOWN_MANIFEST, DOWN_CHANGES, DOWN_WATCH } what;
    bool headed; /* DOWN_FILE: the record was seen */
};

/* file.c */
struct fileop *fileop_new(struct call *call, const char *path_query, struct err *err);
/* The same, of a sandbox and a path that are known. */
struct fileop *fileop_at(struct call *call, struct box *box, const char *path, struct err *err);
void fileop_free(struct fileop *op);
/* Starts the job: `args` end with NULL. On failure the operation is freed. */
must_use int fileop_start(struct fileop *op, const char *const *args, bool input, struct err *err);
/* One record as JSON. `name` replaces the record's, unless NULL. */
void file_put(struct json_out *json, const struct tree_entry *entry, const char *name);
/* The audit row of a change, then the answer; takes the operation. `err` NULL: it was done. */
void fileop_record(struct fileop *op, const struct err *err);

/* file_up.c */
int file_write(struct call *call, struct err *err);
int file_append(struct call *call, struct err *err);
int tree_put(struct call *call, struct err *err);
/* file_down.c */
int file_read(struct call *call, struct err *err);
int tree_get(struct call *call, struct err *err);
int manifest_get(struct call *call, struct err *err);
int changes_get(struct call *call, struct err *err);
int watch_get(struct call *call, struct err *err);
