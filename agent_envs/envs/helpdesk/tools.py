"""The tools of a domain: finding and showing rows, one for each act, and the two kinds of notes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from agent_envs.datasets.helpdesk.generated.domain import Domain
from agent_envs.envs.helpdesk.desk import Clerk
from agent_envs.parsers import Parser, get_parser
from agent_envs.tools import Tool, ToolRegistry

_OPTIONAL = "if the rules set one"
_Run = Callable[[Clerk, Mapping[str, Any]], str]


class DeskTool(Tool):
    """A tool that a clerk carries out.

    Args:
        name, description: What the policy reads.
        arguments: The type and description of each argument; the last one may be left out if its description says so.
        run: The work of a clerk, from the arguments of a call to its result.
    """

    clerk: Callable[[], Clerk]
    """Returns the clerk of the running episode; see `ToolRegistry.bound`."""

    def __init__(self, name: str, description: str, arguments: Mapping[str, tuple[str, str]], run: _Run) -> None:
        self.name, self.description, self.run = name, description, run
        self.parameters = {
            "type": "object",
            "properties": {key: {"type": kind, "description": said} for key, (kind, said) in arguments.items()},
            "required": [key for key, (_, said) in arguments.items() if not said.endswith(_OPTIONAL)],
            "additionalProperties": False,
        }

    def call(self, **arguments: Any) -> str:
        return self.run(self.clerk(), arguments)


def desk_tools(domain: Domain) -> ToolRegistry:
    """Return the tools of a domain, which still need a clerk."""
    customer, item, entry = domain.customer.noun, domain.item.noun, domain.catalogue.noun
    items, customers = domain.item.plural, domain.customer.plural
    key, whose = {"id": ("string", f"Number of the {item}")}, {"id": ("string", f"Number of the {customer}")}
    name, code = {"name": ("string", "First and last name")}, {**whose, "code": ("string", "The code word")}
    label, rule = {"name": ("string", f"Name of the {entry}")}, {"rule": ("string", "Number of the rule, like 2.1")}
    tools = [
        DeskTool(f"find_{tool_name(customer)}", f"Find the numbers of the {customers} of a name.", name, Clerk.find),
        DeskTool("verify", f"Check the code word of {a(customer)} and show the row.", code, Clerk.verify),
        DeskTool(f"list_{tool_name(items)}", f"List the {items} of {a(customer)}.", whose, Clerk.listed),
        DeskTool(f"get_{tool_name(item)}", f"Show the row of {a(item)}.", key, Clerk.item),
        DeskTool(f"get_{tool_name(entry)}", f"Show the row of {a(entry)}.", label, Clerk.entry),
    ]
    for act in domain.acts.values():
        said, arguments = act.words(act.verbs[0], a(item)), dict(key)
        for ask in act.asks:
            kind = "integer" if isinstance(ask.values[0], int) else "string"
            arguments[ask.name] = (kind, f"One of {', '.join(map(str, ask.values))}")
        if act.amount is not None:
            arguments[act.amount.name] = ("integer", f"The {act.amount.name} in euros, {_OPTIONAL}")
        run = functools.partial(Clerk.act, act=act)
        tools.append(DeskTool(act.name, f"{said[0].upper()}{said[1:]}.", arguments, run))
    acts = f"What is not done: {', '.join(domain.acts)}"
    if domain.device:
        acts += f"; or, with the number of the {customer}, {', '.join(domain.device.acts)}"
    said = f"Note that a rule forbids what was asked for. The {customer} gets a letter."
    declined = DeskTool("decline", said, {**key, "act": ("string", acts), **rule}, Clerk.decline)
    passed_on = DeskTool("transfer", "Pass on a request that no section is about.", rule, Clerk.transfer)
    return ToolRegistry([*tools, declined, passed_on])


@functools.cache
def shared_tools(domain: Domain, parser: str) -> tuple[ToolRegistry, Parser]:
    """Return the tools of a domain, shared by all environments, and the parser of calls to them."""
    registry = desk_tools(domain)
    return registry, get_parser(parser, registry.specs)


def a(noun: str) -> str:
    """Return a noun with its article.

    >>> a("hire"), a("order"), a("hour")
    ('a hire', 'an order', 'an hour')
    """
    return f"an {noun}" if noun[0] in "aeio" or noun.startswith("hour") else f"a {noun}"


def tool_name(noun: str) -> str:
    """Return a noun as a part of a tool's name."""
    return noun.replace(" ", "_").replace("-", "_")
