"""Pictures through verl, without Ray: agent loop, generation server, verl's worker and its models.

1. every row has the image tokens of its pictures, merged or not, and positions along time, height and width
2. the trainer's log-probabilities are the sampler's, those of merged rows are those of steps, padded and packed; a
   micro-batch without any picture is computed too
3. the server takes the worker's weights, the vision tower's included
4. episodes in files keep their pictures
5. vLLM gets one image token for a picture, the picture, and a bias against tokens that stand for pictures
6. what cannot be trained with pictures is refused by name before anything starts
"""

from __future__ import annotations

import asyncio
import copy
import json
import sys
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
import torch
import transformers

pytest.importorskip("PIL")
import composing
from agent_loops import Client, play_session
from local_training import build_worker
from omegaconf import OmegaConf
from verl.experimental.agent_loop.agent_loop import AgentLoopWorker
from verl.trainer.ppo.padding_utils import construct_minimal_padding_template
from verl.utils import tensordict_utils as tu
from verl.workers.rollout.replica import TokenOutput

from agent_envs import read_episodes
from agent_envs.adapters.tiny.model import save_model
from agent_envs.adapters.tiny.vision import build_vision_model
from agent_envs.adapters.verl.batch.rows import INPUTS, TOKENS
from agent_envs.adapters.verl.config.models import check_vision, sees_pictures
from agent_envs.adapters.verl.rollout import agent_loop
from agent_envs.adapters.verl.rollout.cpu_rollout import load_engine
from agent_envs.adapters.verl.run import plugin
from agent_envs.cli.main import main
from agent_envs.errors import ConfigError
from agent_envs.policies.local.server import GenerateServer
from agent_envs.spaces import ImageText, UnicodeText

pytestmark = pytest.mark.filterwarnings("ignore")
LENGTH = 1200


class ShownEnv(gym.Env):
    """Four pictures of different sizes, and words alone between them."""

    instructions = "Look."
    tools: list = []
    num_tasks = 100

    def __init__(self):
        self.observation_space, self.action_space = ImageText(1000, max_images=1, max_side=80), UnicodeText()

    def info(self):
        return {"task_id": "t", "split": "train", "index": self.index, "source": "test", "invalid_action": False,
                "score": 0.5, "success": False, "reward_components": {}, "anchor": "", "tool_results": []}  # fmt: skip

    def seen(self):
        if self.t == 2:
            return {"text": "Nothing.", "images": ()}
        noise = np.random.default_rng([self.index, self.t]).integers(0, 256, (20 + 9 * self.t, 70 - 11 * self.t, 3))
        return {"text": f"Number {self.t}: <image> now", "images": (noise.astype(np.uint8),)}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.index, self.t = options["index"], 0
        return self.seen(), self.info()

    def step(self, action):
        self.t += 1
        return self.seen(), len(action) % 3 / 2, self.t == 4, False, self.info()


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A vision-language model in its folder, and a server."""
    folder = tmp_path_factory.mktemp("vision") / "model"
    made = build_vision_model(patch=8, width=48)
    save_model(made.model, made.tokenizer, folder, made.pictures)
    gym.register("Shown-v0", entry_point=ShownEnv)
    engine = load_engine(str(folder), max_length=LENGTH, max_rows=16)
    server = GenerateServer(engine)
    yield SimpleNamespace(folder=folder, tokenizer=made.tokenizer, pictures=made.pictures, server=server, engine=engine)
    server.close()
    agent_loop._pool.close()
    del gym.registry["Shown-v0"]


@pytest.fixture(scope="module")
def composed(made):
    return config_of(made, "run")


@pytest.fixture
def processes(monkeypatch, process_group):
    """verl's changes to the classes of models are undone."""
    for kind in ("Qwen2VL", "Qwen2_5_VL"):
        module = sys.modules[getattr(transformers, f"{kind}Model").__module__]
        for name in ("Model", "ForConditionalGeneration", "Attention"):
            each = getattr(module, kind + name)
            monkeypatch.setattr(each, "forward", each.forward)


