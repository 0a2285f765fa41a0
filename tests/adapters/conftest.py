"""Makes what is no test in `verl` importable; a model that several files train, and verl's workers of it."""

import socket
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path += [str(HERE), str(HERE / "verl")]


@pytest.fixture(scope="session")
def model_path(tmp_path_factory):
    """The folder of a model of a few thousand parameters."""
    from agent_envs.adapters.tiny.model import save_model
    from benchmarks.pretraining.model import build_model
    from benchmarks.pretraining.tokenizer import build_tokenizer

    path = tmp_path_factory.mktemp("model") / "model"
    tokenizer = build_tokenizer(["some words to learn"])
    save_model(build_model(tokenizer, hidden_size=32, intermediate_size=64), tokenizer, path)
    return str(path)


@pytest.fixture(scope="module")
def process_group():
    """What verl's workers need in this process: the variables of a group of one, which ends with the module."""
    import torch

    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = str(s.getsockname()[1])
    names = {"WORLD_SIZE": "1", "RANK": "0", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in names.items():
            patch.setenv(name, value)
        yield
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()


@pytest.fixture(scope="module")
def actor(model_path, process_group):
    """verl's worker of that model in this process."""
    pytest.importorskip("verl")
    from local_training import build_worker

    return build_worker(model_path, "language_model")


@pytest.fixture(scope="module")
def critic(model_path, process_group):
    """verl's worker of a critic."""
    pytest.importorskip("verl")
    from local_training import build_worker

    return build_worker(model_path, "value_model")
