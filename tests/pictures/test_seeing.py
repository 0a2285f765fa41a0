"""The tiny vision-language model learns to see.

1. a new tower is scaled by pictures, so that they differ as words do; text stays what it was
2. pages to practise on: parts hold their things, pages with fewer things still have what is asked for
3. a tower learns to tell words and goes on where it was stopped; its features are made as long as words
4. a feature's row and column are those of its picture; the script resumes
"""

import copy
import itertools
import json
import re
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("PIL")

from transformers import AutoTokenizer  # noqa: E402

from agent_envs.adapters.tiny import model as tiny_model  # noqa: E402
from agent_envs.adapters.tiny import vision  # noqa: E402
from agent_envs.adapters.tiny.supervised import SupervisedTrainer  # noqa: E402
from agent_envs.datasets.picturesearch.generated import drawing  # noqa: E402
from agent_envs.datasets.picturesearch.generated.pages import GeneratedPages  # noqa: E402
from agent_envs.errors import ConfigError  # noqa: E402
from agent_envs.messages import content_text, pictures_of  # noqa: E402
from agent_envs.pictures.picture import Picture  # noqa: E402
from agent_envs.pictures.png import shrunk  # noqa: E402
from agent_envs.policies.local.loading import load_model  # noqa: E402
from agent_envs.prompts.pictures import load_picture_tokens  # noqa: E402
from benchmarks.pretraining import practice  # noqa: E402
from benchmarks.pretraining import vision as pretrain  # noqa: E402
from benchmarks.pretraining.seen import Thing  # noqa: E402
from benchmarks.pretraining.tower import TowerTrainer, settle_features  # noqa: E402

LAKE = {"render_mode": "rgb_array", "is_slippery": False, "max_episode_steps": 30}


def shown(count: int) -> list[Picture]:
    """Pages and parts of them."""
    seen = itertools.islice(practice.pages(9, 2), count)
    return [picture for page in seen for picture in page.pictures]


def boards() -> list[Picture]:
    """FrozenLake with the player in each of its places, as far as they look different."""
    pytest.importorskip("pygame")
    env = gym.make("FrozenLake-v1", **LAKE)
    env.reset(seed=0)
    pictures = []
    for place in range(16):
        env.unwrapped.s = place
        pictures.append(Picture(shrunk(env.render(), 64)))
    env.close()
    return list(dict.fromkeys(pictures))


def features(made: vision.VisionModel, pictures: list[Picture]) -> np.ndarray:
    """What the tower gives for pictures, shape [features of all, numbers]."""
    inputs = made.pictures.inputs(pictures)
    with torch.no_grad():
        seen = made.model.model.get_image_features(
            torch.from_numpy(inputs.pixel_values), torch.from_numpy(inputs.image_grid_thw)
        )
    return torch.cat(seen.pooler_output).numpy()


def test_boards_differ_as_words_do():
    made, pictures = vision.build_vision_model(), boards()
    before = features(made, pictures)
    assert len(before) == len(pictures) > 10
    assert np.linalg.norm(before - before.mean(0), axis=1).mean() < 0.3 * np.linalg.norm(before.mean(0))
    words = made.tokenizer("zoom in", return_tensors="pt").input_ids
    said = made.model(input_ids=words).logits
    vision.spread_features(made, pictures)
    after = features(made, pictures)
    word = float(made.model.model.language_model.embed_tokens.weight.detach().norm(dim=1).mean())
    assert np.abs(after.mean(0)).max() < 1e-3 * word
    assert np.linalg.norm(after, axis=1).mean() == pytest.approx(word, rel=1e-3)
    directions = np.linalg.svd(after, compute_uv=False)
    kept = directions[directions > 0.01 * directions[0]]
    assert len(kept) > 5 and kept[-1] == pytest.approx(kept[0], rel=0.01)
    assert torch.equal(made.model(input_ids=words).logits, said)


def test_a_tower_without_different_pictures_stays_as_it_is():
    made = vision.build_vision_model()
    before = {name: weight.clone() for name, weight in made.model.state_dict().items()}
    black = Picture(np.zeros((64, 64, 3), np.uint8))
    for pictures in ([], [black, black]):
        vision.spread_features(made, pictures)
    assert all(torch.equal(weight, before[name]) for name, weight in made.model.state_dict().items())


