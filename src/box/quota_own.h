/* quota_own - what quota.c and admit.c share. */
#pragma once

#include "box/own.h"
#include "box/quota.h"

enum subject_kind { SUBJECT_TENANT, SUBJECT_ROLE, SUBJECT_BY, SUBJECT_LABEL, SUBJECT_KINDS };

struct subject {
    enum subject_kind kind;
    struct str key, value; /* key: of a label */
    bool star;
};
bool subject_parse(const char *text, struct subject *out);

struct quota {
    struct list node; /* by subject */
    char tenant[BOX_TENANT_MAX + 1], subject[QUOTA_SUBJECT_MAX + 1], by[ID_SIZE];
    struct subject about; /* of the text above */
    struct quota_limits limits;
    bool preset;
    int64_t changed_ms;
};
struct quota *quota_named(const struct boxes *boxes, const char *tenant, const char *subject);

/* Does it count at all? One that waits in a pool, or serves the server itself, does not. */
bool quota_counts(const struct box *box);
/* Who would ask for a sandbox like this one. */
struct quota_ask quota_ask_of(const struct box *box);
/* Is what is asked for within the subject of the row? */
bool quota_covers(const struct boxes *boxes, const struct quota *quota,
                  const struct quota_ask *ask);
/* What the group of the row that the asker is in has, without ask->box. */
void quota_used(struct boxes *boxes, const struct quota *quota, const struct quota_ask *ask,
                int64_t out[QUOTAS]);
/* Value of a label; NULL: there is none. */
const char *quota_label(const struct field_pair *labels, struct str key);
/* The ceiling of role agent where the tenant has written none. */
bool quota_preset(const struct boxes *boxes, const char *tenant, struct quota *out);
void quota_machine(struct boxes *boxes, struct quota_view *out);
