"""Padding rows change nothing: verl's own training worker in this process, one model, with and without them.

1. actor: for every aggregation, gradients, loss and metrics are those of the batch without padding, however
   the batch is cut into micro-batches
2. critic: the step-level loss is the mean over trained rows of (V - R)^2 / 2 at the action's start; padding
   changes nothing
3. each row carries its own reward and the value of its action's start; the order rows come back in does not
   matter; a checkpoint is saved after its step is logged
4. sampled and trained log-probabilities agree, also after an update sent to the generation engine
"""

from __future__ import annotations

import socket
import warnings
from functools import partial

import numpy as np
import pytest

torch = pytest.importorskip("torch")
with warnings.catch_warnings():  # verl warns of every engine that is not installed
    warnings.simplefilter("ignore")
    pytest.importorskip("verl")
    from verl.trainer.config import CheckpointConfig
    from verl.utils import tensordict_utils as tu
    from verl.utils.metric import reduce_metrics
    from verl.workers.config import (
        FSDPActorConfig,
        FSDPCriticConfig,
        FSDPEngineConfig,
        FSDPOptimizerConfig,
        HFModelConfig,
    )
    from verl.workers.engine_workers import TrainingWorker, TrainingWorkerConfig


from agent_envs.adapters.tiny.model import build_model, save_model  # noqa: E402
from agent_envs.adapters.tiny.tokenizer import build_tokenizer  # noqa: E402
from agent_envs.adapters.verl.cpu_server import load_engine  # noqa: E402
from agent_envs.adapters.verl.row_losses import actor_loss, critic_loss  # noqa: E402
from agent_envs.adapters.verl.sampling import SamplingParams  # noqa: E402
from agent_envs.adapters.verl.step_batch import LogThen, by_submission, step_rows, step_scores  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
PROMPTS, RESPONSES = [10, 14, 9, 20, 11, 12], [5, 7, 1, 4, 5, 6]


@pytest.fixture(scope="module")
def model_path(tmp_path_factory):
    path = tmp_path_factory.mktemp("model")
    tokenizer = build_tokenizer(["some words to learn"])
    save_model(build_model(tokenizer, hidden_size=32, intermediate_size=64), tokenizer, path)
    return str(path)


