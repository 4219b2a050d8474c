/*
 * gather - a log that is written in large pieces.
 *
 * SQLite writes two pieces for each page of its log, and a commit has dozens of pages. This stands
 * between it and the system's own file: pieces that follow each other are kept in memory, and
 * written in one call before the log is synced, read, measured or cut. A commit is synced before
 * anybody is told of it or sees it (synchronous = FULL), so what a kill takes was never promised.
 *
 * Private to store/; for the one writer.
 */
#pragma once

/* The name of the VFS to open with; like the default one in all else. */
const char *gather_vfs(void);
