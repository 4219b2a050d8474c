/* upload - one request whose body is written piece by piece, with its progress on a terminal. */
#pragma once

#include "cli/cli.h"

struct upload {
    struct cli *cli;
    struct client *client;
    uint64_t sent;
    int64_t told_ms;
    bool refused; /* the server has stopped reading: upload_end has its answer */
};

void upload_free(struct upload *upload);
#define autoupload auto_with(upload_free)

must_use int upload_begin(struct upload *upload, struct cli *cli, const char *path,
                          struct err *err);
must_use int upload_put(struct upload *upload, const void *data, size_t len, struct err *err);
/* Everything that a descriptor has. */
must_use int upload_fd(struct upload *upload, int fd, const char *name, struct err *err);
/* That was all: the answer, as cli_call gives it. */
must_use int upload_end(struct upload *upload, const struct json **out, struct err *err);
