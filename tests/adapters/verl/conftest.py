"""None of these tests is there without verl; most of them compose runs."""

import importlib.util

import pytest

if importlib.util.find_spec("verl") is None:
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session", autouse=True)
def compose_quickly(settings_are_read_once):
    pass
