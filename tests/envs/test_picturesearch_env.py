"""PictureSearch, by scripted episodes.

1. Both experts win in every family and level.
2. Pages and views are the same bytes everywhere (digests); views are means of pixels, of whatever is drawn.
3. What is asked for cannot be read at the size shown, nor guessed: no constant answer is right for 1 % of the tasks.
4. Boxes outside, inverted, tiny, NaN or strings are observations; zooms are measured in any picture, and bounded.
5. Words and pictures give the same rewards; episodes go on after pickling.
"""

import hashlib
import pickle
import re
from collections import Counter
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from agent_envs.datasets.picturesearch.generated.drawing import Drawing, draw, palette
from agent_envs.datasets.picturesearch.generated.pages import FAMILIES, GeneratedPages
from agent_envs.datasets.picturesearch.generated.sheet import PictureTask, Sheet, Stamp
from agent_envs.envs.picturesearch.reward import is_right
from agent_envs.envs.picturesearch.view import DrawnPage, LargePicture, View, window
from agent_envs.files import table
from agent_envs.pictures.picture import alike
from agent_envs.testing import check_text_env
from tests.helpers import tool_call

ID = "AgentR1/PictureSearch-v0"
LEVELS = (1, 2, 3, 4, 5)


def call(left: Any, top: Any, right: Any, bottom: Any, **more: Any) -> str:
    return tool_call("zoom", left=left, top=top, right=right, bottom=bottom, **more)


def played(env: Any, index: int, act: Any = None) -> tuple[list[Any], list[str], dict[str, Any]]:
    """Observations, actions and the last info of an episode by the expert."""
    observations, actions = [env.reset(options={"index": index})[0]], []
    while True:
        actions.append((act or env.unwrapped.expert_action)())
        observation, _, terminated, truncated, info = env.step(actions[-1])
        observations.append(observation)
        if terminated or truncated:
            return observations, actions, info


@pytest.mark.parametrize("expert", ["explore", "oracle"])
def test_the_expert_wins_within_the_limits(expert):
    for level in LEVELS:
        for family in FAMILIES:
            env = gym.make(ID, split="test", level=level, families=family, expert=expert, view="words")
            for index in range(2):
                _, actions, info = played(env, index)
                assert info["success"] and not info["invalid_action"] and len(actions) <= 12, (level, family, index)
    for kwargs in ({"size": 128}, {"size": 1024}, {"max_parallel_calls": 1}):
        for family in ("follow", "table"):
            env = gym.make(ID, split="test", level=5, families=family, expert=expert, view="words", **kwargs)
            assert all(played(env, index)[2]["success"] for index in range(3)), (kwargs, family)


