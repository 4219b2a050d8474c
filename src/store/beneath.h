/* beneath - a store in the working directory, for a process that may not walk there. */
#pragma once

/*
 * Before the first store_open: paths of databases are names in the working directory and nothing
 * else. The path given to store_open must be such a name.
 */
void store_beneath_cwd(void);

/* sqlite.c's, after its sqlite3_config calls. */
void beneath_apply(void);
