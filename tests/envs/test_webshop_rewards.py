"""WebShop's reward and its parts: fuzzy matching, nouns, colours, r_type.

1. `alike` is a threshold of thefuzz 0.19.0's token_set_ratio on difflib, on real strings and mixtures of them.
2. Tokens are spaCy's blank English tokenizer's on real titles and texts.
3. The default tagger gives the title scores that the original's own tests expect of spaCy's large model.
4. The reward's parts, one by one.
"""

import json
import random
import warnings
from dataclasses import replace

import pytest

from agent_envs.datasets.webshop.products import Goal, product_from_row
from agent_envs.envs.webshop.english_tokens import tokenize
from agent_envs.envs.webshop.fuzzy import alike
from agent_envs.envs.webshop.nouns import open_tagger
from agent_envs.envs.webshop.reward import basic_color, purchase_reward
from agent_envs.errors import ConfigError


@pytest.fixture(scope="module")
def rows(data_dir):
    names = ("webshop/items_shuffle_1000.json", "webshop_synthetic/items_shuffle.json")
    return [row for name in names for row in json.loads((data_dir / name).read_text(encoding="utf-8"))]


@pytest.fixture(scope="module")
def judge():
    import difflib

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fuzz = pytest.importorskip("thefuzz.fuzz", reason="thefuzz is in the extra dev")
    if fuzz.SequenceMatcher is not difflib.SequenceMatcher:
        pytest.skip("thefuzz runs on python-Levenshtein here, whose numbers differ")
    return fuzz.token_set_ratio


@pytest.fixture(scope="module")
def spacy_tokens():
    spacy = pytest.importorskip("spacy", reason="spaCy is in the extra suites")
    tokenizer = spacy.blank("en").tokenizer
    return lambda text: [token.text for token in tokenizer(text) if not token.is_space]


def strings_of(rows):
    products = [product_from_row(row) for row in rows]
    found = {value for p in products for values in p.options.values() for value in values}
    found |= {text for p in products for text in (p.title, p.query, *(b[:200] for b in p.bullets[:1]))}
    return sorted(found)


def assert_scores(first, second, wanted, *told):
    """Two texts are alike above the thresholds below their score alone."""
    for above in (max(wanted - 1, 0), wanted, 85):
        assert alike(first, second, above) == (wanted > above), (first, second, above, *told)


def test_scores_equal_thefuzz_on_real_strings(rows, judge):
    strings = strings_of(rows)
    assert len(strings) > 5000
    short = [s for s in strings if len(s) < 40]
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)
    for n in range(2_000):
        pool = strings if n % 8 == 0 else short
        first, second = rng.choice(pool), rng.choice(pool)
        if n % 3 == 0:  # alike, but not equal
            cut = rng.randrange(len(first) + 1)
            second = first[:cut] + rng.choice(["", "s", " é", "-", "x "]) + first[cut + rng.randrange(3) :]
        assert_scores(first, second, judge(first, second), seed)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("", "red"),  # nothing to compare
        ("_", "_"),  # an underscore is a letter
        ("?!", "?!"),  # no word at all
        (("color", "wine red"), "wine red"),  # synthetic goals: the pair, written out
        (("color", "red"), ("color", "red")),
        (None, "red"),
        ("é", "è"),  # dropped by thefuzz
        ("中文", "中文"),  # kept
        ("a" * 300, "a" * 299 + "b"),  # long enough for difflib's heuristic
    ],
)
def test_odd_values_score_as_in_thefuzz(judge, first, second):
    assert_scores(first, second, judge(first, second))


def test_tokens_are_those_of_spacys_blank_english_tokenizer(rows, spacy_tokens):
    assert all(tokenize(row["name"]) == spacy_tokens(row["name"]) for row in rows)
    texts = [row["full_description"] for row in rows[::5]]
    for small in (row["small_description"] for row in rows[::5]):
        texts += small if isinstance(small, list) else [small]
    assert len(texts) > 1500
    assert sum(tokenize(text) != spacy_tokens(text) for text in texts) <= 2  # four apostrophes in a row


@pytest.mark.parametrize(
    "text",
    [
        "Don't can't won't I'm you’ll y'all let's cannot gonna",
        "Dr. Inc. e.g. a.m. 10am 5p.m. U.S. vs. w/o and/or St.",
        ":) 8) :-( 10oz 5ft 3.5mm 100% 12V 4K 2-Pack (2pcs) [new]",
        "www.example.com/a-b user@example.org https://a.b.co/x?y=1 T-Shirt/Blouse",
        "A.B lower.Upper 1,000 a,b x--y 10-20 3x4 #1 @home $5 5$ €9 50€ it''s ''",
        "中文【新】 тест ❤️❤Welcome 👖Standard → ° 20°C. Y’all",
    ],
)
def test_odd_texts_have_spacys_tokens(text, spacy_tokens):
    assert tokenize(text) == spacy_tokens(text)


CORD = "Saireed UL Listed 2 Prong Power Cord for JBL Bar 3.1 Bar 2.1 Channel 4K Ultra HD Soundbar"
OUTLET = "BRST AC Power Cord Outlet Socket Cable Plug Lead for Panasonic SC-HT830V DVD/VCR Combo Home Theater System"
TWEEZERS = "Minkissy 2pcs Stainless Steel Eyebrow Tweezers Blackhead Acne Remover Portable Makeup Tweezers (Silver)"


SHOE = "adidas Unisex-Adult D.o.n. Issue 2 %s Shoe"


