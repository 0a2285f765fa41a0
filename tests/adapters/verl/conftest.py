"""Composing a run reads forty files and parses hundreds of references; here each is read and parsed once."""

import copy
from functools import cache

import pytest


@pytest.fixture(scope="session", autouse=True)
def settings_are_read_once():
    base = pytest.importorskip("omegaconf.base")
    source = pytest.importorskip("hydra._internal.core_plugins.file_config_source").FileConfigSource
    load = source.load_config

    @cache
    def read(provider, folder, name):
        return load(source(provider, folder), name)

    def load_once(self, config_path):
        return copy.deepcopy(read(self.provider, self.path, config_path))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source, "load_config", load_once)
        patch.setattr(base, "parse", cache(base.parse))
        yield
