"""What replication costs and allows."""

import statistics

from tables import origin, table, verdict

OURS, REFERENCE = "moonkeeper", "reference"
# Name, scenario, connections, operations outstanding on each, the goal in items a second.
PUTS = [
    ("puts, 1 outstanding", "put", 1, 1, None),
    ("puts, 8 outstanding", "put", 8, 1, None),
    ("puts, 64 outstanding", "put", 8, 8, 15_000),
    ("puts in batches of 128, 4 outstanding", "batch-put", 4, 1, 100_000),
    ("puts in batches of 128, 16 outstanding", "batch-put", 4, 4, 100_000),
]
# Name, scenario, connections, operations outstanding on each, the goal as a share of a master without replication.
COSTS = [
    ("ExistKey, 8 × 8", "exist-key", 8, 8, 1.2),
    ("ExistKey, 8 × 1", "exist-key", 8, 1, 1.2),
    ("GetReplicaList, 8 × 8", "get-replica-list", 8, 8, 1.2),
    ("BatchExistKey, 4 × 4", "batch-exist-key", 4, 4, 1.2),
    ("BatchGetReplicaList, 4 × 4", "batch-get-replica-list", 4, 4, 1.2),
    ("BatchPutStart + BatchPutEnd, 4 × 4", "batch-put", 4, 4, 1.2),
    ("PutStart + PutEnd, 8 × 8", "put", 8, 8, None),
]
PROMOTION_MS, EVICTION_SECONDS, EVICTION_RECORDS, RENEWAL_BYTES = 50, 8, 250, 1e6


def of_part(run, part):
    return [each for each in run["results"] if each["part"] == part]


def commit_rows(run):
    for each in of_part(run, "commits"):
        yield [f"one commit of {each['bytes']:,} bytes, alone", "", f"p50 {each['p50_us'] / 1000:.2f} ms", "", ""]


def reference_cell(loads):
    """The reference's own rate of puts that succeeded, and what it refused."""
    if not loads:
        return ""
    good = [each["report"] for each in loads if "report" in each]
    if not good:
        return f"fails: {loads[0]['failure']}"
    rate = statistics.median(each["items_per_second"] * (1 - each["errors"] / max(each["calls"], 1)) for each in good)
    calls, errors = (sum(each[name] for each in good) for name in ("calls", "errors"))
    return f"{rate:,.0f}/s" + (f", {errors:,} of {calls:,} operations refused" if errors else "")


def put_rows(run):
    alone = next((each["p50_us"] for each in of_part(run, "put-commit")), None)
    for name, scenario, connections, outstanding, goal in PUTS:
        loads = [each for each in of_part(run, "puts") if each["name"] == name]
        ours = [each["report"]["items_per_second"] for each in loads if each["kind"] == OURS]
        if not ours:
            continue
        rate = statistics.median(ours)
        shown = f"{rate:,.0f}/s"
        if scenario == "put" and alone:
            # PutStart and PutEnd each wait for one commit, which all that are outstanding can share.
            share = rate * 2 * alone / 1e6 / (connections * outstanding)
            shown += f" ({share:.2f} of what commits of {alone / 1000:.2f} ms allow that all outstanding puts share)"
        theirs = reference_cell([each for each in loads if each["kind"] == REFERENCE])
        met = None if goal is None else rate >= goal
        yield [name, f"≥ {goal:,}/s" if goal else "", shown, theirs, verdict(met)]


def cost_rows(run):
    for name, _, _, _, goal in COSTS:
        loads = [each for each in of_part(run, "costs") if each["name"] == name]
        values = {arm: [each["cpu_us"] for each in loads if each["arm"] == arm] for arm in ("ha", "single")}
        if not all(values.values()):
            continue
        on, off = (statistics.median(values[arm]) for arm in ("ha", "single"))
        wanted = f"≤ {goal} × without" if goal else ""
        met = None if goal is None else on / off <= goal
        yield [f"CPU of the primary with replication, {name}", wanted, f"{on / off:.2f} × ({on:.3f} µs)", "", verdict(met)]


def other_rows(run):
    for each in of_part(run, "lag"):
        measured = f"p50 {each['p50_ms']:.1f} ms, p99 {each['p99_ms']:.1f} ms ({each['looks']:,} looks, asking included)"
        yield ["lag of a standby under 64 outstanding puts", "", measured, "", ""]
    for each in of_part(run, "promotion"):
        measured, many = f"{each['seconds'] * 1000:.1f} ms", each["objects"] >= 1_000_000
        name = f"promotion with {each['objects']:,} objects, from the won election on, as the primary says"
        met = each["seconds"] * 1000 < PROMOTION_MS if many else None
        yield [name, f"< {PROMOTION_MS} ms" if many else "", measured, "", verdict(met)]
    for each in of_part(run, "eviction"):
        met = each["seconds"] < EVICTION_SECONDS and each["records"] <= EVICTION_RECORDS and each["digests"] == 1
        measured = f"{each['seconds']:.1f} s, {each['records']} records, {each['digests']} digest(s) on three masters"
        wanted = f"< {EVICTION_SECONDS} s, ≤ {EVICTION_RECORDS} records, one digest"
        yield ["1,000,000 objects evicted", wanted, measured, "", verdict(met)]
    for each in of_part(run, "renewals"):
        name = f"log while the leases of {each['keys']:,} objects are renewed, {each['seconds']:.0f} s"
        measured = f"{each['log_bytes_per_second'] / 1e6:.3f} MB/s at {each['renewals_per_second']:,.0f} renewals and "
        measured += f"{each['exist_items_per_second']:,.0f} exist items a second"
        yield [name, "< 1 MB/s", measured, "", verdict(each["log_bytes_per_second"] < RENEWAL_BYTES)]


def run_lines(run):
    size = [f"etcd of {run['options']['etcd']}", "three masters"]
    if "keys" in run["options"]:
        size.append(f"{run['options']['keys']:,} objects to read where a row names no number")
    rows = [*commit_rows(run), *put_rows(run), *cost_rows(run), *other_rows(run)]
    head = ["", "goal", "measured", "reference", ""]
    return [f"({origin(run, *size)})", "", *table(head, rows)]


def lines(runs):
    """For each number of members the last run of each part."""
    found = []
    for etcd in (1, 3):
        for run in latest([each for each in runs if each["options"]["etcd"] == etcd]):
            found += ["", *run_lines(run)]
    return found[1:]


def latest(runs):
    """The runs, oldest first, without the parts that a later run has, too."""
    seen, kept = set(), []
    for run in reversed(runs):
        mine = {each["part"] for each in run["results"]} - seen
        seen |= mine - {"commits"}
        results = [each for each in run["results"] if each["part"] in mine]
        if mine - {"commits"}:
            kept.append(run | {"results": results})
    return kept[::-1]
