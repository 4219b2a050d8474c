/*
 * layout - which descriptor stands where when one of our programs starts the next.
 *
 * `atoll serve` opens everything that needs a name or a privilege, then becomes the warden; the
 * warden gives each process it starts exactly what that role needs. Numbers instead of names: a
 * process that is told a path can be told the wrong one.
 */
#pragma once

#include "base/auto.h"

/* serve → warden */
enum warden_fd {
    WARDEN_FD_START = 3, /* sealed memfd, JSON: what holds as long as the server runs */
    WARDEN_FD_SETTINGS,  /* sealed memfd, JSON: what SIGHUP may replace; the warden reads neither */
    WARDEN_FD_ATOLL,     /* O_PATH of the atoll program, for execveat */
    WARDEN_FD_STATE,     /* O_PATH of the state directory */
    WARDEN_FD_LOCK,      /* STATE/lock, flocked */
    WARDEN_FD_DATA,      /* STATE/data, for the api process */
    WARDEN_FD_KEY,       /* STATE/egress.key, for the egress process; the warden does not read it */
    WARDEN_FD_ROOTS,     /* authorities in PEM, for the egress process; likewise */
    WARDEN_FD_LISTENERS, /* and on */
};

/* warden → api; 0 is /dev/null, 1 and 2 are the server's own */
enum api_fd {
    API_FD_LINK = 3,  /* wire.h */
    API_FD_START,     /* sealed memfd */
    API_FD_SETTINGS,  /* sealed memfd, the newest that were taken */
    API_FD_DATA,      /* its data directory */
    API_FD_LISTENERS, /* and on */
};

/* warden → egress; 0 to 2 as above */
enum egress_fd {
    EGRESS_FD_LINK = 3, /* wire.h */
    EGRESS_FD_KEY,      /* its private key; read by pread, others have the same open file */
    EGRESS_FD_ROOTS,    /* authorities in PEM besides the machine's; likewise */
};

/* warden → `atoll serve --resolve`: where it writes the new settings */
#define RESOLVE_FD_OUT 3

/* "trusted." or "user." before it: a cgroup's attribute, the path of its state directory. */
#define CGROUP_OWNER "atoll.state"

#define LISTENERS_MAX 33 /* CONF_LIST_MAX, and the Unix socket of the state directory */

/*
 * The warden's own arguments, all numbers, then the arguments of `atoll serve` (for SIGHUP):
 * atoll-warden LAYOUT API_UID API_GID LISTENERS LOG_LEVEL LOG_FORMAT DRAIN_MS IDS DISKS serve
 * [ARG]… An API_UID of -1 means: do not change who runs. IDS is then how many user ids there are
 * besides one's own in the user namespace that serve has entered, from 1 on; -1: it has entered
 * none. DISKS is the size of the image of all disks, when it is made; 0: most of what is free.
 */
#define WARDEN_LAYOUT 5 /* of all this; serve and warden must agree */
#define WARDEN_ARGS 10  /* before "serve", argv[0] included */

/*
 * How the api process ends. Anything else, or a signal, is a crash and it is started again.
 * EX_CONFIG of sysexits.h: starting again would end the same way (corrupt store, a jail that cannot
 * be made).
 */
#define API_EXIT_FINAL 78

/*
 * Before an exec: puts fds[i] at 3+i, open across the exec, and exec_fd behind them, closed by it;
 * everything else above 2 is closed. Where exec_fd went, or -1 with errno.
 */
#define PLACE_MAX (WARDEN_FD_LISTENERS + LISTENERS_MAX)
must_use int layout_place(const int *fds, unsigned count, int exec_fd);

/* The Unix socket's name in the state directory; the warden removes it when it ends. */
#define STATE_SOCKET "atoll.sock"
#define STATE_LOCK "lock"
#define STATE_TOKEN "admin.token"
#define STATE_DISKS "disks.img"       /* the disks of sandboxes */
#define STATE_EGRESS_KEY "egress.key" /* opens secrets for requests; for the egress process */
#define STATE_DATA "data"
#define STATE_DB "atoll.db"        /* in STATE_DATA */
#define STATE_KEY "secrets.key"    /* in STATE_DATA: opens the sealed values of the store */
#define STATE_DOCTOR "doctor.json" /* in STATE_DATA: what the machine can do (daemon/report.h) */
#define STATE_SPOOL "spool"        /* in STATE_DATA: output of commands */
#define STATE_LINK_SPOOL "links"   /* likewise, of linked agents */
