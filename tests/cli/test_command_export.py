"""`agentr1 export` and `agentr1 serve-model`.

1. What is exported of a run of the PyTorch loop, or of verl's, loads with transformers and computes the same; a
   checkpoint of verl is converted once.
2. A folder appears whole or not at all, and nothing is replaced.
3. vLLM gets the model, its name, and the parser that its chat template's calls take; test_vllm_training.py serves one.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import os
import runpy
import shlex
import shutil
import subprocess
import sys
import types

import pytest

from agent_envs.adapters.verl.run.checkpoints import find_actor, hugging_face_folder
from agent_envs.cli.main import main
from agent_envs.errors import BackendError, ConfigError

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def loop_run(tmp_path_factory):
    """A run of the PyTorch loop, an iteration long, from a tiny model."""
    from agent_envs.adapters.tiny.model import save_model
    from agent_envs.adapters.torch.loop import main as train
    from benchmarks.pretraining.model import build_model
    from benchmarks.pretraining.tokenizer import build_tokenizer

    folder = tmp_path_factory.mktemp("loop")
    tokenizer = build_tokenizer(["user assistant system 0123456789"])
    save_model(build_model(tokenizer), tokenizer, folder / "start")
    train(
        ["--env", "AgentR1/GSM8K-v0", "--model", str(folder / "start"), "--out", str(folder / "run"), "--steps", "1",
         "--tasks", "2", "--eval-tasks", "0", "--max-tokens", "512", "--device", "cpu", "--learning-rate", "0.01",
         "--estimator", "gae"]
    )  # fmt: skip
    return folder / "run"


def logits(folder, dtype=torch.float32):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    with torch.no_grad():
        return model(torch.arange(40)[None]).logits


@pytest.mark.parametrize("part", ["", "checkpoint", "checkpoint/model"])
@pytest.mark.filterwarnings("ignore")
def test_a_run_of_the_loop(loop_run, tmp_path, agentr1, part):
    out = tmp_path / "models" / "mine"
    assert f"agentr1 serve-model {out}" in agentr1("export", loop_run / part, "--out", out)
    trained = logits(loop_run / "checkpoint" / "model")
    assert torch.equal(logits(out), trained) and not torch.equal(trained, logits(loop_run.parent / "start"))
    tokenizer = transformers.AutoTokenizer.from_pretrained(out)
    assert "<tool_call>" in tokenizer.chat_template and [path.name for path in out.parent.iterdir()] == ["mine"]
    assert "already exists" in agentr1("export", loop_run, "--out", out, status=2)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("file", ["tokenizer.json", "model.safetensors"])
def test_what_could_not_be_served_is_not_exported(loop_run, tmp_path, agentr1, file):
    model, out = shutil.copytree(loop_run / "checkpoint" / "model", tmp_path / "model"), tmp_path / "out"
    (model / file).unlink() if file == "tokenizer.json" else (model / file).write_bytes(b"garbage")
    assert "is not a whole model" in agentr1("export", model, "--out", out, status=2)
    assert not out.exists()


def verl_checkpoint(run, model):
    """As verl leaves one rank's checkpoint; returns the actor's folder."""
    actor = run / "checkpoints" / "global_step_3" / "actor"
    shutil.copytree(model, actor / "huggingface")
    (actor / "huggingface" / "model.safetensors").unlink()
    weights = transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).state_dict()
    torch.save(weights, actor / "model_world_size_1_rank_0.pt")
    (actor / "fsdp_config.json").write_text(json.dumps({"FSDP_version": 2, "world_size": 1}))
    return actor


@pytest.fixture(params=["here", pytest.param("in a process of its own", marks=pytest.mark.slow)])
def merger(request, monkeypatch):
    """verl's merger, which takes ten seconds in a process of its own to import what is imported here."""
    pytest.importorskip("verl")

    def run_here(command, **how):
        monkeypatch.setattr(sys, "argv", command[2:])
        runpy.run_module(command[2], run_name="__main__")
        return subprocess.CompletedProcess(command, 0, "", "")

    if request.param == "here":
        monkeypatch.setattr(subprocess, "run", run_here)


@pytest.mark.usefixtures("merger")
@pytest.mark.filterwarnings("ignore")
def test_a_checkpoint_of_verl_is_converted_once(loop_run, tmp_path, monkeypatch, agentr1):
    model, run, out = loop_run / "checkpoint" / "model", tmp_path / "run", tmp_path / "out"
    monkeypatch.setenv("AGENT_ENVS_DATA", str(tmp_path / "data"))
    actor, cache = verl_checkpoint(run, model), tmp_path / "data" / "checkpoints"
    folder = hugging_face_folder(run)
    assert [path.name for path in cache.iterdir()] == [folder.name]  # nothing half-made beside it
    assert torch.equal(logits(folder, torch.bfloat16), logits(model, torch.bfloat16))
    tokenizers = [transformers.AutoTokenizer.from_pretrained(path) for path in (folder, model)]
    assert tokenizers[0].encode("user 12 assistant?") == tokenizers[1].encode("user 12 assistant?")
    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "run", None)  # not a second time
        for place in (run, run / "checkpoints", actor.parent, actor):
            assert hugging_face_folder(place) == folder
        assert hugging_face_folder(model) == model
    agentr1("export", run, "--out", out)
    assert torch.equal(logits(out), logits(folder))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "out", "run"]
    shutil.copy(model / "model.safetensors", actor / "huggingface")  # as verl saves weights where it is told to
    assert hugging_face_folder(run) == actor / "huggingface"


