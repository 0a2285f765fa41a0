"""The pages of `agentr1 view`, `view --serve` and `play --web` in a browser.

Behaviours pinned here:
1. A page opens on the first failure; it has a column and a filter for what differs; it searches in all texts.
2. Episodes group by task with their success; two runs lie side by side on the tasks that both have played.
3. Tokens show log-probability, entropy and advantage as colours, masks, and the rows that training merges.
4. What is copied is the episode as it was stored, and a command that plays from any of its steps.
5. Everything is reached by keys, on a phone, in light and dark, and axe-core finds nothing to complain about.
6. A page that follows a run shows new episodes and curves; without the token nothing is answered.
7. A task is played in the browser as in the terminal; a shop, a household and a search look like what they are, take
   the actions that are listed, and show what a policy sees when asked.
8. An agent's steps stand under the conversations they continue, with roles, failed calls in place, and a filter.
"""

from __future__ import annotations

import io
import json
import shlex
import shutil
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

import agent_envs
from agent_envs.cli.main import main
from agent_envs.cli.play_game import PlayGame
from agent_envs.episodes.record import Episode, Step, read_episodes, write_episodes
from agent_envs.episodes.run_folder import episode_paths
from agent_envs.policies import ExpertPolicy
from agent_envs.viewer.feed import EpisodeFeed
from agent_envs.viewer.shape import shown_episode

TOOL = "AgentR1/GSM8KTool-v0"


def _played(noise: float, count: int = 8, samples: int = 2, **kwargs: Any) -> list[Episode]:
    options = [{"index": k} for k in range(count) for _ in range(samples)]
    return agent_envs.run_episodes(
        TOOL, ExpertPolicy(noise=noise, seed=1), len(options), options=options, seeds=list(range(len(options))),
        env_kwargs={"split": "test"}, progress=False, **kwargs,
    )  # fmt: skip


def _with_tokens(episode: Episode) -> Episode:
    """The episode with tokens: every prompt goes on from the one before, but the last one, which is made anew."""
    steps: list[Step] = []
    before: tuple[int, ...] = ()
    for k, step in enumerate(episode.steps):
        prompt = (*before, 100 + k, 101) if k < len(episode.steps) - 1 or not k else (7, 8)
        ids = (1, 2, 3, 4)
        info = {
            **step.info, "response_mask": [1, 1, 0, 1], "response_entropies": [0.1, 1.5, 0.3, 0.0],
            "response_advantages": [-0.5, 0.25, 0.0, 1.0],
        }  # fmt: skip
        steps.append(
            replace(step, prompt_ids=prompt, response_ids=ids, response_logprobs=(-0.1, -2.5, -9.0, 0.0), info=info)
        )
        before = prompt + ids
    return replace(episode, steps=tuple(steps))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An evaluation before training, one after it, and the training, with tokens and metrics."""
    root = tmp_path_factory.mktemp("runs")
    (root / "training" / "episodes").mkdir(parents=True)
    write_episodes(root / "before.jsonl", _played(0.6))
    write_episodes(root / "after.jsonl", _played(0.0))
    for step in (1, 2):
        rows = [_with_tokens(episode) for episode in _played(0.5, 3)]
        write_episodes(root / "training" / "episodes" / f"train-{step:06d}.jsonl", rows)
    lines = [{"step": k, "env/success": k / 4, "env/return/mean": k / 4, "val/success": k / 5} for k in range(4)]
    (root / "training" / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return root


@pytest.fixture(scope="module")
def page(runs: Path) -> Path:
    out = runs / "page.html"
    sources = [str(runs / name) for name in ("before.jsonl", "after.jsonl", "training")]
    assert main(["view", *sources, "--out", str(out), "--title", "Runs"]) == 0
    return out


@pytest.fixture
def opened(browser: Any, page: Path) -> Iterator[Any]:
    browser.open(page)
    yield browser
    assert browser.problems() == []
    browser.size(1280, 860)


def _stored(runs: Path) -> list[Episode]:
    """The page's episodes, in its order."""
    paths = episode_paths([runs / name for name in ("before.jsonl", "after.jsonl", "training")])
    return [episode for path in paths for episode in read_episodes(path)]


