"""This master beside the reference and beside the floor."""

import statistics

from tables import origin, table, verdict

NAMES = {
    "exist-key": "ExistKey",
    "get-replica-list": "GetReplicaList",
    "put": "PutStart + PutEnd",
    "batch-exist-key": "BatchExistKey (128)",
    "batch-get-replica-list": "BatchGetReplicaList (128)",
    "batch-put": "BatchPutStart + BatchPutEnd (128)",
}
ARMS = ("reference", "ours", "floor")


def load_reports(run):
    """Reports by (load, arm), in the order of rounds. Only rounds in which every server had its turn: a run may have been cut
    short."""
    turns = {}
    for each in run["results"]:
        if "load" in each:
            turns.setdefault((tuple(each["load"]), each["round"]), {})[each["arm"]] = each["report"]
    found = {}
    for (load, _), reports in turns.items():
        for arm in ARMS if len(reports) == len(ARMS) else ():
            found.setdefault((load, arm), []).append(reports[arm])
    return found


def memory_reports(run):
    return {(each["objects"], each["arm"]): each["memory"] for each in run["results"] if "memory" in each}


def eviction_report(run):
    """The report with the median ratio, or None."""
    reports = [each["eviction"] for each in run["results"] if "eviction" in each]
    return sorted(reports, key=lambda report: report["ratio"])[len(reports) // 2] if reports else None


def unit_of(scenario):
    return "item" if scenario.startswith("batch") else "call"


def ratio(reports, load, field, arm, base):
    """The median of what each round says: what disturbs a machine lasts longer than a turn, so it is in both."""
    pairs = zip(reports[load, arm], reports[load, base], strict=True)
    return statistics.median(one[field] / other[field] for one, other in pairs)


def load_rows(reports):
    for load in dict.fromkeys(load for load, _ in reports):
        scenario, connections, outstanding = load
        unit = unit_of(scenario)
        cpu = f"cpu_us_per_{unit}"
        for arm in ARMS:
            median = {
                field: statistics.median(each[field] for each in reports[load, arm])
                for field in (f"{unit}s_per_second", "p50_us", "p99_us", cpu)
            }
            yield [
                NAMES[scenario],
                f"{connections} × {outstanding}",
                arm,
                f"{median[f'{unit}s_per_second']:,.0f} {unit}s/s",
                f"{median['p50_us']:,.0f}",
                f"{median['p99_us']:,.0f}",
                f"{median[cpu]:.3f}",
                f"{ratio(reports, load, cpu, arm, 'reference'):.3f}",
                f"{ratio(reports, load, cpu, arm, 'floor'):.2f}",
            ]


def memory_rows(memory):
    for (objects, arm), report in memory.items():
        mib = [f"{report[field] / 2**20:,.0f}" for field in ("resident_before", "resident_full", "resident_after")]
        shares = [f"{report['bytes_per_object']:,.0f}", f"{report['given_back_share']:.0%}"]
        yield [f"{objects:,}", arm, *mib, *shares]


def goals(run):
    """Every goal as (what, wanted, measured, met)."""
    reports, memory, eviction = load_reports(run), memory_reports(run), eviction_report(run)

    def at_most(what, share, measured, of, floor=0.0):
        # What not even the floor reaches is not ours to reach.
        shown = f"{measured:.3f}" + (f" (the floor alone is {floor:.3f})" if floor > share else "")
        return (what, f"≤ {share} × {of}", shown, measured <= share)

    for load in dict.fromkeys(load for load, _ in reports):
        scenario, connections, outstanding = load
        name, unit = f"{NAMES[scenario]}, {connections} × {outstanding}", unit_of(scenario)
        cpu = f"cpu_us_per_{unit}"
        of_reference = ratio(reports, load, cpu, "ours", "reference")
        floor = ratio(reports, load, cpu, "floor", "reference")
        if scenario.startswith("batch"):
            yield at_most(f"{name}: CPU/item", 0.25, of_reference, "reference", floor)
            speed = ratio(reports, load, "items_per_second", "ours", "reference")
            yield (f"{name}: items/s", "≥ 2 × reference", f"{speed:.2f}", speed >= 2)
        elif scenario == "put":
            yield at_most(f"{name}: CPU/call", 0.333, of_reference, "reference", floor)
        elif outstanding > 1:
            yield at_most(f"{name}: CPU/call", 0.2, of_reference, "reference", floor)
        else:
            yield at_most(f"{name}: CPU/call", 1.3, ratio(reports, load, cpu, "ours", "floor"), "floor")
    for (objects, arm), report in memory.items():
        if arm == "ours":
            measured = report["bytes_per_object"]
            yield (f"{objects:,} objects: bytes/object", "≤ 200", f"{measured:.0f}", measured <= 200)
    if eviction:
        what = f"evict 1,000 of {eviction['many_objects']:,}: time"
        yield at_most(what, 1.5, eviction["ratio"], f"1,000 of {eviction['few_objects']:,}")


def lines(runs):
    """The last run that has whole rounds."""
    run = next((each for each in reversed(runs) if load_reports(each)), None)
    if run is None:
        return []
    options = run["options"]
    reports, memory, eviction = load_reports(run), memory_reports(run), eviction_report(run)
    rounds = min(map(len, reports.values()))
    size = f"medians of {rounds} rounds of {options['seconds']:g} s", f"{options['keys']:,} objects to read", "no call failed"
    found = [f"({origin(run, *size)})", ""]
    found += table(["what", "wanted", "measured", ""], [[*row[:3], verdict(row[3])] for row in goals(run)])
    head = ["call", "connections × outstanding", "server", "rate", "p50 µs", "p99 µs", "CPU µs each", "of reference", "of floor"]
    found += ["", "What these ratios come from:", "", *table(head, load_rows(reports), "   rrrrrr")]
    if memory:
        head = ["objects", "server", "before, MiB", "with them", "after removal", "bytes/object", "given back"]
        found += ["", "Memory (64-byte keys, one replica):", "", *table(head, memory_rows(memory), "r rrrrr")]
    if eviction:
        sizes = [(eviction[f"{size}_objects"], eviction[f"{size}_us"]) for size in ("few", "many")]
        rows = [["1,000", f"{count:,}", f"{micros:,.0f}"] for count, micros in sizes]
        found += ["", "Eviction:", "", *table(["victims", "of objects", "µs"], rows, "rrr")]
    return found
