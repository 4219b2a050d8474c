/*
 * host - who a connection is to: one validated object that everything else is decided by.
 *
 * Two readers of one name are a hole, so there is one reader. A name is letters, digits and hyphens
 * in labels of at most 63 bytes, at most 253 in all; it is lower-cased and one dot at its end is
 * removed. Everything else is an error and never cleaned up: spaces, controls, escapes, user names,
 * other scripts (their xn-- form is a name), empty labels. Where the last label is a number
 * ("127.1", "0x7f.1", "2130706433") it must be an IPv4 address as inet_pton takes it, or it is an
 * error: other programs would take such a name for an address. Pure; any thread.
 */
#pragma once

#include "base/err.h"
#include "policy/addr.h"

#define HOST_NAME_MAX_LEN 253
#define HOST_LABEL_MAX_LEN 63
#define HOST_TEXT_SIZE (HOST_NAME_MAX_LEN + 1)

enum host_kind { HOST_NONE, HOST_NAME, HOST_ADDR };

struct host {
    enum host_kind kind;
    uint8_t len;               /* of text */
    char text[HOST_TEXT_SIZE]; /* the name, or the address without brackets; NUL-terminated */
    struct addr addr;          /* HOST_ADDR */
};

static inline struct str host_str(const struct host *host)
{
    return (struct str){ host->text, host->len };
}

/*
 * A name, an IPv4 address, or an IPv6 address in brackets. ERR_INVALID says what is wrong with it;
 * the message never holds the bytes themselves. An address that holds an IPv4 address inside
 * ("[::ffff:1.2.3.4]") is an error here.
 */
must_use int host_parse(struct str text, struct host *out, struct err *err);
/* A name alone: no address in any spelling. For DNS questions and server names of TLS. */
must_use int host_parse_name(struct str text, struct host *out, struct err *err);
/* Of a socket's address; anything goes, its class decides. */
void host_from_addr(const struct addr *addr, struct host *out);
bool host_eq(const struct host *a, const struct host *b);

/* 1 to 5 digits, 1 to 65535, no sign, no leading zero. False leaves *out alone. */
must_use bool host_port_number(struct str text, uint16_t *out);

/*
 * "host:port" as in CONNECT and in a Host field. Without ":port" it is `otherwise`; with otherwise
 * 0 it must be there. An empty port ("host:") is an error.
 */
must_use int host_port_parse(struct str text, uint16_t otherwise, struct host *host, uint16_t *port,
                             struct err *err);
/* "host:port", IPv6 in brackets; without the port when it is 0. */
#define HOST_PORT_SIZE (HOST_TEXT_SIZE + 8)
void host_port_text(const struct host *host, uint16_t port, char out[HOST_PORT_SIZE]);

/* An absolute URL, "http://" or "https://" in any case; no user, no fragment. */
struct host_url {
    bool tls;
    struct host host;
    uint16_t port;   /* 80 or 443 where it names none */
    struct str path; /* with the query, borrowed; "/" where there is none */
};
must_use int host_url_parse(struct str text, struct host_url *out, struct err *err);
