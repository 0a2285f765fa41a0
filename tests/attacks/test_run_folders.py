"""Hostile and broken run folders, rows and checkpoints: nothing in them runs, and every command says in a line why.

Behaviours pinned here:
1. What a run.json, an episode or a dataset's row names is not imported, called, contacted or written, without trust.
2. With --trust it is: the attacks are real ones.
3. A checkpoint that would run code is refused before verl opens it.
4. A broken file is one line on standard error and exit status 2, or does not matter to the command.
"""

import dataclasses
import gzip
import importlib.util
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

from agent_envs.checks import argument_names, listed
from agent_envs.cli.main import main
from agent_envs.errors import AgentEnvsError, ConfigError, DataError
from agent_envs.registration import ENV_IDS, FOREIGN_IDS, PICTURE_IDS, env_maker_of, make_env
from agent_envs.retrieval import open_retriever
from agent_envs.retrieval.storage import write_manifest
from agent_envs.serving.served_env import ServedEnv
from agent_envs.text_env import TextEnv
from agent_envs.viewer.write import training_curves
from agent_envs.wrapping.recorded import recorded_env
from agent_envs.wrapping.specs import parse_wrapper, wrapper_names
from tests.attacks.commands import EVAL

ENV = "AgentR1/GSM8KTool-v0"


@pytest.fixture
def canary(tmp_path, monkeypatch):
    """A file that appears as soon as the module `canary` is imported."""
    mark, folder = tmp_path / "mark", tmp_path / "modules"
    folder.mkdir()
    (folder / "canary.py").write_text(
        f"import pathlib\npathlib.Path({str(mark)!r}).touch()\ndef call(*values, **named): return 'sung'\n"
    )
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(__import__("sys").modules, "canary", raising=False)
    return mark


HOSTILE: dict[str, dict[str, Any]] = {
    "a module's environment": {"env": "canary:Env-v0"},
    "a module's wrapper": {"wrappers": ["canary:call"]},
    "a function in a wrapper": {"wrappers": ["Augment(fn='canary:call')"]},
    "a function of Python's own": {"wrappers": ["Augment(fn='builtins:exec')"]},
    "a template": {"wrappers": ["RebuildPrompt(fn='canary:call')"]},
    "a name among others": {"wrappers": ["ToolCallReward", " Augment ( fn = ' canary:call' ) "]},
    "a file to write": {"wrappers": ["RecordEpisodes(path='MARK')"]},
    "a remote environment": {"env": "AgentR1/Remote-v0", "env_kwargs": {"url": "http://127.0.0.1:9"}},
    "a search server": {"env": "AgentR1/HotpotQA-v0", "env_kwargs": {"retriever": "http://127.0.0.1:9"}},
    "a tagger": {"env": "AgentR1/WebShop-v0", "env_kwargs": {"tagger": "canary:call"}},
    "a recording": {"env": "AgentR1/PaperSearch-v0", "env_kwargs": {"backend": "arxiv:cache=MARK"}},
    "a judge": {"env": "AgentR1/PaperSearch-v0", "env_kwargs": {"selector": "judge:model#url=http://evil:1"}},
    "a judge behind a space": {
        "env": "AgentR1/PaperSearch-v0",
        "env_kwargs": {"selector": "judge: model#url=http://evil:1"},
    },
    "a recording behind a space": {"env": "AgentR1/PaperSearch-v0", "env_kwargs": {"backend": "arxiv: cache=MARK"}},
    "a service": {"env": "AgentR1/PaperSearch-v0", "env_kwargs": {"backend": "arxiv"}},
    "a service with a colon": {"env": "AgentR1/PaperSearch-v0", "env_kwargs": {"backend": "semanticscholar:"}},
    "a module of one letter": {"wrappers": ["Augment(fn='q:call')"]},
    "a module in another script": {"wrappers": ["Augment(fn='\u00e9:call')"]},
    "a tokenizer": {"wrappers": ["ChatMessages", "TokenBudget(n=5, tokenizer='Qwen/Qwen3-4B')"]},
    "a switch": {"env": "AgentR1/ReasoningGym-v0", "env_kwargs": {"dataset": "countdown", "trust": True}},
    "the same of another": {"env": "AgentR1/SkyRLGym-v0", "env_kwargs": {"env": "lcb", "trust": True}},
    "a package's own settings": {"env": "AgentR1/ReasoningGym-v0", "env_kwargs": {"config": {"file": "/etc/passwd"}}},
    "a program to start": {"env": "AgentR1/MCP-v0", "env_kwargs": {"command": ["touch", "MARK"]}},
    "a module to import": {"env": "AgentR1/Verifiers-v0", "env_kwargs": {"env": "canary"}},
    "an opponent": {"env": "AgentR1/TextArena-v0", "env_kwargs": {"env": "TicTacToe-v0", "opponent": "canary:call"}},
    "a game file": {"env": "AgentR1/TextWorld-v0", "env_kwargs": {"game": "MARK"}},
    "a sandbox": {"env": "AgentR1/MathCode-v0", "env_kwargs": {"sandbox": "canary:call"}},
    "more memory": {"env": "AgentR1/MathCode-v0", "env_kwargs": {"memory_mb": 10**6}},
    "a page to write": {"env": "AgentR1/WebShop-v0", "env_kwargs": {"page": "MARK"}},
    "a window": {"env_kwargs": {"render_mode": "human"}},
    "a file": {"data": "/etc/passwd"},
    "a file among the arguments": {"env_kwargs": {"data": "/dev/zero"}},
    "a corpus": {"env": "AgentR1/HotpotQA-v0", "env_kwargs": {"corpus": "/etc/passwd"}},
    "an environment that declares nothing": {"env": "FrozenLake-v1", "env_kwargs": {"desc": ["SG"]}},
    "a key": {"env_kwargs": {"canary:call": 1}},
    "data elsewhere": {"data": "http://127.0.0.1:9/rows.jsonl"},
}


