"""A small run, and a copy of it to be spoilt."""

import shutil
from pathlib import Path

import pytest

from agent_envs.cli.main import main
from tests.attacks.commands import EVAL


@pytest.fixture(scope="session")
def played(tmp_path_factory):
    """The folder of a small evaluation."""
    folder = tmp_path_factory.mktemp("played") / "run"
    assert main([*EVAL, str(folder)]) == 0
    return folder


@pytest.fixture
def run(played, tmp_path_factory):
    """A copy of that folder."""
    return Path(shutil.copytree(played, tmp_path_factory.mktemp("copy") / "run"))
