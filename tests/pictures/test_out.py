"""Where pictures go: a person's files, a page, a server's clients, rows of demonstrations; who cannot take them."""

import base64
import json
import re
import sys
import zlib
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

from agent_envs import run_episode, write_episodes
from agent_envs.branching import restore, snapshot
from agent_envs.cli import main
from agent_envs.errors import BackendReplyError, ConfigError, DataError
from agent_envs.pictures.picture import Picture, alike
from agent_envs.pictures.png import base64_png, data_url, read_picture, shown_pictures, to_png
from agent_envs.policies.scripted import ScriptedPolicy
from agent_envs.policies.terminal import PersonPictures
from agent_envs.wrapping.specs import make_text_env
from tests.pictures.shades import call, shade

pytest.importorskip("PIL.Image")

LOOKS = ScriptedPolicy([call("look", times=1), call("look", times=2), "5"])


def shown(page: str) -> list[dict]:
    """The episodes in a page."""
    chunks = re.findall(r'<script type="text/plain" id="chunk\d+">([^<]*)</script>', page)
    return [json.loads(line) for c in chunks for line in zlib.decompress(base64.b64decode(c)).decode().split("\n")]


@pytest.mark.parametrize("wrappers", [(), ("ChatMessages",)])
def test_a_page_has_every_picture_in_its_place(tmp_path, wrappers):
    env = make_text_env("Shades-v0", {}, wrappers)
    write_episodes(tmp_path / "e.jsonl", [run_episode(env, LOOKS, options={"index": 5})])
    assert main(["view", str(tmp_path / "e.jsonl"), "--out", str(tmp_path / "e.html")]) == 0
    (episode,) = shown((tmp_path / "e.html").read_text())
    new = [message["content"] for prompt in episode["prompts"] for message in prompt["new"]]
    urls = [
        u
        for c in new
        if not isinstance(c, str)
        for u in (c["images"] if "images" in c else [p["image"] for p in c if "image" in p])
    ]
    drawn = [read_picture(base64.b64decode(url.removeprefix("data:image/png;base64,")), "page") for url in urls]
    assert drawn == [Picture(p) for p in (shade(5), shade(5, 2), shade(1), shade(5), shade(2))]
    assert episode["question"] == "How bright is the < image>? (5)"


def test_a_page_says_which_picture_is_missing_or_hostile(tmp_path):
    write_episodes(tmp_path / "e.jsonl", [run_episode(gym.make("Shades-v0"), LOOKS, options={"index": 5})])
    files = sorted((tmp_path / "pictures").iterdir())
    files[0].unlink()
    files[1].write_bytes(b"<script>alert(1)</script>")
    files[2].write_bytes(to_png(shade(1))[:-9])
    assert main(["view", str(tmp_path / "e.jsonl"), "--out", str(tmp_path / "e.html")]) == 0
    page = (tmp_path / "e.html").read_text()
    said = json.dumps(shown(page))
    assert "cannot be read" in said and "it is none" in said and "cut off" in said and "alert(1)" not in page + said


def test_a_click_enlarges_a_picture(tmp_path, browser):
    write_episodes(tmp_path / "e.jsonl", [run_episode(gym.make("Shades-v0"), LOOKS, options={"index": 5})])
    assert main(["view", str(tmp_path / "e.jsonl"), "--out", str(tmp_path / "e.html")]) == 0
    browser.open(tmp_path / "e.html")
    browser.until("return document.querySelectorAll('img.picture').length === 5")
    sizes = "return [...document.querySelectorAll('img.picture')].map(i => [i.naturalWidth, i.naturalHeight])"
    assert browser.run(sizes) == [[2, 3], [2, 2], [2, 3], [2, 3], [2, 3]]
    before = browser.run("return document.querySelector('img.picture').clientWidth")
    browser.click("img.picture")
    assert browser.run("return document.querySelector('img.picture').clientWidth") > 10 * before
    texts = browser.run("return [...document.querySelectorAll('.result pre')].map(p => p.textContent)")
    assert texts[:2] == ["closer 1: ", " and "] and browser.problems() == []


