"""Writes WebShop's pages as text, in the original's two modes, and as HTML for people."""

from __future__ import annotations

from collections.abc import Callable
from html import escape

from agent_envs.datasets.webshop.products import Product
from agent_envs.envs.webshop.site import Page, Visit

__all__ = ["MODES", "page_html", "page_text"]

_SEPARATOR = " [SEP] "


def _plain(page: Page, visit: Visit) -> str:
    return _SEPARATOR.join([text.strip() for _, text in page.texts])


def _rich(page: Page, visit: Visit) -> str:
    lines: list[str] = []
    clicked: list[str] = []
    for kind, text in page.texts:
        if kind == "button":
            lines.append(f"[button] {text} [button_]")
        elif kind == "option":
            # Like the original, look for the quoted value in the page's address, where JSON escapes quotes and accents.
            if f'"{text}"' in visit.url:
                lines.append(f"  [clicked button] {text} [clicked button_]")
                clicked.append(f"You have clicked {text}.")
            else:
                lines.append(f"  [button] {text} [button_]")
        elif kind == "product":
            mark = "clicked button" if text in visit.visited else "button"
            lines.append(f"\n[{mark}] {text} [{mark}_]")
        else:
            lines.append(text)
    return "\n".join([*reversed(clicked), *lines, ""])


MODES: dict[str, Callable[[Page, Visit], str]] = {"text": _plain, "text_rich": _rich}
"""The writer of each observation mode."""


def page_text(page: Page, visit: Visit, mode: str) -> str:
    """Write a page as an observation.

    >>> from agent_envs.envs.webshop.site import Text
    >>> page = Page((Text("text", "WebShop"), Text("button", "Search")), {"search": ""}, True)
    >>> page_text(page, Visit("0", "buy a lamp"), "text"), page_text(page, Visit("0", "buy a lamp"), "text_rich")
    ('WebShop [SEP] Search', 'WebShop\\n[button] Search [button_]\\n')
    """
    return MODES[mode](page, visit)


_STYLE = """
body { font: 16px/1.5 sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em; color: #222 }
h1 { font-size: 1.2em } .button { display: inline-block; border: 1px solid #888; border-radius: 4px; padding: 0 .6em;
margin: .15em } .chosen { background: #234; color: #fff } .product { margin-top: 1em; font-weight: bold }
img { max-width: 12em; max-height: 12em; display: block } footer { color: #666; margin-top: 2em; font-size: .8em }
"""


def page_html(page: Page, visit: Visit, product: Product | None = None, note: str = "") -> str:
    """Write a page as an HTML document, with all text escaped.

    Args:
        page: The page.
        visit: The visit to the shop.
        product: The page's product, for its picture.
        note: A line at the bottom, such as the last action.
    """
    body = []
    image = product.image if product else ""
    if image.startswith(("https://", "http://")):
        body.append(f'<img src="{_escaped(image)}" alt="" referrerpolicy="no-referrer">')
    chosen = set(visit.options.values()) if visit.view == "item" else set()
    for kind, text in page.texts:
        shown = _escaped(text)
        if kind in ("button", "option"):
            mark = "button chosen" if kind == "option" and text in chosen else "button"
            body.append(f'<span class="{mark}">{shown}</span>')
        elif kind == "product":
            mark = " (seen)" if text in visit.visited else ""
            body.append(f'<div class="product">{shown}{mark}</div>')
        else:
            body.append(f"<div>{shown}</div>")
    body.append(f"<footer>{_escaped(note)}</footer>" if note else "")
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><meta http-equiv="refresh" content="2">'
        f"<title>WebShop</title><style>{_STYLE}</style></head>\n<body><h1>{_escaped(visit.instruction)}</h1>\n"
        + "\n".join(body)
        + "\n</body></html>\n"
    )


def _escaped(text: str) -> str:
    """Escape a text for HTML, with control characters as backslash escapes."""
    printable = "".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in text)
    return escape(printable, quote=True)
