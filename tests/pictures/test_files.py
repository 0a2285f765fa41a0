"""Episodes with pictures in files: each picture once, every pixel kept, and nothing else believed."""

import io
import json
import struct
import zlib

import gymnasium as gym
import numpy as np
import pytest

from agent_envs import Episode, evaluate, read_episodes, run_episode, run_episodes, write_episodes
from agent_envs.cli import main
from agent_envs.episodes.record import episode_pictures
from agent_envs.errors import DataError
from agent_envs.pictures.folder import reference
from agent_envs.pictures.picture import IMAGE, Picture, alike
from agent_envs.pictures.png import read_picture, shrunk, to_png
from agent_envs.policies.scripted import ScriptedPolicy
from agent_envs.wrappers import ChatMessages, RecordEpisodes
from tests.pictures.shades import call, shade

PIL = pytest.importorskip("PIL.Image")

LOOKS = ScriptedPolicy([call("look", times=1), call("look", times=2), "5"])


def files(folder):
    return sorted(path.name for path in (folder / "pictures").iterdir())


@pytest.mark.parametrize("wrappers", [(), ("ChatMessages",)])
def test_episodes_come_back_from_a_file_with_every_pixel(tmp_path, wrappers):
    path = tmp_path / "episodes.jsonl"
    played = run_episodes("Shades-v0", LOOKS, 3, options=[{"index": 5}] * 3, wrappers=wrappers, progress=False)
    write_episodes(path, played)
    read = list(read_episodes(path))
    assert read == played and read[0].success
    assert alike([p.array for p in episode_pictures(read[0])], [p.array for p in episode_pictures(played[0])])
    assert len(files(tmp_path)) == 4  # 5 at two sizes, and two other shades
    assert path.stat().st_size < 30_000 and "sha256" in path.read_text()
    json.loads(path.read_text().splitlines()[0])


def test_what_passes_a_recorder_is_what_the_rollout_returns(tmp_path):
    for env in (gym.make("Shades-v0"), ChatMessages(gym.make("Shades-v0"))):
        path = tmp_path / type(env).__name__ / "e.jsonl"
        episode = run_episode(RecordEpisodes(env, path=path), LOOKS, options={"index": 5})
        (read,) = read_episodes(path)
        assert read.steps == episode.steps and read.final_observation == episode.final_observation


def test_an_evaluation_goes_on_and_is_scored_again_with_its_pictures(tmp_path, capsys):
    run = tmp_path / "run"
    evaluate("Shades-v0", LOOKS, out=run, indices=[5, 6])
    assert len(files(run)) == 6
    evaluate("Shades-v0", LOOKS, out=run, indices=[5, 6])  # reads what is there
    out = tmp_path / "other" / "again.jsonl"
    assert main(["score", str(run), "--trust", "--out", str(out)]) == 0
    assert "2 with the same observations" in capsys.readouterr().out
    assert files(tmp_path / "other") == files(run)
    assert sorted(e.reward for e in read_episodes(out)) == [0.0, 1.0]  # in the order in which they ended


def test_a_missing_or_changed_picture_is_named_when_it_is_looked_at(tmp_path):
    path = tmp_path / "e.jsonl"
    write_episodes(path, [run_episode(gym.make("Shades-v0"), LOOKS, options={"index": 5})])
    (episode,) = read_episodes(path)
    first = episode.steps[0].observation["images"][0]
    file = tmp_path / "pictures" / f"{first.digest}.png"
    file.write_bytes(to_png(shade(6)))
    with pytest.raises(DataError, match="is not what its file holds"):
        _ = first.array
    file.unlink()
    with pytest.raises(DataError, match="cannot be read.*keep the folder 'pictures'"):
        _ = first.array
    assert episode.success and "<image>" in repr(episode) and episode.to_html().count("<img") == 3
    with pytest.raises(DataError, match="cannot be read"):
        _ = Episode.from_dict(episode.to_dict()).steps[1].observation["images"][0].array


GOOD = reference(Picture(shade(1)))