@pytest.mark.parametrize(
    ("goal", "bought", "score"),
    [
        (SHOE % "Basketball", SHOE % "Indoor Court", 0.85),
        (CORD + " Home Theater System Subwoofer", OUTLET, 0.31),
        (CORD, OUTLET, 0.17),
        ("Rusticware 921ORB Kitchen and Bath Cabinet Knob", TWEEZERS, 0.0),
    ],
)
def test_the_default_tagger_scores_titles_as_the_originals_tests_expect(goal, bought, score):
    nouns = open_tagger("default")
    wanted = nouns(goal)
    assert len(set(wanted) & set(nouns(bought))) / len(wanted) == pytest.approx(score, abs=0.01)


def test_taggers_by_name():
    assert open_tagger("shlex:split")("red 'floor lamp'") == ("red", "floor lamp")
    for name, message in (
        ("rules", "Did you mean 'rule'"),
        ("no.such.module:function", "cannot be loaded"),
        ("shlex:nothing", "cannot be loaded"),
        ("sys:path", "must be a function or a class"),
        ("builtins:str", "must return a list of nouns"),
        ("math:sqrt", "must take a title and return"),
    ):
        with pytest.raises(ConfigError, match=message):
            open_tagger(name)("a lamp")


def test_spacys_tagger_says_what_is_missing():
    spacy = pytest.importorskip("spacy", reason="spaCy is in the extra suites")
    if spacy.util.is_package("en_core_web_sm"):
        assert "lamp" in open_tagger("spacy")("Oak floor lamp with a shade")
    else:
        with pytest.raises(ConfigError, match="spacy download en_core_web_sm"):
            open_tagger("spacy")


ROW = {"asin": "B1", "name": "Acme Floor Lamp", "query": "floor lamp", "product_category": "Home › Lamps › Floor"}
ROW |= {"full_description": "Made of STEEL frame parts", "small_description": ["Easy to assemble."]}
OPTIONS = {"Color": [{"value": "Wine Red"}, {"value": "Navy/Blue"}], "Size": [{"value": '59"'}]}
PRODUCT = product_from_row(
    ROW | {"pricing": "$40.00", "customization_options": OPTIONS}, {"attributes": ["easy assemble", "living room"]}
)
GOAL = Goal("B1", "Acme Floor Lamp", "garden", "floor lamp", "Home › Lamps › Floor", "", ("living room",), (), 50.0)


def bought(goal=GOAL, product=PRODUCT, price=40.0, **options):
    return purchase_reward(product, goal, price, options, open_tagger("rule"))


@pytest.mark.parametrize(
    ("changes", "options", "reward"),
    [
        ({}, {}, 1.0),  # attribute and price
        ({"price_upper": 39.0}, {}, 0.5),  # too dear
        ({"price_upper": 40.0}, {}, 1.0),  # at most, not less than
        ({"price_upper": 0.0}, {}, 0.5),  # no ceiling: nothing is paid for it
        ({"attributes": ("living rooms",)}, {}, 1.0),  # alike is enough
        ({"attributes": ("steel frame",)}, {}, 1.0),  # in the description
        ({"attributes": ("assemble.",)}, {}, 1.0),  # in a bullet
        ({"attributes": ("waterproof", "living room")}, {}, 2 / 3),
        ({"options": ("wine red",)}, {}, 2 / 3),  # not chosen
        ({"options": ("wine red",)}, {"color": "wine red"}, 1.0),
        ({"options": ("dark red",)}, {"color": "wine red"}, 2 / 3),  # "dark" comes before "red"
        ({"options": ("cherry red",)}, {"color": "wine red"}, 1.0),  # both red
        ({"options": {"color": "wine red", "size": '59"'}}, {"color": "wine red", "size": '59"'}, 1.0),
        ({"options": {"color": "wine red", "size": '59"'}}, {"size": '59"'}, 0.75),
    ],
)
def test_parts_of_the_reward(changes, options, reward):
    got, info = bought(replace(GOAL, **changes), **options)
    assert got == pytest.approx(reward)
    assert ("r_option" in info) == bool(replace(GOAL, **changes).options)
    assert ("r_price" in info) == (replace(GOAL, **changes).price_upper > 0)


@pytest.mark.parametrize(
    ("changes", "r_type"),
    [
        ({}, 1.0),
        ({"query": "tea"}, 1.0),  # the category still matches
        ({"query": "tea", "product_category": "Home › Tea"}, 1.0),  # the title still does
        ({"query": "tea", "product_category": "Tea", "name": "Acme a b c d e f"}, 0.5),  # title score 1/6, nothing else
        ({"query": "tea", "product_category": "Tea", "name": "Green tea"}, 0.0),  # no noun shared
        ({"name": "Green tea"}, 0.0),  # whatever else matches
        ({"name": "lamp " + " ".join(f"w{c}" for c in "abcdefghijk")}, 0.1),  # 1/12
        ({"query": "tea", "product_category": "Tea", "name": "The 2"}, 0.5),  # no nouns at all: title score 0.2
    ],
)
def test_the_kind_of_product(changes, r_type):
    assert bought(replace(GOAL, **changes))[1]["r_type"] == r_type


@pytest.mark.parametrize(
    ("option", "color"),
    [("navy blue", "blue"), ("stainless steel", "steel"), ("tan", "tan"), ("standard", "tan"), ("xl", "xl"), ("", "")],
)
def test_basic_colors(option, color):
    assert basic_color(option) == color


def test_fewer_colors_are_basic_in_the_released_shop():
    """Two roses are one colour to the original, and two to Agent-R1's shop."""
    assert [basic_color("dusty rose", which) for which in ("colors", "released_colors")] == ["rose", "dusty rose"]
    bought_for = (PRODUCT, replace(GOAL, options=("dusty rose",)), 40.0, {"color": "deep rose"}, open_tagger("rule"))
    assert [purchase_reward(*bought_for, text)[1]["r_option"] for text in ("", "a lamp")] == [1.0, 0.0]
