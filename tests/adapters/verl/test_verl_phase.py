"""A run says what it is doing, and is stopped when that stands still; without verl, which stands in as a process.

1. phases, steps and progress travel through the file; a phase that moves on is never still
2. an actor that died is noticed at once
3. a process that hangs in a phase is ended, with its last error; the next start does not read its file
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import Any

import pytest
from omegaconf import OmegaConf

from agent_envs.adapters.verl.run import process
from agent_envs.adapters.verl.run.folder import STALL_SECONDS, PhaseFile, PhaseWatch, RunFolder
from agent_envs.errors import BackendError


def test_a_phase_is_still_when_nothing_of_it_moves(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    path = tmp_path / "phase.json"
    watch, writes = PhaseWatch(path, 10.0, lambda: now[0]), PhaseFile(path)
    now[0] = 9.0
    assert watch.look() is None and (watch.phase, watch.step) == ("starting", 0)
    now[0] = STALL_SECONDS
    assert watch.look() is None  # a large model takes its time
    now[0] += 1.0
    assert watch.look() == f"verl has been starting for {STALL_SECONDS + 1:.0f} s without any progress"
    writes.enter("generating", 4)
    assert watch.look() is None and (watch.phase, watch.step) == ("generating", 4)
    for done in range(3):  # slower than the limit in all, but it moves
        now[0] += 8.0
        writes.progress(done + 1)
        assert watch.look() is None
    now[0] += 8.0
    writes.progress(3)  # polled, and nothing new
    assert watch.look() is None
    now[0] += 3.0
    assert watch.look() == "verl has been generating (step 4) for 11 s without any progress"
    writes.enter("updating", 4)
    assert watch.look() is None
    writes.progress()
    text = path.read_text()
    writes.progress()
    assert path.read_text() != text and watch.look() is None
    now[0] += 1e6
    assert watch.look() is not None and PhaseWatch(path, None, lambda: 1e9).look() is None
    PhaseFile(None).enter("syncing", 1)  # without a file nothing is written


def test_a_process_that_hangs_is_ended_with_its_last_error(tmp_path, monkeypatch, capsys):
    folder = RunFolder(tmp_path / "run")
    (folder.out / "starts").mkdir(parents=True)
    folder.phase.write_text("what an earlier start left")
    code = (
        "import sys, time\n"
        "from agent_envs.adapters.verl.run.folder import PhaseFile\n"
        f"PhaseFile({str(folder.phase)!r}).enter('syncing', 7)\n"
        "print('(WorkerDict pid=5) RuntimeError: the worker is gone', flush=True)\n"
        "time.sleep(600)\n"
    )
    started: list[subprocess.Popen[bytes]] = []
    real = subprocess.Popen

    def hang(command: list[str], **how: Any) -> subprocess.Popen[bytes]:
        started.append(real([sys.executable, "-c", code], **how))
        return started[-1]

    monkeypatch.setattr(process.subprocess, "Popen", hang)
    config = OmegaConf.create(
        {"trainer": {"total_training_steps": 9, "device": "cpu"}, "agentr1": {"stall_timeout": 2.0}}
    )
    with pytest.raises(BackendError) as raised:
        process.run_verl(config, folder, folder.starts / "000-from-0.jsonl", 0)
    assert "verl has been syncing (step 7) for" in str(raised.value)
    assert "the last error: RuntimeError: the worker is gone" in str(raised.value)
    assert started[0].poll() is not None and not folder.phase.exists()
    assert "syncing" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.ray
def test_a_dead_actor_is_noticed_and_a_busy_one_is_not():
    ray = pytest.importorskip("ray")
    pytest.importorskip("verl.trainer.ppo.v1")  # with it come the trainer of this package and the phases
    from agent_envs.adapters.verl.batch.phases import Liveness

    class Worker:
        def work(self, seconds: float) -> None:
            time.sleep(seconds)

        def die(self) -> None:
            os.kill(os.getpid(), signal.SIGKILL)

    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    try:
        actors = {name: ray.remote(num_cpus=0)(Worker).remote() for name in ("worker 0", "worker 1")}
        ray.get([actor.__ray_ready__.remote() for actor in actors.values()])
        actors["worker 0"].work.remote(60)
        liveness, begin = Liveness(actors), time.monotonic()
        for _ in range(20):
            liveness.check()
        assert time.monotonic() - begin < 2  # nobody waits for the busy one
        actors["worker 1"].die.remote()
        with pytest.raises(BackendError, match=r"worker 1 died, and with it what it was doing: The actor "):
            while time.monotonic() - begin < 60:
                liveness.check()
                time.sleep(0.1)
    finally:
        ray.shutdown()
