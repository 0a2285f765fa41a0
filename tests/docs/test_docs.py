"""The documentation is right: its blocks run, its commands exist, its links work, generated pages are current."""

import ast
import configparser
import dataclasses
import doctest
import fnmatch
import importlib
import re
import shlex
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

import agent_envs
from agent_envs.cli.main import command_parser
from agent_envs.errors import ConfigError
from agent_envs.problem_env import ProblemEnv
from agent_envs.text_env import Outcome, TextEnv
from agent_envs.tool_env import ToolEnv
from agent_envs.wrapping.order import REFUSED, Place
from agent_envs.wrapping.specs import wrapper_names


@pytest.fixture(scope="module")
def generate(load_file):
    return load_file("docs/generate.py")


@pytest.mark.skipif(sys.platform != "linux", reason="three environments need the sandbox")
def test_generated_pages_and_pictures_are_current(generate):
    made = dict(generate.everything())
    old = [file.name for file, text in made.items() if file.read_text(encoding="utf-8") != text]
    assert not old, "run: python docs/generate.py"
    there = {*(generate.DOCS / "environments").iterdir(), *(generate.DOCS / "images" / "episodes").iterdir()}
    assert there <= set(made)


def test_pictures_hold_no_markup_of_a_text_and_load_nothing(generate):
    bubble = generate.pictures.Bubble
    said = [bubble("environment", "<script>alert(1)</script>&\x1b[31m\0"), bubble("agent", "x" * 5000)] * 9
    for picture in (generate.pictures.episode("a <b>", said, "reward 1"), generate.pictures.badges([("<a>", "&")])):
        tree = ElementTree.fromstring(picture)
        assert not [e for e in tree.iter() if e.tag.endswith(("script", "image", "a"))]
        assert "http" not in picture.replace("http://www.w3.org/2000/svg", "") and len(picture) < 20_000


def test_every_formula_in_a_docstring_can_be_shown(load_file, root):
    formulas = load_file("docs/formulas.py")
    assert not doctest.testmod(formulas).failed
    shown = 0
    for path in [*(root / "adapters" / "estimators").glob("*.py"), *(root / "adapters" / "losses").glob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            doc = ast.get_docstring(node) if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) else None
            for formula in re.findall(r"\$([^$]*)\$", doc or ""):
                ElementTree.fromstring(formulas.mathml(formula))
                shown += 1
    assert shown > 100


@pytest.mark.parametrize(
    ("formula", "mathml"),
    [
        ("-A max", '<mo form="prefix">−</mo><mi>A</mi><mspace width="0.2em"/><mi>max</mi>'),
        ("(1/2)", '<mrow><mo>(</mo><mn>1</mn><mo lspace="0" rspace="0">/</mo><mn>2</mn><mo>)</mo></mrow>'),  # no blanks
        ("a - b", "<mi>a</mi><mo>−</mo><mi>b</mi>"),
        ("S_ik^2", "<msubsup><mi>S</mi><mrow><mi>i</mi><mi>k</mi></mrow><mn>2</mn></msubsup>"),  # two indices
        ("V_{t+1}", "<msub><mi>V</mi><mrow><mi>t</mi><mo>+</mo><mn>1</mn></mrow></msub>"),
        ("tau_pos <= 1e-6", "<msub><mi>τ</mi><mi>pos</mi></msub><mo>≤</mo><msup><mn>10</mn><mn>−6</mn></msup>"),
        ("1 / sqrt(b)", "<mfrac><mn>1</mn><mrow><msqrt><mi>b</mi></msqrt></mrow></mfrac>"),
        ("a < b", "<mi>a</mi><mo>&lt;</mo><mi>b</mi>"),
        *[(wrong, None) for wrong in ("(x", "x)", "x_", "a / ", "{x", "\\gamma", "a & b", "sqrt")],
        *[(wrong, None) for wrong in ("sqrt x", "a / -b", "x_a_b", "x^a^b")],
    ],
)  # fmt: skip
def test_formulas_are_shown_as_they_are_meant(load_file, formula, mathml):
    formulas = load_file("docs/formulas.py")
    if mathml is None:
        with pytest.raises(ValueError, match="formula|missing"):
            formulas.mathml(formula)
    else:
        assert formulas.mathml(formula) == f'<math displaystyle="true">{mathml}</math>'


