"""`PRESET/published` is a released run: every cell of a table that is written here from the scripts, and its sources.

1. every released cell of every release has the table's values under `/published@RELEASE`; what was not released is
   refused, and the message says what was
2. `/published` is the newest release with the cell; a preset without it differs from that in what it says, with reasons
3. its mini-batches count steps where the released ones did
4. each released behaviour is had, or is listed by --dry-run with what remains
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
import pytest
from composing import composed
from omegaconf import OmegaConf

from agent_envs.adapters.verl.batch.rows import mini_batches
from agent_envs.adapters.verl.config.composed import Composed
from agent_envs.adapters.verl.config.released import EXACT, RELEASES, Released, _read
from agent_envs.adapters.verl.run.tasks import make_rows, write_rows
from agent_envs.adapters.verl.run.training import describe, train
from agent_envs.cli.main import main
from agent_envs.errors import ConfigError
from agent_envs.wrapping.recipes import RECIPES

# Sources.
CAPO = "CAPO, the scripts of August 2026"
JULY = "Agent-R1 (arXiv 2511.14460), the scripts of its recipes, July 2026; GRPO on GSM8K of April"
STEPPO = "StepPO (arXiv 2604.18401), its scripts of May 2026"
LEGACY = "Agent-R1, the scripts of 2025; one row per episode, so rows are trajectories"
PSPO = "PaperScout, its script: actor mini-batches of 320 rows, the critic's of 128"

Q25, Q15, Q3 = "Qwen/Qwen2.5-3B-Instruct", "Qwen/Qwen2.5-1.5B-Instruct", "Qwen/Qwen3-4B-Instruct-2507"
MODELS = {Q25: "qwen2.5-3b", Q15: "qwen2.5-1.5b", Q3: "qwen3-4b"}
WIDE, TINY, TIGHT = (0.2, 0.2, 3.0), (3e-4, 4e-4, 10.0), (3e-4, 3e-4, 3.0)
CRITIC = ("capo", "ppo", "pspo", "steppo", "token_gae")
GROUP = ("gigpo", "grpo", "gspo", "rloo")
PP = ("reinforce_pp", "reinforce_pp_baseline")


class Task(NamedTuple):
    """What the runs of a task share."""

    model: str
    lengths: tuple[int, int]  # of prompts and of responses
    critic: tuple[int, int]  # tasks of a batch, and of a mini-batch
    group: tuple[int, int, int]  # tasks, episodes of each, tasks of a mini-batch
    steps: tuple[int, int]  # with a critic, with groups
    clip: tuple[float, float, float]
    every: tuple[int, int]  # steps between validations, between checkpoints
    validation: tuple[str, ...]
    gpus: int = 4


SOME_OF_TEST = ("test_in_train",)
SEEN, THREE = ("valid_seen", "valid_unseen"), ("validation", "2wikimultihopqa_validation", "musique_validation")
TASKS = {
    "capo": {
        "hotpotqa": Task(Q3, (10240, 1024), (256, 256), (32, 8, 256), (1765, 14130), WIDE, (5, 10), THREE),
        "alfworld": Task(Q3, (8192, 4096), (128, 128), (16, 8, 128), (135, 1110), WIDE, (5, 10), SEEN),
        "webshop": Task(Q3, (8192, 4096), (128, 128), (16, 8, 128), (450, 3620), WIDE, (5, 10), ("test",)),
        "papersearch": Task(Q3, (10240, 4096), (128, 128), (16, 8, 128), (1310, 10480), WIDE, (5, 10), ("real",)),
        "scienceworld": Task(Q3, (8192, 4096), (128, 128), (16, 8, 128), (140, 1120), WIDE, (5, 10), SOME_OF_TEST),
    },
    "steppo": {
        "hotpotqa": Task(Q25, (10240, 1024), (256, 256), (32, 8, 32), (1765, 14130), WIDE, (10, 100), ("validation",)),
        "alfworld": Task(Q3, (8192, 4096), (128, 128), (16, 8, 16), (270, 2220), TINY, (5, 50), SEEN),
        "webshop": Task(Q3, (8192, 4096), (128, 128), (16, 8, 16), (900, 7240), TINY, (5, 100), ("test",)),
        "papersearch": Task(Q3, (10240, 4096), (128, 128), (16, 8, 16), (5240, 41920), TINY, (20, 100), ("real",)),
    },
    "agent-r1-2025": {
        "hotpotqa-legacy": Task(Q15, (8192, 1024), (128, 64), (128, 5, 64), (200, 200), WIDE, (10, 100), THREE[:1]),
    },
}  # fmt: skip
TASKS["agent-r1"] = {
    **TASKS["steppo"],
    "hotpotqa": TASKS["steppo"]["hotpotqa"]._replace(model=Q3, validation=THREE),
    "gsm8k": Task(Q25, (512, 1024), (1024, 128), (1024, 5, 128), (105, 105), WIDE, (20, -1), ("test",), 2),
    "gsm8k-tool": Task(Q3, (4096, 2048), (256, 32), (256, 5, 32), (435, 435), WIDE, (5, -1), ("test",), 2),
}
TASKS["paperscout"] = {"papersearch": TASKS["steppo"]["papersearch"]}


class Cell(NamedTuple):
    """A released run."""

    release: str
    task: str
    algorithm: str
    kl: str
    source: str
    rows: bool = True  # whether mini-batches count rows
    estimator: str | None = None  # if it is not the one that the algorithm has here
    gamma: float = 1.0
    clip: tuple[float, float, float] | None = None  # if it is not the task's
    loss: str | None = None


RELEASED = [
    *(
        Cell(
            "capo", task, name, "reward" if name in ("rloo", *PP) and task != "scienceworld" else "loss", CAPO,
            estimator="token_gae" if name == "ppo" else None, gamma=0.99 if name in CRITIC else 1.0,
            clip=TIGHT if name in ("steppo", "gspo", "capo") else None, loss="gspo" if name == "capo" else None,
        )
        for task, name in product(TASKS["capo"], ("capo", "ppo", "steppo", *GROUP, *PP))
    ),
    *(
        Cell("steppo", "hotpotqa", name, "loss" if name in ("gspo", "gigpo") else "reward" if name in ("rloo", *PP)
             else "none", STEPPO, estimator="token_gae" if name == "ppo" else None, gamma=0.99)
        for name in ("ppo", "steppo", *GROUP, *PP)
    ),
    *(
        Cell("steppo", task, name, "reward" if name in ("rloo", *PP) else "loss", STEPPO,
             estimator="token_gae" if name == "ppo" else None)
        for task, name in product(("alfworld", "webshop", "papersearch"), ("ppo", "steppo", *GROUP, *PP))
    ),
    *(
        Cell("agent-r1", "hotpotqa", name, "loss" if name in ("gspo", "gigpo") else "reward" if name in
             ("rloo", "reinforce") else "none", JULY, rows=False, gamma=0.99)
        for name in ("ppo", "steppo", "reinforce", *GROUP)
    ),
    *(
        Cell("agent-r1", task, name, "reward" if name in ("rloo", "reinforce") else "loss", JULY, rows=False)
        for task, name in product(("alfworld", "webshop", "papersearch"), ("ppo", "steppo", "reinforce", *GROUP))
    ),
    *(
        Cell("agent-r1", task, name, "loss", JULY, rows=False, loss="vanilla")
        for task, name in product(("gsm8k", "gsm8k-tool"), ("ppo", "steppo", "grpo"))
    ),
    Cell("paperscout", "papersearch", "pspo", "loss", PSPO),
    Cell("agent-r1-2025", "hotpotqa-legacy", "ppo", "reward", LEGACY, rows=False, estimator="token_gae"),
    Cell("agent-r1-2025", "hotpotqa-legacy", "token_gae", "reward", LEGACY, rows=False),
    Cell("agent-r1-2025", "hotpotqa-legacy", "grpo", "loss", LEGACY, rows=False),
    Cell("agent-r1-2025", "hotpotqa-legacy", "reinforce_pp", "reward", LEGACY, rows=False),
]  # fmt: skip
ACTOR, ROLLOUT = "actor_rollout_ref.actor.", "actor_rollout_ref.rollout."
# The same in every released run.
ALL = {
    "agentr1.bootstrap_truncated": False,
    "agentr1.lone_score": True,
    "algorithm.rollout_correction.bypass_mode": False,  # the default of verl 0.7.0, which they pin
    "algorithm.rollout_correction.rollout_is": None,
    "algorithm.lam": 1.0,
    "data.val_batch_size": None,  # whole files
    ACTOR + "optim.lr": 1e-6,
    ACTOR + "kl_loss_coef": 0.001,
    ACTOR + "ppo_epochs": 1,
    "algorithm.kl_ctrl.kl_coef": 0.001,
    "critic.optim.lr": 1e-5,
    ROLLOUT + "temperature": 1.0,
    ROLLOUT + "val_kwargs.do_sample": False,
    ROLLOUT + "val_kwargs.temperature": 0.0,
    ROLLOUT + "val_kwargs.n": 1,
    ROLLOUT + "agent.num_workers": 4,
    ROLLOUT + "tensor_model_parallel_size": 1,
    "trainer.nnodes": 1,
}


def expected(cell: Cell) -> dict[str, Any]:
    """Every setting of a released run that the table has, by verl's name."""
    task = TASKS[cell.release][cell.task]
    critic = cell.algorithm in CRITIC
    prompts, size = task.critic if critic else (task.group[0], task.group[2])
    clip = cell.clip or task.clip
    return {
        **ALL,
        "steps": task.steps[0 if critic else 1],
        "validation": task.validation,
        "model": task.model,
        "agentr1.weighting": "token"
        if cell.task.startswith("gsm8k")
        else "row",  # token-mean, else seq-mean-token-mean
        "agentr1.mini_batches_of_rows": cell.rows,
        "data.max_prompt_length": task.lengths[0],
        "data.max_response_length": task.lengths[1],
        "data.train_batch_size": prompts,
        ROLLOUT + "n": 1 if critic else task.group[1],
        ACTOR + "ppo_mini_batch_size": 320 if cell.algorithm == "pspo" else size,
        **({"critic.ppo_mini_batch_size": size} if critic else {}),
        "algorithm.gamma": cell.gamma,
        ACTOR + "use_kl_loss": cell.kl == "loss",
        "algorithm.use_kl_in_reward": cell.kl == "reward",
        **{f"{ACTOR}clip_ratio_{k}": v for k, v in zip(("low", "high", "c"), clip, strict=True)},
        "trainer.test_freq": task.every[0],
        "trainer.save_freq": task.every[1],
        **({"agentr1.row_returns": True} if cell.algorithm == "reinforce_pp" and cell.rows else {}),
        "agentr1.twin_final": None
        if cell.task != "alfworld"
        else "won"
        if cell.release == "steppo"
        else "ended",  # StepPO's unsolved games never end
        **({"algorithm.adv_estimator": cell.estimator} if cell.estimator else {}),
        **({ACTOR + "policy_loss.loss_mode": cell.loss} if cell.loss else {}),
    }


