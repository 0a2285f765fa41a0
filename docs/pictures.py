"""The pictures that `python docs/generate.py` draws: episodes, the curve of training, badges.

They are SVG by hand: no font, script or picture is loaded, and they have colours for light and dark.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

_SANS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', sans-serif"
_MONO = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
_STYLE = f"""<style>
.page{{fill:#ffffff;stroke:#d5dae3}} .env{{fill:#eaf1fb;stroke:#b9cdea}} .agent{{fill:#e9f6ec;stroke:#b3d9bd}}
.line{{stroke:#1f5fa8;fill:none;stroke-width:2.5}} .band{{stroke:#1f5fa8;stroke-width:1.5}} .dot{{fill:#1f5fa8}}
.grid{{stroke:#d5dae3;stroke-width:1}} .good{{fill:#1d7a3c}} .chip{{fill:#334155}} .fact{{fill:#1f5fa8}}
text{{font:13px {_SANS};fill:#1b2434}} .mono{{font:12px {_MONO}}} .who{{font:600 11px {_SANS};fill:#5b6678}}
.title{{font:600 14px {_SANS}}} .small{{font:11.5px {_SANS};fill:#5b6678}} .white{{fill:#ffffff;font:600 11px {_SANS}}}
@media (prefers-color-scheme: dark) {{
.page{{fill:#171b24;stroke:#39414f}} .env{{fill:#1c2a40;stroke:#33507d}} .agent{{fill:#17301f;stroke:#2f6340}}
.line,.band{{stroke:#7fb2f0}} .dot{{fill:#7fb2f0}} .grid{{stroke:#39414f}} .good{{fill:#2f9e57}}
text{{fill:#e3e7ee}} .who,.small{{fill:#9aa5b5}} .white{{fill:#ffffff}}
}}
</style>"""
_WIDTH, _COLUMNS, _ROW, _MOST = 460, 50, 17, 10
"""Of an episode: narrow enough to be read on a phone; and a bubble's characters in a line, their height, its lines."""


class Bubble(NamedTuple):
    """Something that was said in an episode."""

    who: str
    """`environment` or `agent`."""
    text: str


class Point(NamedTuple):
    """A point of a curve, with its interval of 95 %."""

    step: int
    value: float
    low: float
    high: float


class Chart(NamedTuple):
    """A small chart: a line over training steps for each seed."""

    title: str
    seeds: Sequence[Sequence[tuple[int, float]]]
    """The (step, value) pairs of each."""


def episode(title: str, said: Sequence[Bubble], end: str) -> str:
    """Draw an episode as a conversation; `end` says how it ended, such as "reward 1"."""
    shown = list(said)
    if len(shown) > 8:
        left_out = len(shown) - 7
        shown = [*shown[:4], Bubble("", f"{left_out} more"), *shown[-3:]]
    y, parts = 52, []
    for bubble in shown:
        if not bubble.who:
            place = f'x="{_WIDTH // 2}" y="{y + 8}" text-anchor="middle"'
            parts.append(f'<text {place} class="small">· · · {bubble.text} · · ·</text>')
            y += 26
            continue
        lines = _wrapped(bubble.text)
        width = max(max(map(len, lines)), 14) * 7.3 + 26
        height = len(lines) * _ROW + 16
        agent = bubble.who == "agent"
        x = _WIDTH - 14 - width if agent else 14
        anchor, tx = ("end", _WIDTH - 18) if agent else ("start", 18)
        parts.append(f'<text x="{tx}" y="{y}" text-anchor="{anchor}" class="who">{bubble.who}</text>')
        parts.append(
            f'<rect x="{x:.0f}" y="{y + 6}" width="{width:.0f}" height="{height}" rx="8" '
            f'class="{"agent" if agent else "env"}"/>'
        )
        for n, line in enumerate(lines):
            place = f'x="{x + 13:.0f}" y="{y + 26 + n * _ROW}"'
            parts.append(f'<text {place} class="mono" xml:space="preserve">{_safe(line)}</text>')
        y += height + 26
    chip = len(end) * 6.6 + 24
    parts.append(f'<rect x="14" y="{y - 8}" width="{chip:.0f}" height="24" rx="12" class="good"/>')
    parts.append(f'<text x="{14 + chip / 2:.0f}" y="{y + 8}" text-anchor="middle" class="white">{_safe(end)}</text>')
    head = f'<text x="18" y="30" class="title">{_safe(title)}</text>'
    about = "; ".join(f"{bubble.who}: {bubble.text}" for bubble in said)
    return _picture(_WIDTH, y + 32, f"An episode of {title}", about[:600], [head, *parts])


def curve(title: str, caption: str, seeds: Sequence[Sequence[Point]], reference: float | None = None) -> str:
    """Draw success over training steps, a line for each seed; `reference` is a dashed line: the teachers'."""
    last = max(point.step for points in seeds for point in points)
    left, top, width, height = 64, 52, 726, 210

    def x(step: float) -> float:
        return left + width * step / max(last, 1)

    def y(value: float) -> float:
        return top + height * (1 - value)

    parts = [f'<text x="20" y="30" class="title">{_safe(title)}</text>']
    for tick in (0, 0.25, 0.5, 0.75, 1):
        parts.append(f'<line x1="{left}" x2="{left + width}" y1="{y(tick):.1f}" y2="{y(tick):.1f}" class="grid"/>')
        parts.append(f'<text x="{left - 8}" y="{y(tick) + 4:.1f}" text-anchor="end" class="small">{tick:g}</text>')
    for tick in sorted({point.step for points in seeds for point in points}):
        parts.append(
            f'<text x="{x(tick):.1f}" y="{top + height + 18}" text-anchor="middle" class="small">{tick}</text>'
        )
    parts.append(
        f'<text x="{left + width / 2}" y="{top + height + 38}" text-anchor="middle" class="small">training step</text>'
    )
    if reference is not None:
        parts.append(
            f'<line x1="{left}" x2="{left + width}" y1="{y(reference):.1f}" y2="{y(reference):.1f}" class="band" '
            'stroke-dasharray="2 5"/>'
        )
        parts.append(
            f'<text x="{left + width - 4}" y="{y(reference) + 15:.1f}" text-anchor="end" class="small">'
            f"its noisy teachers: {reference:.2f}</text>"
        )
    for points in seeds:
        path = " L".join(f"{x(p.step):.1f} {y(p.value):.1f}" for p in points)
        parts.append(f'<path d="M{path}" class="line"/>')
        for p in points:
            ends = f'x1="{x(p.step):.1f}" x2="{x(p.step):.1f}" y1="{y(p.low):.1f}" y2="{y(p.high):.1f}"'
            parts.append(f'<line {ends} class="band"/>')
            parts.append(f'<circle cx="{x(p.step):.1f}" cy="{y(p.value):.1f}" r="4.5" class="dot"/>')
    for point, anchor, dx in ((seeds[0][0], "start", 12), (seeds[0][-1], "end", -10)):
        parts.append(
            f'<text x="{x(point.step) + dx:.1f}" y="{y(point.value) + 24:.1f}" text-anchor="{anchor}" class="title">'
            f"{point.value:.2f}</text>"
        )
    parts.append(f'<text x="20" y="{top + height + 60}" class="small">{_safe(caption)}</text>')
    return _picture(820, top + height + 76, title, caption, parts)


def charts(title: str, caption: str, rows: Sequence[Sequence[Chart]]) -> str:
    """Draw rows of small charts, each from 0 up to a round number above its values."""
    parts = [f'<text x="20" y="30" class="title">{_safe(title)}</text>']
    for row, column, chart in ((i, k, chart) for i, line in enumerate(rows) for k, chart in enumerate(line)):
        left, top, width, height = 64 + 262 * column, 76 + 158 * row, 196, 92
        steps = [step for points in chart.seeds for step, _ in points]
        most = _round_above(max(value for points in chart.seeds for _, value in points))
        last = max(max(steps), 1)
        parts.append(f'<text x="{left}" y="{top - 12}" class="who">{_safe(chart.title)}</text>')
        for tick in (0, most / 2, most):
            y = top + height * (1 - tick / most)
            parts.append(f'<line x1="{left}" x2="{left + width}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>')
            parts.append(f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end" class="small">{tick:g}</text>')
        for step in sorted(set(steps)):
            x = left + width * step / last
            parts.append(f'<text x="{x:.1f}" y="{top + height + 18}" text-anchor="middle" class="small">{step}</text>')
        for points in chart.seeds:
            places = [(left + width * step / last, top + height * (1 - value / most)) for step, value in points]
            parts.append(f'<path d="M{" L".join(f"{x:.1f} {y:.1f}" for x, y in places)}" class="line"/>')
            parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" class="dot"/>' for x, y in places]
    bottom = 76 + 158 * len(rows)
    parts.append(f'<text x="20" y="{bottom - 8}" class="small">{_safe(caption)}</text>')
    return _picture(820, bottom + 10, title, caption, parts)


def _round_above(value: float) -> float:
    """Return 1, 2, 4, 5 or 10 times a power of ten: the least that is not below a value, 1 for none above 0.

    >>> [_round_above(value) for value in (0.43, 8.9, 234, 0)]
    [0.5, 10.0, 400.0, 1.0]
    """
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(factor * power for factor in (1, 2, 4, 5, 10) if factor * power >= value * (1 - 1e-9))


def badges(facts: Sequence[tuple[str, str]]) -> str:
    """Draw facts as badges in a row: what, and how it is."""
    x, parts = 0.0, []
    for name, value in facts:
        widths = [len(text) * 6.5 + 16 for text in (name, value)]
        for text, width, kind in zip((name, value), widths, ("chip", "fact"), strict=True):
            parts.append(f'<rect x="{x:.0f}" y="0" width="{width:.0f}" height="22" class="{kind}"/>')
            parts.append(
                f'<text x="{x + width / 2:.0f}" y="15" text-anchor="middle" class="white">{_safe(text)}</text>'
            )
            x += width
        x += 8
    about = "; ".join(f"{name}: {value}" for name, value in facts)
    return _picture(round(x - 8), 22, "Facts", about, parts, framed=False)


def _wrapped(text: str) -> list[str]:
    """Return a text's lines, none longer than a bubble, with the rest left out where there are too many."""
    lines = [part for line in text.split("\n") for part in textwrap.wrap(line, _COLUMNS) or [""]]
    return lines if len(lines) <= _MOST else [*lines[: _MOST - 1], "..."]


def _safe(text: str) -> str:
    """Return a text as XML takes it: nothing in it is markup or a control character."""
    return escape("".join(c if c.isprintable() else " " for c in text))


def _picture(width: int, height: int, title: str, about: str, parts: Sequence[str], *, framed: bool = True) -> str:
    page = f'<rect x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="10" class="page"/>'
    body = "\n".join([*([page] if framed else []), *parts])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-labelledby="t d">\n<title id="t">{_safe(title)}</title>\n'
        f'<desc id="d">{_safe(about)}</desc>\n'
        f"{_STYLE}\n{body}\n</svg>\n"
    )