def _choose(browser: Any, field: str, value: str) -> None:
    browser.run("const s = $(arguments[0]); s.value = arguments[1]; s.onchange()", field, value)


def _rows(browser: Any) -> list[str]:
    return browser.run("return [...document.querySelectorAll('#rows tr')].map(row => row.innerText)")


def test_it_opens_on_the_first_failure_and_filters_what_differs(opened: Any, runs: Path) -> None:
    stored = _stored(runs)
    first = next(k for k, e in enumerate(stored) if not e.success)
    assert opened.run("return location.hash") == f"#{first}"
    heads = opened.text("#heads").split()
    assert {"run", "phase", "step", "sample", "turns", "return"} <= set(heads)
    assert not {"split", "family", "environment", "score"} & set(heads)  # which are the same everywhere
    question = " ".join(str(stored[0].steps[0].observation).split())
    assert question[:60] in _rows(opened)[0]
    assert opened.text("#totals").startswith(f"{32 + 12} of 44 episodes")
    for field, value, count in (("run", "after", 16), ("phase", "train", 12), ("at", "2", 6), ("sample", "1", 22)):
        _choose(opened, field, value)
        assert opened.text("#totals").startswith(f"{count} of 44"), field
        _choose(opened, field, "")
    _choose(opened, "solved", "0")
    assert "0.0 % solved" in opened.text("#totals")
    _choose(opened, "solved", "")
    opened.click("#heads th:nth-child(7) button")
    assert opened.run("return document.querySelector('[aria-sort]').getAttribute('aria-sort')") == "ascending"


def test_all_texts_are_searched(opened: Any, runs: Path) -> None:
    stored = _stored(runs)
    word = stored[3].steps[0].action.split('"expression": "')[1].split('"')[0]
    wanted = sum(any(word in s.action or word in str(s.observation) for s in e.steps) for e in stored)
    opened.press("/")
    opened.run("$('search').value = arguments[0]; $('contents').checked = true; searched()", word)
    opened.until("return $('progress').textContent === arguments[0]", f"{wanted} found")
    assert opened.text("#totals").startswith(f"{wanted} of 44 episodes")
    for text in ('<tool_call> {"name"', "reward_components"):  # what is written, and a key that is not
        opened.run("$('search').value = arguments[0]; searched()", text)
        opened.until("return / found$/.test($('progress').textContent)")
    assert opened.text("#progress") == "0 found"


def test_episodes_group_by_task(opened: Any, runs: Path) -> None:
    opened.press("g")
    rows = _rows(opened)
    assert len(rows) == 8 and opened.text("#totals").startswith("8 tasks, 44 of 44")
    stored = _stored(runs)
    mine = [e for e in stored if e.index == 0]
    assert rows[0].startswith(f"{sum(e.success for e in mine)}/{len(mine)}")
    opened.run("document.querySelector('#rows button').click()")
    assert len(_rows(opened)) == 8 + len(mine) and "sample 1" in "".join(_rows(opened))


def test_two_runs_lie_side_by_side(opened: Any, runs: Path) -> None:
    opened.press("c")
    _choose(opened, "first", "before")
    _choose(opened, "second", "after")
    opened.until("return document.querySelectorAll('.sides .step').length > 1")
    share = [sum(e.success for e in read_episodes(runs / f"{name}.jsonl")) / 16 for name in ("before", "after")]
    assert opened.text("#totals").startswith(f"8 tasks in both: {100 * share[0]:.1f} % solved, then 100.0 %")
    assert "+100 %" in _rows(opened)[0]
    assert [opened.text(f".sides > div:nth-child({k}) h2") for k in (1, 2)] == ["before", "after"]
    task = "dl => dl.innerText.match(/task\\s+(\\S+)/)[1]"
    first, second = opened.run(f"return [...document.querySelectorAll('.sides dl')].map({task})")
    assert first == second
    opened.press("j")
    opened.until("return document.querySelectorAll('#rows tr')[1].className === 'chosen'")


