/*
 * May the network of a box that ended serve the next one? To make one is the dearest part of a box,
 * and to take one apart costs the kernel as much again, with locks that all others wait for. Most
 * short commands never use theirs.
 *
 * Nobody inside has power over it, so only traffic and sockets leave anything behind: connections
 * that linger, metrics of their other ends, counters. So the kernel is asked. Its counters must
 * read as they did in the first network that we made: whatever was sent, or could not be, counted
 * somewhere. Labels of flows, which can outlive who asked for them, must be none. And the sockets
 * must be ours alone. Then nothing inside tells it from a new one, and nobody is left who is in it.
 * But for this: the kernel reports a multicast group that was left up to a second later, and the
 * next box may find that packet counted. Nobody inside can read such reports.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/guard.h"
#include "warden/net.h"

#define TEXT_MAX 8192

/* What is sent to anywhere goes through the one interface. What could not be is in the others. */
static const char *const files[] = { "dev", "snmp", "snmp6", "ip6_flowlabel" };
static char as_new[ARRAY_LEN(files)][TEXT_MAX], text_now[TEXT_MAX];
static bool learned;

/* All of a file that tells of the network that we are in; nothing, where there is no IPv6. */
static int read_text(const char *name, char text[TEXT_MAX])
{
    char path[64];
    size_t len = 0;
    ssize_t got = 0;

    snprintf(path, sizeof(path), "/proc/thread-self/net/%s", name);
    autoclose int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && errno != ENOENT)
        return -1;
    while (fd >= 0 && (got = read(fd, text + len, TEXT_MAX - 1 - len)) > 0)
        len += (size_t)got;
    text[len] = 0;
    return got < 0 || len == TEXT_MAX - 1 ? -1 : 0;
}

void net_learn(void)
{
    if (learned)
        return;
    for (size_t i = 0; i < ARRAY_LEN(files); i++)
        if (read_text(files[i], as_new[i]) < 0)
            return; /* nobody is let look: no network is used twice */
    learned = *as_new[0];
}

static bool counters_as_new(void)
{
    for (size_t i = 0; i < ARRAY_LEN(files); i++)
        if (read_text(files[i], text_now) < 0 || strcmp(text_now, as_new[i]) != 0)
            return false;
    return true;
}

/*
 * By protocol, where one counts as long as it can be found: by an address or, of those within a
 * machine, at all. ("sockets: used" counts what was closed, too, until the kernel has forgotten
 * it.)
 */
static bool sockets_are_ours(const struct net *net)
{
    int fds[NET_LISTENERS + 1];
    long there = 0, of_protocol;

    if (read_text("protocols", text_now) < 0)
        return false;
    for (const char *line = strchr(text_now, '\n'); line; line = strchr(line + 1, '\n'))
        if (sscanf(line, " %*s %*s %ld", &of_protocol) == 1)
            there += of_protocol;
    return there == net_fds(net, fds);
}

bool net_unused(const struct net *net)
{
    return learned && (counters_as_new() || !guard(net_counters)) &&
           (sockets_are_ours(net) || !guard(net_sockets));
}
