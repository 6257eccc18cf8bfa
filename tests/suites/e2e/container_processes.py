"""Processes in containers, by their numbers on this machine."""

import pathlib


def on_this_machine(first, number, proc="/proc"):
    """The number here of a process that has `number` in the namespace whose first process is `first` here; None if there is no
    such process."""
    proc = pathlib.Path(proc)
    own = _numbers(proc / str(first))
    if not own:
        return None
    # A process has a number in each namespace that it is in, from this one inwards.
    depth = len(own) - 1
    for each in proc.glob("[0-9]*"):
        numbers = _numbers(each)
        if len(numbers) > depth and numbers[depth] == number and _descends(proc, each.name, first):
            return int(each.name)
    return None


def _field(process, name):
    """A line of a process's status, as words; none if the process has ended."""
    try:
        lines = (process / "status").read_text().splitlines()
    except OSError:
        return []
    return next((line.split()[1:] for line in lines if line.startswith(f"{name}:")), [])


def _numbers(process):
    return [int(each) for each in _field(process, "NSpid")]


def _descends(proc, process, ancestor):
    """Whether a process, or one of its parents, is `ancestor`: what is orphaned in a namespace goes to its first process."""
    while process not in ("", "0"):
        if process == str(ancestor):
            return True
        process = next(iter(_field(proc / process, "PPid")), "")
    return False
