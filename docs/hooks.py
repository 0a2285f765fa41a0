"""What the site holds beside the pages of this folder: made when it is built, by hooks of mkdocs (mkdocs.yml).

- reference/*.md   every public name of the package, a page per room
- commands.md      what `agentr1 COMMAND --help` prints
- notebooks/*.md   the notebooks with their outputs
- changelog.md     CHANGELOG.md
"""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import sys
from collections import defaultdict
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from agent_envs.cli.main import COMMANDS, command_parser
from agent_envs.registration import ENV_IDS, FOREIGN_IDS, PICTURE_IDS

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "docs"))
from formulas import mathml  # noqa: E402

TOP = ("adapters", "datasets", "wrappers")
SPLIT = {"adapters"}
"""Rooms whose packages have a page each."""
LEFT_OUT = {"cli"}
"""Its user's side is the page of commands."""

UNSEARCHED = {"changelog.md", "results.md"}
"""Pages that the search leaves out: other pages explain what they name."""
SEARCHED = {
    "reference": 0.05,
    "commands.md": 0.2,
    "environments": 0.2,
    "notebooks": 0.2,
}
"""How much a folder or a page counts in the search; a guide counts 1."""

NOTEBOOK = re.compile(r"(\]\(notebooks/\w+)\.ipynb\)")
EXAMPLE = re.compile(r'^( *)>>> .*(?:\n\1(?!""").+)*', re.MULTILINE)
FORMULA = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>', re.DOTALL)
NO_HEADER = re.compile(r"<thead>\s*<tr>\s*(?:<th></th>\s*)+</tr>\s*</thead>")
TAG = re.compile(r"``.+?``|`[^`]*`|<", re.DOTALL)
DOTTED = re.compile(r"agent_envs(?:\.[a-z]\w*)+")
FENCE = "````"


class Module(NamedTuple):
    """What the reference says of a module."""

    about: str
    """Its docstring, as Markdown."""
    public: list[str]
    defined: list[str]
    """The public names that it defines itself; packages also list names of their modules."""
    numbers: list[str]
    """Those of them that are set in one line with others, and so have no text of their own."""