@pytest.fixture(scope="module")
def process_group():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    names = {"WORLD_SIZE": "1", "RANK": "0", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in names.items():
            patch.setenv(name, value)
        yield
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()


def build_worker(model_path, kind):
    model = HFModelConfig(
        path=model_path,
        use_remove_padding=False,
        enable_gradient_checkpointing=False,
        override_config={"attn_implementation": "sdpa"},
    )
    engine = FSDPEngineConfig(
        strategy="fsdp2",
        use_torch_compile=False,
        mixed_precision={"param_dtype": "fp32"},
        use_dynamic_bsz=False,
        micro_batch_size_per_gpu=2,
        infer_micro_batch_size_per_gpu=2,
    )
    optimizer = FSDPOptimizerConfig(lr=1e-2, total_training_steps=10)
    worker = TrainingWorker(
        TrainingWorkerConfig(
            model_type=kind,
            model_config=model,
            engine_config=engine,
            optimizer_config=optimizer,
            checkpoint_config=CheckpointConfig(),
        )
    )
    worker.reset()
    return worker


@pytest.fixture(scope="module")
def actor(model_path, process_group):
    return build_worker(model_path, "language_model")


@pytest.fixture(scope="module")
def critic(model_path, process_group):
    return build_worker(model_path, "value_model")


def jagged(rows):
    return torch.nested.as_nested_tensor(rows, layout=torch.jagged)


def batch(order):
    """A mini-batch with the rows named in ``order``; None is a padding row."""
    g = torch.Generator().manual_seed(0)
    prompts = [torch.randint(7, 250, (n,), generator=g) for n in PROMPTS]
    responses = [torch.randint(7, 250, (n,), generator=g) for n in RESPONSES]
    noise = [torch.randn(n, generator=g) for n in RESPONSES]
    columns: dict = {name: [] for name in ("prompts", "responses", "input_ids", "position_ids", "response_mask",
                                           "old_log_probs", "advantages", "returns", "values")}  # fmt: skip
    for row in order:
        if row is None:
            p, r = torch.full((17,), 2), torch.full((1,), 2)
            mask, old, advantage = torch.zeros(1, dtype=torch.int64), torch.full((1,), -3.0), 9.0
            returns, values = torch.full((1,), 50.0), torch.full((1,), -50.0)
        else:
            p, r = prompts[row], responses[row]
            mask, old, advantage = torch.ones(len(r), dtype=torch.int64), noise[row] * 0.1 - 5.5, (-1.0) ** row
            returns, values = torch.full((len(r),), 0.5 + row), torch.full((len(r),), 0.25 * row)
        ids = torch.cat([p, r])
        rows = (p, r, ids, torch.arange(len(ids)), mask, old, torch.full((len(r),), advantage), returns, values)
        for name, value in zip(columns, rows, strict=True):
            columns[name].append(value)
    data = {name: jagged(values) for name, values in columns.items()}
    trained = float(sum(row is not None for row in order))
    data |= {"loss_mask": data["response_mask"], "actor_rows": torch.full((len(order),), trained)}
    return data | {"critic_rows": data["actor_rows"].clone()}


def gradients(worker, data, micro):
    """Gradients, loss and metrics of one update that is not applied."""
    n = len(data["actor_rows"])
    td = tu.get_tensordict(
        dict(data),
        non_tensor_dict={
            "temperature": 1.0,
            "calculate_entropy": True,
            "global_batch_size": n,
            "mini_batch_size": n,
            "epochs": 1,
            "seed": 1,
            "dataloader_kwargs": {"shuffle": False},
            "micro_batch_size_per_gpu": micro,
        },
    )
    grads = {}

    def capture():
        for name, parameter in worker.engine.module.named_parameters():
            if parameter.grad is not None:
                grads[name] = parameter.grad.full_tensor().clone()
        return 0.0

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker.engine, "optimizer_step", capture)
        output = worker.train_mini_batch(td)
    return grads, reduce_metrics(tu.get(output, "metrics"))


CLEAN = [0, 1, 2, 3, 4, 5]
PADDED = [None, 0, 1, None, None, 2, 3, None, 4, 5]


def assert_same_gradients(got, expected):
    """Equal up to float32 round-off: another cut into micro-batches adds the same terms in another order."""
    assert max(float(g.abs().max()) for g in expected.values()) > 1e-4
    for name, gradient in expected.items():
        scale = float(gradient.abs().max())
        torch.testing.assert_close(
            got[name], gradient, rtol=1e-5, atol=2e-6 * scale + 1e-9, msg=lambda m, n=name: f"{n}: {m}"
        )


@pytest.mark.parametrize(
    ("mode", "micro"),
    [
        ("token-mean", 1),
        ("token-mean", 5),
        ("seq-mean-token-mean", 2),
        ("seq-mean-token-sum", 1),
        ("seq-mean-token-sum-norm", 2),
    ],
)
def test_actor_padding_is_exactly_nothing(actor, mode, micro):
    config = FSDPActorConfig(
        strategy="fsdp2", ppo_mini_batch_size=6, ppo_micro_batch_size_per_gpu=2, rollout_n=1, use_kl_loss=False,
        loss_agg_mode=mode, loss_scale_factor=7, optim=FSDPOptimizerConfig(lr=1e-2, total_training_steps=1),
    )  # fmt: skip
    actor.set_loss_fn(partial(actor_loss, config=config))
    expected, wanted = gradients(actor, batch(CLEAN), 6)
    got, metrics = gradients(actor, batch(PADDED), micro)
    assert_same_gradients(got, expected)
    for name in ("loss", "actor/pg_loss", "actor/pg_clipfrac", "actor/ppo_kl", "actor/entropy_loss"):
        assert metrics[name] == pytest.approx(wanted[name], rel=1e-5, abs=1e-7), name