def _refused(capsys: pytest.CaptureFixture[str], *command: str, status: int = 2) -> str:
    """Run a command that must fail with one line, and return it."""
    capsys.readouterr()
    assert main(list(command)) == status
    said = capsys.readouterr().err
    assert said.startswith("agentr1: ") and said.count("\n") == 1, said
    return said


@pytest.mark.parametrize("attack", HOSTILE)
def test_what_a_run_names_does_not_run(attack, run, canary, tmp_path, capsys):
    changed = json.loads(json.dumps(HOSTILE[attack]).replace("MARK", str(canary)))
    settings = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**settings, **changed}))
    said = _refused(capsys, "score", str(run), "--quiet", "--out", str(tmp_path / "new.jsonl"))
    assert "run.json names" in said and "--trust" in said
    assert main(["view", str(run), "--out", str(tmp_path / "a.html")]) == 0
    assert "other settings" in _refused(capsys, *EVAL, str(run))
    assert not canary.exists() and not (tmp_path / "new.jsonl").exists()


def test_what_an_episode_names_does_not_run(run, canary, capsys):
    (run / "run.json").unlink()
    text = (run / "episodes.jsonl").read_text()
    (run / "episodes.jsonl").write_text(text.replace(ENV, "canary:Env-v0"))
    said = _refused(capsys, "score", str(run), "--quiet", "--out", str(run / "new"))
    assert "names 'canary:Env-v0' as its environment" in said and not canary.exists()


def test_trust_runs_it(run, canary, tmp_path):
    settings = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**settings, **HOSTILE["a function in a wrapper"]}))
    assert main(["score", str(run), "--quiet", "--trust", "--out", str(tmp_path / "new.jsonl")]) == 0
    assert canary.exists()


