/* HTTP/2 is not here yet: a peer that speaks it is dropped, which makes clients fall back. */
#include "http/proto.h"

void h2_start(struct http_conn *conn)
{
    http_conn_cut(conn, "HTTP/2 is not built");
}
