"""`agentr1 play`: lines in, what a person sees out.

1. Numbers choose actions, arguments are asked for, everything else is the action; the record says what was played.
2. /undo is exact, by snapshots or by playing again; /expert wins every task that has an expert.
3. A stored episode is played again to any of its steps, and goes on from there.
4. At a real terminal: keys are echoed, Ctrl-C leaves, and what an environment says does nothing to the terminal.
"""

import fcntl
import inspect
import io
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from functools import partial

import gymnasium as gym
import pytest

import agent_envs
from agent_envs.cli.main import main
from agent_envs.cli.play_game import Argument, choices
from agent_envs.episodes.record import StopReason, read_episodes
from agent_envs.errors import BackendError
from agent_envs.registration import PICTURE_IDS

TOOL = "AgentR1/GSM8KTool-v0"


@pytest.fixture
def play(monkeypatch, agentr1):
    def run(*lines, env=TOOL, status=0, options=("--seed", 0)):
        monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
        return agentr1("play", "--env", env, *options, status=status)

    return run


def test_a_tools_arguments_are_asked_for_or_given_at_once(play, tmp_path):
    path = tmp_path / "deep" / "mine.jsonl"
    options = ("--index", "3", "--split", "test", "--save", str(path), "--seed", "0")
    said = play("1 12*7", "1", "2 + 2", "1.5", options=options)
    assert "\n84\n" in said and "\n4\n" in said and "split test, index 3" in said
    assert "1 calculator(expression)" in said and "  expression (Numbers" in said and "Evaluate an arithmetic" in said
    assert said.endswith(f"1 episode played, 0 solved; in {path}\n")
    (episode,) = read_episodes(path)
    assert [s.action[:11] for s in episode.steps] == ["<tool_call>", "<tool_call>", "1.5"]
    assert (episode.index, episode.seed, episode.stop_reason) == (3, 0, StopReason.TERMINATED)


@pytest.mark.parametrize(
    "env_id", [TOOL, "AgentR1/ALFWorld-v0", "AgentR1/WebShop-v0", "AgentR1/GSM8K-v0", *PICTURE_IDS]
)
def test_the_expert_is_played_to_the_end(env_id, play, tmp_path):
    options = ("--seed", "1", "--save", str(tmp_path / "e.jsonl"))
    said = play(*["/expert play"] * 60, "/quit", env=env_id, options=options)
    assert "The episode is over after" in said and ": solved. Return" in said and "1 episode played, 1 solved" in said
    (episode,) = read_episodes(tmp_path / "e.jsonl")
    assert episode.success and episode.reset_info["task_id"] == episode.group_id


def test_undo_is_exact_over_the_end_of_an_episode(play, tmp_path):
    path = tmp_path / "e.jsonl"
    options = ("--seed", "0", "--save", str(path), "--wrapper", "StepPenalty(penalty=0.25)")
    lines = ("1 1+1", "#### 5", "/undo", "1 2+2", "/undo 9", "1 3+3", "/undo 0", "/undo x", "/undo", "/undo", "#### 6")
    said = play(*lines, options=options)
    assert said.count("--- task") == 3 and "There is nothing to take back." in said
    assert said.count("/undo takes the number of actions") == 2
    (episode,) = read_episodes(path)
    assert [step.action for step in episode.steps] == ["#### 6"] and episode.reward == -0.25


def test_of_a_whole_prompt_what_is_new_is_shown(play):
    options = ("--seed", "0", "--wrapper", "ChatMessages")
    said = play("1 1+1", "1 2+2", "/undo", "/more", options=options)
    first, (two, four, undone, more) = said.split("[system]")[1], re.split(r"\n\d> ", said)[1:5]
    assert "after ####" in first and said.count("[system]") == 2 and "[system]" in more
    assert "[3 messages before: /more]\n\n[tool]\n2\n" in two and "[5 messages before: /more]\n\n[tool]\n4\n" in four
    assert "[tool]\n2\n" in undone and "1+1" not in two.partition("\n")[2]


