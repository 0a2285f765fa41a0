"""Writes WebShop's pages as text, in the original's two modes, and as HTML for people."""

from __future__ import annotations

from html import escape

from agent_envs.datasets.webshop.products import Product
from agent_envs.envs.webshop.site import Page, Visit
from agent_envs.text import plain

MODES = ("text", "text_rich")
_INDENT = {"button": "", "option": "  ", "product": "\n"}  # text_rich


def page_text(page: Page, visit: Visit, mode: str) -> str:
    """Write a page as an observation in one of MODES, or as its lines."""
    if mode != "text_rich":
        return ("\n" if mode == "lines" else " [SEP] ").join([text.strip() for _, text in page.texts])
    lines: list[str] = []
    clicked: list[str] = []
    for kind, text in page.texts:
        if kind == "text":
            lines.append(text)
            continue
        # Like the original, look for the quoted value in the page's address, where JSON escapes quotes and accents.
        chosen = text in visit.visited if kind == "product" else kind == "option" and f'"{text}"' in visit.url
        mark = "clicked button" if chosen else "button"
        lines.append(f"{_INDENT[kind]}[{mark}] {text} [{mark}_]")
        if chosen and kind == "option":
            clicked.append(f"You have clicked {text}.")
    return "\n".join([*reversed(clicked), *lines, ""])


_STYLE = """
body { font: 16px/1.5 sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em; color: #222 }
h1 { font-size: 1.2em } .button { display: inline-block; border: 1px solid #888; border-radius: 4px; padding: 0 .6em;
margin: .15em } .chosen { background: #234; color: #fff } .product { margin-top: 1em; font-weight: bold }
img { max-width: 12em; max-height: 12em; display: block } footer { color: #666; margin-top: 2em; font-size: .8em }
"""


def page_html(page: Page, visit: Visit, product: Product | None = None, note: str = "") -> str:
    """Write a page as an HTML document, with all text escaped: the product's picture, the texts and a note below."""
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
    return escape(plain(text))
