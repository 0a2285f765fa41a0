"""The tables of a released shop in an episode, and what the tools of both domains share."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from typing import Any

from agent_envs.errors import ToolError
from agent_envs.tools.calculator import evaluate

Used = dict[str, dict[str, Any]]
"""The rows that an episode has touched, by table and id."""
HAND_OVER = "transfer_to_human_agents"
"""The tool that ends a conversation."""


class Tables:
    """The tables as an episode has changed them. A row is copied when it is first asked for, so the shop stays.

    Args:
        shop: The rows of each table by id.
        used: The rows that the episode has touched; it grows.
    """

    def __init__(self, shop: Mapping[str, Mapping[str, Any]], used: Used) -> None:
        self.shop, self.used = shop, used

    def row(self, table: str, key: str) -> Any:
        """Return a row to read or change."""
        used = self.used.setdefault(table, {})
        if key not in used:
            if key not in self.shop[table]:
                raise ToolError(f"{table[:-1]} not found")
            used[key] = copy.deepcopy(self.shop[table][key])
        return used[key]

    def rows(self, table: str) -> dict[str, Any]:
        """Return all rows of a table, to read."""
        return {**self.shop[table], **self.used.get(table, {})}

    def changes(self) -> dict[tuple[str, str], str]:
        """Return the rows that are not as they were, as JSON, by table and id."""
        changed = {}
        for table, rows in self.used.items():
            for key, row in rows.items():
                now = json.dumps(row, sort_keys=True)
                if now != json.dumps(self.shop[table].get(key), sort_keys=True):
                    changed[table, key] = now
        return changed


class Shop(Tables):
    """The tables with what a policy may call: the public methods. What they return is the result, as JSON."""

    def calculate(self, *, expression: str) -> str:
        """Return a value as a decimal of at most two digits."""
        if set(expression) - set("0123456789+-*/(). "):
            raise ToolError("invalid characters in expression")
        return str(round(float(evaluate(expression)), 2))

    def get_user_details(self, *, user_id: str) -> Any:
        """Return a customer."""
        return self.row("users", user_id)

    def think(self, *, thought: str) -> str:
        """Do nothing."""
        return ""

    def transfer_to_human_agents(self, *, summary: str) -> str:
        """Pass the customer on."""
        return "Transfer successful"


def tools_of(shop: type[Shop]) -> dict[str, Callable[..., Any]]:
    """Return the tools of a shop by name; each takes the shop, and the arguments of a call by name."""
    return {name: getattr(shop, name) for name in dir(shop) if name[0] != "_" and name not in dir(Tables)}
