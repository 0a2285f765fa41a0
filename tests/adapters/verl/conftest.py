"""Most of these tests compose runs."""

import pytest


@pytest.fixture(scope="session", autouse=True)
def compose_quickly(settings_are_read_once):
    pass