def test_parts_of_pages_hold_their_things():
    for page in itertools.islice(practice.pages(3, 4), 6):
        assert page.factor == 4 and max(page.pixels.shape) == practice.SIZE and len(page.things) == 6
        assert len(page.close) == 4
        for part in page.close:
            assert part.pixels.shape == (practice.CLOSE, practice.CLOSE, 3)
            assert part.left % 16 == part.top % 16 == 0
            for thing in part.things:
                left, top, right, bottom = thing.box
                assert part.left <= left and right <= part.left + practice.CLOSE
                assert part.top <= top and bottom <= part.top + practice.CLOSE
            asked, said = practice.described(part)
            assert content_text(asked["content"]) == "<image>What is it?"
            thing = part.things[0]
            left, top = (
                (low - start) * 10 // 128 * 100 for low, start in zip(thing.box, (part.left, part.top), strict=False)
            )
            code, number = "".join(thing.words[3:5]), "".join(thing.words[5:])
            where = f'{{"left": {left}, "top": {top}}}'
            assert said["content"] == f"{thing.words[0]}: {where} <answer>{code}</answer> {number}"


def test_places_on_a_page_are_those_of_its_colours():
    palette = json.loads((Path(drawing.__file__).parent / "words.json").read_text())["colours"]
    for messages, middles in itertools.islice(practice.placed(2, [1, 3, 6]), 12):
        (picture,) = pictures_of(messages)
        height, width, _ = picture.array.shape
        assert max(height, width) == practice.SIZE
        lines = messages[1]["content"].split("\n")
        for line, (x, y) in zip(lines, middles, strict=True):
            colour, place = line.split(": ", 1)
            place = json.loads(place)
            box = picture.array[y - 5 : y + 5, x - 8 : x + 8].reshape(-1, 3).astype(int)
            assert (np.abs(box - palette[colour]).sum(1) < 30).mean() > 0.2, (line, picture)
            for side, length, begins in (("left", width, x - 8), ("top", height, y - 5)):
                assert place[side] % 100 == 0 and 0 <= begins * 1000 / length - place[side] < 100


def test_a_page_with_fewer_things_is_the_same_but_for_them():
    tasks = GeneratedPages("train", 1, "find")
    for index, most in itertools.product(range(4), (1, 2, 6)):
        task = tasks[index]
        fewer = practice.fewer_things(task, most)
        wanted = {look.box for look in task.proof}
        left = {thing.box for thing in fewer.sheet.things}
        assert wanted <= left and len(left) == most and fewer.question == task.question
        changed = drawing.draw(fewer.sheet) != drawing.draw(task.sheet)
        assert changed.any() == (most < 6)
        for x, y, right, bottom in {thing.box for thing in task.sheet.things} - left:
            assert changed[y:bottom, x:right].any()
            changed[y:bottom, x:right] = False
        assert not changed.any()