def test_the_list_of_what_can_be_implemented_is_right(root):
    english, chinese = (
        (root / "docs" / name).read_text(encoding="utf-8")
        for name in ("writing_an_environment.md", "writing_an_environment.zh.md")
    )
    row = r"^\| `(\w+)(?:\(.*?\))?(?:=.*)?` "
    for base in (TextEnv, ToolEnv, ProblemEnv):
        tables = english.split(f"| of `{base.__name__}` |")[1], chinese.split(f"| `{base.__name__}` 的 |")[1]
        members, same = (re.findall(row, table.split("\n\n")[0], flags=re.MULTILINE) for table in tables)
        assert members == same and members
        for member in members:
            assert hasattr(base, member) or member == "tools", f"{base.__name__} has no {member}"
    fields = [f.name for f in dataclasses.fields(Outcome)]
    assert all(f"`{field}`" in english or field == "observation" for field in fields)


def test_both_languages_of_a_page_have_the_same_headings_blocks_and_tables(root):
    for page in (root / "docs").glob("*.zh.md"):
        if page.name == "training.zh.md":  # a shorter guide
            continue
        texts = [p.read_text(encoding="utf-8") for p in (page, page.with_name(page.name.replace(".zh.", ".")))]
        shapes = [re.findall(r"^(#+ |```\w*|\| (?=[^-])|!\[|- )", text, flags=re.MULTILINE) for text in texts]
        assert shapes[0] == shapes[1], page.name


def _pages(root):
    top = [root / f"{name}.md" for name in ("README", "README.zh", "CHANGELOG", "CONTRIBUTING")]
    return [*top, *sorted((root / "docs").rglob("*.md"))]


