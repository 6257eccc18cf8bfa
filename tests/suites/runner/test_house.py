"""`scripts/house --check`: what it has to refuse, with the line that is to blame."""

import importlib.machinery
import importlib.util
import pathlib
import sys

import pytest

SCRIPTS = pathlib.Path(__file__).resolve().parents[3] / "scripts"
# Two cycles that share a file: the longer one is not what has to be shown.
SOURCES = {
    "lib.rs": "mod engine;\nmod wire;\n",
    "engine/mod.rs": "mod a;\nmod b;\nmod c;\nmod d;\n",
    "engine/a.rs": "use super::b::B;\npub struct A(B);\n",
    "engine/b.rs": "use super::c::C;\n\nuse super::d::D;\npub struct B(C, D);\n",
    "engine/c.rs": "use super::a::A;\npub struct C(A);\n",
    "engine/d.rs": "pub struct D;\nfn b() -> super::b::B {}\n",
    "wire/mod.rs": "mod x;\nmod y;\n",
    "wire/x.rs": "use super::y::Y;\npub struct X(Y);\n",
    "wire/y.rs": "use super::x::X;\npub struct Y(X);\n",
}


@pytest.fixture
def house(monkeypatch):
    monkeypatch.syspath_prepend(SCRIPTS)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    loader = importlib.machinery.SourceFileLoader("house", str(SCRIPTS / "house"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


def rooms(house, folder, **changed):
    for name, text in (SOURCES | changed).items():
        path = folder / "src" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return house.Rooms(folder)


def test_a_shortest_cycle_is_shown_with_its_lines(house, tmp_path):
    assert list(house.check_cycles(rooms(house, tmp_path))) == [
        "2 files use each other in a cycle; 2 more files are in cycles with them:",
        "  src/engine/b.rs:3: uses super::d::D of src/engine/d.rs",
        "  src/engine/d.rs:2: uses super::b::B of src/engine/b.rs",
    ]


def test_a_room_that_may_have_cycles_is_not_refused(house, tmp_path):
    straight = {"engine/c.rs": "pub struct C;\n", "engine/d.rs": "pub struct D;\n"}
    found = rooms(house, tmp_path, **straight)
    assert len(found.cycles()) == 1 and list(house.check_cycles(found)) == []


def test_an_edge_that_is_not_allowed_is_shown_with_its_line(house, tmp_path):
    upwards = {"engine/c.rs": "pub struct C;\nfn x(_: crate::wire::x::X) {}\n"}
    refused = house.check_rooms(rooms(house, tmp_path, **upwards))
    assert "src/engine/c.rs:2: uses crate::wire::x::X; engine must not use wire" in list(refused)


SAID = "/// Returns the bytes that are free.\nfn free() {}\n"


def printed(house, folder, capsys, **changed):
    """The lines of the whole check; an edge that is allowed and not used is always among them."""
    assert house.check(folder, rooms(house, folder, **{"engine/d.rs": SAID} | changed))
    return capsys.readouterr().out.splitlines()


def function(name, lines):
    return f"fn {name}() {{\n" + "    call();\n" * (lines - 2) + "}\n"


def test_one_more_long_function_than_allowed_is_shown_with_the_others(house, tmp_path, monkeypatch, capsys):
    sources = {"engine/d.rs": SAID + function("short", 60) + function("long", 61), "wire/x.rs": function("longer", 70)}
    first = "2 functions have more than 60 lines; the limit is 1; split what is no table:"
    monkeypatch.setattr(house, "MOST_LONG_FUNCTIONS", 2)
    assert first not in printed(house, tmp_path, capsys, **sources)
    monkeypatch.setattr(house, "MOST_LONG_FUNCTIONS", 1)
    lines = printed(house, tmp_path, capsys, **sources)
    at = lines.index(first)
    assert lines[at + 1 : at + 3] == ["  src/wire/x.rs:1: longer has 70", "  src/engine/d.rs:63: long has 61"]


def test_docs_that_say_next_to_nothing_are_counted(house, tmp_path, capsys):
    refused = "  src/engine/d.rs:19: The key."
    assert refused not in printed(house, tmp_path, capsys, **{"engine/d.rs": SAID * 9})
    assert refused in printed(house, tmp_path, capsys, **{"engine/d.rs": SAID * 9 + "/// The key.\nfn key() {}\n"})


@pytest.mark.parametrize(
    ("name", "text", "shown"),
    [
        ("docs/page.md", "Nobody waits.\n", "Nobody waits."),
        ("charts/values.yaml", "key: 1 # Whoever waits.\n", "# Whoever waits."),
        ("src/engine/c.rs", "// Somebody waits.\nfn c() {}\n", "// Somebody waits."),
    ],
)
def test_pronouns_are_counted_in_comments_and_documents(house, tmp_path, capsys, name, text, shown):
    many = tmp_path / "many.md"
    for words, is_refused in (20_000, False), (20, True):
        many.write_text("word " * words)
        if not name.startswith("src/"):
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(text)
        changed = {name.removeprefix("src/"): text} if name.startswith("src/") else {}
        assert (f"  {name}:1: {shown}" in printed(house, tmp_path, capsys, **changed)) is is_refused
