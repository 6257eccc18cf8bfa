"""Rounds as a table in Markdown, for the documentation."""

import statistics
from collections import Counter, defaultdict

# Each has a column; they are what must never happen. The rest of what the checker names is in the last one.
COLUMNS = ["lost", "undone", "overlap"]


def table(rounds):
    """A line for each fault, and one for all."""
    by_fault = defaultdict(list)
    for each in rounds:
        by_fault[each.fault].append(each)
    lines = [
        "| fault | rounds | acknowledged | "
        + " | ".join(COLUMNS)
        + " | other | without answers: median | maximum | worst client: median | maximum | failed calls |",
        "|---|" + "---:|" * (len(COLUMNS) + 8),
        *(_line(name.replace("_", " "), some) for name, some in sorted(by_fault.items())),
        _line("all", rounds),
    ]
    return "\n".join(lines)


def _line(name, rounds):
    found = Counter(each.kind for one in rounds for each in one.violations)
    other = sum(count for kind, count in found.items() if kind not in COLUMNS)
    silences = [each.silence for each in rounds]
    cells = [name, len(rounds), sum(each.acknowledged for each in rounds), *(found[kind] for kind in COLUMNS), other]
    cells += [f"{statistics.median(silences):.2f} s", f"{max(silences):.2f} s"]
    felt = [each.client_silence for each in rounds if each.client_silence is not None]
    cells += [f"{statistics.median(felt):.2f} s", f"{max(felt):.2f} s"] if felt else ["–", "–"]
    cells.append(sum(each.failed_calls for each in rounds))
    return "| " + " | ".join(map(str, cells)) + " |"
