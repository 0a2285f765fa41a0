"""Levels, and what a run says when nothing is left to learn.

1. "learnable" finds the level of which success is near one half, also when it moves; "fixed" and "uniform" take all
2. what is drawn follows from the seed, the iteration and the metrics before it, so that a stopped run goes on exactly
3. groups without a signal are replaced by others, never by more than there are, and a stopped run goes on exactly
4. a policy without entropy or that does not heed its prompt, and groups without a signal, are noticed, once, with
   what would help; the mutual information is that of all pairs of prompt and response, in every layout
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from comparisons import assert_same_records
from small_runs import small_run, whole_and_in_parts

from agent_envs.adapters.curriculum import Curriculum
from agent_envs.adapters.run import CollapseWatch
from agent_envs.adapters.torch import playing
from agent_envs.adapters.torch.loop import train
from agent_envs.adapters.torch.settings import LoopConfig, read_command_line
from agent_envs.errors import ConfigError
from agent_envs.problem_env import Problem, ProblemEnv
from agent_envs.tasks import IndexedTasks
from agent_envs.wrapping.recorded import recorded_env

pytestmark = pytest.mark.filterwarnings("ignore")
LEVELS = {"level": [1, 2, 4, 8]}


def simulated(curriculum, steps, success_at):
    """Levels drawn in each iteration, where a level is solved as often as `success_at(iteration, level)` says."""
    records, drawn = [{"step": 0}], []
    for number in range(1, steps + 1):
        levels = curriculum.draw(16, seed=3, number=number, steps=steps, records=records)
        assert levels == sorted(levels) == curriculum.draw(16, seed=3, number=number, steps=steps, records=records)
        record = {"step": number}
        for i, count in Counter(levels).items():
            record[f"env/{curriculum.names[i]}/episodes"] = 8 * count
            record[f"env/{curriculum.names[i]}/success"] = success_at(number, i)
        records.append(record)
        drawn.append(Counter(levels))
    return drawn


def test_the_learnable_level_is_found_and_followed():
    now = [0.99, 0.55, 0.02, 0.0]
    later = [1.0, 0.98, 0.45, 0.01]
    drawn = simulated(Curriculum(LEVELS, "learnable"), 60, lambda n, i: (now if n <= 30 else later)[i])
    share = lambda part, level: sum(d[level] for d in part) / (16 * len(part))  # noqa: E731
    assert share(drawn[10:30], 1) > 0.8 and share(drawn[45:], 2) > 0.8
    assert len(drawn[0]) > 2  # at first nothing is known


def test_uniform_and_fixed_take_all_levels():
    drawn = simulated(Curriculum(LEVELS), 50, lambda n, i: 0.0)
    total = sum(drawn, Counter())
    assert set(total) == {0, 1, 2, 3} and max(total.values()) < 1.5 * min(total.values())
    drawn = simulated(Curriculum(LEVELS, "fixed"), 8, lambda n, i: 0.0)
    assert [[*d] for d in drawn] == [[0], [0], [1], [1], [2], [2], [3], [3]]


@pytest.mark.parametrize(
    "levels", [{}, {"level": [1]}, {"level": 1}, {"level": [1, 1]}, {"level": [1, 2], "size": [1, 2]}]
)
def test_levels_of_another_form_are_refused(levels):
    with pytest.raises(ConfigError, match="levels are several different values of one argument"):
        Curriculum(levels)


def test_levels_of_the_command_line():
    given = ["--levels", '{"level": [1, 2]}', "--curriculum", "learnable"]
    config = read_command_line(["--env", "AgentR1/GSM8KTool-v0", "--out", "x", *given])
    assert config.levels == {"level": [1, 2]} and config.curriculum == "learnable"


def run(out, model_path, **more):
    how = {"env_kwargs": {"max_episode_steps": 2}, "levels": {"size": [1, 2]}, "curriculum": "learnable", "steps": 3}
    return small_run(out, model_path, **{**how, "tasks": 4, "max_response_tokens": 4, **more})


def test_a_stopped_run_draws_the_levels_it_would_have_drawn(model_path, tmp_path, caplog, capsys):
    whole, parts = whole_and_in_parts(run(tmp_path, model_path))  # of a model that solves nothing, as each says
    assert caplog.text.count("the tasks are too hard") == 2
    assert capsys.readouterr().err.count("step 3: collapse: 4 of 4 groups without a signal") == 2
    counts = [{k: v for k, v in r.items() if k.startswith("env/size/")} for r in whole]
    assert counts == [{k: v for k, v in r.items() if k.startswith("env/size/")} for r in parts]
    assert all(sum(v for k, v in each.items() if k.endswith("/episodes")) == 8 for each in counts[1:])
    assert all(r["env/groups_without_signal"] <= 4 for r in whole[1:])
    with pytest.raises(ConfigError, match="does not take 'seize'"):
        train(LoopConfig(env="AgentR1/ALFWorld-v0", out=str(tmp_path / "x"), levels={"seize": [1, 2]}))


class Letters(IndexedTasks):
    def __len__(self):
        return 1000

    def get(self, index):
        return Problem(f"letters/{index}", f"letters {index}", str(index))


class LettersEnv(ProblemEnv):
    """Every second task is paid for an even sum of letters; the others pay nothing."""

    instructions = "Write."

    def open_tasks(self):
        return Letters("generated", self.split)

    def check(self, task, text):
        return int(task.answer) % 2 == 0 and sum(map(ord, text)) % 2 == 0


gym.register("Letters-v0", entry_point=LettersEnv)


def refilled(out, model_path, **more):
    how = {"env": "Letters-v0", "env_kwargs": {}, "steps": 2, "tasks": 8, "refill": 3, "max_response_tokens": 4}
    return small_run(out, model_path, **{**how, **more})


def test_groups_without_a_signal_are_replaced_by_those_with_one(monkeypatch):
    def group(name, *rewards):
        broken = SimpleNamespace(reward=9.0, stop_reason=SimpleNamespace(broken=True))
        known = [SimpleNamespace(reward=r, stop_reason=SimpleNamespace(broken=False)) for r in rewards]
        return playing.Group(name, [*known, broken])

    rounds = [
        [group("a", 0, 0), group("b", 0, 1), group("c", 1, 1), group("d", 1)],
        [group("e", 1, 1), group("f", 1, 0), group("g", 0, 0)],
        [group("h", 1, 0), group("i", 0, 1)],
    ]
    asked = []

    def play(run, number, refill=0, count=None):
        asked.append((refill, count))
        return [*rounds[refill]]

    monkeypatch.setattr(playing, "_round", play)
    for refill, trained, unused in ((0, "abcd", ""), (1, "fbcd", "aeg"), (2, "fbhi", "acdeg"), (9, "fbhi", "acdeg")):
        asked.clear()
        groups, others = playing.play_iteration(SimpleNamespace(config=SimpleNamespace(refill=refill)), 1)
        assert "".join(g.of for g in groups) == trained and "".join(sorted(g.of for g in others)) == unused
        assert asked == [(0, None), (1, 3), (2, 2)][: refill + 1]


def test_a_stopped_run_refills_as_it_would_have(model_path, tmp_path):
    whole, parts = whole_and_in_parts(refilled(tmp_path, model_path))
    assert_same_records(parts, whole)
    assert all(-1 < record["actor/mutual_information"] <= np.log(2) for record in whole[1:])
    assert sum(record["env/groups_refilled"] for record in whole[1:]) > 2
    for record in whole[1:]:
        assert record["env/groups_compared"] == 8 >= record["env/groups_without_signal"]
        assert record["env/episodes"] == 16 + record["env/unused_episodes"]
        assert record["env/unused_episodes"] >= 2 * record["env/groups_refilled"]
    plain = train(refilled(tmp_path / "plain", model_path, refill=0, steps=1))[1]
    assert plain["env/groups_without_signal"] == whole[1]["env/groups_without_signal"] + whole[1]["env/groups_refilled"]


def test_several_environments_are_played_by_their_weights_and_told_apart(model_path, tmp_path):
    words = ["--env", "AgentR1/ALFWorld-v0=3", "--env", "AgentR1/GSM8KTool-v0=1", "--out", "x", "--env-kwargs"]
    given = read_command_line([*words, '{"AgentR1/ALFWorld-v0": {"max_episode_steps": 2}}'])
    assert [(weight, str(one.env), one.env_kwargs) for weight, one in given.environments] == [
        (0.75, "AgentR1/ALFWorld-v0", {"max_episode_steps": 2}), (0.25, "AgentR1/GSM8KTool-v0", {}),
    ]  # fmt: skip

    how = {"env": given.env, "env_kwargs": given.env_kwargs, "tasks": 8, "eval_tasks": 3, "max_response_tokens": 4}
    config = small_run(tmp_path, model_path, **how, steps=2)
    whole, parts = whole_and_in_parts(config)
    names = [f"env/{one.env.rpartition('/')[2]}/episodes" for _, one in given.environments]
    played = np.array([[record.get(name, 0) for name in names] for record in whole[1:]])
    assert (played.sum(axis=1) == 16).all() and played[:, 0].sum() > played[:, 1].sum() > 0
    assert (played == [[record.get(name, 0) for name in names] for record in parts[1:]]).all()
    assert whole[-1]["val/episodes"] == 6 and whole[-1]["val/GSM8KTool-v0/episodes"] == 3
    env_id, env_kwargs, _ = recorded_env(json.loads((tmp_path / "parts" / "run.json").read_text()), "run.json")
    assert env_id == "AgentR1/ALFWorld-v0"
    assert env_kwargs == {"data": "generated", "split": "train", "max_episode_steps": 2}
    with pytest.raises(ConfigError, match="holds a run with other settings .mixed was"):
        even = ("AgentR1/ALFWorld-v0=1", "AgentR1/GSM8KTool-v0=1")
        train(dataclasses.replace(config, out=str(tmp_path / "parts"), env=even))


def test_collapse_is_noticed_once_with_what_would_help():
    def said(*records):
        watch = CollapseWatch()
        return [(number, *line) for number, record in enumerate(records) for line in watch.update(record)]

    groups = {"env/groups_compared": 10.0, "env/groups_without_signal": 9.0, "env/success": 0.01}
    ((number, line, reason),) = said(*[groups] * 6)
    assert (number, line) == (2, "collapse: 9 of 10 groups without a signal") and "too hard: a teacher" in reason
    of_roles = {"env/groups_compared/role_0": 4.0, "env/groups_without_signal/role_0": 4.0,
                "env/groups_compared/role_1": 6.0, "env/groups_without_signal/role_1": 5.0}  # fmt: skip
    ((_, _, reason),) = said(*[{**of_roles, "env/success": 1.0}] * 3)
    assert "too easy" in reason
    entropies = [*np.linspace(1.0, 0.2, 9), 0.05, 0.05, 0.05]
    ((_, line, _),) = said(*({**groups, "env/groups_without_signal": 2.0, "actor/entropy": x} for x in entropies))
    assert line == "collapse: entropy 0.05, 0.9 at first"
    heeded, never_heeded = [1.5, 1.4, 1.6, 1.0, 0.1, 0.1, -0.1, 0.0], [0.05, 0.0, 0.01, -0.02, 0, 0, 0]
    ((_, line, reason),) = said(*({"actor/mutual_information": x} for x in heeded))
    assert line == "collapse: mutual information 0.0333, 1.5 at first"
    assert "from 1.5 to 0.0333 nats: it answers whatever it is asked alike" in reason
    assert not said(*({"actor/mutual_information": x} for x in never_heeded))
