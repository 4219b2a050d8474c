/*
 * limits - every maximum in one place. What a peer sends can never grow without one of these.
 * Each has a test at the limit and one past it.
 */
#pragma once

/* Logs */
#define LOG_VALUE_MAX 1024
#define LOG_KEPT_MAX 2000     /* lines that /api/v1/logs can tell… */
#define LOG_LINES_DEFAULT 200 /* …and does, unless asked for another number */
#define LOG_LINE_MAX 4096 /* PIPE_BUF: a line is written whole or not at all, also into a pipe */

/* HTTP, both versions */
#define HTTP_LINE_MAX 8192            /* request line */
#define HTTP_HEAD_MAX 32768           /* whole head, continuation frames included */
#define HTTP_FIELDS_MAX 100           /* header fields */
#define HTTP_DECODED_HEAD_MAX 65536   /* HTTP/2, after HPACK */
#define HTTP_BODY_DEFAULT_MAX 1048576 /* unless the route says otherwise */
#define HTTP_BODY_STREAM_MAX (64ull << 30)
#define HTTP_CHUNK_LINE_MAX 256 /* chunk size and extensions */
#define HTTP_TRAILER_MAX 8192
#define HTTP_HEAD_TIMEOUT_MS 10000 /* first byte to end of head */
#define HTTP_KEEPALIVE_MS 60000    /* idle between requests */
#define HTTP_BODY_MIN_RATE 1024    /* bytes per second, over HTTP_BODY_WINDOW_MS */
#define HTTP_BODY_WINDOW_MS 10000
#define HTTP_WRITE_STALL_MS 30000 /* a peer that reads nothing for this long is cut */
#define HTTP_LINGER_MS 2000       /* for a peer to read our last words, while it still sends */
#define HTTP_LINGER_BYTES_MAX 4194304
#define HTTP_OUT_HIGH 262144 /* unsent bytes: above this a producer must wait */
#define HTTP_OUT_MAX 1048576 /* unsent bytes: above this the peer is cut (1013 on WS) */
#define HTTP_CONNS_MAX 16384
#define HTTP_CONNS_PER_PEER_MAX 16384 /* by address; loopback peers are many programs */
#define HTTP_PIPELINE_MAX 64          /* requests answered per readable event before others run */
#define H2_STREAMS_MAX 100
#define H2_RESETS_MAX 200 /* per H2_RESET_WINDOW_MS, then GOAWAY */
#define H2_RESET_WINDOW_MS 10000
#define H2_CONTINUATIONS_MAX 8
#define H2_STREAM_WINDOW 262144 /* body bytes that a stream may send ahead of its reader */
#define H2_CONN_WINDOW 1048576  /* and all streams of a connection together */
#define H2_OUT_MAX 8388608      /* unsent bytes of all streams of a connection */
#define H2_ACKS_MAX 256         /* unsent answers to PING and SETTINGS */
#define H2_IDLE_FRAMES_MAX 1000 /* frames that move nothing, per H2_RESET_WINDOW_MS */
#define WS_MESSAGE_MAX 1048576
#define WS_EMPTY_MAX                                                                               \
    64 /* frames without data inside one message; each costs work and moves nothing */
#define WS_PINGS_MAX 60  /* per minute, pings and pongs together */
#define WS_PING_MS 30000 /* we ping this often; a peer silent between two is gone */
#define WS_CLOSE_MS 5000 /* from our close frame to the peer's */
#define GRPC_MESSAGE_MAX 4194304
#define RPC_FIELDS_MAX 16384          /* of one message, those inside it included */
#define RPC_DEPTH_MAX 8               /* messages inside one another */
#define METRICS_MS 5000               /* between two metrics_update of the same agent */
#define HEALTH_WATCHES_MAX 64         /* at once; anybody may open one */
#define RPC_STREAM_BYTES_MAX 16777216 /* of memory for all messages of one stream from a client */

