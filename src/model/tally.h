/*
 * tally - commands counted under the names that agentic's dashboards and alerts read, wherever they
 * run: in sandboxes and on linked agents. Any thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

void tally_command_started(void);
void tally_command_ended(bool success, int64_t ms);
/* How long all of them together ran. */
int64_t tally_commands_ms(void);
