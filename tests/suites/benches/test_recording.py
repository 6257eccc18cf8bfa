"""Files of results."""

import json
import re

import pytest
import recording
from recording import Recording


def test_every_result_is_in_the_file_at_once(tmp_path):
    file = tmp_path / "some.json"
    made = Recording(file, "some", objects=7)
    made.add(round=1, figure=3)
    first = recording.load(file)
    made.add(round=2, figure=4)
    assert [each["figure"] for each in first[0]["results"]] == [3]
    assert [each["figure"] for each in recording.load(file)[0]["results"]] == [3, 4]
    assert [each.name for each in tmp_path.iterdir()] == ["some.json"]


def test_a_run_is_added_to_earlier_ones(tmp_path):
    file = tmp_path / "some.json"
    for number in (1, 2):
        Recording(file, "some", objects=number).add(figure=number)
    whole = json.loads(file.read_text())
    assert whole["program"] == "some"
    assert [each["options"]["objects"] for each in whole["runs"]] == [1, 2]


def test_a_run_that_was_cut_short_is_continued(tmp_path):
    file = tmp_path / "some.json"
    for number in (1, 2):
        Recording(file, "some", objects=number).add(figure=number)
    made = Recording(file, "some", objects=2)
    made.resume()
    made.add(figure=3)
    runs = recording.load(file)
    assert [[each["figure"] for each in run["results"]] for run in runs] == [[1], [2, 3]]
    assert runs[1]["continued"] >= runs[1]["date"] and "continued" not in runs[0]


def test_a_run_of_other_options_is_not_continued(tmp_path):
    file = tmp_path / "some.json"
    Recording(file, "some", objects=1).add(figure=1)
    with pytest.raises(SystemExit, match="objects"):
        Recording(file, "some", objects=2).resume()
    # Without an earlier run it is the first one.
    Recording(tmp_path / "none.json", "some", objects=2).resume()


def test_a_run_says_on_what_it_was_measured(monkeypatch):
    monkeypatch.setenv("MOONKEEPER_BIN", "/somewhere/release/moonkeeper")
    run = Recording(None, "some").run
    assert run["build"] == "release"
    assert run["machine"]["processors"] >= 1 and run["machine"]["memory_gib"] > 0
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", run["date"])
    assert re.fullmatch(r"unknown|[0-9a-f]{12}(\+changes)?", run["commit"])


def test_there_is_nothing_in_a_file_that_is_not_there(tmp_path):
    assert recording.load(tmp_path / "none.json") == []
