"""The same small calls on Flask: a bearer token looked up by its hash, a request id, the headers every
reply of ours has, a checked POST. No rate limit, no metrics, no audit."""
import hashlib
import itertools
import re

from flask import Flask, g, jsonify, request

app = Flask(__name__)
NUMBERS = itertools.count(1)
GOOD_ID = re.compile(r"[A-Za-z0-9._-]{1,64}\Z")
TOKENS = {hashlib.sha256(b"x").digest(): {"id": "tok_1", "name": "bench", "role": "admin", "tenant": "default"}}


@app.before_request
def who():
    given = request.headers.get("X-Request-Id", "")
    g.request_id = given if GOOD_ID.match(given) else f"{next(NUMBERS):020x}"
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    g.who = TOKENS.get(hashlib.sha256(token.encode()).digest()) if scheme == "Bearer" else None
    if g.who is None:
        return jsonify(error={"code": "unauthenticated", "message": "no valid token"}), 401
    return None


@app.after_request
def common(reply):
    reply.headers["X-Request-Id"] = g.request_id
    reply.headers["X-Content-Type-Options"] = "nosniff"
    reply.headers["Referrer-Policy"] = "no-referrer"
    reply.headers["Cross-Origin-Resource-Policy"] = "same-origin"
    return reply


@app.get("/api/v1/whoami")
def whoami():
    return jsonify(via="token", scopes="", expires_at=None, **g.who)


@app.post("/api/v1/echo")
def echo():
    data = request.get_json()
    if not isinstance(data, dict) or not isinstance(data.get("text"), str):
        return jsonify(error={"code": "invalid", "field": "text"}), 400
    return jsonify(data)
