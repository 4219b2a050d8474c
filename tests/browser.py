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


class Browser:
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
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = None
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(domain + ".enable")

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

    def call(self, method, **params):
        """One command of the protocol and its answer."""
        number = next(self.numbers)
        message = {"id": number, "method": method, "params": params}
        if getattr(self, "session", None):
            message["sessionId"] = self.session
        asyncio.run_coroutine_threadsafe(self.ws.send(json.dumps(message)), self.loop).result(10)
        with self.news:
            assert self.news.wait_for(lambda: number in self.answers, 30), f"{method}: no answer"
            answer = self.answers.pop(number)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def open(self, url):
        # A change of the fragment alone would not load anything.
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=url)

    def run(self, script):
        """The value of a JavaScript expression; a promise is awaited."""
        got = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in got:
            raise RuntimeError(got["exceptionDetails"].get("exception", {}).get("description", "script failed"))
        return got["result"].get("value")

    def wait(self, script, seconds=15):
        """Until the expression is true; while the page loads it may well throw."""
        end = time.monotonic() + seconds
        while True:
            try:
                got = self.run(script)
            except RuntimeError:
                got = None
            if got:
                return got
            if time.monotonic() > end:
                raise AssertionError(f"waited {seconds} s for {script}; the page says:\n{self.text()}")
            time.sleep(0.05)

    def text(self):
        return self.run("document.body ? document.body.innerText : ''")

    def cookies(self):
        return self.call("Network.getAllCookies")["cookies"]

    def complaints(self):
        """Errors and warnings of the page: scripts, the console, blocked or failed loads."""
        with self.news:
            events = list(self.events)
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

    def close(self):
        try:
            self.session = None
            self.call("Browser.close")
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
