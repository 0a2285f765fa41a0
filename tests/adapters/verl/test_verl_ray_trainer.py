"""Training over RayPPOTrainer, without Ray: the same columns as over verl's v1 trainers, and the same requests.

1. from the same rows both trainers make the same batch: order, padding, columns, metrics and episode files
2. what models return for whole sequences is written for the responses; an update's request has its columns
3. what this trainer lacks is refused by name before anything starts
4. neither it nor what it imports of this package knows verl's v1 trainers or TransferQueue
5. another package's run gets verl's own trainer
"""

from __future__ import annotations

import ast
import copy
import functools
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
with warnings.catch_warnings():  # verl warns of every engine that is not installed
    warnings.simplefilter("ignore")
    pytest.importorskip("verl")
    from tensordict import TensorDict
    from transfer_queue import KVBatchMeta
    from verl.trainer.ppo.v1 import trainer_sync  # noqa: F401  registers this package's trainers
    from verl.utils.tensordict_utils import list_of_dict_to_tensordict

    from agent_envs.adapters.verl.batch import phases, ray_trainer, trainer
    from agent_envs.adapters.verl.rollout.agent_loop import EnvAgentLoop
    from agent_envs.adapters.verl.rollout.row_manager import RowWorker, as_rows

from omegaconf import OmegaConf  # noqa: E402

import agent_envs.adapters.verl  # noqa: E402
from agent_envs.adapters.estimators import get_estimator  # noqa: E402
from agent_envs.adapters.verl.batch.losses import POLICY_WEIGHTS, VALUE_WEIGHTS  # noqa: E402
from agent_envs.adapters.verl.config.compose import compose_run  # noqa: E402
from agent_envs.adapters.verl.config.objective import check_config  # noqa: E402
from agent_envs.adapters.verl.config.trainers import check_trainer  # noqa: E402
from agent_envs.adapters.verl.rollout.episode_rows import episode_record, episode_rows  # noqa: E402
from agent_envs.adapters.verl.run.phase import PhaseFile  # noqa: E402
from agent_envs.episodes.record import Episode, Step, StopReason  # noqa: E402
from agent_envs.errors import ConfigError  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


@functools.cache
def composed(algo: str) -> Any:
    return compose_run(
        env="AgentR1/GSM8K-v0", algo=algo, preset="cpu-tiny", steps=2, data="generated", split="train", env_kwargs=None,
        wrappers=[], out="unused", model="m", seed=0, warm_start=None, demo_noise=None, val_fraction=0.1,
        overrides=["data.train_batch_size=2", "actor_rollout_ref.rollout.n=2", "trainer.use_v1=False",
                   "actor_rollout_ref.actor.ppo_mini_batch_size=1", "critic.ppo_mini_batch_size=1",
                   "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2"],
    ).verl()  # fmt: skip


def changed(algo: str, **settings: Any) -> Any:
    """A configuration with other values, written with ``__`` for a point."""
    config = copy.deepcopy(composed(algo))
    for name, value in settings.items():
        OmegaConf.update(config, name.replace("__", "."), value, force_add=True)
    return config


