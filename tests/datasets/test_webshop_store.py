"""The store of products: what is converted is what was released, whatever happens on the way."""

import copy
import json
import multiprocessing
import os
import pickle
import random
import shutil
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any

import pytest

from agent_envs import json_stream
from agent_envs.datasets.webshop import catalog as webshop_catalog
from agent_envs.datasets.webshop import goals as webshop_goals
from agent_envs.datasets.webshop.catalog import open_catalog
from agent_envs.datasets.webshop.products import Goal, Product, product_from_row
from agent_envs.datasets.webshop.released_files import find_released
from agent_envs.datasets.webshop.store import ProductStore
from agent_envs.errors import ConfigError, DataError
from agent_envs.json_stream import JSONStream
from agent_envs.per_process import PerProcess

ROWS: list[dict[str, Any]] = [
    {"asin": "B000000001", "name": "Red lamp", "category": "garden", "query": "Lamps ", "product_category": "A › B",
     "full_description": "A lamp.", "small_description": ["bright led", "hidden word zebra"], "pricing": "$10 to $30",
     "images": ["x"], "customization_options": {"Color": [{"value": "Red/White"}, {"value": '5"'}], "Size": None}},
    {"asin": "B000000001", "name": "The same id again"},
    {"asin": "B00000000002", "name": "An id that is too long"},
    {"asin": "nan", "name": "No id"},
    {"asin": "B000000003", "name": "Blue läm\ud800p 灯", "query": "lamps", "pricing": None, "small_description": "x"},
]  # fmt: skip
ENTRIES = {
    "B000000003": {"attributes": ["long lasting"]},
    "B000000001": {"attributes": ["led", "long lasting"], "instruction": "Find me led lamps",
                   "instruction_attributes": ["led"]},
}  # fmt: skip
HUMAN = {"B000000003": [
    {"instruction": "i want a lamp.", "instruction_attributes": ["long lasting"], "instruction_options": []},
    {"instruction": "no attributes", "instruction_attributes": [], "instruction_options": []},
]}  # fmt: skip


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT_ENVS_DATA", str(tmp_path / "cache"))
    monkeypatch.setattr(webshop_catalog, "_stores", PerProcess())


@pytest.fixture
def released(tmp_path):
    """A folder with three small released files."""
    folder = tmp_path / "released"
    folder.mkdir()
    for name, content in (("shuffle", ROWS), ("ins_v2", ENTRIES), ("human_ins", HUMAN)):
        (folder / f"items_{name}.json").write_text(json.dumps(content))
    return folder


def test_store_holds_what_was_released(released):
    store = open_catalog(released)
    assert len(store) == 2
    assert store.human
    lamp = store.product("B000000001")
    assert lamp == product_from_row(ROWS[0], ENTRIES["B000000001"])
    assert [p.title for p in store.products()] == ["Red lamp", "Blue läm\ufffdp 灯"]  # a half of a character is none
    assert store.product("nan") is None
    assert store.price("B000000003") == 100.0
    assert 10 <= store.price("B000000001") <= 30
    assert store.search("zebra", 50) == ()  # of the bullets the first alone is indexed
    assert store.search("BRIGHT red | white", 50) == ("B000000001",)
    assert store.where("attribute", "long lasting") == ["B000000001", "B000000003"]
    assert store.where("query", "lamps") == ["B000000001", "B000000003"]
    assert store.where("category", "garden") == ["B000000001"]
    assert store.where("category", "none") == []
    assert [goal.asin for goal in store.goals(True)] == ["B000000003"]
    assert {goal.options["color"] for goal in store.goals(False)} == {"red | white", '5"'}  # type: ignore[call-overload]
    with pytest.raises(IndexError, match="goals 0 to 1, got 2"):
        store.goals(False)[2]


def _goals(products: list[Product], prices: dict[str, float], rng: random.Random, *, human: bool) -> list[Goal]:
    goals: list[Goal] = []
    for product in products:
        price, draw = prices[product.asin], webshop_goals.draw_ceiling
        if human:
            numbers = webshop_goals.human_goal_numbers(product)
            goals += [webshop_goals.human_goal(product, n, draw(price, rng)) for n in numbers]
        elif (count := webshop_goals.synthetic_goal_count(product)) is not None:
            ceiling = draw(price, rng)
            goals += [webshop_goals.synthetic_goal(product, n, ceiling) for n in range(count)]
    webshop_goals.shuffle_goals(goals)
    return goals