def test_what_the_user_names_needs_no_trust(run, canary, tmp_path):
    rescore = ["score", str(run), "--quiet", "--out", str(tmp_path / "new.jsonl")]
    assert main([*rescore, "--wrapper", "Augment(fn='canary:call')"]) == 0
    assert canary.exists()
    (run / "run.json").write_text(json.dumps({"env": "canary:Env-v0"}))
    assert main([*rescore[:-1], str(tmp_path / "again.jsonl"), "--env", ENV]) == 0  # instead of the recorded one


def test_what_is_declared_needs_no_trust():
    kwargs = {"level": "1-8", "data": "official", "max_episode_steps": 3, "split": "test"}
    specs = ("RebuildPrompt(template='Task: $task')", "FormatReward(weight=0.2)")
    assert recorded_env({"env": ENV, "env_kwargs": kwargs, "wrappers": [*specs]}, "run.json") == (ENV, kwargs, specs)


@pytest.mark.parametrize(("env_id", "name"), [("HotpotQA", "articles"), ("PaperSearch", "papers"), ("GSM8K", "level")])
def test_a_record_asks_for_no_hours_of_work(env_id, name):
    for value in (300_001, 10**30):
        record = {"env": f"AgentR1/{env_id}-v0", "env_kwargs": {name: value}}
        with pytest.raises(ConfigError, match="a record may not set"):
            recorded_env(record, "run.json")
        assert recorded_env(record, "run.json", env_kwargs={name: value}).env_kwargs == {name: value}
    with pytest.raises(DataError, match="at most 100 specs"):
        recorded_env({"env": ENV, "wrappers": ["StripReasoning"] * 5000}, "run.json")


def test_what_the_user_gives_replaces_the_record(tmp_path):
    record = {"env": ENV, "data": "/etc/passwd", "env_kwargs": {"tools": []}, "wrappers": ["Augment(fn='canary:call')"]}
    given = {"data": str(tmp_path), "tools": ()}
    assert recorded_env(record, "run.json", env_kwargs=given, wrappers=["X"]) == (ENV, given, ("X",))
    assert recorded_env(record, "run.json", trust=True).wrappers == tuple(record["wrappers"])


def test_no_declared_argument_is_code_a_file_or_a_right(canary):
    never = {"backend", "check", "command", "config", "corpus", "fn", "game", "goals", "memory_mb", "opponent", "page"}
    never |= {"path", "prices", "retriever", "sandbox", "selector", "tagger", "token", "tokenizer", "tools", "trust"}
    never.add("url")
    for env_id in (*ENV_IDS, *PICTURE_IDS, *FOREIGN_IDS):
        for name in listed(env_maker_of(env_id), "recorded_arguments"):
            with suppress(AgentEnvsError):  # what it is if it is not taken for a name
                make_env(env_id, **{name: "canary:call"}).close()
            assert name not in never and not canary.exists(), (env_id, name)
    for wrapper in (parse_wrapper(name)[0] for name in wrapper_names()):
        declared = listed(wrapper, "recorded_arguments")
        assert declared <= {*argument_names(wrapper)} - (never - {"tools"}), wrapper
        for name in declared:
            with suppress(AgentEnvsError, TypeError):
                wrapper(gym.make("AgentR1/ALFWorld-v0"), **{name: "canary:call"})
            assert not canary.exists(), (wrapper, name)


def test_an_environment_of_ones_own_declares():
    class Mine(TextEnv):
        recorded_arguments = ("size",)

    gym.register("Test/Mine-v0", Mine)
    try:
        assert recorded_env({"env": "Test/Mine-v0", "env_kwargs": {"size": 3, "split": "a"}}, "a row").env_kwargs[
            "size"
        ]
        with pytest.raises(ConfigError, match="a row names 1 as the argument 'other' of Test/Mine-v0"):
            recorded_env({"env": "Test/Mine-v0", "env_kwargs": {"other": 1}}, "a row")
    finally:
        del gym.registry["Test/Mine-v0"]