def made(cls: type, config: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A trainer at its first step on two ranks, without workers."""
    monkeypatch.setattr(cls, "ranks", lambda self: 2)
    out = object.__new__(cls)
    out.read_config(config)
    out.config, out.global_steps, out.phase = config, 1, PhaseFile(None)
    out.use_critic = out.objective.estimator.needs_critic
    out.use_reference_policy = False
    out.tokenizer = SimpleNamespace(eos_token_id=2)
    return out


def played(config: Any) -> list[dict[str, Any]]:
    """The rows of two prompts with two episodes each: merged steps, a prompt that is built anew, and a broken one."""
    loop = object.__new__(EnvAgentLoop)
    loop.config = config
    out = []
    for number in range(4):
        prompts = [(1, 2, 3), (1, 2, 3, 4, 5, 6) if number != 1 else (7, 8)]
        ended = StopReason.ERROR if number == 3 else StopReason.TERMINATED
        episode = Episode(
            env_id="e", episode_id=f"{'ba'[number // 2]}_{number % 2}", group_id="ba"[number // 2], seed=None, index=0,
            instructions="", tools=(), reset_info={}, final_observation="", stop_reason=ended,
            error="OSError: gone" if number == 3 else None,
            steps=tuple(
                Step("o", "a", float(number + i), i == 1 and number != 3, False, {"success": True}, prompt_ids=prompt,
                     response_ids=(4, 5), response_logprobs=(-0.5, -0.25 * number))
                for i, prompt in enumerate(prompts)
            ),
        )  # fmt: skip
        timing = {"generate_sequences": [0.1] * 2, "tool_calls": [0.2] * 2, "total": 0.3, "queued": 0.0, "at_once": 8}
        rows = episode_rows(episode, filler_id=2)
        outputs = loop._outputs(rows, episode, episode_record(episode), "train", timing, [], 0, True)
        assert len(outputs) == (2 if number == 1 else 1)
        uid, session = episode.episode_id.split("_")
        out += as_rows(outputs, {"uid": uid, "session_id": session})
    return out


class Queue:
    """TransferQueue as far as a step needs it: columns by row."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, Any]] = {}

    def kv_batch_get(self, keys: list[str], partition_id: str, select_fields: list[str] | None = None) -> TensorDict:
        found = [self.rows[key] for key in keys]
        return list_of_dict_to_tensordict([
            {name: row[name] for name in select_fields or row if name in row} for row in found
        ])  # fmt: skip

    def kv_batch_put(
        self, keys: list[str], partition_id: str, fields: TensorDict, tags: list[dict] | None = None
    ) -> KVBatchMeta:
        columns = {name: fields.get(name) for name in list(fields.keys())}
        lists = {n: list(x.unbind()) if isinstance(x, torch.Tensor) else x.tolist() for n, x in columns.items()}
        for i, key in enumerate(keys):
            self.rows.setdefault(key, {}).update({name: values[i] for name, values in lists.items()})
        return KVBatchMeta(keys, tags or [{} for _ in keys], partition_id)


@pytest.mark.parametrize(("algo", "layout"), [("steppo", "merged"), ("grpo", "tree")])
def test_both_trainers_make_the_same_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, algo: str, layout: str
) -> None:
    queue = Queue()
    for module in (phases, trainer):
        monkeypatch.setattr(module, "tq", queue)
    config = {
        v1: changed(algo, agentr1__layout=layout, agentr1__episodes_dir=str(tmp_path / str(v1))) for v1 in (True, False)
    }
    rows = played(config[True])
    queue.rows = {row["key"]: dict(row) for row in rows}

    theirs = made(trainer.EnvTrainer, config[True], monkeypatch)
    theirs.prompts, theirs.local_trigger_step, theirs.parameter_sync_step = {"b": 0, "a": 1}, 0, 1
    tags = [{"seq_len": len(row["input_ids"]), "status": "success"} for row in rows]
    order = [2, 0, 4, 1, 3]  # as episodes ended
    meta = KVBatchMeta([rows[i]["key"] for i in order], [tags[i] for i in order], "train")
    balance: dict[str, Any] = {}
    meta = theirs._balance_batch(meta, balance)
    ours = made(ray_trainer.EnvRayTrainer, config[False], monkeypatch)
    ours.order = {"b": 0, "a": 1}
    batch = ours._lay_out(rows)

    def real(keys: Any) -> list[str]:
        return ["" if key.startswith("pad") else key for key in keys]

    assert real(meta.keys) == real(batch.keys) and "" in real(batch.keys)
    assert batch.lengths == phases.QueueBatch(meta).lengths and ours.balance_metrics(batch.lengths) == balance
    given = {"old_log_probs": batch.columns["rollout_log_probs"]}
    if algo == "steppo":
        generator = torch.Generator().manual_seed(0)
        given["values"] = torch.nested.nested_tensor_from_jagged(
            torch.randn(len(given["old_log_probs"].values()), generator=generator), given["old_log_probs"].offsets()
        )
    batch.write(given)
    phases.QueueBatch(meta).write(given)
    metrics: dict[str, Any] = {}
    theirs._compute_advantage(meta, metrics)
    assert ours.add_columns(batch) == metrics
    assert metrics["env/broken"] == 1.0 and metrics["env/trained_steps"] == 6.0
    columns, settings = ours.actor_request()
    if algo == "steppo":
        columns += ours.critic_request()[0]
        assert ours.critic_request() == theirs.critic_request()
    assert (columns[: len(theirs.actor_request()[0])], settings) == theirs.actor_request()
    for name in columns:
        both = batch.columns[name].unbind(), phases.QueueBatch(meta).read(name)[name].unbind()
        assert all(torch.equal(x, y) for x, y in zip(*both, strict=True)), name
    assert batch.columns[POLICY_WEIGHTS].values().count_nonzero() == 12
    assert (batch.columns[VALUE_WEIGHTS].values() != 0).sum() == (6 if algo == "steppo" else 12)
    files = [(tmp_path / str(v1) / "train-000001.jsonl").read_text() for v1 in (True, False)]
    assert sorted(files[0].splitlines()) == sorted(files[1].splitlines()) and files[0].count("\n") == 4