def test_tokens_are_a_heat_map(opened: Any) -> None:
    _choose(opened, "phase", "train")
    opened.press("j")
    opened.until("return document.querySelectorAll('.token.heat').length > 3")
    shown = """return [...document.querySelector('.tokened pre').children].map(token =>
        [token.title, token.style.getPropertyValue('--heat'), token.classList.contains('untrained')])"""
    tokens = opened.run(shown)
    assert tokens[1] == ["token 2, log-probability -2.500, entropy 1.500, advantage 0.250", "30%", False]
    assert tokens[2][1:] == ["60%", True] and tokens[2][0].endswith("not trained")
    opened.press("h")
    assert [t[1] for t in opened.run(shown)] == ["4%", "60%", "12%", "0%"]  # of the largest entropy
    opened.press("h")
    assert [t[1] for t in opened.run(shown)] == ["30%", "15%", "0%", "60%"]
    assert "var(--down)" in opened.run("return document.querySelector('.token.heat').style.cssText")
    assert opened.text(".legend").split() == ["-1", "1"]
    opened.run("[...document.querySelectorAll('.tokened summary')].find(s => s.innerText === 'as a table').click()")
    opened.until("return document.querySelector('table.tokens')?.innerText.includes('-2.500')")


def _said(words: str) -> dict[str, str]:
    return {"role": "user", "content": words}


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Episode:
    """A lead who asks two helpers at once; one call of the model failed."""
    played = _played(0.0, 1, 1)[0]
    talks: dict[int, list[Any]] = {}
    steps: list[Step] = []
    for role, words, after, env_steps, trained in [
        ("lead", "plan", None, 0, True), ("helper/1", "one", None, 0, True), ("helper/2", "two", None, 0, True),
        ("helper/1", "sure", 1, 0, True), ("", "title", None, 0, False), ("lead", "act", 0, 1, True),
        ("lead", "done", 5, 1, True),
    ]:  # fmt: skip
        k = len(steps)
        before = [] if after is None else [*talks[after], {"role": "assistant", "content": steps[after].action}]
        talks[k] = [*before, _said(f"prompt {k}")]
        ids = () if after is None else (*(steps[after].prompt_ids or ()), *(steps[after].response_ids or ()))
        info = {"call": k + (k > 3), "env_steps": env_steps}
        steps.append(Step(
            talks[k], words, float(k == 6), k == 6, False, info, (*ids, k), (90 + k, 91), (-1.0, -1.0), role=role,
            trained=trained, time=max(0, k - 5), after=after,
        ))  # fmt: skip
    failed = {"call": 4, "role": "helper/2", "error": "ContextLengthExceeded: <b>too long</b>"}
    reset_info = {**played.reset_info, "failed_calls": [failed]}
    return replace(played, steps=tuple(steps), reset_info=reset_info, roles={"helper/1": "episode"})