def settings(run: Composed) -> Callable[[str], Any]:
    """Reads a composed run's settings by name."""
    verl, own = run.verl(), {"model": run.run.model, "steps": run.run.steps, "validation": run.run.validation}

    def read(key: str) -> Any:
        return own[key] if key in own else OmegaConf.select(verl, key)

    return read


def name_of(cell: Cell) -> str:
    task = TASKS[cell.release][cell.task]
    return f"{MODELS[task.model]}/{cell.task}/{cell.algorithm}/h100-{task.gpus}"


def test_the_table_has_every_released_run() -> None:
    runs = {(name, task, algo) for name in RELEASES for task, algos in _read(name)["runs"].items() for algo in algos}
    assert {cell[:3] for cell in RELEASED} == runs
    assert all(cell.source for cell in RELEASED)


# Without Hydra, which takes a second for each: what a release says of every cell.
@pytest.mark.parametrize("cell", RELEASED, ids=lambda cell: "-".join(cell[:3]))
def test_every_released_run_has_the_tables_settings(cell: Cell) -> None:
    found = Released.find(cell.task, cell.algorithm, critic=cell.algorithm in CRITIC, release=cell.release, exact=True)
    said = found.settings()
    said["data.train_batch_size"] = said["tasks_per_step"]
    for key, value in expected(cell).items():
        if key in said and key != "validation":
            assert said[key] == value, key
    assert tuple(said.get("validation", ("validation",))) == expected(cell)["validation"]


