/*
 * vault - secrets by name: values that only this server's own processes can use, and the secrets
 * of linked agents, of which only a hash is kept.
 *
 * A value goes in and never comes out by any surface; it is sealed (base/seal.h) before it reaches
 * the store. What it is for decides for whom:
 *
 *   server   the api process, under a key that is in a file beside the store and in no backup
 *   request  the egress process, which puts it into requests to the hosts it was put for. It is
 *            sealed to that process's key and bound to those hosts (policy/inject.h): the api
 *            process keeps it and can neither open it nor have it sent elsewhere
 *
 * Names are unique in a tenant whichever kind they are; those of agents in the whole server,
 * because an agent that connects says its name and nothing of a tenant.
 *
 * Everything with a struct db: inside a job.
 */
#pragma once

#include "auth/auth.h"
#include "base/hash.h"
#include "base/seal.h"
#include "policy/inject.h"

#define AGENT_SECRET_SIZE 65 /* 32 bytes in hex, and the NUL */

struct vault_keys {
    struct seal_key own;       /* of those for the server */
    struct seal_public egress; /* of those for requests */
};

/* What is to be kept. */
struct vault_value {
    struct str value;
    bool request;             /* otherwise for the server */
    const char *const *hosts; /* of one for requests; NULL-terminated, or NULL */
};

struct secret_row {
    char name[SECRET_NAME_MAX + 1], tenant[TENANT_MAX + 1], by[ID_SIZE];
    bool agent;
    bool request;                                 /* a value that is for requests */
    char hosts[INJECT_CONTEXT_MAX + 1];           /* its hosts, a newline between two */
    char placeholder[INJECT_PLACEHOLDER_LEN + 1]; /* stands for it inside sandboxes */
    int64_t version;                              /* from 1; one more with each new value */
    int64_t created_ms, changed_ms;
    unsigned char hash[SHA256_SIZE], next[SHA256_SIZE]; /* of an agent's */
    int64_t next_until_ms;                              /* `next` may be used until then; 0: none */
};

/* 1 to SECRET_NAME_MAX of [A-Za-z0-9._-], not beginning with a mark. */
must_use int secret_name_check(const char *name, const char *field, struct err *err);

/* A value, new or instead of the one there is. ERR_CONFLICT: the name is an agent's. */
must_use int vault_put(struct db *db, const struct vault_keys *keys, const char *tenant,
                       const char *name, const struct vault_value *value, const char *by,
                       struct secret_row *out, struct err *err);
/* One for the server, for those who use it; never for a reply. ERR_NOT_FOUND. */
must_use int vault_open(struct db *db, const struct seal_key *key, const char *tenant,
                        const char *name, struct buf *out, struct err *err);

/* One for requests, still sealed: appends its bytes and the context. ERR_NOT_FOUND. */
must_use int vault_sealed(struct db *db, const char *tenant, const char *name,
                          struct secret_row *row, struct buf *context, struct buf *sealed,
                          struct err *err);

/*
 * A secret for an agent; the plaintext exists nowhere else. ERR_CONFLICT: there is one of the name
 * already, of this tenant or of another.
 */
must_use int agent_secret_create(struct db *db, const char *tenant, const char *agent,
                                 const char *by, struct secret_row *out,
                                 char plain[AGENT_SECRET_SIZE], struct err *err);
/* Another one, valid besides the old until `until_ms`, or until agent_secret_settle. */
must_use int agent_secret_rotate(struct db *db, const char *tenant, const char *agent,
                                 int64_t until_ms, struct secret_row *out,
                                 char plain[AGENT_SECRET_SIZE], struct err *err);
/* The agent has shown the new one: it is the only one from now on. */
must_use int agent_secret_settle(struct db *db, const char *agent,
                                 const unsigned char hash[SHA256_SIZE], struct err *err);

/* By name. ERR_NOT_FOUND. */
must_use int secret_delete(struct db *db, const char *tenant, const char *name,
                           struct secret_row *out, struct err *err);
/* By name; tenant NULL: those of agents, of all tenants. */
must_use int secret_each(struct db *db, const char *tenant,
                         void (*fn)(void *ctx, const struct secret_row *row), void *ctx,
                         struct err *err);
