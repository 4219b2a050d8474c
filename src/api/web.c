/*
 * The dashboard's files, from the table embedded in the program. They hold no data, so everybody
 * may have them; what the page shows it asks for with its session. The policy lets the page load
 * and talk to nothing but us, and lets nobody frame it.
 */
#include "api/own.h"

#include "http/assets.h"

static const struct http_header page_headers[] = {
    { STR_INIT("content-security-policy"),
      STR_INIT("default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
               "img-src 'self' data:; "
               "font-src 'self'; manifest-src 'self'; frame-ancestors 'none'; base-uri 'none'; "
               "form-action 'none'") },
    { STR_INIT("x-frame-options"), STR_INIT("DENY") },
};

static int file_get(struct call *call, struct err *err)
{
    struct http_header headers[ARRAY_LEN(page_headers) + 2];
    struct http_req *req = call->req;
    const struct asset *asset = asset_find(call->api->options.assets, req->path);

    if (!asset)
        return err_set(err, ERR_NOT_FOUND, "no such file");
    memcpy(headers, page_headers, sizeof(page_headers));
    unsigned count = ARRAY_LEN(page_headers);
    count += call_headers(call, headers + count, 1);
    req->on_gone = NULL;
    asset_serve(req, asset, headers, count);
    call->req = NULL;
    call_free(call);
    return 0;
}

const struct route web_routes[] = {
    { .name = "web.page",
      .method = "GET",
      .path = "/",
      .on = ON_STREAM,
      .roles = ROLE_PUBLIC,
      .fn = file_get,
      .flags = ROUTE_HIDDEN,
      .summary = "The dashboard." },
    { .name = "web.file",
      .method = "GET",
      .path = "/assets/{name}",
      .on = ON_STREAM,
      .roles = ROLE_PUBLIC,
      .fn = file_get,
      .flags = ROUTE_HIDDEN,
      .summary = "A file of the dashboard." },
    { 0 },
};
