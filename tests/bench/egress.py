"""The way out of a sandbox beside the usual ones: a veth pair with NAT, tinyproxy, squid.

Three networks: inside (a sandbox), home (this machine's part) and outside, where one program (tests/bench/tunnel.c)
is every server. From inside two ways lead out: the listener of the egress process, which it is given as the
warden would (tests/egress_rig.py), and a veth pair to home, where either the kernel masquerades or a peer listens.
Everybody is asked for an address, so that no resolver is measured, and has one rule that allows it. The
peers keep no log; the egress process records each decision and flow, and its records are read.

For bytes nothing is pinned, since NAT has no process that could be. For CONNECTs the proxies have a core and the
load (clients, the server outside and who reads our records) has the other; NAT, which none of them needs, is taken
away, since it would look at each of the peers' connections twice and at each of ours once. The load must be the less
busy core, or it would be what is measured: how busy each was goes into the file of figures. Most of what a proxy does
for a CONNECT is the kernel's part of two connections; how much is shown by one that does nothing else (`tunnel floor`),
which stands where ours does. Nothing is named, so nothing is left behind.
"""
import contextlib
import os
import pathlib
import re
import resource
import shutil
import statistics
import subprocess

import egress_rig
import harness
import world

PORT = 9000
TARGET, ALLOWED = f"11.1.0.7:{PORT}", "11.1.0.0/16"
INSIDE, GATE = "10.77.0.2", "10.77.0.1"
OURS = f"{egress_rig.SELF}:{egress_rig.PROXY}"
FLOOR = f"{egress_rig.SELF}:4000"
STREAMS, TOGETHER = 4, 32
HELD, HOLDERS = 10000, 5  # one sandbox may have 2,048
MASQUERADE = ("table ip bench { chain out { type nat hook postrouting priority 100; "
              "oifname wan0 masquerade; }; }")

TINYPROXY = """
Port 3129
Listen {gate}
Timeout 600
MaxClients 20000
ConnectPort {port}
Filter "{work}/tinyproxy.allow"
FilterDefaultDeny Yes
FilterExtended On
LogFile "{work}/tinyproxy.log"
LogLevel Critical
PidFile "{work}/tinyproxy.pid"
"""

SQUID = """
http_port {gate}:3130
acl there dst {allowed}
acl tunnels method CONNECT
http_access allow tunnels there
http_access deny all
cache deny all
cache_mem 0
memory_pools off
access_log none
cache_log {work}/squid.log
cache_store_log none
netdb_filename none
pinger_enable off
pid_filename none
coredump_dir {work}
shutdown_lifetime 0 seconds
max_filedescriptors 65536
"""


class Quiet(world.World):
    """The closed world without its servers, which look at every packet."""

    def serve(self):
        pass


def settings(here, namespace, **values):
    """In that namespace; more ports and no waiting for old ones, because thousands are used within seconds. Nothing is
    paced: bbr, where a machine has it, would make a wire that is memory wait for its timers."""
    values = {"ip_local_port_range": "1024 65535", "tcp_tw_reuse": "1", "tcp_congestion_control": "reno", **values}

    def write():
        world.enter(namespace)
        for name, value in values.items():
            pathlib.Path(f"/proc/sys/net/ipv4/{name}").write_text(value)

    world.in_thread(write)


def natted(here):
    """A network inside, joined to home by a veth pair, that home masquerades for now."""
    inside = world.in_thread(here.make_namespace)
    here.ip(inside, "link set lo up")
    here.ip(inside, f"link add eth0 type veth peer name in0 netns {here.path(here.home)}")
    here.ip(inside, f"addr add {INSIDE}/30 dev eth0")
    here.ip(here.home, f"addr add {GATE}/30 dev in0")
    here.ip(inside, "link set eth0 up")
    here.ip(here.home, "link set in0 up")
    here.ip(inside, f"route add default via {GATE}")
    nft(MASQUERADE)
    return inside


def nft(rules):
    """At home, where this thread is."""
    subprocess.run([shutil.which("nft") or "/usr/sbin/nft", "-f", "-"], input=rules, text=True, check=True)


def spent():
    """{core: (busy, all)} so far, in ticks."""
    lines = re.findall(r"^cpu(\d+) (.*)", pathlib.Path("/proc/stat").read_text(), re.M)
    ticks = {int(core): [int(word) for word in rest.split()[:8]] for core, rest in lines}
    return {core: (sum(t) - t[3] - t[4], sum(t)) for core, t in ticks.items()}


def listens(port):
    """At home, where this thread is."""
    text = pathlib.Path("/proc/thread-self/net/tcp").read_text()
    return re.search(rf"^ *\d+: \w+:{port:04X} \w+:0000 0A ", text, re.M)


