/*
 * auth_fake - for tests of auth: a request made by hand, a store in a temporary directory, and an
 * auth whose clocks stand still until the test moves them. Included once per program.
 */
#pragma once

#include <stdio.h>

#include "auth/own.h"
#include "base/clock.h"
#include "base/test.h"

#define FAKE_HEADERS_MAX 12

static int64_t fake_wall_ms, fake_mono_ms;

static int64_t fake_wall(void)
{
    return fake_wall_ms;
}

static int64_t fake_mono(void)
{
    return fake_mono_ms;
}

/* One server's worth of state. */
struct fake {
    char path[300];
    struct loop *loop;
    struct auth *auth;
    struct db *db;
    struct http_peer peer;
    struct http_req req;
    struct http_header headers[FAKE_HEADERS_MAX];
    struct principal who;
    struct err err;
};

/* Drops what the connection remembers, as its end does. */
static inline void fake_reconnect(struct fake *fake, const char *addr)
{
    if (fake->peer.app)
        fake->peer.app_free(fake->peer.app);
    fake->peer = (struct http_peer){ .loopback = true };
    snprintf(fake->peer.addr, sizeof(fake->peer.addr), "%s", addr);
}

static inline void fake_start(struct fake *fake, const struct auth_options *options)
{
    CHECK_OK(loop_new(&fake->loop, &fake->err), &fake->err);
    CHECK_OK(store_open_alone(&fake->db, fake->path, true, &fake->err), &fake->err);
    fake->auth = auth_new(fake->loop, options);
    fake->auth->wall_ms = fake_wall;
    fake->auth->mono_ms = fake_mono;
    CHECK_OK(auth_load(fake->auth, fake->db, &fake->err), &fake->err);
    fake_reconnect(fake, "192.0.2.1");
}

static inline void fake_stop(struct fake *fake)
{
    fake_reconnect(fake, "");
    auth_free(fake->auth);
    store_close_alone(fake->db);
    loop_free(fake->loop);
}

static inline void fake_open(struct fake *fake)
{
    *fake = (struct fake){ 0 };
    snprintf(fake->path, sizeof(fake->path), "%s/atoll.db", test_dir());
    fake_wall_ms = clock_wall_ms();
    fake_mono_ms = 1000000;
    fake_start(fake, &(struct auth_options){ .owner_uid = 1000 });
}
#define autofake auto_with(fake_stop)

static inline void fake_request(struct fake *fake, const char *method, const char *target)
{
    struct str path = str_of(target), query = path;

    path = str_cut(&query, '?');
    fake->req = (struct http_req){ .version = HTTP_1_1,
                                   .method = str_of(method),
                                   .target = str_of(target),
                                   .path = path,
                                   .query = query,
                                   .headers = fake->headers,
                                   .peer = &fake->peer };
}

static inline void fake_header(struct fake *fake, const char *name, const char *value)
{
    if (fake->req.header_count == FAKE_HEADERS_MAX)
        abort();
    fake->headers[fake->req.header_count++] = (struct http_header){ str_of(name), str_of(value) };
}

static inline enum auth_result fake_check(struct fake *fake)
{
    fake->who = (struct principal){ 0 };
    fake->err = (struct err){ 0 };
    return auth_check(fake->auth, &fake->req, &fake->who, &fake->err);
}

/* A GET with this Authorization (NULL: none). */
static inline enum auth_result fake_get(struct fake *fake, const char *authorization)
{
    fake_request(fake, "GET", "/api/v1/x");
    fake_header(fake, "host", "localhost");
    if (authorization)
        fake_header(fake, "authorization", authorization);
    return fake_check(fake);
}

/* A token in the store and alive; `bearer` becomes "Bearer …". */
static inline struct token_row fake_token(struct fake *fake, const struct token_row *wish,
                                          char bearer[7 + TOKEN_TEXT_SIZE])
{
    struct token_row row;
    char plain[TOKEN_TEXT_SIZE];

    CHECK_OK(token_create(fake->db, wish, &row, plain, &fake->err), &fake->err);
    auth_token_added(fake->auth, &row);
    snprintf(bearer, 7 + TOKEN_TEXT_SIZE, "Bearer %s", plain);
    return row;
}
