/* open - from a path to a connection that may be trusted. Private to store/. */
#pragma once

#include "store/engine.h"
#include "store/schema.h"

/*
 * The writer's connection: takes the lock that says "in use", makes the store if there is none,
 * checks and migrates it. A large one is not read from end to end: `unread` says so.
 */
must_use int store_open_writer(struct db **out, const char *path, struct err *err);
/* The same with other steps, for tests of migrating. */
must_use int store_open_steps(struct db **out, const char *path, const struct migration *steps,
                              struct err *err);
/* One more connection to a store that this process has open for writing. */
must_use int store_open_reader(struct db **out, const char *path, struct err *err);
