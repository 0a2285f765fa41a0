"""Search by vectors.

1. A released corpus, its passages without ids and its vectors as .npy or as a flat FAISS index, opens as it is.
2. numpy and FAISS give the same: the inner products computed one by one, equal ones by their place.
3. The encoder is BGE's: the first token of the last layer, of length 1, a query with its instruction.
4. A build that was killed goes on after its last batch, and leaves what one without a break leaves.
5. What is no corpus, or has no vector for each passage, is refused; no pickle is read.
"""

from __future__ import annotations

import copy
import functools
import importlib.util
import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from agent_envs.cli.main import main
from agent_envs.errors import BackendError, ConfigError, DataError
from agent_envs.retrieval import BM25Retriever, DenseRetriever, HTTPRetriever, Retriever, open_retriever
from tests.helpers import write_rows

FAISS = importlib.util.find_spec("faiss") is not None
ENGINES = ["numpy", *["faiss"] * FAISS]
INSTRUCTION = "Represent this sentence for searching relevant passages: "
WORDS = ["amber", "bridge", "castle", "delta", "ember", "forest", "granite", "harbour", "island", "jetty"]


def passages(count=200):
    rng = np.random.default_rng(0)
    return [{"title": f"Place {n}", "text": " ".join(rng.choice(WORDS, 12))} for n in range(count)]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """The folder of a tiny BERT with random weights."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("encoder")
    words = [*WORDS, "place", *INSTRUCTION.lower().replace(":", " :").split(), *map(str, range(200))]
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    transformers.BertTokenizerFast({word: n for n, word in enumerate(vocabulary)}).save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(vocabulary), hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        initializer_range=1.0,
    )  # fmt: skip
    transformers.BertModel(config).save_pretrained(folder)
    return folder


@functools.cache
def loaded(model):
    from transformers import AutoModel, AutoTokenizer

    return AutoTokenizer.from_pretrained(model), AutoModel.from_pretrained(model)


def reference(model, text):
    """The vector of one text, without padding."""
    import torch

    tokenizer, bert = loaded(model)
    with torch.no_grad():
        state = bert(**tokenizer([text], return_tensors="pt")).last_hidden_state[0, 0]
    return (state / state.norm()).numpy()


@pytest.fixture(scope="module")
def released(model, tmp_path_factory):
    """A folder in the released layout, and its vectors."""
    folder = tmp_path_factory.mktemp("hotpotqa_corpus")
    rows = passages()
    rows[150] = rows[20]  # twice, as in corpora that keep what they find
    write_rows(folder / "hpqa_corpus.jsonl", rows)
    vectors = np.stack([reference(model, f"{row['title']} {row['text']}") for row in rows])
    np.save(folder / "hpqa_corpus.npy", vectors)
    return folder, vectors


def write_flat(path, vectors, kind=b"IxFI", metric=0):
    """Write what faiss.write_index writes of an IndexFlatIP."""
    n, dimensions = vectors.shape
    header = np.array([dimensions], "<i4").tobytes() + np.array([n, 1 << 20, 1 << 20], "<i8").tobytes() + b"\x01"
    numbers = np.array([metric], "<i4").tobytes() + np.array([vectors.size], "<u8").tobytes()
    path.write_bytes(kind + header + numbers + vectors.astype("<f4").tobytes())


def test_a_released_corpus_by_name(released, model, caplog):
    folder, vectors = released
    with caplog.at_level("INFO"):
        retriever = open_retriever(f"dense:{folder}#model={model}")
    assert "200 passages; 0.000 GB of vectors" in caplog.text and "another encoder" not in caplog.text
    assert retriever is open_retriever(f"dense:{folder}#model={model}") is copy.deepcopy(retriever)
    assert isinstance(retriever, Retriever) and len(retriever) == 200
    scores = vectors @ reference(model, f"{INSTRUCTION}Where is the amber castle?")
    expected = sorted(range(200), key=lambda n: (-round(float(scores[n]), 5), n))[:5]
    found = retriever.search("Where is the amber castle?", 5)
    assert [doc_id for doc_id, _ in found] == [str(n) for n in expected]
    assert [score for _, score in found] == pytest.approx(scores[expected], abs=1e-5)
    assert retriever.document("7") == {"id": "7", **passages()[7]}
    text = f"{passages()[20]['title']} {passages()[20]['text']}"
    bare = open_retriever(f"dense:{folder}#model={model}&instruction=")
    assert bare.search(text, 2) == [("20", pytest.approx(1, abs=1e-5)), ("150", pytest.approx(1, abs=1e-5))]
    for doc_id in ("200", "-1", "x", "²", "9" * 5000):
        with pytest.raises(ConfigError, match="no document"):
            retriever.document(doc_id)
    for options in ("model=no/such/folder/anywhere", "pooling=max", "device=nowhere", "max_length=0", "encoder=x"):
        with pytest.raises(ConfigError):
            open_retriever(f"dense:{folder}#{options}")


def test_an_environment_and_a_server_search_it(released, model):
    pytest.importorskip("aiohttp")
    import gymnasium as gym

    from agent_envs.serving.search import SearchServer

    name = f"dense:{released[0]}#model={model}"
    with SearchServer(open_retriever(name), port=0) as server:
        served = HTTPRetriever(server.url).search("the old harbour", 3)
        found = []
        for retriever in (name, server.url):
            env = gym.make("AgentR1/HotpotQA-v0", retriever=retriever, top_k=3)
            env.reset(seed=0)
            call = env.get_wrapper_attr("format_call")("search", {"query": "the old harbour"})
            found.append(env.step(call)[0])
    assert found[0] == found[1] and all(f"Place {doc_id}" in found[0] for doc_id, _ in served)
    assert served == open_retriever(name).search("the old harbour", 3)


@pytest.mark.parametrize("layout", ["<f4", "<f2", "flat"])
def test_engines_and_layouts_agree(tmp_path, monkeypatch, layout):
    """Over several chunks, with many vectors that are equal, whose products an engine may round differently."""
    monkeypatch.setattr("agent_envs.retrieval.dense._CHUNK", 700)
    rng = np.random.default_rng(1)
    vectors = rng.normal(size=(3000, 48)).astype("<f2").astype("<f4")
    vectors[rng.integers(0, 3000, 1500)] = vectors[0]
    (tmp_path / "c.jsonl").write_text("".join(json.dumps({"text": f"{n}"}) + "\n" for n in range(3000)))
    if layout == "flat":
        write_flat(tmp_path / "index.bin", vectors)
    else:
        np.save(tmp_path / "c.npy", vectors.astype(layout))
    asked = {
        "0": vectors[0],
        "q": rng.normal(size=48),
        "near": vectors[0] + 0.1 * rng.normal(size=48),
        "zero": 0 * vectors[0],
    }

    def encoder(texts):
        return [asked[text] for text in texts]

    products = [(vectors.astype("<f8") * query.astype("<f4")).sum(axis=1).astype("<f4") for query in asked.values()]
    for k in (1, 5, 1200, 3000):
        expected = [np.argsort(-row, kind="stable")[:k].tolist() for row in products]
        for engine in ENGINES:
            found = DenseRetriever(tmp_path, encoder, engine=engine).search_many(list(asked), k)
            assert [[int(doc_id) for doc_id, _ in hits] for hits in found] == expected, (engine, k)


@pytest.mark.skipif(not FAISS, reason="faiss is not installed")
def test_a_flat_index_is_faiss_own(tmp_path):
    import faiss

    vectors = np.random.default_rng(0).normal(size=(50, 8)).astype("<f4")
    index = faiss.index_factory(8, "Flat", faiss.METRIC_INNER_PRODUCT)
    index.add(vectors)
    faiss.write_index(index, str(tmp_path / "index.bin"))
    write_flat(tmp_path / "own.bin", vectors)
    assert (tmp_path / "index.bin").read_bytes() == (tmp_path / "own.bin").read_bytes()


def letters(texts):
    return np.array([[text.lower().count(c) for c in "abcdefghijklmnopqrstuvwxyz"] for text in texts], np.float64)


@pytest.mark.parametrize("engine", ENGINES)
def test_any_encoder(tmp_path, engine, caplog):
    documents = [{"id": f"d{i}", "text": chr(97 + i % 5) * (i // 5 + 1)} for i in range(50)]
    asked = []

    def encoder(texts):
        asked.extend(texts)
        return letters(texts)

    folder = tmp_path / "index"
    index = DenseRetriever.build(documents, encoder, folder, batch_size=7, query_prefix="Q: ", engine=engine)
    assert index.search("a", 3) == [("d45", 10.0), ("d40", 9.0), ("d35", 8.0)] and "Q: a" in asked
    assert index.search("Z", 2) == [("d0", 0.0), ("d1", 0.0)]  # all equal: by place
    assert index.document("d7") == documents[7] and len(index.search("a", 99)) == 50
    assert DenseRetriever.build(iter(documents), letters).search("a", 1) == [("d45", 10.0)]
    for bad, error, message in (
        (lambda texts: [1.0], BackendError, "returned"),
        (lambda texts: letters(texts) * np.nan, BackendError, "not finite"),
        (lambda texts: letters(texts)[:, :5], BackendError, "5 dimensions, but the index has 26"),
    ):
        with pytest.raises(error, match=message):
            DenseRetriever(folder, bad)
    assert caplog.text == ""
    DenseRetriever(folder, lambda texts: 26 - letters(texts))
    assert "another encoder" in caplog.text
    with pytest.raises(ConfigError):
        index.search("a", 0)
    with pytest.raises(DataError, match=r"format 'agent_envs\.bm25', version 1, got 'agent_envs\.dense'"):
        BM25Retriever.open(folder)
    with pytest.raises(DataError, match="an id occurs twice"):
        DenseRetriever.build([documents[0]] * 2, letters)
    with pytest.raises(DataError, match="no documents"):
        DenseRetriever.build([], letters)


class Lengths:
    """An encoder that keeps what it is asked."""

    def __init__(self):
        self.asked = []

    def __repr__(self):
        return "lengths"

    def __call__(self, texts):
        self.asked += texts
        return [[len(text), 1] for text in texts]


KILLED = """
import os, signal, sys
from agent_envs.retrieval import DenseRetriever
class Lengths:
    asked = False
    def __repr__(self):
        return "lengths"
    def __call__(self, texts):
        if self.asked:
            os.kill(os.getpid(), signal.SIGKILL)
        self.asked = True
        return [[len(text), 1] for text in texts]
