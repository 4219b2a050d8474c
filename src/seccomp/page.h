/*
 * page - the manual page of the filter, written from its table.
 */
#pragma once

#include <stdio.h>

#include "seccomp/policy.h"

/* docs/seccomp.md, in Markdown. */
void seccomp_page(FILE *out, const struct seccomp_policy *policy);
