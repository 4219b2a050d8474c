"""The dashboard in Chromium: how soon there is something to see and how much is fetched for it, what much of everything
costs it beside little of it, and whether an hour of use leaves something behind. A step's cost is the processor time of
the page's main thread (scripts, styles, layout, paint): more than a frame's 16 ms of it is not smooth. In every step
all rows in sight are others. A task over 50 ms is long."""
import json
import statistics
import sys
import time

import dash
import rest

STEPS, EVENTS, BURST = 60, 10000, 50
HOUR = 360  # looks at a view, one every ten seconds
PER_STEP = 10  # events in these ten seconds

LONG = """window.long = []; new PerformanceObserver((l) => window.long.push(...l.getEntries().map((e) => e.duration)))
    .observe({ type: 'longtask' }); null"""


def busy(page):
    got = {one["name"]: one["value"] for one in page.call("Performance.getMetrics")["metrics"]}
    return got["TaskDuration"] * 1000


def watched(page):
    page.call("Performance.enable", timeDomain="threadTicks")
    page.run(LONG)
    return page


def scroll(server, chromium, row, count):
    """Milliseconds of work for each step of a list that long; and the longest task of it."""
    page = watched(chromium.page())
    dash.many(server, page, count, row)
    page.run(LONG)
    page.run(dash.SCROLL % 10)
    before = busy(page)
    page.run(dash.SCROLL % STEPS)
    cost, longest = (busy(page) - before) / STEPS, max(page.run("window.long"), default=0)
    page.open("about:blank")
    return cost, longest


def flood(server, chromium, count):
    """Milliseconds of work for each event of so many that come in bursts while the list of them is open."""
    page = watched(chromium.page())
    last = dash.fed(server, page, "events")
    page.run(LONG)
    page.run(dash.SPEAK % (last, count - 1000, 1000))
    before = busy(page)
    page.run("window.long = []; null")
    page.run(dash.SPEAK % (last + count - 1000, 1000, BURST))
    cost, longest = (busy(page) - before) / 1000, max(page.run("window.long"), default=0)
    page.open("about:blank")
    return cost, longest


# ---- the first view ----

# When the first row of the list was drawn, from the moment that the page was asked for.
DRAWN = """new MutationObserver((_, observer) => { if (!document.querySelector('.boxes .tbody [role=row]')) return;
    observer.disconnect(); requestAnimationFrame(() => setTimeout(() => { window.drawn = performance.now(); }));
    }).observe(document, { childList: true, subtree: true });"""


def opened(server, chromium, before=""):
    """Milliseconds until the list is there in a browser that has nothing yet; and the bytes that came for it."""
    page = chromium.page()
    dash.login(server, page)
    page.call("Network.clearBrowserCache")
    page.call("Page.addScriptToEvaluateOnNewDocument", source=DRAWN + before)
    page.call("Page.navigate", url="about:blank")
    since = len(page.browser.events)
    page.call("Page.navigate", url=server.url + "/")
    took = page.wait("window.drawn", dash.WAIT)
    time.sleep(0.3)  # what it still fetches by itself is part of it
    with page.browser.news:
        news = [one for one in page.browser.events[since:] if one.get("sessionId") == page.session]
    size = sum(one["params"]["encodedDataLength"] for one in news if one["method"] == "Network.loadingFinished")
    page.open("about:blank")
    return took, size


def first(bench):
    (bench.work / "server").mkdir(mode=0o755, exist_ok=True)
    server, chromium = rest.start(bench), dash.chromium()
    try:
        row = server.post(dash.BOXES, {"name": "first"}).json()
        rounds = 5 if bench.quick else 15
        few = [opened(server, chromium) for _ in range(rounds)]
        lots = [opened(server, chromium, dash.MANY % (json.dumps(row), 5000)) for _ in range(rounds)]
        bench.figures["first view"] = {"few": few, "many": lots}
        for what, of in (("first view of the dashboard, nothing cached", few), ("  with 5,000 sandboxes", lots)):
            took = statistics.median(one[0] for one in of) / 1000
            bench.row(what, took, None, None, "<= 1 s", took <= 1, "s")
        size = statistics.median(one[1] for one in few) / 1000
        bench.row("  all that is fetched for it", size, None, None, "<= 150 kB", size <= 150, "kB")
        server.delete(f"{dash.BOXES}/{row['id']}")
    finally:
        chromium.close()
        server.stop()


# ---- much of everything ----