@pytest.mark.parametrize(
    "spec",
    [
        *("", "(", "f()()", "a.b()", "F(1)", "F(**{})", "F(x=y)", "F(x={[]: 1})", "F(x=" + "[" * 300, "F(x=f())", ":F"),
        *("é(", "F(x=" + "-" * 100_000 + "1)", "F(x=" + "9" * 5000 + ")", "\0", "lambda: 0", "F(x=1, x=2)", "F(x=1j)"),
    ],
)
def test_wrapper_specs_are_never_evaluated(spec):
    with pytest.raises((ConfigError, DataError)) as caught:
        recorded_env({"env": ENV, "wrappers": [spec]}, "run.json")
    assert len(str(caught.value)) < 500 and "\n" not in str(caught.value)


def _rows() -> list[Any]:
    def skyrl(env_id: str, kwargs: dict[str, Any], wrappers: list[str]) -> None:
        pytest.importorskip("skyrl_gym")
        adapter = pytest.importorskip("agent_envs.adapters.skyrl")
        row = {"env_id": env_id, "env_kwargs": json.dumps(kwargs), "wrappers": json.dumps(wrappers), "index": 0}
        adapter.SkyRLTextEnv(extras={"extra_info": row})

    def trl(env_id: str, kwargs: dict[str, Any], wrappers: list[str]) -> None:
        pytest.importorskip("trl")
        from agent_envs.adapters.trl.trainer import read_task

        read_task({"env_id": env_id, "env_kwargs": json.dumps(kwargs), "wrappers": wrappers, "index": 0}, trust=False)

    def trl_class(env_id: str, kwargs: dict[str, Any], wrappers: list[str]) -> None:
        pytest.importorskip("trl")
        from agent_envs.adapters.trl import environment_class

        if not kwargs:
            pytest.skip("these rows hold arguments only")
        environment_class(ENV)().reset(index=0, env_kwargs=json.dumps(kwargs))

    return [skyrl, trl, trl_class]


@pytest.mark.parametrize("reader", _rows(), ids=lambda reader: reader.__name__)
@pytest.mark.parametrize(
    "row",
    [
        ("canary:Env-v0", {}, []),
        (ENV, {"tools": ["canary:call"]}, []),
        (ENV, {}, ["Augment(fn='canary:call')"]),
    ],
)
def test_what_a_row_names_does_not_run(reader, row, canary):
    with pytest.raises(ConfigError, match="trust"):
        reader(*row)
    assert not canary.exists()


class TakesTools(gym.Env):
    def __init__(self, tools=()):
        raise AssertionError("it is made")


@pytest.mark.parametrize(
    ("env", "chosen"),
    [
        ("Mine/TakesTools-v0", {"tools": ["canary:call"]}),
        (ENV, {"data": "/etc/passwd"}),
        (ENV, {"render_mode": "human"}),
    ],
)
def test_what_a_client_names_does_not_run(env, chosen, canary, monkeypatch):
    monkeypatch.setattr(gym.envs.registration, "registry", dict(gym.registry))
    gym.register("Mine/TakesTools-v0", entry_point=TakesTools)
    with pytest.raises(ConfigError, match="the client names"):
        ServedEnv(env, allow=[*chosen]).make(chosen)
    assert not canary.exists()
    with pytest.raises(ConfigError, match="no argument 'tools'"):
        ServedEnv(ENV, allow=["tools"])


