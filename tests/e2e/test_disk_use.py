"""What a sandbox has written is seen: in its figures, in agentic's metrics, and inside. Root only."""
import os

import pytest
from harness import delete_boxes, run_in, wait_until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
BOXES = "/api/v1/sandboxes"
MIB = 1 << 20


@pytest.fixture(params=["disk", "memory"])
def box(request, boxes):
    reply = boxes.post(BOXES, {"storage": request.param, "memory": 512 * MIB, "disk": 200 * MIB}, timeout=60)
    if reply.status == 501:
        pytest.skip("no disks here")
    yield boxes, reply.json()["id"]
    delete_boxes(boxes)


def used(server, box):
    return server.get(f"{BOXES}/{box}/stats").json()["disk"]


def test_what_is_written_is_counted_soon_and_what_is_removed_no_more(box):
    server, box = box
    before = used(server, box)
    assert before < 8 * MIB, before
    assert run_in(server, box, "dd", "if=/dev/urandom", "of=/workspace/big", "bs=1M", "count=50")["exit_code"] == 0
    wait_until(lambda: 50 * MIB <= used(server, box) - before < 60 * MIB, 15, "50 MiB more")
    assert "Disk " in server.cli("stats", box, check=True).stdout
    assert run_in(server, box, "rm", "/workspace/big")["exit_code"] == 0
    wait_until(lambda: used(server, box) < before + 8 * MIB, 40, "none of them")


@pytest.mark.parametrize("box", ["memory"], indirect=True)
def test_df_inside_shows_the_limit_of_a_sandbox_in_memory(box):
    """On a disk the file system itself answers, which does not know the limits of its subvolumes."""
    server, box = box
    line = run_in(server, box, "df", "-B1", "--output=size,avail", "/workspace")["output"].split("\n")[1].split()
    assert 190 * MIB <= int(line[0]) <= 210 * MIB, line