def test_an_agents_conversations_are_told_apart(browser: Any, team: Episode, tmp_path: Path) -> None:
    write_episodes(tmp_path / "team.jsonl", [team])
    assert main(["view", str(tmp_path / "team.jsonl"), "--out", str(tmp_path / "team.html")]) == 0
    browser.open(tmp_path / "team.html")
    cards = browser.run("""return [...document.querySelectorAll('.step')].map(card => [
        getComputedStyle(card).marginLeft, card.querySelector('h2').innerText,
        [...card.querySelectorAll('.chip')].map(chip => chip.innerText).join()])""")
    assert cards == [
        ["0px", "step 1", "lead"], ["24px", "step 2", "helper/1"], ["48px", "step 3", "helper/2"],
        ["24px", "step 4", "helper/1"], ["0px", "call without an answer", "helper/2"], ["24px", "step 5", "untrained"],
        ["0px", "step 6", "lead,acted"], ["0px", "step 7", "lead,acted"],
    ]  # fmt: skip
    text = browser.text("#episode")
    assert "continues step 2" in text and "too long</b>" in text and "return of lead\n1" in text
    result = "return document.querySelector('[data-step=\"0\"] .result').innerText"
    assert "prompt 5" in browser.run(result)  # what the lead was told next, not what a helper was asked
    choices = browser.run("return [...document.querySelector('select.steps').options].map(one => one.value)")
    assert choices[:5] == ["", "role lead", "role helper/1", "role helper/2", "role "]
    shown = "return [...document.querySelectorAll('.step')].filter(c => c.checkVisibility()).map(c => c.dataset.step)"
    for value, steps in (("role helper/1", ["1", "3"]), ("talk 0", ["0", "5", "6"]), ("role helper/2", ["2", None])):
        browser.run("const s = document.querySelector('select.steps'); s.value = arguments[0]; s.onchange()", value)
        assert browser.run(shown) == steps, value
    assert not browser.run("return [...document.querySelectorAll('button')].some(b => b.innerText.includes('play'))")
    copied = json.loads(browser.run("return record(current.e)"))
    assert Episode.from_dict(copied) == team and browser.problems() == []


def test_merged_rows_are_shown(opened: Any, runs: Path) -> None:
    [stored, *_] = [e for e in read_episodes(runs / "training" / "episodes" / "train-000001.jsonl") if len(e.steps) > 2]
    number = opened.run("return all.findIndex(({ row }) => row[F.id] === arguments[0])", stored.episode_id)
    opened.run("choose(arguments[0])", number)
    steps = len(stored.steps)
    opened.until("return /merged row/.test($('episode').innerText)")
    apart = sum(len(s.prompt_ids or ()) + 4 for s in stored.steps)
    together = sum(len(stored.steps[k].prompt_ids or ()) + 4 for k in (steps - 2, steps - 1))
    assert f"{steps} steps in 2 merged rows: {together} tokens instead of {apart}" in opened.text("#episode")
    opened.run("[...document.querySelectorAll('#episode summary')].find(s => /merged/.test(s.innerText)).click()")
    opened.until("return document.querySelectorAll('.strip').length === 2")
    assert f"row 2: step {steps}; 6 tokens, 3 trained" in opened.text("#episode")


