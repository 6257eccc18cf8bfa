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