@pytest.mark.parametrize("folder", ["webshop", "webshop_synthetic"])
def test_real_catalogues_are_kept_whole(folder, data_dir):
    files = find_released(data_dir / folder)
    entries = json.loads(files.attributes.read_text())
    assert files.human is not None
    human = json.loads(files.human.read_text())
    rows = json.loads(files.products.read_text())
    expected = [product_from_row(row, entries.get(row["asin"]), human.get(row["asin"], ())) for row in rows]
    store = open_catalog(data_dir / folder)
    assert list(store.products()) == expected
    products = [product for product in expected if product]
    for kind in (True, False):
        rng = random.Random(0)
        prices = {product.asin: webshop_goals.draw_price(product.pricing, rng) for product in products}
        assert list(store.goals(kind)) == _goals(products, prices, rng, human=kind)
        assert {asin: store.price(asin) for asin in prices} == prices


def test_store_is_shared_copied_and_pickled(released, tmp_path):
    store = open_catalog(released)
    assert open_catalog(released) is store
    assert copy.deepcopy(store) is store
    assert pickle.loads(pickle.dumps(store)) is store
    kept = ProductStore(store.folder)
    assert pickle.loads(pickle.dumps(kept)).product("B000000001") == store.product("B000000001")
    assert sorted(path.name for path in released.iterdir()) == [  # nothing is written beside the data
        "items_human_ins.json", "items_ins_v2.json", "items_shuffle.json"
    ]  # fmt: skip


def test_changed_files_make_another_store(released):
    old = open_catalog(released)
    rows = [dict(ROWS[0], name="Changed lamp")]
    stat = (released / "items_shuffle.json").stat()
    (released / "items_shuffle.json").write_text(json.dumps(rows))
    os.utime(released / "items_shuffle.json", ns=(stat.st_atime_ns, stat.st_mtime_ns))  # the time alone proves nothing
    new = open_catalog(released)
    assert [p.title for p in new.products()] == ["Changed lamp"]
    assert old.product("B000000003") is not None  # who has it open keeps it


@pytest.mark.parametrize("damage", ["cut", "missing", "zeros", "manifest", "index"])
def test_half_written_stores_are_built_again(damage, released, monkeypatch):
    folder = open_catalog(released).folder
    monkeypatch.setattr(webshop_catalog, "_stores", PerProcess())
    if damage == "cut":
        os.truncate(folder / "search" / "documents.bin", 10)
    elif damage == "missing":
        (folder / "catalog.sqlite").unlink()
    elif damage == "zeros":
        (folder / "catalog.sqlite").write_bytes(bytes((folder / "catalog.sqlite").stat().st_size))
    elif damage == "manifest":
        (folder / "index.json").write_text("{")
    else:
        shutil.rmtree(folder / "search")
    store = open_catalog(released)
    assert store.folder == folder
    assert len(store) == len(list(store.products())) == 2


def test_a_stopped_conversion_leaves_no_store(released, monkeypatch):
    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(webshop_catalog, "write_store", stopped)
        with pytest.raises(KeyboardInterrupt):
            open_catalog(released)
    assert len(open_catalog(released)) == 2


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # Python 3.12: in a process with threads
def test_without_a_cache_folder_it_works_all_the_same(released, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("AGENT_ENVS_DATA", str(tmp_path / "file" / "below"))
    store = open_catalog(released)
    assert store.product("B000000001") is not None
    assert len(store.goals(False)) == 2
    child = multiprocessing.get_context("fork").Process(target=lambda: sys.exit(store.price("B000000003") != 100.0))
    child.start()  # for which the folder is gone too
    child.join()
    assert child.exitcode == 0


def test_a_damaged_store_in_a_folder_that_cannot_be_written(released, monkeypatch):
    folder = open_catalog(released).folder
    monkeypatch.setattr(webshop_catalog, "_stores", PerProcess())
    (folder / "index.json").write_text("{")
    monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)  # not allowed, which root always is
    store = open_catalog(released)
    assert len(store) == 2
    assert store.folder != folder


def test_threads_get_their_own_rows():
    store = open_catalog(products=200)
    prices = {product.asin: store.price(product.asin) for product in store.products()}
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda asin: (asin, store.price(asin)), [*prices] * 20))
    finally:
        sys.setswitchinterval(interval)
    assert found == list(prices.items()) * 20


