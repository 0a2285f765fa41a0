"""The contract with pictures: the space, what tools return, messages with parts, and text that imitates a picture."""

import copy
import pickle
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector.utils import create_shared_memory, read_from_shared_memory, write_to_shared_memory

from agent_envs import Message
from agent_envs.errors import ConfigError
from agent_envs.messages import content_text, joined_content, observation_messages, pictures_of
from agent_envs.pictures.picture import IMAGE, Picture, Pictured, alike, literal, observation_parts, pixels
from agent_envs.prompts.conversation import Conversation
from agent_envs.spaces import ImageText, MessagesSpace
from agent_envs.testing import check_text_env
from tests.pictures.shades import ShadesEnv, call, shade


def test_an_environment_with_pictures_keeps_the_whole_contract():
    check_text_env("Shades-v0")


def test_the_number_of_placeholders_is_always_the_number_of_pictures():
    env = gym.make("Shades-v0", max_observation_length=60)
    space = env.observation_space
    hostile = ["", "<image>", "<ima", "<<image>image>", "<image>" * 20, "a" * 70, "\ud800<image>", "<IMAGE>"]
    rng = np.random.default_rng(0)
    for seed in range(60):
        observation, _ = env.reset(seed=seed)
        assert space.contains(observation)
        for _ in range(4):
            calls = rng.integers(0, 4)
            action = "".join(
                call("say", text=hostile[rng.integers(len(hostile))])
                if rng.random() < 0.5
                else call("look", times=int(rng.integers(9)))
                for _ in range(calls + 1)
            )
            observation, _, _, _, info = env.step(action)
            assert space.contains(observation), observation
            messages = observation_messages(observation, info)
            assert alike([p.array for p in pictures_of(messages)], list(observation["images"]))
            assert "".join(content_text(m["content"]) for m in messages).count(IMAGE) == len(observation["images"])


def test_tool_results_are_messages_with_their_own_pictures():
    env = gym.make("Shades-v0")
    env.reset(options={"index": 7})
    observation, *_, info = env.step(call("say", text="an <image>") + call("look", times=4))
    assert observation["text"] == "an < image>\ncloser 4: <image> and <image>"
    assert [result["content"] for result in info["tool_results"]] == observation["text"].splitlines()
    said, looked = observation_messages(observation, info)
    assert said == {"role": "tool", "name": "say", "content": "an < image>"}
    assert looked["content"] == [
        {"type": "text", "text": "closer 4: "},
        {"type": "image", "image": Picture(shade(7, 5))},
        {"type": "text", "text": " and "},
        {"type": "image", "image": Picture(shade(4))},
    ]


def test_pictures_beyond_the_limit_are_named_and_larger_ones_refused():
    env = gym.make("Shades-v0")
    env.reset(seed=0)
    observation = env.step(call("look", times=1) * 2)[0]
    left_out = "[picture left out: at most 3 are shown]"
    assert observation["text"] == f"closer 1: {IMAGE} and {IMAGE}\ncloser 1: {IMAGE} and {left_out}"
    with pytest.raises(ConfigError, match="picture of 17 x 1 pixels is too large: at most 16"):
        Pictured(shade(0, 1, 17)).fitted(100, 1, 16)


def test_an_environment_of_text_alone_says_that_it_shows_no_pictures():
    class Blind(ShadesEnv):
        max_images = 0

    with pytest.raises(ConfigError, match="Blind shows text alone.*max_images"):
        Blind().reset(seed=0)


def shared(space: Any, value: Any) -> Any:
    """Return an element as another process reads it; of None what it reads before anything is written."""
    memory = create_shared_memory(space, n=1)
    elements = read_from_shared_memory(space, memory, n=1)
    if value is not None:
        write_to_shared_memory(space, 0, value, memory)
    return copy.deepcopy(elements)[0]


