/* machine - what this machine has for sandboxes, measured once, before the jail. */
#pragma once

#include "box/boxes.h"
#include "conf/conf.h"

/* The data directory is the working directory. What cannot be measured stays 0 and is not checked.
 */
void machine_measure(struct boxes_machine *out, const struct conf *conf);