def test_a_file_of_products_brings_its_own_neighbours(released):
    (released / "items_shuffle_1.json").write_text(json.dumps(ROWS[4:]))
    (released / "items_ins_v2_1.json").write_text(json.dumps({}))
    assert len(open_catalog(released)) == 2  # items_shuffle.json comes first
    one = open_catalog(released / "items_shuffle_1.json")
    assert [p.attributes for p in one.products()] == [("DUMMY_ATTR",)]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("items_shuffle.json", json.dumps(ROWS)[:-30], r"items_shuffle.json, after entry 4, .*ends in the middle"),
        ("items_shuffle.json", json.dumps({"a": 1}), "line 1: a product needs an 'asin'"),
        ("items_shuffle.json", "[]", "there are no products in .*items_shuffle.json"),
        ("items_shuffle.json", json.dumps([*ROWS[:1], 7]), "items_shuffle.json, entry 2: expected an object"),
        ("items_shuffle.json", json.dumps([{"asin": "B1"}]), r"items_shuffle.json, entry 1 \(B1\): .* 'name'"),
        ("items_ins_v2.json", json.dumps(ENTRIES)[:-9], "items_ins_v2.json, after entry 1, .*ends in the middle"),
        ("items_ins_v2.json", json.dumps({"B000000001": 3}), "items_ins_v2.json: the entry of 'B000000001'"),
        ("items_human_ins.json", json.dumps({"B000000001": {"a": 1}}), "items_human_ins.json: the entry of"),
        ("items_human_ins.json", "not json", "expected a JSON object"),
        ("items_ins_v2.json", None, r"released has no items_ins_v2.json"),
        ("items_shuffle.json", None, r"released has no items_shuffle.json"),
    ],
)
def test_broken_files_are_named(name, content, said, released):
    if content is None:
        (released / name).unlink()
    else:
        (released / name).write_text(content)
    with pytest.raises(DataError, match=said):
        open_catalog(released)


def test_arguments_that_do_not_fit(tmp_path):
    for arguments, error, message in (
        ({"data": tmp_path / "nowhere"}, DataError, "no file or folder"),
        ({"data": "official"}, DataError, "agentr1 prepare webshop"),
        ({"data": tmp_path, "products": 5}, ConfigError, "only applies to data='generated'"),
        ({"products": 0}, ConfigError, "products must be an integer"),
    ):
        with pytest.raises(error, match=message):
            open_catalog(**arguments)


def _opened(folder):
    store = open_catalog(folder)
    return store.folder, (store.folder / "catalog.sqlite").stat().st_ino


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # Python 3.12: in a process with threads
def test_two_processes_convert_once(released):
    with ProcessPoolExecutor(2, multiprocessing.get_context("fork")) as pool:
        assert len(set(pool.map(_opened, [released] * 2))) == 1


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 64])
def test_streams_do_not_depend_on_the_size_of_what_is_read(chunk, tmp_path, monkeypatch):
    monkeypatch.setattr(json_stream, "_CHUNK", chunk)
    values = [1, -2.5e-3, 'ä€𐍈 " \\ ]', [], {}, [[{"a": [None, True]}]], "x" * 300, 12345678901234567890]
    path = tmp_path / "a.json"
    for form in (json.dumps(values), json.dumps(values, ensure_ascii=False, indent=2), f"\ufeff {json.dumps(values)} "):
        path.write_text(form, encoding="utf-8")
        read: list[int] = []
        assert list(JSONStream(path, read.append).rows()) == values
        assert sum(read) == path.stat().st_size
    path.write_text(json.dumps({str(n): value for n, value in enumerate(values)}))
    assert list(JSONStream(path).pairs()) == [(str(n), value) for n, value in enumerate(values)]
    for broken in ("[1,2", "[", '["a', '["a",', "[tru", "[1 2]", "[1,]", "[,1]", "[1]]", "{", "[nope, 1]", "[\x00]"):
        path.write_text(broken)
        with pytest.raises(DataError, match="a.json"):
            list(JSONStream(path).rows())
    path.write_bytes(b'["a", "\xff"]')
    with pytest.raises(DataError, match="not UTF-8"):
        list(JSONStream(path).rows())


def test_a_broken_place_is_found_where_it_is(tmp_path):
    path = tmp_path / "a.json"
    path.write_text("[1, {x: 2}, " + ", ".join(["3"] * 2_000_000) + "]")
    read: list[int] = []
    with pytest.raises(DataError, match="after entry 1, "):
        list(JSONStream(path, read.append).rows())
    assert sum(read) < 2_000_000  # not the whole file