def proxy(stack, bench, name, argv, port):
    log = stack.enter_context(open(bench.work / f"{name}.out", "wb"))
    process = subprocess.Popen([str(a) for a in argv], stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def stop():
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    stack.callback(stop)
    harness.wait_until(lambda: listens(port) or process.poll() is not None, 20, f"{name} to listen")
    if process.poll() is not None:
        raise AssertionError(f"{name} ended: {pathlib.Path(log.name).read_text()[-300:]}")
    return process.pid


def tinyproxy(stack, bench):
    conf = bench.work / "tinyproxy.conf"
    conf.write_text(TINYPROXY.format(gate=GATE, port=PORT, work=bench.work))
    (bench.work / "tinyproxy.allow").write_text("^11\\.1\\.[0-9]+\\.[0-9]+$\n")
    return proxy(stack, bench, "tinyproxy", ["tinyproxy", "-d", "-c", conf], 3129)


def squid(stack, bench):
    conf, work = bench.work / "squid.conf", bench.work / "squid"
    work.mkdir(exist_ok=True)
    shutil.chown(work, "proxy", "proxy")  # what Debian's becomes
    conf.write_text(SQUID.format(gate=GATE, allowed=ALLOWED, work=work))
    program = shutil.which("squid") or "/usr/sbin/squid"
    return proxy(stack, bench, "squid", [program, "-N", "-f", conf], 3130)


class Ways:
    """All of them at once; `with` ends everything."""

    def __init__(self, bench, boxes=1):
        self.bench, self.boxes, self.stack = bench, boxes, contextlib.ExitStack()
        self.tool = str(bench.build / "bench" / "tunnel")

    def __enter__(self):
        try:
            return self.begin()
        except BaseException:
            self.stack.close()
            raise

    def __exit__(self, *_):
        self.stack.close()

    def begin(self):
        self.here = self.stack.enter_context(Quiet())
        harness.BIN, harness.BUILD = self.bench.build / "atoll", self.bench.build
        settings(self.here, self.here.home, ip_forward="1")
        settings(self.here, self.here.outside)
        self.outside = self.start(self.here.outside, "serve", PORT)
        self.egress = egress_rig.Egress(self.here)
        self.stack.callback(self.end_egress)
        self.sandboxes = [self.egress.add(f"{i:032x}", f"allow {ALLOWED}:{PORT}/raw") for i in range(1, self.boxes + 1)]
        for box in self.sandboxes:
            settings(self.here, box.namespace)
        # Its records are read by a program of ours, in place of the api process.
        self.egress.peer.setblocking(True)
        self.drainer = subprocess.Popen([self.tool, "drain"], stdin=self.egress.peer.fileno())
        self.stack.callback(self.drainer.wait)
        self.stack.callback(self.drainer.kill)
        return self

    def end_egress(self):
        said = self.egress.close().splitlines()
        wrong = [line for line in said if "the warden is gone" not in line]  # that is how it is told to end
        if wrong:
            raise AssertionError(f"the egress process said: {wrong[-1]}")

    def start(self, namespace, *words):
        """Our program in that network; it says so when it is ready."""
        argv = ["nsenter", f"--net={self.here.path(namespace)}", self.tool, *map(str, words)]
        process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True)
        self.stack.callback(self.end, process)
        if process.stdout.readline() != "ready\n":
            raise AssertionError(f"{' '.join(map(str, words))}: {process.stderr.read()}")
        return process

    @staticmethod
    def end(process):
        process.kill()
        process.wait()
        for file in (process.stdin, process.stdout, process.stderr):
            file.close()

    def ask(self, way, *words, core=None):
        """(figures of our program) by that way out."""
        namespace = self.sandboxes[0].namespace if way in ("atoll", "floor") else self.inside
        via = {"atoll": OURS, "floor": FLOOR, "nat": "-", "tinyproxy": f"{GATE}:3129", "squid": f"{GATE}:3130"}[way]
        mode, *rest = words
        pin = ["taskset", "-c", str(core)] if core is not None else []
        done = subprocess.run([*pin, "nsenter", f"--net={self.here.path(namespace)}", self.tool, mode, via, TARGET,
                               *map(str, rest)], capture_output=True, text=True, timeout=120)
        if done.returncode != 0:
            raise AssertionError(f"{mode} by {way}: {done.stderr[-300:]}")
        return [float(word) for word in done.stdout.split()]

    def peers(self):
        self.inside = natted(self.here)
        settings(self.here, self.inside)
        self.pids = [tinyproxy(self.stack, self.bench), squid(self.stack, self.bench), self.egress.process.pid]

    def pin(self):
        """NAT away, and one more proxy; proxies to the first core, the server outside and who reads records to the
        second, where the load will be."""
        cores = sorted(os.sched_getaffinity(0))
        nft("delete table ip bench")
        self.pids.append(self.start(self.sandboxes[0].namespace, "floor", FLOOR.partition(":")[2],
                                    self.here.path(self.here.home)).pid)
        for pid, core in [(pid, cores[0]) for pid in self.pids] + [(self.outside.pid, cores[-1])]:
            for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
                os.sched_setaffinity(int(task.name), {core})
        os.sched_setaffinity(self.drainer.pid, {cores[-1]})
        return cores[-1]


