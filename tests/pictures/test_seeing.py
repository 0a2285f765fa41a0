"""The tiny vision-language model learns to see.

1. a new tower is scaled by pictures, so that they differ as words do; text stays what it was
2. a warm start from noisy demonstrations knows the right action of every board that it was shown (slow)
"""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("PIL")
pytest.importorskip("pygame")

from agent_envs.adapters.tiny.vision import VisionModel, build_vision_model, spread_features  # noqa: E402
from agent_envs.adapters.tiny.warm_start import make_warm_model  # noqa: E402
from agent_envs.pictures.picture import Picture  # noqa: E402
from agent_envs.pictures.png import shrunk  # noqa: E402
from agent_envs.policies import ExpertPolicy, TransformersPolicy  # noqa: E402
from agent_envs.rollout.many import run_episodes  # noqa: E402

LAKE = {"render_mode": "rgb_array", "is_slippery": False, "max_episode_steps": 30}


def boards() -> list[Picture]:
    """FrozenLake with the player in each of its places, as far as they look different."""
    env = gym.make("FrozenLake-v1", **LAKE)
    env.reset(seed=0)
    pictures = []
    for place in range(16):
        env.unwrapped.s = place
        pictures.append(Picture(shrunk(env.render(), 64)))
    env.close()
    return list(dict.fromkeys(pictures))


def features(made: VisionModel, pictures: list[Picture]) -> np.ndarray:
    """What the tower gives for pictures of one token each, shape [pictures, numbers]."""
    inputs = made.pictures.inputs(pictures)
    with torch.no_grad():
        seen = made.model.model.get_image_features(
            torch.from_numpy(inputs.pixel_values), torch.from_numpy(inputs.image_grid_thw)
        )
    return torch.cat(seen.pooler_output).numpy()


def test_boards_differ_as_words_do():
    made, pictures = build_vision_model(), boards()
    before = features(made, pictures)
    assert len(before) == len(pictures) > 10
    assert np.linalg.norm(before - before.mean(0), axis=1).mean() < 0.3 * np.linalg.norm(before.mean(0))
    words = made.tokenizer("zoom in", return_tensors="pt").input_ids
    said = made.model(input_ids=words).logits
    spread_features(made, pictures)
    after = features(made, pictures)
    word = float(made.model.model.language_model.embed_tokens.weight.detach().norm(dim=1).mean())
    assert np.abs(after.mean(0)).max() < 1e-3 * word
    assert np.linalg.norm(after, axis=1).mean() == pytest.approx(word, rel=1e-3)
    directions = np.linalg.svd(after, compute_uv=False)
    kept = directions[directions > 0.01 * directions[0]]
    assert len(kept) > 5 and kept[-1] == pytest.approx(kept[0], rel=0.01)
    assert torch.equal(made.model(input_ids=words).logits, said)


def test_a_tower_without_different_pictures_stays_as_it_is():
    made = build_vision_model()
    before = {name: weight.clone() for name, weight in made.model.state_dict().items()}
    black = Picture(np.zeros((64, 64, 3), np.uint8))
    for pictures in ([], [black, black]):
        spread_features(made, pictures)
    assert all(torch.equal(weight, before[name]) for name, weight in made.model.state_dict().items())


@pytest.mark.slow
def test_a_warm_start_learns_the_right_action_of_every_board(tmp_path):
    wrappers = ("ImageGame(max_side=64)", 'RebuildPrompt(template="$observation")', "LimitInvalidActions(limit=3)")
    make_warm_model(
        tmp_path / "model", "FrozenLake-v1", steps=120, noise=0.4, seed=0, env_kwargs=LAKE, wrappers=wrappers,
        max_length=256, pictures=True, progress=False,
    )  # fmt: skip
    options = {"env_kwargs": LAKE, "wrappers": wrappers, "progress": False}
    policy = TransformersPolicy(str(tmp_path / "model"), temperature=0.0, max_tokens=4)
    (played,) = run_episodes("FrozenLake-v1", policy, 1, **options)
    (shown,) = run_episodes("FrozenLake-v1", ExpertPolicy(), 1, **options)
    assert played.success and len(played.steps) == len(shown.steps)
