/*
 * init - process 1 of a sandbox; what its files share.
 *
 * One thread, one epoll. It spawns commands, owns their pipes and terminals, keeps their output
 * until the api has it, reaps everything, and obeys one connection at a time: a new one (the api
 * came back) replaces the old. It goes on without any. Nothing here trusts a frame; nothing here
 * is trusted by the api.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/guard.h"
#include "tree/tree.h"
#include "wire/init.h"

#define INIT_AGENT_UID 1000
#define INIT_LISTEN_FD 3 /* made by the warden */
#define INIT_LINK_FD 4   /* the first connection, or closed */

/* ---- out.c: bytes of one stream until they are acknowledged ---- */

struct out {
    int fd; /* to read from; -1 at the end */
    bool paused;
    char *mem;
    uint32_t cap;
    uint64_t begin; /* oldest byte held */
    uint64_t sent;  /* given to this connection */
    uint64_t end;   /* after the newest */
    uint64_t due;   /* when its command ended: up to here it may be the command's own */
    bool rest;      /* and that is read even if nobody takes it (not of an operation on files) */
};

void out_free(struct out *out);
/* Reads what is there: 1 got some, 0 nothing now or no room, -1 the stream has ended. */
int out_fill(struct out *out);
void out_ack(struct out *out, uint64_t position);
/* The next piece to send, at most `max` bytes: its address and length. */
size_t out_next(const struct out *out, size_t max, const char **data);
/* Bytes that it may hold. */
static inline uint32_t out_max(const struct out *out)
{
    return out->rest && out->end < out->due ? INIT_RING_ENDED : INIT_RING_SIZE;
}

static inline bool out_full(const struct out *out)
{
    return guard(output_pause) && out->end - out->begin >= out_max(out);
}

/* ---- exec.c: one command ---- */

struct exec {
    uint32_t id; /* the api's; 0: a free slot */
    pid_t pid;   /* 0 when not running */
    bool tty;
    bool operation; /* of ours on files, and not a command */
    bool ended;     /* waited for */
    bool told;      /* EXITED was said on this connection */
    bool draining;  /* ended and told: what still comes from its children is dropped */
    bool timed_out;
    bool felled;         /* all of it was killed: its end is told when nobody is left */
    int64_t look_ms;     /* when to look again whether somebody is */
    int64_t deadline_ms; /* 0: none */
    int64_t grace_ms;    /* ended, streams still open: when to stop waiting for them */
    struct out out[INIT_STREAMS];
    int in_fd; /* -1 when closed */
    bool in_eof, in_watched;
    bool in_room; /* the sender waits to hear that all was taken */
    char *in;
    uint32_t in_len, in_cap;
    uint64_t in_total; /* input so far */
    struct init_exited end;
};

extern struct exec execs[INIT_EXECS_MAX];
extern size_t exec_top; /* those at and above were never used: an idle init touches none of them */

struct exec *exec_find(uint32_t id);
/* Starts one; the answer says how it went. `fd` holds the texts, or is -1. */
void exec_start(uint32_t id, const struct init_exec *wish, const char *text, size_t len, int fd,
                struct init_started *answer);
/* 0, or EAGAIN when it does not fit now (nothing is taken then), or EPIPE when input is closed. */
int exec_input(struct exec *exec, const char *data, size_t len);
void exec_input_write(struct exec *exec);
bool exec_resize(struct exec *exec, const struct init_resize *size);
bool exec_signal(struct exec *exec, const struct init_signal *signal);
void exec_reaped(struct exec *exec, int status, const void *rusage);
/* Both streams are over, or their time is: EXITED may be said. */
/* All of it is to die; see `felled`. */
void exec_fell(struct exec *exec);
void exec_look(struct exec *exec, int64_t now);
bool exec_finished(const struct exec *exec, int64_t now_ms);
void exec_forget(struct exec *exec);
/* When all was said: what the next one needs; more of it when nothing else happens. */
void exec_ahead(bool quiet);
/* Lets go of that when it was not needed for long; when to look again, or 0. */
int64_t exec_ahead_due(int64_t now_ms);

/* ---- spawn.c: the new process ---- */

struct spawn {
    char **argv, **env, **files; /* files: rules as in wire/init.h, ended by NULL */
    const char *cwd;
    int stdio[3];
    int side; /* of a file operation: where its bytes go, as SPAWN_SIDE in it; 0: none */
    bool tty, as_root, builtin;
    bool spare; /* stdio is that of the process made ahead: it may become this command */
    uint32_t nofile;
    /* what happened in the child, through shared memory */
    int error;
    uint32_t step;
};

