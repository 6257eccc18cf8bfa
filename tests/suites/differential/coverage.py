"""How often each RPC had each outcome in the walks of the first seed, as recorded in walk-coverage.tsv.

DIFFERENTIAL_RECORD=1 with all walks writes the file anew, when the walks were changed on purpose.
"""

from pathlib import Path

SUCCESS = "success"
PATH = Path(__file__).resolve().parent / "walk-coverage.tsv"


def outcomes(tally):
    """(RPC, success or code) of every outcome, and how often there was one that was not empty."""
    found = {(name, SUCCESS): count for name, count in tally.successes.items() if count}
    for code, names in tally.codes.items():
        found |= {(name, str(code)): count for name, count in names.items()}
    return found


def recorded():
    lines = [line.split("\t") for line in PATH.read_text().splitlines() if not line.startswith("#")]
    return {(name, outcome): int(count) for name, outcome, count in lines}


def record(tally):
    lines = [f"{name}\t{outcome}\t{count}\n" for (name, outcome), count in sorted(outcomes(tally).items())]
    PATH.write_text("# RPC, outcome, how often; made by coverage.py\n" + "".join(lines))


def too_rare(tally):
    """What was seen less than half as often as recorded: (RPC, outcome, seen, recorded)."""
    seen = outcomes(tally)
    pairs = recorded().items()
    return [(*outcome, seen.get(outcome, 0), count) for outcome, count in pairs if seen.get(outcome, 0) * 2 < count]
