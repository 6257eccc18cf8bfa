"""The images that the pods of the scenarios run: ours, and an etcd for the masters."""

import os
import pathlib
import re
import subprocess
import sys

TREE = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(TREE / "image"))
import archive  # noqa: E402

# Both as the chart names them, so that its values need no change.
_VERSION = re.search(r'^version = "(.+)"', (TREE / "Cargo.toml").read_text(), re.MULTILINE)[1]
MOONKEEPER = f"ghcr.io/moonkeeper/moonkeeper:{_VERSION}"
ETCD = "gcr.io/etcd-development/etcd:v3.6.16"


def build_moonkeeper(folder):
    """Our image with the binary under test, under the name that everything has by default; returns the archive."""
    path = folder / "moonkeeper.tar"
    command = [TREE / "scripts/image", "--archive", path, "--tag", MOONKEEPER, "--binary", os.environ["MOONKEEPER_BIN"]]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return path


def build_etcd(folder):
    """An image of the etcd that the other suites use as well; returns the archive."""
    path = folder / "etcd.tar"
    files = {"/usr/local/bin/etcd": pathlib.Path(os.environ["ETCD_BIN"]).read_bytes()}
    archive.write(ETCD, path, files, entrypoint=["/usr/local/bin/etcd"], user="65532:65532")
    return path