def public_modules(root: Path = ROOT) -> dict[str, Module]:
    """Return every public module by its name, with its public names.

    A package's public names are those of its `__all__`, and it shows them where they are defined. A module is public as
    a whole if a page, a template or the registration of an environment names it. A name with an underscore never is.
    """
    pages = [*(root / "docs").rglob("*.md"), *root.glob("README*.md"), *(root / "agent_envs/templates").rglob("*.txt")]
    named = {name for path in pages for name in DOTTED.findall(path.read_text(encoding="utf-8"))}
    named |= {str(gym.registry[env_id].entry_point).partition(":")[0] for env_id in ENV_IDS + PICTURE_IDS + FOREIGN_IDS}
    trees, exported = dict[str, ast.Module](), dict[str, list[str]]()
    for folder in ("agent_envs", *TOP):
        for path in sorted((root / folder).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            name = ".".join(parts if folder == "agent_envs" else ("agent_envs", *parts)).removesuffix(".__init__")
            if (folder == "agent_envs" and parts[1] in (*TOP, *LEFT_OUT)) or "._" in name:
                continue
            trees[name] = ast.parse(path.read_text(encoding="utf-8"))
            if path.name == "__init__.py":
                exported[name] = _listed(trees[name])
    found = {}
    for name, tree in trees.items():
        own, numbers = _set_names(tree)
        if name in exported:
            public = exported[name]
        elif name in named:
            public = [each for each in (*own, *numbers) if not each.startswith("_")]
        else:
            above = {each for package, names in exported.items() if name.startswith(f"{package}.") for each in names}
            public = [each for each in own if each in above]
        if public:
            about = as_markdown(ast.get_docstring(tree) or "")
            defined = [each for each in public if each in own]
            found[name] = Module(about, public, defined, [each for each in public if each in numbers])
    return found


def as_markdown(doc: str) -> str:
    """Return a module's docstring with its tables, its examples and what looks like a tag as Markdown has them.

    >>> print(as_markdown("A <b>.\\n\\n====  ====\\n``<``  |x|,\\n       <b>\\n====  ===="))
    A &lt;b>.
    <BLANKLINE>
    |  |  |
    | --- | --- |
    | ``<`` | \\|x\\|, &lt;b> |
    """
    blocks = doc.split("\n\n")
    for place, block in enumerate(blocks):
        text = _table(block.splitlines()) if block.startswith("===") else block
        if block.startswith(">>>"):
            blocks[place] = f"```pycon\n{block}\n```"
        elif not block.startswith("    "):  # which is code
            blocks[place] = TAG.sub(lambda found: "&lt;" if found[0] == "<" else found[0], text)
    return "\n\n".join(blocks)


def _table(lines: list[str]) -> str:
    """Return a table of reStructuredText; a line without a first cell continues the row above."""
    starts = [found.start() for found in re.finditer("=+", lines[0])]
    rows = list[list[str]]()
    for line in lines:
        if line.startswith("==="):
            continue
        cells = [line[a:b].strip().replace("|", "\\|") for a, b in zip(starts, [*starts[1:], None], strict=True)]
        if cells[0]:
            rows.append(cells)
        else:
            rows[-1] = [f"{old} {new}".strip() for old, new in zip(rows[-1], cells, strict=True)]
    if sum(line.startswith("===") for line in lines) < 3:  # without a header
        rows.insert(0, [""] * len(starts))
    rows.insert(1, ["---"] * len(starts))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _listed(tree: ast.Module) -> list[str]:
    """Return the names of a package's `__all__`; none if it has no such list."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "__all__":
            return [each for each in ast.literal_eval(node.value) if not each.startswith("__")]
    return []


def _set_names(tree: ast.Module) -> tuple[dict[str, None], dict[str, None]]:
    """Return the names a module defines, in its order, and those that it sets several of at once."""
    own, numbers = dict[str, None](), dict[str, None]()
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            own[node.name] = None
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Tuple):
                    numbers |= dict.fromkeys(each.id for each in target.elts if isinstance(each, ast.Name))
                elif isinstance(target, ast.Name):
                    own[target.id] = None
        elif isinstance(node, ast.If):  # a definition for each platform or release
            own |= dict.fromkeys(e.name for e in ast.walk(node) if isinstance(e, ast.ClassDef | ast.FunctionDef))
    return own, numbers


def page_of(module: str) -> str:
    """Return the page of the reference that a module is on.

    >>> page_of("agent_envs.errors"), page_of("agent_envs.policies.openai.reply"), page_of("agent_envs.adapters.trl")
    ('core', 'policies', 'adapters.trl')
    """
    parts = module.split(".")[1:]
    if not parts or (ROOT / "agent_envs" / f"{parts[0]}.py").is_file():
        return "core"
    split = len(parts) > 1 and parts[0] in SPLIT and (ROOT / parts[0] / parts[1]).is_dir()
    return ".".join(parts[: 2 if split else 1])


def reference_pages() -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each page of the reference."""
    modules = public_modules()
    homes: dict[str, list[str]] = defaultdict(list)
    for name, module in modules.items():
        for each in module.defined:
            homes[each].append(name)
    pages: dict[str, list[str]] = defaultdict(list)
    for name, module in modules.items():
        lines = [f"## {name} {{ #module-{name} }}", "", module.about, ""]
        others = [e for e in module.public if e not in module.defined and e not in module.numbers]
        if others:
            lines += [f"From its modules: {', '.join(_link(name, each, homes[each]) for each in others)}.", ""]
        if module.numbers:
            lines += [f"Constants: {', '.join(f'`{each}`' for each in module.numbers)}.", ""]
        pages[page_of(name)] += lines + [line for each in module.defined for line in (f"::: {name}.{each}", "")]
    index = [
        "# Python\n",
        "Every public name of the package: what its packages list in `__all__`, and the modules that this site "
        "names. Everything else, and names that begin with an underscore, may change at any time.\n",
    ]
    for page, lines in sorted(pages.items(), key=lambda item: (item[0] != "core", item[0])):
        title = "agent_envs" if page == "core" else f"agent_envs.{page}"
        index.append(f"- [{title}]({page}.md)")
        yield f"reference/{page}.md", f"# {title}\n\n" + "\n".join(lines) + "\n"
    yield "reference/index.md", "\n".join(index) + "\n"


def _link(package: str, name: str, homes: list[str]) -> str:
    """Return a link to a name of a package, where one of its own modules or else another defines it."""
    places = sorted(homes, key=lambda m: (not m.startswith(f"{package}."), len(m)))
    return f"[`{name}`][{places[0]}.{name}]" if places else f"`{name}`"


def commands_page() -> str:
    """Return what every command's --help prints."""
    os.environ["COLUMNS"] = "94"
    parts = ["# Commands", "", "`agentr1 COMMAND --help` prints the same.", ""]
    for name in sorted(COMMANDS):
        parts += [f"## agentr1 {name}", "", f"{FENCE}text", command_parser(name).format_help().rstrip(), FENCE, ""]
    return "\n".join(parts)


def notebook_page(path: Path) -> str:
    """Return a notebook as Markdown: its texts, its code, and what that printed when it was last run."""
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"{FENCE}python\n{source}\n{FENCE}")
        for output in cell["outputs"]:
            data: dict[str, Any] = output.get("data", {})
            if "image/svg+xml" in data:
                parts.append(f'<div class="output" markdown="0">{"".join(data["image/svg+xml"])}</div>')
            elif text := "".join(output.get("text", data.get("text/plain", ""))).rstrip():
                parts.append(f"{FENCE}text\n{text}\n{FENCE}")
    return "\n\n".join(parts) + "\n"


