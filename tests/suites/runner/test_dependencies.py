"""`scripts/check-dependencies`: what it has to refuse."""

import importlib.machinery
import importlib.util
import pathlib

import pytest

SCRIPT = pathlib.Path(__file__).resolve().parents[3] / "scripts/check-dependencies"
SETTINGS = {
    "licenses": {"allow": ["MIT", "Zlib"]},
    "bans": {"deny": [{"crate": "second-tls"}]},
    "sources": {"allow-registry": ["https://index"]},
}


@pytest.fixture(scope="module")
def script():
    loader = importlib.machinery.SourceFileLoader("check_dependencies", str(SCRIPT))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("expression", "met", "used"),
    [
        ("MIT", True, {"MIT"}),
        ("GPL-3.0-only", False, set()),
        ("MIT OR GPL-3.0-only", True, {"MIT"}),
        ("GPL-3.0-only OR (MIT AND Zlib)", True, {"MIT", "Zlib"}),
        ("(MIT OR GPL-3.0-only) AND Zlib", True, {"MIT", "Zlib"}),
        ("MIT AND GPL-3.0-only", False, {"MIT"}),
        ("Apache-2.0/MIT", True, {"MIT"}),
        ("MIT WITH an-exception", False, set()),
        ("MIT Zlib", False, {"MIT"}),
    ],
)
def test_licences(script, expression, met, used):
    seen = set()
    assert bool(script.satisfied(expression, {"MIT", "Zlib"}, seen)) == met
    assert seen == used


def package(name, **changes):
    known = {"version": "1.0.0", "license": "MIT OR Zlib", "source": "registry+https://index", "dependencies": []}
    return {"id": name, "name": name} | known | changes


def problems(script, *packages):
    own = package("own", source=None, dependencies=[{"name": "good", "req": "^1"}])
    every = [own, *packages]
    nodes = [{"id": each["id"]} for each in every]
    metadata = {"workspace_members": ["own"], "packages": every, "resolve": {"nodes": nodes}}
    return list(script.problems(SETTINGS, [metadata]))


def test_nothing_is_wrong(script):
    assert problems(script, package("good")) == []


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (package("bad", license="GPL-3.0-only"), "bad 1.0.0: licence GPL-3.0-only is not allowed"),
        (package("bad", license=None), "bad 1.0.0: licence unknown is not allowed"),
        (package("bad", source="git+https://elsewhere"), "bad 1.0.0: comes from git+https://elsewhere"),
        (package("bad", source=None), "bad 1.0.0: comes from a path"),
        (package("second-tls"), "second-tls 1.0.0: is banned"),
        (package("own", source=None, dependencies=[{"name": "any", "req": "*"}]), "own 1.0.0: any version of any would do"),
    ],
)
def test_what_is_refused(script, bad, said):
    assert problems(script, bad) == [said]


def test_a_licence_that_no_dependency_has(script):
    own = package("own", source=None, license="MIT")
    metadata = {"workspace_members": ["own"], "packages": [own], "resolve": {"nodes": [{"id": "own"}]}}
    assert list(script.problems(SETTINGS, [metadata])) == ["Zlib: allowed, and no dependency has it"]