# One of each kind, whole.
SOME = [c for c in RELEASED if c[:3] in {
    ("capo", "hotpotqa", "ppo"), ("capo", "webshop", "capo"), ("capo", "papersearch", "reinforce_pp"),
    ("capo", "scienceworld", "rloo"), ("steppo", "papersearch", "steppo"), ("agent-r1", "alfworld", "reinforce"),
    ("agent-r1", "gsm8k", "steppo"), ("agent-r1", "gsm8k-tool", "grpo"),
    ("paperscout", "papersearch", "pspo"), ("agent-r1-2025", "hotpotqa-legacy", "ppo"),
}]  # fmt: skip


@pytest.mark.parametrize("cell", SOME, ids=lambda cell: "-".join(cell[:3]))
def test_published_at_the_end_is_the_released_run(cell: Cell) -> None:
    run = composed(preset=f"{name_of(cell)}{EXACT}@{cell.release}")
    own = settings(run)
    for key, value in expected(cell).items():
        assert own(key) == value, key
    assert run.released == cell.release
    known = RECIPES.get((cell.task, {"paperscout": "steppo"}.get(cell.release, cell.release)))
    if known is not None:
        fitted = f", max_tokens=10240, tokenizer={run.run.model!r})" if cell.task == "hotpotqa" else ")"
        assert run.run.env == known.env_id
        assert run.run.wrappers == (*known.wrappers[:-1], known.wrappers[-1].removesuffix(")") + fitted)
        assert known.env_kwargs.items() <= run.run.env_kwargs.items()
    assert run.differences == () and own("trainer.n_gpus_per_node") == TASKS[cell.release][cell.task].gpus


