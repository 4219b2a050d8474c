/*
 * pages - SQLite's page cache, which is not walked through after every commit.
 *
 * When a transaction ends SQLite drops the pages behind the end of its file, and its own cache then
 * looks at each page it holds if it ever held one with a larger number. It nearly always has:
 * siblings that were split are given ascending numbers, by way of one far behind the end of the
 * file. This stands before that cache and knows when no such page is left.
 *
 * Private to store/.
 */
#pragma once

#include <sqlite3.h>

/* Before SQLite is initialised. */
void pages_apply(void);

/* For tests: one that stands before `real`, which has not been initialised. */
sqlite3_pcache_methods2 pages_before(const sqlite3_pcache_methods2 *real);