def test_ctrl_c_at_an_argument_takes_the_choice_back(monkeypatch, agentr1):
    lines = iter(["1\n", KeyboardInterrupt, "#### 5\n"])

    class Keys(io.StringIO):
        def readline(self, *_):
            if (line := next(lines, "")) is KeyboardInterrupt:
                raise line
            return line

    monkeypatch.setattr(sys, "stdin", Keys())
    said = agentr1("play", "--env", TOOL, "--seed", 0)
    assert "expression (" in said and "Nothing was done.\n1> #### 5" in said and "over after 1 step" in said


def test_tools_that_are_told_in_words_are_called_by_number_too(play):
    said = play("1 6*7", options=("--seed", "0", "--wrapper", "ChatMessages(tools='text')"))
    assert "1 calculator(expression)" in said and "[user]\n42\n" in said


def test_numbers_of_any_length_are_words_where_they_are_no_number(play):
    long = "1" * 5000
    said = play(f"/undo {long}", f"/task {long}", "/undo -1", f"1 {long}", long)
    assert said.count("There is nothing to take back.") == 2 and said.count("/task takes the number") == 1
    assert "over" not in said and "The list goes from 1 to 1; /say 111" in said


@pytest.mark.parametrize("env_id", [TOOL, "AgentR1/ALFWorld-v0", "AgentR1/WebShop-v0"])
def test_what_is_no_choice_is_asked_again_and_costs_no_step(env_id, play):
    said = play(
        "0", "99", "-1", "99 12*7", "?", "hint", " Hint ", "undo", "exit", "/history", "/say 99", "/undo", env=env_id
    )
    assert said.count("The list goes from 1 to ") == 4 and "/say 99 12*7 takes this as your action." in said
    assert said.count("/help: list these commands") == 1 and said.count("/expert: show the expert's next action") == 2
    assert "/undo: take back" in said and "/quit: leave" in said and "There are no actions yet." in said
    assert [int(n) for n in re.findall(r"^(\d+)> /", said, re.MULTILINE)][:2] == [1, 1]


def test_words_that_an_environment_offers_are_actions(play):
    assert "  1    0.000  help" in play("help", "/history", env="AgentR1/ALFWorld-v0")
    assert "The answer was read as 99." in play("99", env="AgentR1/GSM8K-v0")  # which has no list


def test_undo_plays_again_where_there_are_no_snapshots(play):
    options = ("--seed", "0", "--env-kwargs", '{"render_mode": "ansi"}', "--wrapper", "TextGame")
    said = play("2", "right", "/undo", "3", env="FrozenLake-v1", options=options)
    boards = re.findall(r"\n\n((?:[\[\]SFHG]+\n)+)", said)
    assert boards[-2] == boards[1] and boards[-1] == boards[2]
    assert "1 left   2 down   3 right  4 up" in said


def test_lines_that_ask_for_something(play):
    asked = ("/help", "/h", "/nope", "/history", "1 1+1", "/history", "/info", "/more", "/instructions", "/actions")
    said = play(*asked, "", "/say 1")
    for text in (
        "  take back the last action; /undo N", "There is no /h. There are: 'actions'", "There is no /nope.",
        "There are no actions yet.", '"task_id": "gsm8k', "<tool_call> {", "The answer was read as 1.",
    ):  # fmt: skip
        assert text in said
    assert said.count("Solve the problem.") == 2
    said = play("/new", "/task 7", "/restart", "/task x", "/task 999999999", "/quit")
    assert said.count("index 7)") == 2 and "tasks 0 to 99999, got index 999999999" in said
    assert said.count("--- task") == 4 and said.count("played") == 0


def test_a_command_that_fails_leaves_the_episode_as_it_was(play):
    said = play("1 1+1", "/task 999999999", "1 2+2", "/history")
    assert "  2    0.000  <tool_call>" in said.split("got index")[1]


def test_after_the_end_nothing_is_played(play):
    said = play("#### 5", "#### 6", "/say x", "/expert", "/undo", "#### 7")
    assert said.count("The answer was read as") == 2 and said.count("The episode is over: /undo") == 2
    assert "There is no expert for this." in said


