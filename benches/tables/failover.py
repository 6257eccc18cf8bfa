"""How long no master answers."""

from call_times import median_and_maximum
from tables import origin, table, verdict

OURS, REFERENCE = "moonkeeper", "reference"
# Field of a round, its name, and the goals for median and maximum in milliseconds.
ROWS = {
    "kill": ("first_answer_ms", "SIGKILL to the first answer", (100, 300)),
    "switchover": ("silence_ms", "switchover, longest time without an answer", (None, 100)),
}


def rows(run):
    for fault, (field, name, (median_goal, maximum_goal)) in ROWS.items():
        for kind in (OURS, REFERENCE):
            values = [each[field] for each in run["results"] if each["fault"] == fault and each["kind"] == kind]
            if not values:
                continue
            median, maximum = median_and_maximum(values)
            goal, met = "", None
            if kind == OURS:
                goal = f"{median_goal} ms, " if median_goal else ""
                goal += f"at most {maximum_goal} ms"
                met = median <= (median_goal or maximum_goal) and maximum <= maximum_goal
            yield [name, kind, str(len(values)), f"{median:,.0f} ms", f"{maximum:,.0f} ms", goal, verdict(met)]


def lines(runs):
    """The last run with each number of members."""
    found = []
    for etcd in (1, 3):
        run = next((each for each in reversed(runs) if each["options"]["etcd"] == etcd and each["results"]), None)
        if run:
            size = f"{run['options']['objects']:,} objects", f"etcd of {etcd}"
            head = ["", "master", "rounds", "median", "maximum", "goal", ""]
            found += ["", f"({origin(run, *size)})", "", *table(head, rows(run), "  rrr  ")]
    return found[1:]
