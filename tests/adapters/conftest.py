"""Makes `verl/local_training.py` importable, which is no test; a model that several files train."""

import socket
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent / "verl"))


@pytest.fixture(scope="module")
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
