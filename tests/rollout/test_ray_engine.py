"""Episodes on the workers of a Ray cluster.

Behaviours pinned here:
1. Episodes and evaluations are the same as with one process, whatever the workers' number.
2. A stopped evaluation is resumed on a cluster; policies are made once on each worker.
3. What a killed worker was playing is played again, nothing twice, whenever it is killed; what kills every worker is an
   error that names the episode.
4. Errors of environments and policies are those of one process; a cluster that is not there is a BackendError.
5. An error in what takes the episodes ends the workers.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import agent_envs
from agent_envs.cli.main import main
from agent_envs.envs.gsm8k.env import GSM8KToolEnv
from agent_envs.episodes.record import Episode
from agent_envs.errors import BackendError, ConfigError
from agent_envs.policies import ExpertPolicy
from agent_envs.policies.model import MadePolicy
from agent_envs.rollout.episode_run import EpisodeTask
from agent_envs.rollout.evaluate import evaluate
from agent_envs.rollout.ray_engine import RayEngine

pytestmark = pytest.mark.ray

ENV = "AgentR1/GSM8KTool-v0"


@pytest.fixture(scope="module")
def cluster():
    ray = pytest.importorskip("ray")
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import it
    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield
    ray.shutdown()


def _told(episode: Episode) -> dict[str, Any]:
    return {key: value for key, value in episode.to_dict().items() if key != "episode_id"}


class _Deadly(GSM8KToolEnv):
    """Kills its process at the first step of a task, and the next process at the second of another, and so on."""

    def __init__(self, folder: Path, always: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._folder, self._always = folder, always

    def act(self, action: str) -> Any:
        if self._index % 10 == 3:
            try:
                (self._folder / str(self._index)).touch(exist_ok=self._always)
                os.kill(os.getpid(), signal.SIGKILL)
            except FileExistsError:
                pass
        return super().act(action)


class _Dying(GSM8KToolEnv):
    """Writes the number of its process down, which is killed a while after the first episode that reaches its end."""

    def __init__(self, folder: Path, seconds: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._folder, self._seconds = folder, seconds
        (folder / str(os.getpid())).touch()

    def act(self, action: str) -> Any:
        outcome = super().act(action)
        if outcome.terminated:
            try:
                (self._folder / "killed").touch(exist_ok=False)
                threading.Timer(self._seconds, os.kill, (os.getpid(), signal.SIGKILL)).start()
            except FileExistsError:
                pass
        return outcome


class _Unreadable(ExpertPolicy):
    def __setstate__(self, state: dict[str, Any]) -> None:
        raise NotADirectoryError("this policy cannot be read")


def _play(make: Callable[[], Any], take: Callable[[int, Episode, float], None], count: int, policy: Any = None) -> None:
    tasks = (EpisodeTask(policy or ExpertPolicy(), seed, {"index": seed}) for seed in range(count))
    RayEngine(workers=1).play_tasks(make, tasks, take, concurrency=4)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 3])
def test_episodes_are_those_of_one_process(cluster, workers):
    how: dict[str, Any] = {"wrappers": ["FormatReward"], "env_kwargs": {"level": 2}, "progress": False}
    here = agent_envs.run_episodes(ENV, ExpertPolicy(noise=0.5), 40, **how)
    there = agent_envs.run_episodes(ENV, ExpertPolicy(noise=0.5), 40, engine=RayEngine(workers=workers), **how)
    assert list(map(_told, there)) == list(map(_told, here))


@pytest.mark.slow
def test_an_evaluation_resumes_on_a_cluster(cluster, tmp_path):
    def policies() -> list[ExpertPolicy]:
        with (tmp_path / "made").open("a") as file:
            file.write(f"{os.getpid()}\n")
        return [ExpertPolicy(noise=0.5, seed=sample) for sample in range(2)]

    made = MadePolicy(policies, 0)
    there = [made, made.with_number(1)]
    evaluate(ENV, there, 10, samples=2, out=tmp_path / "run", engine="ray")
    resumed = evaluate(ENV, there, 25, samples=2, out=tmp_path / "run", engine="ray")
    here = evaluate(ENV, policies(), 25, samples=2, out=tmp_path / "here")
    kept = [(s.index, s.success, s.reward) for s in resumed.scores]
    assert kept == [(s.index, s.success, s.reward) for s in here.scores]
    names = [json.loads(line)["episode_id"] for line in (tmp_path / "run" / "episodes.jsonl").read_text().splitlines()]
    assert len(names) == len(set(names)) == 50
    pids = (tmp_path / "made").read_text().split()
    assert len(pids) == len(set(pids))


@pytest.mark.slow
def test_what_a_killed_worker_played_is_played_again(cluster, tmp_path):
    options = [{"index": i} for i in range(60)]
    how: dict[str, Any] = {"options": options, "progress": False, "concurrency": 8}
    there = agent_envs.run_episodes(partial(_Deadly, tmp_path), ExpertPolicy(), 60, engine=RayEngine(workers=2), **how)
    assert [episode.index for episode in there] == list(range(60))
    assert all(episode.success for episode in there)
    assert len(list(tmp_path.iterdir())) == 6
    with pytest.raises(BackendError, match=r"episode \d+ lost its worker 4 times"):
        agent_envs.run_episodes(
            partial(_Deadly, tmp_path, always=True), ExpertPolicy(), 60, engine=RayEngine(workers=2), **how
        )


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.0, 1.0])
def test_a_worker_may_be_killed_after_it_answered(cluster, tmp_path, seconds):
    """It is there again before the driver asks it for more."""
    taken: list[int] = []

    def take(number: int, episode: Episode, seconds: float) -> None:
        if not taken:
            time.sleep(4.0)
        assert episode.success
        taken.append(number)

    _play(partial(_Dying, tmp_path, seconds), take, 30)
    assert sorted(taken) == list(range(30))
    assert (tmp_path / "killed").exists()


@pytest.mark.slow
@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_an_error_in_the_driver_leaves_no_worker(cluster, tmp_path, error):
    def take(number: int, episode: Episode, seconds: float) -> None:
        raise error

    with pytest.raises(error):
        _play(partial(_Dying, tmp_path, 3600.0), take, 30)
    (pid,) = (int(file.name) for file in tmp_path.iterdir() if file.name != "killed")
    end = time.monotonic() + 20
    while Path(f"/proc/{pid}").exists() and time.monotonic() < end:
        time.sleep(0.1)
    assert not Path(f"/proc/{pid}").exists()


@pytest.mark.slow
def test_errors_are_those_of_one_process(cluster):
    with pytest.raises(ConfigError, match="does not take 'levle'"):
        agent_envs.run_episodes(ENV, ExpertPolicy(), 2, env_kwargs={"levle": 1}, engine="ray", progress=False)
    with pytest.raises(ConfigError, match="connected to Ray at .* already, not at 127.0.0.1:1"):
        agent_envs.run_episodes(ENV, ExpertPolicy(), 2, engine=RayEngine("127.0.0.1:1"), progress=False)
    with pytest.raises(BackendError, match="a worker cannot be used: .*: this policy cannot be read"):
        _play(GSM8KToolEnv, lambda *_: None, 4, _Unreadable())


@pytest.mark.slow
def test_the_command_plays_the_same_on_a_cluster(cluster, tmp_path, capsys):
    command = ["eval", "--env", ENV, "--policy", "expert", "--demo-noise", "0.5", "--n", "20", "--quiet", "--json"]
    measures = ("panel", "episodes", "success", "reward", "stop_reasons", "steps")
    told = []
    for more in ([], ["--ray", "--workers", "2"]):
        assert main([*command, *more]) == 0
        result = json.loads(capsys.readouterr().out)
        told.append([result[name] for name in measures])
    assert told[0] == told[1]


@pytest.mark.slow
def test_the_page_on_scaling_runs(cluster, root, capsys):
    (block,) = re.findall(
        r"^```python\n(.*?)^```", (root / "docs" / "scaling.md").read_text(), re.DOTALL | re.MULTILINE
    )
    exec(compile(block, "scaling.md", "exec"), {"__name__": "page"})
    assert capsys.readouterr().out == "20\n"


@pytest.mark.slow
def test_a_cluster_that_is_not_there_is_an_error():
    """In a process of its own, which is connected to none."""
    code = (
        "import agent_envs; from agent_envs.policies import ExpertPolicy; "
        "from agent_envs.rollout.ray_engine import RayEngine; "
        f"agent_envs.run_episodes({ENV!r}, ExpertPolicy(), 2, engine=RayEngine('127.0.0.1:9'), progress=False)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert "BackendError: Ray at 127.0.0.1:9 cannot be reached" in done.stderr


def test_options_of_workers_need_a_cluster(capsys):
    assert main(["eval", "--env", ENV, "--policy", "expert", "--workers", "4"]) != 0
    assert "--workers is for the workers of --ray" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="engine must be"):
        agent_envs.run_episodes(ENV, ExpertPolicy(), 1, engine="spark", progress=False)  # type: ignore[arg-type]
