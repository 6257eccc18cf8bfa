"""The programs of benches/ start: what they import from the suites is there. They need nothing built for that."""

import pathlib
import subprocess
import sys

import pytest

BENCHES = pathlib.Path(__file__).resolve().parents[3] / "benches"
# Runs in a real client's process, with arguments that `clients` gives it.
WORKERS = {"tight_loop.py"}
PROGRAMS = [
    each
    for each in sorted(BENCHES.glob("*.py"))
    if 'if __name__ == "__main__"' in each.read_text(encoding="utf-8") and each.name not in WORKERS
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda each: each.stem)
def test_it_shows_its_options(program, tmp_path):
    done = subprocess.run([sys.executable, program, "--help"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stdout.startswith(f"usage: {program.name}"), done.stderr


def test_none_is_left_out():
    assert {each.stem for each in PROGRAMS} >= {"compare", "clients", "failover", "replication", "stalls", "report"}
