"""Broken data files: every environment answers each with an error of this package, at once, or plays it.

1. 22 forms of breakage of every file that an id reads: never another exception, never a file that is read for ever.
2. Index folders with one byte changed, at every place of the manifest and at sampled places of the other files.
3. Two processes that prepare, index or open the same folder at once both get the whole of it.
"""

import gzip
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

from agent_envs import ENV_IDS
from agent_envs.datasets.alfworld.generate import generate_alfworld
from agent_envs.datasets.webshop import catalog
from agent_envs.errors import AgentEnvsError
from agent_envs.retrieval import BM25Retriever, read_corpus

QA_ROW = {
    "_id": "q1", "question": "Where was the mayor of Korvath born?", "answer": "Pigam", "type": "bridge",
    "supporting_facts": [["Korvath", 1], ["Adan Orvel", 0]],
    "context": [["Korvath", ["Korvath is a town.", " Its mayor is Adan Orvel."]], ["Adan Orvel", ["Born in Pigam."]]],
}  # fmt: skip
MUSIQUE_ROW = {
    "id": "2hop__1_2", "question": "Where?", "answer": "Pigam", "answer_aliases": [], "answerable": True,
    "question_decomposition": [{"id": 1}],
    "paragraphs": [{"idx": 0, "title": "Korvath", "paragraph_text": "In Pigam.", "is_supporting": True}],
}  # fmt: skip
PAPER_ROW = {
    "qid": "AutoScholarQuery_test_0", "question": "Which papers?", "answer": ["On Parsing"],
    "answer_arxiv_id": ["2001.00001"], "source_meta": {"published_time": "20231024"},
}  # fmt: skip


def lines(*rows: Any) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def changed(change: Callable[[Any], Any]) -> Callable[[bytes], bytes]:
    """Change each row of a file: the lines of .jsonl, the entries of an array or of an object of objects."""

    def apply(content: bytes) -> bytes:
        try:
            document = json.loads(content)
        except ValueError:
            return b"".join(json.dumps(change(json.loads(line))).encode() + b"\n" for line in content.splitlines())
        if isinstance(document, list):
            return json.dumps([change(row) for row in document]).encode()
        if all(isinstance(value, (dict, list)) for value in document.values()):
            return json.dumps({key: change(value) for key, value in document.items()}).encode()
        return json.dumps(change(document)).encode()

    return apply


def each_value(value: Any) -> Callable[[Any], Any]:
    return lambda row: dict.fromkeys(row, value) if isinstance(row, dict) else [value] * len(row)


