"""The comparison with other suites (benchmarks/suites): its page, its tables, and its probes of this package.

1. benchmarks/suites/README.md has the tables of the committed figures
2. what is missing is a dash, what failed comes with its error, and figures with how many times ours they are
3. a suite that raises, pays a hostile action or returns no text has not survived it
4. the probes of this package find what this package promises
"""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # the suites' files import each other by these names
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def suites(root):
    folder = root / "benchmarks" / "suites"
    modules = {name: _load(folder / f"{name}.py") for name in ("probe", "tables", "compare")}
    modules["ours"] = modules["probe"].load("agent_envs")
    modules["probe"].refusal = modules["ours"].REFUSAL
    yield modules
    for name in (*modules, "peer_agent_envs"):
        sys.modules.pop(name, None)
    sys.path.remove(str(folder))


def test_the_page_has_the_tables_of_the_committed_figures(suites, root):
    text = (root / "benchmarks" / "suites" / "README.md").read_text(encoding="utf-8")
    assert suites["compare"].page(text) == text, "run: python benchmarks/suites/compare.py page"
    assert sum(bool(suites["compare"].read(name)["cells"]) for name in suites["compare"].PEERS) >= 8


def test_tables_name_errors_and_ratios(suites):
    said = {"load": 1.0, "at": "2026-01-02 03:04"}
    results = {
        name: {"machine": {"cores": 2, "python": "3.11"}, "cells": cells}
        for name, cells in {
            "agent_envs": {"loop": {"calls_per_second": 50.0, **said}},
            "gem": {"loop": {"calls_per_second": 200.0, **said}, "reset": {"missing": "has no reset", **said}},
            "trl": {"loop": {"error": "KeyError: `x`", **said}},
        }.items()
    }
    text = suites["tables"].tables(results)
    assert "| 50 |" in text and "| 200 (4×) |" in text and "| failed |" in text
    assert "| gem-llm | – | – | 200 (4×) |" in text and "- TRL, tool loop: failed with `KeyError: 'x'`" in text


def test_what_a_suite_lets_through_is_a_fault(suites):
    class Fragile:
        def reset(self, seed: int) -> str:
            return ""

        def step(self, action: str) -> tuple[Any, float, bool]:
            if action == "raise":
                raise KeyError(action)
            return (None if action == "nothing" else "seen"), float(action == "paid"), False

    actions = {name: name for name in ("raise", "nothing", "paid", "fine")}
    found = suites["probe"].survived(Fragile(), actions)
    assert found["survived"] == 1 and sorted(found["faults"]) == ["nothing", "paid", "raise"]


def test_the_probes_of_this_package(suites):
    cells, ours = suites["probe"].CELLS, suites["ours"]
    assert cells["loop"](ours, 0.02)["calls_per_second"] > 1000
    assert cells["reset"](ours, 0.02)["microseconds"] > 0
    assert cells["hostile_texts"](ours, 1)["faults"] == {}
    # a mistake in a tool's code is no observation here, but an error that training masks
    assert list(cells["hostile_calls"](ours, 1)["faults"]) == ["a tool with a mistake in it"]
    assert cells["check_env"](ours, 1)["warnings"] == 0
    found = cells["tokens"](ours, 1)
    assert found["steps_5"] == found["steps_20"] == 1.0
    assert suites["probe"].row_per_step(20) / suites["probe"].unique_tokens(20) == pytest.approx(11.1, abs=0.1)
