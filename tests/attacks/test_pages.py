"""Hostile text in the pages of `agentr1 view`.

Behaviours pinned here:
1. The page's policy names the page's one script and one style by their hashes and allows nothing else.
2. Whatever an episode's fields and keys, the title and tokens say, the page has the same tags.
3. In a browser the page works, and a script that got into the page nevertheless does not run.
4. Files beside a page hold one script of their own and data; a file's name that a terminal would obey is in no command.
5. The search for right answers imports nothing that an episode names.
"""

import base64
import hashlib
import re
import shlex
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from agent_envs.episodes.record import Episode, Step, StopReason
from agent_envs.viewer.answers import RightAnswers
from agent_envs.viewer.shape import Numbered, Origin
from agent_envs.viewer.write import file_names, write_view

RUN = "document.title = 'owned'"
TEXTS = [
    f"<script>{RUN}</script>",
    f"</script><script>{RUN}</script>",
    f"</SCRIPT ><img src=x onerror=\"{RUN}\">",
    f"<!--<script>{RUN}</script>-->",
    f"--><svg onload=\"{RUN}\">",
    "<!-- <script>",
    "]]></script><base href=//evil>",
    "\"'><iframe srcdoc='<script>parent.document.title=1</script>'>",
    "<!--DATA-->",
    "sha256-SCRIPT sha256-STYLE </style>",
    "javascript:alert(1) ${1} `\\u003c/script>",
    "\u2028\u2029\x00\x1b[31m\ud800\u202e\ufeff",
    "</textarea></title></noscript><meta http-equiv=refresh content='0;url=//evil'>",
    "__proto__",
]  # fmt: skip


def _hostile(text: str) -> dict[str, Any]:
    """An episode with the text in every place that can hold one."""
    spec: Any = {"type": "function", "function": {"name": text, "description": text, "parameters": {text: text}}}
    info = {"reward_components": {text: 1.0}, "task_family": text, text: text, "success": True}
    call = f"<think>{text}</think>{text}<tool_call>{{oops {text}"
    messages: Any = [{"role": text, "name": text, "content": text, "tool_calls": [{text: text}]}]
    steps = tuple(
        Step(seen, action, 1.0, k == 1, False, info, (1,), (2, 3), (-0.5, -0.25), {text: 1})
        for k, (seen, action) in enumerate(((text, text), (messages, call)))
    )
    reset = {"task_id": text, text: text}
    episode = Episode(
        text, text, text, None, 0, text, (spec,), reset, steps, messages, StopReason.ERROR, error=text
    )  # fmt: skip
    return episode.to_dict()


def _write(records: list[dict[str, Any]], page: Path, title: str, **options: Any) -> None:
    origin = Origin(page.with_name("mine.jsonl"), 0, "mine", "", -1)
    write_view([Numbered(record, origin, 1) for record in records], page, title=title, **options)


class _Tags(HTMLParser):
    """The tags of a page with their attributes, without what script elements hold."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.found: list[Any] = []
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.found.append((tag, attrs))

    def handle_comment(self, data: str) -> None:
        self.found.append(("comment", data))


def test_the_policy_names_what_the_page_runs(tmp_path):
    _write([_hostile(text) for text in TEXTS], tmp_path / "page.html", TEXTS[0])
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    [policy] = re.findall(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">', page)
    parts = dict(part.split(maxsplit=1) for part in policy.split("; "))
    for tag in ("script", "style"):
        [text] = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert parts.pop(f"{tag}-src") == f"'sha256-{digest}'"
    assert parts == {"default-src": "'none'", "base-uri": "'none'", "form-action": "'none'", "img-src": "data:"}
    tags = _Tags(tmp_path / "page.html").found
    assert not [name for _, attributes in tags for name, _ in attributes if name == "style" or name.startswith("on")]
    before = page[: page.index("Content-Security-Policy")]
    assert "<script" not in before and "<style" not in before


@pytest.mark.parametrize("text", TEXTS)
def test_no_text_becomes_a_tag(text, tmp_path):
    _write([_hostile("plain")], tmp_path / "plain.html", "plain")
    _write([_hostile(text)], tmp_path / "hostile.html", text)
    assert _Tags(tmp_path / "hostile.html").found == _Tags(tmp_path / "plain.html").found


@pytest.mark.parametrize("name", ["a\x1b[201~;id\n.jsonl", "a\u202e.jsonl", "$(id) 'x'.jsonl", "-rf.jsonl"])
def test_names_of_files_do_nothing_in_a_command(name):
    shown = file_names({0: Path("runs", name)})[0]
    assert shown == "" if not name.isprintable() else shlex.split(shown) == [f"runs/{name}"]


def test_right_answers_import_nothing(tmp_path, monkeypatch):
    (tmp_path / "evil_answers.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    record = {**_hostile("plain"), "env_id": "evil_answers:Env-v0", "index": 0}
    (tmp_path / "run.json").write_text('{"env": "AgentR1/GSM8K-v0", "wrappers": ["evil_answers:Wrapper"]}')
    with RightAnswers(released=True) as answers:
        for path in (tmp_path / "e.jsonl", tmp_path / "other" / "deep" / "e.jsonl"):
            assert answers.find(record, path) == ("", "")


def test_a_browser_runs_the_pages_own_script_alone(tmp_path, browser):
    path = tmp_path / "page.html"
    texts = [text.replace("\ud800", "") for text in TEXTS]  # Chromium cannot print it
    _write([_hostile(text) for text in texts], path, "Mine")
    page = path.read_text(encoding="utf-8")
    attacks = f'<script>{RUN}</script><img src=x onerror="{RUN}"><style>h1 {{ display: none }}</style>'
    spoilt = page.replace("<main>", f"{attacks}<main>")
    for content in (page, spoilt):
        path.write_text(content, encoding="utf-8")
        browser.open(f"{path.as_uri()}#0")
        for number in range(len(texts) if content is page else 1):
            browser.until("return location.hash === '#' + arguments[0]", number)
            assert "step 2" in browser.text("#episode") and browser.text("h1") == "Mine"
            browser.press("j")
        assert browser.run("return document.title") == "Mine"
        if content is page:
            assert browser.problems() == []
    browser.problems()
    path.write_text(f"<title>Mine</title>{attacks}", encoding="utf-8")
    browser.go(path)
    browser.until("return document.title === 'owned'")  # without the policy it does run