def config_of(made, out, **settings):
    overrides = [f"data.max_prompt_length={LENGTH - 8}", "data.max_response_length=8"]
    overrides += [f"+{name}={value}" for name, value in settings.items()]
    run = composing.composed(*overrides, env="Shown-v0", algo="grpo", steps=2, out=str(out), model=str(made.folder))
    return run.verl()


def play(made, config, wrappers, client=None):
    """Rows of an episode in each stack of wrappers."""
    client = client or Client(made.server)

    async def one(session, specs):
        how = {"index": 5 + session, "session": session, "kind": "qwen2_vl", "wrappers": specs}
        return await play_session(config, client, made.tokenizer, "Shown-v0", **how)

    async def everything():
        return await asyncio.gather(*(one(i, specs) for i, specs in enumerate(wrappers)))

    worker, rows = SimpleNamespace(processor=None), []
    for output in [output for outputs in asyncio.run(everything()) for output in outputs]:
        row = output.as_dict()  # and what verl's workers store beside it (v1/agent_loop_tq.py:187)
        ids = row["input_ids"] = torch.cat([row["prompts"], row["responses"]])
        row["loss_mask"] = row["response_mask"]
        row[INPUTS] = AgentLoopWorker._compute_multi_modal_inputs(worker, output, ids)
        places = AgentLoopWorker._compute_position_ids(worker, ids[None], torch.ones_like(ids)[None], row[INPUTS])
        row["position_ids"] = places.squeeze(0)
        rows.append(row)
    return rows


GROWS, FORGETS = [], ["ChatMessages", "SlidingWindow(k=1)"]


def ask(worker, rows):
    """The log-probabilities that verl's worker computes of the sampled tokens of each row, and those of sampling."""
    settings = {"temperature": 1.0, "compute_loss": False, "calculate_entropy": False}
    columns = {name: tu.nested_tensor_from_tensor_list([row[name] for row in rows]) for name in TOKENS}
    request = tu.get_tensordict({**columns, INPUTS: [row[INPUTS] for row in rows]}, non_tensor_dict=settings)
    output = worker.infer_batch(request)
    computed, sampled = [], []
    for row, log_probs in zip(rows, output["log_probs"].unbind(), strict=True):
        first, wrote = len(row["prompts"]) - 1, row["response_mask"].bool()
        computed.append(log_probs[first : first + len(wrote)][wrote])
        sampled.append(row["rollout_log_probs"][wrote])
    return torch.cat(computed), torch.cat(sampled)


def test_files_of_episodes_keep_their_pictures(made, tmp_path):
    (row,) = play(made, config_of(made, tmp_path), [GROWS])
    path = tmp_path / "episodes" / "train-000001.jsonl"
    path.write_text(row["extra_fields"]["episode"] + "\n")
    (episode,) = read_episodes(path)
    assert [len(step.prompt_pictures) for step in episode.steps] == [1, 2, 2, 3]
    assert all(picture.array.shape[2] == 3 for step in episode.steps for picture in step.prompt_pictures)


def test_vllm_is_asked_as_it_takes_pictures(made, tmp_path):
    class Stub:
        asked: list = []

        async def generate(self, request_id, **request):
            self.asked.append(request)
            return TokenOutput(token_ids=[5, made.tokenizer.eos_token_id], log_probs=[-1.0, -1.0],
                               stop_reason="completed", extra_fields={})  # fmt: skip

    config = config_of(made, tmp_path)
    config.actor_rollout_ref.rollout.name = "vllm"
    rows = play(made, config, [GROWS], Stub())
    for number, request in enumerate(Stub.asked):
        pictures = [1, 2, 2, 3][number]
        assert request["prompt_ids"].count(made.pictures.token_id) == len(request["image_data"]) == pictures
        assert request["sampling_params"]["logit_bias"] == dict.fromkeys(made.pictures.reserved, -100.0)
    assert request["image_data"][0].size == (70, 20)
    assert int((rows[0]["input_ids"] == made.pictures.token_id).sum()) == len(rows[0]["multi_modal_inputs"][
        "pixel_values"]) // 4  # fmt: skip


