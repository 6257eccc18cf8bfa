"""Stalls: how long other clients wait while something large is done."""

from tables import origin, table, verdict

UNTOUCHED = "untouched"
STEPS = {
    "metrics": "scrape of /metrics",
    "all-keys": "/get_all_keys",
    "remove-by-regex": "RemoveByRegex, all keys",
    "unmount": "unmount of a tenth",
    "expiry": "expiry of half of the clients",
    "remove-all": "RemoveAll",
}
PROBES = {"exist_key": "ExistKey", "ping": "Ping", "put_start": "PutStart"}
# Name of a phase: (how many masters, whose).
PHASES = {
    "ours-1": ("one master", "moonkeeper"),
    "ours-3": ("three masters", "moonkeeper"),
    "reference-1": ("one master", "reference"),
    "reference-3": ("three masters", "reference"),
}
SWITCHOVER = "switchover"
# A ping of another master, which is asked for nothing else.
CONTROL = "control"
# More than the wait of an untouched master: of the same probe before, or of the other master meanwhile; and of the silence
# of a switchover.
GOAL_MS, SILENCE_GOAL_MS = 20, 100


def of_phase(run, phase):
    return [each for each in run["results"] if each["phase"] == phase]


def longest_ms(results, step, probe):
    """The longest wait of all rounds; None without a report."""
    reports = (each["report"]["waits"] for each in results if each.get("report", {}).get("step") == step)
    return max((waits[probe]["longest_us"] / 1000 for waits in reports if probe in waits), default=None)


def failures(results, step):
    return [each["failure"] for each in results if each.get("failure") and each.get("step") in (step, UNTOUCHED)]


def removed_too_few(step, reports):
    """Says so where a removal of all objects left some: it had less to do. (Probes put some more.)"""
    if step != "remove-by-regex":
        return ""
    least = min(reports, key=lambda each: each["answer"])
    few = least["answer"] < least["objects"]
    return f"; removed only {least['answer']:,} of {least['objects']:,}" if few else ""


def step_rows(run, phase):
    """A row for each probe of each step; one for a step that could not be done."""
    results, ours = of_phase(run, phase), PHASES[phase][1] == "moonkeeper"
    for step in (each for each in STEPS if each in run["options"]["steps"]):
        done = [each["report"] for each in results if each.get("report", {}).get("step") == step]
        failed = failures(results, step)
        if not done:
            yield [STEPS[step], "", "", "", "", "", "", f"could not be done: {failed[0]}" if failed else "not measured"]
            continue
        took = max(each["seconds"] for each in done)
        for probe, name in PROBES.items():
            wait, untouched = longest_ms(results, step, probe), longest_ms(results, UNTOUCHED, probe)
            meanwhile = longest_ms(results, step, CONTROL) or 0
            noise = max(untouched, meanwhile)
            last = verdict(wait - noise <= GOAL_MS) + ", " if ours else ""
            last += f"rounds: {len(done)}" + (f"; then: {failed[0]}" if failed else "") + removed_too_few(step, done)
            numbers = [f"{took:,.1f} s", *(f"{each:,.1f} ms" for each in (wait, untouched, meanwhile)), f"{wait - noise:+,.1f} ms"]
            yield [STEPS[step], name, *numbers, last]


def deployment_line(run, phase):
    """What the deployments of a phase used at most."""
    used = [each["deployment"] for each in of_phase(run, phase) if "deployment" in each]
    if not used:
        return None
    masters = max(sum(each["masters_peak_bytes"]) for each in used) / 2**30
    line = f"At most {masters:.1f} GiB in all masters together"
    if any(each["etcd_bytes"] for each in used):
        etcd = max(each["etcd_peak_bytes"] for each in used) / 2**30
        line += f", {etcd:.1f} GiB in etcd, {max(each['etcd_bytes'] for each in used) / 2**20:,.0f} MiB kept in etcd"
    refused = sum(each["report"]["refused"] for each in of_phase(run, phase) if "report" in each)
    return line + (f"; {refused:,} puts of objects were refused between the steps" if refused else "") + "."


def phase_lines(run, phase):
    masters, kind = PHASES[phase]
    options = run["options"]
    size = f"{options['objects']:,} objects, {options['clients']} clients"
    head = ["while", "probe", "took at most", "longest wait", "untouched", "other master", "more", f"goal {GOAL_MS} ms more"]
    lines = [f"**{masters}, {kind}** ({origin(run, size)})", ""]
    lines += table(head, step_rows(run, phase), "  rrrrr ")
    used = deployment_line(run, phase)
    return [*lines, "", used] if used else lines


def switchover_lines(run):
    results = of_phase(run, SWITCHOVER)
    silences = [each["silence_ms"] for each in results if "silence_ms" in each]
    failed = [each["failure"] for each in results if each.get("failure")]
    options = run["options"]
    size = f"{options['objects']:,} objects, {options['clients']} clients"
    lines = [f"**switchover while all objects are read, moonkeeper** ({origin(run, size)})", ""]
    each = ", ".join(f"{silence:,.1f}" for silence in silences)
    met = verdict(bool(silences) and not failed and max(silences) <= SILENCE_GOAL_MS)
    said = f"Longest time without any answer, for each switchover: {each or 'none'} ms; goal {SILENCE_GOAL_MS} ms: {met}"
    return [*lines, said + (f"; then: {failed[0]}" if failed else "") + "."]


def lines(runs):
    """All tables, each from the last run that has something of it."""
    found = []
    for phase in [*PHASES, SWITCHOVER]:
        run = next((each for each in reversed(runs) if of_phase(each, phase)), None)
        if run:
            found += ["", *(switchover_lines(run) if phase == SWITCHOVER else phase_lines(run, phase))]
    return found[1:]
