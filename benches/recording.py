"""What a benchmark measured, kept in a file as it comes, together with what it was measured on.

A file belongs to one program and holds its runs, oldest first. A run says which commit, which build, when, on how large a
machine and with which options; its results are added one by one, and the file is replaced as a whole after each, so that
a run which is cut short leaves what it had, and can be continued. No name of a machine or of a person is written.
"""

import datetime
import json
import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Changes here change what is measured; results and documents do not.
MEASURED = ["src", "benches/*.py", "tests", "Cargo.toml", "Cargo.lock"]


def _git(*arguments):
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def commit():
    """The commit of this tree, with a mark when what is measured was changed since; "unknown" outside of git."""
    head = _git("rev-parse", "--short=12", "HEAD")
    if not head:
        return "unknown"
    return head + ("+changes" if _git("status", "--porcelain", "--untracked-files=no", "--", *MEASURED) else "")


def in_history(commit):
    """Whether a commit is HEAD or an ancestor of it; None where git cannot tell: outside of a repository, or in a clone
    without the whole history."""
    if _git("rev-parse", "--is-shallow-repository") != "false":
        return None
    return _git("merge-base", "--is-ancestor", commit.removesuffix("+changes"), "HEAD") is not None


def build():
    """`release` or `debug`, as the folder of the program says; "unknown" for a copy of it elsewhere."""
    name = pathlib.Path(os.environ.get("MOONKEEPER_BIN", "")).resolve().parent.name
    return name if name in ("release", "debug") else "unknown"


def machine():
    """Processors and memory."""
    with open("/proc/meminfo", encoding="ascii") as file:
        kib = next(int(line.split()[1]) for line in file if line.startswith("MemTotal:"))
    return {"processors": os.cpu_count(), "memory_gib": round(kib / 2**20, 1)}


def load(path):
    """The runs in a file, oldest first; none when there is no such file."""
    path = pathlib.Path(path)
    return json.loads(path.read_text(encoding="utf-8"))["runs"] if path.exists() else []


# What has to be the same for results to be of one run.
_SAME = ("commit", "build", "machine", "options")


class Recording:
    """One run. Without a path it is kept in memory only."""

    def __init__(self, path, program, **options):
        self._path, self._program = path and pathlib.Path(path), program
        self._earlier = load(path) if path else []
        self.run = {
            "commit": commit(),
            "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
            "build": build(),
            "machine": machine(),
            "options": options,
            "results": [],
        }

    def resume(self):
        """Adds to the last run in the file; ends the program if that was of another commit, build or machine, or had other
        options."""
        if not self._earlier:
            return
        last, date = self._earlier[-1], self.run["date"]
        others = [name for name in _SAME if last[name] != self.run[name]]
        if others:
            changed = ", ".join(f"{name} {last[name]} and not {self.run[name]}" for name in others)
            raise SystemExit(f"{self._path}: the last run cannot be continued: it has {changed}")
        self._earlier.pop()
        self.run = last | {"continued": date}

    def add(self, **result):
        """Adds one result and writes the file."""
        self.run["results"].append(result)
        if self._path is None:
            return
        # A new file takes the place of the old one: there is a whole one at every moment.
        whole = {"program": self._program, "runs": [*self._earlier, self.run]}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        partial = self._path.with_name(self._path.name + ".partial")
        partial.write_text(json.dumps(whole, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        partial.replace(self._path)
