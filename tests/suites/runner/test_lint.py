"""What `scripts/lint` has to refuse besides what test_house.py and test_dependencies.py show: links and names in
documentation, spelling, rustdoc."""

import importlib.machinery
import importlib.util
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
LINT = (ROOT / "scripts/lint").read_text()
SOURCE = "src/engine.rs"
# Put together, because no source may name it.
UNKNOWN = "R" + "9"
DESIGN = f"# Design\n\n| **R1** | a rule |\n\nThe `engine_state` is in `{SOURCE}`.\n"
TREE = {
    "docs/design.md": DESIGN,
    "docs/page.md": f"# A page\n\n## Its part\n\n[there](design.md#design), [here](#its-part), `{SOURCE}`\n",
    SOURCE: "// R1: see docs/page.md.\nfn engine_state() {}\n",
}


@pytest.mark.parametrize(
    "step", ["cargo fmt", "cargo clippy", "cargo doc", "scripts/house --check", "bin/typos", "scripts/check-docs"]
)
def test_a_step_of_lint(step):
    assert any(step in line and not line.startswith(("#", "say ")) for line in LINT.splitlines())


def check_docs(folder, monkeypatch, capsys, **changed):
    """What scripts/check-docs prints about this tree; it ends with 1 if that is anything."""
    for name, text in (TREE | changed).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    subprocess.run(["git", "init", "--quiet", folder], check=True)
    loader = importlib.machinery.SourceFileLoader("check_docs", str(ROOT / "scripts/check-docs"))
    script = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(script)
    monkeypatch.setattr(script, "ROOT", folder)
    failed = script.main()
    printed = capsys.readouterr().out.splitlines()
    assert failed is bool(printed)
    return printed


@pytest.mark.parametrize(
    ("file", "text", "problem"),
    [
        ("docs/page.md", "[gone](gone.md)\n", "docs/page.md:1: the link to gone.md leads nowhere"),
        ("docs/page.md", "[out](../../x)\n", "docs/page.md:1: the link to ../../x leads nowhere"),
        (
            "docs/page.md",
            "[gone](design.md#gone)\n",
            "docs/page.md:1: the link to design.md#gone names a heading that is not there",
        ),
        ("docs/page.md", "\n`src/gone.rs`\n", "docs/page.md:2: there is no file src/gone.rs"),
        ("docs/design.md", DESIGN + "`gone_too`\n", "docs/design.md:6: no source mentions gone_too"),
        (
            SOURCE,
            "fn engine_state() {} // see docs/gone.md\n",
            f"{SOURCE}:1: there is no file docs/gone.md",
        ),
        (SOURCE, f"fn engine_state() {{}} // {UNKNOWN}\n", f"{SOURCE}:1: docs/design.md does not define {UNKNOWN}"),
    ],
)
def test_a_reference_that_leads_nowhere(tmp_path, monkeypatch, capsys, file, text, problem):
    assert check_docs(tmp_path, monkeypatch, capsys, **{file: text}) == [problem]


def test_references_that_are_right(tmp_path, monkeypatch, capsys):
    assert check_docs(tmp_path, monkeypatch, capsys) == []


def spelling(folder, text):
    """What typos finds in a file with the settings of this repository."""
    (folder / "page.md").write_text(text)
    typos = pathlib.Path(sys.executable).parent / "typos"
    command = [typos, "--format", "brief", "--config", ROOT / "typos.toml", folder / "page.md"]
    return subprocess.run(command, capture_output=True, text=True)


def test_a_misspelt_word(tmp_path):
    # Put together here, so that this file passes.
    found = spelling(tmp_path, "The operator " + "rec" + "ieves it.\n")
    assert found.returncode and "receives" in found.stdout
    assert spelling(tmp_path, "The condition is unstalled, see --helpfull.\n").returncode == 0


@pytest.mark.parametrize(
    ("source", "refused"),
    [
        ("//! A [`Thing`].\npub struct Thing;\n", False),
        ("//! A [`Thing`].\npub struct Other;\n", True),
        ("pub struct Other;\n/// See [`gone`].\nfn private() {}\n", True),
    ],
)
def test_a_link_of_rustdoc(tmp_path, source, refused):
    """With the flags that lint gives to `cargo doc`."""
    flags = re.search(r'^RUSTDOCFLAGS="(.*)" cargo doc .*--document-private-items', LINT, re.MULTILINE)[1].split()
    (tmp_path / "lib.rs").write_text(source)
    command = ["rustdoc", *flags, "--document-private-items", "--out-dir", tmp_path / "doc", tmp_path / "lib.rs"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert bool(done.returncode) is refused, done.stderr
    if refused:
        assert "unresolved link" in done.stderr
