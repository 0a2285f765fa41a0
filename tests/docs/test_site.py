"""The documentation's site and its notebooks: built without a warning and without a network, whole, linked.

1. `mkdocs build` in strict mode ends without a warning, where sockets cannot be opened
2. every link and every picture within the site leads somewhere, and nothing is loaded from elsewhere
3. every public name of the package is on a page of the reference, every command on the page of commands
4. formulas and tables of docstrings are shown as such
5. the notebooks run, and print what they show
6. the site's own search, run in node, finds for ten questions the page that answers each
7. axe-core finds nothing on pages of each kind, in light, in dark and on a phone, where none is too wide
"""

import ast
import fnmatch
import json
import os
import re
import shutil
import subprocess
import sys
import zlib
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from agent_envs.cli.main import COMMANDS

pytestmark = pytest.mark.slow

# What a build may not do, and where it says so: a socket of the internet.
OFFLINE = """
import runpy, socket, sys
def refuse(self, address):
    raise OSError(f"the build tried to reach {address}")
socket.socket.connect = socket.socket.connect_ex = refuse
sys.argv = ["mkdocs", "build", "--quiet", "--site-dir", sys.argv[1]]
runpy.run_module("mkdocs", run_name="__main__", alter_sys=True)
"""


class Page(HTMLParser):
    """What a page points to, what it loads, and the places in it that can be pointed to."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.places: set[str] = {""}
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.places |= {given[name] for name in ("id", "name") if given.get(name)}
        if tag in ("a", "area") and given.get("href"):
            self.links.append(given["href"])
        if tag == "link" and given.get("rel") in ("stylesheet", "icon", "preload", "preconnect"):
            self.loaded.append(given["href"])
        if given.get("src"):
            self.loaded.append(given["src"])


@pytest.fixture(scope="module")
def site(root, tmp_path_factory):
    """The folder of the site, built once."""
    pytest.importorskip("material")
    pytest.importorskip("mkdocstrings")
    folder = tmp_path_factory.mktemp("site")
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(root)}
    done = subprocess.run(
        [sys.executable, "-c", OFFLINE, str(folder)], cwd=root, env=env, capture_output=True, text=True, timeout=1500
    )
    assert done.returncode == 0 and not re.search("WARNING|ERROR", done.stderr), f"{done.stdout}\n{done.stderr}"
    return folder


@pytest.fixture(scope="module")
def pages(site):
    return {path.resolve(): Page(path) for path in site.rglob("*.html")}


def test_every_link_leads_somewhere_and_nothing_comes_from_elsewhere(site, pages):
    assert len(pages) > 50
    wrong = []
    for path, page in pages.items():
        for target in [*page.links, *page.loaded]:
            parts = urlsplit(target)
            if parts.scheme in ("http", "https", "mailto") or parts.netloc:
                wrong += [f"{path.name} loads {target}"] if target in page.loaded else []
                continue
            if path.name == "404.html" and parts.path.startswith("/"):  # which is shown at any depth
                parts, there = urlsplit(target), (site / parts.path.lstrip("/")).resolve()
            else:
                there = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            there = there / "index.html" if there.is_dir() else there
            place = unquote(parts.fragment)
            if not there.is_file() or (place and there in pages and place not in pages[there].places):
                wrong.append(f"{path.name}: {target}")
    assert wrong == []
    styles = "".join(path.read_text(encoding="utf-8") for path in site.rglob("*.css"))
    assert not re.findall(r"url\(['\"]?https?:", styles) and "@import" not in styles


def test_every_public_name_is_on_a_page_of_the_reference(load_file, site):
    hooks = load_file("docs/hooks.py")
    packed = (site / "objects.inv").read_bytes().split(b"\n", 4)[4]
    listed = {line.split(" ", 1)[0] for line in zlib.decompress(packed).decode().splitlines()}
    modules = hooks.public_modules()
    assert {"agent_envs", "agent_envs.envs.gsm8k.env", "agent_envs.adapters.estimators.rows"} <= set(modules)
    text = {name: (site / "reference" / f"{hooks.page_of(name)}.html").read_text(encoding="utf-8") for name in modules}
    for name, module in modules.items():
        assert f'id="module-{name}"' in text[name]
        assert {f"{name}.{each}" for each in module.defined} <= listed
        assert all(f">{each}</" in text[name] for each in {*module.public} - {*module.defined}), name


def test_every_command_is_on_the_page_of_commands(site):
    text = (site / "commands.html").read_text(encoding="utf-8")
    assert all(f"usage: agentr1 {name} " in text for name in COMMANDS)


def test_formulas_and_tables_of_docstrings_are_shown_as_such(site):
    texts = {path.name: path.read_text(encoding="utf-8") for path in (site / "reference").glob("adapters.*.html")}
    for name, of_module, of_function in (
        ("adapters.estimators.html", "trajectories", "with the unbiased std"),
        ("adapters.losses.html", "without ratio and clip", "the old log-probabilities are used"),
    ):
        assert re.search(r"<td>[^\n]*<math [^\n]*</math>[^\n]*</td>", texts[name])
        assert re.search(rf"</math>[^\n]*{of_function}", texts[name]) and of_module in texts[name]
    assert not [name for name, text in texts.items() if "arithmatex" in text or "=====" in text]


@pytest.mark.parametrize("name", ["environments_and_evaluation", "training"])
def test_the_notebooks_run(root, name, tmp_path):
    """The second trains: there the figures may differ, and each metric must be in the index."""
    pytest.importorskip("nbclient")
    pytest.importorskip("torch")
    path = root / "docs" / "notebooks" / f"{name}.ipynb"
    env = {**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{root / 'docs'}"}
    code = "import json, pathlib, sys, generate; print(json.dumps(generate.run_notebook(pathlib.Path(sys.argv[1]))))"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, str(path)],
        cwd=tmp_path, env=env, capture_output=True, text=True, timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    shown, printed = map(_printed, (json.loads(path.read_text(encoding="utf-8")), json.loads(done.stdout)))
    if name != "training":
        assert printed == shown
        return
    assert [bool(each) for each in printed] == [bool(each) for each in shown]
    keys = next(ast.literal_eval(text) for text in printed if text.startswith("['"))
    listed = re.findall(r"`([^`]+)`", (root / "docs" / "metrics.md").read_text(encoding="utf-8"))
    assert not [key for key in keys if not any(fnmatch.fnmatch(key, each) for each in listed)]


def _printed(notebook):
    """What each cell of a notebook printed."""
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    texts = [[o.get("text", o.get("data", {}).get("text/plain", "")) for o in cell["outputs"]] for cell in cells]
    return ["".join("".join(text) for text in each) for each in texts]


SEARCHES = {
    "write an environment": "writing_an_environment.html",
    "install": "getting_started.html",
    "api key": "policies.html",
    "system prompt": "wrappers.html",
    "batch size": "gpu.html",
    "multi gpu": "gpu.html",
    "reward": "tutorial_tools_and_rewards.html",
    "tool call format": "tool_formats.html",
    "resume": "evaluation.html",
    "训练": "training.zh.html",
    "custom environment": "writing_an_environment.html",
    "where do I put an API key": "policies.html",
    "How do I give a system prompt": "wrappers.html",
    "how do I train on 8 GPUs": "gpu.html",
    "which tool-call formats exist": "tool_formats.html",
    "lower than published": "published_settings.html",
}
"""What a reader looks for, and the page that answers it."""


def test_a_search_finds_first_the_page_that_answers(site, root):
    node = shutil.which("node")
    if node is None:
        pytest.skip("the site's search is a script, which node runs, and node is not installed")
    pytest.importorskip("jieba", reason="Chinese is searched by words only where jieba is installed")
    done = subprocess.run(
        [node, str(root / "tests" / "docs" / "search.js"), str(site), *SEARCHES, "changelog"],
        capture_output=True, encoding="utf-8", timeout=120, check=True,
    )  # fmt: skip
    found = {query: [place.partition("#")[0] for place in places] for query, places in json.loads(done.stdout).items()}
    assert {query: found[query][0] for query in SEARCHES} == SEARCHES
    assert not {"changelog.html", "results.html"} & {page for pages in found.values() for page in pages}


KINDS = (
    "index.html",
    "getting_started.zh.html",
    "concepts.html",
    "environments/GSM8KTool.html",
    "notebooks/training.html",
    "reference/adapters.losses.html",
    "reference/wrappers.html",
    "results.html",
)


@pytest.mark.parametrize("scheme", ["default", "slate"])
def test_axe_finds_nothing(site, browser, axe, scheme):
    try:
        for page in KINDS:
            browser.go(site / page)
            browser.until(
                "return document.readyState === 'complete' && document.querySelector('.md-code__nav, table, img')"
            )
            browser.run("document.body.setAttribute('data-md-color-scheme', arguments[0])", scheme)
            for width, height in ((1280, 860), (390, 844)):
                browser.size(width, height)
                assert browser.violations(axe) == [], (page, width)
                assert browser.run("return document.documentElement.scrollWidth") <= width, page
    finally:
        browser.size(1280, 860)