@pytest.mark.parametrize(
    ("algo", "override"),
    [
        ("gae", ""),
        ("grpo", "+agentr1.layout=tree"),
        ("grpo", "agentr1.mode=colocate"),
        ("grpo", "model_engine=megatron"),
        ("grpo", "actor_rollout_ref.model.lora_rank=8"),
        ("grpo", "actor_rollout_ref.model.use_fused_kernels=True"),
    ],
)
def test_what_does_not_go_with_pictures_is_refused_by_name(made, composed, algo, override):
    config = copy.deepcopy(composed)
    config.algorithm.adv_estimator = algo
    if override:
        name, _, value = override.lstrip("+").partition("=")
        OmegaConf.update(config, name, value == "True" if value in ("True", "False") else value, force_add=True)
    name = override.lstrip("+") or "the critic of algorithm.adv_estimator=gae"
    with pytest.raises(ConfigError, match=f"does not go with .*{name.removesuffix('=8')}"):
        check_vision(config, needs_critic=algo == "gae")


def test_a_model_of_text_is_refused_before_anything_starts(made, model_path, tmp_path, capsys):
    out = tmp_path / "run"
    short = ["data.max_prompt_length=1000", "data.max_response_length=8"]
    assert main(["train", "--env", "Shown-v0", "--model", model_path, "--out", str(out), *short]) == 2
    assert "a model of text, cannot take pictures" in capsys.readouterr().err and not out.exists()


def test_the_trainer_sees_what_the_sampler_saw(made, processes, tmp_path):
    merged = play(made, config_of(made, tmp_path / "merged"), [GROWS, FORGETS])
    apart = play(made, config_of(made, tmp_path / "steps", **{"agentr1.layout": "steps"}), [GROWS, FORGETS])
    assert len(merged) < len(apart) == 8
    for row in (*merged, *apart):
        places, grids = row["position_ids"], row["multi_modal_inputs"].get("image_grid_thw", torch.zeros(0, 3))
        assert places.shape == (4, len(row["input_ids"])) and places[0].tolist() == list(range(len(places[0])))
        features = int(grids.prod(1).sum()) // 4
        assert int((row["input_ids"] == made.pictures.token_id).sum()) == features
        assert len(row["multi_modal_inputs"].get("pixel_values", ())) == 4 * features
    padding, _ = construct_minimal_padding_template(merged[0], {}, made.tokenizer.eos_token_id)
    del padding["attention_mask"]
    seen = []
    for packing in (False, True):
        worker = build_worker(str(made.folder), "language_model", packing=packing, micro_tokens=2500)
        for rows in (merged, apart):
            computed, sampled = ask(worker, [*rows, padding])
            assert len(computed) > 20 and float((computed - sampled).abs().max()) < 3e-5
            seen.append(computed.sort().values)
        assert len(ask(worker, [padding])[0]) == 0  # a micro-batch without any picture
    assert all(float((each - seen[0]).abs().max()) < 1e-5 for each in seen)
    weights, _ = worker.engine.get_per_tensor_param()
    sent = {name: each.detach().clone() for name, each in weights}
    asyncio.run(made.server.call(lambda: made.engine.load_weights(sent, 3)))
    blind = [{**row, "multi_modal_inputs": dict(row["multi_modal_inputs"])} for row in merged]
    for row in blind:
        row["multi_modal_inputs"]["pixel_values"] = -row["multi_modal_inputs"]["pixel_values"]
    assert float((ask(worker, blind)[0] - ask(worker, merged)[0]).abs().max()) > 1e-3


def test_a_vision_language_model_of_another_kind_gets_text_alone(made, tmp_path):
    """Its rows have no pictures, and it may have no token for videos."""
    names = {"model_type": "llava", "vision_config": {}, "image_token_index": 5}
    (tmp_path / "config.json").write_text(json.dumps(names))
    assert sees_pictures(str(made.folder)) and not sees_pictures(str(tmp_path))
    head = torch.nn.Linear(2, 8)
    for kind, left_out in (("llava", 0), ("qwen2_vl", 2)):
        config = SimpleNamespace(model_type=kind, vision_config={}, image_token_id=5)
        if left_out:
            config.video_token_id = 6
        plugin._leave_out_pictures(
            lambda model: None, SimpleNamespace(config=config, get_output_embeddings=lambda: head)
        )
        assert int((head(torch.ones(1, 2)) < -1e8).sum()) == left_out
