/* Numbers only: whoever starts the warden has already understood the words. */
#include "base/limits.h"
#include "warden/warden.h"

static bool number(const char *text, int64_t least, int64_t most, int64_t *out)
{
    bool minus = text[0] == '-';
    uint64_t value;

    if (!str_to_u64(str_of(text + minus), &value) || value > INT64_MAX)
        return false;
    *out = minus ? -(int64_t)value : (int64_t)value;
    return *out >= least && *out <= most;
}

int warden_args_parse(struct warden_args *out, int argc, char **argv)
{
    int64_t layout, listeners, level, format;
    struct warden_args args = { 0 };

    if (argc <= WARDEN_ARGS || argc - WARDEN_ARGS > SERVE_ARGS_MAX ||
        strcmp(argv[WARDEN_ARGS], "serve") != 0)
        return -1;
    if (!number(argv[1], WARDEN_LAYOUT, WARDEN_LAYOUT, &layout) ||
        !number(argv[2], -1, UINT32_MAX - 1, &args.api_uid) ||
        !number(argv[3], -1, UINT32_MAX - 1, &args.api_gid) ||
        !number(argv[4], 1, LISTENERS_MAX, &listeners) ||
        !number(argv[5], LOG_DEBUG, LOG_ERROR, &level) ||
        !number(argv[6], LOG_TEXT, LOG_JSON, &format) ||
        !number(argv[7], 0, WARDEN_DRAIN_MAX_MS, &args.drain_ms) ||
        !number(argv[8], -1, UINT32_MAX - 1, &args.ids) ||
        !number(argv[9], 0, INT64_MAX, &args.disks_size))
        return -1;
    if (args.api_uid == 0 || args.api_gid == 0 || (args.api_uid < 0) != (args.api_gid < 0) ||
        (args.api_uid >= 0 && args.ids >= 0))
        return -1;
    args.listeners = (unsigned)listeners;
    args.log_level = (enum log_level)level;
    args.log_format = (enum log_format)format;
    args.serve = argv + WARDEN_ARGS;
    *out = args;
    return 0;
}
