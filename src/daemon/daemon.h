/* daemon - the server's roles, as main.c starts them. */
#pragma once

#include <stdbool.h>

struct conf;

/*
 * `atoll serve`: opens everything that needs a name or a privilege, then becomes atoll-warden;
 * returns only when that failed, with an exit status. Takes conf. argv[1] is "serve"; what follows
 * is run again at a reload.
 */
int serve_main(struct conf *conf, int argc, char **argv);
/* `atoll serve … --resolve`: writes the settings to RESOLVE_FD_OUT for the warden. Takes conf. */
int resolve_main(struct conf *conf);

/* `atoll api`: the jailed process that serves. */
int api_main(void);
/* `atoll egress LOG_LEVEL LOG_FORMAT`: the jailed process that all sandboxes' traffic goes through.
 */
int egress_main(char **argv);

struct egress_signed;
/* `atoll proxy`: a process like that one, for callers who bring signed tokens. */
int proxy_main(const struct egress_signed *how);
