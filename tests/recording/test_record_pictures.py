"""Pictures through the recording proxy.

1. What an agent sends and what the environment showed are the same pixels; each picture is stored once.
2. Pictures that cannot be read, or are elsewhere, are named and leave a step without tokens; the call is answered.
3. Pictures survive a restart of the proxy, and tell the states of an episode apart.
"""

import base64
import io

import numpy as np
import pytest

from agent_envs.adapters.batches import build_batch
from agent_envs.episodes.record import read_episodes
from agent_envs.messages import observation_pictures
from agent_envs.pictures.picture import Picture
from agent_envs.pictures.png import data_url, from_data_url, to_png

pillow = pytest.importorskip("PIL.Image")
pytest.importorskip("aiohttp")
pytest.importorskip("openai")

from tests.envs.test_picturesearch_rows import png  # noqa: E402
from tests.recording.test_record import client, post, serving  # noqa: E402, F401

RED = np.full((3, 2, 3), (200, 0, 0), np.uint8)
BLUE = np.full((4, 4, 3), (0, 0, 200), np.uint8)


def url(data: bytes, kind: str = "png") -> str:
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


def saved(array: np.ndarray, kind: str, mode: str = "RGB") -> bytes:
    file = io.BytesIO()
    pillow.fromarray(array).convert(mode).save(file, kind)
    return file.getvalue()


def look(agent, *turns):
    """A completion after turns of text and URLs of pictures, answered each time."""
    messages = []
    for text, *urls in turns:
        parts = [{"type": "image_url", "image_url": {"url": given}} for given in urls]
        messages += [{"role": "user", "content": [{"type": "text", "text": text}, *parts]}]
        messages += [{"role": "assistant", "content": "Well, it is four."}]
    return agent.chat.completions.create(model="tiny", messages=messages[:-1])


def test_pictures_are_part_of_the_steps_and_stored_once(tmp_path, serving):  # noqa: F811
    vllm, proxy = serving(tmp_path, keep_open=True)
    with client(proxy, "a") as agent:
        look(agent, ("What is it?", data_url(RED)))
        look(agent, ("What is it?", data_url(RED)), ("And these?", data_url(BLUE), url(saved(BLUE, "JPEG"), "jpeg")))
    assert vllm.requests[0]["messages"][0]["content"][1]["image_url"]["url"] == data_url(RED)  # passed on as it came
    proxy.close()
    _, proxy = serving(tmp_path)  # a new one continues the episode
    with client(proxy, "a") as agent:
        look(agent, ("What is it?", data_url(BLUE)))
    assert post(proxy, "/episodes/a/reward", {"reward": 1})[0] == 200
    (episode,) = read_episodes(tmp_path / "episodes.jsonl")
    first, second, third = (observation_pictures(step.observation) for step in episode.steps)
    assert first == [Picture(RED)] and second[:2] == [Picture(RED), Picture(BLUE)] and third == [Picture(BLUE)]
    assert second[2] == from_data_url(url(saved(BLUE, "JPEG"), "jpeg"), "") != Picture(RED)
    assert episode.steps[0].observation[0]["content"][0] == {"type": "text", "text": "What is it?"}
    assert [step.prompt_pictures for step in episode.steps] == [tuple(first), tuple(second), tuple(third)]
    assert len(list((tmp_path / "pictures").iterdir())) == len({*first, *second, *third})
    assert build_batch([episode]).pictures[-1] == (Picture(BLUE),)
    anchors = [episode.reset_info["anchor"], *(step.info["anchor"] for step in episode.steps[:-1])]
    assert len(set(anchors)) == 3 and anchors[0] == f"What is it?[picture {Picture(RED).digest[:16]}]"


BROKEN = {
    "https://example.com/a.png": "addresses are not fetched",
    url(to_png(RED)[:-9]): "cut off",
    url(png(20_000, 20_000)): "20000",
    url(saved(RED, "PNG", "RGBA")): "transparency",
    url(saved(RED, "GIF"), "gif"): "it is none",
    "data:image/png,AAAA": "expected a URL that begins with data:image/png;base64",
    "data:image/png;base64,???": "in base64",
}


def test_what_cannot_be_read_is_named_and_the_call_answered(tmp_path, serving):  # noqa: F811
    _, proxy = serving(tmp_path)
    with client(proxy, "a") as agent:
        for given in BROKEN:
            assert look(agent, ("What is it?", given, data_url(RED))).choices[0].message.content == "Well, it is four."
        look(agent, ("And?",))
    assert post(proxy, "/episodes/a/reward", {"reward": 1})[0] == 200
    (episode,) = read_episodes(tmp_path / "episodes.jsonl")
    *steps, other = episode.steps
    for step, why in zip(steps, BROKEN.values(), strict=True):
        assert step.observation[0]["content"][0]["text"] == "What is it?[image_url]"
        assert observation_pictures(step.observation) == [Picture(RED)]
        assert step.prompt_ids is None and step.prompt_pictures == () and step.info["tokens"] == "none"
        assert why in step.info["tokens_error"] and "picture 1" in step.info["tokens_error"]
    assert other.prompt_ids and "tokens_error" not in other.info


def test_parts_of_other_forms_are_no_crash(tmp_path, serving):  # noqa: F811
    _, proxy = serving(tmp_path)
    parts = ([{"type": "image_url"}], [{"type": "image_url", "image_url": 3}], [None, "x", {"type": "image_url"}])
    for content in parts:
        body = {"model": "tiny", "messages": [{"role": "user", "content": content}]}
        assert post(proxy, "/episodes/a/v1/chat/completions", body)[0] == 200
    assert post(proxy, "/episodes/a/reward", {"reward": 1})[0] == 200
    (episode,) = read_episodes(tmp_path / "episodes.jsonl")
    assert [step.observation[0]["content"] for step in episode.steps] == [
        "[image_url]",
        "[image_url]",
        "Nonex[image_url]",
    ]


def test_a_call_may_show_only_so_many_pixels(tmp_path, serving, monkeypatch):  # noqa: F811
    monkeypatch.setattr("agent_envs.recording.replies._MOST_PIXELS", 20)
    _, proxy = serving(tmp_path)
    urls = [data_url(np.full((4, 4, 3), shade, np.uint8)) for shade in range(4)]
    with client(proxy, "a") as agent:
        look(agent, ("a", *urls))
        look(agent, ("a", *urls))  # those of before are not read again
    assert post(proxy, "/episodes/a/reward", {"reward": 1})[0] == 200
    (episode,) = read_episodes(tmp_path / "episodes.jsonl")
    assert [len(observation_pictures(step.observation)) for step in episode.steps] == [2, 4]
    assert "more than 20 pixels" in episode.steps[0].info["tokens_error"] and episode.steps[1].prompt_ids