def test_what_is_copied_is_the_episode_and_plays_on(
    opened: Any, runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = _stored(runs)
    for number in (0, len(stored) - 1):
        opened.run("choose(arguments[0])", number)
        opened.until("return current?.i === arguments[0]", number)
        (tmp_path / "copied.jsonl").write_text(opened.run("return record(current.e)") + "\n")
        assert list(read_episodes(tmp_path / "copied.jsonl")) == [stored[number]]
    command = shlex.split(opened.run("return command(current.row, 1)"))
    assert command[:2] == ["agentr1", "play"] and command[-2:] == ["--step", "1"]
    monkeypatch.setattr(sys, "stdin", io.StringIO("/history\n/expert\n"))
    assert main([*command[1:], "--split", "test"]) == 0
    said = capsys.readouterr()
    assert said.err == f"agentr1: replayed 1 of {len(stored[-1].steps)} actions\n"
    assert " ".join(stored[-1].steps[0].action.split())[:100] in said.out and "The expert: " in said.out


def test_the_right_answer_is_the_tasks(opened: Any, tmp_path: Path) -> None:
    env = gym.make(TOOL, split="test")
    assert opened.text("#episode .answer").startswith("right answer, from the task")
    index = opened.run("return current.e.index")
    env.reset(options={"index": index})
    assert opened.text("#episode .answer pre") == env.unwrapped.right_answer()
    [other] = _played(0.0, 1, 1)
    steps = (replace(other.steps[0], observation="Another question."), *other.steps[1:])
    write_episodes(tmp_path / "other.jsonl", [replace(other, steps=steps)])
    for kind in ("generated", "none"):
        assert (
            main(
                ["view", str(tmp_path / "other.jsonl"), "--answers", kind, "--force", "--out", str(tmp_path / "o.html")]
            )
            == 0
        )
        opened.open(tmp_path / "o.html")
        assert "no right answer is known" in opened.text("#episode")


def test_keys_reach_everything(opened: Any) -> None:
    at = "return Number(location.hash.slice(1))"
    start = opened.run(at)
    for key, further in (("j", 1), ("ArrowDown", 2), ("k", 1), ("ArrowUp", 0)):
        opened.press(key)
        opened.until(f"return Number(location.hash.slice(1)) === {start + further}")
    opened.press("f")
    opened.until(
        "return !all[Number(location.hash.slice(1))].row[F.success] && Number(location.hash.slice(1)) > " + str(start)
    )
    opened.press("n", "n")
    assert opened.run("return document.querySelector('.step.here').dataset.step") == "1"
    opened.press("/", "j")
    assert opened.run("return $('search').value") == "j"  # a key in a field is a letter
    opened.press("Escape", "v")
    assert (
        "held-out 0.600 at step 3" in opened.text("#curves")
        and opened.run("return document.querySelectorAll('#curves svg').length") == 2
    )
    opened.press("?")
    assert opened.run("return $('keys').open") and "next failure" in opened.text("#keys")
    opened.press("Escape")


def test_a_phone_has_the_list_or_the_episode(opened: Any) -> None:
    opened.size(390, 844)
    assert opened.shows("#episode") and not opened.shows("#scroll")
    opened.click("#back")
    assert opened.shows("#scroll") and not opened.shows("#episode")
    assert opened.run("return document.documentElement.scrollWidth") <= 390
    opened.press("j")
    opened.until("return $('episode').checkVisibility() && document.documentElement.scrollWidth <= 390")


def test_axe_finds_nothing(opened: Any, axe: str) -> None:
    states = [
        "setMode('group'); opened.add(taskKey(all[0].row)); draw()",
        "setMode('pair')",
        "setMode(''); toggleCurves(true); choose(all.length - 1); $('keys').showModal()",
        "$('keys').close(); setTheme('dark')",
    ]
    for state in states:
        opened.run(state)
        opened.until("return document.querySelectorAll('#episode .step').length > 0")
        assert opened.violations(axe) == [], state
    opened.size(390, 844)
    assert opened.violations(axe) == []


def _get(url: str, headers: dict[str, str]) -> int:
    try:
        return int(urllib.request.urlopen(urllib.request.Request(url, headers=headers)).status)
    except urllib.error.HTTPError as e:
        return e.code


def test_a_page_follows_a_run(browser: Any, runs: Path, tmp_path: Path) -> None:
    pytest.importorskip("aiohttp")
    from agent_envs.viewer.feed import live_server

    folder = tmp_path / "live"
    folder.mkdir()
    feed = EpisodeFeed([folder], shown_episode)
    with live_server(feed, "Live", pause=0.2) as server:
        assert _get(server.url, {}) == 401 == _get(server.url + "/news", {"Authorization": "Bearer wrong"})
        token = {"Authorization": f"Bearer {server.token}"}
        assert _get(server.url, token) == 200 and _get(server.url, {**token, "Origin": "http://evil.example"}) == 403
        assert (
            _get(server.url + "/episodes?generation=1&first=99&count=1", token)
            == 400
            == _get(server.url + "/news?rows=x", token)
        )
        browser.open(server.link)
        assert browser.text("#totals") == "0 of 0 episodes"
        stored = list(read_episodes(runs / "before.jsonl"))
        write_episodes(folder / "episodes.jsonl", stored[:3])
        browser.until("return $('totals').textContent.startsWith('3 of 3')")
        browser.until("return document.querySelectorAll('#episode .step').length > 0")
        with (folder / "episodes.jsonl").open("a") as file:
            file.write(stored[3].to_json() + "\n" + stored[4].to_json()[:100])
        shutil.copy(runs / "training" / "metrics.jsonl", folder)
        browser.until("return $('totals').textContent.startsWith('4 of 4')")
        assert stored[3].episode_id in browser.run(
            "return document.querySelector('#rows a').nextSibling.title"
        )  # newest first
        browser.until("return document.querySelectorAll('#curves svg').length === 2")
        browser.run("$('search').value = 'calculator'; $('contents').checked = true; searched()")
        browser.until("return $('progress').textContent === '4 found'")
        write_episodes(folder / "episodes.jsonl", stored[5:7])  # another file by this name
        browser.until("return all.length === 2")
        (folder / "broken.jsonl").write_text("[1]\n")
        browser.until("return /expected a JSON object/.test($('live').textContent)")
        assert browser.problems() == []
    browser.until("return /does not answer/.test($('live').textContent)")
    browser.problems()


@contextmanager
def _played_here(browser: Any, env_id: str, save: Path | None = None, index: int = 2, **kwargs: Any) -> Iterator[Any]:
    """Open a task to be played in the browser; yields the server."""
    pytest.importorskip("aiohttp")
    from agent_envs.cli.play_web import play_server

    game = PlayGame(gym.make(env_id, **kwargs), index=index, seed=0, save=save)
    with play_server(game) as server:
        browser.open(server.link)
        yield server
    game.end()


@contextmanager
def _a_step(browser: Any) -> Iterator[None]:
    """What is done inside is a step, or takes one back; wait until it is shown."""
    steps = browser.run("return state.episode.steps.length")
    yield
    browser.until("return state.episode.steps.length !== arguments[0] && !busy", steps)


def test_a_task_is_played_in_the_browser(browser: Any, tmp_path: Path, axe: str) -> None:
    path = tmp_path / "mine.jsonl"
    with _played_here(browser, TOOL, path, split="test") as server:
        token = {"Authorization": f"Bearer {server.token}"}
        form = urllib.request.Request(
            server.url + "/act", b'{"action": "#### 1"}', {**token, "Content-Type": "text/plain"}
        )
        with pytest.raises(urllib.error.HTTPError, match="415"):
            urllib.request.urlopen(form)
        assert browser.violations(axe) == []
        browser.press("1")
        browser.run("document.querySelector('#form input').value = '12*7'; $('form').requestSubmit()")
        browser.until("return /84/.test($('episode').innerText)")
        browser.press("Escape", "u")
        browser.until("return !/84/.test($('episode').innerText)")
        browser.press("e")
        browser.until("return /^The expert: /.test($('message').textContent)")
        browser.run("$('action').value = '<b>#### 5</b>'; $('own').requestSubmit()")
        browser.until("return /The episode is over after 1 step/.test($('episode').innerText)")
        assert browser.run("return document.querySelectorAll('#episode b').length") == 0
        browser.press("Escape", "m")
        browser.until("return /1 played, 0 solved/.test($('tally').textContent)")
        browser.run("$('index').value = 999999; $('goto').requestSubmit()")
        browser.until("return /got index 999999/.test($('message').textContent)")
        assert browser.violations(axe) == [] and browser.problems() == []
    [episode] = read_episodes(path)
    assert [step.action for step in episode.steps] == ["<b>#### 5</b>"] and episode.index == 2


def _clicked(browser: Any, text: str, within: str = ".scene") -> None:
    """Click what has this text, and wait until it has been done."""
    script = """
        const found = [...document.querySelectorAll(arguments[0])].find(
            b => b.innerText.includes(arguments[1]) && !b.disabled
        );
        found?.click();
        return Boolean(found);
    """
    with _a_step(browser):
        assert browser.run(script, f"{within} button", text), text


def _written(browser: Any, label: str, text: str) -> None:
    script = "const i = document.querySelector(`.scene input[aria-label='${arguments[0]}']`); i.value = arguments[1];"
    with _a_step(browser):
        browser.run(f"{script} i.form.requestSubmit()", label, text)


@pytest.mark.parametrize("env_id", ["AgentR1/WebShop-v0", "AgentR1/ALFWorld-v0", "AgentR1/HotpotQA-v0"])
def test_a_task_looks_like_what_it_is(env_id: str, browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    with _played_here(browser, env_id, path, split="test"):
        if "WebShop" in env_id:
            _written(browser, "search the shop", "<b>shirt</b>")
            _clicked(browser, "$", ".shelf")
            _clicked(browser, "Description")
            _clicked(browser, "back to the product")
            _clicked(browser, "Buy now")
            browser.until("return /Thank you for shopping/.test(document.querySelector('.scene').innerText)")
            expected = ["search[<b>shirt</b>]", "click[b", "click[description]", "click[< prev]", "click[buy now]"]
        elif "ALFWorld" in env_id:
            place = browser.run("return document.querySelector('.place:enabled bdi').textContent")
            _clicked(browser, place, ".plan")
            assert browser.run("return document.querySelector('.place.here bdi').textContent") == place
            _clicked(browser, "examine", ".near")
            _clicked(browser, "inventory")
            expected = [f"go to {place}", "examine ", "inventory"]
        else:
            _written(browser, "search", "<b>town</b>")
            assert browser.run("return document.querySelectorAll('.passage').length") > 1
            _written(browser, "your answer", "<img src=x onerror=alert(1)>")
            browser.until("return /your answer: <img/.test(document.querySelector('.scene').innerText)")
            expected = ["<tool_call>", "<answer><img src=x onerror=alert(1)></answer>"]
        assert browser.run("return document.querySelectorAll('#episode b, #episode img').length") == 0
        browser.press("Escape", "p")
        browser.until("return document.querySelectorAll('article.step').length === state.episode.steps.length")
        browser.press("p")
        browser.until("return document.querySelector('.scene')")
        assert browser.problems() == []  # the page's policy was never broken
    [episode] = read_episodes(path)
    assert len(episode.steps) == len(expected)
    assert all(step.action.startswith(begin) for step, begin in zip(episode.steps, expected, strict=True))
    assert not any(step.info["invalid_action"] for step in episode.steps)


@pytest.mark.parametrize(
    ("env_id", "kwargs", "shows"),
    [
        ("AgentR1/WebShop-v0", {"site": "agentr1"}, [".line", ".article", ".product", ".buy button:enabled"]),
        ("AgentR1/HotpotQA-v0", {"style": "search_r1"}, [".line", ".passage"]),
    ],
)
def test_released_forms_look_like_it_too(
    env_id: str, kwargs: dict[str, str], shows: list[str], browser: Any, tmp_path: Path
) -> None:
    seen = set()
    with _played_here(browser, env_id, tmp_path / "mine.jsonl", index=3, **kwargs):
        while not browser.run("return state.over"):
            seen |= {
                each for each in shows if browser.run("return document.querySelector('.scene ' + arguments[0])", each)
            }
            with _a_step(browser):
                browser.run("$('let').click()")
        assert browser.run("return document.querySelector('.scene')") and browser.problems() == []
    [episode] = read_episodes(tmp_path / "mine.jsonl")
    assert seen == set(shows) and episode.success


@pytest.mark.parametrize(("width", "theme"), [(1280, "light"), (390, "dark")])  # no colour depends on the width
@pytest.mark.parametrize("env_id", ["AgentR1/WebShop-v0", "AgentR1/ALFWorld-v0", "AgentR1/HotpotQA-v0"])
def test_scenes_can_be_reached_and_read_by_all(env_id: str, width: int, theme: str, browser: Any, axe: str) -> None:
    browser.size(width, 860)
    try:
        with _played_here(browser, env_id, split="test"):
            browser.run("setTheme(arguments[0])", theme)
            while not browser.run("return state.over"):
                assert browser.violations(axe) == []
                assert browser.run("return document.documentElement.scrollWidth <= innerWidth")
                with _a_step(browser):
                    browser.run("$('let').click()")
            assert browser.violations(axe) == []
    finally:
        browser.size(1280, 860)
