"""The long-running programs of a cluster: each is started again when it ends, until it is held or the cluster goes.

They outlive the command that starts them. All of them, and so everything that they start, are in the cluster's control
group: ending the cluster is killing what is in there, and nothing can hide from it.
"""

import os
import pathlib
import signal
import subprocess
import time

from layout import ClusterError

ROOT = pathlib.Path("/sys/fs/cgroup")
# Version 1 has a tree for each of these; what a node's kubelet does not find there, it refuses to do without.
CONTROLLERS = ["cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids", "hugetlb", "systemd"]
RESTART = 'while :; do [ -e "$0" ] || "$@"; sleep 0.3; done'
KILL_SECONDS = 30


def _trees():
    """The roots of all control group trees; version 2 has one."""
    if (ROOT / "cgroup.controllers").exists():
        return [ROOT]
    return [ROOT / each for each in CONTROLLERS if (ROOT / each).is_dir()]


def groups(layout):
    """The cluster's group in every tree in which somebody made one."""
    return [each for each in [ROOT / layout.group, *ROOT.glob(f"*/{layout.group}")] if each.is_dir()]


def make_groups(layout, count):
    """The cluster's control groups: one for its daemons and one for the pods of each node."""
    for tree in _trees():
        top = tree / layout.group
        top.mkdir(exist_ok=True)
        if tree.name == "cpuset":
            # Without processors and memory of its own a group of this tree takes no process.
            for setting in ("cpuset.cpus", "cpuset.mems"):
                (top / setting).write_text((tree / setting).read_text())
            (top / "cgroup.clone_children").write_text("1")
        if tree == ROOT:
            wanted = " ".join(f"+{each}" for each in (tree / "cgroup.controllers").read_text().split())
            (tree / "cgroup.subtree_control").write_text(wanted)
            (top / "cgroup.subtree_control").write_text(wanted)
        # As much of a busy machine as several programs get; a group is given no more than one of them otherwise.
        for setting, share in [("cpu.shares", "8192"), ("cpu.weight", "800")]:
            if (top / setting).exists():
                (top / setting).write_text(share)
        for part in ["daemons", *(f"n{number}" for number in range(1, count + 1))]:
            (top / part).mkdir(exist_ok=True)


def start(layout, number, name, *command):
    """Starts a program in a node's network, and again whenever it ends; its output goes to the node's log folder."""
    log = layout.home(number) / "log" / f"{name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    group = str((ROOT if (ROOT / "cgroup.controllers").exists() else ROOT / "pids") / layout.group / "daemons")

    def join():
        pathlib.Path(group, "cgroup.procs").write_text(str(os.getpid()))

    with open(log, "ab") as output:
        subprocess.Popen(
            layout.inside(number, "sh", "-c", RESTART, _hold(layout, number, name), *command),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=join,
        )


def hold(layout, number, name):
    """Kills a daemon of a node and keeps it from being started again."""
    _hold(layout, number, name).touch()
    for process in _processes(layout):
        if _is(process, name, layout.namespace(number)):
            os.kill(process, signal.SIGKILL)


def release(layout, number, name):
    """Lets a daemon start again."""
    _hold(layout, number, name).unlink(missing_ok=True)


def _hold(layout, number, name):
    return layout.home(number) / f"{name}.held"


def _is(process, name, namespace):
    """Whether the process runs that program in that network: containers may run the same one in theirs."""
    try:
        same_network = os.path.samefile(f"/proc/{process}/ns/net", f"/run/netns/{namespace}")
        return same_network and os.path.basename(os.readlink(f"/proc/{process}/exe")) == name
    except OSError:
        return False


def _processes(layout):
    """Everything that runs in the cluster: daemons, shims, containers."""
    found = set()
    for group in groups(layout):
        for folder, _, _ in os.walk(group):
            try:
                found.update(map(int, pathlib.Path(folder, "cgroup.procs").read_text().split()))
            except OSError:
                # A group that went meanwhile.
                continue
    return found


def _thaw(layout):
    """Lets frozen processes go on. runc freezes a container while it ends it; with runc killed in between, the container stays
    frozen, and a frozen process does not die."""
    for group in groups(layout):
        # As everywhere here: a walk passes over groups that go meanwhile.
        for folder, _, files in os.walk(group):
            for name, running in [("freezer.state", "THAWED"), ("cgroup.freeze", "0")]:
                try:
                    if name in files:
                        pathlib.Path(folder, name).write_text(running)
                except OSError:
                    continue


def kill_all(layout):
    """Kills everything that runs in the cluster."""
    end = time.monotonic() + KILL_SECONDS
    while processes := _processes(layout):
        if time.monotonic() > end:
            raise ClusterError(f"these processes of cluster {layout.name} do not die: {sorted(processes)}")
        _thaw(layout)
        for each in processes:
            try:
                os.kill(each, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.05)


def remove_groups(layout):
    """Removes the control groups, which must be empty."""
    for group in groups(layout):
        for folder, _, _ in os.walk(group, topdown=False):
            os.rmdir(folder)
