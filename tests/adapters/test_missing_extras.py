"""Importing an adapter without its packages says which extra to install."""

from __future__ import annotations

import subprocess
import sys

EXTRAS = {
    "estimators": "hf",
    "losses": "hf",
    "skyrl": "suites",
    "tiny": "hf",
    "torch": "hf",
    "trl": "trl",
    "verifiers": "suites",
    "verl.batch": "verl",
    "verl.config": "verl",
    "verl.rollout": "verl",
}
CODE = """
import importlib, sys
from agent_envs.errors import MissingExtraError
for package in ("skyrl_gym", "torch", "transformers", "trl", "verifiers", "verl"):
    sys.modules[package] = None
for name in sys.argv[1:]:
    try:
        importlib.import_module(f"agent_envs.adapters.{name}")
    except MissingExtraError as e:
        print(name, e.extra)
import agent_envs.cli.train  # the command itself answers --help everywhere
"""


def test_an_adapter_without_its_packages_names_the_extra() -> None:
    done = subprocess.run([sys.executable, "-c", CODE, *EXTRAS], capture_output=True, text=True, check=True)
    assert dict(line.split() for line in done.stdout.splitlines()) == EXTRAS
