"""What all commands have in common: help that teaches, and mistakes that are answered in one message.

Behaviours pinned here:
1. Every command's help has examples, and the commands in them take the options that they show.
2. An unknown command is answered by the one that was meant.
3. A file that cannot be written is one message that names it, before any work is done.
4. An environment that is none of text is refused, and told what makes it one.
5. Ranges of tasks are bounded.
6. With --json, standard output is the JSON, whatever an environment prints.
"""

import json
import re
import shlex
import socket
import sys
import time

import pytest

from agent_envs.cli.main import COMMANDS, command_parser, main
from agent_envs.episodes.record import Episode, StopReason, write_episodes

ENV = ["--env", "AgentR1/GSM8KTool-v0", "--quiet"]


@pytest.mark.parametrize("name", COMMANDS)
def test_the_examples_of_a_commands_help_are_commands(name):
    help_ends_with = (command_parser(name).epilog or "").replace("\\\n", " ")
    lines = [line.strip() for line in help_ends_with.splitlines() if "agentr1 " in line]
    shown = [part for line in lines for part in line.partition(" #")[0].split(";") if "agentr1 " in part]
    commands = [shlex.split(part.partition("agentr1 ")[2]) for part in shown if "|" not in part and "..." not in part]
    assert any(command[0] == name for command in commands)
    for command in commands:
        if command[0] in COMMANDS:  # not a sentence about commands
            command_parser(command[0]).parse_intermixed_args(command[1:])


def test_help_is_printed_and_is_no_mistake(capsys):
    with pytest.raises(SystemExit) as end:
        main(["list", "--help"])
    assert end.value.code == 0 and "\n  agentr1 list --json" in capsys.readouterr().out


def test_what_an_environment_prints_is_kept_out_of_the_json(tmp_path, monkeypatch, capsys):
    (tmp_path / "talkative.py").write_text(
        "from agent_envs.wrappers import InvalidActionPenalty\n\n\n"
        "class Talkative(InvalidActionPenalty):\n"
        "    def step(self, action):\n"
        "        print('a step')\n"
        "        return super().step(action)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    command = ["eval", *ENV, "--wrapper", "talkative:Talkative", "--policy", "expert", "--n", "1", "--json"]
    assert main(command) == 0
    told = capsys.readouterr()
    assert json.loads(told.out)["episodes"] == 1 and "a step" in told.err


def test_an_unknown_command_is_answered_by_the_one_that_was_meant(agentr1):
    assert "unknown command 'evl'; did you mean eval?" in agentr1("evl", "--n", 3, status=2)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [("--base-uri=x", "--base-url"), ("--n=x", "--n"), ("--env", "--env"), ("--tool-mode=x", "native")],
)
def test_a_mistaken_option_is_answered_in_a_line(wrong, named, agentr1):
    said = agentr1("eval", *ENV, wrong, status=2)
    assert said.startswith("agentr1: ") and said.count("\n") == 1 and named in said and "agentr1 eval --help" in said


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "no-such-host.invalid"])
def test_an_evaluation_knows_at_once_that_no_server_answers(host, tmp_path, monkeypatch, agentr1):
    pytest.importorskip("openai")
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    with socket.socket() as taken:  # bound, and nobody listens
        taken.bind(("127.0.0.1", 0))
        url = f"http://{host}:{taken.getsockname()[1]}/v1"
        began = time.monotonic()
        said = agentr1("eval", *ENV, "--model", "mine", "--base-url", url, "--out", tmp_path / "run", status=1)
    assert said.count("\n") == 1 and url in said and "--base-url" in said
    assert time.monotonic() - began < 10 and not list(tmp_path.iterdir())


def test_a_file_that_cannot_be_written(tmp_path, agentr1):
    pytest.importorskip("matplotlib")
    (tmp_path / "file").write_text("")
    episode = Episode("E-v0", "e", "g", None, 0, "", (), {}, (), "", StopReason.TERMINATED)
    write_episodes(tmp_path / "episodes.jsonl", [episode])
    stored = tmp_path / "episodes.jsonl"
    for command, name in (
        (["view", stored], "page.html"),
        (["score", stored, "--quiet"], "page.jsonl"),
        (["plot", stored], "page.png"),
        (["demos", *ENV, "--n", 1], "page.jsonl"),
    ):
        said = agentr1(*command, "--out", tmp_path / "file" / name, status=2)
        assert said.startswith("agentr1: ") and said.count("\n") == 1
        assert str(tmp_path) in said and ".partial" not in said
    assert not list(tmp_path.rglob("*.partial"))


@pytest.mark.parametrize("command", ["demos", "eval", "play"])
def test_an_environment_that_is_none_of_text(command, tmp_path, agentr1):
    options = {"demos": ["--out", tmp_path / "a.jsonl"], "eval": ["--policy", "random"]}.get(command, [])
    said = agentr1(command, "--env", "CartPole-v1", *options, status=2)
    assert "CartPole-v1 is not a text environment" in said and "The wrapper TextGame turns" in said
    if command == "demos":
        said = agentr1(command, "--env", "Blackjack-v1", "--wrapper", "TextGame", *options, status=2)
        assert "BlackjackEnv has no expert" in said
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(sys.platform == "win32", reason="Windows keeps the current folder")
@pytest.mark.parametrize(
    "command",
    [
        ["eval", "--env", "mine:Mine-v0", "--policy", "expert"],
        ["eval", "--env", "AgentR1/GSM8K-v0", "--policy", "expert", "--data", "mine.jsonl"],
        ["compare", "one", "two"],
        ["index", "texts.jsonl", "--out", "index"],
    ],
)
def test_a_current_folder_that_was_deleted(command, tmp_path, monkeypatch, agentr1):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert agentr1(*command, status=2) == "agentr1: the current folder was deleted; change to another one\n"


@pytest.mark.parametrize(
    "command",
    [
        ["eval", "--policy", "expert", "--out", ""],
        ["eval", "--policy", "expert", "--run", ""],
        ["eval", "--policy", "expert", "--run", "~nobody-of-this-name/run"],
        ["play", "--run="],
        ["generate", "alfworld", "--out", ""],
        ["prepare", "gsm8k", "--out", ""],
    ],
)
def test_a_path_that_is_none_is_not_the_current_folder(command, tmp_path, monkeypatch, agentr1):
    monkeypatch.chdir(tmp_path)
    said = agentr1(*command, *(ENV if command[0] == "eval" else []), status=2)
    assert said.count("\n") == 1 and ("is empty; give a path" in said or "is not a usable path" in said)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("indices", ["5-3", "0-99999999999", "0-9999999999999999999", "x", "1,", "-1", "1-2-3"])
def test_indices_that_name_no_tasks(indices, agentr1):
    assert "--indices " in agentr1("eval", *ENV, "--policy", "expert", f"--indices={indices}", status=2)


@pytest.mark.parametrize("task", ["gsm8k", "hotpotqa", "2wiki", "musique", "papersearch"])
def test_prepare_says_where_data_comes_from_before_it_needs_a_package(task, monkeypatch, agentr1, tmp_path):
    for package in ("pyarrow", "datasets"):
        monkeypatch.setitem(sys.modules, package, None)
    first, last = agentr1("prepare", task, "--out", tmp_path / "out", status=2).splitlines()
    assert re.match(rf"{task} comes from https://\S+; if you have the files: agentr1 prepare {task} --from PATH", first)
    assert "is not installed" in last
    assert "comes from" not in agentr1("prepare", task, "--from", tmp_path / "nothing", status=2)
