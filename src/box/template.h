/*
 * template - a wish for a sandbox under a name, so that it can be wished again with fewer words.
 *
 * A creation that names one gets from it what it does not say itself; of environment and labels,
 * name by name. What is taken is taken then: a template that changes changes no sandbox. All are in
 * memory and in the store. Loop thread, except where there is a struct db.
 */
#pragma once

#include "box/boxes.h"

struct template;

struct template_view {
    const char *name, *by;
    const struct sandbox_spec *spec; /* as it was said: zero and NULL are left to the defaults */
    int64_t changed_at;
};
extern const struct field template_fields[];

/* Can `text`, decoded as `spec`, be the template of this name? ERR_RATE: there are too many. */
must_use int template_check(struct boxes *boxes, const char *tenant, const char *name,
                            const struct sandbox_spec *spec, struct err *err);
struct template_row {
    const char *tenant, *name, *by;
    const char *text; /* of the wish, as it came */
    int64_t changed_ms;
};
/* In a write job, and then, after the commit, in memory. */
must_use int template_row_set(struct db *db, const struct template_row *row, struct err *err);
must_use int template_row_remove(struct db *db, const char *tenant, const char *name,
                                 struct err *err);
must_use int template_set(struct boxes *boxes, const struct template_row *row, struct err *err);
void template_remove(struct boxes *boxes, const char *tenant, const char *name);

/* ERR_NOT_FOUND */
must_use int template_find(struct boxes *boxes, const char *tenant, const char *name,
                           struct template **out, struct err *err);
/* The next one of the tenant, by name; NULL begins and ends. */
struct template *template_next(struct boxes *boxes, const char *tenant, struct template *after);
void template_view(const struct template *template, struct template_view *out);
const struct sandbox_spec *template_spec(const struct template *template);

/* Fills into `spec` what it leaves unsaid, from the template that it names; with the arena. */
must_use int template_apply(struct boxes *boxes, const char *tenant, struct sandbox_spec *spec,
                            struct arena *arena, struct err *err);
