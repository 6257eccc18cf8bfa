#!/usr/bin/env python3
"""Writes the tables of docs/benchmarks.md from the results that are kept in benches/results, a file for each program.

The text around the tables stays: each table stands between a line that names its program and a line that ends it.

usage: report.py [--check]      --check: changes nothing, fails if the document is not what the results give, or if a result is
                                of a commit that the history of this tree does not have
"""

import argparse
import functools
import importlib
import re
import sys

import recording

DOCUMENT = recording.ROOT / "docs" / "benchmarks.md"
RESULTS = recording.ROOT / "benches" / "results"
PROGRAMS = ("compare", "clients", "failover", "replication", "stalls")
BLOCK = re.compile(r"<!-- results of (\S+) -->\n.*?<!-- end of results -->", re.DOTALL)


class BadDocument(Exception):
    """The document has other blocks than there are programs."""


def block(program, runs):
    """What stands between the two lines, and the lines."""
    shown = importlib.import_module(f"tables.{program}").lines(runs)
    if not shown:
        file = f"benches/results/{program}.json"
        shown = [f'*No results are kept: `make bench ARGS="{program} --json {file}"`, then `make bench ARGS=report`.*']
    return "\n".join([f"<!-- results of {program} -->", "", *shown, "", "<!-- end of results -->"])


def render(document, results):
    """The document with every block made anew; `results` returns the runs of a program."""
    names = BLOCK.findall(document)
    if sorted(names) != sorted(PROGRAMS) or document.count("<!-- results of ") != len(names):
        raise BadDocument(f"one block each for {', '.join(PROGRAMS)} is needed; there are: {', '.join(names) or 'none'}")
    return BLOCK.sub(lambda found: block(found[1], results(found[1])), document)


def foreign(results):
    """The programs and commits of results that no reader of this tree can measure again; `results` returns the runs of a
    program."""
    runs = [(program, run["commit"]) for program in PROGRAMS for run in results(program)]
    return sorted({each for each in runs if recording.in_history(each[1]) is False})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="fail if the document is not what the results give")
    options = parser.parse_args()
    results = functools.cache(lambda program: recording.load(RESULTS / f"{program}.json"))
    if options.check and (found := foreign(results)):
        named = ", ".join(f"benches/results/{program}.json of {commit}" for program, commit in found)
        sys.exit(f"results of commits that are not in the history, to be measured anew: {named}")
    present = DOCUMENT.read_text(encoding="utf-8")
    try:
        wanted = render(present, results)
    except BadDocument as error:
        sys.exit(f"{DOCUMENT}: {error}")
    if wanted == present:
        return
    if options.check:
        sys.exit(f"{DOCUMENT.relative_to(recording.ROOT)} is not what benches/results gives: run `make bench ARGS=report`")
    DOCUMENT.write_text(wanted, encoding="utf-8")
    print(f"wrote {DOCUMENT.relative_to(recording.ROOT)}", file=sys.stderr)


if __name__ == "__main__":
    main()
