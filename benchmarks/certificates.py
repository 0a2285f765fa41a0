"""The certificates in benchmarks/certificates: an audit of every id here, and of released variants with faults.

python benchmarks/certificates.py run              # audits those that are missing, and writes certificates/*.json
python benchmarks/certificates.py run GSM8KTool    # audits these again
python benchmarks/certificates.py page             # writes the page from the files
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import certificate_sources as sources

from agent_envs.audit import KINDS, audit
from agent_envs.audit.study import expert_act
from agent_envs.files import write_text

FOLDER = Path(__file__).resolve().parent / "certificates"
PAGE = FOLDER / "README.md"


class Case(NamedTuple):
    """An environment to be audited."""

    env: str
    kwargs: dict[str, Any]
    tasks: int = 100
    chance: float = 0.0
    why: str = ""
    """Reason for what differs: fewer tasks, a chance, or the fault of a released variant."""
    package: str = ""
    """What makes the environment, if that is another package."""
    source: str = ""
    """Name of a function of certificate_sources.py that provides what the environment needs."""
    expert: str = ""
    """Name of a function there that solves the tasks, for environments without an expert."""


_SANDBOX = "20 tasks, since every call starts a program; the constant wins one of them, and at most 2.2 % of all 1,000."
_SMALL_NUMBERS = (
    "Small numbers are frequent, as in GSM8K itself: the most frequent answer is that of 2.3 % of all "
    "1,000 tasks, and of 2.9 % of 2,000 of its rows. Here 60 is drawn more often."
)
_LONG = "20 tasks, since conversations are long."
CASES = {
    "ALFWorld": Case("AgentR1/ALFWorld-v0", {}),
    "GSM8K": Case("AgentR1/GSM8K-v0", {}, why=_SMALL_NUMBERS),
    "GSM8KCode": Case("AgentR1/GSM8KCode-v0", {}, why=_SMALL_NUMBERS),
    "GSM8KTool": Case("AgentR1/GSM8KTool-v0", {}, why=_SMALL_NUMBERS),
    "GSM8KTool-check_answer": Case(
        "AgentR1/GSM8KTool-v0", {"tool": "check_answer"}, why="Released: a tool that tells whether an answer is right."
    ),
    "GSM8KTool-agentr1": Case(
        "AgentR1/GSM8KTool-v0", {"reward": "agentr1"}, why="Released: every step is paid, calls included."
    ),
    "HelpDesk": Case("AgentR1/HelpDesk-v0", {}, 40, 0.0, "40 tasks, since conversations are long."),
    **{f"HelpDesk-{level}": Case("AgentR1/HelpDesk-v0", {"level": level}, 20, 0.0, _LONG) for level in (1, 3, 5, 8)},
    "HotpotQA": Case(
        "AgentR1/HotpotQA-v0",
        {},
        100,
        0.07,
        "A guess may win 7 %: of all 1,000 tasks the answer of 6.2 % is no and of 4.9 % yes, about as often as in the "
        "released rows (7 and 2 of 100). Whoever always says one of them wins at least half of such questions.",
    ),
    "MathCode": Case("AgentR1/MathCode-v0", {}, 20, 0.0, _SANDBOX),
    "MuSiQue": Case("AgentR1/MuSiQue-v0", {}),
    "PaperSearch": Case("AgentR1/PaperSearch-v0", {}),
    "PictureSearch": Case("AgentR1/PictureSearch-v0", {}, 20, 0.0, "20 tasks, since every page is drawn."),
    "TableQA": Case("AgentR1/TableQA-v0", {}, 20, 0.0, _SANDBOX),
    "TwoWikiMultihopQA": Case(
        "AgentR1/TwoWikiMultihopQA-v0",
        {},
        100,
        0.11,
        "A guess may win 11 %: of all 1,000 tasks the answer of 10.1 % is no and of 9.7 % yes, since a fifth of the "
        "questions ask for one of them.",
    ),
    "WebShop": Case("AgentR1/WebShop-v0", {}),
}

# Environments of other packages: what is found is theirs.
FOREIGN = {
    "Gem-Mastermind": Case(
        "AgentR1/Gem-v0",
        {},
        why="Each digit in its place is paid when first guessed, so that any guess may earn a part. The expert reads "
        "the hidden code.",
        package="gem-llm",
    ),
    "Gem-GuessTheNumber": Case(
        "AgentR1/Gem-v0",
        {"env": "game:GuessTheNumber-v0-hard"},
        50,
        why="When the turns are over, a wrong number is paid by how near it is (1 - distance / range): one number, "
        "said again and again, earns most of a solved game.",
        package="gem-llm",
    ),
    "MCP-time": Case(
        "AgentR1/MCP-v0",
        {"command": ["mcp-server-time", "--local-timezone", "UTC"], "data": str(sources.TIMES), "fresh": False},
        20,
        why="Tasks are those of `benchmarks/certificate_sources.py`; the server, which keeps nothing, is asked by all "
        "episodes.",
        package="mcp-server-time",
        source="mcp_time",
    ),
    "OpenEnv-init": Case(
        "AgentR1/OpenEnv-v0",
        {"url": f"http://127.0.0.1:{sources.PORT}", "field": "message", "show": "echoed_message",
         "max_episode_steps": 3},
        4,
        why="4 tasks of 3 steps, since nothing ends an episode. `openenv init` writes this environment, to be replaced "
        "by yours: it pays 0.1 for each character, which its comment says.",
        package="openenv-core",
        source="openenv_init",
    ),
    "RLVE-AdditionTable": Case(
        "AgentR1/RLVE-v0",
        {},
        50,
        why="At level 0 there are 6 problems, and all are in each split; `level` makes more.",
        package="rlve-gym",
    ),
    "ReasoningGym-chain_sum": Case(
        "AgentR1/ReasoningGym-v0",
        {},
        why="Seeds are drawn by themselves, and there are few short sums: some are in two splits.",
        package="reasoning-gym",
    ),
    "ScienceWorld-lifespans": Case(
        "AgentR1/ScienceWorld-v0",
        {"families": ["lifespan-longest-lived", "lifespan-shortest-lived"]},
        2,
        why="2 tasks of two families whose tasks are loaded in a moment; a hundred of the others take an hour.",
        package="scienceworld",
    ),
    "SkyRLGym-aime": Case("AgentR1/SkyRLGym-v0", {"env": "aime"}, package="skyrl-gym"),
    "SkyRLGym-gsm8k": Case("AgentR1/SkyRLGym-v0", {}, package="skyrl-gym"),
    "SkyRLGym-gsm8k_multi_turn": Case(
        "AgentR1/SkyRLGym-v0",
        {"env": "gsm8k_multi_turn"},
        why="A wrong number after #### is paid in every turn, 0.2 over five turns; as its source says.",
        package="skyrl-gym",
    ),
    "TextArena-GuessTheNumber": Case(
        "AgentR1/TextArena-v0",
        {"env": "GuessTheNumber-v0"},
        40,
        why="When the turns are over, a wrong number is paid by how near it is, after an invalid move too.",
        package="textarena",
    ),
    "TextArena-Mastermind": Case(
        "AgentR1/TextArena-v0",
        {"env": "Mastermind-v0"},
        20,
        why="A game that ends with invalid moves is paid for the digits that the last guess has in place: the example "
        "of the rules, said again and again, earns part of a solved game.",
        package="textarena",
    ),
    "TextWorld-treasure_hunter": Case(
        "AgentR1/TextWorld-v0",
        {"level": 1},
        6,
        why="6 tasks, since each game is made in seconds. The shortest quests of all are those of level 1, so that "
        "actions at random often end them.",
        package="textworld",
    ),
    "Verifiers-chain_sum": Case(
        "AgentR1/Verifiers-v0",
        {"env": "certificate_sources"},
        60,
        why="The package's class `ReasoningGymEnv`, over sums; `certificate_sources` is in `benchmarks`.",
        package="verifiers",
        expert="sum_in_tags",
    ),
}  # fmt: skip

_HEAD = """\
# Certificates

