"""The local cluster of tests/suites/cluster ends whatever its containers are in the middle of."""

import pathlib
import subprocess
import threading

import pytest

import daemons
from layout import Layout


@pytest.fixture
def layout(tmp_path):
    """A cluster that has its control groups and nothing else."""
    made = Layout("frozen", tmp_path)
    daemons.make_groups(made, 1)
    yield made
    daemons.kill_all(made)
    daemons.remove_groups(made)


def test_a_frozen_container_is_killed(layout):
    freezer = daemons.ROOT / "freezer" / layout.group / "n1"
    version_1 = freezer.is_dir()
    group = freezer if version_1 else daemons.ROOT / layout.group / "n1"
    process = subprocess.Popen(["sleep", "600"])
    try:
        pathlib.Path(group, "cgroup.procs").write_text(str(process.pid))
        state, frozen = ("freezer.state", "FROZEN") if version_1 else ("cgroup.freeze", "1")
        pathlib.Path(group, state).write_text(frozen)
        daemons.kill_all(layout)
        assert process.wait(10) == -9
    finally:
        pathlib.Path(group, state).write_text("THAWED" if version_1 else "0")
        process.kill()
        process.wait()


def test_groups_may_go_while_they_are_killed(layout):
    """As those of containers do whose runtime still ends them."""
    top = daemons.groups(layout)[0] / "n1"
    ended = threading.Event()

    def come_and_go():
        while not ended.is_set():
            for number in range(50):
                (top / f"pod{number}").mkdir()
            for number in range(50):
                (top / f"pod{number}").rmdir()

    runtime = threading.Thread(target=come_and_go)
    runtime.start()
    try:
        for _ in range(100):
            daemons.kill_all(layout)
            daemons._thaw(layout)
    finally:
        ended.set()
        runtime.join()
