/*
 * init - what the api process and a sandbox's process 1 say to each other.
 *
 * SOCK_SEQPACKET, one frame a datagram: a fixed head, then a payload of at most INIT_PAYLOAD_MAX
 * bytes. Both ends treat the other as hostile: the init runs among the workload, and a frame is
 * believed only after init_frame_ok. Numbers are in the host's byte order; both ends are one
 * machine.
 *
 * Output is never lost and never doubled. Each byte of a stream has a position, counted from 0. The
 * init holds every byte until the api has said ACK for it (the api has put it into a file by then);
 * when INIT_RING_SIZE bytes wait it stops reading, so the command blocks instead. An api that comes
 * back says ATTACH with the positions it has, and gets the rest. EXITED is said again after each
 * ATTACH until FORGET.
 *
 * Input has positions too. A frame of it is taken whole or refused, and LISTED says how much was
 * taken: what an api had on its way when it was killed is in that count, or is lost for good.
 */
#pragma once

#include <linux/capability.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/auto.h"

#define INIT_MAGIC 0x31494c41u /* "ALI1" */
/*
 * A sandbox outlives the server that made it, so an init may be older, or newer, than the api that
 * opens it: READY tells. Every change of a frame, or of what one means, makes this one more. The
 * heads and READY itself never change, so that any two versions can tell each other apart.
 */
#ifndef INIT_VERSION /* a build for tests is of another release */
#define INIT_VERSION 5
#endif
/*
 * What process 1 needs to serve as the workload's user and to look after it; the warden leaves it
 * no more (and nothing at all where there is only one user), its commands get less.
 */
#define INIT_CAP(cap) (UINT64_C(1) << (cap))
#define INIT_CAPS                                                                                  \
    (INIT_CAP(CAP_CHOWN) | INIT_CAP(CAP_DAC_OVERRIDE) | INIT_CAP(CAP_FOWNER) |                     \
     INIT_CAP(CAP_FSETID) | INIT_CAP(CAP_KILL) | INIT_CAP(CAP_SETGID) | INIT_CAP(CAP_SETUID) |     \
     INIT_CAP(CAP_SETPCAP) | INIT_CAP(CAP_NET_BIND_SERVICE) | INIT_CAP(CAP_SETFCAP) |              \
     INIT_CAP(CAP_SYS_PTRACE))

#define INIT_FRAME_MAX 65536
#define INIT_PAYLOAD_MAX (INIT_FRAME_MAX - sizeof(struct init_head))
#define INIT_RING_SIZE 262144
/*
 * Once a command has ended, what it left in its pipe is read too, so that its end can be told while
 * a reader holds it back. A pipe has 1 MiB at most, unless the machine's owner allows more.
 */
#define INIT_RING_ENDED 2097152
#define INIT_EXECS_MAX 256     /* living or not yet forgotten */
#define INIT_ARGS_MAX 1048576u /* argv, env and cwd; beyond a frame they come in a memfd */
#define INIT_ARGC_MAX 4096
#define INIT_PORTS_MAX 1024     /* listeners told at once */
#define INIT_FILES_MAX 128      /* rules about files of one exec */
#define INIT_STDIN_QUEUE 262144 /* unsent input of one exec; more is refused */

enum init_type {
    /* api to init */
    INIT_EXEC = 1, /* struct init_exec, then (or in a memfd beside it) the texts */
    INIT_STDIN,    /* bytes; an empty payload is the end */
    INIT_SIGNAL,   /* struct init_signal */
    INIT_RESIZE,   /* struct init_resize */
    INIT_ACK,      /* struct init_ack */
    INIT_ATTACH,   /* struct init_attach: exec = 0 begins a connection, else one exec */
    INIT_FORGET,   /* no payload: an ended exec */
    INIT_LIST,     /* no payload */
    INIT_PING,
    /* init to api */
    INIT_READY = 64, /* struct init_ready */
    INIT_STARTED,    /* struct init_started */
    INIT_OUTPUT,     /* struct init_output, then bytes */
    INIT_EXITED,     /* struct init_exited */
    INIT_LISTED,     /* struct init_listed[] */
    INIT_ERROR,      /* struct init_error: the frame it answers was refused */
    INIT_STDIN_ROOM, /* struct init_room: all input so far was taken, so much may be sent now;
                      * input beyond it is refused (EAGAIN), input after its end EPIPE */
    INIT_PONG,
};