#define SPAWN_SIDE 3

/* The pid, or -1 with spawn->error and ->step. */
pid_t spawn(struct spawn *spawn);
/* A process made ahead, for a command of the agent's with these; none where that cannot be. */
void spawn_ahead(const int stdio[3]);
pid_t spawn_spare(void); /* that process, while it waits; or 0 */
void spawn_dismiss(void);
/*
 * Our table of descriptors is as large as the warden's was when we were made, eight bytes for each
 * of thousands, and the kernel makes a smaller one only for who shares it: so for a moment we do.
 */
void spawn_shed(void);
/*
 * In a new process: stdio, the workload's user with no more capabilities than it may have, cwd,
 * everything else closed. 0, or -1 with ->error and ->step.
 */
int spawn_become(struct spawn *spawn);

/* ---- files.c: rules about files ---- */

/*
 * In the new process, as its user: enters what `rules` say. 0, or errno with the number of the rule
 * (INIT_FILES_MAX: none of them).
 */
int files_enter(char *const *rules, uint32_t *which);

/* ---- builtin.c: a new process that runs our own code ---- */

pid_t builtin_spawn(struct spawn *spawn);

/* What the operations share, in that process. */
struct builtin {
    char **args; /* after the operation's name */
    bool side;   /* SPAWN_SIDE is there */
    struct tree_sink out;
    struct tree_fail fail;
};

must_use int builtin_flush(void);
must_use int builtin_write_all(int fd, const char *data, size_t len);
/* A descriptor that stands for the directory of `path`, and its last name; -1 with the fault. */
must_use int builtin_parent(struct builtin *job, const char *path, char name[]);
must_use int builtin_sys(struct builtin *job, const char *path); /* -1, from errno */
must_use int builtin_number(struct builtin *job, const char *text, int base, uint64_t max,
                            uint64_t *out);
/* Opened, and a place for files. */
must_use int builtin_open(struct builtin *job, const char *path, int flags);

/* builtin_file.c, builtin_tree.c, builtin_watch.c: 0, or -1 with the fault. */
int builtin_read(struct builtin *job);
int builtin_write(struct builtin *job);
int builtin_append(struct builtin *job);
int builtin_list(struct builtin *job);
int builtin_stat(struct builtin *job);
int builtin_mkdir(struct builtin *job);
int builtin_move(struct builtin *job);
int builtin_remove(struct builtin *job);
int builtin_tar(struct builtin *job);
int builtin_untar(struct builtin *job);
int builtin_manifest(struct builtin *job);
int builtin_changes(struct builtin *job);
int builtin_watch(struct builtin *job);
/* builtin_ps.c, builtin_port.c */
int builtin_ps(struct builtin *job);
int builtin_ports(struct builtin *job);
int builtin_connect(struct builtin *job);
/* builtin_trust.c */
int builtin_trust(struct builtin *job);

/* ---- java.c: what Java trusts ---- */

enum java {
    JAVA_OTHER, /* nothing that we can add to */
    JAVA_SAME,  /* it has this authority already */
    JAVA_NEW,   /* *out is the store with it; to be freed */
};

/* A store, and an authority in PEM that is to be in it. */
enum java java_trust(const uint8_t *store, size_t len, const char *pem, size_t pem_len,
                     uint64_t date_ms, uint8_t **out, size_t *out_len);

/* ---- tree.c ---- */

/* Sends to every process that descends from the exec, until none is found that had not got it. */
void tree_kill(const struct exec *exec, int signal);
/* Who is left of it is killed once more; false: nobody is. */
bool tree_left(const struct exec *exec);

/* ---- main.c ---- */

enum watch_kind {
    WATCH_LISTEN,
    WATCH_LINK,
    WATCH_SIGNAL,
    WATCH_OUT,
    WATCH_ERR,
    WATCH_IN,
    WATCH_NOBODY
};

bool watch_fd(int fd, uint32_t events, enum watch_kind kind, const struct exec *exec);
void watch_change(int fd, uint32_t events, enum watch_kind kind, const struct exec *exec);
int64_t now_ms(void);
/* Closes it when this round's answers are on their way. */
void close_late(int fd);
/* Takes a pipe of a command that is forgotten, for whoever still writes to it. */
void leave_open(int fd);

/* ---- link.c: the connection ---- */

extern int link_fd; /* -1: none */

void link_adopt(int fd);
void link_drop(void);
void link_readable(void);
/* Sends what is due and possible: output, exits. Called after every round. */
void link_flush(void);
uint32_t link_events(void); /* what to wait for: room to send, and requests if answers fit */
