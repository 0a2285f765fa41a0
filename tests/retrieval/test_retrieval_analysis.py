"""The analyzer: tokens, terms, stems. What Lucene makes of the same texts is in test_retrieval_lucene.py."""

import random

import pytest

from agent_envs.files import table
from agent_envs.retrieval.analysis.analyzer import MAX_TOKEN_LENGTH, STOP_WORDS, analyze, stem, tokenize
from agent_envs.retrieval.bm25 import segment


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", []),
        ("a b\tc\nd", ["a", "b", "c", "d"]),
        ("U.S.A. e.g.", ["U.S.A", "e.g"]),  # a full stop between letters joins, behind them it does not
        ("1,000.5 1;2 1'2", ["1,000.5", "1;2", "1'2"]),  # between digits
        ("a,b a;b 1:2", ["a", "b", "a", "b", "1", "2"]),  # neither
        ("a:b x.1 1.x", ["a:b", "x", "1", "1", "x"]),  # letters and digits are not joined by a mark
        ("don't O’Neil rock'n'roll", ["don't", "O’Neil", "rock'n'roll"]),
        ("a''b 'a'", ["a", "b", "a"]),
        ("_a_b_ x1_2y", ["_a_b_", "x1_2y"]),
        ("C++ C# R&D AT&T", ["C", "C", "R", "D", "AT", "T"]),
        ("well-known state–of–the–art", ["well", "known", "state", "of", "the", "art"]),
        ("café cafe\u0301 m² ½", ["café", "cafe\u0301", "m"]),  # a combining accent belongs to its letter, ² to nothing
        ("東京タワー ひら 한국어 สวัสดี", ["東", "京", "タワー", "ひ", "ら", "한국어", "สวัสดี"]),
        ("👍🏽 👨‍👩‍👧 🇩🇪🇫🇷 ©", ["👍🏽", "👨‍👩‍👧", "🇩🇪", "🇫🇷", "©"]),
        ("שלום צה״ל ג'ירפה", ["שלום", "צה״ל", "ג'ירפה"]),
        ("x" * 600, ["x" * 255, "x" * 255, "x" * 90]),
        ("é" * 300 + " a", ["é" * 255, "é" * 45, "a"]),
    ],
)
def test_tokens(text, tokens):
    assert tokenize(text) == tokens


def test_long_texts_are_cut_as_short_ones_are():
    """The slow way for texts with a long token finds the same tokens elsewhere."""
    text = "It's 3.14 in the U.S., e.g. l'été. " * 200
    long = "x" * (MAX_TOKEN_LENGTH + 1)
    assert tokenize(f"{text}{long}") == [*tokenize(text), "x" * MAX_TOKEN_LENGTH, "x"]


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("The cats' John's JOHN’S its", ["cat", "john", "john", "it"]),
        ("Not The AND of", []),
        ("___ \uff3f", []),
        ("İstanbul ΣΑΣ", ["istanbul", "σασ"]),  # character by character, as in Java
        ("running runner runs", ["run", "runner", "run"]),
        ("THE's", []),
    ],
)
def test_terms(text, terms):
    assert analyze(text) == terms


EXAMPLES = """caresses ponies ties cats feed agreed plastered bled motoring sing conflated troubled sized hopping tanned
    falling hissing fizzed failing filing happy sky relational conditional valenci digitizer conformabli radicalli
    vietnamization operator feudalism decisiveness hopefulness callousness formaliti sensitiviti sensibiliti triplicate
    formative electrical goodness revival allowance airliner adjustable replacement adoption homologou effective
    probate rate cease controll roll possibly archaeology as s ing 1960s yes naïvely 's"""
"""The words of the algorithm's paper, and a few more."""


def test_stems_are_nltks():
    nltk = pytest.importorskip("nltk.stem.porter")
    reference = nltk.PorterStemmer(mode="MARTIN_EXTENSIONS")
    text = "s es ies sses ed ing eed y ational bli ization iveness logi icate ical ful ness ement sion ou e l ll"
    ends = text.split()
    words = [a + b + c for a in ("", "b", "ay", "trou", "contr", "yell", "é") for b in ("o", "iz", "st") for c in ends]
    words += EXAMPLES.split()
    assert [stem(w) for w in words] == [reference.stem(w, to_lowercase=False) for w in words]


def test_tables():
    assert len(STOP_WORDS) == 33
    seen = set()
    for entry in table("agent_envs.retrieval.analysis", "word_break.json").values():
        for text in " ".join(entry["ranges"]).split():
            first, _, last = text.partition("-")
            points = range(int(first, 16), int(last or first, 16) + 1)
            assert points and not seen & {points[0], points[-1]}
            seen.update(points)


@pytest.mark.parametrize(("remembered", "slots"), [(40, 128), (1 << 21, 1 << 22)])  # no room for some texts; for all
def test_segments_are_the_same_whoever_reads_the_texts(tmp_path, monkeypatch, remembered, slots):
    pytest.importorskip("numba")
    monkeypatch.setattr(segment, "_COMPILED_FROM", 1)
    monkeypatch.setattr(segment, "_REMEMBERED_TOKENS", remembered)
    monkeypatch.setattr("agent_envs.retrieval.bm25.numba_search._SLOTS", slots)
    rng = random.Random(1)
    words = ["The", "cats", "l'été", "東京", "x" * 300, "runs", "__", "1,000.5", *(f"w{i}" for i in range(50))]
    numbers = [segment.TermNumbers(compiled=compiled) for compiled in (False, True)]
    for part in range(4):
        contents = [" ".join(rng.choices(words, k=rng.randrange(12))) for _ in range(40)]
        contents += ["".join(rng.choices("aaabZ09__.:,;'  \n\t-(\0\x7f", k=rng.randrange(60))) for _ in range(1000)]
        contents += ["", "x" * 255, "a " + "x" * 256 + " b", "a.", "a.b.", "1,2,"]
        for name, one in zip("pc", numbers, strict=True):
            segment.write_segment(str(tmp_path / f"{name}{part}"), contents, 100 * part, one)
    files = sorted(path.name[1:] for path in tmp_path.glob("p*"))
    assert len(files) == 20
    for name in files:
        assert (tmp_path / f"p{name}").read_bytes() == (tmp_path / f"c{name}").read_bytes(), name