def test_an_index_names_files_of_its_own_alone(tmp_path):
    (tmp_path / "secret").write_text("hidden")
    (tmp_path / "corpus.jsonl").write_text('{"id": "a", "text": "words"}\n')
    index = tmp_path / "index"
    assert main(["index", str(tmp_path / "corpus.jsonl"), "--out", str(index), "--quiet"]) == 0
    manifest = json.loads((index / "index.json").read_text())
    del manifest["checksum"]
    elsewhere: list[Any] = [{"../secret": {"bytes": 6, "sha256": "0"}}, {"/etc/hostname": {"bytes": 1}}, {"..": {}}]
    for files in (*elsewhere, {"documents.bin": 5}, {"documents.bin": {}}, [1], None, "documents.bin"):
        write_manifest(index, {**manifest, "files": files})
        with pytest.raises(DataError, match="index") as caught:
            open_retriever(index)
        assert "hidden" not in str(caught.value)


class _Pickled:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.mark),)


@pytest.mark.parametrize("name", ["model_world_size_1_rank_0.pt", "optim_world_size_1_rank_0.pt"])
def test_a_checkpoint_runs_nothing(tmp_path, capsys, name):
    if importlib.util.find_spec("verl") is None:  # to import it takes seconds
        pytest.skip("verl is not installed")
    torch = pytest.importorskip("torch")
    mark, actor = tmp_path / "mark", tmp_path / "run" / "checkpoints" / "global_step_1" / "actor"
    (actor / "huggingface").mkdir(parents=True)
    (actor / "fsdp_config.json").write_text('{"FSDP_version": 2, "world_size": 1}')
    torch.save({"weight": torch.zeros(2)}, actor / "model_world_size_1_rank_0.pt")
    torch.save({"weight": _Pickled(mark)}, actor / name)
    said = _refused(capsys, *EVAL[:5], "--checkpoint", str(tmp_path / "run"))
    assert f"{name} holds more than tensors" in said and "--trust" in said
    assert not mark.exists()


def test_a_checkpoint_of_the_torch_loop_runs_nothing(tmp_path):
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from agent_envs.adapters.tiny.model import save_model
    from agent_envs.adapters.torch.run import Run
    from agent_envs.adapters.torch.settings import LoopConfig
    from benchmarks.pretraining.model import build_model
    from benchmarks.pretraining.tokenizer import build_tokenizer

    tokenizer = build_tokenizer(["user assistant system 0123456789"])
    save_model(build_model(tokenizer), tokenizer, tmp_path / "start")
    config = LoopConfig(env=ENV, out=str(tmp_path / "run"), model=str(tmp_path / "start"), eval_tasks=0, device="cpu")
    run = Run(dataclasses.replace(config, save_every=1))
    run.log({"step": 1})
    run.save(1)
    assert Run(config).step == 1
    checkpoint = tmp_path / "run" / "checkpoint"
    states = (checkpoint / "optimizers.pt").read_bytes()
    for state in ({"model": _Pickled(tmp_path / "mark")}, {"model": 5}, {}, [1]):
        torch.save(state, checkpoint / "optimizers.pt")
        with pytest.raises(DataError, match="does not hold the states"):
            Run(config)
    assert not (tmp_path / "mark").exists()
    (checkpoint / "optimizers.pt").write_bytes(states)
    for text in ("", "5", "{}", '{"step": "x"}', '{"step": [1]}', DEEP):
        (checkpoint / "step.json").write_text(text)
        with pytest.raises(DataError, match="cannot be resumed"):
            Run(config)