/* JSON */
#define JSON_DEPTH_MAX 64
#define JSON_SIZE_MAX 16777216
#define JSON_VALUES_MAX 1048576 /* of one document: "[0,0,…" must not cost 24 times its size */

/* Requests */
#define IDEMPOTENCY_KEY_MAX 255
#define IDEMPOTENCY_KEEP_MS (24ll * 3600 * 1000)
#define IDEMPOTENCY_REPLY_MAX 262144
#define REQUEST_ID_MAX 64
#define PAGE_DEFAULT 100
#define PAGE_MAX 1000
#define PAGE_BYTES 1048576 /* of a page of a list: no row is added behind so many */
#define PAGE_LOOK_MAX 4096 /* rows that are checked against the filter for one page */

/* Auth */
#define TOKEN_NAME_MAX 64
#define ACCESS_SHARED_MAX 32 /* principals that one object is given to */
#define TOKENS_MAX 10000
#define TOKEN_USED_EVERY_MS 60000 /* between two notes that a token was used */
#define AUTH_FAILS_PER_MIN 10     /* per peer, then 429 */
#define AUTH_SKEW_MS 60000        /* signed requests */
#define AUTH_NONCE_MAX 64
#define AUTH_NONCE_MIN 8
#define AUTH_PEERS_MAX 2048     /* whose failures are remembered; the oldest makes room */
#define AUTH_RATES_MAX 4096     /* principals whose pace is remembered; likewise */
#define AUTH_REPLAYS_MAX 196608 /* signed requests remembered in memory, per two minutes */
#define SESSIONS_MAX 10000      /* live browser sessions */
#define LOGIN_CODES_MAX 1000    /* login links that nobody has used yet */
#define LOGIN_LINK_MS (10ll * 60 * 1000)
#define LOGIN_SESSION_MS (12ll * 3600 * 1000)
#define RATE_PER_SECOND 20000 /* per principal, unless configured */
#define RATE_BURST 40000
#define REFUSALS_AUDITED_PER_MIN 120 /* per peer; the rest are counted in one row */
#define REFUSALS_AUDITED_MAX 1200    /* of all peers, per minute; likewise */

/* Secrets */
#define SECRET_NAME_MAX 63
#define SECRET_VALUE_MAX 65536
#define SECRETS_MAX 4096           /* of a tenant */
#define SECRET_GRACE_DEFAULT_S 300 /* an old secret of an agent beside its new one */
#define SECRET_GRACE_MAX_S 86400

/* Store, events */
#define STORE_BATCH_MAX 256        /* calls sharing one commit */
#define STORE_REDO_MAX (8ll << 20) /* bytes that they bound; then it commits */
#define STORE_QUEUE_MAX 4096       /* waiting calls; then 503 */
#define STATE_LOCK_WAIT_MS 5000    /* for what a killed server left behind to end */
#define STATE_LOCK_LOOK_MS 20
#define STORE_BUSY_MS 5000               /* for a lock that another program holds */
#define STORE_CHECK_NOW_MAX (32ll << 20) /* file size: up to this, checked before it is served */
#define STORE_LOG_FRAMES 8192            /* pages in the log: then they are moved between batches */
#define STORE_LOG_FRAMES_MAX 16384       /* then readers of old pages are waited for… */
#define STORE_LOG_WAIT_MS 50             /* …this long */
#define STORE_LOG_IDLE_MS 200            /* without work: then they are moved too */
#define STORE_GATHER_MAX 65536           /* bytes of the log in one call; SQLite takes 131071 */
#define STORE_LOG_ROOM (8ll << 20)       /* bytes of the log that are there before they are used */
#define STORE_SWEEP_ROWS 1000            /* removed by one sweep */
#define EVENT_BODY_MAX 65536
#define EVENTS_WORDS_MAX 5000    /* in one answer to a client of agentic… */
#define EVENTS_BACK_MAX 50000    /* …which looks at so many for it */
#define EVENT_NAME_MAX 256       /* of a type or an object */
#define EVENT_PAGE_BYTES 1048576 /* a page ends early when its bodies pass this */
#define EVENT_KEEP_MS (7ll * 24 * 3600 * 1000)
#define EVENT_KEEP_ROWS 1000000
#define AUDIT_ROW_MAX 65536
#define BUS_RING_EVENTS 1024   /* newest events of a tenant kept in memory… */
#define BUS_RING_BYTES 1048576 /* …as long as they are not more than this */
#define BUS_PAGE 256           /* events read from the store at once for one subscriber */
#define BUS_REPLAYS_MAX 16     /* such reads under way; other subscribers wait for their turn */
#define BUS_TURN 64 /* events given to one subscriber that catches up before others run */
#define SUBSCRIBERS_MAX 16384
#define SSE_KEEPALIVE_MS 15000
#define SSE_RETRY_MS 1000
#define STATS_WATCHED_MAX 100  /* sandboxes that one socket follows */
#define STATS_WATCHERS_MAX 64  /* such sockets */
#define STATS_EVERY_MS 2000    /* between its messages, unless said… */
#define STATS_EVERY_MIN_MS 500 /* …and within these */
#define STATS_EVERY_MAX_MS 60000