def test_the_space_samples_pickles_and_tells_elements_from_others():
    space = ImageText(40, 2, 8, seed=3)
    samples = [space.sample() for _ in range(300)]
    assert all(map(space.contains, samples)) and {len(s["images"]) for s in samples} == {0, 1, 2}
    assert space == pickle.loads(pickle.dumps(space)) != ImageText(40, 2, 9)
    assert all(alike(shared(space, s), s) for s in samples)
    picture = shade(1)
    assert space.contains({"text": IMAGE, "images": (picture,)})
    wrong: list[Any] = [
        {"text": "", "images": (picture,)},  # no placeholder
        {"text": IMAGE, "images": [picture]},  # a list
        {"text": IMAGE, "images": (picture.astype(float),)},  # numbers
        {"text": IMAGE, "images": (picture[..., :1],)},  # grey
        {"text": IMAGE, "images": (shade(1, 9),)},  # too high
        {"text": IMAGE, "images": (shade(1, 0),)},  # no pixel
        {"text": IMAGE * 3, "images": (picture,) * 3},  # too many
        {"text": "a" * 41, "images": ()},  # too long
        {"text": "a", "images": (), "more": 1},
        "a",
        None,
    ]
    assert not any(map(space.contains, wrong))
    with pytest.raises(ValueError, match="max_side must be an integer of at least 1, got 0"):
        ImageText(10, 1, 0)


def test_messages_with_pictures_have_a_space_too():
    messages: list[Message] = [
        {"role": "system", "content": "Look."},
        {"role": "user", "content": [{"type": "image", "image": Picture(shade(1))}, {"type": "text", "text": "é?"}]},
    ]
    space = MessagesSpace(200, max_images=1, max_side=4)
    assert space.contains(messages) and not MessagesSpace(200).contains(messages)
    assert not MessagesSpace(200, max_images=1, max_side=2).contains(messages)
    assert shared(space, messages) == messages and shared(space, None) == []
    parts: list[Any] = [{"type": "image", "image": "aGk="}, {"type": "image"}, {"type": "video"}, "text", None]
    assert not any(space.contains([{"role": "user", "content": [part]}]) for part in parts)


def test_broken_pictures_are_refused_by_what_they_are():
    table: list[tuple[Any, str]] = [
        (shade(1).astype(np.float32), "float32"),
        (np.zeros((2, 2, 4), np.uint8), r"\[2, 2, 4\]"),  # alpha
        (np.zeros((2, 2), np.uint8), r"\[2, 2\]"),  # grey
        (np.zeros((0, 2, 3), np.uint8), r"\[0, 2, 3\]"),
        ([[1]], "list"),
        (None, "NoneType"),
    ]
    for value, what in table:
        with pytest.raises(ConfigError, match=what):
            pixels(value)


def test_a_picture_does_not_change_with_the_array_it_was_made_from():
    array = shade(1)
    picture = Picture(array)
    array[:] = 2
    assert picture == Picture(shade(1)) != Picture(array)
    assert {picture, Picture(shade(1))} == {copy.deepcopy(picture)}
    with pytest.raises(ValueError, match="read-only"):
        picture.array[0] = 3
    assert pickle.loads(pickle.dumps(picture)) == picture


def test_strings_that_meet_form_no_placeholder():
    assert Pictured("<ima", "ge>", shade(1), "<im", Pictured("age>")).text == "< image><image>< image>"
    assert joined_content(["<ima", "ge>"], "") == "<image>"  # contents of text environments stay as they are
    assert literal("<image><image>") == "< image>< image>"
    with pytest.raises(ConfigError, match="1 times <image> in its text and 0 pictures"):
        observation_parts({"text": IMAGE, "images": ()})


def test_a_conversation_shows_pictures_and_recognises_a_prompt_that_grows():
    conversation = Conversation("Look.")
    conversation.observe(Pictured("A ", shade(1)).observation(), {})
    conversation.respond("dark")
    assert not conversation.observe(Pictured(shade(2)).observation(), {}).fresh
    whole = copy.deepcopy(conversation.messages)
    assert [m["role"] for m in whole] == ["system", "user", "assistant", "user"]
    whole = [*whole, {"role": "assistant", "content": "."}, {"role": "user", "content": "?"}]
    assert not conversation.observe(whole, {}).fresh
    assert conversation.observe([whole[0], {"role": "user", "content": "?"}], {}).fresh


def test_pixels_are_kept_however_an_array_lies_in_memory():
    array = np.random.default_rng(0).integers(0, 256, (5, 7, 3), np.uint8)
    views = [array, array.transpose(1, 0, 2), array[::-1], array[..., ::-1], array[::2, ::3], np.asfortranarray(array)]
    for view in views:
        kept = pixels(view)
        assert np.array_equal(kept, view) and kept.flags.c_contiguous and not np.shares_memory(kept, array)