def test_requests_to_the_models_and_what_is_kept_of_their_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    config = changed("steppo", algorithm__rollout_correction__bypass_mode=False)
    ours = made(ray_trainer.EnvRayTrainer, config, monkeypatch)
    ours.use_reference_policy, ours.order = True, {"b": 0, "a": 1}
    asked = {}

    def answer(role: str) -> Any:
        def compute(request: TensorDict) -> TensorDict:
            asked[role] = request
            tokens = request["input_ids"]
            whole = torch.nested.nested_tensor_from_jagged(torch.arange(float(tokens.values().numel())),
                                                           tokens.offsets())  # fmt: skip
            return {"log_probs": whole, "entropy": 2 * whole, "values": -whole}

        return compute

    ours.actor_rollout_wg = SimpleNamespace(compute_log_prob=answer("actor"))
    ours.ref_policy_wg = SimpleNamespace(compute_ref_log_prob=answer("reference"))
    ours.critic_wg = SimpleNamespace(infer_batch=lambda request: SimpleNamespace(get=lambda: answer("critic")(request)))
    batch = ours._lay_out(played(config))
    ours._ask_models(batch, {})
    for request in asked.values():
        assert {"input_ids", "responses", "position_ids", "loss_mask"} <= set(request.keys())
        assert "rollout_log_probs" not in request and request["compute_loss"] is False and request["temperature"] == 1.0
    assert asked["actor"]["calculate_entropy"] is True and asked["reference"]["calculate_entropy"] is False
    first = 0
    for i, length in enumerate(batch.lengths):
        response = len(batch.columns["responses"].unbind()[i])
        expected = torch.arange(float(length - response), length) + first - 1  # each is written one position before
        first += length
        for name, factor in (("old_log_probs", 1), ("ref_log_prob", 1), ("entropy", 2), ("values", -1)):
            assert torch.equal(batch.columns[name].unbind()[i], factor * expected), name


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("agentr1.mode", "colocate"),
        ("actor_rollout_ref.model.lora_rank", 8),
        ("actor_rollout_ref.rollout.agent.agent_loop_manager_class", "theirs.Manager"),
        ("trainer.val_only", True),
        ("algorithm.filter_groups.enable", True),
    ],
)
def test_settings_that_it_lacks_are_refused(name: str, value: Any) -> None:
    config = changed("grpo", **{name.replace(".", "__"): value})
    with pytest.raises(ConfigError, match=f"RayPPOTrainer, which cannot do {name}={value}: .*trainer.use_v1=True"):
        check_config(config)
    config.trainer.use_v1 = True
    check_trainer(config, get_estimator("grpo"))


@pytest.mark.parametrize("name", ["remax", "optimal_token_baseline"])
def test_estimators_that_it_lacks_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"RayPPOTrainer, which cannot do the estimator {name}: "):
        check_trainer(composed("grpo"), get_estimator(name))


def test_it_needs_no_queue_and_no_v1_trainer() -> None:
    root = Path(agent_envs.adapters.verl.__file__).parent
    seen: set[Path] = set()
    todo = [root / "batch" / "ray_trainer.py", root / "rollout" / "row_manager.py", root / "rollout" / "agent_loop.py"]
    while todo:
        path = todo.pop()
        if path in seen:
            continue
        seen.add(path)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
            else:
                continue
            for name in names:
                assert not name.startswith(("transfer_queue", "verl.trainer.ppo.v1")), (path.name, name)
                found = root / (name.removeprefix("agent_envs.adapters.verl.").replace(".", "/") + ".py")
                if found.is_file():
                    todo.append(found)
    assert {"steps.py", "columns.py", "layout.py", "losses.py"} <= {path.name for path in seen}


def test_another_run_gets_verls_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_trainer, "EnvRayTrainer", lambda **parts: ("ours", parts))
    monkeypatch.setattr(ray_trainer, "RayPPOTrainer", lambda **parts: ("theirs", parts))
    for config, whose in ((OmegaConf.create({"agentr1": {}}), "ours"), (OmegaConf.create({}), "theirs")):
        assert ray_trainer.ray_trainer(config=config, tokenizer=1) == (whose, {"config": config, "tokenizer": 1})


def test_an_episodes_rows_come_back_together() -> None:
    worker = object.__new__(RowWorker)
    assert worker._postprocess([[{"key": "a_0_0"}], [{"key": "a_1_0"}, {"key": "a_1_1"}]]) == [
        {"key": "a_0_0"}, {"key": "a_1_0"}, {"key": "a_1_1"},
    ]  # fmt: skip
