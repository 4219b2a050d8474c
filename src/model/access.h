/*
 * access - which caller reaches which object of a tenant.
 *
 * Every object that callers make has an owner, a visibility and a list of principals that it is
 * given to (struct access). Every look-up of an object takes a struct reach, which says what the
 * caller may reach; an object that is out of reach is answered like one that does not exist. The
 * zero struct reach reaches nothing.
 *
 * No I/O. All texts are borrowed.
 */
#pragma once

#include "base/limits.h"
#include "model/field.h"

struct access {
    const char *owner;        /* name of a token; NULL: the principal that made the object */
    const char *visibility;   /* "private" or "tenant"; NULL: private */
    const char **shared_with; /* names of tokens; NULL: none */
};

struct reach {
    const char *tenant; /* NULL together with `all`: every tenant */
    bool all;           /* every object of the tenant */
    const char *id;     /* the caller's own id; NULL: none */
    const char *name;   /* the caller's name, as access names it; NULL: none */
    const char *box;    /* id of the sandbox that the caller runs in; NULL: none */
};

/* Everything of one tenant (NULL: of all tenants), for the server's own work. */
static inline struct reach reach_all(const char *tenant)
{
    return (struct reach){ .tenant = tenant, .all = true };
}
/* With texts that live as long as the arena. */
struct reach reach_copy(struct arena *arena, struct reach from);

/* Is the object of this tenant, made by the principal `by`, within reach? */
bool reach_has(struct reach reach, const char *tenant, const char *by, const struct access *access);
/* May the caller change the object's access: is it the caller's own, or does it reach everything?
 */
bool reach_owns(struct reach reach, const char *tenant, const char *by,
                const struct access *access);

/* The fields of a struct access in the table of `struct_`, whose member is `access`. */
#define ACCESS_FIELD(struct_, name_, type_, flags_, ...)                                           \
    {                                                                                              \
        .name = #name_, .type = type_, .flags = flags_,                                            \
        .offset = offsetof(struct struct_, access.name_), __VA_ARGS__                              \
    }
#define ACCESS_FIELDS(struct_, flags_)                                                             \
    ACCESS_FIELD(struct_, owner, F_STRING, flags_, .min = 1, .max = TOKEN_NAME_MAX,                \
                 .help = "Name of the token that owns it; the caller unless given. Only an "       \
                         "operator may name another owner"),                                       \
        ACCESS_FIELD(struct_, visibility, F_ENUM, flags_, .choices = "private|tenant",             \
                     .help = "private (default): tokens of role agent reach it only as its owner " \
                             "or through shared_with; tenant: every token of the tenant does"),    \
        ACCESS_FIELD(struct_, shared_with, F_STRINGS, flags_, .max = ACCESS_SHARED_MAX,            \
                     .each_max = TOKEN_NAME_MAX,                                                   \
                     .help = "Names of tokens of role agent that may use it like its owner")
extern const struct field access_fields[];

struct access access_copy(struct arena *arena, const struct access *from);
/* As a reply shows it: `by` where no other owner was named, and the default visibility. */
struct access access_shown(const struct access *access, const char *by);
/* Members of the body of an event: who besides operators may read it (access_read_by). */
void access_put(struct json_out *json, const struct access *access, const char *by);
/* As a column of the store: "" when nothing was said. */
const char *access_text(struct arena *arena, const struct access *access);
must_use int access_read(struct arena *arena, struct str text, struct access *out, struct err *err);

/* A request body with these fields and no other. */
struct access_wish {
    struct access access;
};
enum { ACCESS_OWNER, ACCESS_VISIBILITY, ACCESS_SHARED }; /* places in access_fields */
/* Takes from `wish` what bit `first` + place of `present` says was given. */
void access_merge(struct access *access, const struct access *wish, uint64_t present,
                  unsigned first);