def test_a_person_gets_files(tmp_path, capsys, monkeypatch):
    pictures, shown_twice = PersonPictures(), (shade(0), shade(1))
    for images in (shown_twice[:1], shown_twice):
        pictures.show({"text": "<image>" * len(images), "images": images})
    named = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in named] == ["picture 1", "picture 1", "picture 2"]
    path = re.fullmatch(r"picture 2: (/\S+\.png) \(2 x 3\)", named[-1])[1]
    assert read_picture(Path(path).read_bytes(), path) == Picture(shade(1))


@pytest.mark.parametrize(("variable", "value"), [("TERM", "xterm-kitty"), ("TERM_PROGRAM", "iTerm.app")])
def test_a_terminal_that_draws_is_given_the_pixels(capsys, monkeypatch, variable, value):
    for name in ("TMUX", "TERM", "TERM_PROGRAM", "KONSOLE_VERSION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, value)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    array = np.random.default_rng(0).integers(0, 256, (90, 70, 3), np.uint8)  # several parts of 4,096 characters
    PersonPictures().show({"text": "<image>", "images": (array,)})
    out = capsys.readouterr().out
    assert "picture 1 (70 x 90):\n\x1b" in out and ".png" not in out
    if variable == "TERM":
        parts = re.findall(r"\x1b_G([^;]*);([A-Za-z0-9+/=]*)\x1b\\", out)
        assert len(parts) > 1 and max(len(data) for _, data in parts) <= 4096
        assert parts[0][0] == "a=T,f=100,q=2,c=8,m=1" and {head for head, _ in parts[1:-1]} <= {"m=1"}
        assert parts[-1][0] == "m=0"
        data = "".join(data for _, data in parts)
    else:
        data = re.search(r"\x1b\]1337;File=inline=1;width=8;preserveAspectRatio=1:([A-Za-z0-9+/=]*)\x07", out)[1]
    assert read_picture(base64.b64decode(data), "drawn") == Picture(array)


def test_demonstrations_have_their_pictures_as_files(tmp_path):
    out = tmp_path / "demos.jsonl"
    assert main(["demos", "--env", "Shades-v0", "--n", "3", "--out", str(out), "--wrapper", "ChatMessages"]) == 0
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    for row in rows:
        parts = [part for message in row["messages"] for part in message["content"]]
        assert sum(part == {"type": "image"} for part in parts) == len(row["images"]) == 1
        picture = read_picture((tmp_path / row["images"][0]).read_bytes(), "file")
        assert picture == Picture(shade(row["index"]))
    assert main(["demos", "--env", "Shades-v0", "--n", "1", "--out", str(tmp_path / "d.parquet")]) == 2


def test_who_cannot_take_pictures_refuses_by_name():
    for wrappers in ((), ("ChatMessages",)):
        with pytest.raises(ConfigError, match="^the reader cannot take pictures yet, and this environment shows pic"):
            make_text_env("Shades-v0", {}, wrappers, reader="the reader")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ([[[1, 2]]], "as rows of pixels"),
        ([[[1, 2, 300]]], "from 0 to 255, got 1 to 300"),
        ([[[1.5, 2, 3]]], "as rows of pixels"),
        ([[[1, 2, 3]], [[1, 2, 3], [4, 5, 6]]], "as rows of pixels"),  # rows of different lengths
        ([[[1, 2, 3]] * 17], "17 x 1 pixels is too large"),
        (["", ""], "it is none"),
        ("<svg/>", "in base64"),
        ({"a": 1}, "as rows of pixels"),
        ([1, 2, 3], "at most 2 pictures are shown, got 3"),
        ([3], "as rows of pixels"),
        (data_url(shade(1, 17, 17)), "17 x 17 pixels is too large"),
    ],
)
def test_pictures_of_json_are_checked(value, said):
    with pytest.raises(DataError, match=said):
        shown_pictures(value, "here", 2, 16)