#define AGENT_SERIES_MAX 1000 /* agents with figures of their own in /metrics */
#define AGENT_SAMPLES_MS 5000 /* between two measurements of them */

/* Supervision */
#define API_RESTART_MIN_MS 50 /* first restart after a crash */
#define API_RESTART_MAX_MS 5000
#define API_FAILED_STARTS_MAX 10 /* deaths in a row before READY: then the warden gives up */
#define DRAIN_MS 10000           /* SIGTERM: time for requests under way */
#define DRAIN_GRACE_MS 2000      /* and for closing the store, before SIGKILL */
#define WARDEN_DRAIN_MAX_MS 700000
#define WARDEN_PING_MS 5000    /* between questions whether the api process still answers */
#define WARDEN_PONG_MS 20000   /* no answer for this long: killed and started again */
#define WARDEN_HELLO_MS 20000  /* from exec to the first message */
#define WARDEN_RELOAD_MS 10000 /* for reading the settings again */
#define WIRE_PER_SECOND_MAX 200
#define EGRESS_RESTART_MAX_MS 800  /* until an egress process that died is started again */
#define BOX_VERBS_PER_SECOND 20000 /* about sandboxes, of the api process to the warden */
#define SERVER_NOFILE 131072       /* descriptors of each process of a server, if that may be had */
#define BOX_FDS_SPARE 256          /* of the warden's, which no new sandbox gets */
#define FDS_KEPT 1024u             /* of the warden's: a child gets no copy of these and above */
#define BOX_CREATE_MS 10000        /* from clone to a running init */
#define BOX_FREEZE_MS 2000
#define BOX_STOP_MS 1000      /* for process 1 to stop, whose filter is to be read */
#define BOX_SHM (64ull << 20) /* /dev/shm of a box on a disk */
#define BOX_SHM_INODES 4096u
#define DISK_JOB_MS                                                                                \
    300000 /* for one change of a disk: what is dirty may have to be written first */
#define DISKS_FREE_PERCENT 80u      /* of what is free, when the image of all disks is made… */
#define DISKS_SIZE_MIN (1ull << 30) /* …and at least this */
#define DOOR_WAIT_MS 1000           /* for a caller at the door to say what it wants… */
#define DOOR_WAIT_SHORT_MS 50       /* …when others wait */
#define DOOR_PLACES 32              /* callers at the door, heard or waiting */
#define DOOR_PLACES_EACH 16         /* …of one user who is neither root nor the server's owner */
#define DOOR_GROUPS_MAX 32        /* supplementary groups of a caller that are taken into account */
#define DOOR_KNOCKS_PER_SECOND 20 /* of such a user */
#define DOOR_REFUSED 64           /* of whom the warden has to let go, at once… */
#define DOOR_REFUSED_MS 200       /* …and how often */
#define SERVE_ARGS_MAX 256        /* words after `atoll` */
#define SETTINGS_MAX 1048576      /* bytes that serve hands to the api process */
#define TLS_FILE_MAX 262144       /* certificate chain, or key */

