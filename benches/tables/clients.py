"""What a real client's threads felt of a fault."""

from call_times import median_and_maximum
from tables import origin, table, verdict

OURS, REFERENCE = "moonkeeper", "reference"
FAULTS = {
    "kill": "SIGKILL",
    "oom": "killed by the kernel, out of memory",
    "panic": "panic (SIGABRT)",
    "terminate": "orderly stop (SIGTERM), as a pod deleted with its grace",
    "switchover": "switchover",
    "companion-kill": "companion killed, then SIGKILL",
    "companion-oom": "companion killed, then out of memory",
    "companion-panic": "companion killed, then panic",
    "lost-node": "lost node: process, companion and address gone",
}
# For the longest time without a success of a thread and for the longest call, where the address of the primary stays.
GOAL_MS = 1000
GOAL_FAULTS = ("kill", "oom", "panic", "terminate")
# No call of a switchover ends with these.
FORBIDDEN_IN_SWITCHOVER = (-200, -706)
CODES = {
    -200: "no memory",
    -703: "object not ready",
    -704: "no such object",
    -705: "object exists",
    -706: "object has a lease",
    -800: "transfer failed",
    -900: "RPC failed",
    -901: "RPC timed out",
}


def rounds_of(run, kind, fault):
    """The rounds that were measured."""
    of_fault = [each for each in run["results"] if (each["kind"], each["fault"]) == (kind, fault)]
    return [each for each in of_fault if "failure" not in each]


def broken(run, kind, fault):
    """Why rounds could not be measured."""
    of_fault = [each for each in run["results"] if (each["kind"], each["fault"]) == (kind, fault)]
    return [each["failure"] for each in of_fault if "failure" in each]


def missing(run, kind, faults, rounds):
    """(number, fault) of the rounds of which a run has no result, the faults taking turns. What could not be done is not
    tried again."""
    done = {(each.get("round"), each["fault"]) for each in run["results"] if each["kind"] == kind}
    numbers = range(1, rounds + 1)
    return [(number, fault) for number in numbers for fault in faults if not {(number, fault), (None, fault)} & done]


def one_line(result):
    """What is said of a round while others go on."""
    _, slowest = median_and_maximum(result["without_success_ms"])
    failed = sum(each["count"] for each in result["failed"])
    return (
        f"at most {milliseconds(slowest)} without a success, longest call {result['longest_call_ms']:,.0f} ms, "
        f"{failed:,} of {result['calls']:,} calls failed"
    )


def _all(rounds, field):
    return [value for each in rounds for value in each[field]]


def milliseconds(value):
    return "never" if value == float("inf") else f"{value:,.0f} ms"


def failed_calls(rounds):
    """(call, code, cause) and how many, over all rounds."""
    counts = {}
    for each in rounds:
        for failed in each["failed"]:
            key = failed["call"], failed["code"], failed["cause"]
            counts[key] = counts.get(key, 0) + failed["count"]
    return counts


def companion(rounds, fault):
    with_it = sum(each["companion"] for each in rounds)
    if fault.startswith("companion-"):
        return "killed first"
    return "yes" if with_it == len(rounds) else "no" if with_it == 0 else f"in {with_it} rounds"


def met(rounds, kind, fault):
    """Whether the goal of a row is met; None where it has none."""
    if kind != OURS:
        return None
    if fault == "switchover":
        return not any(code in FORBIDDEN_IN_SWITCHOVER for _, code, _ in failed_calls(rounds))
    if fault in GOAL_FAULTS:
        slowest = median_and_maximum(_all(rounds, "without_success_ms"))[1]
        return max(slowest, *(each["longest_call_ms"] for each in rounds)) <= GOAL_MS
    return None


def goal(kind, fault):
    if kind != OURS:
        return ""
    codes = " or ".join(map(str, FORBIDDEN_IN_SWITCHOVER))
    return f"no {codes}" if fault == "switchover" else "1 s" if fault in GOAL_FAULTS else ""


def time_rows(run):
    for fault, name in FAULTS.items():
        for kind in (OURS, REFERENCE):
            rounds, why = rounds_of(run, kind, fault), broken(run, kind, fault)
            if not rounds:
                if why:
                    yield [name, kind, *[""] * 9, f"could not be done: {why[0]}"]
                continue
            count = f"{len(rounds)}" + (f", {len(why)} broke" if why else "")
            cells = [name, kind, companion(rounds, fault) if kind == OURS else "", count]
            for values in (
                _all(rounds, "without_success_ms"),
                _all(rounds, "without_put_ms"),
                [each["longest_call_ms"] for each in rounds],
            ):
                cells += map(milliseconds, median_and_maximum(values))
            failed, calls = sum(failed_calls(rounds).values()), sum(each["calls"] for each in rounds)
            cells.append(f"{failed:,} of {calls:,}")
            wanted = goal(kind, fault)
            judged = f"{wanted}: {verdict(met(rounds, kind, fault) and not why)}" if wanted else ""
            yield [*cells, judged + (f"; a round broke: {why[0]}" if why else "")]


def failure_rows(run):
    """A row for each code and cause, with the calls that ended so."""
    for fault, name in FAULTS.items():
        for kind in (OURS, REFERENCE):
            counts = failed_calls(rounds_of(run, kind, fault))
            for code, cause in sorted({(code, cause) for _, code, cause in counts}):
                calls = {call: count for (call, *key), count in sorted(counts.items()) if key == [code, cause]}
                meaning = f" ({CODES[code]})" if code in CODES else ""
                each = ", ".join(f"{call} {count:,}" for call, count in calls.items())
                yield [name, kind, f"{code}{meaning}", cause, each, f"{sum(calls.values()):,}"]


def run_lines(run):
    options = run["options"]
    size = f"{options['objects']:,} objects", f"{options['threads']} threads", f"etcd of {options['etcd']}"
    head = ["fault", "master", "companion", "rounds", "a thread without a success: median", "maximum"]
    head += ["without a put: median", "maximum", "longest call: median", "maximum", "failed calls", "goal"]
    lines = [f"({origin(run, *size)})", "", *table(head, time_rows(run), "   rrrrrrrr ")]
    failed = list(failure_rows(run))
    if failed:
        head = ["fault", "master", "code", "the call", "which", "calls"]
        lines += ["", "Calls that failed, of all rounds:", "", *table(head, failed, "     r")]
    return lines


def lines(runs):
    """The tables of the last run with each number of members, and with each part of it: the latest rounds count."""
    found = []
    for etcd in (1, 3):
        of_size = [each for each in runs if each["options"]["etcd"] == etcd and each["results"]]
        for run in latest(of_size):
            found += ["", *run_lines(run)]
    return found[1:]


def latest(runs):
    """The runs, oldest first, without the results of which a later run has the same fault and master."""
    seen, kept = set(), []
    for run in reversed(runs):
        mine = {(each["kind"], each["fault"]) for each in run["results"]} - seen
        seen |= mine
        results = [each for each in run["results"] if (each["kind"], each["fault"]) in mine]
        if results:
            kept.append(run | {"results": results})
    return kept[::-1]