def test_choices_of_the_environments():
    env = gym.make("AgentR1/WebShop-v0")
    env.reset(seed=0)
    (search,) = choices(env)
    assert search.label == "search[...]" and search.write({"text": "red lamp"}) == "search[red lamp]"
    env.step("search[red lamp]")
    assert choices(env)[0].write({}) == "click[back to search]"
    env = agent_envs.wrappers.AsTool(gym.make("AgentR1/ALFWorld-v0", size=1))
    _, info = env.reset(seed=0)
    offered = choices(env)
    assert offered[0].label == info["admissible_commands"][0] and '"env_step"' in offered[0].write({})
    assert choices(gym.make("AgentR1/GSM8K-v0")) == []
    assert Argument("x", "integer").read(" 3") == 3 and Argument("x", "array").read("[1]") == [1]
    for kind, text in (("integer", "x"), ("integer", "true"), ("integer", "1.5"), ("boolean", "1"), ("object", "[]")):
        with pytest.raises(ValueError):
            Argument("x", kind).read(text)


class Hostile(gym.Wrapper):
    """Says what a terminal would obey, and fails where it is told to."""

    def reset(self, **kwargs):
        _, info = self.env.reset(**kwargs)
        return "\x1b[31mred\x1b]0;title\x07 \u202eback\r\nrest" + "x" * 9000, {**info, "task_id": "\x1b[2J"}

    def step(self, action):
        if action == "boom":
            raise BackendError("the \x1b[5mserver is gone")
        if action == "interrupt":
            raise KeyboardInterrupt
        return self.env.step(action)


def test_what_an_environment_says_does_nothing_to_the_terminal(play):
    options = ("--seed", "0", "--wrapper", f"{__name__}:Hostile")
    said = play("1 1+1", "boom", "interrupt", "/info", "/undo", "/more", "#### \x1b[31m5", "/history", options=options)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u202e]", said)
    assert "\\x1b[31mred" in said and "more characters: /more]" in said
    assert "BackendError: the \\x1b[5mserver is gone\nThe step is taken back." in said
    assert "Stopped; the step is taken back." in said and said.count("The step is taken back.") == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--seed", "-1"), "--seed must be an integer of at least 0, got -1"),
        (("--index", "-5"), "got index -5"),
        (("--save", "."), "--save . is a folder"),
    ],
)
def test_what_cannot_be_played_is_one_message(options, message, play):
    assert message in play(status=2, options=options)


@pytest.fixture
def replay(monkeypatch, capsys):
    def run(path, *options, lines=()):
        capsys.readouterr()
        monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
        assert main(["play", "--replay", str(path), *options]) == 0
        return capsys.readouterr()

    return run


def test_a_stored_episode_is_played_again_to_any_step(play, replay, tmp_path):
    path, again = tmp_path / "e.jsonl", tmp_path / "again.jsonl"
    options = ("--seed", "0", "--save", str(path), "--wrapper", "StepPenalty(penalty=0.25)")
    play("1 1+1", "1 2+2", "#### 5", "/new", "1 3+3", options=options)
    first, second = read_episodes(path)
    wrapped = ("--wrapper", "StepPenalty(penalty=0.25)", "--save", str(again))
    said = replay(path, "--line", "1", "--step", "2", *wrapped, lines=["/history", "#### 5"])
    assert said.err == "agentr1: replayed 2 of 3 actions\n" and "2+2" in said.out and "over after 3 steps" in said.out
    said = replay(path, "--line", "2", *wrapped, lines=["/undo", "/quit"])
    assert said.err == "agentr1: replayed 1 of 1 actions\n" and f"index {second.index})" in said.out
    [replayed] = read_episodes(again)
    assert [step.to_dict() for step in replayed.steps] == [step.to_dict() for step in first.steps]
    said = replay(path, "--line", "1", "--env-kwargs", '{"level": "1-2"}')
    assert " not as recorded" in said.err and "the environment it was played in?" in said.err


def test_what_cannot_be_replayed_is_one_message(play, tmp_path, agentr1):
    path, odd = tmp_path / "e.jsonl", tmp_path / "odd.jsonl"
    play("1 1+1", "/new", "1 2+2", options=("--seed", "0", "--save", str(path)))
    odd.write_text(path.read_text().partition("\n")[0].replace('"index"', '"undex"', 1) + "\n")
    for options, message in [
        (("--replay", path), "has several episodes; choose one with --line N"),
        (("--replay", path, "--line", 7), "has no episode in line 7"),
        (("--replay", path, "--line", 0), "--line must be an integer of at least 1"),
        (("--replay", path, "--line", 1, "--step", 2), "--step must be an integer from 0 to 1, got 2"),
        (("--replay", path, "--line", 1, "--seed", 2), "--seed chooses a task, and --replay takes the episode's"),
        (("--replay", odd), "line 1: not an episode: the episode lacks the field 'index'"),
        (("--env", TOOL, "--line", 1), "give --replay FILE too"),
    ]:
        said = agentr1("play", *options, status=2)
        assert message in said, said


