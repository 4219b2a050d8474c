/* ws_own - what ws.c and ws_hello.c share. */
#pragma once

#include "http/http.h"

/* May this request become a WebSocket, with this subprotocol (or NULL)? */
must_use int ws_hello_check(const struct http_req *req, const char *protocol, struct err *err);
/* Begins the answer that makes it one. */
void ws_hello_answer(struct http_req *req, const char *protocol);