struct init_head {
    uint32_t magic;
    uint16_t type;
    uint16_t flags;
    uint32_t exec; /* the api's own number of the command; 0 for none */
    uint32_t len;  /* of the payload */
};

enum { INIT_OUT = 0, INIT_ERR = 1, INIT_STREAMS = 2 }; /* a terminal has only OUT */

enum init_exec_flag {
    INIT_TTY = 1,        /* a terminal instead of pipes */
    INIT_STDIN_OPEN = 2, /* input will follow; otherwise it is at its end */
    INIT_AS_ROOT = 4,    /* user 0 inside, with the short capability list */
    INIT_TEXT_FD = 8,    /* the texts are in the descriptor beside the frame */
    INIT_BUILTIN = 16,   /* argv is a file operation of init's own, see below */
    INIT_SIDE = 32,      /* the descriptor beside the frame is a stream for the operation's bytes */
};

/*
 * Texts follow: `argc` NUL-terminated arguments, `envc` NUL-terminated settings, `filec` rules,
 * then the cwd. A rule is a letter and an absolute path: r or w of the first set, R or W of the
 * second; r is read and execute, w everything. What a set with rules does not name is closed to the
 * command and all it starts, but for the places of src/init/files.c; with two, what both leave open
 * is open.
 */
struct init_exec {
    uint32_t flags;
    uint32_t argc, envc, text_len;
    uint16_t rows, cols;
    uint32_t timeout_ms; /* 0: none; at the end the whole tree is killed */
    uint32_t nofile;     /* 0: as init has it */
    uint32_t filec;      /* 0: no rules; a file operation has none */
};

/*
 * File operations: init's own code, in a child that has become the workload's user. Numbers are
 * decimal, modes octal, switches 0 or 1. Input and output are those of any command. A path is
 * looked up by the kernel, inside, from the cwd, through no magic link and nowhere below /proc.
 *
 *   read PATH                    a tree_record; then, told by a struct init_range on its input,
 * bytes write PATH MODE|- SYNC       input becomes the file at its end, at once; a tree_record
 *   append PATH SYNC             a tree_record
 *   list PATH AFTER LIMIT        tree_records of names behind AFTER, sorted
 *   stat PATH FOLLOW             a tree_record
 *   mkdir PATH MODE PARENTS
 *   move FROM TO REPLACE
 *   remove PATH RECURSIVE
 *   tar PATH                     an archive
 *   untar PATH                   input is an archive; a struct init_unpacked
 *   manifest PATH                tree_records of everything below, with digests
 *   changes PATH                 of a view (BOX_MOUNT_VIEW) at PATH, the tree_records of tree_view
 *   watch PATH RECURSIVE         struct init_seen, each with its path, until killed
 *   ps                           struct init_process of each process, each with its command line
 *   ports                        struct init_port for each TCP port that is listened on
 *   connect PORT                 one byte INIT_CONNECTED once something on the sandbox's own
 *                                loopback has taken the connection (127.0.0.1, else ::1); then its
 *                                bytes, both ways, until it closes; the end of the input is told it
 *
 *   trust HASH                   as root: input is the certificate of an authority in PEM, which
 *                                programs here trust from now on; HASH is OpenSSL's of its subject
 *
 *   beneath DIR …                before read, write, append, stat and mkdir: PATH is relative to
 * DIR, and what its links lead out of it is not found (EXDEV)
 *
 * One that fails exits with INIT_BUILTIN_FAILED and has a struct init_fault on its errors, followed
 * by the path that it is about.
 */
