"""The published column comes from a table of released runs and their sources, and `PRESET/published` is those runs.

1. every released cell: what a preset says is published is what the table says, and each difference has a reason
2. `PRESET/published` has the table's values, with no difference left but the speed's; what was not released is refused
3. its mini-batches count steps where the released ones did
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from agent_envs.cli.main import main

pytest.importorskip("torch")
pytest.importorskip("verl")

from composing import composed
from omegaconf import OmegaConf

from agent_envs.adapters.estimators import get_estimator
from agent_envs.adapters.verl.batch.layout import plan_layout
from agent_envs.adapters.verl.batch.rows import mini_batches
from agent_envs.adapters.verl.config.compose import Composed
from agent_envs.adapters.verl.config.released import EXACT

# Sources.
SCRIPTS = "Agent-R1 (arXiv 2511.14460), the scripts of its recipes, July"
LEGACY = "Agent-R1, the scripts of 2025; one row per episode, so rows are trajectories"
STEPPO = "StepPO (arXiv 2604.18401), its scripts; verl 0.7.0 splits rows into mini-batches (dp_actor.py:430)"
PSPO = "PaperScout, its script: actor mini-batches of 320 rows, the critic's of 128"
VERL = "verl 0.7.0, which they pin: rollout_correction.bypass_mode is false (StepPO's committed run, config.yaml:544)"

Q25, Q15, Q3 = "Qwen/Qwen2.5-3B-Instruct", "Qwen/Qwen2.5-1.5B-Instruct", "Qwen/Qwen3-4B-Instruct-2507"
MODELS = {Q25: "qwen2.5-3b", Q15: "qwen2.5-1.5b", Q3: "qwen3-4b"}
WIDE, TINY = (0.2, 0.2, 3.0), (3e-4, 4e-4, 10.0)


class Task(NamedTuple):
    """What all released runs of a task share; from SCRIPTS and LEGACY."""

    model: str
    prompt: int
    response: int
    steps: int | None  # of an episode
    critic: tuple[int, int, int]  # prompts, episodes of each, prompts of a mini-batch
    group: tuple[int, int, int]
    gamma: float
    clip: tuple[float, float, float]
    episodes: int  # epochs x tasks
    test_every: int
    gpus: int


class Cell(NamedTuple):
    """A released run."""

    task: str
    algorithm: str
    kl: str
    source: str
    rows: tuple[int, int] | None = None  # of a mini-batch of actor and critic, where rows are counted
    estimator: str | None = None  # if it is not the one that the algorithm has here


TASKS = {
    "gsm8k": Task(Q25, 512, 1024, None, (1024, 1, 128), (1024, 5, 128), 1.0, WIDE, 15 * 7473, 20, 2),
    "gsm8k-tool": Task(Q3, 4096, 2048, 5, (256, 1, 32), (0, 0, 0), 1.0, WIDE, 15 * 7473, 5, 2),
    "hotpotqa": Task(Q3, 10240, 1024, 5, (256, 1, 256), (32, 8, 32), 0.99, WIDE, 5 * 90447, 10, 4),
    "alfworld": Task(Q3, 8192, 4096, 20, (128, 1, 128), (16, 8, 16), 1.0, TINY, 10 * 3553, 5, 4),
    "webshop": Task(Q3, 8192, 4096, 15, (128, 1, 128), (16, 8, 16), 1.0, TINY, 10 * 10587, 5, 4),
    "papersearch": Task(Q3, 10240, 4096, 5, (128, 1, 128), (16, 8, 16), 1.0, TINY, 20 * 33551, 20, 4),
    "hotpotqa-legacy": Task(Q15, 8192, 1024, 5, (128, 1, 64), (128, 5, 64), 1.0, WIDE, 25600, 10, 4),
}  # fmt: skip
RELEASED = [
    Cell("gsm8k", "ppo", "loss", SCRIPTS),
    Cell("gsm8k", "grpo", "loss", SCRIPTS),
    Cell("gsm8k-tool", "ppo", "loss", SCRIPTS),
    Cell("hotpotqa", "ppo", "none", SCRIPTS),
    Cell("hotpotqa", "steppo", "none", STEPPO, rows=(256, 256)),
    *(Cell("hotpotqa", name, "none", SCRIPTS) for name in ("grpo",)),
    *(Cell("hotpotqa", name, "reward", SCRIPTS) for name in ("rloo", "reinforce")),
    *(Cell("hotpotqa", name, "loss", SCRIPTS) for name in ("gspo", "gigpo")),
    *(
        cell
        for task in ("alfworld", "webshop", "papersearch")
        for cell in (
            Cell(task, "steppo", "loss", STEPPO, rows=(128, 128)),
            *(Cell(task, name, "loss", SCRIPTS) for name in ("ppo", "grpo", "gspo", "gigpo", "rloo")),
        )
    ),
    Cell("papersearch", "pspo", "loss", PSPO, rows=(320, 128)),
    Cell("hotpotqa-legacy", "ppo", "reward", LEGACY, estimator="token_gae"),
    Cell("hotpotqa-legacy", "token_gae", "reward", LEGACY),
    Cell("hotpotqa-legacy", "grpo", "loss", LEGACY),
    Cell("hotpotqa-legacy", "reinforce_pp", "reward", LEGACY),
]
ACTOR = "actor_rollout_ref.actor."
# The same in every released run, from SCRIPTS and VERL.
ALL = {
    "agentr1.weighting": "row",  # loss_agg_mode=seq-mean-token-mean over step rows
    "agentr1.bootstrap_truncated": False,
    "algorithm.rollout_correction.bypass_mode": False,
    "algorithm.rollout_correction.rollout_is": None,
    "algorithm.lam": 1.0,
    ACTOR + "optim.lr": 1e-6,
    ACTOR + "kl_loss_coef": 0.001,
    ACTOR + "ppo_epochs": 1,
    "critic.optim.lr": 1e-5,
    "actor_rollout_ref.rollout.temperature": 1.0,
    "actor_rollout_ref.rollout.tensor_model_parallel_size": 1,
    "trainer.nnodes": 1,
}


def expected(cell: Cell) -> dict[str, Any]:
    """Every setting of a released run that the table has, by verl's name."""
    task = TASKS[cell.task]
    critic = get_estimator(cell.estimator or {"ppo": "gae", "steppo": "gae", "pspo": "gae", "gspo": "grpo"}.get(
        cell.algorithm, cell.algorithm)).needs_critic  # fmt: skip
    prompts, episodes, size = task.critic if critic else task.group
    rows = cell.rows or (size, size)
    return {
        **ALL,
        "model": task.model,
        "env.max_episode_steps": task.steps,
        "data.max_prompt_length": task.prompt,
        "data.max_response_length": task.response,
        "data.train_batch_size": prompts,
        "actor_rollout_ref.rollout.n": episodes,
        "agentr1.mini_batches_of_rows": cell.rows is not None,
        ACTOR + "ppo_mini_batch_size": rows[0],
        **({"critic.ppo_mini_batch_size": rows[1]} if critic else {}),
        "algorithm.gamma": task.gamma,
        ACTOR + "use_kl_loss": cell.kl == "loss",
        "algorithm.use_kl_in_reward": cell.kl == "reward",
        **{f"{ACTOR}clip_ratio_{k}": v for k, v in zip(("low", "high", "c"), task.clip, strict=True)},
        "trainer.test_freq": task.test_every,
        "trainer.n_gpus_per_node": task.gpus,
        **({"algorithm.adv_estimator": cell.estimator} if cell.estimator else {}),
    }