def smooth(bench):
    (bench.work / "server").mkdir(mode=0o755, exist_ok=True)
    server, chromium = rest.start(bench), dash.chromium()
    try:
        row = server.post(dash.BOXES, {}).json()
        rounds = 3 if bench.quick else 5
        lists = [[scroll(server, chromium, row, count) for count in (5000, 500)] for _ in range(rounds)]
        floods = [[flood(server, chromium, count) for count in (EVENTS, 1100)] for _ in range(rounds)]
        bench.figures["pages"] = {"lists": lists, "floods": floods}
        for what, of in (("a step in a list of 5,000 sandboxes vs of 500", lists),
                         ("an event among 10,000 shown vs among 1,100", floods)):
            ours, peer = (statistics.median(one[i][0] for one in of) for i in (0, 1))
            ratio = statistics.median(big[0] / small[0] for big, small in of)
            bench.row(what, ours, peer, ratio, "<= 1.5 x", ratio <= 1.5, "ms of processor")
        for what, of in (("longest task while 5,000 sandboxes go by vs 500", lists),
                         ("longest task while events come to 10,000 vs 1,100", floods)):
            ours, peer = (max(50, statistics.median(one[i][1] for one in of)) for i in (0, 1))  # shorter ones: not told
            bench.row(what, ours, peer, ours / peer, "<= 1.5 x", ours / peer <= 1.5, "ms")
        server.delete(f"{dash.BOXES}/{row['id']}")
    finally:
        chromium.close()
        server.stop()


# ---- an hour ----

def views(box):
    return ["sandboxes", f"sandboxes/{box}", f"sandboxes/{box}/terminals", "events", "board", f"sandboxes/{box}/files",
            "agents", f"sandboxes/{box}/commands", "communications", "audit", f"sandboxes/{box}/egress", "health",
            "questions", f"sandboxes/{box}/snapshots", "new"]


def happens(server, box, step):
    """What goes on in ten seconds of a busy server."""
    for i in range(PER_STEP - 4):
        server.post("/api/v1/notes", {"text": f"step {step}, note {i}"})
    server.post("/messages/send", {"from": "ada", "to": "eve", "content": f"word {step}"})
    server.post(f"{dash.BOXES}/{box}/execs", {"command": "echo done"})
    if step % 6 == 0:
        made = server.post(dash.BOXES, {"name": f"brief-{step}"}).json()["id"]
        server.delete(f"{dash.BOXES}/{made}")


def hour(bench):
    """An hour of somebody who looks at everything, as fast as the page follows; its memory at every quarter. Before
    that the page has all the events that it keeps, as after a day."""
    (bench.work / "server").mkdir(mode=0o755, exist_ok=True)
    server, chromium = rest.start(bench), dash.chromium()
    try:
        box = server.post(dash.BOXES, {"name": "hour"}).json()["id"]
        for name in ("ada", "eve"):
            server.post("/agents/register", {"name": name})
        server.post("/projects", {"name": "p", "creator": "human"})
        server.post(f"{dash.BOXES}/{box}/terminals", {"name": "t", "command": "while :; do date; sleep 0.2; done"})
        page = chromium
        dash.login(server, page, "events")
        for i in range(EVENTS):
            server.post("/api/v1/notes", {"text": f"before {i} " + "x" * 100})
        dash.says(page, f"before {EVENTS - 1} ")
        all_views, marks = views(box), []
        steps = HOUR // 2 if bench.quick else HOUR
        for step in range(-2 * len(all_views), steps):  # first everything is looked at once: that is fetched, and stays
            happens(server, box, step)
            dash.go(page, all_views[step % len(all_views)])
            page.wait("document.querySelector('main')?.innerText.length > 5 && !document.querySelector('main')"
                      ".innerText.startsWith('Loading')", dash.WAIT)
            time.sleep(0.05)
            if step >= 0 and (step + 1) % (steps // 4) == 0:
                dash.go(page, "sandboxes")
                page.wait("document.querySelector('.boxes')", dash.WAIT)
                marks.append((*dash.heap(page), page.run("document.adoptedStyleSheets.length")))
                print(f"  {step + 1} steps: {marks[-1]}", file=sys.stderr, flush=True)
        server.delete(f"{dash.BOXES}/{box}")
        bench.figures["hour"] = marks
        for what, i, unit in (("memory of the page after an hour vs after a quarter", 0, "bytes"),
                              ("elements of the page after an hour vs after a quarter", 1, "")):
            ratio = marks[-1][i] / marks[0][i]
            bench.row(what, marks[-1][i], marks[0][i], ratio, "<= 1.1 x", ratio <= 1.1, unit)
    finally:
        chromium.close()
        server.stop()