def stage(target: Path) -> None:
    """Copy the package's sources as an install lays them out, with the examples in docstrings as blocks of code.

    griffe follows no link to a folder without __init__.py.
    """
    shutil.rmtree(target, ignore_errors=True)
    for folder in ("agent_envs", *TOP):
        for path in (ROOT / folder).rglob("*.py"):
            inside = path.relative_to(ROOT / "agent_envs" if folder == "agent_envs" else ROOT)
            if folder == "agent_envs" and inside.parts[0] in TOP:
                continue
            copy = target / "agent_envs" / inside
            copy.parent.mkdir(parents=True, exist_ok=True)
            text = EXAMPLE.sub(r"\1```pycon\n\g<0>\n\1```", path.read_text(encoding="utf-8"))
            copy.write_text(text, encoding="utf-8")
    (target / "agent_envs" / "datasets" / "__init__.py").touch()


def on_startup(command: str, dirty: bool) -> None:
    """Lay out the sources where mkdocs.yml has mkdocstrings look, before it looks."""
    stage(ROOT / "build" / "reference")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """List the pages that mkdocs.yml does not name one by one."""
    assert config.nav is not None
    sections = {title: pages for section in config.nav for title, pages in section.items()}
    python = [name for name, _ in reference_pages() if name != "reference/index.md"]
    environments = [f"environments/{path.name}" for path in sorted((ROOT / "docs" / "environments").glob("*.md"))]
    where = sections["Reference"].index({"Python": "reference/index.md"})
    sections["Reference"][where] = {"Python": ["reference/index.md", *python]}
    sections["Environments"].insert(1, {"Every environment": environments})
    return config


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Tell the search how much a page counts, and lead to the pages of notebooks instead of the notebooks."""
    name = page.file.src_uri
    page.meta["search"] = {"exclude": name in UNSEARCHED, "boost": SEARCHED.get(name.partition("/")[0], 1.0)}
    return NOTEBOOK.sub(r"\1.md)", markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Show formulas as such, and no header where a table's is empty."""
    html = NO_HEADER.sub("", html)
    return FORMULA.sub(lambda found: mathml(unescape(found[1]).replace("\\|", "|")), html)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made."""
    made = dict(reference_pages())
    made["commands.md"] = commands_page()
    made["changelog.md"] = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").replace("](docs/", "](")
    for path in sorted((ROOT / "docs" / "notebooks").glob("*.ipynb")):
        made[f"notebooks/{path.stem}.md"] = notebook_page(path)
    for name, text in made.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_post_build(config: MkDocsConfig) -> None:
    """Notebooks can be downloaded beside their pages."""
    for path in sorted((ROOT / "docs" / "notebooks").glob("*.ipynb")):
        shutil.copy2(path, Path(config.site_dir) / "notebooks" / path.name)
