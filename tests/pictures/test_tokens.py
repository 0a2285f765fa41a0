"""Pictures on the token path.

1. a picture takes as many tokens as the vision tower gives features, whatever its size
2. over random episodes, image tokens equal image features in every row of every layout
3. the log-probabilities of merged rows are those of the rows of steps, and of sampling, for every architecture
4. prompts with equal tokens and different pictures share no row
5. what could forge or lose a picture: words, sampled tokens, templates that leave pictures out
6. budgets and rebuilt prompts count and drop pictures with their steps
7. episodes keep the pictures of their prompts; files of text do not change
"""

import dataclasses
import json

import gymnasium as gym
import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("PIL")

from agent_envs import read_episodes, run_episode, write_episodes  # noqa: E402
from agent_envs.adapters.batches import build_batch  # noqa: E402
from agent_envs.adapters.merging import StepTokens, merge_steps  # noqa: E402
from agent_envs.adapters.tiny.model import load_base, save_model  # noqa: E402
from agent_envs.adapters.tiny.vision import VisionModel, build_vision_model  # noqa: E402
from agent_envs.adapters.torch import loop  # noqa: E402
from agent_envs.adapters.torch.settings import LoopConfig  # noqa: E402
from agent_envs.episodes import record  # noqa: E402
from agent_envs.episodes.plain import EpisodeSize  # noqa: E402
from agent_envs.episodes.record import Step  # noqa: E402
from agent_envs.errors import ConfigError, DataError, PromptError  # noqa: E402
from agent_envs.pictures.picture import Picture  # noqa: E402
from agent_envs.policies import TransformersPolicy  # noqa: E402
from agent_envs.policies.local.loading import load_model  # noqa: E402
from agent_envs.prompts.builder import PromptBuilder  # noqa: E402
from agent_envs.prompts.pictures import PictureTokens, load_picture_tokens  # noqa: E402
from agent_envs.wrappers import ChatMessages, RebuildPrompt, SlidingWindow, TokenBudget  # noqa: E402
from tests.pictures.shades import call, shade  # noqa: E402


@pytest.fixture(scope="module")
def made():
    return build_vision_model(patch=8, width=48)


@pytest.fixture(scope="module")
def folder(made, tmp_path_factory):
    target = tmp_path_factory.mktemp("vision") / "model"
    save_model(made.model, made.tokenizer, target, made.pictures)
    return str(target)


@pytest.fixture(scope="module")
def counting(load_file):
    return load_file("benchmarks/picture_tokens.py")


