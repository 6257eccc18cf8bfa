"""Suites run beside each other: a port that one process has given out is not given out by another."""

import pathlib
import subprocess
import sys

import ports

COMMON = pathlib.Path(ports.__file__).parent


def given_out_elsewhere(port):
    """Whether another process would give it out, if it were the only candidate."""
    script = f"import ports; ports._CANDIDATES = iter([{port}]); print(ports.free_port())"
    asked = subprocess.run([sys.executable, "-c", script], cwd=COMMON, capture_output=True, text=True, timeout=60)
    assert asked.returncode == 0 or "no free port left" in asked.stderr, asked.stderr
    return asked.returncode == 0


def test_a_port_is_given_out_by_one_process():
    mine = ports.free_port()
    # Nothing listens there yet.
    assert not given_out_elsewhere(mine)


def test_a_port_is_free_again_when_the_process_has_ended():
    script = "import ports; print(ports.free_port())"
    ended = subprocess.run([sys.executable, "-c", script], cwd=COMMON, capture_output=True, text=True, timeout=60)
    assert given_out_elsewhere(int(ended.stdout))
