/*
 * quota - how much sandboxes may have: by rows that operators write, and by what the machine has.
 *
 * A row names a subject and limits: of all sandboxes of the subject together, and of each of them.
 *
 *     tenant:NAME       the sandboxes of a tenant; "tenant:*" each tenant that has no row of its
 * own role:NAME         what each principal of this role creates by:ID             what one
 * principal creates; "by:*" each principal label:KEY=VALUE   the sandboxes with a label;
 * "label:KEY=*" each value of it
 *
 * Every row that covers a sandbox is checked. Without a row for role agent, a default ceiling
 * applies to that role. The machine is checked afterwards: limits up to QUOTA_FREE_* are neither
 * counted nor refused, because most sandboxes use a fraction of their limits; larger ones must fit
 * the machine, and their sum must fit the machine times the overcommit factor. While several
 * tenants exist, a tenant without a row cannot take more than it leaves for the others.
 *
 * Rows are in memory and in the store. Loop thread, except where there is a struct db.
 */
#pragma once

#include "box/boxes.h"

struct disk_want;

#define QUOTA_MACHINE "machine"

enum quota_of { QUOTA_SANDBOXES, QUOTA_MEMORY, QUOTA_CPU, QUOTA_DISK, QUOTAS };

struct quota_limits {
    int64_t all[QUOTAS];  /* of all together; 0: no limit */
    int64_t each[QUOTAS]; /* of one; without the first */
};
extern const struct field quota_limits_fields[];

struct quota_row {
    const char *tenant; /* whose row; the rows about tenants are those of the server's owner */
    const char *subject, *by;
    struct quota_limits limits;
    int64_t changed_ms;
};

struct quota_view {
    const char *subject, *group, *by;
    struct quota_limits limits;
    int64_t used[QUOTAS];
    bool preset;
    int64_t changed_at;
};
extern const struct field quota_fields[];

/* Has the subject a form that means something? ERR_INVALID; ERR_LIMIT: too many rows. */
must_use int quota_check(struct boxes *boxes, const char *tenant, const char *subject,
                         struct err *err);
/* Is it about whole tenants, so that the owner of the server alone may change it? */
bool quota_of_tenants(const char *subject);
must_use int quota_row_set(struct db *db, const struct quota_row *row, struct err *err);
must_use int quota_row_remove(struct db *db, const char *tenant, const char *subject,
                              struct err *err);
/* In memory, after the commit. */
void quota_set(struct boxes *boxes, const struct quota_row *row);
void quota_remove(struct boxes *boxes, const char *tenant, const char *subject);
/* ERR_NOT_FOUND */
must_use int quota_find(struct boxes *boxes, const char *tenant, const char *subject,
                        struct quota_view *out, struct err *err);
/* The machine's row, the defaults in effect, then the rows that the tenant may see, by subject. */
void quota_each(struct boxes *boxes, const char *tenant, bool owner,
                void (*fn)(void *ctx, const struct quota_view *view), void *ctx);
/* Somebody of this tenant does something: from the second tenant on they share the machine. */
void quota_tenant(struct boxes *boxes, const char *tenant);
