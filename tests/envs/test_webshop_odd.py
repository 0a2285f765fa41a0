"""WebShop on products made of odd pieces: markup, white space, control characters, halves of characters, button names.

1. A page is what a parser of HTML reads from the same page written as HTML, which is how the original makes it.
2. Whatever is clicked and searched on such products, pages are observations, and what is recorded can be written.
"""

import json
import random
from collections.abc import Iterable, Iterator
from html import escape
from typing import Any

import pytest

from agent_envs.datasets.webshop.products import Product, product_from_row
from agent_envs.envs.webshop.env import WebShopEnv
from agent_envs.envs.webshop.pages import page_text
from agent_envs.envs.webshop.site import Page, Site, Visit

PIECES = (
    *("red", "Blue ", " ", "  ", "\n", "\t", "\r\n", "\f", "\v", "\xa0", "\u2028", "\u3000", "\x00", "\x1b", "\x85"),
    *("&amp;", "&lt;", "&nbsp", "&#10;", "<b>", "</p>", "<script>", "-->", "]]>", "<!--"),
    *("'", '"', "\\", "/", "[", "]"),
    *("é", "灯", "😀", "İ", "ß", "\ufeff", "\ud800", '5"', "$", "%", "+", "{{x}}", "buy now", "search", "description"),
    *("next >", "< prev", "back to search", "item_page", "done", "search_results"),
)


class Pieces:
    """Random texts and products."""

    def __init__(self) -> None:
        self.seed = random.randrange(1 << 32)  # said when a test fails
        self.rng = random.Random(self.seed)

    def text(self, most: int = 4) -> str:
        return "".join(self.rng.choice(PIECES) for _ in range(self.rng.randrange(most + 1)))

    def row(self, number: int) -> dict[str, Any]:
        some = self.rng.randrange
        options = {f"C{self.text(2)}": [{"value": self.text(3)} for _ in range(some(4))] for _ in range(some(3))}
        return {
            "asin": f"B00000000{number}", "name": self.text(), "full_description": self.text(6), "query": self.text(2),
            "category": self.text(1), "product_category": self.text(3), "customization_options": options,
            "small_description": [self.text() for _ in range(some(4))],
            "pricing": self.rng.choice(["", "$5", "$1 to $9", None, "$"]),
        }  # fmt: skip


class Shelf:
    """A catalogue whose every search finds everything."""

    def __init__(self, products: Iterable[Product]) -> None:
        self.all = {product.asin: product for product in products}

    def product(self, asin: str) -> Product | None:
        return self.all.get(asin)

    def search(self, query: str, k: int) -> list[str]:
        return list(self.all)

    def where(self, key: str, value: str) -> list[str]:
        return list(self.all)


def as_html(page: Page) -> Iterator[str]:
    """Lines of a page in HTML, each text in a tag that says what it is."""
    for kind, text in page.texts:
        said = escape(text)
        if kind == "button":
            yield f'<div>\n<button class="btn" type="submit">{said}</button>\n</div>'
        elif kind == "option":
            yield f'<input type="radio" value="{said}">\n<label>{said}</label>'
        else:
            yield f'<h4><a class="product-link" href="#">{said}</a></h4>' if kind == "product" else f"<h4>{said}</h4>"


def read(html: str, session: Visit) -> tuple[str, str, list[str]]:
    """What the original makes of a page: both kinds of observation, and what can be clicked."""
    bs4 = pytest.importorskip("bs4", reason="Beautiful Soup reads the original's pages; it is in the extra dev")
    soup = bs4.BeautifulSoup(html, "html.parser")
    texts = [text for text in soup.find_all(string=True) if text != "\n"]
    rich: list[str] = []
    clicked: list[str] = []
    for text in texts:
        chosen = f'"{text}"' in session.url if text.parent.name == "label" else str(text) in session.visited
        mark = "clicked button" if chosen else "button"
        if text.parent.name == "button":
            rich.append(f"[button] {text} [button_]")
        elif text.parent.name == "label":
            rich.append(f"  [{mark}] {text} [{mark}_]")
            clicked[:0] = [f"You have clicked {text}."] * chosen
        else:
            rich.append(f"\n[{mark}] {text} [{mark}_]" if text.parent.get("class") == ["product-link"] else str(text))
    named = [tag.get_text().lower() for tag in [*soup.find_all(class_="btn"), *soup.find_all(class_="product-link")]]
    named += [tag["value"] for tag in soup.select('input[type="radio"]')]
    return (
        " [SEP] ".join(text.strip() for text in texts),
        "".join(f"{line}\n" for line in [*clicked, *rich]),
        list(dict.fromkeys(named)),
    )


def test_pages_are_what_a_parser_of_html_reads():
    pieces = Pieces()
    for _ in range(60):
        products = [product_from_row(pieces.row(number)) for number in range(2)]
        site = Site(Shelf(filter(None, products)), lambda session, product: (0.0, {}))  # type: ignore[arg-type]
        session = site.start("0", pieces.text() + "a lamp")
        site.search(session, pieces.text().lower() + "lamp", lambda count: [])
        for click in ("", "b000000000", "", "", "features", "< prev", "description"):
            page = site.page(session)
            values = [text for text, kind in page.clickables.items() if kind.startswith(".")]
            chosen = click or (pieces.rng.choice(values) if values else "")
            if chosen in page.clickables and chosen not in ("search", "buy now", "next >", "back to search"):
                site.click(session, chosen, page)
                page = site.page(session)
            got = page_text(page, session, "text"), page_text(page, session, "text_rich")
            *shown, clickables = read("\n".join(as_html(page)), session)
            assert list(got) == shown, (pieces.seed, click)
            if not {text for text, kind in page.clickables.items() if kind.startswith(".") and not text.strip()}:
                assert list(page.clickables) == clickables, (pieces.seed, click)


def test_anything_may_be_clicked_and_searched(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT_ENVS_DATA", str(tmp_path / "cache"))
    pieces = Pieces()
    rng = pieces.rng
    for shop in range(8):
        folder = tmp_path / str(shop)
        folder.mkdir()
        rows = [pieces.row(number) for number in range(5)]
        rows.append(dict(rows[0], asin="B" + pieces.text(2)[:5]))
        asked = {"instruction": pieces.text(6), "instruction_attributes": [pieces.text(2)], "instruction_options": []}
        entry = {"attributes": [pieces.text(2)], "instruction": pieces.text(), "instruction_attributes": ["red"]}
        for name, content in (
            ("shuffle", rows),
            ("ins_v2", {row["asin"]: entry for row in rows}),
            ("human_ins", {row["asin"]: [asked] for row in rows}),
        ):
            (folder / f"items_{name}.json").write_text(json.dumps(content))
        mode = ("text", "text_rich")[shop % 2]
        env = WebShopEnv(data=folder, split="all", mode=mode, render_mode=("html", "ansi")[shop % 2])
        for _ in range(4):
            _, info = env.reset(seed=rng.randrange(1000))
            for _ in range(25):
                clickables = info["available_actions"]["clickables"]
                action = rng.choice(
                    [env.expert_action() or "", f"search[{pieces.text(3)}]", f"click[{rng.choice(clickables)}]"]
                )
                observation, reward, terminated, _, info = env.step(action)
                assert env.observation_space.contains(observation), (pieces.seed, action)
                written = [observation, info["anchor"], env.render() or "", json.dumps(info)]
                assert all(text.encode() is not None for text in written), (pieces.seed, action)
                if terminated:
                    assert 0 <= reward <= 1 and "reward_info" in info
                    break