DEEP = "[" * 100_000
BROKEN: dict[str, bytes] = {
    "nothing": b"",
    "half": b"{",
    "a number": b"7",
    "a list": b"[1]",
    "null": b"null",
    "a text": b'"run"',
    "deep": DEEP.encode(),
    "deep but whole": b'{"env_kwargs": ' + b"[" * 900 + b"]" * 900 + b"}",
    "no text": b"\xff\xfe\x00",
    "a long number": b'{"seed": ' + b"9" * 10_000 + b"}",
    "another kind of env": b'{"env": 5}',
    "another kind of arguments": b'{"env_kwargs": [1]}',
    "arguments that do not fit": b'{"env_kwargs": {"level": "many"}}',
    "an argument that does not exist": b'{"env_kwargs": {"levle": 3}}',
    "another kind of wrappers": b'{"wrappers": "FormatReward"}',
    "wrappers of another kind": b'{"wrappers": [5, null]}',
    "a wrapper that does not fit": b'{"wrappers": ["FormatReward(weight=\'much\')"]}',
    "another kind of data": b'{"data": {"path": 1}}',
    "no such data": b'{"data": "/no/such/file.jsonl"}',
}


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_run_json(broken, run, tmp_path, capsys):
    (run / "run.json").write_bytes(BROKEN[broken])
    _refused(capsys, "score", str(run), "--quiet", "--out", str(tmp_path / "new.jsonl"))
    _refused(capsys, *EVAL, str(run))
    assert main(["view", str(run), "--out", str(tmp_path / "a.html")]) == 0
    capsys.readouterr()
    status = main(["plot", str(run), "--out", str(tmp_path / "a.png")])
    said = capsys.readouterr().err
    assert (status, said) == (0, "") or (status == 2 and said.startswith("agentr1: ") and said.count("\n") == 1)
    assert {path.name for path in tmp_path.iterdir()} == {"a.html", *(["a.png"] if status == 0 else [])}


def _episodes(text: str) -> dict[str, bytes]:
    def changed(name: str, value: Any) -> bytes:
        return json.dumps({**json.loads(text), name: value}).encode() + b"\n"

    step = json.loads(text)["steps"][0]

    def stepped(name: str, value: Any) -> bytes:
        return changed("steps", [{**step, name: value}])

    return {
        "a number": b"7\n",
        "a list": b"[1]\n",
        "deep": DEEP.encode() + b"\n",
        "no JSON": b"oops\n",
        "no text": b"\xff\xfe\n",
        "another schema": changed("schema_version", 99),
        "no schema": changed("schema_version", None),
        "steps of another kind": changed("steps", 5),
        "steps that are numbers": changed("steps", [1, 2]),
        "a step without fields": changed("steps", [{}]),
        "an action of another kind": stepped("action", 5),
        "a reward of another kind": stepped("reward", "much"),
        "info of another kind": stepped("info", [1]),
        "another stop reason": changed("stop_reason", "boredom"),
        "reset_info of another kind": changed("reset_info", 5),
        "tools of another kind": changed("tools", 5),
        "tools that are none": changed("tools", [1]),
        "an env_id of another kind": changed("env_id", {"a": 1}),
        "a long number": b'{"steps": [' + b"9" * 10_000 + b"]}\n",
        "an index beyond": changed("index", 10**15),
        "an index of another kind": changed("index", "first"),
        "a seed of another kind": changed("seed", "first"),
        "a negative seed": changed("seed", -1),
        "a source that is no path": changed("reset_info", {"source": "\0" * 10, "split": "test"}),
        "a source that is too long": changed("reset_info", {"source": "x" * 10_000, "split": "test"}),
        "a split of another kind": changed("reset_info", {"split": [1]}),
        "an observation of another kind": stepped("observation", 5),
        "a last observation of another kind": changed("final_observation", {}),
        "a message of another kind": stepped("observation", [5]),
        "a content of another kind": stepped("observation", [{"role": "user", "content": 5}]),
        "parts of another kind": stepped("observation", [{"role": "user", "content": [5]}]),
        "a part without its text": stepped(
            "observation", [{"role": "user", "content": [{"type": "text", "image": 5}]}]
        ),
        "token ids of another kind": stepped("response_ids", 5),
        "token ids that are texts": stepped("response_ids", ["a"]),
        "usage of another kind": stepped("usage", "much"),
        "counts of another kind": stepped("usage", {"prompt_tokens": "many"}),
        "a score of another kind": stepped("info", {"score": "high"}),
        "a reward that no float holds": stepped("reward", 10**400),
        "a score that no float holds": stepped("info", {"score": 10**400}),
        "a count that no float holds": stepped("usage", {"prompt_tokens": 10**400}),
        "a time of another kind": changed("seconds", None),
        "a time that no float holds": changed("seconds", 10**400),
    }