FORMS: dict[str, Callable[[bytes], bytes | None]] = {
    "empty": lambda content: b"",
    "blank": lambda content: b" \n\n\t\n",
    "half": lambda content: content[: len(content) // 2],
    "last byte": lambda content: content.rstrip()[:-1],
    "first byte": lambda content: content[1:],
    "UTF-16": lambda content: content.decode().encode("utf-16"),
    "not UTF-8": lambda content: content.replace(b'": "', b'": "\xff\xe9', 1),
    "byte order mark": lambda content: b"\xef\xbb\xbf" + content,
    "NULs at the end": lambda content: content + bytes(4096),
    "only NULs": lambda content: bytes(4096),
    "gzip": gzip.compress,
    "parquet's magic": lambda content: b"PAR1" + content + b"PAR1",
    "a number": lambda content: b"7\n",
    "nulls": lambda content: b"[null, null]\n",
    "lists": lambda content: b"[[1, 2], [3]]\n",
    "nested": lambda content: b"[" * 100_000,
    "a long integer": lambda content: b'{"question": ' + b"9" * 10_000 + b"}\n",
    "empty rows": changed(lambda row: {}),
    "numbers as values": changed(each_value(7)),
    "nulls as values": changed(each_value(None)),
    "objects as values": changed(each_value({"a": [{}]})),
    "NaN and surrogates": changed(each_value(["\ud800", float("nan")])),
}
assert len(FORMS) == 22
ELSEWHERE = ("AgentR1/HelpDesk-v0", "AgentR1/GSM8KTool-v0", "AgentR1/GSM8KCode-v0")
READING = [env_id for env_id in ENV_IDS if env_id not in ELSEWHERE]
"""The ids of tasks that are read from files too, those of GSM8K once."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory, released_files):
    """For each id a path of whole data, and the files in it to break."""
    top = tmp_path_factory.mktemp("whole")
    files = {
        "GSM8K": lines({"question": "1 + 1?", "answer": "1 + 1 = <<1+1=2>>2\n#### 2"}),
        "HotpotQA": json.dumps([QA_ROW]).encode(), "TwoWikiMultihopQA": json.dumps([QA_ROW]).encode(),
        "MathCode": lines({"problem": "1 + 1?", "answer": "2"}),
        "TableQA": lines({"question": "Which?", "table": "a | b\n1 | 2", "answer": "1"}),
        "MuSiQue": lines(MUSIQUE_ROW), "PaperSearch": lines(PAPER_ROW),
    }  # fmt: skip
    made = {}
    for name, content in files.items():
        path = top / name / ("rows.json" if content.startswith(b"[") else "rows.jsonl")
        path.parent.mkdir()
        path.write_bytes(content)
        made[f"AgentR1/{name}-v0"] = (path, [path.name])
    generate_alfworld(top / "alfworld", 1)
    game = next((top / "alfworld").rglob("game.tw-pddl"))
    root = game.parents[3]
    games = [str(game.relative_to(root)), str(game.with_name("traj_data.json").relative_to(root))]
    made["AgentR1/ALFWorld-v0"] = (root, games)
    shop = released_files.write_shop(top / "webshop", 4)
    made["AgentR1/WebShop-v0"] = (shop, sorted(path.name for path in shop.iterdir()))
    return made


def play(env_id: str, data: Path) -> None:
    split = {"AgentR1/WebShop-v0": "all"}.get(env_id, "train")
    env = gym.make(env_id, data=data, split=split)
    try:
        env.reset(seed=0)
        env.step("search[lamp]")
    finally:
        env.close()


@pytest.mark.timeout(300)  # for what waits, which takes no processor's time
@pytest.mark.parametrize("form", [*FORMS, "a folder", "a dangling link"])
@pytest.mark.parametrize("env_id", READING)
def test_a_broken_file_is_an_error_of_this_package(env_id, form, whole, tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT_ENVS_DATA", str(tmp_path / "prepared"))
    source, names = whole[env_id]
    for number, name in enumerate(names):
        folder = tmp_path / str(number)
        shutil.copytree(source if source.is_dir() else source.parent, folder)
        broken = folder / name
        content = broken.read_bytes()
        broken.unlink()
        if form == "a folder":
            broken.mkdir()
        elif form == "a dangling link":
            broken.symlink_to("nowhere")
        else:
            broken.write_bytes(FORMS[form](content) or b"")
        begun = time.process_time()
        try:
            play(env_id, folder if source.is_dir() else broken)
        except AgentEnvsError as e:
            assert len(str(e)) < 1500, e
        assert time.process_time() - begun < 30
        catalog._stores.clear()


def test_the_whole_files_are_played(whole, tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT_ENVS_DATA", str(tmp_path))
    for env_id in READING:
        play(env_id, whole[env_id][0])


# 2. indexes


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    folder = tmp_path_factory.mktemp("index") / "whole"
    rows = [{"id": f"d{i}", "title": f"Hill {i % 7}", "text": f"word{i % 13} and hill {i}"} for i in range(40)]
    BM25Retriever.build(rows, folder)
    return folder


def test_an_index_with_a_changed_byte_is_refused(index, tmp_path):
    rng = random.Random(0)
    folder = Path(shutil.copytree(index, tmp_path / "i"))
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        content = path.read_bytes()
        places = range(len(content))
        # The manifest has checksums of the other files and of itself.
        for place in places if path.name == "index.json" else rng.sample(places, min(len(places), 5)):
            path.write_bytes(content[:place] + bytes([content[place] ^ 0x55]) + content[place + 1 :])
            with pytest.raises(AgentEnvsError):
                BM25Retriever.open(folder)
        path.write_bytes(content)
    assert BM25Retriever.open(folder).search("hill", 3) == BM25Retriever.open(index).search("hill", 3)


def test_an_index_with_a_file_cut_or_missing_is_refused(index, tmp_path):
    for number, path in enumerate(sorted(p for p in index.rglob("*") if p.is_file())):
        for kept in (None, 0, path.stat().st_size // 2):
            folder = tmp_path / f"{number}-{kept}"
            shutil.copytree(index, folder)
            broken = folder / path.name
            broken.unlink() if kept is None else os.truncate(broken, kept)
            if kept == path.stat().st_size:
                continue  # an empty file
            with pytest.raises(AgentEnvsError):
                BM25Retriever.open(folder, verify=False)


# 3. two at once


def commands(folder: Path) -> list[list[str]]:
    (folder / "rows.jsonl").write_bytes(
        lines(*({"question": f"{i} + 1?", "answer": f"#### {i + 1}"} for i in range(300)))
    )
    (folder / "docs.jsonl").write_bytes(lines(*({"id": str(i), "text": f"word{i % 9} hill"} for i in range(300))))
    return [
        ["prepare", "gsm8k", "--from", "rows.jsonl", "--out", "prepared"],
        ["index", "docs.jsonl", "--out", "index", "--quiet"],
        ["generate", "alfworld", "--out", "games", "--n", "5"],
    ]


def agentr1(arguments: list[str], folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "agent_envs", *arguments]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def check_whole(folder: Path) -> None:
    """Check that each result is absent or whole."""
    if (folder / "prepared").exists():
        assert len((folder / "prepared" / "train.jsonl").read_text().splitlines()) == 300
    if (folder / "index").exists():
        assert len(BM25Retriever.open(folder / "index")) == 300


def test_two_processes_on_one_folder(tmp_path):
    for arguments in commands(tmp_path):
        pair = [agentr1(arguments, tmp_path) for _ in range(2)]
        errors = [process.communicate(timeout=120)[1] for process in pair]
        codes = sorted(process.returncode for process in pair)
        assert codes[0] == 0 and codes[1] in (0, 1, 2), errors
        assert "Traceback" not in "".join(errors)
        check_whole(tmp_path)
    assert (tmp_path / "index").is_dir() and (tmp_path / "prepared").is_dir()


# kill -9 at random moments


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_killed_at_random_moments(tmp_path):
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")  # noqa: T201  shown if the test fails
    rng = random.Random(seed)
    runs = [
        *commands(tmp_path)[:2],
        ["eval", "--env", "AgentR1/GSM8KTool-v0", "--policy", "expert", "--n", "400", "--out", "run", "--quiet"],
    ]
    for arguments in runs:
        begun = time.monotonic()
        whole = agentr1(arguments, tmp_path)
        _, error = whole.communicate(timeout=120)
        assert whole.returncode == 0, error
        length = time.monotonic() - begun
        for _ in range(12):
            shutil.rmtree(tmp_path / "index", ignore_errors=True)
            if rng.random() < 0.3:
                shutil.rmtree(tmp_path / "run", ignore_errors=True)
            process = agentr1(arguments, tmp_path)
            time.sleep(rng.random() * length)
            process.kill()
            process.communicate()
            check_whole(tmp_path)
        shutil.rmtree(tmp_path / "index", ignore_errors=True)  # whole if the last kill came too late
        last = agentr1(arguments, tmp_path)
        _, error = last.communicate(timeout=120)
        assert last.returncode == 0, error
        check_whole(tmp_path)
    from agent_envs import read_episodes

    episodes = list(read_episodes(tmp_path / "run" / "episodes.jsonl"))
    assert len({episode.episode_id for episode in episodes}) == len(episodes) == 400


# memory


def grown(env_id: str, resets: int) -> int:
    """Return by how many bytes this process has grown over the second half of some resets."""
    import psutil

    process = psutil.Process()
    env = gym.make(env_id)
    for number in range(resets):
        if number == resets // 2:
            before = process.memory_info().rss
        env.reset(seed=number % 10)  # few tasks, which caches keep
        if number % 10 == 0:
            env.step("search[lamp]")
    return process.memory_info().rss - before


@pytest.mark.parametrize("resets", [400, pytest.param(5_000, marks=pytest.mark.slow)])  # it grows by 3 KB a reset
@pytest.mark.parametrize("env_id", ENV_IDS)
def test_memory_stays_flat(env_id, resets):
    pytest.importorskip("psutil")
    assert grown(env_id, resets) < 8 << 20


def test_a_corpus_that_is_cut_off(tmp_path):
    (tmp_path / "docs.jsonl").write_bytes(lines({"id": "1", "text": "a"})[:-5])
    with pytest.raises(AgentEnvsError, match="line 1"):
        list(read_corpus(tmp_path / "docs.jsonl"))