def test_each_thing_of_a_page_is_looked_for_where_it_is():
    palette = json.loads((Path(drawing.__file__).parent / "words.json").read_text())["colours"]
    for messages, middles in itertools.islice(practice.looked_for(1, [1, 3]), 5):
        asked, said = messages[::2], messages[1::2]
        assert len(asked) == len(said) in (1, 3) and all(message["role"] == "user" for message in asked)
        (picture,) = pictures_of(messages)
        height, width, _ = picture.array.shape
        named = [re.search(r"What is written on the (\w+) \w+\?$", content_text(m["content"])) for m in asked]
        assert len({name[1] for name in named}) == len(asked)
        for name, action, (x, y) in zip(named, said, middles, strict=True):
            box = json.loads(action["content"].split("\n")[1])["arguments"]
            across = slice(box["left"] * width // 1000, -(-box["right"] * width // 1000))
            down = slice(box["top"] * height // 1000, -(-box["bottom"] * height // 1000))
            near = (np.abs(picture.array.astype(int) - palette[name[1]]).sum(-1) < 30).astype(int)
            assert near[down, across].sum() > 0.9 * near.sum() > 0
            assert across.start < x < across.stop and down.start < y < down.stop


def tower() -> TowerTrainer:
    made = vision.build_vision_model(patch=16, width=48)
    return TowerTrainer(made, practice.pages, practice.vocabulary(), steps=12, pages_per_step=3, whole_pages=1)


def test_a_tower_learns_and_goes_on_where_it_was_stopped():
    trainer = tower()
    first = trainer.train_step()
    state = copy.deepcopy(trainer.state())
    rest = [trainer.train_step() for _ in range(11)]
    assert rest[-1][0] < 0.7 * first[0]
    again = tower()
    for _ in range(2):
        again.train_step()
    again.resume(state)
    assert [again.train_step() for _ in range(3)] == rest[:3]


def test_a_thing_is_told_from_the_feature_in_which_it_lies():
    """A bright square on a black page, wider than high and higher than wide."""
    trainer = tower()
    for height, width in ((192, 256), (256, 192)):
        black = np.zeros((height, width, 3), np.uint8)
        bright = black.copy()
        bright[100:110, 138:154] = 255  # the fourth row and fifth column of 32 pixels
        dark, lit = (features(trainer.made, [Picture(pixels)]) for pixels in (black, bright))
        thing = Thing((4 * 138, 4 * 100, 4 * 154, 4 * 110), ())
        place = trainer._cell_of(thing, 0, 0, 4, width // 32)
        assert place == 3 * (width // 32) + 4 == np.abs(lit - dark).sum(1).argmax()
        assert trainer._begins(thing, 0, 0, 4) == [10 // 4, 4 // 4]


def test_features_are_made_as_long_as_words():
    made, pictures = vision.build_vision_model(), shown(4)
    settle_features(made, pictures)
    after = features(made, pictures)
    word = float(made.model.model.language_model.embed_tokens.weight.detach().norm(dim=1).mean())
    assert np.abs(after.mean(0)).max() < 1e-3 * word
    assert np.quantile(np.linalg.norm(after, axis=1), 0.9) == pytest.approx(word, rel=1e-3)


def test_a_feature_is_of_the_row_and_column_of_its_pixels():
    near = pretrain._captions(vision.build_vision_model(patch=16, width=48), 8, 0)

    def trainer(seed: int) -> pretrain.PlaceTrainer:
        made = vision.build_vision_model(patch=16, width=48, seed=seed)
        return pretrain.PlaceTrainer(made, near.sequences, near.looks, steps=10, learning_rate=1e-3, warmup=1)

    one = trainer(0)
    rows, columns = one._places(torch.tensor([[1, 4, 6], [1, 2, 2]]))
    assert rows.tolist() == [0, 0, 0, 1, 1, 1, 0] and columns.tolist() == [0, 1, 2, 0, 1, 2, 0]
    one.train_step()
    state = copy.deepcopy(one.state())
    other = trainer(1)
    other.resume(state)
    for _ in range(2):
        assert one.train_step()[0] == other.train_step()[0]
        for ours, theirs in zip(one.heads.parameters(), other.heads.parameters(), strict=True):
            assert torch.equal(ours.grad, theirs.grad) and torch.equal(ours, theirs)  # of this step alone


def test_a_head_learns_to_look_where_a_thing_lies():
    made = vision.build_vision_model(patch=16, width=48)
    located = list(itertools.islice(practice.placed(4, [2]), 4))
    part = pretrain._located(made, located, digits=True)
    for n, (messages, middles) in enumerate(located):
        ids = part.sequences.ids[part.sequences.starts[n] :].tolist()
        first, across = ids.index(made.pictures.token_id), pictures_of(messages)[0].width // 32
        wanted = [first + y // 32 * across + x // 32 for x, y in middles for _ in range(2)]
        assert [look for _, look in part.looks[n]] == wanted
        told = [int(made.tokenizer.decode([ids[token + 1]])) * 100 for token, _ in part.looks[n]]
        lines = messages[1]["content"].split("\n")
        assert told == [value for line in lines for value in json.loads(line.split(": ", 1)[1]).values()]
    part = pretrain._located(made, located[:1], digits=True)
    losses, look = [], pretrain.PlaceTrainer._look

    class Noting(pretrain.PlaceTrainer):
        def _look(self, *inputs):
            losses.append(look(self, *inputs))
            return losses[-1]

    trainer = Noting(made, part.sequences, part.looks, steps=10, learning_rate=1e-2, warmup=1)
    for _ in range(10):
        trainer.train_step()
    assert losses[-1] < 0.5 * losses[0]


def test_the_model_is_made_and_the_command_resumes_it(tmp_path, monkeypatch):
    """The whole script at toy size, stopped within a part and started again."""
    command = ["pretrain", "--out", str(tmp_path), "--captions", "16", "--openings", "16", "--demonstrations", "2"]
    command += ["--places", "16", "--tower-steps", "2", "--caption-steps", "1", "--place-steps", "1", "--steps", "2"]
    command += ["--mistake-steps", "1", "--save-seconds", "0"]
    monkeypatch.setattr(pretrain, "_SETTLED", 4)
    monkeypatch.setattr(pretrain, "_TOKENS", 1024)
    monkeypatch.setattr("sys.argv", command)
    taken, step = [], SupervisedTrainer.train_step

    def stopping(trainer):
        if len(taken) == 3:
            taken.append("stopped")
            raise KeyboardInterrupt
        taken.append(trainer.steps)
        return step(trainer)

    monkeypatch.setattr(SupervisedTrainer, "train_step", stopping)
    with pytest.raises(KeyboardInterrupt):
        pretrain.main()
    pretrain.main()
    assert taken == [1, 1, 2, "stopped", 2, 1]  # captions, places, the mixture twice, mistakes
    tiny_model.check_files(tmp_path / "base", "the model")
    model = load_model(str(tmp_path / "base"), dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "base")
    assert load_picture_tokens(str(tmp_path / "base"), tokenizer) is not None
    assert len(tokenizer) == model.config.text_config.vocab_size and model.num_parameters() < 1_000_000
    monkeypatch.setattr("sys.argv", [*command, "--steps", "3"])
    with pytest.raises(ConfigError, match="steps was 2, now 3"):
        pretrain.main()
