"""The hub beside one of the usual kind: Flask and its threaded server, everything in dictionaries (peers/flask_hub.py).

Ours has every change on disk before it answers. Both are asked by the same programs over connections that stay open
where the server lets them; Flask's own server ends each after its answer, which is part of what it costs.
"""
import json
import select
import socket
import sqlite3
import statistics
import time
import uuid

from sandboxes import p99

# A server that lets agents write as fast as they can.
SETTINGS = {"ATOLL_HUB_MESSAGE_RATE": "100000", "ATOLL_HUB_HEARTBEAT_RATE": "100000", "ATOLL_HUB_STALE": "1h"}
CONTENDERS = 200
FEWER = 64
AGENTS = 1000
PAGE = 100

PROJECTS = 4  # of a run: each takes 10,000 tasks
BEHIND = 400  # agents: a heartbeat comes when all requests before its agent's registration are surely answered

# Who asks in turn: an agent registers, is alive, writes to the next one, makes a task, claims the oldest that was made.
# A task's title says in which project it is.
MIX = """
wrk.headers["Host"] = "127.0.0.1:{port}"
wrk.headers["Authorization"] = "Bearer {token}"
wrk.headers["Content-Type"] = "application/json"
local projects = {{ {projects} }}
local made, first, n, wrong = {{}}, 1, 0, 0
local function name(i) return "agent-{run}-" .. i % 500 end
function request()
    n = n + 1
    local step, who = n % 5, name(math.floor(n / 5))
    if step == 0 then
        return wrk.format("POST", "/agents/register", nil, '{{"name":"' .. who .. '","capabilities":["code"]}}')
    elseif step == 1 then
        return wrk.format("POST", "/agents/" .. name(math.floor(n / 5) - {behind}) .. "/heartbeat", nil, "{{}}")
    elseif step == 2 then
        return wrk.format("POST", "/messages/send", nil,
                          '{{"from":"' .. who .. '","to":"' .. name(n) .. '","content":"hello there"}}')
    elseif step == 3 or not made[first] then
        local at = math.floor(n / 5) % #projects + 1
        return wrk.format("POST", "/projects/" .. projects[at] .. "/tasks", nil, '{{"title":"a task in ' .. at .. '"}}')
    end
    local task = made[first]
    made[first] = nil
    first = first + 1
    return wrk.format("POST", "/projects/" .. projects[task[1]] .. "/tasks/" .. task[2] .. "/claim", nil,
                      '{{"agent":"' .. who .. '"}}')
end
local last = 0
function response(status, headers, body)
    if status >= 300 and wrong < 3 then
        wrong = wrong + 1
        print(status .. " " .. body)
    end
    local at = string.match(body, '"a task in (%d+)"')
    if at then
        last = last + 1
        made[last] = {{ tonumber(at), string.match(body, '"id": ?"([%w-]+)"') }}
    end
end
"""


class Kept:
    """Connections to either server, kept where it keeps them; requests are bytes made by hand."""

    def __init__(self, server):
        self.server = server
        self.head = f"HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nAuthorization: Bearer {server.token}\r\n"

    def connect(self):
        return Connection(self.server.port)

    def bytes(self, method, path, body=None):
        data = b"" if body is None else json.dumps(body).encode()
        more = f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n"
        return f"{method} {path} {self.head}{more}\r\n".encode() + data

    def ask(self, conn, method, path, body=None):
        conn.send(self.bytes(method, path, body))
        status, text = conn.reply()
        if not 200 <= status < 300:
            raise AssertionError(f"{self.server.name}: {method} {path}: {status} {text[:300]!r}")
        return json.loads(text)


