"""Tables from recorded results: what they show, and that a goal that is not met is said so."""

import pytest
from tables import clients, compare, failover, origin, replication, stalls

WAITS = ("exist_key", "ping", "put_start")


def felt(fault="kill", kind="moonkeeper", number=1, slowest=12.0, failed=(), companion=True):
    return {
        "kind": kind,
        "fault": fault,
        "round": number,
        "without_success_ms": [10.0, slowest],
        "without_put_ms": [10.0, slowest],
        "longest_call_ms": slowest,
        "calls": 100,
        "failed": [{"call": call, "code": code, "cause": "began later", "count": count} for call, code, count in failed],
        "companion": companion,
    }


def cells(lines, *starts):
    """The cells of the one row that begins with these."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    found = [row for row in rows if row[: len(starts)] == list(starts)]
    assert len(found) == 1, f"{len(found)} rows begin with {starts}"
    return found[0]


def test_the_origin_names_a_build_that_is_not_to_be_quoted(run):
    assert "quoted" not in origin(run([]))
    assert "debug build: not to be quoted" in origin(run([], build="debug"))


@pytest.mark.parametrize(("slowest", "said"), [(999.0, "1 s: met"), (1001.0, "1 s: **not met**"), (None, "1 s: **not met**")])
def test_the_maximum_of_all_rounds_decides_about_a_fault(run, slowest, said):
    rounds = [felt(), felt(number=2)]
    rounds[1]["without_success_ms"][1] = slowest
    row = cells(clients.lines([run(rounds, objects=1, threads=2, etcd=1)]), "SIGKILL", "moonkeeper")
    assert row[-1] == said
    assert row[3] == "2" and row[5] == ("never" if slowest is None else f"{slowest:,.0f} ms")


def test_a_long_call_misses_the_goal(run):
    slow = felt() | {"longest_call_ms": 4400.0}
    row = cells(clients.lines([run([slow], objects=1, threads=2, etcd=1)]), "SIGKILL", "moonkeeper")
    assert row[-1] == "1 s: **not met**" and "4,400 ms" in row


@pytest.mark.parametrize(("code", "said"), [(-900, "met"), (-200, "**not met**"), (-706, "**not met**")])
def test_some_codes_are_forbidden_in_a_switchover(run, code, said):
    rounds = [felt("switchover"), felt("switchover", number=2, failed=[("put", code, 3)])]
    lines = clients.lines([run(rounds, objects=1, threads=2, etcd=1)])
    row = cells(lines, "switchover", "moonkeeper", "yes")
    assert row[-1] == f"no -200 or -706: {said}" and row[-2] == "3 of 200"
    assert any(f"| {code} (" in line and "| put 3 | 3 |" in line for line in lines)


def test_the_reference_stands_beside_without_a_verdict(run):
    rounds = [felt(), felt(kind="reference", slowest=10_000.0)]
    row = cells(clients.lines([run(rounds, objects=1, threads=2, etcd=1)]), "SIGKILL", "reference")
    assert row[5] == "10,000 ms" and row[-1] == ""


def test_what_could_not_be_done_is_said(run):
    lines = clients.lines([run([{"kind": "moonkeeper", "fault": "oom", "failure": "no cgroup"}], objects=1, threads=2, etcd=1)])
    assert cells(lines, clients.FAULTS["oom"])[-1] == "could not be done: no cgroup"


def test_a_round_that_broke_misses_the_goal(run):
    rounds = [felt(), {"kind": "moonkeeper", "fault": "kill", "round": 2, "failure": "no primary"}]
    row = cells(clients.lines([run(rounds, objects=1, threads=2, etcd=1)]), "SIGKILL", "moonkeeper")
    assert row[3] == "1, 1 broke" and row[-1] == "1 s: **not met**; a round broke: no primary"


def test_a_later_run_of_one_fault_replaces_that_fault_alone(run):
    first = run([felt(), felt("switchover")], objects=1, threads=2, etcd=1)
    second = run([felt(slowest=77.0)], objects=2, threads=2, etcd=1)
    lines = clients.lines([first, second])
    assert cells(lines, "SIGKILL", "moonkeeper")[5] == "77 ms"
    assert cells(lines, "switchover", "moonkeeper")[5] == "12 ms"


def test_a_run_that_is_continued_measures_what_it_lacks(run):
    broken = {"kind": "moonkeeper", "fault": "kill", "round": 2, "failure": "no primary"}
    impossible = {"kind": "moonkeeper", "fault": "oom", "failure": "no cgroup"}
    made = run([felt(), broken, impossible, felt(kind="reference", number=3)])
    assert clients.missing(made, "moonkeeper", ["kill", "oom", "panic"], 3) == [(1, "panic"), (2, "panic"), (3, "kill"), (3, "panic")]
    assert clients.missing(made, "reference", ["kill"], 3) == [(1, "kill"), (2, "kill")]


def test_a_run_that_was_continued_says_when(run):
    made = run([felt()], objects=1, threads=2, etcd=1) | {"continued": "2026-01-02 05:06 UTC"}
    assert "2026-01-02 03:04 UTC to 2026-01-02 05:06 UTC" in clients.lines([made])[0]


def waited(phase, step, longest_ms, number=1, answer=None, control=0):
    waits = {probe: {"longest_us": longest_ms * 1000, "p99_us": 1, "calls": 1} for probe in WAITS}
    waits["control"] = {"longest_us": control * 1000, "p99_us": 1, "calls": 1}
    report = {"step": step, "seconds": 2.0, "refused": 0, "objects": 10, "answer": answer, "waits": waits}
    return {"phase": phase, "round": number, "report": report}


def stall_run(run, results):
    return run(results, objects=10, clients=2, rounds=2, steps=["metrics", "remove-all"])


@pytest.mark.parametrize(("longest", "said"), [(25, "met, rounds: 2"), (26, "**not met**, rounds: 2")])
def test_a_stall_is_compared_with_the_untouched_master(run, longest, said):
    results = [waited("ours-1", "untouched", 5), waited("ours-1", "metrics", 1), waited("ours-1", "metrics", longest, 2)]
    row = cells(stalls.lines([stall_run(run, results)]), "scrape of /metrics", "Ping")
    assert row[2:] == ["2.0 s", f"{longest}.0 ms", "5.0 ms", "0.0 ms", f"+{longest - 5}.0 ms", said]


@pytest.mark.parametrize(("longest", "said"), [(50, "met, rounds: 1"), (51, "**not met**, rounds: 1")])
def test_a_stall_of_the_whole_machine_is_none_of_the_master(run, longest, said):
    results = [waited("ours-1", "untouched", 5), waited("ours-1", "metrics", longest, control=30)]
    row = cells(stalls.lines([stall_run(run, results)]), "scrape of /metrics", "Ping")
    assert row[2:] == ["2.0 s", f"{longest}.0 ms", "5.0 ms", "30.0 ms", f"+{longest - 30}.0 ms", said]


def test_a_step_that_failed_says_why(run):
    results = [waited("reference-3", "untouched", 5), {"phase": "reference-3", "round": 1, "step": "remove-all", "failure": "too slow"}]
    lines = stalls.lines([stall_run(run, results)])
    assert cells(lines, "RemoveAll")[-1] == "could not be done: too slow"
    assert cells(lines, "scrape of /metrics")[-1] == "not measured"


@pytest.mark.parametrize(("answer", "said"), [(10, "met, rounds: 1"), (3, "met, rounds: 1; removed only 3 of 10")])
def test_a_removal_that_left_objects_says_so(run, answer, said):
    results = [waited("ours-1", "untouched", 5), waited("ours-1", "remove-by-regex", 6, answer=answer)]
    made = run(results, objects=10, clients=2, rounds=1, steps=["remove-by-regex"])
    assert cells(stalls.lines([made]), "RemoveByRegex, all keys", "Ping")[-1] == said


def test_a_phase_whose_objects_could_not_be_put_says_why_in_every_row(run):
    results = [{"phase": "reference-3", "round": 1, "step": "untouched", "failure": "not done within 9 s"}]
    lines = stalls.lines([stall_run(run, results)])
    assert cells(lines, "RemoveAll")[-1] == cells(lines, "scrape of /metrics")[-1] == "could not be done: not done within 9 s"


@pytest.mark.parametrize(("silences", "failure", "said"), [([9.0, 100.0], None, "met."), ([9.0, 101.0], None, "**not met**."), ([9.0], "409", "**not met**; then: 409.")])
def test_the_longest_silence_decides(run, silences, failure, said):
    results = [{"phase": "switchover", "round": n, "silence_ms": each} for n, each in enumerate(silences)]
    results += [{"phase": "switchover", "failure": failure}] if failure else []
    assert stalls.lines([stall_run(run, results)])[-1].endswith(f"goal 100 ms: {said}")


def test_every_phase_comes_from_the_last_run_that_has_it(run):
    first = stall_run(run, [waited("ours-1", "untouched", 5), waited("ours-1", "metrics", 7)])
    second = stall_run(run, [waited("ours-3", "untouched", 5), waited("ours-3", "metrics", 8)])
    assert sum(line.startswith("**") for line in stalls.lines([first, second])) == 2


@pytest.mark.parametrize(("values", "said"), [([90, 100, 300], "met"), ([101, 101, 102], "**not met**"), ([1, 1, 301], "**not met**")])
def test_median_and_maximum_have_goals_of_their_own(run, values, said):
    results = [{"kind": "moonkeeper", "fault": "kill", "round": n, "first_answer_ms": each, "silence_ms": 1} for n, each in enumerate(values)]
    assert cells(failover.lines([run(results, objects=3, etcd=3)]), "SIGKILL to the first answer")[-1] == said


def put(kind, rate, **more):
    report = {"items_per_second": rate, "calls": 100, "errors": 0} | more
    return {"part": "puts", "name": "puts, 64 outstanding", "kind": kind, "round": 1, "report": report}


def test_goals_of_replication_are_judged_for_each_number_of_members(run):
    one = run([put("moonkeeper", 20_000.0), put("reference", 50_000.0, errors=25)], etcd=1)
    three = run([put("moonkeeper", 10_000.0)], etcd=3)
    assert "no number" not in replication.lines([one])[0]
    assert "5 objects to read" in replication.lines([run([put("moonkeeper", 20_000.0)], etcd=1, keys=5)])[0]
    assert cells(replication.lines([one]), "puts, 64 outstanding")[1:] == ["≥ 15,000/s", "20,000/s", "37,500/s, 25 of 100 operations refused", "met"]
    assert cells(replication.lines([three]), "puts, 64 outstanding")[-1] == "**not met**"


def test_a_rate_stands_beside_what_commits_allow(run):
    made = run([{"part": "put-commit", "bytes": 200, "p50_us": 400.0}, put("moonkeeper", 40_000.0)], etcd=1)
    # Two commits of 0.4 ms that 64 puts share allow 80,000 a second.
    assert "0.50 of what commits of 0.40 ms allow" in cells(replication.lines([made]), "puts, 64 outstanding")[2]


def loaded(arm, cpu, rate, number=1):
    report = {"items_per_second": rate, "p50_us": 5, "p99_us": 9, "cpu_us_per_item": cpu}
    return {"load": ["batch-put", 4, 4], "arm": arm, "round": number, "report": report}


def test_a_ratio_is_the_median_of_the_ratios_within_rounds(run):
    results = []
    for number, (ours, reference) in enumerate([(1, 10), (2, 4), (3, 10)], 1):
        results += [loaded("ours", ours, 30, number), loaded("reference", reference, 10, number), loaded("floor", 0.5, 50, number)]
    lines = compare.lines([run(results, seconds=1.2, keys=20_000)])
    name = "BatchPutStart + BatchPutEnd (128), 4 × 4"
    assert cells(lines, f"{name}: CPU/item")[1:] == ["≤ 0.25 × reference", "0.300", "**not met**"]
    assert cells(lines, f"{name}: items/s")[1:] == ["≥ 2 × reference", "3.00", "met"]
    assert "20,000 objects to read" in lines[0]
    # Of a run that was cut short whole rounds count.
    cut = results + [loaded("ours", 1, 30, 4)]
    assert compare.lines([run(cut, seconds=1.2, keys=20_000)]) == lines
    assert compare.lines([run(cut[-1:], seconds=1.2, keys=20_000)]) == []