def test_the_digests_of_pages_and_views_are_those_of_every_machine():
    digest = hashlib.sha256()
    for level in LEVELS:
        for family in FAMILIES:
            task = GeneratedPages("test", level, family)[7]
            page = draw(task.sheet)
            picture = DrawnPage(task.sheet)
            digest.update(repr((task, page.shape)).encode())
            digest.update(page.tobytes())
            width, height = picture.width, picture.height
            for box in ((0, 0, width, height), (0, 0, width // 2, height // 2), task.proof[-1].box):
                for size in (128, 256):
                    digest.update(picture.show(window(width, height, size, box)).tobytes())
    assert digest.hexdigest() == DIGEST


DIGEST = "527b399309db437c4774e85f1b1d5d4875fd32cc812b78ff97f57cc1880455a5"


def test_views_are_means_of_pixels_and_enlarged_ones_repeat_them():
    rng = np.random.default_rng(0)
    whole = rng.integers(0, 256, (64, 96, 3))
    picture = LargePicture(whole.astype(np.uint8))
    half = (whole[0::2, 0::2] + whole[1::2, 0::2] + whole[0::2, 1::2] + whole[1::2, 1::2] + 2) // 4
    quarter = (half[0::2, 0::2] + half[1::2, 0::2] + half[0::2, 1::2] + half[1::2, 1::2] + 2) // 4
    assert (picture.show(View((0, 0, 96, 64), 1)) == half).all()
    assert (picture.show(View((16, 8, 48, 40), 1)) == half[4:20, 8:24]).all()
    assert (picture.show(View((0, 0, 96, 64), 2)) == quarter).all()
    assert (picture.show(View((5, 6, 9, 10), -1)) == whole[6:10, 5:9].repeat(2, axis=0).repeat(2, axis=1)).all()
    assert not picture.show(View((5, 6, 9, 10), 0)).flags.writeable
    odd = LargePicture(rng.integers(0, 256, (301, 203, 3)).astype(np.uint8))
    for box in ((0, 0, 203, 301), (100, 200, 203, 301), (0, 0, 8, 8)):
        view = window(203, 301, 128, box)
        left, top, right, bottom = view.box
        assert 0 <= left < right <= 203 and 0 <= top < bottom <= 301
        assert max(odd.show(view).shape) <= 128


def test_a_window_holds_its_box_and_begins_on_its_grid_where_it_can():
    rng = np.random.default_rng(0)
    for _ in range(800):
        width, height, size = *(64 * rng.integers(1, 18, 2)).tolist(), int(rng.choice([128, 256]))
        (left, right), (top, bottom) = (np.sort(rng.choice(n + 1, 2, replace=False)).tolist() for n in (width, height))
        view = window(width, height, size, (left, top, right, bottom))
        for low, high, start, end, length in (
            (left, right, view.box[0], view.box[2], width),
            (top, bottom, view.box[1], view.box[3], height),
        ):
            dots, starts = max(1, int(view.factor)), range(min(low, length - end + start) + 1)
            holding = [n for n in starts if n % dots == 0 and high <= n + end - start]
            on_grid = [n for n in holding if n % (16 * view.factor) == 0]
            assert 0 <= start < end <= length and start in (on_grid or holding or [start]), (length, low, high, view)


def test_on_the_lowest_level_things_lie_on_a_grid():
    for family in ("find", "compare"):
        tasks = GeneratedPages("train", 1, family)
        for index in range(50):
            sheet = tasks[index].sheet
            boxes = [thing.box for thing in sheet.things]
            assert len(boxes) == 6 and {(left % 16, top % 16) for left, top, _, _ in boxes} == {(8, 8)}
            for left, top, right, bottom in boxes:
                assert left >= 8 and top >= 8 and right <= sheet.width - 8 and bottom <= sheet.height - 8
                assert sum(left < to_x and x < right and top < to_y and y < bottom for x, y, to_x, to_y in boxes) == 1


def some_sheet(rng: np.random.Generator) -> Sheet:
    """A page on which anything lies over anything else."""
    width, height = (int(side) for side in rng.choice([256, 384, 512], 2))
    colours = ["red", "blue", "white", "ink", "paper 1", "path 2"]
    rects = []
    for _ in range(12):
        (left, right), (top, bottom) = (np.sort(rng.integers(0, side + 1, 2)).tolist() for side in (width, height))
        rects.append((left, top, right, bottom, str(rng.choice(colours))))
    stamps = []
    for icon in (False, True, False, True):
        scale = int(rng.integers(1, 5))
        what = str(rng.choice(["star", "moon"])) if icon else "A 7B"
        for _ in range(6):
            x, y = int(rng.integers(width - 24 * scale)), int(rng.integers(height - 9 * scale))
            stamps.append(Stamp(x, y, scale, str(rng.choice(colours)), what, icon))
    return Sheet(width, height, "ground 1", tuple(rects), tuple(stamps), ())


def test_a_view_that_is_drawn_by_itself_is_that_of_the_whole_page():
    rng = np.random.default_rng(0)
    for _ in range(8):
        sheet = some_sheet(rng)
        page, drawing = draw(sheet), Drawing(sheet)
        drawn, known = DrawnPage(sheet), LargePicture(palette()[page])
        for _ in range(12):
            (left, right), (top, bottom) = (
                np.sort(rng.choice(side + 1, 2, replace=False)).tolist() for side in page.shape[::-1]
            )
            assert (drawing.part((left, top, right, bottom)) == page[top:bottom, left:right]).all()
            for size in (8, 16, 128):
                view = window(sheet.width, sheet.height, size, (left, top, right, bottom))
                assert (drawn.show(view) == known.show(view)).all(), view


def test_what_is_asked_for_cannot_be_read_at_the_size_shown_nor_guessed():
    answers: Counter[str] = Counter()
    for split in ("train", "test"):
        env = gym.make(ID, split=split, view="words")
        for index in range(80):
            observation, _ = env.reset(options={"index": index})
            gold = env.unwrapped.right_answer()
            answers[gold] += 1
            shown = observation.removesuffix(env.unwrapped.task.question)
            assert not re.search(r"code|number|label|entry|ticked|head of a column", shown), index
    assert answers.most_common(1)[0][1] <= 3  # of 160
    for family in FAMILIES:  # on the lowest level, where answers are shortest
        tasks = GeneratedPages("test", 1, family)
        ((_, most),) = Counter(tasks[index].answers for index in range(80)).most_common(1)
        assert most <= 4, family  # codes of two letters: 1 in 529


def test_codes_of_two_letters_may_be_any_others_are_of_one_split_and_levels_grow():
    splits = list(GeneratedPages.sizes)
    read = {
        (split, level): [GeneratedPages(split, level, "find")[index].answers[0] for index in range(50)]
        for split in splits
        for level in (1, 2, 3)
    }
    for level in (2, 3):
        codes = [set(read[split, level]) for split in splits]
        assert not codes[0] & codes[1] and not codes[0] & codes[2] and not codes[1] & codes[2]
    letters = table("agent_envs.datasets.picturesearch.generated", "words.json")["letters"]
    remainders = {split: {sum(map(letters.index, code)) % 3 for code in read[split, 1]} for split in splits}
    assert remainders == {split: {0, 1, 2} for split in splits}  # none that a model could learn not to read
    sizes = [len(GeneratedPages("train", level, "table")[0].sheet.things) for level in LEVELS]
    assert sizes == sorted(sizes) and sizes[-1] > 20 * sizes[0]


@pytest.mark.parametrize(
    ("action", "said"),
    [
        (call(-1, 0, 10, 10), "left must be from 0 to 1000, got -1"),
        (call(0, 0, 10, 1001), "bottom must be from 0 to 1000, got 1001"),
        (call(0, 0, 10**40, 10), "right must be from 0 to 1000, got 1000"),
        (call(500, 0, 400, 10), "left must be smaller than right, got 500 and 400"),
        (call(0, 7, 10, 7), "top must be smaller than bottom, got 7 and 7"),
        (call(500, 500, 501, 501), "the box is too small: it must hold at least 8 x 8 pixels of the page"),
        (call(float("nan"), 0, 10, 10), "NaN is no finite number"),
        (call(float("inf"), 0, 10, 10), "Infinity is no finite number"),
        (call(0.5, 0, 10, 10), "wrong arguments for zoom"),
        (call("0", 0, 10, 10), "wrong arguments for zoom"),
        (call(True, 0, 10, 10), "wrong arguments for zoom"),
        (call(None, 0, [], {}), "wrong arguments for zoom"),
        (call(0, 0, 500, 500, picture=1), "picture must be from 0 to 0, got 1"),
        (call(0, 0, 500, 500, picture=-1), "picture must be from 0 to 0, got -1"),
        (call(0, 0, 500, 500, zoom=2), "wrong arguments for zoom"),
        ('<tool_call>{"name": "zoom", "arguments": {"left": 0}}</tool_call>', "wrong arguments for zoom"),
        ("<tool_call>zoom", "error"),
    ],
)
def test_a_box_that_cannot_be_shown_is_an_observation(action, said):
    env = gym.make(ID, level=1)
    env.reset(seed=0)
    observation, reward, terminated, truncated, info = env.step(action)
    assert said in observation["text"] and "<image>" not in observation["text"] and not observation["images"]
    assert (reward, terminated, truncated, info["invalid_action"], info["zooms"]) == (0.0, False, False, True, 0)


def test_zooms_are_nested_several_at_once_and_bounded():
    env = gym.make(ID, level=5, families="table", max_zooms=3, split="test")
    base = env.unwrapped
    first, _ = env.reset(options={"index": 0})
    assert len(first["images"]) == 1 and first["text"].count("<image>") == 1
    observation, _, _, _, info = env.step("\n".join([call(0, 0, 490, 490), call(500, 500, 1000, 1000, picture=1)]))
    assert [image.shape for image in observation["images"]] == [(256, 256, 3)] * 2 and info["zooms"] == 2
    outer, inner = (view.box for view in base.state.views[1:])
    assert inner[0] >= (outer[0] + outer[2]) // 2 - 64 and inner[2] <= outer[2] and inner[3] <= outer[3]
    assert observation["text"].startswith("Picture 1 shows the box 0 0 ") and "\nPicture 2 shows" in observation["text"]
    observation, _, _, _, info = env.step(call(0, 0, 100, 100) * 2)
    assert info["zooms"] == 3 and len(observation["images"]) == 1
    assert "error: all 3 zooms are used; write the final answer" in observation["text"] and info["invalid_action"]
    assert base.expert_action() == f"<answer>{base.right_answer()}</answer>"
    assert env.step(base.expert_action())[1] == 1.0


@pytest.mark.parametrize("index", range(2))
def test_words_and_pictures_give_the_same_rewards(index):
    rng = np.random.default_rng(index)
    envs = [gym.make(ID, view=view, split="validation") for view in ("words", "pictures")]
    for env in envs:
        env.reset(options={"index": index})
    over, bad = False, [call(-1, 0, 10, 10), call(0.5, 0, 10, 10), "<tool_call>zoom"]
    while not over:
        action = bad.pop() if bad else envs[0].unwrapped.demo_action(rng, 0.4)
        words, pictures = (env.step(action) for env in envs)
        for key in ("invalid_action", "score", "success", "anchor", "zooms"):
            assert words[4][key] == pictures[4][key]
        assert words[1:4] == pictures[1:4]
        over = words[2] or words[3]


def test_an_episode_goes_on_exactly_after_pickling():
    env = gym.make(ID, split="test", level=3)
    _, actions, _ = played(env, 5)
    env.reset(options={"index": 5})
    ends = [[each.step(action) for action in actions] for each in (pickle.loads(pickle.dumps(env)), env)]
    assert alike(*ends) and ends[0][-1][1] == 1.0


def test_the_contract_holds_in_words_too():
    check_text_env(ID, env_kwargs={"view": "words", "expert": "oracle"}, tasks=3, vectors=False)


@pytest.mark.parametrize("noise", [1e-9, 1.0])
def test_a_demonstrator_errs_as_told(noise):
    env = gym.make(ID, view="words", level="1-3", split="test")
    rng = np.random.default_rng(0)
    wins = sum(played(env, n, lambda: env.unwrapped.demo_action(rng, noise))[2]["success"] for n in range(8))
    assert wins == (8 if noise < 0.5 else 0)


def test_an_answer_is_read_as_what_it_says():
    task = PictureTask("", "How many?", ("3",), None)
    assert is_right("3 stars", task) and is_right("003", task) and is_right("1,003", task._replace(answers=("1003",)))
    assert not is_right("-3", task) and not is_right("3 of 4", task)
    letters = task._replace(answers=("A",), options=("B", "A"))
    assert is_right("A", letters) and is_right("(a)", letters) and not is_right("B", letters)
    near = task._replace(answers=("B",), options=("1.5", "15", "\u7ea2"))
    assert is_right("15", near) and not is_right("1.5", near) and is_right("B. 15", near)
    red = near._replace(answers=("C",))
    assert is_right("\u7ea2", red) and not is_right("C. \u84dd", red)
