"""None of these tests is there without verl; most of them compose runs."""

import functools
import importlib.util
import pickle

import pytest

if importlib.util.find_spec("verl") is None:
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session", autouse=True)
def compose_quickly(settings_are_read_once):
    """Hydra merges the same files and composes the same settings once: a copy takes a fiftieth of the time."""
    from hydra._internal.config_loader_impl import ConfigLoaderImpl

    from agent_envs.adapters.verl.config import compose
    from agent_envs.adapters.verl.run import training

    merge, made, merged = ConfigLoaderImpl._compose_config_from_defaults_list, compose._compose, dict[tuple, bytes]()

    def merge_once(self, defaults, repo):
        files = tuple((each.config_path, each.package, each.is_self) for each in defaults)
        if files not in merged:
            merged[files] = pickle.dumps(merge(self, defaults, repo))
        return pickle.loads(merged[files])

    @functools.cache
    def composed(overrides):
        return pickle.dumps(made(overrides))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ConfigLoaderImpl, "_compose_config_from_defaults_list", merge_once)
        patch.setattr(compose, "_compose", lambda overrides: pickle.loads(composed(tuple(overrides))))
        patch.setattr(training, "files_of", functools.cache(training.files_of))
        yield