/* Settings */
#define CONF_FILE_MAX 262144
#define CONF_VALUE_MAX 4096
#define CONF_LIST_MAX 32

/* Sandboxes */
#define SANDBOXES_MAX 8192 /* not deleted, unless configured */
#define SANDBOX_MEMORY_MIN (16ll << 20)
#define SANDBOX_MEMORY_MAX (4ll << 40)
#define SANDBOX_PIDS_MIN 8
#define SANDBOX_PIDS_MAX 32768
#define SANDBOX_IO_BYTES_MIN (64ll << 10) /* a second */
#define SANDBOX_IO_BYTES_MAX (1ll << 40)
#define SANDBOX_IO_OPS_MIN 10
#define SANDBOX_IO_OPS_MAX 10000000
#define SANDBOX_DISK_MIN (1ll << 20)
#define SANDBOX_DISK_MAX (4ll << 40)
#define QUOTAS_MAX 256 /* rows of a tenant */
#define QUOTA_SUBJECT_MAX 128
#define QUOTA_FREE_MEMORY (8ll << 30) /* up to these the machine is not asked for a limit… */
#define QUOTA_FREE_CPU 800            /* …of processors, in percent of one… */
#define QUOTA_FREE_DISK (64ll << 30)  /* …and of a disk */
#define QUOTA_EVENT_MS 60000          /* between two events about the same refusal */
#define QUOTA_REFUSALS 64             /* recent refusals kept to limit their events */
#define POOLS_MAX 16
#define TEMPLATES_MAX 256 /* of a tenant */
#define POOL_SIZE_MAX 64
#define SANDBOX_NOFILE 1024  /* descriptors of a process, unless said */
#define DISKS_NAMED_MAX 1024 /* volumes of a tenant, and as many snapshots */
#define DISK_NAME_MAX 63     /* of a volume or a snapshot */
#define DISK_VIEWS_MAX 16    /* views of directories that had their changes on one disk, ever */
#define BOX_ASKS_MAX 8      /* questions that the warden has not answered yet; the rest wait here */
#define BOX_ASKS_QUEUE 4096 /* and this many may wait */
#define BOX_ASK_MS 30000    /* for an answer */
#define BOX_OUT_MAX 4194304 /* bytes waiting to be sent to one init */
#define BOX_IN_MAX (BOX_OUT_MAX / 2) /* of which input of commands */
#define EXECS_RUNNING_MAX 128        /* of one sandbox */
#define EXECS_KEPT_MAX 256           /* ended ones of a sandbox; the oldest makes room */
#define EXEC_ARGC_MAX 4096
#define FILE_RULES_MAX 64    /* of a sandbox, and of a command; INIT_FILES_MAX is both */
#define EXEC_TEXT_MAX 786432 /* argv and environment together */
#define EXEC_CWD_MAX 4095
#define EXEC_TIMEOUT_MAX_MS (24ll * 3600 * 1000)
#define EXEC_HOLD_MS 10     /* for a command to end, and share a commit with its start */
#define END_LAZY_MS 3       /* that an end which was told waits for others to share its commit */
#define ENDS_MAX 256        /* ends that were told and are not stored; others wait for the store */
#define END_PLACE_SIZE 4096 /* of each, with its command; what is longer waits too */
#define EXEC_START_MS 10000 /* for an init to say that a command has started */
#define EXEC_WAIT_MAX_MS (10ll * 60 * 1000) /* of one request */
#define EXEC_INLINE_MAX 65536               /* output told in the answer itself */
#define EXEC_STDIN_BODY_MAX (64ull << 20)   /* of one request */
#define EXEC_STDIN_INLINE_MAX 262144        /* of the request that starts it */
#define EXEC_STDIN_BASE64_MAX ((EXEC_STDIN_INLINE_MAX + 2) / 3 * 4)
#define BOX_JOBS_MAX 32                  /* file operations under way in one sandbox */
#define BOX_CONNS_MAX 64                 /* connections to ports of one sandbox, open at once */
#define PREVIEW_LINGER_MS 60000          /* a tunnel whose peer has nothing more to say */
#define JOB_IDLE_MS 600000               /* one that moves nothing for this long is killed */
#define FILE_DISCARD_MAX (32ull << 20)   /* of a body whose operation has failed */
#define FILE_LIST_MAX 10000              /* names in one answer */
#define FILE_MANIFEST_MAX (256ull << 20) /* bytes of one manifest as the sandbox tells it */
#define SPOOL_ORPHAN_MS 3600000ll        /* a file that no command has is removed at a start */
#define SPOOL_RING (64ll << 20)          /* newest bytes kept of each stream */
/*
 * A command whose reader holds it back may be this far ahead of that reader. The rest of the ring
 * keeps what the reader was sent and may not have received when its connection broke.
 */