@pytest.mark.parametrize(
    ("name", "release"),
    [("alfworld/steppo", "capo"), ("alfworld/reinforce", "agent-r1"), ("papersearch/pspo", "paperscout")],
)
def test_the_newest_release_is_the_published_one_and_a_preset_says_where_it_differs(name: str, release: str) -> None:
    published, plain = composed(preset=f"qwen3-4b/{name}{EXACT}"), composed(preset=f"qwen3-4b/{name}")
    assert published.released == plain.released == release
    assert len(plain.differences) > 8 and all(d.why != "set on the command line" for d in plain.differences)
    assert plain.run.steps == published.run.steps and plain.remaining is None and published.remaining
    verl = plain.verl()
    assert verl.agentr1.weighting == "trajectory" and verl.actor_rollout_ref.rollout.val_kwargs.do_sample
    if release == "capo":
        assert composed(preset="qwen3-4b/alfworld/capo").verl().actor_rollout_ref.actor.policy_loss.loss_mode == "capo"


def test_what_was_not_released_is_refused_and_the_command_line_wins(capsys: pytest.CaptureFixture[str]) -> None:
    for name, message in (
        (f"alfworld/remax{EXACT}", "no release has a run of remax on alfworld; released on alfworld: capo: capo,"),
        (f"scienceworld/grpo{EXACT}@steppo", "steppo has no run of grpo on scienceworld; released on scienceworld:"),
        (f"alfworld/grpo{EXACT}@cap", "Did you mean 'capo'?"),
        ("alfworld/grpo@capo", "a release is named behind /published"),
    ):  # fmt: skip
        assert main(["train", "--preset", f"qwen3-4b/{name}", "--dry-run"]) == 2
        assert message in capsys.readouterr().err
    run = composed("agentr1.weighting=token", "run.validation_tasks=8", preset=f"qwen3-4b/alfworld/steppo{EXACT}")
    assert run.verl().agentr1.weighting == "token" and run.unresolved.run.validation_tasks == 8
    assert {d.key for d in run.differences} == {"agentr1.weighting", "validation_tasks"}
    for overrides, message in (
        (["agentr1.layout=merged"], "mini_batches_of_rows counts steps, each of which must be a row: agentr1.layout"),
        (["agentr1.mode=colocate"], "agentr1.mini_batches_of_rows needs agentr1.mode=sync, got colocate"),
    ):
        assert main(["train", "--preset", f"qwen3-4b/webshop/steppo{EXACT}", "--dry-run", *overrides]) == 2
        assert message in capsys.readouterr().err


GIVEN = {
    "actor_rollout_ref.rollout.temperature=0.5": {"actor_rollout_ref.rollout.temperature"},
    "algorithm.lam=0.5": {"algorithm.lam"},
    "trainer.val_before_train=false": {"trainer.val_before_train"},
    "+data.apply_chat_template_kwargs.enable_thinking=false": {"data.apply_chat_template_kwargs.enable_thinking"},
    "agentr1.scale_rewards=batch": {"agentr1.scale_rewards"},
    "trainer.project_name=mine": set(),
    "trainer.logger=[file]": set(),
    "trainer.max_actor_ckpt_to_keep=2": set(),
    "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=65536": set(),
    "ray_kwargs.ray_init.num_cpus=8": set(),
    "actor_rollout_ref.rollout.enforce_eager=true": set(),
}


