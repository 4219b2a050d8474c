"""Fixtures for end-to-end tests (tests/e2e) and the crash test (tests/crash).

  server         one running server for the whole file (run-tests runs each file by itself)
  fresh_server   a server of its own for one test
  start_server   a function that starts servers with options: start_server(args=[…], env={…})
  chromium       a browser for the whole file; page: the same, logged in to the dashboard of `server`

Each is a harness.Server; when a test or file is over, it must end cleanly and leave nothing. ATOLL_BIN
names another program to test (a sanitizer build). A test that takes longer than its limit
(`@pytest.mark.timeout(seconds)`, otherwise 60) fails instead of hanging. With ATOLL_MUST_WORK=1 a skip is
a failure.
"""
import os
import pathlib
import signal
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import dash  # noqa: E402
import harness  # noqa: E402
from sdkts import npm_ci  # noqa: E402

MUST_WORK = os.environ.get("ATOLL_MUST_WORK") == "1"
TEST_SECONDS = 60


def pytest_configure(config):
    config.addinivalue_line("markers", "timeout(seconds): the test fails when it takes longer")
    harness.adopt_orphans()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item):
    marker = item.get_closest_marker("timeout")
    seconds = (marker.args[0] if marker else TEST_SECONDS) * harness.SLOW

    def over(*_):
        raise TimeoutError(f"the test took longer than {seconds} s")

    before = signal.signal(signal.SIGALRM, over)
    signal.alarm(int(seconds))
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    if MUST_WORK and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped, but ATOLL_MUST_WORK=1: {report.longrepr}"
    if report.failed and report.when == "call":
        for server in item.funcargs.values():
            if isinstance(server, harness.Server):
                report.sections.append(("serve log", server.log_tail()))


@pytest.fixture(scope="session")
def server():
    server = harness.Server().start()
    yield server
    server.stop()


@pytest.fixture
def fresh_server():
    server = harness.Server().start()
    yield server
    server.stop()


@pytest.fixture
def start_server():
    """start_server(ready=True, **options of harness.Server); all are stopped in the end."""
    servers = []

    def start(ready=True, **options):
        servers.append(harness.Server(**options))
        return servers[-1].start(ready)

    yield start
    for server in reversed(servers):
        server.stop()


@pytest.fixture
def boxes(server):
    """The server, with no sandbox before and after."""
    yield server
    harness.delete_boxes(server)
    assert list((server.state / "boxes").iterdir()) == []


@pytest.fixture(scope="session")
def node_modules():
    """What tests/peers/package-lock.json names."""
    npm_ci(harness.ROOT / "tests" / "peers")


@pytest.fixture
def peer():
    """A loopback address of its own, so that limits by peer do not carry over between tests."""
    peer.next = getattr(peer, "next", 0) + 1
    number = os.getpid() % 200 * 250 + peer.next
    return f"127.77.{number // 250 % 250 + 1}.{number % 250 + 1}"


@pytest.fixture(scope="module")
def chromium():
    chromium = dash.chromium()
    yield chromium
    chromium.close()


@pytest.fixture(scope="module")
def page(server, chromium):
    dash.login(server, chromium)
    return chromium