COMMANDS: dict[str, list[str]] = {
    "score": ["--quiet", "--out", "new.jsonl"],
    "view": ["--out", "new.html"],
    "plot": ["--out", "new.png"],
    "score --by papers": [],
    "eval": ["--env", ENV, "--split", "test", "--policy", "expert", "--n", "3", "--quiet"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_broken_episodes(command, run, tmp_path, monkeypatch, capsys):
    if command == "plot":
        figure = pytest.importorskip("matplotlib.figure")  # without a layout, which takes half of the time
        monkeypatch.setattr("agent_envs.episodes.figures.new_figure", lambda width, height: figure.Figure())
    monkeypatch.chdir(tmp_path)
    first = (run / "episodes.jsonl").read_text().splitlines()[0]
    for broken, content in _episodes(first).items():
        for path in run.glob("episodes*"):
            path.unlink()
        if command == "view":
            (run / "episodes.jsonl.gz").write_bytes(gzip.compress(content))
        else:
            (run / "episodes.jsonl").write_bytes(content)
        capsys.readouterr()
        status = main([*command.split(), *(["--out"] if command == "eval" else []), str(run), *COMMANDS[command]])
        said = capsys.readouterr().err
        assert status in (0, 2), f"{broken}: {said}"
        assert said.count("\n") == (status != 0) and said.startswith("agentr1: " * (status != 0)), (broken, said)
        outputs = [path for path in tmp_path.iterdir() if path.name.startswith("new.")]
        assert bool(outputs) <= (status == 0), (broken, outputs)
        for path in outputs:
            path.unlink()


def test_a_message_without_content_is_read(run, tmp_path):
    """OpenAI's form beside tool calls has null or nothing."""
    calls = [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    messages = [{"role": "assistant", "content": None, "tool_calls": calls}, {"role": "assistant", "tool_calls": calls}]
    rows = [json.loads(line) for line in (run / "episodes.jsonl").read_text().splitlines()]
    rows[0]["steps"][0]["observation"] = rows[0]["final_observation"] = [*messages, {"role": "user", "content": "x"}]
    (run / "episodes.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert main(["view", str(run), "--out", str(tmp_path / "a.html")]) == 0
    assert main(["score", str(run), "--quiet", "--out", str(tmp_path / "a.jsonl")]) == 0


def test_a_long_run_is_thinned(tmp_path):
    log = (json.dumps({"step": step, "env/success": 0.5}) for step in range(30_001))
    (tmp_path / "metrics.jsonl").write_text("\n".join(log) + "\n")
    curve = training_curves([tmp_path])[0]["curves"]["training"]["success"]
    assert len(curve) <= 501 and curve[0] == (0, 0.5) and curve[-1] == (30_000, 0.5)


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"{", b"7\n{}\n", b'{"step": "x"}\n', b'{"step": 1e999}\n', DEEP.encode()),
        b'{"step": 1e308, "val/success": 0.5}\n',
        b'{"step": 1' + b"0" * 400 + b', "val/success": 0.5}\n',
        b'{"step": 1, "val/success": 0.5, "val/episodes": 1' + b"0" * 400 + b"}\n",
    ],
)
def test_broken_metrics(content, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    (tmp_path / "metrics.jsonl").write_bytes(content)
    _refused(capsys, "plot", str(tmp_path), "--out", str(tmp_path / "a.png"))


def test_a_broken_summary_is_written_again(run):
    before = json.loads((run / "summary.json").read_text())
    (run / "summary.json").write_text("{" * 1000)
    assert main([*EVAL, str(run)]) == 0
    after = json.loads((run / "summary.json").read_text())
    assert after["success"] == before["success"] and after.keys() == before.keys()
