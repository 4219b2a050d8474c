"""A small JSON answer and a checked POST on Flask, for comparison."""
from flask import Flask, jsonify, request

app = Flask(__name__)


@app.get("/api/v1/whoami")
def whoami():
    if not request.headers.get("Authorization", "").startswith("Bearer "):
        return jsonify(error="unauthenticated"), 401
    return jsonify(id="tok_1", name="bench", role="admin", tenant="default", via="token", scopes="", expires_at=None)


@app.post("/api/v1/echo")
def echo():
    data = request.get_json()
    if not isinstance(data.get("text"), str):
        return jsonify(error="invalid", field="text"), 400
    return jsonify(data)
