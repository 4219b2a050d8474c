/* event_words - events as agentic's clients ask for them and know them; see event_words.c. */
#pragma once

#include "api/own.h"

/*
 * In whose words the query is: agentic's (follow, source, event_type, include_archived, a time as
 * since), our own (since, type, object), or without any parameter that would tell.
 */
enum event_words { EVENT_WORDS_OWN, EVENT_WORDS_AGENTIC, EVENT_WORDS_BOTH };
enum event_words event_words_asked(struct call *call);
/* ?since= as a time; -1: there is none, or it is a number. */
must_use int event_words_since(struct call *call, int64_t *at_ms, struct err *err);
must_use int event_words_check(struct call *call, struct err *err);

/* Is it about this agent or machine? */
bool event_words_about(const struct event *event, const char *source);
void event_words_put(struct json_out *json, const struct event *event);
/* The same members in an object that is open. */
void event_words_members(struct json_out *json, const struct event *event);
/* ON_READER: {events, total_count, last_event_id}, the newest first, in an object that is open. */
must_use int event_words_page(struct call *call, struct json_out *json, struct err *err);
int event_words_post(struct call *call, struct err *err); /* ON_WRITER */
extern const struct field event_post_fields[];