@pytest.mark.parametrize("micro", [1, 5])
def test_critic_padding_is_exactly_nothing_and_only_the_action_start_counts(critic, micro):
    config = FSDPCriticConfig(
        strategy="fsdp2", ppo_mini_batch_size=6, ppo_micro_batch_size_per_gpu=2, rollout_n=1, cliprange_value=1e6,
        optim=FSDPOptimizerConfig(lr=1e-2, total_training_steps=1),
    )  # fmt: skip
    critic.set_loss_fn(partial(critic_loss, config=config, action_start=True))
    expected, wanted = gradients(critic, batch(CLEAN), 6)
    got, metrics = gradients(critic, batch(PADDED), micro)
    assert_same_gradients(got, expected)
    for name in ("loss", "critic/vf_loss", "critic/vpred_mean"):
        assert metrics[name] == pytest.approx(wanted[name], rel=1e-5, abs=1e-7), name
    # by hand: V at the last prompt token, the position that is there before the response begins
    data = batch(CLEAN)
    td = tu.get_tensordict(dict(data), non_tensor_dict={"temperature": 1.0, "compute_loss": False})
    values = critic.infer_batch(td)["values"].unbind()
    starts = torch.stack([v[n - 1] for v, n in zip(values, PROMPTS, strict=True)])
    by_hand = 0.5 * ((starts - (torch.arange(6.0) + 0.5)) ** 2).mean()
    assert metrics["loss"] == pytest.approx(float(by_hand), rel=1e-5)


def test_a_mini_batch_of_padding_alone_is_no_update(actor):
    config = FSDPActorConfig(
        strategy="fsdp2", ppo_mini_batch_size=6, ppo_micro_batch_size_per_gpu=2, rollout_n=1, use_kl_loss=False,
        optim=FSDPOptimizerConfig(lr=1e-2, total_training_steps=1),
    )  # fmt: skip
    actor.set_loss_fn(partial(actor_loss, config=config))
    grads, metrics = gradients(actor, batch([None, None]), 1)
    assert all(float(g.abs().max()) == 0.0 for g in grads.values())
    assert metrics["loss"] == 0.0


def records(*rows):
    names = ("trajectory", "step_index", "kind", "step_reward", "truncated", "terminated")
    return [dict(zip(names, row, strict=True)) for row in rows]


EXTRA = records(
    ("t", 2, "value", 9.0, False, False),
    ("t", 0, "step", 0.25, False, False),
    ("t", 1, "step", -1.5, True, False),
    ("u", 0, "step", 4.0, True, True),
    ("w", 0, "masked", 7.0, False, True),
    ("u", 0, "padding", 4.0, True, True),
)


def test_each_row_gets_its_own_reward_at_its_last_trained_token():
    mask = torch.tensor([[0, 0, 0], [1, 1, 0], [1, 1, 1], [1, 0, 0], [0, 0, 0], [0, 0, 0]])
    scores = step_scores(EXTRA, mask)
    assert scores.tolist() == [[0, 0, 0], [0, 0.25, 0], [0, 0, -1.5], [4.0, 0, 0], [0, 0, 0], [0, 0, 0]]


