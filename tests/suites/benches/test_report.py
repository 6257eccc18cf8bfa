"""The document that is made from results."""

import pytest
import report

ROUND = {
    "kind": "moonkeeper",
    "fault": "kill",
    "round": 1,
    "without_success_ms": [10.0, 12.0],
    "without_put_ms": [10.0, 30.0],
    "longest_call_ms": 14.0,
    "calls": 1000,
    "failed": [{"call": "put", "code": -900, "cause": "was under way when the answers stopped", "count": 3}],
    "companion": True,
}


def document(programs=report.PROGRAMS):
    blocks = [f"before {each}\n\n<!-- results of {each} -->\nold\n<!-- end of results -->\n" for each in programs]
    return "# Title\n\n" + "\n".join(blocks) + "\nthe end\n"


def none(_program):
    return []


def test_prose_stays_and_tables_are_replaced(run):
    made = run([ROUND], objects=5, threads=2, etcd=1)
    wanted = report.render(document(), lambda program: [made] if program == "clients" else [])
    assert "old" not in wanted and wanted.startswith("# Title\n\nbefore compare") and wanted.endswith("\nthe end\n")
    assert "| SIGKILL | moonkeeper | yes | 1 | 11 ms | 12 ms |" in wanted
    assert "0123456789ab" in wanted and "2026-01-02" in wanted and "5 objects" in wanted


def test_it_is_the_same_when_made_again(run):
    made = run([ROUND], objects=5, threads=2, etcd=1)
    results = lambda program: [made] if program == "clients" else []  # noqa: E731
    once = report.render(document(), results)
    assert report.render(once, results) == once


def test_a_program_without_results_is_named():
    assert report.render(document(), none).count("No results are kept") == len(report.PROGRAMS)


def test_a_figure_that_was_edited_by_hand_is_noticed(run):
    made = run([ROUND], objects=5, threads=2, etcd=1)
    results = lambda program: [made] if program == "clients" else []  # noqa: E731
    edited = report.render(document(), results).replace("| 12 ms |", "| 2 ms |")
    assert report.render(edited, results) != edited


@pytest.mark.parametrize("programs", [report.PROGRAMS[1:], (*report.PROGRAMS, "stalls"), ("unknown",)])
def test_a_document_with_other_blocks_is_refused(programs):
    with pytest.raises(report.BadDocument):
        report.render(document(programs), none)


def test_a_block_without_an_end_is_refused():
    with pytest.raises(report.BadDocument):
        report.render(document()[: -len("<!-- end of results -->\n\nthe end\n")], none)


def test_a_check_fails_and_changes_nothing(tmp_path, monkeypatch):
    file = tmp_path / "benchmarks.md"
    file.write_text(document())
    monkeypatch.setattr(report, "DOCUMENT", file)
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    monkeypatch.setattr(report.recording, "ROOT", tmp_path)
    monkeypatch.setattr("sys.argv", ["report.py", "--check"])
    with pytest.raises(SystemExit, match="is not what benches/results gives"):
        report.main()
    assert file.read_text() == document()
    monkeypatch.setattr("sys.argv", ["report.py"])
    report.main()
    assert "No results are kept" in file.read_text()
    monkeypatch.setattr("sys.argv", ["report.py", "--check"])
    report.main()


def test_the_document_of_this_tree_is_what_its_results_give():
    present = report.DOCUMENT.read_text(encoding="utf-8")
    assert report.render(present, lambda program: report.recording.load(report.RESULTS / f"{program}.json")) == present