class Connection:
    """One that is made again after an answer with Connection: close."""

    def __init__(self, port):
        self.port = port
        self.open()

    def open(self):
        self.sock = socket.create_connection(("127.0.0.1", self.port), 30)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.ended = False

    def send(self, data):
        if self.ended:
            self.close()
            self.open()
        self.sock.sendall(data)

    def reply(self):
        got = b""
        while b"\r\n\r\n" not in got:
            got += self.more()
        head, rest = got.split(b"\r\n\r\n", 1)
        head = head.lower()
        size = int(head.split(b"content-length:")[1].split(b"\r\n")[0])
        while len(rest) < size:
            rest += self.more()
        self.ended = b"connection: close" in head
        return int(head.split()[1]), rest

    def more(self):
        data = self.sock.recv(65536)
        if not data:
            raise AssertionError(f"the server on port {self.port} closed the connection")
        return data

    def close(self):
        self.sock.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def mix(bench, ours, peer, wrk):
    """wrk: (server, script, connections) → (requests per second, CPU microseconds per request). As many ask at once as
    contend for a task; and fewer, for whom each commit is shared by fewer."""
    runs = iter(range(1000))

    def measure(server, connections):
        kept = Kept(server)
        run = next(runs)
        # Those whose heartbeats come before they do; wrk keeps its first request to itself.
        prepare(kept, "mix", [f"agent-{run}-{i % 500}" for i in range(-BEHIND - 20, 2)])
        projects = ", ".join(f'"{prepare(kept, "mix", [])}"' for _ in range(PROJECTS))
        script = bench.work / "mix.lua"
        script.write_text(MIX.format(port=server.port, token=server.token, projects=projects, run=run, behind=BEHIND))
        return wrk(server, script, connections)

    def both(connections):
        return bench.interleave(f"hub mix, {connections}",
                                {s.name: lambda s=s: measure(s, connections) for s in (ours, peer)})
    got, fewer = both(CONTENDERS), both(FEWER)
    bench.compare("register, heartbeat, send, task, claim: durable, vs Flask in memory", got, peer.name, 20, "req/s")
    bench.compare("  CPU per request", got, peer.name, 20, "us", cpu=True)
    for what, cpu in (f"  with {FEWER} at once instead of {CONTENDERS}", False), ("    CPU per request", True):
        bench.compare(what, fewer, peer.name, None, "us" if cpu else "req/s", cpu=cpu)


def prepare(kept, project, names):
    """A project, whose id is returned, and these agents."""
    with kept.connect() as sock:
        for name in names:
            kept.ask(sock, "POST", "/agents/register", {"name": name})
        return kept.ask(sock, "POST", "/projects", {"name": project, "creator": "bench"})["id"]


def contend(kept, rounds):
    """Milliseconds from the common start to each one's answer: CONTENDERS want one task, again and again."""
    names = [f"contender-{n}" for n in range(CONTENDERS)]
    took = []
    project = prepare(kept, "one task", names)
    socks = [kept.connect() for _ in range(CONTENDERS)]
    for _ in range(rounds):
        task = kept.ask(socks[0], "POST", f"/projects/{project}/tasks", {"title": "wanted"})["id"]
        wishes = [kept.bytes("POST", f"/projects/{project}/tasks/{task}/claim", {"agent": name}) for name in names]
        poll = select.epoll()
        begin, by_fd, won = time.perf_counter(), {}, 0
        for sock, wish in zip(socks, wishes):
            sock.send(wish)
            by_fd[sock.sock.fileno()] = sock
            poll.register(sock.sock, select.EPOLLIN | select.EPOLLONESHOT)
        while by_fd:
            ready = poll.poll(30)
            if not ready:
                raise AssertionError(f"{kept.server.name}: {len(by_fd)} claims without an answer in 30 s")
            for fd, _ in ready:
                won += by_fd.pop(fd).reply()[0] == 200
                took.append((time.perf_counter() - begin) * 1000)
        poll.close()
        if kept.server.name == "atoll" and won != 1:
            raise AssertionError(f"{won} of {CONTENDERS} won one task")
    for sock in socks:
        sock.close()
    return took


def claims(bench, ours, peer):
    got = {s.name: [] for s in (ours, peer)}
    for _ in range(bench.rounds):
        for server in (ours, peer):
            got[server.name] += contend(Kept(server), 5)
    bench.figures["hub claims"] = got
    mine, theirs = p99(got["atoll"]), p99(got[peer.name])
    bench.row(f"claim of one task by {CONTENDERS}, p99, vs Flask", mine, theirs, mine / theirs, "<= 0.5 x",
              mine / theirs <= 0.5, "ms")


