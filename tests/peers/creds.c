/*
 * Lines in, sealed credentials out: what tests of the egress process give it in place of the api
 * process. The argument is its private key in hex. Fields are separated by tabs:
 * "secret NAME PLACEHOLDER VALUE HOST", "rule MATCH HEADER VALUE" (a header of "-": none).
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/seal.h"
#include "policy/inject.h"

#define LINES_MAX 16
#define FIELDS 5

static struct inject_rule rules[LINES_MAX];
static struct inject_secret secrets[LINES_MAX];
static size_t rule_count, secret_count;

static int take_secret(const struct seal_public *to, char **field, struct err *err)
{
    static struct buf contexts[LINES_MAX], sealed[LINES_MAX];
    const char *const hosts[] = { field[4], NULL };
    size_t at = secret_count++;

    if (inject_context(&contexts[at], "t", field[1], hosts, err) < 0 ||
        seal_to(to, buf_view(&contexts[at]), str_of(field[3]), &sealed[at], err) < 0)
        return -1;
    secrets[at] = (struct inject_secret){ str_of(field[1]), buf_view(&contexts[at]),
                                          str_of(field[2]), buf_view(&sealed[at]) };
    return 0;
}

int main(int argc, char **argv)
{
    struct seal_private mine;
    struct seal_public to;
    struct buf out = { 0 };
    struct err err = { 0 };
    char line[1024];

    mem_untraced(); /* what ends at once gives nothing back */
    if (argc != 2 || !hex_bytes(str_of(argv[1]), mine.bytes, SEAL_KEY_SIZE) ||
        seal_public_of(&mine, &to, &err) < 0)
        return 2;
    while (fgets(line, sizeof(line), stdin)) {
        char *field[FIELDS] = { 0 }, *rest = strdup(line);

        rest[strcspn(rest, "\n")] = 0;
        for (int i = 0; i < FIELDS && rest; i++)
            field[i] = strsep(&rest, "\t");
        if (field[4] && strcmp(field[0], "secret") == 0 && secret_count < LINES_MAX) {
            if (take_secret(&to, field, &err) < 0)
                return 1;
        } else if (field[3] && strcmp(field[0], "rule") == 0 && rule_count < LINES_MAX) {
            rules[rule_count++] =
                (struct inject_rule){ str_of(field[1]),
                                      strcmp(field[2], "-") == 0 ? STR_NONE : str_of(field[2]),
                                      str_of(field[3]) };
        } else {
            return 2;
        }
    }
    if (inject_compile(rules, rule_count, secrets, secret_count, &out, &err) < 0) {
        fprintf(stderr, "%s\n", err.msg);
        return 1;
    }
    return write(1, out.data, out.len) == (ssize_t)out.len ? 0 : 1;
}
