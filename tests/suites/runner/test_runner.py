"""`make test` itself: each of its conditions can fail. The suites here are a few lines of shell or Python."""

import os
import pathlib
import subprocess
import sys

import pytest
from waiting import wait_until

TREE = pathlib.Path(__file__).resolve().parents[3]
PREPARED = f"""
set -euo pipefail
source {TREE}/scripts/suites.sh
say() {{ printf '== %s\\n' "$*" >&2; }}
die() {{ printf '!! %s\\n' "$*" >&2; exit 1; }}
root=$PWD run=$PWD/run counted=''
declare -A bounds=([short]="2 60" [hanging]="0 1")
measurements=(a::measurement)
mkdir -p run
trap end_groups EXIT
"""
RUST = "test result: ok. {passed} passed; 0 failed; {ignored} ignored; 0 measured; 0 filtered out; finished in 0.10s"


def shell(folder, script, **environment):
    """Runs `script` after what prepares it, in `folder`."""
    # Of an outer `make test` nothing but the path.
    clean = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    command = ["bash", "-c", PREPARED + script]
    return subprocess.run(command, cwd=folder, env=clean | environment, capture_output=True, text=True, timeout=60)


def suite(folder, *lines):
    """A suite of the name `short` that prints these lines and succeeds."""
    (folder / "printed").write_text("\n".join(lines) + "\n")
    return shell(folder, "suite short cat printed; echo counted $counted")


def python_suite(folder, text, *options):
    (folder / "test_it.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-c", TREE / "tests/suites/pytest.ini", "--confcutdir", folder]
    (folder / "conftest.py").write_text((TREE / "tests/suites/conftest.py").read_text())
    done = subprocess.run([*map(str, command), *options, str(folder)], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout


def test_a_suite_is_counted_and_shown(tmp_path):
    done = suite(tmp_path, RUST.format(passed=2, ignored=0), "\x1b[32m" + RUST.format(passed=3, ignored=0) + "\x1b[0m")
    assert done.returncode == 0 and done.stdout.endswith("counted 5\n"), done
    assert "2 passed" in done.stdout
    done = suite(tmp_path, "===== 4 passed, 1 deselected in 61.00s (0:01:01) =====")
    assert done.stdout.endswith("counted 4\n"), done


def test_too_few_tests(tmp_path):
    done = suite(tmp_path, RUST.format(passed=1, ignored=0))
    assert done.returncode == 1 and "short: 1 tests, the floor is 2" in done.stderr, done


def test_a_suite_that_fails(tmp_path):
    done = shell(tmp_path, "suite short bash -c 'echo seen; exit 3'; echo not reached")
    assert done.returncode == 3 and done.stdout == "seen\n", done


def test_an_ignored_test(tmp_path):
    result = RUST.format(passed=2, ignored=1)
    done = suite(tmp_path, "test some::thing ... ignored, flaky", "test a::measurement ... ignored, slow", result)
    assert done.returncode == 1 and "ignored: some::thing" in done.stderr and "a::m" not in done.stderr, done
    assert suite(tmp_path, "test a::measurement ... ignored, slow", result).returncode == 0


def has_ended(stat):
    """Whether the process of this file in /proc has ended; its parent may not have collected it yet."""
    try:
        return stat.read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_a_suite_that_hangs(tmp_path):
    # Beside the one that is told to end there is one that is not.
    done = shell(tmp_path, "suite hanging bash -c 'sleep 1000 & echo $! >left; exec sleep 1000'; echo not reached")
    assert done.returncode == 1 and "hanging: not done within 1 s" in done.stderr, done
    left = pathlib.Path("/proc") / (tmp_path / "left").read_text().strip() / "stat"
    # A process takes SIGKILL when it is scheduled the next time, which is later on a busy machine.
    wait_until(lambda: has_ended(left), "the end of a process that the suite left behind")


def test_what_the_environment_says_does_not_change_tests(tmp_path):
    removed = ["DIFFERENTIAL_SELF", "MOONKEEPER_TEST_SEEDS", "MOONKEEPER_BLESS", "MOONKEEPER_RPC_PORT", "PYTEST_ADDOPTS"]
    removed += ["MOONKEEPER_BIN", "MOONKEEPER_E2E_KUBECONFIG", "ETCD_NAME", "RUSTFLAGS", "MC_STORE_MEMCPY", "RUST_TEST_THREADS"]
    kept = ["MOONKEEPER_CACHE", "MOONKEEPER_E2E_ARTIFACTS", "CARGO_TARGET_DIR", "HTTPS_PROXY"]
    given = {name: "1" for name in removed + kept}
    done = shell(tmp_path, "clean_environment; compgen -e", **given)
    left = done.stdout.split()
    assert not set(removed) & set(left) and set(kept) <= set(left), left
    said = done.stderr.removeprefix("== not taken from the environment: ").split()
    assert sorted(said) == sorted(removed), done.stderr


@pytest.mark.parametrize("change", ["echo more >>kept", "echo new >new", "rm kept", "git add kept"])
def test_a_tree_that_is_changed(tmp_path, change):
    made = """
    git init --quiet . && echo text >kept && git add kept
    git -c user.name=t -c user.email=t@t commit --quiet --message=t
    """
    # Work in progress is no change.
    looked = "echo mine >>kept; before=$(tree_state); %s; tree_unchanged \"$before\"; echo unchanged"
    assert shell(tmp_path, made + looked % "true").stdout == "unchanged\n"
    done = shell(tmp_path, looked % change)
    assert done.returncode == 1 and "the tree was changed" in done.stderr, done


@pytest.mark.parametrize(
    "text",
    [
        "import pytest\ndef test(): pytest.skip('not today')",
        "import pytest\n@pytest.mark.skip(reason='not today')\ndef test(): pass",
        "import pytest\n@pytest.mark.xfail(reason='not today')\ndef test(): assert False",
        "import pytest\npytest.skip('not today', allow_module_level=True)",
    ],
    ids=["called", "marked", "expected to fail", "of a file"],
)
def test_a_skip(tmp_path, text):
    status, said = python_suite(tmp_path, text, "--no-skips")
    assert status in (1, 2) and "skipped, which --no-skips does not allow" in said and "not today" in said, said
    # Without the option, as a person runs it, it is none.
    assert python_suite(tmp_path, text)[0] in (0, 5)


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        ("cat printed", 0, "counted 3"),
        ("sh -c 'cat printed; exit 7'", 7, "3 passed"),
        ("echo none", 1, "short: 0 tests, the floor is 2"),
    ],
)
def test_a_suite_beside_others(tmp_path, command, code, said):
    (tmp_path / "printed").write_text(RUST.format(passed=3, ignored=0) + "\n")
    script = f'start "$run/short.log" {command}\nawait_suite short "$started"\necho counted $counted'
    done = shell(tmp_path, script)
    assert (done.returncode, said in done.stdout + done.stderr) == (code, True), done
