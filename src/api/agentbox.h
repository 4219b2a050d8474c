/*
 * agentbox - what the handlers of sandbox.v1.SandboxService share; inside the api room.
 *
 * A session is a sandbox, whoever made it and however: its session id is the one it was created
 * with, or its name, or its own id. What agentbox knows and a sandbox does not (the id where it
 * cannot be a name, tenant, hosts) is kept in labels.
 */
#pragma once

#include <sandbox/v1/sandbox.pb-c.h>

#include "api/rpc.h"
#include "box/boxes.h"

#define SESSION_LABEL "agentbox.session"
#define TENANT_LABEL "agentbox.tenant"
#define HOSTS_LABEL "agentbox.hosts" /* one to a line */

#define NO_SESSION "Session not found"

/* The sandbox of the caller's tenant with this session id, or NULL. */
struct box *session_find(struct rpc *rpc, const char *session_id);
/* Of a sandbox's labels, or NULL. */
const char *session_label(const struct sandbox_view *view, const char *key);

/*
 * Goes on with `then` once the sandbox is awake, holding the call meanwhile. What `then` answers
 * with -1 ends the call. Returns as a handler does.
 */
typedef int (*session_fn)(struct rpc *rpc, struct box *box, struct err *err);
int session_awake(struct rpc *rpc, struct box *box, session_fn then, struct err *err);

/* Bytes as a text of proto3: what is no UTF-8, and NUL, becomes U+FFFD. True: nothing did. */
bool session_text(struct arena *arena, struct str bytes, char **out);

/* agentbox_exec.c, agentbox_file.c */
extern const struct rpc_method agentbox_exec, agentbox_exec_stream, agentbox_pip_install,
    agentbox_write_file, agentbox_read_file;