#define EXEC_AHEAD (SPOOL_RING / 2)
/*
 * With fewer free bytes in the state directory nothing is started: the log of the store takes 4 MiB
 * between two checkpoints, and what runs needs room for its output and its end.
 */
#define STATE_ROOM_LEAST (8ll << 20)
/* A linked agent keeps so much of a stream unacknowledged; then the command waits. */
#define LINK_KEEP_MAX (16ll << 20)
#define EXEC_AWAY_MS 20000 /* a command is held back this long for a reader that is away */
#define TERM_ROWS 24       /* of a terminal whose size nobody said */
#define TERM_COLS 80
#define TERM_FRAME_MAX 65536             /* bytes of output told at once */
#define TERM_INPUT_MAX 65536             /* bytes typed at once */
#define TERM_VIEWERS_MAX 1024            /* of one terminal */
#define TERM_CONTROLLERS_MAX 16          /* likewise, at most; 1 unless said */
#define TERM_LEASE_MS (10ll * 60 * 1000) /* without a key: then others may type; unless said */
#define TERM_LEASE_MAX_MS (24ll * 3600 * 1000)
#define TERM_SCROLLBACK 1000          /* rows above the screen */
#define TERM_KEY_SCROLLBACK 200       /* of these in a keyframe */
#define TERM_KEY_EVERY (4ll << 20)    /* bytes of output between two keyframes that are kept */
#define TERM_KEY_MAX (32ull << 20)    /* bytes of one */
#define TERM_REBUILD_MAX (8ull << 20) /* bytes read for a screen when no keyframe was kept */
#define SCREEN_TAIL 50                /* rows above the screen that are told with it */
#define TERM_SCREEN_KEEP_MS 10000     /* the screen of an ended one, in memory */

/* agentbox's service */
#define AGENTBOX_ID_MAX 128         /* of a session id or a tenant id */
#define AGENTBOX_COMMAND_MAX 131071 /* with its NUL as much as the kernel takes */
#define AGENTBOX_PATH_MAX 4095
#define AGENTBOX_VOLUME_BYTES (8ll << 30) /* of a tenant's workspace, and of its outputs */
/* Screens of terminals */
#define TERM_ROWS_MIN 5 /* below these a terminal cannot be read, for any of its viewers */
#define TERM_COLS_MIN 20
#define SCREEN_ROWS_MAX 500
#define SCREEN_COLS_MAX 1000
#define SCREEN_SCROLLBACK_MAX 100000       /* rows, of what a caller may ask for */
#define SCREEN_SCROLLBACK_BYTES (4u << 20) /* of all of them, packed */
#define SCREEN_MARKS_MAX 16384             /* cells with combining marks */
#define SCREEN_TITLE_MAX 256
#define SCREEN_SEQ_MAX 512      /* bytes of a control sequence; a longer one means nothing */
#define SCREEN_PARAMS_MAX 32    /* of a control sequence; further ones mean nothing */
#define SCREEN_PARAM_MAX 65535  /* larger numbers count as this */
#define SCREEN_REPLIES_MAX 4096 /* bytes of answers that nobody has taken */

