/*
 * rule - one line of a policy, as people write it.
 *
 *     example.org                 this name, ports 80 and 443
 *     *.example.org               every name beneath it, at any depth, not the name itself
 *     .example.org                the name and every name beneath it
 *     example.org:8443            on this port alone; ":*" on every port
 *     example.org:5432/raw        on this port, and any bytes may be sent there (see policy.h)
 *     203.0.114.7  10.2.0.0/16  2001:4860::/32  [2001:4860::8]:53      addresses; operators only
 *     example.org GET,HEAD        these methods alone
 *     example.org GET /simple/    …and paths beneath this one ("* /simple/": any method)
 *
 * Words are separated by one space. Methods and paths can only be judged where requests are seen
 * (plain HTTP, or interception): see policy.h for what such a rule means elsewhere. A path is a
 * prefix of whole segments, compared after escapes of ordinary characters are undone.
 */
#pragma once

#include "base/buf.h"
#include "policy/host.h"

#define RULE_TEXT_MAX 640
#define RULE_PATH_MAX 256
#define RULE_RAW "/raw"

enum rule_kind { RULE_HOST, RULE_SUFFIX, RULE_TREE, RULE_ADDR, RULE_KINDS };
enum rule_ports { RULE_PORTS_UNSAID, RULE_PORTS_ONE, RULE_PORTS_ANY };

/* Methods that a rule can name. A request with another one is met by rules that name none. */
enum rule_method {
    METHOD_GET = 1,
    METHOD_HEAD = 2,
    METHOD_POST = 4,
    METHOD_PUT = 8,
    METHOD_PATCH = 16,
    METHOD_DELETE = 32,
    METHOD_OPTIONS = 64,
    METHOD_OTHER = 128, /* in a request, never in a rule */
};
#define METHODS_ALL 127u

struct rule {
    enum rule_kind kind;
    struct host host; /* without "*." and "." */
    uint8_t prefix;   /* RULE_ADDR: bits */
    enum rule_ports ports;
    bool raw; /* the port is followed by "/raw" */
    uint16_t port;
    uint8_t methods; /* METHOD_ bits; 0: all */
    struct str path; /* borrowed from the text; empty: all */
};

/* ERR_INVALID says what is wrong, without the text itself. */
must_use int rule_parse(struct str text, struct rule *out, struct err *err);
/* ERR_INVALID when no rule can open any address that it names (addr_never). */
must_use int rule_reachable(const struct rule *rule, struct err *err);
/* The one way to write it; appended. */
void rule_text(const struct rule *rule, struct buf *out);
/* One of METHOD_; METHOD_OTHER for those that rules do not know. Case matters, as in HTTP. */
uint8_t rule_method(struct str name);

/*
 * Is `path` (of a request target, a query may follow) beneath `prefix`? RULE_PATH_ODD when
 * it can be read in more than one way ("/a/../b", "/a//b", "%2e", "%2f", a backslash, no leading
 * slash): then nobody can say.
 */
enum rule_path { RULE_PATH_OUT, RULE_PATH_IN, RULE_PATH_ODD };
enum rule_path rule_path_match(struct str prefix, struct str path);
