/* Every setting, one line each. Help, documentation and the parser read nothing else. */
#include "conf/conf.h"

/* clang-format off */
const struct conf_key conf_table[] = {
    { "listen", CONF_LIST, "127.0.0.1:8080", NULL, NULL, false, "ADDR",
      "Where to serve: ADDRESS:PORT, https://ADDRESS:PORT (needs tls_cert and tls_key) or "
      "unix:PATH. The Unix socket in the state directory is always there." },
    { "state", CONF_PATH, NULL, "/var/lib/atoll for root, otherwise ~/.local/state/atoll", NULL,
      false, "DIR",
      "Directory of the database, the admin token and the Unix socket." },
    { "config", CONF_PATH, NULL,
      "/etc/atoll/atoll.conf, or ~/.config/atoll/atoll.conf for an ordinary user", NULL, false,
      "FILE",
      "The settings file. Only as flag or environment; a file named here must exist." },
    { "host", CONF_LIST, "", NULL, NULL, true, "HOST",
      "More values of the Host header to answer, besides those of the listeners: HOST or "
      "HOST:PORT, exactly as clients send it." },
    { "auth", CONF_ENUM, "token", NULL, "token|open", false, "MODE",
      "token: every request needs a credential. open: everybody is admin; for experiments, "
      "only with loopback listeners." },
    { "insecure", CONF_BOOL, "false", NULL, NULL, false, NULL,
      "Listen without TLS also where others can reach it; whoever is on the way can read tokens." },
    { "tls_cert", CONF_PATH, NULL, "none", NULL, true, "FILE",
      "Certificate chain in PEM for the https:// listeners." },
    { "tls_key", CONF_PATH, NULL, "none", NULL, true, "FILE",
      "Private key in PEM that belongs to tls_cert." },
    { "log_level", CONF_ENUM, "info", NULL, "debug|info|warn|error", true, "LEVEL",
      "Least important message that is logged." },
    { "log_format", CONF_ENUM, "text", NULL, "text|json", true, "FORMAT",
      "One line of text or one JSON object for each message, on standard error." },
    { "metrics_enabled", CONF_BOOL, "true", NULL, NULL, true, NULL,
      "Serve /metrics; 404 without." },
    { "uid_base", CONF_INT, "600000000", NULL, "1000..2000000000", false, "UID",
      "First of the user ids that jailed processes get when started as root; no account may "
      "use them." },
    { "allow_degraded", CONF_LIST, "", NULL, NULL, false, "FEATURE",
      "Features of the machine, as named by `atoll doctor`, that may be missing. Otherwise "
      "serving without them is refused." },
    { "rate_per_second", CONF_INT, "20000", NULL, "1..1000000", true, "N",
      "Requests each principal may make per second, on average." },
    { "rate_burst", CONF_INT, "40000", NULL, "1..1000000", true, "N",
      "Requests each principal may make at once after a pause." },
    { "event_keep", CONF_MS, "7d", NULL, "1m..3650d", true, "TIME",
      "How long events stay available for replay." },
    { "sandboxes_max", CONF_INT, "8192", NULL, "1..8192", false, "N",
      "Sandboxes at once, stopped ones included. While there are several tenants, one of them gets no "
      "more than it leaves for the others, unless `atoll quota set tenant:NAME` says otherwise." },
    { "overcommit_memory", CONF_INT, "4", NULL, "0..1000", false, "N",
      "Memory limits above 8 GiB may add up to this many times the memory of the machine; 0: any "
      "limit is accepted. Smaller limits are not counted." },
    { "overcommit_cpu", CONF_INT, "16", NULL, "0..1000", false, "N",
      "Likewise for limits above 8 processors." },
    { "overcommit_disk", CONF_INT, "4", NULL, "0..1000", false, "N",
      "Likewise for disks, volumes and snapshots above 64 GiB, and the file system of the state "
      "directory." },
    { "disks_size", CONF_BYTES, "0", NULL, "0..65536G", false, "SIZE",
      "Size of the file that holds the disks of all sandboxes, at least 1G; it takes up only what is "
      "written. It counts when the file is made, with the first disk; 0: most of what is free then." },
    { "disks_aside_keep", CONF_MS, "0s", NULL, "0s..3650d", false, "TIME",
      "How long a disk stays that the database does not name, as after `atoll restore`; "
      "`atoll disk ls` lists them. 0s: until it is removed by hand." },
    { "new_store", CONF_BOOL, "false", NULL, NULL, false, NULL,
      "Make an empty database in a state directory that had one and has none now. Only as a flag, "
      "for one start; without it such a start is refused." },
    { "pool_default", CONF_INT, "2", NULL, "0..64", false, "N",
      "Warm sandboxes that are ready for a request with default image, user and storage, unless "
      "`atoll pool set default` set another number; 0 for none." },
    { "egress_resolver", CONF_LIST, "", "those of /etc/resolv.conf", NULL, false, "ADDR",
      "Name servers that are asked for the hosts a sandbox may reach, three at most: ADDRESS or "
      "ADDRESS:PORT, IPv6 in [brackets]. Unless said, those of the machine." },
    { "egress_authorities", CONF_PATH, NULL, "none", NULL, false, "FILE",
      "Certificate authorities in PEM that hosts whose TLS is opened may be certified by, besides "
      "those that the machine trusts." },
    { "egress_answer_timeout", CONF_MS, "10m", NULL, "1s..1d", false, "TIME",
      "How long a request of a sandbox waits until the answer begins; then it gets 504." },
    { "egress_stream_timeout", CONF_MS, "5m", NULL, "1s..1d", false, "TIME",
      "How long an answer that has begun may pause; then the connection is closed." },
    { "hub_message_rate", CONF_INT, "60", NULL, "1..100000", false, "N",
      "Messages that an agent of the hub may send in any 60 seconds." },
    { "hub_heartbeat_rate", CONF_INT, "120", NULL, "1..100000", false, "N",
      "Heartbeats that it may send in any 60 seconds." },
    { "hub_stale", CONF_MS, "30s", NULL, "1s..1d", false, "TIME",
      "An agent of the hub that is silent for longer is offline." },
    { "hub_message_keep", CONF_MS, "7d", NULL, "1m..3650d", false, "TIME",
      "How long acknowledged messages stay; others stay until they are acknowledged." },
    { "hub_url_filter", CONF_ENUM, "messages", NULL, "messages|all|off", false, "WHERE",
      "Where URLs that lead away are refused: in messages; also in titles, descriptions, notes, "
      "reasons, rationales and files; nowhere." },
    { "hub_url_allow", CONF_LIST, "localhost,127.0.0.1,::1,172.28.0.0/16", NULL, NULL, false, "HOST",
      "Hosts, addresses and ranges that URLs in them may lead to, besides names without a dot." },
    { "hub_url_schemes", CONF_LIST, "http,https", NULL, NULL, false, "SCHEME",
      "Which schemes are looked at." },
    { "agentbox_memory", CONF_BYTES, "4G", NULL, "16M..4096G", true, "SIZE",
      "Memory of each session of agentbox; not more than the machine has." },
    { "agentbox_cpu_percent", CONF_INT, "400", NULL, "1..100000", true, "N",
      "Processor time of each session of agentbox, 100 for one core; not more than the machine has." },
    { "agentbox_idle", CONF_MS, "30m", NULL, "0s..365d", true, "TIME",
      "A session of agentbox that is idle for so long is deleted; 0 keeps it until it is destroyed." },
    { "agentbox_user", CONF_ENUM, "agent", NULL, "agent|root", true, "USER",
      "The user that commands of agentbox's sessions run as. root is the superuser of the session's own "
      "user namespace: apt-get works, and more of the kernel is within reach." },
    { "readers", CONF_INT, "2", NULL, "1..32", false, "N",
      "Threads that read from the database; writes always share one." },
    { "head_timeout", CONF_MS, "10s", NULL, "100ms..5m", false, "TIME",
      "Time a client has to send the head of a request." },
    { "keepalive", CONF_MS, "60s", NULL, "1s..1h", false, "TIME",
      "Time an idle connection stays open between requests." },
    { "write_stall", CONF_MS, "30s", NULL, "1s..1h", false, "TIME",
      "A client that reads nothing for this long is cut off." },
    { "conns_max", CONF_INT, "16384", NULL, "16..1000000", false, "N",
      "Connections at once." },
    { "conns_per_peer_max", CONF_INT, "16384", NULL, "1..1000000", false, "N",
      "Connections at once from one address." },
    { "drain", CONF_MS, "10s", NULL, "0s..10m", false, "TIME",
      "Time that requests under way have to finish at SIGTERM." },
    { "throw_away", CONF_BOOL, "false", NULL, NULL, false, NULL,
      "The state directory is removed afterwards, as that of `atoll run --private`: nothing waits "
      "for the disk, and a crash of the machine loses what was answered." },
    { 0 },
};
/* clang-format on */
