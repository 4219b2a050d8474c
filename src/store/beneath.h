/* beneath - a store in the working directory, for a process that may not walk there. */
#pragma once

/*
 * Before the first store_open: paths of databases count from the working directory, a leading slash
 * or not, and nothing outside of it opens. Give relative ones.
 */
void store_beneath_cwd(void);

/* sqlite.c's, after its sqlite3_config calls. */
void beneath_apply(void);
