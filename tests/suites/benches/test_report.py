"""The document that is made from results."""

import json
import subprocess

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


def git(folder, *words):
    identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", *identity, *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def check(tmp_path, monkeypatch, run):
    """Makes a repository with a result of some commit in it, and checks that in a folder."""
    tree = tmp_path / "tree"
    tree.mkdir()
    git(tree, "init", "--quiet")
    git(tree, "commit", "--quiet", "--allow-empty", "--message=first")

    def checked(commit, folder=tree):
        monkeypatch.setattr(report.recording, "ROOT", folder)
        monkeypatch.setattr(report, "RESULTS", folder)
        monkeypatch.setattr(report, "DOCUMENT", folder / "benchmarks.md")
        made = run([ROUND], objects=5, threads=2, etcd=1) | {"commit": commit}
        (folder / "clients.json").write_text(json.dumps({"program": "clients", "runs": [made]}))
        report.DOCUMENT.write_text(document())
        monkeypatch.setattr("sys.argv", ["report.py"])
        report.main()
        monkeypatch.setattr("sys.argv", ["report.py", "--check"])
        report.main()

    checked.tree = tree
    return checked


def test_results_of_an_earlier_commit_are_taken(check):
    first = git(check.tree, "rev-parse", "--short=12", "HEAD")
    git(check.tree, "commit", "--quiet", "--allow-empty", "--message=second")
    check(first)
    check(f"{first}+changes")


@pytest.mark.parametrize("commit", ["that is replaced", "0123456789ab", "unknown"])
def test_results_of_a_commit_that_is_not_in_the_history_are_refused(check, commit):
    if commit == "that is replaced":
        commit = git(check.tree, "rev-parse", "--short=12", "HEAD")
        git(check.tree, "commit", "--quiet", "--allow-empty", "--amend", "--message=another")
    with pytest.raises(SystemExit, match=f"clients.json of {commit}"):
        check(commit)


def test_commits_are_not_judged_where_the_history_is_not_there(check, tmp_path):
    git(check.tree, "commit", "--quiet", "--allow-empty", "--message=second")
    git(tmp_path, "clone", "--quiet", "--depth=1", f"file://{check.tree}", "shallow")
    check("0123456789ab", tmp_path / "shallow")
    (tmp_path / "plain").mkdir()
    check("0123456789ab", tmp_path / "plain")


def test_the_document_of_this_tree_is_what_its_results_give():
    present = report.DOCUMENT.read_text(encoding="utf-8")
    assert report.render(present, lambda program: report.recording.load(report.RESULTS / f"{program}.json")) == present