def ways(bench):
    """Bytes, connections and how long one takes, by each way in turn."""
    each = 1000 if bench.quick else 3000
    with Ways(bench) as out:
        out.peers()

        def fast(way):
            return lambda: (out.ask(way, "bulk", bench.seconds, STREAMS)[0], 0.0)

        moved = bench.interleave("egress: bytes", {w: fast(w) for w in ("nat", "atoll", "tinyproxy", "squid")})
        took = {way: [] for way in ("nat", "atoll", "tinyproxy", "squid")}
        for _ in range(bench.rounds):
            for way, values in took.items():
                values.append(out.ask(way, "open", each // 5, 1)[1])
        core = out.pin()

        busy = {way: [] for way in ("atoll", "tinyproxy", "squid", "floor")}

        def opened(way):
            before = spent()
            rate = out.ask(way, "open", each, TOGETHER, core=core)[0]
            busy[way].append({c: round((now[0] - before[c][0]) / max(1, now[1] - before[c][1]), 2)
                              for c, now in spent().items()})
            return rate, 0.0

        rates = bench.interleave("egress: CONNECT", {w: lambda w=w: opened(w) for w in busy})
    bench.figures["egress: one connection"] = took
    bench.figures["egress: CONNECT, cores busy"] = busy
    bench.compare("egress, a tunnel's bytes vs veth and NAT", moved, "nat", 0.5, "MB/s")
    for peer in ("tinyproxy", "squid"):
        bench.compare(f"  vs {peer}", moved, peer, 2, "MB/s")
    for number, peer in enumerate(("tinyproxy", "squid")):
        bench.compare(f"{'  ' if number else 'egress, CONNECTs '}vs {peer}", rates, peer, 2, "/s")
    least, theirs = ([rate for rate, _ in rates[way]] for way in ("floor", "tinyproxy"))
    bench.row("  the floor: a proxy that decides nothing vs tinyproxy", statistics.median(least),
              statistics.median(theirs), statistics.median(a / b for a, b in zip(least, theirs)), "", True, "/s")
    middle = {way: statistics.median(values) / 1000 for way, values in took.items()}
    over = middle["atoll"] - middle["nat"]
    bench.row("egress, a connection: beyond a direct one", over, middle["nat"], None, "<= 0.3 ms", over <= 0.3, "ms")
    for peer in ("tinyproxy", "squid"):
        bench.row(f"  of {peer}", middle[peer] - middle["nat"], middle["nat"], None, "", True, "ms")


def tunnels(bench):
    """10,000 open at once, of several sandboxes, because one may not have so many. Each has two descriptors; where
    there are fewer, those that can be are opened and the figure is carried on to 10,000."""
    room = (resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 100) // 2
    each = min(HELD, room) // HOLDERS
    count = each * HOLDERS
    with Ways(bench, HOLDERS) as out:
        pid = out.egress.process.pid
        before = rss_mb(pid)
        for box in out.sandboxes:
            out.start(box.namespace, "hold", OURS, TARGET, each)
        sockets = len(list(pathlib.Path(f"/proc/{pid}/fd").iterdir()))
        if sockets < 2 * count:
            raise AssertionError(f"only {sockets} descriptors: not all of {count} tunnels are open")
        after = rss_mb(pid)
    bench.figures["egress: tunnels"] = {"count": count, "before": before, "after": after}
    whole = before + (after - before) * HELD / count
    what = f"egress, {HELD:,} open tunnels, resident" + ("" if count == HELD else f" (from {count:,})")
    bench.row(what, whole, None, None, "<= 100 MB", whole <= 100, "MB")


def rss_mb(pid):
    return int(harness.proc_status(pid)["VmRSS"].split()[0]) / 1024


def decisions(bench):
    rates = []
    for _ in range(bench.rounds):
        done = subprocess.run([bench.build / "bench" / "decide", str(bench.seconds)], capture_output=True, text=True,
                              check=True)
        rates.append(float(done.stdout))
    bench.figures["egress: decisions"] = rates
    rate = statistics.median(rates)
    bench.row("decisions with 1,000 rules", rate, 200_000, rate / 200_000, ">= 200,000 /s", rate >= 200_000, "/s")
