"""The statistics, recordings and tables of benches/, without any program that they measure."""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "benches"))


@pytest.fixture
def run():
    """A run with the given options and results."""

    def make(results, build="release", **options):
        return {
            "commit": "0123456789ab",
            "date": "2026-01-02 03:04 UTC",
            "build": build,
            "machine": {"processors": 2, "memory_gib": 24.0},
            "options": options,
            "results": results,
        }

    return make