def test_whatever_the_command_line_changes_is_listed(tmp_path: Path) -> None:
    """What changes no result is not: paths, names, seeds, what is saved, sizes of the hardware."""
    preset = f"qwen3-4b/alfworld/steppo/h100-4{EXACT}"
    options = {
        "data": "generated", "steps": 7, "split": "valid_seen", "warm_start": 3, "val_fraction": 0.2,
        "env_kwargs": '{"put_alias": true, "max_episode_steps": 9}', "wrappers": ["FormatReward(weight=0.1)"],
    }  # fmt: skip
    harmless = {"seed": 3, "out": str(tmp_path / "run"), "chosen": {"agent": None, "train_roles": []}}
    run = composed(*GIVEN, preset=preset, **options, **harmless)
    wanted = {"data", "steps", "split", "warm_start", "val_fraction", "env.put_alias", "env.max_episode_steps"}
    assert {d.key for d in run.differences} == set().union({"wrappers"}, wanted, *GIVEN.values())
    said = {d.key: (d.published, d.ours, d.why) for d in run.differences}
    assert said["steps"] == (135, 7, "set on the command line") and said["data"][:2] == ("official", "generated")
    assert said["env.put_alias"] == (None, True, "set on the command line")
    nothing = {"data": "official", "split": "train", "steps": 135, "env_kwargs": '{"max_episode_steps": 20}'}
    assert composed("algorithm.lam=1.0", preset=preset, **harmless, **nothing).differences == ()
    plain = {d.key for d in composed("algorithm.lam=0.5", preset=preset.removesuffix(EXACT)).differences}
    assert "algorithm.lam" in plain


IDS = {"A": 11, "C": 12, "D": 15, "E": 22, "P": 13, "S": 8, "T": 20, "V": 7, "W": 6}


def test_each_released_behaviour_is_had_or_listed() -> None:
    table = _read("remaining", ".")
    ids = [name for part in table.values() for names in part for name in names.split()]
    assert sorted(ids) == [f"{letter}{i:02d}" for letter, count in IDS.items() for i in range(1, count + 1)]
    cells = [Released.find(c.task, c.algorithm, critic=c.algorithm in CRITIC, release=c.release) for c in RELEASED]
    known = {name for cell in cells for name in cell.settings()}
    assert {key for key in table["closed"].values() if "." in key and "/" not in key and " " not in key} <= known
    for ids, entry in table["open"].items():  # each is of some run, and says nothing of a setting that a release sets
        listed = [cell for cell in cells if ids in cell.remaining(lambda key: None)]
        assert listed and entry["says"], ids
        said = {key: f"{words}..." for key, words in entry.get("unless", {}).items()}
        assert not said or ids not in listed[0].remaining(said.get)
    golds = [cell.release for cell in cells if cell.task == "hotpotqa" and "E08" in cell.remaining(lambda key: None)]
    assert {*golds} == {"steppo"}  # StepPO counts the ground truth alone
    small = Released.find("webshop-small", "grpo", critic=False)
    assert "E05" not in small.remaining(lambda key: None)  # whose score knows no nouns


def test_a_dry_run_lists_what_remains(capsys: pytest.CaptureFixture[str]) -> None:
    preset = f"qwen3-4b/hotpotqa/steppo/h100-4{EXACT}"
    assert main(["train", "--preset", preset, "--dry-run"]) == 0
    printed = capsys.readouterr().out
    assert "# beside the release capo, in settings:\n# and in what no setting says:\n" in printed
    assert "# S01 S03: passages are found by BM25" in printed and "alfworld" not in printed.lower()
    run = composed(preset=preset, env_kwargs='{"retriever": "dense:/data"}')
    assert "S01 S03" not in run.remaining and {"T17", "D01 D03 D14"} <= {*run.remaining}
    words, own = "P02 P03 P04 P05 P06 P10", "RebuildPrompt(prompts='prompts.toml:theirs', anchor='prompt')"
    assert words in run.remaining and words not in composed(preset=preset, wrappers=[own]).remaining