def toy(kind: str, made: VisionModel) -> VisionModel:
    """A freshly drawn model of an architecture at toy size, with the tiny model's tokenizer."""
    import transformers
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    vocabulary = made.tokenizer.get_vocab()
    text = {
        "vocab_size": len(made.tokenizer), "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 4096, "head_dim": 16,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [4, 2, 2]},
    }  # fmt: skip
    vision = {
        "Qwen2VL": {"depth": 2, "embed_dim": 32, "hidden_size": 32, "num_heads": 2, "patch_size": 14},
        "Qwen2_5_VL": {
            "depth": 2, "hidden_size": 32, "out_hidden_size": 32, "intermediate_size": 48, "num_heads": 2,
            "patch_size": 14, "window_size": 56, "fullatt_block_indexes": [1],
        },
        "Qwen3VL": {
            "depth": 2, "hidden_size": 32, "out_hidden_size": 32, "intermediate_size": 48, "num_heads": 2,
            "patch_size": 16, "num_position_embeddings": 64, "deepstack_visual_indexes": [0],
        },
    }[kind]  # fmt: skip
    config = getattr(transformers, f"{kind}Config")(
        text_config=text, vision_config=vision, image_token_id=vocabulary["<|image_pad|>"],
        video_token_id=vocabulary["<|video_pad|>"], vision_start_token_id=vocabulary["<|vision_start|>"],
        vision_end_token_id=vocabulary["<|vision_end|>"], eos_token_id=made.tokenizer.eos_token_id,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = getattr(transformers, f"{kind}ForConditionalGeneration")(config).eval()
        for name, weight in model.named_parameters():  # far enough from zero that every picture and place counts
            if weight.dim() > 1 and "embed" not in name:
                torch.nn.init.normal_(weight, std=1.5 / weight[0].numel() ** 0.5)
            elif "embed_tokens" in name:
                torch.nn.init.normal_(weight, std=0.5)
    processor = Qwen2VLImageProcessorPil(
        patch_size=vision["patch_size"], merge_size=2, size={"shortest_edge": 1024, "longest_edge": 128 * 128}
    )
    return VisionModel(model, made.tokenizer, PictureTokens(processor, made.tokenizer))


def played(made: VisionModel, env: gym.Env, actions: list[str] | None = None, seed: int = 0, **settings):
    """An episode whose tokens the model samples."""
    given = {"max_tokens": 5, "context_length": 3000, "temperature": 1.0, "seed": seed} | settings
    policy = TransformersPolicy(made.model, tokenizer=made.tokenizer, pictures=made.pictures, **given)
    try:
        episode = run_episode(env, policy, options={"index": 5 + seed})
    finally:
        policy.close()
    assert not episode.error, episode.error
    return episode


def token_scores(made: VisionModel, episodes, layout: str) -> tuple[torch.Tensor, torch.Tensor, loop.Batch]:
    """The log-probability of every sampled token by step, as the PyTorch loop computes it, and when sampled."""
    config = LoopConfig(micro_tokens=4096)
    batch = loop.assemble(episodes, list(range(len(episodes))), layout=layout, image_tokens=made.pictures)
    scores, order = loop.score(made.model, batch, config), torch.argsort(batch.step, stable=True)
    order = order[batch.step[order] >= 0]
    return scores[order], batch.sampled[order], batch


@pytest.fixture
def calls_alone(monkeypatch):
    """Whatever a model samples is read as a call, so that tool results with pictures follow."""

    def read(tokenizer, token_ids, ends):
        return call("look", times=len(token_ids) * 31 + token_ids[0])

    monkeypatch.setattr("agent_envs.policies.tokens.response_text", read)


class TestCounts:
    def test_tokens_are_features_for_every_size_and_architecture(self, made):
        rng = np.random.default_rng(0)
        sizes = [(1, 1), (3, 50), (1, 700), (1000, 2), (3, 3), (300, 200)]
        sizes += [tuple(int(x) for x in rng.integers(1, 120, 2)) for _ in range(4)]
        pictures = [Picture(rng.integers(0, 256, (*size, 3), np.uint8)) for size in sizes]
        for kind in ("Qwen2VL", "Qwen2_5_VL", "Qwen3VL", ""):
            model, _, tokens = toy(kind, made) if kind else made
            with torch.no_grad():
                features = model.get_image_features(*map(torch.from_numpy, tokens.inputs(pictures))).pooler_output
            assert [len(f) for f in features] == [tokens.count(p) for p in pictures]
            parts = [
                part for p in pictures for part in ({"type": "text", "text": "see "}, {"type": "image", "image": p})
            ]
            ids = PromptBuilder(made.tokenizer, pictures=tokens).start([{"role": "user", "content": parts}])
            expected, _ = model.model.get_rope_index(
                torch.tensor([ids]), mm_token_type_ids=(torch.tensor([ids]) == tokens.token_id).int(),
                image_grid_thw=torch.from_numpy(tokens.inputs(pictures).image_grid_thw),
            )  # fmt: skip
            assert np.array_equal(tokens.positions(ids, pictures), expected[:, 0])

    def test_random_episodes_have_no_mismatch(self, counting):
        found = counting.count(20, seed=3)
        assert found["mismatches"] == 0 and found["pictures"] > 400 and found["merged"] > 20

    def test_a_row_without_its_picture_is_refused(self, made):
        builder = PromptBuilder(made.tokenizer, pictures=made.pictures)
        picture = Picture(shade(3, 40, 60))
        ids = builder.start([{"role": "user", "content": [{"type": "image", "image": picture}]}])
        made.pictures.check(ids, [picture])
        for wrong in ([], [picture, picture], [Picture(shade(3, 80, 60))]):
            with pytest.raises(DataError, match="image tokens, and its"):
                made.pictures.check(ids, wrong)
        assert made.pictures.expanded(made.pictures.collapsed(ids, [picture]), [picture]) == ids


@pytest.mark.parametrize("kind", ["", "Qwen2VL", "Qwen2_5_VL", "Qwen3VL"])
def test_merged_rows_have_the_log_probabilities_of_steps_and_of_sampling(made, kind, calls_alone):
    used = toy(kind, made) if kind else made
    envs = [
        gym.make("Shades-v0"),
        ChatMessages(gym.make("Shades-v0")),
        SlidingWindow(ChatMessages(gym.make("Shades-v0")), k=1),
        RebuildPrompt(gym.make("Shades-v0"), history=1),
    ]
    policy = TransformersPolicy(
        used.model, tokenizer=used.tokenizer, pictures=used.pictures, max_tokens=4, context_length=3000, seed=1
    )
    episodes = [run_episode(env, policy, options={"index": 7 + i}) for i, env in enumerate(envs)]
    policy.close()
    assert not any(episode.error for episode in episodes)
    merged, sampled, batch = token_scores(used, episodes, "merged")
    steps, _, apart = token_scores(used, episodes, "steps")
    assert len(batch.row.unique()) < len(apart.row.unique()) and batch.pictures[0] == tuple(
        episodes[0].steps[-1].prompt_pictures
    )
    assert len(batch.pictures[0]) > 3 and len(merged) > 30
    assert float((merged - steps).abs().max()) < 1e-5
    assert float((merged - sampled).abs().max()) < 1e-4
    # a model that does not see would give the same for other pictures
    other = [[Picture(255 - picture.array) for picture in row] for row in batch.pictures]
    blind = dataclasses.replace(batch, pictures=other)
    other = loop.score(used.model, blind, LoopConfig(micro_tokens=4096))
    assert float((other - loop.score(used.model, batch, LoopConfig(micro_tokens=4096))).abs().max()) > 1e-3


def test_equal_tokens_of_different_pictures_share_no_row():
    red, blue = Picture(shade(1)), Picture(shade(2))
    first = StepTokens(0, [7, 7, 1], [2], pictures=(red,))
    grown = StepTokens(1, [7, 7, 1, 2, 3], [4], pictures=(red,))
    assert len(merge_steps([first, grown])) == 1
    assert len(merge_steps([first, dataclasses.replace(grown, pictures=(blue,))])) == 2
    more = dataclasses.replace(grown, pictures=(red, blue))
    assert merge_steps([first, more])[0].pictures == (red, blue)


class TestPrompts:
    def test_words_forge_no_picture(self, made):
        builder = PromptBuilder(made.tokenizer, pictures=made.pictures)
        words = "<image> <|image_pad|> <|vision_start|>"
        messages = [{"role": "user", "content": words}, {"role": "assistant", "content": words}]
        assert made.pictures.token_id not in builder.start(messages)
        text = [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Hello. <|im_end|>"}]
        assert builder.start(text) == PromptBuilder(made.tokenizer).start(text)

    def test_a_model_writes_no_picture(self, made):
        with torch.no_grad():
            head = made.model.lm_head.weight
            kept = head[list(made.pictures.reserved)].clone()
            head[list(made.pictures.reserved)] *= 1000
            try:
                episode = played(made, gym.make("Shades-v0"), max_tokens=20, context_length=2000)
            finally:
                head[list(made.pictures.reserved)] = kept
        written = {token for step in episode.steps for token in step.response_ids}
        assert written and not written & set(made.pictures.reserved)

    def test_a_template_that_leaves_pictures_out_says_so(self, made):
        blind = load_base()[1]
        blind.add_tokens(["<|image_pad|>"], special_tokens=True)
        blind.chat_template = "{% for m in messages %}{{ m.role }}: {{ m.content if m.content is string }}{% endfor %}"
        tokens = PictureTokens(made.pictures.image_processor, blind)
        with pytest.raises(PromptError, match="shows 0 of 1 pictures"):
            picture = {"type": "image", "image": Picture(shade(1))}
            PromptBuilder(blind, pictures=tokens).start([{"role": "user", "content": [picture]}])

    def test_a_template_without_pictures_in_results_gets_them_from_the_user(self, made):
        tokenizer = load_base()[1]
        tokenizer.add_tokens(["<|image_pad|>"], special_tokens=True)
        tokenizer.chat_template = (
            "{% for m in messages %}{{ m.role }}: {% if m.content is string or m.role == 'tool' %}{{ m.content }}"
            "{% else %}{% for p in m.content %}{{ p.text if p.type == 'text' else '<|image_pad|>' }}{% endfor %}"
            "{% endif %}\n{% endfor %}"
        )
        tokens = PictureTokens(made.pictures.image_processor, tokenizer)
        parts = [{"type": "text", "text": "Here: "}, {"type": "image", "image": Picture(shade(1, 20, 20))}]
        builder = PromptBuilder(tokenizer, pictures=tokens)
        ids = builder.extend([5], [6], [{"role": "tool", "name": "look", "content": parts}])
        tokens.check(ids, [Picture(shade(1, 20, 20))])
        assert "user: Here: <|image_pad|>" in tokenizer.decode(ids)

    def test_text_alone_is_what_a_model_of_text_sees(self, made, tmp_path, caplog):
        assert load_picture_tokens(str(tmp_path), made.tokenizer) is None
        (tmp_path / "preprocessor_config.json").write_text('{"image_processor_type": "CLIPImageProcessor"}')
        assert load_picture_tokens(str(tmp_path), made.tokenizer) is None
        assert "it is a model with the image processor CLIPImageProcessor" in caplog.text
        (tmp_path / "preprocessor_config.json").write_text('{"image_processor_type": "Qwen2VLImageProcessor"}')
        assert load_picture_tokens(str(tmp_path), made.tokenizer) is not None
        (tmp_path / "config.json").write_text('{"model_type": "llava"}')
        assert load_picture_tokens(str(tmp_path), made.tokenizer) is None
        assert "it is a llava with the image processor Qwen2VLImageProcessor" in caplog.text
        base, tokenizer = load_base()
        policy = TransformersPolicy(base, tokenizer=tokenizer)
        with pytest.raises(ConfigError, match="^TransformersPolicy with a model of text cannot take pictures"):
            policy.start(gym.make("Shades-v0"))
        policy.close()
        with pytest.raises(
            ConfigError, match="^pictures are shown to models of the kinds qwen2_vl, qwen2_5_vl, qwen3_vl, got a"
        ):
            TransformersPolicy(base, tokenizer=made.tokenizer, pictures=made.pictures)
        ids = torch.tensor([tokenizer.encode("A house of 3 rooms.")])
        with torch.no_grad():
            assert torch.equal(base(ids).logits, made.model(ids).logits[..., : len(tokenizer)])
        assert sum(p.numel() for p in made.model.parameters()) < 1_000_000


class TestContexts:
    def test_a_budget_counts_pictures_and_drops_them_with_their_steps(self, folder, made):
        env = TokenBudget(ChatMessages(gym.make("Shades-v0")), n=150, tokenizer=folder)
        messages, info = env.reset(options={"index": 5})
        builder = PromptBuilder(made.tokenizer, env.get_wrapper_attr("tools"), pictures=made.pictures)
        assert info["prompt_tokens"] == len(builder.start(messages)) <= 150
        dropped = []
        for times in (2, 3, 4):
            messages, *_, info = env.step(call("look", times=times))
            dropped.append(info["dropped_exchanges"])
            assert info["prompt_tokens"] <= 150
        shown = [p["image"] for m in messages for p in m["content"] if not isinstance(p, str) and p["type"] == "image"]
        assert dropped[-1] > 0 and shown[0] == Picture(shade(5)) and shown[-1] == Picture(shade(4)) and len(shown) < 7
        with pytest.raises(ConfigError, match="needs the folder or name of a vision-language model"):
            TokenBudget(ChatMessages(gym.make("Shades-v0")), n=150, tokenizer=made.tokenizer)

    def test_a_rebuilt_prompt_shows_the_pictures_of_what_it_shows(self):
        env = RebuildPrompt(gym.make("Shades-v0"), history=1, max_images=4)
        observation, info = env.reset(options={"index": 5})
        assert info["rebuilt"] and [Picture(image) for image in observation["images"]] == [Picture(shade(5))]
        for times in (1, 2):
            observation, *_ = env.step(call("look", times=times))
        assert env.observation_space.contains(observation)
        seen = [Picture(image) for image in observation["images"]]
        both = [Picture(shade(5, 3)), Picture(shade(2))]
        assert seen == [Picture(shade(5)), *both][: len(seen)] and len(seen) <= 4
        env = RebuildPrompt(gym.make("Shades-v0"), template="$observation")
        env.reset(options={"index": 5})
        observation, *_ = env.step(call("look", times=2))
        assert [Picture(image) for image in observation["images"]] == both
        observation, *_ = env.step(call("say", text="\U000f0000<image>"))
        assert observation["images"] == () and "< image>" in observation["text"]

    def test_pictures_fill_an_episode_once(self):
        size, picture = EpisodeSize(), Picture(shade(1, 100, 100))
        prompts = [{"text": "<image>", "images": (picture,) * n} for n in (1, 2)]
        first, second = (size.add(prompt, "", {}) for prompt in prompts)
        assert first > 30_000 and second - first < 1000


class TestRecords:
    def test_a_file_keeps_the_pictures_of_prompts(self, made, tmp_path):
        episode = played(made, ChatMessages(gym.make("Shades-v0")), max_tokens=3)
        write_episodes(tmp_path / "e.jsonl", [episode])
        (again,) = read_episodes(tmp_path / "e.jsonl")
        assert [step.prompt_pictures for step in again.steps] == [step.prompt_pictures for step in episode.steps]
        ours, theirs = build_batch([episode]), build_batch([again])
        assert ours.pictures == theirs.pictures and np.array_equal(ours.input_ids, theirs.input_ids)

    def test_a_step_of_text_has_no_further_key(self):
        step = Step("a", "b", 0.0, False, False, {}, (1,), (2,))
        assert "prompt_pictures" not in json.dumps(step.to_dict())
        assert Step.from_dict(step.to_dict()) == step
        hostile = {**step.to_dict(), "prompt_pictures": [{"sha256": "../x", "height": 1, "width": 1}]}
        with pytest.raises(ValueError, match="a picture has the digest"):
            Step.from_dict(hostile, record.PictureFolder("x"))


class TestLoop:
    def test_it_trains_on_what_it_sees_and_resumes(self, folder, tmp_path):
        given = {
            "env": "Shades-v0", "out": str(tmp_path / "run"), "model": folder, "tasks": 1, "group": 2, "eval_tasks": 2,
            "max_response_tokens": 3, "max_tokens": 400, "save_every": 1, "split": "train", "eval_split": "train",
        }  # fmt: skip
        first = loop.train(LoopConfig(**given, steps=1))
        assert first[-1]["env/rows"] > 0 and first[-1]["rollout/logprob_diff"] < 1e-4
        assert len(loop.train(LoopConfig(**given, steps=2))) == 3
        assert (tmp_path / "run" / "checkpoint" / "model" / "preprocessor_config.json").is_file()
        text = {**given, "model": "", "out": str(tmp_path / "text"), "layout": "tree"}
        with pytest.raises(ConfigError, match="'tree' cannot hold pictures"):
            loop.train(LoopConfig(**text, steps=1))
        with pytest.raises(ConfigError, match="^a critic cannot see pictures, and .* takes them"):
            loop.train(LoopConfig(**{**given, "out": str(tmp_path / "critic")}, estimator="gae", steps=1))

    def test_a_frozen_tower_stays_as_it_is(self, made, folder, tmp_path):
        given = {
            "env": "Shades-v0", "tasks": 1, "group": 2, "eval_tasks": 0, "steps": 1, "max_response_tokens": 3,
            "max_tokens": 400, "warmup": 0, "split": "train", "eval_split": "train", "freeze_vision": True,
            "entropy_coef": 0.1,  # rewards may all be equal
        }  # fmt: skip
        loop.train(LoopConfig(**given, out=str(tmp_path / "run"), model=folder))
        trained = load_model(str(tmp_path / "run" / "checkpoint" / "model"), dtype=torch.float32, device="cpu")
        before, after = made.model.state_dict(), trained.state_dict()
        changed = {name for name, weight in after.items() if not torch.equal(weight, before[name])}
        assert changed and not any("visual" in name for name in changed)
        with pytest.raises(ConfigError, match="freeze_vision is for pictures"):
            loop.train(LoopConfig(**{**given, "env": "AgentR1/GSM8K-v0", "out": str(tmp_path / "text")}))
        assert not (tmp_path / "text" / "run.json").exists()