@pytest.mark.parametrize("merger", ["one that fails", pytest.param("verl's", marks=pytest.mark.slow)])
def test_the_latest_checkpoint_counts_and_broken_ones_leave_nothing(tmp_path, monkeypatch, merger):
    pytest.importorskip("verl")
    run = tmp_path / "run"
    for step in (9, 10):
        folder = run / "checkpoints" / f"global_step_{step}" / "actor"
        (folder / "huggingface").mkdir(parents=True)
        (folder / "fsdp_config.json").write_text("{}")
    assert find_actor(run).parent.name == "global_step_10"
    (run / "checkpoints" / "latest_checkpointed_iteration.txt").write_text("9")
    assert find_actor(run).parent.name == "global_step_9"
    if merger != "verl's":  # which takes seconds to be imported
        run_process, fails = subprocess.run, "import sys; sys.exit('there is nothing in huggingface')"
        monkeypatch.setattr(subprocess, "run", lambda _, **how: run_process([sys.executable, "-c", fails], **how))
    with pytest.raises(BackendError, match=r"merger failed to convert .*exit status 1(?s:.*)huggingface"):
        hugging_face_folder(run, tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []
    for nothing in (tmp_path / "cache", tmp_path / "absent"):
        with pytest.raises(ConfigError, match="no (verl )?checkpoint"):
            hugging_face_folder(nothing)


@pytest.mark.parametrize("command", ["export", "serve-model"])
def test_what_is_no_model(tmp_path, agentr1, command):
    (tmp_path / "empty").mkdir()
    more = ("--out", tmp_path / "out") if command == "export" else ("--dry-run",)
    assert "no verl checkpoint in" in agentr1(command, tmp_path / "empty", *more, status=2)
    agentr1(command, tmp_path / "absent", *more, status=2)
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]


def served(capsys, *arguments):
    assert main(["serve-model", *map(str, arguments), "--dry-run"]) == 0
    command, note = capsys.readouterr()
    assert ("--tool-mode text" in note) == ("--tool-call-parser" not in command)
    return shlex.split(command)


def test_vllm_is_told_what_to_serve(loop_run, tmp_path, capsys, agentr1):
    command = served(capsys, loop_run, "--port", 8123, "--engine", '{"max_model_len": 512, "enforce_eager": true}')
    assert command[:3] == [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
    model = loop_run / "checkpoint" / "model"
    assert set(command[3:]) == {
        f"--model={model}", "--served-model-name=run", "--host=127.0.0.1", "--port=8123", "--enable-auto-tool-choice",
        "--tool-call-parser=hermes", "--max-model-len=512", "--enforce-eager",
    }  # fmt: skip
    command = served(capsys, model, "--name", "mine", "--tool-parser", "pythonic")
    assert {"--served-model-name=mine", "--tool-call-parser=pythonic"} <= set(command)

    template = tmp_path / "template.jinja"
    for text, parser in {
        "<tool_call>\n<function=f>": "qwen3_coder", "<tool_call>f\n<arg_key>": "glm45", "[TOOL_CALLS]": "mistral",
        "<|python_tag|>": "llama3_json", "<｜tool▁calls▁begin｜>": "deepseek_v31", "<|channel|>": "openai", "": None,
    }.items():  # fmt: skip
        template.write_text(text, encoding="utf-8")
        flags = {flag for flag in served(capsys, model, "--chat-template", template) if "tool" in flag}
        assert flags == ({"--enable-auto-tool-choice", f"--tool-call-parser={parser}"} if parser else set())

    bare = tmp_path / "bare"
    shutil.copytree(model, bare)
    (bare / "chat_template.jinja").unlink()
    for wrong, message in (
        ([model, "--chat-template", tmp_path / "none"], "cannot be read"),
        ([model, "--engine", "[]"], "--engine"),
        ([model, "--host", "0.0.0.0"], "there is no token"),
        ([bare], "no chat template"),
    ):
        assert message in agentr1("serve-model", "--dry-run", *wrong, status=2)


def test_the_command_becomes_vllm(loop_run, agentr1, monkeypatch):
    if importlib.util.find_spec("vllm") is None:
        assert "pip install 'agent-envs[vllm]'" in agentr1("serve-model", loop_run, status=2)
    fake, ran = types.ModuleType("vllm"), []
    fake.__spec__ = importlib.machinery.ModuleSpec("vllm", None)
    monkeypatch.setitem(sys.modules, "vllm", fake)
    monkeypatch.setenv("AGENT_ENVS_TOKEN", "a-token-of-this-test")
    monkeypatch.setenv("VLLM_API_KEY", "")
    monkeypatch.setattr(os, "execv", lambda path, command: ran.append((path, command, os.environ["VLLM_API_KEY"])))
    agentr1("serve-model", loop_run, "--host", "0.0.0.0")
    ((path, command, key),) = ran
    assert path == command[0] == sys.executable and "--host=0.0.0.0" in command
    assert key == "a-token-of-this-test" and not any(key in part for part in command)  # which other users can list