def test_step_rows_take_the_value_before_the_first_token():
    kinds = np.array([fields["kind"] for fields in EXTRA])
    values = torch.arange(18.0).reshape(6, 3)
    rows = step_rows(EXTRA, ["g", "g", "g", "g", "h", "pad"], kinds, torch.arange(6.0), values)
    assert rows.values.tolist() == [0, 3, 6, 9, 12, 15]
    assert rows.final_values[:3].tolist() == [0, 0, 0] and rows.final_values[3:].isnan().all()
    assert rows.rewards.tolist() == [0, 1, 2, 3, 4, 5]
    assert rows.trajectory.tolist() == [0, 0, 0, 1, 2, 1]
    assert rows.step.tolist() == [2, 0, 1, 0, 0, 0]
    assert rows.group.tolist() == [0, 0, 0, 0, 1, 2]
    assert rows.valid.tolist() == [False, True, True, True, False, False]
    assert rows.truncated.tolist() == [False, False, True, False, False, False]


def test_rows_are_ordered_as_submitted_whatever_their_names_and_arrival():
    rows = [(prompt, session, i) for prompt in range(3) for session in range(2) for i in range(12)]
    for seed in range(3):
        rng = np.random.default_rng(seed)
        uids = [f"{x:08x}-1" for x in rng.integers(0, 2**32, 3)]
        came = [rows[i] for i in rng.permutation(len(rows))]
        keys = [f"{uids[prompt]}_{session}_{i}" for prompt, session, i in came]
        order = by_submission(keys, {uid: i for i, uid in enumerate(uids)})
        assert [came[i] for i in order] == rows


def test_what_follows_a_record_follows_it():
    said = []

    class Log:
        def log(self, data, step):
            said.append((data, step))

        def finish(self, exit_code=0):
            said.append(exit_code)

    logger = LogThen(Log(), lambda: said.append("saved"))
    logger.log(data={"x": 1}, step=3)
    logger.finish(exit_code=7)
    assert said == [({"x": 1}, 3), "saved", 7]


def test_sampled_and_trained_log_probabilities_agree(actor, model_path):
    engine = load_engine(model_path, max_length=128, max_rows=8)
    config = FSDPActorConfig(
        strategy="fsdp2", ppo_mini_batch_size=6, ppo_micro_batch_size_per_gpu=2, rollout_n=1, use_kl_loss=False,
        optim=FSDPOptimizerConfig(lr=1e-2, total_training_steps=1),
    )  # fmt: skip
    actor.set_loss_fn(partial(actor_loss, config=config))
    texts = [torch.randint(7, 250, (n,), generator=torch.Generator().manual_seed(n)).tolist() for n in PROMPTS]
    seen = []
    for _ in range(2):
        done = [engine.submit(p, SamplingParams(9, temperature=0.7, ignore_eos=True)) for p in texts]
        engine.run()
        mask = jagged([torch.ones(9, dtype=torch.int64) for _ in done])
        td = {
            "prompts": jagged([torch.tensor(r.prompt_ids) for r in done]),
            "responses": jagged([torch.tensor(r.token_ids) for r in done]),
            "input_ids": jagged([torch.tensor(r.tokens) for r in done]),
            "position_ids": jagged([torch.arange(len(r.tokens)) for r in done]),
            "response_mask": mask,
            "loss_mask": mask,
        }
        out = actor.infer_batch(tu.get_tensordict(td, non_tensor_dict={"temperature": 0.7, "compute_loss": False}))
        for request, log_probs in zip(done, out["log_probs"].unbind(), strict=True):
            trained = log_probs[len(request.prompt_ids) - 1 : len(request.tokens) - 1]
            torch.testing.assert_close(trained, torch.tensor(request.log_probs), rtol=0, atol=1e-5)
        seen.append([r.log_probs for r in done])
        full = batch(CLEAN)
        actor.train_mini_batch(
            tu.get_tensordict(
                full,
                non_tensor_dict={
                    "temperature": 1.0,
                    "global_batch_size": 6,
                    "mini_batch_size": 6,
                    "epochs": 1,
                    "seed": 1,
                    "dataloader_kwargs": {"shuffle": False},
                },
            )
        )
        weights, _ = actor.engine.get_per_tensor_param()
        engine.load_weights({name: tensor.detach().clone() for name, tensor in weights}, version=1)
    assert seen[0] != seen[1]
