"""WebShop: find and buy what an instruction asks for, in a shop with search, pages and options.

    instruction  "i am looking for hand wash maxi dress in wine red, 3x-large plus, and price lower than 90.00 dollars"
    action       "search[hand wash maxi dress]", "click[B0C5OGGZFL]", "click[wine red]", "click[Buy Now]"

Pages, search and reward are those of princeton-nlp/WebShop (Yao et al. 2022), text for text and number for number.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from gymnasium.error import ResetNeeded

from agent_envs.checks import choice, integer, shown
from agent_envs.datasets.paths import data_name
from agent_envs.datasets.webshop.products import Product, released_text
from agent_envs.datasets.webshop.rows import WebShopTask, WebShopTasks, check_split, goals_of, prices_of
from agent_envs.envs.webshop.expert import explore_action, stray_action
from agent_envs.envs.webshop.nouns import check_tagger, open_tagger
from agent_envs.envs.webshop.pages import MODES, page_html, page_text
from agent_envs.envs.webshop.prompt import AGENT_R1, CAPO, FIELDS, SEARCH, webshop_prompt
from agent_envs.envs.webshop.released_shop import FOUND, SITES, ReleasedShop, small_score
from agent_envs.envs.webshop.reward import REWARDS, SUCCESS, purchase_reward, step_reward
from agent_envs.envs.webshop.site import Page, Site, Visit
from agent_envs.errors import ConfigError
from agent_envs.files import write_text
from agent_envs.text import clean_text
from agent_envs.text_env import Outcome, TextEnv

_MOST_PRODUCTS = 100_000  # minutes of work: a record may set it
_MOST_IN_SMALL = 10_000  # its search is in memory
_SMALL = "name the folder of items_shuffle_1000.json and items_ins_v2_1000.json in data"
_LONGEST = 1 << 18  # characters of an observation: descriptions are shown whole, as in the original


class WebShopEnv(TextEnv):
    """Buy what an instruction asks for.

    ## Description
    A web shop. The instruction asks for a kind of product with certain attributes and options, below a price limit. The
    policy searches, opens products, reads their pages, chooses options and buys one product.

    ## Action Space
    One action a step, as the whole text: `search[words]` on any page, or `click[text]` for something on the page. The
    argument may have any case; `search` and `click` are lower case. Any other text leaves the page unchanged. The
    wrapper `AsTool` offers the same actions through the released tool `env_step{command}`. In Agent-R1's shops (`site`)
    the whole action may have any case, and `search`, `click[Buy Now]` and `click[ASIN]` of any product work on every
    page.

    ## Observation Space
    Text: the page after the action.
    - `mode="text"`: the texts of the page, joined by " [SEP] ".
    - `mode="text_rich"`: one text a line, with `[button] text [button_]` or `[clicked button] text [clicked button_]`
      for what can be clicked, after `You have clicked option.`

    The first page is the start page with the instruction. A search finds up to 50 products, 10 a page (Lucene's BM25
    over title, description, first feature and options). Agent-R1's shops have pages of their own, with a line for each
    field, and search all texts of a product: the full one as above, the small one by Okapi's BM25, 10 products at most.

    ## Starting State
    A goal drawn uniformly from the split (the original draws synthetic goals with rare attributes more often), or
    `options={"index": i}`; `options={"goal": g}` plays goal number g of all goals, which must be in the split.

    ## Rewards
    For the purchase; 0 before it (`agent_envs.envs.webshop.reward`):
    - `reward="official"`: in [0, 1], r_type x (attributes matched + options matched + price ok) / (number of them).
      r_type is 1, or 0.5, 0.1 or 0 if the kind of product differs, judged by query, category and nouns of the title.
    - `reward="agentr1"`: 10 if the score is at least 0.999, else 0; and, on the official site, -0.1 for each invalid
      action.

    In Agent-R1's full shop the score is the official reward, but an attribute may stand in any text of the product; in
    the small one it is 0.35 for the goal's product, 0.3 x attributes, 0.25 x options and 0.1 for the price, halved for
    another product.

    ## Episode End
    Terminates with the purchase (`click[Buy Now]`). Truncated after 15 steps; the original has no limit, as with
    `gym.make(..., max_episode_steps=-1)`.

    ## Information
    `task_id`, `split`, `index`, `source`, `goal` (its number among all goals), `anchor` (the page, with the chosen
    options), `invalid_action` (the action was not carried out), `available_actions` (a dict of `has_search_bar` and
    `clickables`, the list of what can be clicked, lower case), `score` (the official reward) and `success` (at least
    0.999), whatever the reward; `reward_components` (the reward by its name), `url` (the page's address in the
    original). At the end `reward_info`: the original's r_type, r_att, r_option, r_price with weights, query_match,
    category_match, title_score.

    ## Arguments
    `gym.make("AgentR1/WebShop-v0", split="train", data="generated", mode="text", reward="official")`
    - `site`: "official", or one of Agent-R1's two shops, "agentr1" (of all products) and "agentr1-small" (of 1,000),
      with the goals and splits of its release (train and test), the pages, rules, search and scores of its service.
    - `split`: "train", "validation" (or "eval"), "test" or "all". Of all goals, the first 500 are test, the next
      1,000 validation, and the rest train; of 1,500 goals or fewer, a sixth is test and a sixth validation.
    - `data`: "generated", "official" (after `agentr1 prepare webshop`) or the path of a folder with the released files
      items_shuffle*.json, items_ins_v2*.json and items_human_ins.json, or webshop_full of Agent-R1's data release.
    - `mode`: "text" or "text_rich".
    - `reward`: "official" or "agentr1".
    - `human_goals`: True for human instructions, False for goals made from attributes and options, None (default) for
      human instructions if the data has them.
    - `products`: number of products in the generated catalogue, 1,000 by default, at most 100,000.
    - `prices`, `goals`: paths of files with prices `{asin: price}` and with goals in order, which replace those drawn
      here. `goals` may be the folder of Agent-R1's data release, small or full, or a file in it, named as its split.
    - `tagger`: finds the nouns of titles: "default", "rule" (a fixed rule that needs no model), "spacy" (the
      original's model en_core_web_sm, the extra `suites`), or "module:function".
    - `show_attributes`: whether item pages have the original's optional button Attributes.
    - `page`: the HTML file to which `render_mode="human"` writes the page and which reloads itself; a temporary file by
      default. `render_mode="html"` returns the page, "ansi" the episode as text.

    ## Data
    Generated: invented brands and products with near-duplicates, 1,000 products and about 10,000 goals. Official: 1.18
    million products and 12,087 human instructions of WebShop (Yao et al. 2022,
    https://github.com/princeton-nlp/WebShop), MIT licence; the texts of listings belong to their owners. Prices within
    ranges and price limits are drawn with a fixed seed; the original draws new ones in each process.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["ansi", "html", "human"], "render_fps": 4}  # type: ignore[misc]

    instructions = (
        "You are shopping. Buy a product that is what the instruction asks for. Answer with one action, nothing else: "
        "search[words] looks for products, click[text] clicks on something of the page: a product's id, an option's "
        "value, or a button such as Next >, < Prev, Description, Features, Back to Search. Choose the options that are "
        "asked for before click[Buy Now], which ends the task."
    )

    reset_options: ClassVar[tuple[str, ...]] = ("index", "goal")
    prompt_templates = {"webshop": webshop_prompt, "capo": CAPO, "agent-r1": AGENT_R1}  # noqa: RUF012
    prompt_fields = FIELDS
    harmless_arguments = ("page",)
    later_arguments = ("site",)
    recorded_arguments = ("site", "mode", "reward", "human_goals", "products", "show_attributes")

    def __init__(
        self,
        *,
        mode: str = "text",
        reward: str = "official",
        site: str = "official",
        human_goals: bool | None = None,
        products: int | None = None,
        prices: str | os.PathLike[str] | None = None,
        goals: str | os.PathLike[str] | None = None,
        tagger: str = "default",
        show_attributes: bool = False,
        page: str | os.PathLike[str] | None = None,
        **kwargs: Any,
    ) -> None:
        self.mode = choice("mode", mode, MODES)
        self.reward = choice("reward", reward, REWARDS)
        self.shop = choice("site", site, SITES)
        if site != "official" and (mode != "text" or show_attributes or prices is not None):
            raise ConfigError(
                f"mode=, show_attributes= and prices= are of the official site; leave them out for site={site!r}"
            )
        self.human_goals = choice("human_goals", human_goals, (True, False, None))
        kwargs.setdefault("max_observation_length", _LONGEST)
        super().__init__(**kwargs)
        check_split(self.split)
        data = data_name(self.data)
        if products is not None and data != "generated":
            raise ConfigError(f"products= applies only to data='generated'; leave it out for data={data!r}")
        check_tagger(tagger)
        if data != "generated":
            from agent_envs.datasets.webshop.catalog import check_catalog

            check_catalog(data, _SMALL if site == "agentr1-small" else "")
        self.products = None if products is None else integer("products", products, minimum=1, maximum=_MOST_PRODUCTS)
        self.prices = _path("prices", prices)
        self.goals = _path("goals", goals)
        self.tagger = tagger
        self.show_attributes = show_attributes
        page = _path("page", page)
        self.page_file = None if page is None else Path(page)
        self._page_folder: tempfile.TemporaryDirectory[str] | None = None
        self._site: Site | None = None
        self._page: tuple[Visit, Page] | None = None  # the open page, and whose it is

    def open_tasks(self) -> WebShopTasks:
        from agent_envs.datasets.webshop.catalog import open_catalog, released_search

        catalog = open_catalog(self.data, products=self.products)
        drawn = prices_of(self.prices) if self.prices is not None else {}
        nouns = open_tagger(self.tagger)

        def buy(visit: Visit, product: Product) -> tuple[float, dict[str, Any]]:
            goal = tasks.goals[int(visit.name)]
            if self.shop == "agentr1-small":
                return small_score(product, goal, visit)
            if self.shop == "agentr1":  # the official score, but an attribute may be in any text
                return purchase_reward(
                    product, goal, min(product.pricing), visit.options, nouns, released_text(product)
                )
            price = drawn.get(product.asin)
            price = catalog.price(product.asin) if price is None else price
            return purchase_reward(product, goal, price, visit.options, nouns)

        goals, bounds = goals_of(catalog, self.human_goals, self.goals, self.data, self.shop)
        tasks = WebShopTasks(self.data, self.split, goals, bounds)
        tasks.documents = len(catalog)
        if self.shop == "agentr1-small" and len(catalog) > _MOST_IN_SMALL:
            raise ConfigError(
                f"site='agentr1-small' is the shop of 1,000 products, but {self.data!r} has {len(catalog):,}: {_SMALL}"
            )
        if self.shop == "official":
            self._site = Site(catalog, buy, show_attributes=self.show_attributes)
        else:
            self._site = ReleasedShop(catalog, buy, released_search(catalog, self.shop), FOUND[self.shop])
        return tasks

    def __getstate__(self) -> dict[str, Any]:
        opened = {"_site": None, "_page": None, "_page_folder": None}
        temporary = self._page_folder is not None
        return super().__getstate__() | opened | ({"page_file": None} if temporary else {})

    def _chosen_index(self, options: dict[str, Any], count: int) -> int | None:
        number = options.get("goal")
        if number is None:
            return super()._chosen_index(options, count)
        if options.get("index") is not None:
            raise ConfigError("reset options may contain 'index' or 'goal', not both")
        return self.tasks.index_of(integer("options['goal']", number))  # type: ignore[attr-defined]

    @property
    def site(self) -> Site:
        """The shop. Raises ResetNeeded before the first reset."""
        if self._site is None:
            raise ResetNeeded("the shop is not open yet: call reset() first")
        return self._site

    @property
    def page(self) -> Page:
        """The open page."""
        if self._page is None or self._page[0] is not self.state:
            self._page = self.state, self.site.page(self.state)
        return self._page[1]

    def begin(self, task: WebShopTask) -> tuple[str, Visit]:
        self.state = visit = self.site.start(str(task.number), task.goal.instruction)
        return page_text(self.page, visit, self.site.layout or self.mode), visit

    def act(self, action: str) -> Outcome:
        visit: Visit = self.state
        valid, bought = self.site.act(visit, action, self.page, self._sample)
        if valid:
            self._page = None
        score = visit.reward if bought else 0.0
        reward = step_reward(self.reward, score, valid=valid or self.shop != "official")
        return Outcome(
            page_text(self.page, visit, self.site.layout or self.mode),
            reward=reward,
            terminated=bought,
            invalid_action=not valid,
            score=score,
            success=score >= SUCCESS,
            components={self.reward: reward},
            extra={"reward_info": dict(visit.reward_info)} if bought else {},
        )

    def expert_action(self) -> str | None:
        """Return the next action of a shopper who knows the pages read, or in Agent-R1's shops the goal's product."""
        visit: Visit = self.state
        if visit is None or visit.view == "done":
            return None
        if isinstance(self.site, ReleasedShop):
            return self.site.expert_action(visit, self.task.goal)
        return explore_action(self.page, self._transcript, visit.instruction)

    def demo_action(self, rng: np.random.Generator, noise: float) -> str | None:
        """Return the shopper's action or, with probability `noise`, another click or a search for fewer words."""
        right = self.expert_action()
        if right is None or rng.random() >= noise:
            return right
        return stray_action(self.page, right, rng)

    def _sample(self, count: int) -> Iterable[int]:
        size = len(self.site.catalog)
        return map(int, self.np_random.choice(size, size=min(count, size), replace=False))

    def anchor(self) -> str:
        visit: Visit = self.state
        text = page_text(self.page, visit, self.site.layout or "text")
        return clean_text("\n".join([text, *(f"{name}: {value}" for name, value in visit.options.items())]))

    def available_actions(self) -> list[str]:
        search = [SEARCH] if self.page.search_bar else []
        return [*search, *(f"click[{name}]" for name in self.page.clickables if not (name == "search" and search))]

    def prompt_state(self) -> dict[str, Any]:
        return {"instruction": self.task.goal.instruction}

    def info(self, outcome: Outcome) -> dict[str, Any]:
        visit: Visit = self.state
        actions = {"has_search_bar": self.page.search_bar, "clickables": list(self.page.clickables)}
        return super().info(outcome) | {"goal": int(visit.name), "url": visit.url, "available_actions": actions}

    def render(self) -> str | None:
        """Return the page as HTML in mode "html"; in mode "human" write it to a file and print its name once."""
        if self.render_mode not in ("html", "human"):
            return super().render()
        if self.state is None:
            raise ResetNeeded("there is no page yet: call reset() before render()")
        visit: Visit = self.state
        product = self.site.catalog.product(visit.asin) if visit.asin else None
        actions = self._transcript[1::2]
        document = page_html(self.page, visit, product, f"> {actions[-1]}" if actions else "")
        if self.render_mode == "html":
            return document
        if self.page_file is None:
            self._page_folder = tempfile.TemporaryDirectory(prefix="agent_envs-webshop-", ignore_cleanup_errors=True)
            self.page_file = Path(self._page_folder.name, "page.html")
        try:
            first = not self.page_file.exists()
            write_text(self.page_file, document)
        except (OSError, ValueError) as e:  # ValueError: a NUL in the name
            reason = getattr(e, "strerror", e)
            raise ConfigError(f"the page cannot be written to {shown(str(self.page_file))}: {reason}") from e
        if first:
            sys.stdout.write(f"the page is shown in {self.page_file.resolve().as_uri()}\n")
        return None

    def close(self) -> None:
        """Remove the temporary page of mode "human"."""
        if self._page_folder is not None:
            self._page_folder.cleanup()
            self._page_folder = self.page_file = None
        super().close()


def _path(name: str, value: object) -> str | None:
    """Return the path that an argument names; raise ConfigError if it is not a path."""
    path = os.fspath(value) if isinstance(value, os.PathLike) else value
    if path is None or (isinstance(path, str) and path):
        return path
    raise ConfigError(f"{name} must be a path, got {shown(value)}")