def settings(run: Composed) -> Callable[[str], Any]:
    """Reads a composed run's settings by name."""
    verl = run.verl()

    def read(key: str) -> Any:
        if key.startswith("env."):
            return run.run.env_kwargs.get(key.removeprefix("env."))
        return run.run.model if key == "model" else OmegaConf.select(verl, key)

    return read


def name_of(cell: Cell) -> str:
    return f"{MODELS[TASKS[cell.task].model]}/{cell.task}/{cell.algorithm}"


@pytest.mark.parametrize("cell", RELEASED, ids=lambda cell: f"{cell.task}-{cell.algorithm}")
def test_the_published_column_is_the_tables(cell: Cell) -> None:
    run = composed(preset=name_of(cell))
    own = settings(run)
    said = {d.key.removeprefix("+"): d.published for d in run.differences}
    assert all(d.why for d in run.differences) and cell.source
    if "updates_per_step" in said and cell.rows is None:  # of which verl's setting is made
        size = said.get("data.train_batch_size", own("data.train_batch_size"))
        said |= {f"{part}.ppo_mini_batch_size": size // said["updates_per_step"] for part in (ACTOR[:-1], "critic")}
    for key, value in expected(cell).items():
        assert said.get(key, own(key)) == value, key
    episodes = TASKS[cell.task].episodes
    assert run.run.steps == episodes // own("data.train_batch_size")
    # ratios of tokens have a clip that rounding stays within
    step_ratio = cell.algorithm in ("gspo", "steppo", "pspo")
    assert own(ACTOR + "clip_ratio_low") == (TASKS[cell.task].clip[0] if step_ratio else 0.2)


# One of each kind: each composes a run anew, which takes a second.
SOME = [c for c in RELEASED if (c.task, c.algorithm) in {
    ("gsm8k", "grpo"), ("hotpotqa", "steppo"), ("papersearch", "pspo"), ("webshop", "gspo"), ("hotpotqa-legacy", "ppo"),
}]  # fmt: skip


@pytest.mark.parametrize("cell", SOME, ids=lambda cell: f"{cell.task}-{cell.algorithm}")
def test_published_at_the_end_is_the_released_run(cell: Cell) -> None:
    hardware = {2: "h100-8", 4: "h100-4"}[TASKS[cell.task].gpus]
    run = composed(preset=f"{name_of(cell)}/{hardware}{EXACT}")
    own = settings(run)
    for key, value in expected(cell).items():
        if key != "trainer.n_gpus_per_node":  # which the name of the hardware says
            assert own(key) == value, key
    left = {d.key for d in run.differences} - {"trainer.n_gpus_per_node"}
    speed = {"actor_rollout_ref.rollout.gpu_memory_utilization", "trainer.save_freq"}
    assert left <= {*speed, "data.max_prompt_length"} if cell.task == "hotpotqa-legacy" else left == speed


def test_what_was_not_released_is_refused_and_the_command_line_wins(capsys: pytest.CaptureFixture[str]) -> None:
    for preset in (f"qwen3-4b/alfworld/remax{EXACT}", f"qwen3-4b/gsm8k-tool/grpo/h100-8{EXACT}"):
        assert main(["train", "--preset", preset, "--dry-run"]) == 2
        assert "no such run was released; those of this task are" in capsys.readouterr().err
    run = composed("agentr1.weighting=token", preset=f"qwen3-4b/alfworld/steppo{EXACT}")
    assert run.verl().agentr1.weighting == "token"
    assert composed(preset=f"qwen3-4b/gsm8k-tool/ppo{EXACT}").run.env_kwargs["tool"] == "check_answer"
    for overrides, message in (
        (["agentr1.layout=merged"], "mini_batches_of_rows counts steps, each of which must be a row: agentr1.layout"),
        (["agentr1.mode=colocate"], "agentr1.mini_batches_of_rows=True needs agentr1.mode=sync, got colocate"),
    ):
        assert main(["train", "--preset", f"qwen3-4b/alfworld/steppo{EXACT}", "--dry-run", *overrides]) == 2
        assert message in capsys.readouterr().err


def test_mini_batches_count_steps() -> None:
    config = composed(preset=f"qwen3-4b/papersearch/pspo{EXACT}").verl()
    actor = config.actor_rollout_ref.actor
    counts = [mini_batches(part, config, 700) for part in (actor, config.critic)]
    assert counts == [3, 6]  # of 320 and of 128 rows
    assert mini_batches(actor, config, 10) == 1
    layout = plan_layout([f"row{i}" for i in range(700)], [5] * 700, mini_batches=6, ranks=4, seed=1)
    assert len(layout.order) == 4 * 6 * 30 and layout.mini_batches == 6  # 116 or 117 rows in each, on four ranks
    of_actor = layout.mini_batches_of_rows(3)
    sizes = [sum(of_actor[i] == b and row is not None for i, row in enumerate(layout.order)) for b in range(3)]
    assert sum(sizes) == 700 and max(sizes) - min(sizes) <= 2 and max(sizes) <= 320