@pytest.mark.parametrize(
    "value",
    [
        {**GOOD, "sha256": "../" * 10 + "a" * 34},  # a path
        {**GOOD, "sha256": GOOD["sha256"].upper()},
        {**GOOD, "width": 20_000},
        {**GOOD, "width": True},
        {**GOOD, "height": 0},
        {**GOOD, "more": 1},
        "a" * 64,
        None,
    ],
)
def test_a_hostile_reference_is_refused(tmp_path, value):
    path = tmp_path / "e.jsonl"
    write_episodes(path, [run_episode(gym.make("Shades-v0"), LOOKS, options={"index": 5})])
    row = json.loads(path.read_text())
    for observation in (
        {"text": IMAGE, "images": [value]},
        [{"role": "user", "content": [{"type": "image", "image": value}]}],
    ):
        row["final_observation"] = observation
        path.write_text(json.dumps(row) + "\n")
        with pytest.raises(DataError, match="line 1: not an episode: .*a picture"):
            list(read_episodes(path))
    row["final_observation"] = {"text": "no placeholder", "images": [GOOD]}
    path.write_text(json.dumps(row) + "\n")
    with pytest.raises(DataError, match="an observation with pictures is"):
        list(read_episodes(path))


def _saved(mode: str, size=(4, 3), **options) -> bytes:
    file = io.BytesIO()
    PIL.new(mode, size).save(file, options.pop("format", "PNG"), **options)
    return file.getvalue()


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _png(width: int, height: int, rows: bytes, depth: int = 8) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, depth, 2, 0, 0, 0)
    packed = zlib.compress(rows, 9)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", packed) + _chunk(b"IEND", b"")


WHOLE = _saved("RGB")
BROKEN = {
    "empty": (b"", "it is none"),
    "text": (b"hello", "it is none"),
    "cut off": (WHOLE[:-20], "expected a whole PNG picture"),
    "only a header": (WHOLE[:33], "expected a whole PNG picture"),
    "wrong sum": (WHOLE.replace(b"IDAT", b"IDAT"[::-1], 1), "expected a whole PNG picture"),
    "too few rows": (_png(4, 3, b"\0" * 13), "expected a whole PNG picture"),
    "huge by its header": (_png(20_000, 20_000, b"\0" * 1000), "20000 x 20000 pixels is too large"),
    "a bomb": (_png(8192, 8193, b"\0" * 1000), "8192 x 8193 pixels is too large"),
    "sides of 0": (_png(0, 0, b""), "PNG picture"),
    "two billion": (_png(2**31 - 1, 1, b""), "too large"),
    "16 bits": (_saved("I;16"), "red, green and blue of 8 bits each, got 16 bits"),
    "16 bits a colour": (_png(4, 3, b"\0" * 3 * 25, depth=16), "8 bits each, got 16 bits"),
    "alpha": (_saved("RGBA"), "got transparency"),
    "a transparent colour": (_saved("RGB", transparency=(0, 0, 0)), "got transparency"),
    "grey and alpha": (_saved("LA"), "got transparency"),
    "a palette": (_saved("P"), "got a palette"),
    "grey": (_saved("L"), "got grey alone"),
    "another format": (_saved("RGB", format="BMP"), "it is none"),
    "a huge comment": (WHOLE[:33] + _chunk(b"zTXt", b"a\0\0" + zlib.compress(b"a" * 3_000_000)) + WHOLE[33:], "PNG"),
    "moving": (_saved("RGB", save_all=True, append_images=[PIL.new("RGB", (4, 3), 255)]), "2 that move"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_pictures_are_refused_with_what_is_wrong(name):
    data, message = BROKEN[name]
    with pytest.raises(DataError, match=f"^there: .*{message}"):
        read_picture(data, "there")


def test_whole_pictures_are_read():
    for array in (shade(7, 1, 1), shade(9, 3, 200), np.random.default_rng(0).integers(0, 256, (50, 40, 3), np.uint8)):
        assert np.array_equal(read_picture(to_png(array), "there").array, array)
    with pytest.raises(DataError, match="50 x 2 pixels is too large: at most 49"):
        read_picture(to_png(shade(1, 2, 50)), "there", max_side=49)
    assert shrunk(shade(9, 100, 1), 10).shape == (10, 1, 3)
