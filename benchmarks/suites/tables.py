"""The tables of README.md, from the figures that compare.py keeps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

OURS = "agent_envs"
NAMES = {
    "agent_envs": "agent_envs",
    "gymnasium": "gymnasium, by hand",
    "gem": "gem-llm",
    "skyrl_gym": "skyrl-gym",
    "verifiers": "verifiers",
    "openenv": "openenv-core",
    "textarena": "textarena",
    "reasoning_gym": "reasoning-gym",
    "trl": "TRL",
    "agent_r1": "Agent-R1",
}
NONE = "–"

Cell = Mapping[str, Any]
Results = Mapping[str, Mapping[str, Any]]


def number(value: float) -> str:
    """Three significant digits at most, without an exponent.

    >>> number(0.01234), number(12.34), number(123456.7), number(0.0)
    ('0.0123', '12.3', '123,457', '0')
    """
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def figure(key: str) -> Callable[[Cell, Cell], str]:
    """A figure, and how many times ours it is."""

    def shown(cell: Cell, ours: Cell) -> str:
        value, own = float(cell[key]), float(ours.get(key, 0))
        return number(value) + (f" ({number(value / own)}×)" if own > 0 and cell is not ours else "")

    return shown


def _soak(cell: Cell, ours: Cell) -> str:
    return f"{number(max(0.0, cell['megabytes']))} MB in {cell['resets']:,}"


def _same(cell: Cell, ours: Cell) -> str:
    note = "" if cell["different"] > 1 else ", one task"
    return ("yes" if cell["same"] else "no") + note


def _warnings(cell: Cell, ours: Cell) -> str:
    return "passes" if cell["warnings"] == 0 else f"{cell['warnings']} warnings"


def _share(cell: Cell, ours: Cell) -> str:
    share = 100 * cell["passed"] / cell["played"]
    return f"{share:.4g} % of {cell['played']:,}"


def _survived(cell: Cell, ours: Cell) -> str:
    return f"{cell['survived']} of {cell['of']}"


Column = tuple[str, str, Callable[[Cell, Cell], str]]
TABLES: tuple[tuple[str, str, tuple[Column, ...]], ...] = (
    (
        "Installing",
        "With pip into an empty environment; import in a new interpreter, less the interpreter's own time.",
        (
            ("version", "install", lambda cell, _: cell["version"]),
            ("packages", "install", figure("packages")),
            ("on disk, MB", "install", figure("megabytes")),
            ("install, s", "install", figure("seconds")),
            ("import, s", "import", figure("seconds")),
        ),
    ),
    (
        "Speed and memory",
        "Reset and step are of the task named, so they differ in what they do. The tool loop is the same everywhere: "
        "one question, nine calls of the same calculator, and the answer. Memory is that of one more environment "
        "after its reset.",
        (
            ("reset, µs", "reset", figure("microseconds")),
            ("step, µs", "step", figure("microseconds")),
            ("tool loop, calls/s", "loop", figure("calls_per_second")),
            ("an environment, kB", "memory", figure("kilobytes")),
            ("growth over resets", "soak", _soak),
            ("task", "reset", lambda cell, _: str(cell["of"])),
        ),
    ),
    (
        "Promises",
        "Same: 20 seeds give the same episodes in two processes with different hash seeds. Limits: how long a tool "
        "that sleeps 6 s was waited for at a limit of 1 s, and an endless program at a limit of 2 s. Texts and calls: "
        "hostile actions, such as a million characters or a call of no tool, which must end in an observation within "
        "5 s. Expert: the suite's own solutions, judged by itself.",
        (
            ("same", "determinism", _same),
            ("`check_env`", "check_env", _warnings),
            ("tool at 1 s", "tool_limit", lambda cell, _: f"{cell['seconds']:.1f} s"),
            ("program at 2 s", "program_limit", lambda cell, _: f"{cell['seconds']:.1f} s"),
            ("texts", "hostile_texts", _survived),
            ("calls", "hostile_calls", _survived),
            ("expert", "expert", _share),
        ),
    ),
    (
        "Tokens processed per unique token",
        "Of an episode whose prompt grows: 200 tokens, then 40 of the model and 60 of a result per step.",
        (
            ("5 steps", "tokens", figure("steps_5")),
            ("20 steps", "tokens", figure("steps_20")),
            ("rows", "tokens", lambda cell, _: str(cell["of"])),
        ),
    ),
)
TITLES = {column[1]: column[0].partition(",")[0] for _, _, columns in TABLES for column in columns} | {
    "install": "installing", "reset": "reset", "soak": "growth over resets", "tokens": "tokens"
}  # fmt: skip


def tables(results: Results) -> str:
    """Return the tables as Markdown, with the faults that were found."""
    parts = [_head(results)]
    for title, text, columns in TABLES:
        rows = [["suite", *(column[0] for column in columns)], ["---"] * (len(columns) + 1)]
        for name in NAMES:
            if name not in results:
                continue
            cells, ours = results[name]["cells"], results[OURS]["cells"]
            row = [_entry(cells.get(cell, {}), ours.get(cell, {}), shown) for _, cell, shown in columns]
            if any(entry != NONE for entry in row):
                rows.append([NAMES[name], *row])
        lines = ["| " + " | ".join(_plain(entry) for entry in row) + " |" for row in rows]
        parts.append(f"### {title}\n\n{text}\n\n" + "\n".join(lines))
    return "\n\n".join([*parts, _faults(results)]) + "\n"


def _entry(cell: Cell, ours: Cell, shown: Callable[[Cell, Cell], str]) -> str:
    if not cell or "missing" in cell:
        return NONE
    return "failed" if "error" in cell else shown(cell, ours)


def _plain(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _head(results: Results) -> str:
    cells = [cell for one in results.values() for cell in one["cells"].values()]
    times, loads = sorted(cell["at"] for cell in cells), sorted(cell["load"] for cell in cells)
    machine = results[OURS]["machine"]
    torch = results.get("trl", {}).get("cells", {}).get("install", {}).get("torch")
    text = (
        f"Measured from {times[0]} to {times[-1]} UTC by `make compare`, on {machine['cores']} cores with Python "
        f"{machine['python']}, beside other programs: the load before a cell was {loads[len(loads) // 2]:.1f} in the "
        f"median and {loads[-1]:.1f} at most. Times are processor time, and those of limits are of the clock. "
        f"In brackets: how many times ours. {NONE} does not apply: the raw figures say why."
    )
    return text + (f" TRL was installed with torch {torch}, a build for the CPU." if torch else "")


def _faults(results: Results) -> str:
    lines = []
    for name, title in NAMES.items():
        for cell, found in sorted(results.get(name, {}).get("cells", {}).items()):
            if "error" in found:
                lines.append(f"- {title}, {TITLES.get(cell, cell)}: failed with `{_code(found['error'])}`")
            for action, fault in found.get("faults", {}).items():
                lines.append(f"- {title}, {action}: `{_code(fault)}`")
            if cell == "expert" and "of" in found:
                lines.append(f"- {title}, expert: {found['of']}.")
    return "### What was found\n\n" + ("\n".join(lines) or "Nothing.")


def _code(text: str) -> str:
    return " ".join(text.replace("`", "'").split())[:160]
