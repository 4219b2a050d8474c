"""A real browser for tests: chromium without a window, driven by its DevTools protocol.

Only what the tests need: open a page, run JavaScript in it, look at cookies, type, and collect what the
console and the network said. Everything blocks; a thread reads the protocol's socket.
"""
import asyncio
import base64
import itertools
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import threading
import time

import websockets

FLAGS = ["--headless=new", "--remote-debugging-port=0", "--no-first-run", "--no-default-browser-check", "--disable-gpu",
         "--disable-extensions", "--disable-background-networking", "--disable-dev-shm-usage", "--mute-audio",
         "--window-size=1200,900", "about:blank"]


def find():
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Page:
    """One tab. Those of one Browser.page() each have cookies of their own, as if they were other browsers."""

    def __init__(self, browser, alone=False):
        self.browser, self.session = browser, None
        self.context = browser.send(None, "Target.createBrowserContext")["browserContextId"] if alone else None
        where = {"browserContextId": self.context} if alone else {}
        self.target = browser.send(None, "Target.createTarget", url="about:blank", **where)["targetId"]
        self.session = browser.send(None, "Target.attachToTarget", targetId=self.target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(domain + ".enable")

    def call(self, method, **params):
        """One command of the protocol and its answer."""
        return self.browser.send(self.session, method, **params)

    def open(self, url):
        # A change of the fragment alone would not load anything.
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=url)

    def run(self, script):
        """The value of a JavaScript expression; a promise is awaited."""
        got = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in got:
            raise RuntimeError(got["exceptionDetails"].get("exception", {}).get("description", "script failed"))
        value = got["result"].get("value")
        if value == {}:  # which is how an element comes, and would count as nothing
            raise RuntimeError(f"an element is no value; ask whether it is there: {script}")
        return value

    def wait(self, script, seconds=15):
        """Until the expression is true, or an element; while the page loads it may well throw."""
        end = time.monotonic() + seconds
        while True:
            try:
                got = self.run(f"Promise.resolve({script}).then((it) => it instanceof Node || it)")
            except RuntimeError:
                got = None
            if got:
                return got
            if time.monotonic() > end:
                raise AssertionError(f"waited {seconds} s for {script}; the page says:\n{self.text()}")
            time.sleep(0.02)

    def text(self):
        return self.run("document.body ? document.body.innerText : ''")

    def cookies(self):
        return self.call("Network.getAllCookies")["cookies"]

    # ---- as a person would ----

    def press(self, key, ctrl=False, shift=False):
        """One key, by its name: "a", "Enter", "ArrowDown"…"""
        codes = {"Enter": 13, "Tab": 9, "Escape": 27, "ArrowDown": 40, "ArrowUp": 38, "ArrowLeft": 37, "ArrowRight": 39}
        modifiers = (2 if ctrl else 0) | (8 if shift else 0)
        one = len(key) == 1
        text = {"text": "\r" if key == "Enter" else key} if (one or key == "Enter") and not ctrl else {}
        code = codes.get(key, ord(key.upper()) if one else 0)
        name = f"Key{key.upper()}" if one and key.isalpha() else key
        which = {"key": key, "code": name, "windowsVirtualKeyCode": code, "modifiers": modifiers}
        self.call("Input.dispatchKeyEvent", type="keyDown", **which, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **which)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def where(self, script):
        """The middle of an element that an expression gives, once there is one, scrolled into sight."""
        self.wait(script)
        x, y = self.run(f"""(async () => {{ const el = {script}; if (!el) throw new Error('there is no such element');
            el.scrollIntoView({{ block: 'center', inline: 'center' }});
            await new Promise((done) => setTimeout(done, 30));
            const r = el.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; }})()""")
        return {"x": x, "y": y}

    def click(self, script):
        at = self.where(script)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **at)

    def picture(self, name):
        """For whoever wants to look: ATOLL_PICTURES names a directory."""
        if "ATOLL_PICTURES" in os.environ:
            data = self.call("Page.captureScreenshot", format="png")["data"]
            pathlib.Path(os.environ["ATOLL_PICTURES"], name).write_bytes(base64.b64decode(data))

    def complaints(self):
        """Errors and warnings of the page: scripts, the console, blocked or failed loads."""
        with self.browser.news:
            events = [event for event in self.browser.events if event.get("sessionId") == self.session]
        found = []
        for event in events:
            params = event.get("params", {})
            if event["method"] == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
                found.append(params["entry"]["text"] + " " + params["entry"].get("url", ""))
            if event["method"] == "Runtime.exceptionThrown":
                found.append(params["exceptionDetails"]["text"])
            if event["method"] == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
                found.append(str(params["args"]))
        return found


class Browser(Page):
    def __init__(self):
        self.profile = tempfile.mkdtemp(prefix="atoll-browser-")
        # Its own sandbox needs what root in a test machine does not have; pages here are our own.
        extra = ["--no-sandbox"] if os.geteuid() == 0 else []
        self.process = subprocess.Popen([find(), f"--user-data-dir={self.profile}", *extra, *FLAGS],
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                        start_new_session=True)
        self.numbers = itertools.count(1)
        self.answers, self.events = {}, []
        self.news = threading.Condition()
        self.ws = None
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self._read, args=(self._address(),), daemon=True)
        self.thread.start()
        with self.news:
            self.news.wait_for(lambda: self.ws is not None, 30)
        super().__init__(self)

    def page(self):
        """One more, of somebody else."""
        return Page(self, alone=True)

    def _address(self):
        path = pathlib.Path(self.profile, "DevToolsActivePort")
        end = time.monotonic() + 60
        while not (path.exists() and len(path.read_text().split("\n")) >= 2):
            if time.monotonic() > end or self.process.poll() is not None:
                raise RuntimeError("chromium did not start")
            time.sleep(0.05)
        port, where = path.read_text().split("\n")[:2]
        return f"ws://127.0.0.1:{port}{where}"

    def _read(self, address):
        async def run():
            async with websockets.connect(address, max_size=None, ping_interval=None) as ws:
                with self.news:
                    self.ws = ws
                    self.news.notify_all()
                async for text in ws:
                    message = json.loads(text)
                    with self.news:
                        if "id" in message:
                            self.answers[message["id"]] = message
                        else:
                            self.events.append(message)
                        self.news.notify_all()

        try:
            self.loop.run_until_complete(run())
        except (websockets.ConnectionClosed, OSError):
            pass

    def send(self, session, method, **params):
        number = next(self.numbers)
        message = {"id": number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        asyncio.run_coroutine_threadsafe(self.ws.send(json.dumps(message)), self.loop).result(10)
        with self.news:
            assert self.news.wait_for(lambda: number in self.answers, 30), f"{method}: no answer"
            answer = self.answers.pop(number)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def close(self):
        try:
            self.send(None, "Browser.close")
            self.process.wait(10)
        except Exception:
            self.process.kill()
            self.process.wait()
        self.thread.join(5)
        # Its helpers may take a moment longer, and still write.
        for _ in range(50):
            shutil.rmtree(self.profile, ignore_errors=True)
            if not os.path.exists(self.profile):
                break
            time.sleep(0.1)