/* Outbound traffic */
#define CONF_ROOTS_MAX 1048576  /* bytes of egress_authorities */
#define TRUST_WAIT_MS 3000      /* that a command waits for its sandbox to trust what it must */
#define EGRESS_RULES_MAX 1000   /* of one list of a document or a pack */
#define POLICY_RULES_MAX 1200   /* of an effective policy, packs included */
#define POLICY_BYTES_MAX 131072 /* of one, compiled: it is one message */
#define EGRESS_PACKS_MAX 64     /* of a document; of a tenant's own packs */
#define EGRESS_ASK_S 60         /* a connection waits this long for an answer; unless said */
#define EGRESS_ASK_MAX_S 600
#define EGRESS_PROJECTS_MAX 1024                   /* layers of projects of a tenant */
#define EGRESS_RECORDS_MAX 200000                  /* kept; the oldest make room… */
#define EGRESS_RECORDS_MS (7ll * 24 * 3600 * 1000) /* …and none is older */
#define EGRESS_RECORDS_PER_SECOND 200              /* kept of one sandbox; more are counted */
#define EGRESS_FLUSH_MS 200                        /* until records are stored… */
#define EGRESS_FLUSH_RECORDS 512                   /* …or this many wait */
#define EGRESS_WAITING_MAX 8192 /* records that wait for the store; more are counted */
#define EGRESS_HOSTS_MAX 512    /* counted by themselves, of one sandbox */
#define EGRESS_BLOCKED_MAX 16   /* hosts of a sandbox that are remembered as blocked, the newest */
#define ASKS_PENDING_MAX 32     /* of one sandbox */
#define ASKS_RULE_S 86400       /* a program's question about a host is open for so long */
#define ASKS_SHOWN_MAX 32       /* to the sandbox that asked; the newest */
#define ASKS_WAITING_MAX 256    /* connections that wait for one */
#define ASKS_KEPT_MAX 10000     /* decided ones; the oldest make room */
#define ASK_NOTE_MAX 1024

/* Images */
#define IMAGE_NAME_MAX 200 /* "agentic/claude:latest"; an event names it as image/NAME */
#define IMAGE_UPLOAD_MAX (16ull << 30) /* bytes of an archive as it is sent */
#define IMAGE_BYTES_MAX (64ull << 30)  /* of the files of one layer */
#define IMAGE_ENTRIES_MAX 1048576      /* of one layer */
#define IMAGE_RATIO_MAX 200            /* bytes that may come out of one compressed byte… */
#define IMAGE_RATIO_FREE (32ull << 20) /* …once this many have come out */
#define IMAGE_DEPTH_MAX 255            /* directories in a name */
#define IMAGE_PATH_MAX 4095
#define IMAGE_DIRS_BYTES_MAX (96ull << 20) /* of the names of a layer's directories */
#define IMAGE_XATTRS_MAX 128               /* of one file */
#define IMAGE_XATTR_MAX 65536              /* bytes of one */
#define IMAGE_PARTS_MAX 4096               /* files in a docker or OCI archive */
#define IMAGE_JSON_MAX 4194304             /* of a manifest, an index or a config */
#define IMAGE_INDEXES_MAX 8                /* an index that names an index that… */
#define IMAGE_LAYERS_MAX 128
#define IMAGE_INFO_MAX 262144            /* what an unpacker says about an image */
#define IMAGES_MAX 256                   /* of a tenant */
#define IMAGE_STEP_MS (30ll * 60 * 1000) /* for an unpacker with one layer, or to look at all */
#define IMAGE_IMPORTS_MAX 4              /* at once */
#define IMAGE_SCRATCH_BYTES (3ll * (16ll << 30)) /* where an upload is taken apart */

