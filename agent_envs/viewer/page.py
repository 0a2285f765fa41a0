"""Pages for a browser: a template, a style and a script joined, with a policy that lets nothing else run.

A page's Content-Security-Policy names its one script and its one style by their hashes. Text reaches a page as JSON or
as base64 in script elements that are data, and from there as text nodes alone.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import math
from collections.abc import Mapping
from importlib import resources
from typing import Any

DATA = "<!--DATA-->"
"""Where a template takes the data of the page."""

_TITLES = {"view": "Episodes", "play": "Play"}
_SCRIPTS = {
    "view": ("base", "data", "cards", "tokens", "curves", "list", "compare", "view"),
    "play": ("base", "cards", "scenes", "play"),
}


@functools.cache
def template(name: str, *, sources: str) -> str:
    """Return a page without its data, which goes where `DATA` stands.

    Args:
        name: "view" or "play".
        sources: Directives of the policy beyond script and style, such as ``"connect-src 'self'"``.
    """
    style = "\n".join(_asset(f"{part}.css") for part in ("base", name))
    script = '"use strict";\n' + "\n".join(_asset(f"{part}.js") for part in _SCRIPTS[name])
    page = _asset("frame.html")
    hashes = f"script-src '{_digest(script)}'; style-src '{_digest(style)}'"
    policy = f"default-src 'none'; {hashes}; {sources}; base-uri 'none'; form-action 'none'"
    parts = {"POLICY": policy, "TITLE": _TITLES[name], "STYLE": style, "SCRIPT": script}
    for place, text in ({"BODY": _asset(f"{name}.html")} | parts).items():
        before, _, after = page.partition(f"<!--{place}-->")
        page = before + text + after
    return page


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


def _asset(name: str) -> str:
    return resources.files("agent_envs.viewer").joinpath("assets", name).read_text(encoding="utf-8")


def plain_json(value: Any) -> str:
    """Encode a value for a browser, whose JSON has no infinite numbers and no NaN: strings replace them.

    >>> plain_json([1.5, float("inf")])
    '[1.5,"inf"]'
    """
    try:
        return json.dumps(value, separators=(",", ":"), allow_nan=False)
    except ValueError:
        return json.dumps(_finite(value), separators=(",", ":"))


def inert_json(value: Any) -> str:
    r"""Encode a value so that it can stand in a script element that holds data.

    >>> inert_json("</script>")
    '"\\u003c/script>"'
    """
    return plain_json(value).replace("<", "\\u003c")


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(v) for v in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
