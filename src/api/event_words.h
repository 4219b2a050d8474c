/* event_words - events as agentic's clients ask for them and know them; see event_words.c. */
#pragma once

#include "api/own.h"

/* Was one of its words in the query: follow, source, event_type, include_archived, a time? */
bool event_words_asked(struct call *call);
/* The types that `event_type` means, as a filter; NULL: all. */
const char *event_words_types(struct call *call);
/* ?since= as a time; -1: there is none, or it is a number. */
must_use int event_words_since(struct call *call, int64_t *at_ms, struct err *err);
must_use int event_words_check(struct call *call, struct err *err);

/* Is it about this agent or machine? */
bool event_words_about(const struct event *event, const char *source);
void event_words_put(struct json_out *json, const struct event *event);
/* ON_READER: the newest first. */
must_use int event_words_page(struct call *call, struct err *err);
int event_words_post(struct call *call, struct err *err); /* ON_WRITER */
extern const struct field event_post_fields[];
