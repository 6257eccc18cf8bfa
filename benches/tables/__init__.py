"""Tables in Markdown from recorded runs (`recording.py`), a module for each program. No module here measures anything or
needs a program: the benchmarks print with them what they have just measured, and `report.py` what was kept."""

MET, NOT_MET = "met", "**not met**"


def verdict(met):
    """The last cell of a row; empty where there is no goal."""
    return "" if met is None else MET if met else NOT_MET


def table(head, rows, align=None):
    """Lines of a table; `align` has `r` for each column of numbers."""
    marks = {"r": "---:"}
    align = align or " " * len(head)
    lines = ["| " + " | ".join(head) + " |", "|" + "|".join(marks.get(each, "---") for each in align) + "|"]
    return lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows]


def origin(run, *more):
    """One line that says what a run was measured on."""
    machine = run["machine"]
    date = run["date"] + (f" to {run['continued']}" if "continued" in run else "")
    said = [f"commit `{run['commit']}`", date, *more]
    said += [f"{machine['processors']} processors", f"{machine['memory_gib']:g} GiB"]
    if run["build"] != "release":
        said.append(f"**{run['build']} build: not to be quoted**")
    return ", ".join(said)
