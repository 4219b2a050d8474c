/*
 * `__claude_task__`: a command that stands for another. Its one argument is a JSON object that says
 * what is to be done; what runs is the agent's own program with exactly these words, no shell
 * between, and no input.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "agent/own.h"

#define WORDS_MAX 16

struct words {
    struct arena *arena;
    char *list[WORDS_MAX];
    size_t count;
};

static void put(struct words *words, const char *text)
{
    words->list[words->count++] = arena_strdup(words->arena, text);
}

/* A flag and its value, if there is one. */
static void put_text(struct words *words, const char *flag, struct str value)
{
    if (!value.n)
        return;
    put(words, flag);
    words->list[words->count++] = arena_memdup0(words->arena, value.p, value.n);
}

static void put_tools(struct words *words, const struct json *tools)
{
    autobuf struct buf list = { 0 };

    json_each(tool, tools)
    {
        if (tool->type != JSON_STRING)
            continue;
        buf_puts(&list, list.len ? "," : "");
        buf_str(&list, tool->text);
    }
    put_text(words, "--allowedTools", buf_view(&list));
}

/* An object as it is, or the name of a file with one. */
static void put_servers(struct words *words, const struct json *config)
{
    autobuf struct buf text = { 0 };
    struct json_out json = json_to(&text);

    if (config && config->type == JSON_OBJECT)
        json_put(&json, config);
    else if (config && config->type == JSON_STRING)
        buf_str(&text, config->text);
    put_text(words, "--mcp-config", buf_view(&text));
}

static bool has_variable(const V1(CommandRequest) * request, const char *name)
{
    const char *own = getenv(name);

    for (size_t i = 0; i < request->n_env; i++)
        if (strcmp(request->env[i]->key, name) == 0)
            return request->env[i]->value[0];
    return own && *own;
}

static int check(const V1(CommandRequest) * request, const char *dir, const char *key,
                 struct err *err)
{
    struct stat st;

    if (stat(dir, &st) < 0 || !S_ISDIR(st.st_mode))
        return err_set(err, ERR_INVALID, "working_dir %.256s is no directory here", dir);
    if (!has_variable(request, key))
        return err_set(err, ERR_INVALID, "%.64s is not set", key);
    return 0;
}

bool task_is(const V1(CommandRequest) * request)
{
    return strcmp(request->command, "__claude_task__") == 0;
}

int task_command(struct arena *arena, const V1(CommandRequest) * request, V1(CommandRequest) * out,
                 struct err *err)
{
    struct words words = { .arena = arena };
    struct json *config = NULL;

    if (request->n_args != 1 || json_parse(arena, str_of(request->args[0]), &config, err) < 0 ||
        config->type != JSON_OBJECT)
        return err_set(err, ERR_INVALID, "a task needs one argument, a JSON object");
    struct str prompt = json_text(config, "prompt"), dir = json_text(config, "working_dir"),
               key = json_text(config, "api_key_env");
    if (!prompt.n || !dir.n)
        return err_set(err, ERR_INVALID, "a task needs prompt and working_dir");
    *out = *request;
    out->working_dir = arena_memdup0(arena, dir.p, dir.n);
    if (check(request, out->working_dir,
              key.n ? arena_memdup0(arena, key.p, key.n) : "ANTHROPIC_API_KEY", err) < 0)
        return -1;
    out->command = arena_strdup(arena, "claude");
    put(&words, "--print");
    put(&words, "--dangerously-skip-permissions");
    put(&words, "--output-format");
    put(&words, "stream-json");
    put_text(&words, "--session-id", json_text(config, "session_id"));
    put_text(&words, "--model", json_text(config, "model"));
    put_servers(&words, json_get(config, "mcp_config"));
    put_tools(&words, json_get(config, "allowed_tools"));
    put(&words, "--"); /* a prompt may begin with anything, and tools end here */
    words.list[words.count++] = arena_memdup0(arena, prompt.p, prompt.n);
    out->allocate_pty = false;
    out->n_args = words.count;
    out->args = arena_alloc(arena, sizeof(words.list));
    memcpy(out->args, words.list, sizeof(words.list));
    return 0;
}