#define INIT_BUILTIN_FAILED 1
/* What `trust` makes besides changing files of the system. */
#define TRUST_DIR "/etc/ssl/atoll"
#define TRUST_AUTHORITY TRUST_DIR "/ca.pem"
#define TRUST_BUNDLE TRUST_DIR "/bundle.pem" /* everything that is trusted */
#define INIT_BUILTIN_ARGS 4
#define INIT_FAULT_MAGIC 0x544c4146u /* "FALT" */
#define INIT_WATCH_DIRS_MAX 4096

struct init_fault {
    uint32_t magic;
    int32_t error; /* errno */
    uint32_t why;  /* enum tree_why */
    uint32_t path_len;
};

struct init_range {
    uint64_t offset, len;
    uint64_t side; /* 1: into the stream that came with the operation, not its output */
};

struct init_unpacked {
    uint64_t entries, bytes;
};

enum init_seen_what {
    INIT_SEEN_CREATED = 1,
    INIT_SEEN_CHANGED,
    INIT_SEEN_REMOVED,
    INIT_SEEN_MOVED_FROM,
    INIT_SEEN_MOVED_TO,
    INIT_SEEN_MODE,
    INIT_SEEN_LOST, /* events were dropped: look again */
    INIT_SEEN_WHATS
};

struct init_seen {
    uint8_t what, is_dir;
    uint16_t path_len; /* of the path below the watched directory, which follows; 0 itself */
};

struct init_port {
    uint16_t port;
    uint8_t six;  /* of IPv6 */
    uint8_t open; /* for every address of the sandbox, not for loopback alone */
    uint32_t uid; /* whose socket it is, as seen inside */
};

#define INIT_PROCESS_TEXT 4096 /* of a command line; the rest is left out */

struct init_process {
    uint32_t pid, parent, uid, threads;
    uint64_t rss, cpu_us; /* bytes; microseconds */
    uint8_t state;        /* the kernel's letter */
    uint8_t unused;
    uint16_t text_len; /* of the command line, which follows */
    uint32_t unused_too;
};

#define INIT_CONNECTED 6 /* ASCII's ACK */

struct init_signal {
    int32_t number;
    uint32_t tree; /* 0: the command's process group; 1: every descendant too */
};

struct init_resize {
    uint16_t rows, cols;
};

struct init_ack {
    uint64_t position[INIT_STREAMS]; /* everything before these is safe elsewhere */
};

struct init_attach {
    uint64_t position[INIT_STREAMS];
};

struct init_ready {
    uint32_t version, execs;
};

struct init_started {
    int32_t pid;   /* inside; 0 when it did not start */
    int32_t error; /* errno, with pid 0 */
    uint32_t step; /* enum init_step: where it failed */
};

enum init_step {
    INIT_STEP_NONE,
    INIT_STEP_LIMIT,
    INIT_STEP_TEXT,
    INIT_STEP_PIPES,
    INIT_STEP_TTY,
    INIT_STEP_SPAWN,
    INIT_STEP_CWD,
    INIT_STEP_USER,
    INIT_STEP_FIND,
    INIT_STEP_EXECVE,
    INIT_STEP_FILES /* and the number of the rule; and INIT_FILES_MAX: none of them */
};

struct init_output {
    uint32_t stream, unused;
    uint64_t position;
};

struct init_exited {
    int32_t code;       /* of exit, or -1 */
    int32_t signal;     /* that ended it, or 0 */
    uint32_t timed_out; /* by timeout_ms */
    uint32_t unused;
    uint64_t end[INIT_STREAMS]; /* final positions */
    uint64_t user_us, system_us, maxrss_kb;
};

struct init_listed {
    uint32_t exec, running;
    uint64_t begin[INIT_STREAMS], end[INIT_STREAMS]; /* what is held */
    uint64_t taken;                                  /* input so far */
};

struct init_error {
    int32_t error;
    uint32_t type; /* of the frame */
};

struct init_room {
    uint64_t bytes;
    uint64_t taken; /* input so far */
};

/* Is this datagram a whole, known frame going `to_init` (or from it)? Payload sizes are checked
 * too. */
bool init_frame_ok(const void *data, size_t len, bool to_init);
const char *init_step_name(uint32_t step);
