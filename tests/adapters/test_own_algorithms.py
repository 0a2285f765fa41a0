"""The estimator and the loss that docs/algorithms.md shows, exactly as they stand there.

1. they compute what their docstrings say
2. the PyTorch loop trains with them by name
3. so does `agentr1 train`, through Ray, from a folder that is on no path
"""

import json
import os
import re
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

from agent_envs.adapters.estimators import EstimatorOptions, StepRows, get_estimator  # noqa: E402
from agent_envs.adapters.losses import LossOptions, policy_loss  # noqa: E402

ESTIMATOR, LOSS = "my_algorithms:median", "my_losses:cispo"


@pytest.fixture
def package(root, tmp_path):
    """A folder with the modules of the page."""
    text = (root / "docs" / "algorithms.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(# (\w+\.py)\n.*?)```", text, re.DOTALL)
    assert [name for _, name in blocks] == ["my_algorithms.py", "my_losses.py"]
    for block, name in blocks:
        (tmp_path / name).write_text(block, encoding="utf-8")
        assert len(block.strip().splitlines()) <= 26
    return tmp_path


@pytest.fixture
def importable(package, monkeypatch):
    monkeypatch.syspath_prepend(str(package))
    for name in ("my_algorithms", "my_losses"):
        monkeypatch.delitem(sys.modules, name, raising=False)


@pytest.mark.usefixtures("importable")
def test_they_compute_what_they_say():
    i = torch.tensor([0, 0, 1, 2, 3])
    rows = StepRows(
        rewards=torch.tensor([1.0, 2.0, 1.0, 0.0, 9.0]), trajectory=i, step=torch.tensor([0, 1, 0, 0, 0]), group=i * 0,
        valid=i < 3, truncated=i > 9,
    )  # fmt: skip
    result = get_estimator(ESTIMATOR)(rows, EstimatorOptions(group_size=3))
    assert result.advantages.tolist() == [2.0, 2.0, 0.0, -1.0, 0.0]  # scores 3, 1 and 0; the last row is padding
    assert result.metrics["groups_incomplete"] == 0
    function = get_estimator("my_algorithms:median_baseline")  # a function works as it is
    assert function(rows, EstimatorOptions()).advantages.tolist() == result.advantages.tolist()
    log_probs = torch.tensor([-1.0, -2.0, float("nan")], requires_grad=True)
    old, weights = torch.tensor([-2.0, -2.0, 0.0]), torch.tensor([0.5, 0.5, 0.0])
    args = log_probs, old, torch.tensor([1.0, -1.0, 5.0]), weights, torch.tensor([0, 0, -1])
    loss, metrics = policy_loss(LOSS)(*args, LossOptions())
    assert float(loss.detach()) == pytest.approx(0.5 * 1.0 * 1.2 - 0.5 * 2.0)  # a ratio of e, clipped, and one of 1
    assert (int(metrics["clipped"].total), int(metrics["clipped"].count)) == (1, 2)


@pytest.mark.slow
@pytest.mark.usefixtures("importable")
def test_the_pytorch_loop_trains_with_them(model_path, tmp_path):
    from agent_envs.adapters.torch.loop import train
    from agent_envs.adapters.torch.settings import LoopConfig

    records = train(
        LoopConfig(
            env="AgentR1/GSM8KTool-v0", env_kwargs={"level": 1}, out=str(tmp_path / "run"), steps=2, tasks=2, group=3,
            eval_tasks=0, model=model_path, max_response_tokens=16, estimator=ESTIMATOR, loss=LOSS, device="cpu",
        )
    )  # fmt: skip
    assert [record["step"] for record in records] == [0, 1, 2]
    assert all("env/groups_incomplete" in record for record in records[1:])


@pytest.mark.slow
@pytest.mark.ray
def test_verl_trains_with_them_through_ray(package, model_path, root):
    pytest.importorskip("verl")
    command = [
        sys.executable, "-c", "import sys; sys.path.remove(''); from agent_envs.cli import main; sys.exit(main())",
        "train", "--env", "AgentR1/GSM8KTool-v0", "--algo", ESTIMATOR, "--steps", "2", "--model", model_path,
        "--wrapper", "StepPenalty(penalty=0.01)", "--out", "run", "data.train_batch_size=4", "data.val_max_samples=4",
        "data.max_prompt_length=512", "data.max_response_length=16",
        "actor_rollout_ref.actor.ppo_mini_batch_size=2", "critic.ppo_mini_batch_size=2",
        f"actor_rollout_ref.actor.policy_loss.loss_mode={LOSS}",
    ]  # fmt: skip
    # as the installed command is started: the working directory is on no path
    variables = {**os.environ, "PYTHONPATH": str(root), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, cwd=package, env=variables, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    lines = (package / "run" / "metrics.jsonl").read_text(encoding="ascii").splitlines()
    trained = [record for record in map(json.loads, lines) if record["step"] > 0]
    assert [record["step"] for record in trained] == [1, 2]
    for record in trained:
        assert record["env/groups_incomplete"] == 0
        assert "actor/pg_clipfrac" not in record  # that is vanilla's
    assert any("actor/clipped" in record for record in trained)
