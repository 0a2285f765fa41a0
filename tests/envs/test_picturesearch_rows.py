"""PictureSearch on files laid out as V*Bench and HR-Bench were released, and on broken ones."""

import base64
import json
import struct
import zlib
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from agent_envs.errors import ConfigError, DataError
from agent_envs.pictures.png import to_png
from tests.helpers import tool_call

pytest.importorskip("PIL")
ID = "AgentR1/PictureSearch-v0"
TEXT = "What is the material of the glove?\n(A) rubber\n(B) cotton\nAnswer with the option's letter."
HEAD = ["index", "question", "answer", "category", "A", "B", "C", "D", "cycle_category", "image"]
PIXELS = np.random.default_rng(0).integers(0, 256, (301, 403, 3)).astype(np.uint8)


def png(width: int, height: int, rows: bytes = b"") -> bytes:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def vstar(folder: Path, content: bytes = b"", **changes: Any) -> Path:
    (folder / "direct_attributes").mkdir(parents=True, exist_ok=True)
    (folder / "direct_attributes" / "a.png").write_bytes(content or to_png(PIXELS))
    row = {"image": "direct_attributes/a.png", "text": TEXT, "category": "direct_attributes", "label": "B"}
    (folder / "test_questions.jsonl").write_text(json.dumps({**row, "question_id": 0, **changes}) + "\n")
    return folder


def hr_row(**changes: str) -> dict[str, str]:
    image = base64.b64encode(to_png(PIXELS)).decode()
    row = ["0", "What is on the sign?", "C", "single", "a", '"b"', "c", "d", "0", image]
    return dict(zip(HEAD, row, strict=True)) | changes


def table(path: Path, *rows: dict[str, str]) -> Path:
    pytest.importorskip("pandas").DataFrame(rows, columns=HEAD).to_parquet(path)
    return path


def played(data: Path, answer: str, split: str = "train", index: int = 0) -> tuple[Any, float, bool]:
    env = gym.make(ID, data=str(data), split=split)
    first, info = env.reset(options={"index": index})
    assert env.unwrapped.expert_action() is None and env.unwrapped.demo_action(np.random.default_rng(0), 1.0) is None
    assert info["source"] == str(data) and info["task_id"].startswith("picturesearch/")
    crop = env.step(tool_call("zoom", left=0, top=0, right=300, bottom=300))[0]["images"][0]
    assert (crop[::2, ::2] == PIXELS[: len(crop) // 2, : crop.shape[1] // 2]).all()  # enlarged
    _, reward, terminated, _, _ = env.step(answer)
    assert terminated
    return first, reward, env.unwrapped.right_answer()


def test_vstar_by_folder_and_by_file(tmp_path):
    folder = vstar(tmp_path / "vstar")
    for data, split in ((folder, "test"), (folder / "test_questions.jsonl", "train")):
        first, reward, right = played(data, "<answer>(B)</answer>", split)
        assert "glove?\n(A) rubber" in first["text"] and (reward, right) == (1.0, "B")
        assert first["images"][0].shape == (150, 201, 3)
        assert played(data, "<answer>A</answer>", split)[1] == 0.0
        assert played(data, "<answer>cotton</answer>", split)[1] == 1.0


def test_hrbench_tables(tmp_path):
    data = table(tmp_path / "hr_bench_4k.parquet", hr_row(), hr_row(answer="A", question='Which "one"?'))
    first, reward, right = played(data, "C")
    assert first["text"].endswith(
        'What is on the sign?\n(A) a\n(B) "b"\n(C) c\n(D) d\nAnswer with the letter of the right option.'
    )
    assert (reward, right) == (1.0, "C")
    first, *judged = played(data, "<answer>A. a</answer>", index=1)
    assert 'Which "one"?' in first["text"] and judged == [1.0, "A"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"image": "../a.png"}, "in the folder of the file"),
        ({"image": "/etc/passwd"}, "in the folder of the file"),
        ({"image": "none.png"}, "there is no picture"),
        ({"image": 3}, "expected text under 'image'"),
        ({"label": "Z"}, "one of their letters as label"),
        ({"text": "What?"}, "one of their letters as label"),
        ({"text": "What?\n(B) b\n(A) a"}, "one of their letters as label"),
    ],
)
def test_bad_rows_of_vstar_are_named(tmp_path, changes, said):
    with pytest.raises(DataError, match=said):
        gym.make(ID, data=str(vstar(tmp_path, **changes)), split="test")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (to_png(PIXELS)[:-200], "cut off"),
        (b"nothing", "it is none"),
        (png(20_000, 20_000), "20000"),
        (png(8000, 8000), "picture"),  # a header that promises more than there is
        (b"GIF89a" + bytes(100), "it is none"),
        (to_png(PIXELS[:7]), "403 x 7 pixels; at least 8"),
        (to_png(np.zeros((8, 513, 3), np.uint8)), "513 x 8 pixels; .* at most 64 times"),
    ],
)
def test_hostile_pictures_are_refused(tmp_path, content, said):
    env = gym.make(ID, data=str(vstar(tmp_path, content)), split="test")
    with pytest.raises(DataError, match=said):
        env.reset(seed=0)


def test_bad_tables_are_named(tmp_path):
    with pytest.raises(DataError, match="no rows"):
        gym.make(ID, data=str(table(tmp_path / "v.parquet")))
    with pytest.raises(DataError, match="one of the options A, B, C, D, got 'E'"):
        gym.make(ID, data=str(table(tmp_path / "x.parquet", hr_row(answer="E"))))
    env = gym.make(ID, data=str(table(tmp_path / "y.parquet", hr_row(image="???"))))
    with pytest.raises(DataError, match="expected base64"):
        env.reset(seed=0)
    for content in (b"PAR1PAR1", table(tmp_path / "w.parquet", {"a": "1"}).read_bytes()[:-40]):
        (tmp_path / "z.parquet").write_bytes(content)
        with pytest.raises(DataError, match="not a readable parquet file"):
            gym.make(ID, data=str(tmp_path / "z.parquet"))


def test_what_released_rows_do_not_have_is_refused(tmp_path):
    data = str(vstar(tmp_path))
    for kwargs in ({"view": "words"}, {"level": 2}, {"families": "find"}):
        with pytest.raises(ConfigError):
            gym.make(ID, data=data, split="test", **kwargs)


def test_a_picture_that_was_replaced_is_read_again(tmp_path):
    data = vstar(tmp_path)
    shown = [gym.make(ID, data=str(data), split="test").reset(seed=0)[0]["images"][0]]
    vstar(tmp_path, to_png(PIXELS[:200]))
    shown.append(gym.make(ID, data=str(data), split="test").reset(seed=0)[0]["images"][0])
    assert [len(picture) for picture in shown] == [150, 100]