# -- at a terminal ----------------------------------------------------------------------------------------------------


def _own_terminal():
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a background job's shell has it ignored
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


class Terminal:
    """A command at a terminal of its own."""

    def __init__(self, *options, path=sys.path, columns=80):
        self.screen, slave = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "agent_envs", "play", *options],
            stdin=slave, stdout=slave, stderr=slave, start_new_session=True, close_fds=True,
            preexec_fn=_own_terminal,
            env={**os.environ, "TERM": "xterm", "COLUMNS": str(columns), "PYTHONPATH": os.pathsep.join(path)},
        )  # fmt: skip
        os.close(slave)
        self.said = ""

    def until(self, text, start=0):
        deadline = time.monotonic() + 30
        while text not in self.said[start:]:
            assert time.monotonic() < deadline, f"no {text!r} in {self.said[start:]!r}"
            self._read(0.1)
        return self

    def keys(self, text):
        os.write(self.screen, text.encode())
        return self

    def end(self, again=""):
        """The exit status, once it has ended; keys that it may need to notice a signal are pressed every second."""
        deadline, next_key = time.monotonic() + 30, time.monotonic() + 1
        while self.process.poll() is None and time.monotonic() < deadline:
            self._read(0.05)
            if again and time.monotonic() > next_key:
                next_key += 1
                self.keys(again)
        self._read(0.05)
        if self.process.poll() is None:
            self.process.kill()
        os.close(self.screen)
        return self.process.wait()

    def _read(self, seconds):
        waiting = select.poll()  # select() knows the first 1,024 files alone
        waiting.register(self.screen, select.POLLIN)
        if waiting.poll(1000 * seconds):
            try:
                self.said += os.read(self.screen, 65536).decode("utf-8", "replace")
            except OSError:  # the other side is closed
                time.sleep(seconds)


def test_at_a_terminal_keys_are_edited_and_interrupted(tmp_path):
    path = tmp_path / "e.jsonl"
    head = "import gymnasium as gym\nfrom agent_envs.errors import BackendError\n"
    (tmp_path / "hostile.py").write_text(head + inspect.getsource(Hostile))
    options = ("--env", TOOL, "--seed", "0", "--save", str(path), "--wrapper", "hostile:Hostile")
    terminal = Terminal(*options, path=[str(tmp_path), *sys.path])
    terminal.until("1> ").keys("1 12*8\b7\n").until("84").until("2> ")
    terminal.keys("/history\n").until("<tool_call> {").until("2> ", start=terminal.said.index("<tool_call> {"))
    terminal.keys("\x03")
    # one that comes between the prompt and the wait for a key is noticed at the next
    assert terminal.end(again="\x03") == 0
    assert "1 episode played, 0 solved" in terminal.said
    assert "\x1b[31m" not in terminal.said and "\\x1b[31mred" in terminal.said
    (episode,) = read_episodes(path)
    assert episode.stop_reason is StopReason.CUT and len(episode.steps) == 1


def _piped():
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    command = [sys.executable, "-m", "agent_envs", "play", "--env", TOOL, "--seed", "0"]
    interruptible = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    return subprocess.Popen(command, **pipes, text=True, preexec_fn=interruptible)


def test_an_output_that_nobody_reads_is_no_traceback():
    process = _piped()
    process.stdout.readline()
    process.stdout.close()
    process.stdin.write("/new\n" * 100)
    process.stdin.close()
    assert process.stderr.read() == "" and process.wait(30) == 1
    process.stderr.close()


def test_a_killed_pipe_is_no_traceback():
    process = _piped()
    line = process.stdout.readline()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert "AgentR1" in line + out and "Traceback" not in err and process.returncode in (0, 130)