DenseRetriever.build(sys.argv[1], Lengths(), sys.argv[2])
"""


def test_a_killed_build_goes_on(tmp_path, root):
    folder, rows = tmp_path / "index", passages(300)
    source = write_rows(tmp_path / "corpus.jsonl", rows)
    environment = {**os.environ, "PYTHONPATH": str(root)}
    killed = subprocess.run([sys.executable, "-c", KILLED, source, folder], env=environment, check=False, timeout=300)
    assert killed.returncode == -signal.SIGKILL and not folder.exists()
    encoder = Lengths()
    with pytest.raises(DataError):
        DenseRetriever(folder, encoder)
    index = DenseRetriever.build(source, encoder, folder)
    assert len(encoder.asked) == 300 - 256 + 1  # and the first again, to see that the vectors are this encoder's
    vectors = np.load(folder / "corpus.npy", allow_pickle=False)
    assert vectors.tolist() == [[len(f"{row['title']} {row['text']}"), 1] for row in rows]
    assert index.document("299") == {"id": "299", **rows[299]}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus.jsonl", "index"]


def test_command_line(model, tmp_path, capsys):
    folder, rows = tmp_path / "index", passages(40)
    source = write_rows(tmp_path / "corpus.jsonl", rows)
    command = ["index", str(source), "--out", str(folder), "--encoder", f"model={model}", "--quiet"]
    assert main(command) == 2  # without --dense
    command.append("--dense")
    assert main(command) == 0
    assert "40 passages; 0.000 GB of vectors" in capsys.readouterr().out
    encoder = f"SentenceEncoder(model={str(model)!r}, pooling='cls', max_length=512)"
    assert json.loads((folder / "index.json").read_text())["encoder"] == encoder  # by which a build goes on
    vectors = np.load(folder / "corpus.npy", allow_pickle=False)
    for number in (0, 31, 32, 39):
        expected = reference(model, f"{rows[number]['title']} {rows[number]['text']}")
        assert vectors[number] == pytest.approx(expected, abs=1e-5)
    assert main(command) == 2 and main([*command, "--force"]) == 0
    assert open_retriever(f"dense:{folder}#model={model}").document("39") == {"id": "39", **rows[39]}


def _pickle(folder):
    np.save(folder / "c.npy", np.array([{}] * 3, object), allow_pickle=True)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda f: (f / "c.npy").unlink(), r"^\S+ has no vectors, c.npy or index.bin; make them with: agentr1 index"),
        (lambda f: np.save(f / "c.npy", np.ones((2, 26), "f4")), "3 passages, but there are 2 vectors"),
        (lambda f: np.save(f / "c.npy", np.ones(3, "f4")), "cannot be read"),
        (lambda f: np.save(f / "c.npy", np.ones((3, 26), "i4")), "cannot be read"),
        (_pickle, "cannot be read"),
        (lambda f: (f / "c.npy").write_bytes((f / "c.npy").read_bytes()[:-1]), "cannot be read"),
        (lambda f: (f / "c.npy").write_bytes(b""), "cannot be read"),
        (lambda f: (f / "c.jsonl").write_text('{"text": "a"}\n[]\n{"text": 3}'), "line 2: expected an object"),
        (lambda f: (f / "c.jsonl").unlink(), "one corpus, a .jsonl file, and its vectors; found none"),
        (lambda f: (f / "d.jsonl").write_text("{}"), r"found c\.jsonl, d\.jsonl"),
        (lambda f: ((f / "c.npy").unlink(), write_flat(f / "index.bin", np.ones((3, 26)), b"IxF2", 1)), "kind b'IxF2'"),
        (lambda f: ((f / "c.npy").unlink(), write_flat(f / "index.bin", np.ones((3, 26)), metric=1)), "cannot be read"),
        (lambda f: ((f / "c.npy").unlink(), (f / "index.bin").write_bytes(b"IxFI")), "cannot be read"),
    ],
)  # fmt: skip
def test_what_is_no_index(tmp_path, spoil, message):
    (tmp_path / "c.jsonl").write_text('{"text": "a"}\n{"text": "b"}\n{"text": "c"}')  # the last line without its end
    np.save(tmp_path / "c.npy", letters("abc").astype("f4"))
    assert DenseRetriever(tmp_path, letters).search("b", 1) == [("1", 1.0)]
    spoil(tmp_path)
    with pytest.raises(DataError, match=message):
        index = DenseRetriever(tmp_path, letters)
        [index.document(doc_id) for doc_id, _ in index.search("b", 3)]