def test_rows_of_the_release_are_no_difference(data_dir: Path, tmp_path: Path) -> None:
    preset = f"qwen3-4b/papersearch/grpo/h100-4{EXACT}"
    run = composed(preset=preset, data=str(data_dir / "agentr1_release" / "pasa"))
    assert "D06" not in run.remaining and run.differences == ()
    row = {"data_source": "mine", "prompt": [{"role": "user", "content": "Ants?"}], "reward_model": {"style": "rule"}}
    write_rows(tmp_path / "mine" / "train.parquet", [row])
    run = composed(preset=preset, data=str(tmp_path / "mine"))
    assert "D06" in run.remaining and [d.key for d in run.differences] == ["data"]
    folder = data_dir / "agentr1_release" / "hotpotqa"
    for name, listed in (("train", set()), ("validation", {"train_files"})):
        rows = shutil.copy(folder / "validation.parquet", tmp_path / f"{name}.parquet")
        given = (f"data.train_files=[{rows}]", f"data.val_files={folder / 'validation.parquet'}")
        run = composed(*given, preset=f"qwen3-4b/hotpotqa/grpo/h100-4{EXACT}")
        assert "D01 D03 D14" not in run.remaining  # its three sets are of the release; one alone is no difference less
        assert {d.key for d in run.differences} == {"val_files", *listed}
    write_rows(tmp_path / "own.parquet", make_rows("AgentR1/HotpotQA-v0", [0]))
    run = composed(f"data.train_files={tmp_path / 'own.parquet'}", preset=f"qwen3-4b/hotpotqa/grpo/h100-4{EXACT}")
    assert "D01 D03 D14" in run.remaining and {d.key for d in run.differences} == {"train_files"}
    preset, goals = f"qwen3-4b/webshop/grpo/h100-4{EXACT}", str(data_dir / "agentr1_release" / "webshop")
    assert "D07 D08" in composed(preset=preset).remaining
    run = composed(preset=preset, env_kwargs=json.dumps({"goals": goals, "tagger": "spacy"}))
    assert not {"D07 D08", "E05"} & {*run.remaining} and run.differences == ()


def test_a_dry_run_says_which_tasks_the_data_has(
    data_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And is refused where it has none to validate on; verl's names of estimators stand in a preset too."""
    command = ["train", "--preset", f"qwen3-4b/scienceworld/reinforce_plus_plus{EXACT}", "--dry-run", "--data"]
    released = data_dir / "agentr1_release" / "scienceworld"
    rows = len(pq.read_table(released / "train.parquet"))
    assert main([*command, str(released)]) == 0
    printed = capsys.readouterr().out
    assert f"# {rows} tasks of 'train' to train on, held out 100 of 'test_in_train'\n" in printed
    assert printed.startswith("# AgentR1/ScienceWorld-v0, reinforce_pp, ")
    shutil.copy(released / "train.parquet", tmp_path)
    assert main([*command, str(tmp_path)]) == 2
    assert "the data has none of the splits to validate on: test_in_train" in capsys.readouterr().err


def test_a_released_run_of_paper_search_needs_its_selector(tmp_path: Path) -> None:
    preset = f"qwen3-4b/papersearch/grpo/h100-4{EXACT}"
    run = composed(preset=preset, out=str(tmp_path / "run"), data="generated")
    assert [*run.needed] == ["S07"] and "# before it can run: the known answers would" in describe(run)
    with pytest.raises(ConfigError, match="is a released run, and the known answers would give the scores"):
        train(run)
    assert composed(preset=preset, env_kwargs='{"selector": "http://localhost:1"}').needed  # scores of another form
    asked = '{"selector": "http://localhost:1#released=1"}'
    run = composed(preset=preset, env_kwargs=asked)
    assert not run.needed and "S07" in run.remaining  # its prompt is not PaSa's
    asked = '{"selector": "http://localhost:1#released=1&prompt=pasa.txt"}'
    run = composed(preset=preset, env_kwargs=asked)
    assert not run.needed and "S07" not in run.remaining and run.differences == ()


def test_mini_batches_count_steps() -> None:
    config = composed(preset=f"qwen3-4b/papersearch/pspo{EXACT}").verl()
    actor = config.actor_rollout_ref.actor
    counts = [mini_batches(part, config, 700) for part in (actor, config.critic)]
    assert counts == [3, 6]  # of 320 and of 128 rows
    assert mini_batches(actor, config, 10) == 1