/* Linked agents */
#define LINK_MESSAGE_MAX 1048576   /* bytes of one message of an agent */
#define LINK_CONTROL_PER_SECOND 50 /* messages that are no output */
#define LINK_TEXT_MAX 255          /* host names and the like, as an agent says them */
#define LINK_PROGRESS_MAX 16384    /* what it says about its setup */
#define LINK_FRAMEWORKS_MAX 32
#define LINK_PROVIDERS_MAX 16 /* of one */
#define LINK_REPORT_MAX 256   /* commands that a report may name */
#define LINK_RUNNING_MAX 64   /* commands of one agent */
#define LINK_KEPT_MAX 256     /* ended ones; the oldest makes room */
#define LINK_ARGS_MAX 4096
#define LINK_WORD_MAX 131072    /* bytes of one argument */
#define LINK_COMMAND_MAX 786432 /* of all of them, and the environment */
#define LINK_TIMEOUT_MAX_S 86400
#define LINK_STDIN_MAX 65536    /* of one message to a command */
#define LINK_EXEC_TIMEOUT_S 300 /* of Exec, unless it says otherwise */
#define LINK_HEARTBEAT_S 30     /* what we ask for */
#define LINK_CHECK_MS 15000
#define LINK_STALE_MS 60000   /* without a word */
#define LINK_GONE_MS 90000    /* then disconnected */
#define LINK_REMOVE_MS 300000 /* and not connected: its commands are lost */
#define LINK_GRACE_S 5        /* for a command that is to end */
#define CRASH_LOOP_COUNT 5
#define CRASH_WINDOW_MS 600000
#define CRASH_SHORT_MS 60000
#define CRASH_HEALTHY_MS 300000
#define CRASHES_KEPT 100 /* of a sandbox; the oldest makes room */

/* The hub */
#define HUB_ID_PREFIX_MIN 8 /* of an id that a command or a path abbreviates */
#define HUB_NAME_MAX 128    /* of an agent, a channel, a label, a thread */
#define HUB_TITLE_MAX 512   /* of a task or a project */
#define HUB_TEXT_MAX 65536  /* content of a message, description of a task */
#define HUB_NOTE_MAX 4096   /* reasons, notes, rationales */
#define HUB_METADATA_MAX 65536
#define HUB_TAGS_MAX 64 /* capabilities of an agent, or that a task asks for… */
#define HUB_TAG_MAX 64  /* …and bytes of one */
#define HUB_LABELS_MAX 16
#define HUB_AGENTS_MAX 10000    /* of a tenant */
#define HUB_PROJECTS_MAX 1000   /* likewise */
#define HUB_TASKS_MAX 10000     /* of a project */
#define HUB_CHANNELS_MAX 1000   /* of a tenant */
#define HUB_MAILBOX_MAX 1000000 /* messages of one that nobody acknowledged */
#define HUB_ATTACHMENTS_MAX 16  /* of a message */
#define HUB_REVIEWERS_MAX 32    /* of a task */
#define HUB_BLOCKERS_MAX 64     /* likewise */
#define HUB_COMMENTS_MAX 1000   /* likewise */
#define HUB_COMMENT_MAX 16384   /* bytes of one */
#define HUB_TRANSITIONS_SHOWN 5 /* of a task in a list */
#define HUB_WIP_MAX 10000
#define HUB_WIP_PROGRESS 3 /* unless a project says otherwise */
#define HUB_WIP_REVIEW 5
#define HUB_PAGE 1000          /* messages of an inbox in one answer */
#define HUB_PAGE_BYTES 8388608 /* …which ends early when they have more bytes */
#define HUB_EVENT_CONTENT 200  /* characters of a message in its event */
#define HUB_CHECKPOINT_TICKS 6 /* heartbeats until a checkpoint is due */
#define HUB_MISSED_MAX 3       /* such windows missed: stalled */
#define HUB_SWEEP_MS 1000      /* between looks at who is silent */
#define HUB_RATES_MAX 16384    /* senders whose pace is remembered */
#define HUB_RATE_WINDOW_MS 60000
#define HUB_PROPOSAL_MS (24ll * 3600 * 1000)
#define HUB_FILE_MAX 10485760
#define HUB_FILE_NAME_MAX 255
#define HUB_FILES_MAX 1000              /* names in a project */
#define HUB_VERSIONS_MAX 10             /* of a name; the oldest makes room */
#define HUB_PROJECT_BYTES (256ll << 20) /* of all files of a project */
#define HUB_TENANT_BYTES (4ll << 30)    /* and of a tenant */
#define HUB_LEASES_MAX 1000             /* of a project */
#define HUB_LEASE_PATHS_MAX 64
#define HUB_LEASE_PATH_MAX 512
#define HUB_LEASE_S 300 /* unless said */
#define HUB_LEASE_MAX_S 86400
#define HUB_BUCKETS_MAX 366 /* of a throughput */
#define HUB_DONE_SHOWN 100  /* of a lane of a board */