[`agentr1 audit`](../../docs/writing_an_environment.md#auditing-the-reward) plays policies that should win no more than
by chance.
In this project's environments none does; only variants that are kept as they were released pay for something else.
Tasks are generated ones of the split `test`. A share is that of tasks solved by the best policy of its kind: one that
says nothing, one text for all tasks, copies of a part of the question, random actions. What is found is named by its
kind (`agent_envs.audit.KINDS`); beside this page is a file for each row, with every finding, check and version
(`make certificates`).

| environment | tasks | expert | silent | constant | copies | random | found |
| --- | --- | --- | --- | --- | --- | --- | --- |
"""


_FOREIGN_HEAD = """
## Environments of other packages

This is the same audit of [environments that other packages make](../../docs/environments.md), with their own rewards. A
finding is a fact about the reward, not a verdict on the package: what it pays for what, and what it says of that. To
see one again: `agentr1 audit --env ID --env-kwargs '{"split": "test", ...}' --tasks N`.

| environment | tasks | expert | silent | constant | copies | random | found |
| --- | --- | --- | --- | --- | --- | --- | --- |
"""


def run(names: list[str]) -> None:
    """Audit the named cases, or those without a file."""
    cases = CASES | FOREIGN
    for name in names or [name for name in cases if not (FOLDER / f"{name}.json").exists()]:
        case = cases[name]
        with getattr(sources, case.source)() if case.source else nullcontext():
            found = audit(
                case.env,
                env_kwargs={"split": "test", **case.kwargs},
                tasks=case.tasks,
                chance=case.chance,
                expert=getattr(sources, case.expert) if case.expert else expert_act,
                progress=sys.stderr.isatty(),
            )
        print(f"{found.table()}\n{found.seconds:.0f} s\n", flush=True)
        FOLDER.mkdir(exist_ok=True)
        kept = found.to_dict()
        if case.package:
            kept["versions"][case.package] = metadata.version(case.package)
        write_text(FOLDER / f"{name}.json", json.dumps(kept, indent=1) + "\n")


def page() -> str:
    """Return the page."""
    return _HEAD + _table(CASES) + _FOREIGN_HEAD + _table(FOREIGN)


def _table(cases: Mapping[str, Case]) -> str:
    rows: list[str] = []
    notes: dict[str, list[str]] = {}
    ids = [case.env for case in cases.values()]
    for name, case in cases.items():
        file = FOLDER / f"{name}.json"
        arguments = ", ".join(f"{key}={value!r}" for key, value in case.kwargs.items())
        short = f"`{case.env.partition('/')[2]}`"
        shown = short + (f" with `{arguments}`" if arguments else "")
        if not file.exists():
            rows.append(f"| {shown} | not audited yet | | | | | | |")
            continue
        kept = json.loads(file.read_text(encoding="utf-8"))
        if case.why:
            notes.setdefault(case.why, []).append(shown if ids.count(case.env) > 1 else short)
        if case.package:
            shown += f", {case.package} {kept['versions'][case.package]}"
        shares = [_share(kept["attacks"].get(kind)) for kind in ("silent", "constant", "copy", "random")]
        exploits = sum(KINDS[finding["kind"]].exploit for finding in kept["findings"])
        faults = len(kept["findings"]) - exploits
        found = ", ".join(dict.fromkeys(finding["kind"] for finding in kept["findings"]))
        counts = ((exploits, "exploit"), (faults, "fault"))
        count = ", ".join(f"{number} {what}{'s' * (number != 1)}" for number, what in counts if number)
        expert = "none" if kept["expert"] is None else f"{100 * kept['expert']:.4g} %"
        cells = [shown, str(kept["tasks"]), expert, *shares, "nothing" if kept["passed"] else f"{count}: {found}"]
        rows.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    listed = [f"- {', '.join(names)}: {why}" for why, names in notes.items()]
    return "\n".join(rows) + "\n\n" + "\n".join(listed) + "\n"


def _share(attack: dict[str, Any] | None) -> str:
    return "" if attack is None else f"{100 * attack['solved']:.3g} %"


if __name__ == "__main__":
    if sys.argv[1:2] == ["run"]:
        run(sys.argv[2:])
    elif sys.argv[1:] == ["page"]:
        write_text(PAGE, page())
    else:
        sys.exit(__doc__)