def test_pictures_of_json_come_as_files_and_as_rows():
    picture = Picture(shade(7, 3, 2))
    forms = [base64_png(shade(7, 3, 2)), data_url(shade(7, 3, 2)), shade(7, 3, 2).tolist()]
    for form in forms:
        assert shown_pictures(form, "here", 1, 16) == [picture]
    assert shown_pictures(forms, "here", 3, 16) == [picture] * 3 and shown_pictures([], "here", 1, 16) == []


@pytest.fixture(scope="module")
def url(shades_id):
    pytest.importorskip("websockets")
    from agent_envs.serving import EnvServer, ServedEnv

    served = [ServedEnv("Shades-v0"), ServedEnv("Shades-v0", wrappers=["ChatMessages"])]
    with EnvServer(served[:1], port=0, workers=0) as plain, EnvServer(served[1:], port=0, workers=0) as messages:
        yield plain.url, messages.url


def test_pictures_of_any_openenv_server(url):
    pytest.importorskip("openenv.core.sync_client")
    local = gym.make("Shades-v0")
    kwargs = {"field": "text", "show": "text", "pictures": "images", "max_pictures": 3, "max_side": 16}
    env = gym.make("AgentR1/OpenEnv-v0", url=url[0], split="test", **kwargs)
    local.reset(seed=20_000_000)
    observations = [(env.reset(options={"index": 0})[0], local.reset(seed=20_000_000)[0])]
    point = snapshot(env)
    for action in (call("look", times=3), call("say", text="<image>"), "hm"):
        observations.append((env.step(action)[0], local.step(action)[0]))
    assert all(alike(ours, theirs) for ours, theirs in observations)
    assert env.observation_space.contains(observations[1][0]) and len(observations[1][0]["images"]) == 2
    assert f"picture {Picture(shade(int(local.unwrapped.task.answer))).digest[:16]}" in restore(env, point)[1]["anchor"]
    env.close()
    with pytest.raises(BackendReplyError, match="too large: at most 2 a side"):
        gym.make("AgentR1/OpenEnv-v0", url=url[0], **{**kwargs, "max_side": 2}).reset(seed=0)
    with pytest.raises(BackendReplyError, match="as a file in base64"):
        gym.make("AgentR1/OpenEnv-v0", url=url[0], **{**kwargs, "pictures": "info"}).reset(seed=0)


def test_what_is_served_is_what_is_local_to_the_pixel(url):
    for address, wrappers in zip(url, ((), ("ChatMessages",)), strict=True):
        remote = gym.make("AgentR1/Remote-v0", url=address, max_episode_steps=10)
        local = make_text_env("Shades-v0", {}, wrappers)
        assert remote.observation_space == local.observation_space
        assert alike(remote.reset(options={"index": 7})[0], local.reset(options={"index": 7})[0])
        for action in (call("look", times=3), call("say", text="<image>"), "hm"):
            if action == "hm":
                point = snapshot(remote)
            ours, theirs = local.step(action), remote.step(action)
            assert alike(ours[0], theirs[0]) and ours[1:4] == theirs[1:4]
        again = restore(remote, point)[0]
        assert remote.observation_space.contains(again)
        remote.close()


@pytest.mark.parametrize(
    "images", ["x", ["x"], [1], [], ["aGk="] * 9, [base64.b64encode(to_png(shade(1, 17, 1))).decode()]]
)
def test_a_hostile_server_is_a_broken_one(images):
    from agent_envs.serving.remote_env import _picture_limits, _shown
    from agent_envs.spaces import ImageText

    with pytest.raises(BackendReplyError, match="^there: "):
        _shown({"text": "<image>", "images": images}, ImageText(100, 2, 16), "there")
    for limits in ([1], [0, 5], [1, 10**9], ["1", 2], [True, 5], None, 0, "ab"):
        with pytest.raises(BackendReplyError, match="^there: expected how many pictures"):
            _picture_limits(limits, "there")