def agents(bench, ours, subscribers, cpu_seconds):
    """1,000 agents, each with a stream and a heartbeat every two seconds; ten events a second are told to all."""
    kept = Kept(ours)
    names = [f"crowd-{n}" for n in range(AGENTS)]
    project = prepare(kept, "crowd", names)
    held = subscribers(AGENTS, "/events?hub=true")
    socks = [kept.connect() for _ in range(8)]
    seconds, took = 4 if bench.quick else 10, []
    pids, begin = ours.pids(), time.perf_counter()
    before = cpu_seconds(pids)
    for n in range(seconds * AGENTS // 2):
        due = begin + n / (AGENTS / 2)
        while (left := due - time.perf_counter()) > 0:
            time.sleep(left)
        at = time.perf_counter()
        kept.ask(socks[n % 8], "POST", f"/agents/{names[n % AGENTS]}/heartbeat", {})
        took.append((time.perf_counter() - at) * 1000)
        if n % (AGENTS // 20) == 0:
            kept.ask(socks[0], "POST", f"/projects/{project}/tasks", {"title": "told to all"})
    used = (cpu_seconds(pids) - before) / (time.perf_counter() - begin) * 100
    held.close()
    for sock in socks:
        sock.close()
    bench.figures["hub agents"] = {"ms": took, "cpu_percent": used}
    bench.row(f"{AGENTS:,} agents with heartbeats and streams: of a core", used, None, None, "<= 60 %", used <= 60, "%")
    bench.row("  heartbeat, p99", p99(took), None, None, "<= 20 ms", p99(took) <= 20, "ms")


def fill(path, count):
    """A mailbox as that many sends leave it, ids at random; {place: the id before its page}. Nobody else uses it."""
    db = sqlite3.connect(path)
    db.execute("PRAGMA cache_size = -400000")
    with db:
        db.execute("INSERT INTO hub_mailbox (tenant, name, unacked) VALUES ('default', 'million', ?)", (count,))
        db.execute("INSERT INTO hub_edge (tenant, sender, recipient, messages)"
                   " VALUES ('default', 'writer', 'million', ?)", (count,))
        db.executemany("INSERT INTO hub_message (tenant, recipient, seq, id, sender, content, type, at_ms)"
                       " VALUES ('default', 'million', ?, ?, 'writer', ?, 'text', ?)",
                       ((n, str(uuid.uuid4()), "m" * 40, int(time.time() * 1000)) for n in range(1, count + 1)))
    marks = {mark: db.execute("SELECT id FROM hub_message WHERE tenant = 'default' AND recipient = 'million'"
                              " AND seq = ?", (seq,)).fetchone()[0]
             for mark, seq in (("middle", count // 2), ("last", count - PAGE))}
    db.close()
    return marks


def inbox(bench, ours, start):
    """A mailbox of a million messages: its first page, one in the middle, and its last. start: starts ours again."""
    count = 50_000 if bench.quick else 1_000_000
    ours.server.stop(remove=False)
    try:
        marks = fill(ours.server.state / "data" / "atoll.db", count)
    finally:
        start()
    kept = Kept(ours)
    with kept.connect() as sock:
        def page(after):
            path = f"/messages/million?peek=true&limit={PAGE}" + (f"&after={after}" if after else "")
            begin = time.perf_counter()
            found = kept.ask(sock, "GET", path)
            if len(found) != PAGE:
                raise AssertionError(f"a page of {len(found)}")
            return (time.perf_counter() - begin) * 1000
        places = {"first": None, **marks}
        got = {name: [] for name in places}
        for _ in range(100):
            for name, after in places.items():
                got[name].append(page(after))
    bench.figures["hub inbox"] = got
    first, worst = statistics.median(got["first"]), max(statistics.median(got[n]) for n in ("middle", "last"))
    bench.row(f"a page of an inbox of {count:,}: middle and end vs beginning", worst, first, worst / first, "<= 1.3 x",
              worst / first <= 1.3, "ms")