/* Egress */
#define EGRESS_BOXES_MAX 16384  /* of which something is known: twice as many as can be */
#define EGRESS_NAMES_MAX 4096   /* that have an address, of one sandbox */
#define EGRESS_CONNS_MAX 2048   /* open at once, of one sandbox */
#define EGRESS_BACKLOG 1024     /* waiting to be taken; further ones try again a second later */
#define EGRESS_ADDRS_MAX 16     /* of a name; further ones are judged and not tried */
#define EGRESS_IN_MAX 65536     /* bytes that wait in either direction, when they are read */
#define EGRESS_PIPES_MAX 256    /* kept for the next */
#define EGRESS_PIPES_LARGE 32   /* of 1 MiB: half of what the kernel gives one user; others small */
#define EGRESS_HEAD_MS 15000    /* for a request, a client's first message */
#define EGRESS_SPEAK_MS 1000    /* for a client whose server spoke first */
#define EGRESS_IDLE_MS 60000    /* between requests */
#define EGRESS_ANSWER_MS 600000 /* until an answer begins; unless the setting says otherwise… */
#define EGRESS_STREAM_MS 300000 /* …and without a byte of one that has begun */
#define EGRESS_LOOKUP_MS 3000   /* of a name */
#define EGRESS_CONNECT_MS 10000 /* to one address */
#define EGRESS_LINGER_MS 2000   /* for the last bytes to be taken */
#define EGRESS_USED_MS 1000     /* until the api process is told how much was used */
#define EGRESS_SELF_PER_SECOND 100 /* requests to atoll.internal, of one sandbox */
#define EGRESS_SELF_BODY_MAX 4096  /* of such a request */
#define EGRESS_SELF_MS 5000        /* for its answer */
#define EGRESS_HUB_PATH_MAX 1024   /* path and query of a request to the hub */
#define EGRESS_HUB_BODY_MAX 32768
#define EGRESS_HOLD_MS 100 /* without a descriptor to accept with */

/* Differences and patches */
#define DIFF_LINES_MAX (1u << 20)  /* of one text; one with more is taken as binary */
#define DIFF_WORK_MAX (1ll << 27)  /* steps of search; then the rest counts as replaced */
#define DIFF_FILE_MAX (64ll << 20) /* of one side of a file; larger ones are in no patch */
#define IGNORE_RULES_MAX 20000u    /* of all .gitignore files that count for one list of changes */
#define IGNORE_FETCHED_MAX 200u    /* .gitignore files that a sandbox changed; more do not count */
#define IGNORE_INDEX_MAX (256u << 20) /* bytes of git's list of tracked files */
#define IGNORE_FILE_MAX (1u << 20)    /* bytes of one such file; a larger one does not count */
