"""Fixtures shared by the tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# Whichever test imports verl first: it reads these once, at import (agent_envs.adapters.verl.overrides.environment).
os.environ.setdefault("VERL_PLATFORM", "cpu")
os.environ.setdefault("VERL_ENGINE_DEVICE", "cuda")
os.environ.setdefault("VERL_USE_EXTERNAL_MODULES", "agent_envs.adapters.verl.plugin")

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository's root."""
    return ROOT


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Real data in released formats: AGENT_ENVS_TEST_DATA, or ../shared/data beside the checkout."""
    named = os.environ.get("AGENT_ENVS_TEST_DATA")
    path = Path(named) if named else ROOT.parent / "shared" / "data"
    if not path.is_dir():
        pytest.skip(f"no real test data: {path} is not a folder; set AGENT_ENVS_TEST_DATA")
    return path