def test_every_column_of_a_table_has_a_name(root):
    """A screen reader says it before each cell."""
    for page in _pages(root):
        heads = re.findall(r"^(.*)\n\|?(?: *:?-{3,}:? *\|?)+$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
        for head in heads:
            assert all(cell.strip() for cell in head.strip().strip("|").split("|")), f"{page.name}: {head}"


def test_links_within_the_pages_lead_somewhere(root):
    anchors = {}
    for page in _pages(root):
        heads = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
        heads = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", head) for head in heads]
        anchors[page.resolve()] = {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}
    for page in _pages(root):
        for target in re.findall(r"\]\((?!https?://)([^)]+)\)", page.read_text(encoding="utf-8")):
            path, _, anchor = target.partition("#")
            there = (page.parent / path).resolve() if path else page.resolve()
            assert there.exists(), f"{page.name}: {target}"
            assert not anchor or anchor in anchors[there], f"{page.name}: {target}"


def test_every_page_and_picture_is_reached_from_the_readme(root):
    reached, waiting = set(), [root / "README.md"]
    while waiting:
        page = waiting.pop().resolve()
        if page in reached:
            continue
        reached.add(page)
        if page.suffix == ".md":
            targets = re.findall(r"\]\((?!https?://)([^)#]+)[^)]*\)", page.read_text(encoding="utf-8"))
            waiting += [page.parent / target for target in targets]
    pages = {path.resolve() for path in _pages(root)}
    pictures = {path.resolve() for path in (root / "docs" / "images").rglob("*.*")}
    notebooks = {path.resolve() for path in (root / "docs" / "notebooks").glob("*.ipynb")}
    assert not (pages | pictures | notebooks) - reached


def test_every_page_is_in_the_sites_navigation(root):
    """As the site's build, which is a slow test, wants it."""
    text = (root / "mkdocs.yml").read_text(encoding="utf-8")
    assert not [path.name for path in (root / "docs").glob("*.md") if not re.search(rf"[:-] {path.name}$", text, re.M)]


def test_the_readme_is_short_and_both_languages_say_the_same(root):
    english, chinese = ((root / name).read_text(encoding="utf-8") for name in ("README.md", "README.zh.md"))
    assert len(english.split()) <= 600
    commands = r"^agentr1 [\w-]+", r"`agentr1 verify --claims`"
    for what in (r"AgentR1/\w+-v\d", *commands, r"\d\.\d{3}", r"^!\[.*\]\((.*)\)$"):
        found = [re.findall(what, text, flags=re.MULTILINE) for text in (english, chinese)]
        assert set(found[0]) == set(found[1]) and found[0], what
    assert set(agent_envs.ENV_IDS) <= set(re.findall(r"AgentR1/\w+-v\d", english))


def test_the_training_guide_says_the_same_in_both_languages(root):
    english, chinese = (
        (root / "docs" / name).read_text(encoding="utf-8") for name in ("training.md", "training.zh.md")
    )
    for what in (r"`([^`\n]+)`", r"^```bash\n(.*?)^```", r"\]\(((?!training)[^)]*)\)", r"0\.\d\d"):
        found = [set(re.findall(what, text, flags=re.MULTILINE | re.DOTALL)) for text in (english, chinese)]
        assert found[0] == found[1] != set(), what


def test_every_extra_is_named_where_one_installs(root):
    config = configparser.ConfigParser()
    config.read(root / "setup.cfg")
    for page in ("getting_started.md", "getting_started.zh.md"):
        named = set(re.findall(r"`(\w+)`", (root / "docs" / page).read_text(encoding="utf-8")))
        assert set(config["options.extras_require"]) <= named, page


def test_the_citation_names_this_version(root):
    assert f"\nversion: {agent_envs.__version__}\n" in (root / "CITATION.cff").read_text(encoding="utf-8")


def test_every_error_is_explained(root):
    from agent_envs import errors

    text = (root / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    classes = {
        name for name, kind in vars(errors).items() if isinstance(kind, type) and kind.__module__ == errors.__name__
    }
    rows = dict(re.findall(r"^\| `(\w+)` \| .+ \| (.+) \|$", text, flags=re.MULTILINE))
    assert set(rows) == classes


NAMED = re.compile(r"^(?:[a-z_]+/)+[a-z_]*[a-z]$")
METRICS = ("actor", "critic", "env", "num_turns", "process_rewards",
           "prompt_length", "response_length", "rollout", "seconds", "train", "turns", "val")  # fmt: skip


def metric_patterns(root):
    """What the index of metrics lists, as patterns of file names."""
    tables = (root / "docs" / "metrics.md").read_text(encoding="utf-8")
    firsts = re.findall(r"^\| ([^|]*) \|", tables, flags=re.MULTILINE)
    return [name for first in firsts for name in re.findall(r"`([^`]+)`", first)]


def test_every_metric_in_the_adapters_is_in_the_index(root):
    """Those that the code spells in one piece; a run's own are compared where notebooks run."""
    names = set()
    for path in (root / "adapters").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                text = "".join(part.value if isinstance(part, ast.Constant) else "X" for part in node.values)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                text = node.value
            else:
                continue
            if NAMED.match(text) and text.partition("/")[0] in METRICS:
                names.add(text)
    assert len(names) > 40
    patterns = metric_patterns(root)
    named = {name: (name, f"{name}/mean") for name in names}
    assert not [n for n, either in named.items() if not any(fnmatch.filter(either, each) for each in patterns)]


def test_every_command_a_page_shows_is_one(root):
    """Options are spelled as the commands spell them; `...` and what a shell would fill in are left out."""
    seen = set()
    for page in _pages(root):
        blocks = re.findall(
            r"^```(?:bash|console|sh|text)\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
        )
        for line in "".join(blocks).replace("\\\n", " ").splitlines():
            found = re.match(r"(?:\$ )?(?:[A-Z_]+=\S+ )?agentr1 (.*)", line)
            command = shlex.split(found[1], comments=True) if found else ["..."]
            if "..." in command or {"|", "COMMAND", "agentr1"} & set(command):
                continue
            seen.add(command[0])
            try:
                options = vars(command_parser(command[0]).parse_intermixed_args(command[1:]))
            except (ConfigError, SystemExit):
                pytest.fail(f"{page.name}: {line}")
            preset = options.get("preset") or "gpu-8"
            assert "/" in preset or (root / f"adapters/verl/config/preset/{preset}.yaml").is_file(), line
    assert seen >= {"chat", "demos", "eval", "list", "new-task", "play", "plot", "record", "score", "serve", "train"}


FENCE = re.compile(r"^```python\n(.*?)^```", flags=re.DOTALL | re.MULTILINE)

# Pages whose blocks have tests of their own: the tutorials build files block by block, the others train or need a
# server.
FOLLOWED = {
    "tutorial_first_task.md": "tests/docs/test_tutorials.py",
    "tutorial_tools_and_rewards.md": "tests/docs/test_tutorials.py",
    "tutorial_own_corpus.md": "tests/docs/test_tutorials.py",
    "tutorial_code.md": "tests/docs/test_tutorials.py",
    "tutorial_pictures.md": "tests/docs/test_tutorials.py",
    "tutorial_planner.md": "tests/docs/test_tutorials.py",
    "tutorial_cheated_reward.md": "tests/docs/test_tutorials.py",
    "recording.md": "tests/recording/test_record.py",
    "scaling.md": "tests/rollout/test_ray_engine.py",
    "torch_loop.md": "tests/adapters/test_torch_loop.py",
    "trl.md": "tests/adapters/test_trl.py",
}


def _python_blocks():
    """Each block once: the pages of two languages share theirs."""
    blocks = {}
    for page in _pages(Path(__file__).parents[2]):
        if page.name not in FOLLOWED:
            for number, block in enumerate(FENCE.findall(page.read_text(encoding="utf-8"))):
                blocks.setdefault(block, pytest.param(page, block, id=f"{page.name}-{number}"))
    return list(blocks.values())


@pytest.mark.parametrize(("page", "block"), _python_blocks())
def test_every_block_of_python_runs_by_itself(page, block, request, fake_chat, tmp_path, monkeypatch, capsys):
    """Each runs in an empty folder but for a tiny model, ``models/mine``; skipped if its extra is missing."""
    monkeypatch.chdir(tmp_path)
    if "verifiers" in block:
        pytest.importorskip("verifiers")
        importlib.import_module("agent_envs.adapters.verifiers")
        monkeypatch.setattr("signal.signal", lambda *_: None)  # set for every environment, and at exit
        monkeypatch.setattr("atexit.register", lambda f, *_: f)
    if "models/mine" in block:
        _tiny_model(tmp_path / "models" / "mine")
    names = {"__name__": "page"}
    if "evaluate(" in block and "localhost:8000" in block:  # the reader's server
        server = fake_chat.ChatServer(lambda request: "#### 12")
        request.addfinalizer(server.close)
        block = block.replace("http://localhost:8000/v1", server.url)
    try:
        if block.startswith(">>>"):
            example = doctest.DocTestParser().get_doctest(block, names, page.name, str(page), 0)
            failed = doctest.DocTestRunner().run(example).failed
            assert not failed, capsys.readouterr().out
        else:
            exec(compile(block, page.name, "exec"), names)
    except ImportError as e:  # MissingExtraError too
        pytest.skip(f"needs an extra: {e}")
    finally:
        if "skyrl_gym" in sys.modules:
            sys.modules["skyrl_gym"].registry.pop("agentr1", None)


def test_pages_whose_blocks_are_tested_elsewhere_are_named_there(root):
    for page, test in FOLLOWED.items():
        assert Path(page).stem in (root / test).read_text(encoding="utf-8"), f"{test} does not read {page}"


def _tiny_model(folder):
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from agent_envs.adapters.tiny.model import save_model
    from benchmarks.pretraining.model import build_model
    from benchmarks.pretraining.tokenizer import build_tokenizer

    tokenizer = build_tokenizer(["user assistant system 0123456789"])
    save_model(build_model(tokenizer), tokenizer, folder)


def test_the_wrappers_page_names_every_wrapper_in_order(root):
    text = (root / "docs" / "wrappers.md").read_text(encoding="utf-8")
    names = set(re.findall(r"`(\w+)", text))
    assert {*wrapper_names(), *REFUSED} <= names
    order = text.index("## The order of wrappers")
    placed = {name: getattr(agent_envs.wrappers, name).place for name in wrapper_names()}
    positions = {name: text.index(f"`{name}", order) for name, place in placed.items() if place < Place.REWARD}
    assert sorted(positions, key=positions.__getitem__) == sorted(positions, key=lambda name: (placed[name], name))


def test_the_policies_page_names_every_policy(root):
    from agent_envs import policies

    text = (root / "docs" / "policies.md").read_text(encoding="utf-8")
    names = {f"`{name}`" for name in policies.__all__ if name.endswith("Policy") and name != "Policy"}
    assert names <= set(re.findall(r"`\w+`", text))


def test_evaluations_print_what_the_page_shows(root, tmp_path, monkeypatch, capsys):
    from agent_envs.cli.main import main

    text = (root / "docs" / "evaluation.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    commands = r"agentr1 (eval --env AgentR1/GSM8KTool-v0 .*|eval --panel .*|compare .*)\n((?:.*\n)*?)^```"
    blocks = re.findall(rf"^```(console\n\$ |bash\n){commands}", text, flags=re.MULTILINE)
    assert len(blocks) == 3
    for fence, command, shown in blocks:
        assert main(shlex.split(command)) == 0
        said = capsys.readouterr().out
        if fence.startswith("bash"):  # the page does not show what it prints
            continue
        untimed = [[line for line in some.splitlines() if not line.startswith("time ")] for some in (said, shown)]
        assert untimed[0] == untimed[1]
