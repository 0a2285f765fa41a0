"""The schemas of tools' arguments, each compiled once per process. No address is opened, no reference leads nowhere."""

from __future__ import annotations

import copy
import functools
import json
import re
from collections.abc import Mapping
from typing import Any

from agent_envs.checks import shown
from agent_envs.errors import ConfigError, first_line
from agent_envs.parsers.json_calls import json_types, resolved

_MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_SCHEMAS = ("contains", "else", "if", "items", "not", "propertyNames", "then")
_REFERENCES = {"$ref", "$dynamicRef", "$recursiveRef"}


def misfit(schema: str, arguments: Mapping[str, Any]) -> str:
    """Return why arguments do not fit the JSON text of a schema, as the end of a sentence; "" if they do."""
    try:
        problem = next(compiled(schema).iter_errors(arguments), None)
    except (ArithmeticError, RecursionError, re.error) as e:
        return f": they are nested too deeply or out of range ({type(e).__name__})"
    if problem is None:
        return ""
    where = "".join(f"[{part!r}]" for part in problem.absolute_path)
    message = problem.message if len(problem.message) <= 300 else problem.message[:300] + "..."
    return f"{where and ' at ' + where}: {message}"


@functools.lru_cache(maxsize=1024)
def compiled(schema: str) -> Any:
    """Return the validator of the JSON text of a schema, in the draft that it declares, else 2020-12.

    Raises:
        ConfigError: It is not the schema of an object, or refers to what is not in it.
    """
    # Imported here because it takes as long as the rest of the package.
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import validator_for
    from jsonschema_specifications import REGISTRY
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT202012, specification_with

    contents = json.loads(schema)
    kind = validator_for(contents, default=Draft202012Validator)
    try:
        kind.check_schema(contents)
        types = contents.get("type", "object")
        if types != "object" and "object" not in types:
            raise ConfigError(f"the schema must be an object's, got the type {shown(types)}")
        specification = specification_with(contents.get("$schema", ""), default=DRAFT202012)
        root = specification.create_resource(contents)
        waiting, seen = [(root, REGISTRY.resolver_with_root(root))], set()
        while waiting:
            resource, resolver = waiting.pop()
            if not isinstance(resource.contents, dict) or id(resource.contents) in seen:
                continue
            seen.add(id(resource.contents))
            for key in _REFERENCES & resource.contents.keys():
                target = resolver.lookup(resource.contents[key])
                waiting.append((specification.create_resource(target.contents), target.resolver))
            waiting += [(inner, resolver.in_subresource(inner)) for inner in resource.subresources()]
        validator = kind(contents, registry=REGISTRY)
        next(validator.iter_errors({}), None)
    except SchemaError as e:
        raise ConfigError(f"the schema is not valid: {e.message[:300]}") from e
    except (Unresolvable, AttributeError, LookupError, RecursionError, TypeError, ValueError) as e:
        raise ConfigError(f"the schema must refer to nothing outside of it: {first_line(e)[:300]}") from e
    return validator


def tidied(schema: Any, without: frozenset[str] = frozenset()) -> Any:
    """Return a copy of a schema as all its readers know it, without some keywords and those that are null.

    A boolean in the place of a schema becomes an object, since chat templates ask for its type. What patterns allow is
    not forbidden without them.

    >>> tidied({"properties": {"any": True, "pattern": {"pattern": "(a+)+$", "title": None}}}, frozenset({"pattern"}))
    {'properties': {'any': {}, 'pattern': {}}}
    """
    if isinstance(schema, bool):
        return {} if schema else {"not": {}}
    if isinstance(schema, list):
        return [tidied(entry, without) for entry in schema]
    if not isinstance(schema, dict):
        return schema
    if "patternProperties" in without & schema.keys():
        schema = {**schema, "additionalProperties": None}
    result: dict[str, Any] = {}
    for key, value in schema.items():
        if key in ("const", "default") or (key in ("enum", "examples") and value is not None):
            result[key] = copy.deepcopy(value)
        elif key in _MAPS and isinstance(value, dict):
            if key not in without:
                result[key] = {name: tidied(inner, without) for name, inner in value.items()}
        elif key not in without and value is not None:
            result[key] = tidied(value, without) if key in _SCHEMAS or isinstance(value, dict | list) else value
    return result


def with_integers(value: Any, schema: Any, root: Any) -> Any:
    """Turn whole floats into ints where a schema within `root` allows no other number: JSON does not tell them apart.

    >>> schema = {"properties": {"n": {"type": ["integer", "null"]}, "x": {"type": "number"}}}
    >>> with_integers({"n": 2.0, "x": 2.0}, schema, schema)
    {'n': 2, 'x': 2.0}
    """
    schema = resolved(schema, root)
    if not isinstance(schema, Mapping):
        return value
    if type(value) is float:
        return int(value) if value.is_integer() and "number" not in json_types(schema, root) else value
    if isinstance(value, list):
        firsts, others = schema.get("prefixItems", []), schema.get("items")
        if isinstance(others, list):  # as drafts before 2020-12 write it
            firsts, others = others, schema.get("additionalItems")
        schemas = [*firsts, *[others] * (len(value) - len(firsts))]
        return [with_integers(entry, inner, root) for entry, inner in zip(value, schemas, strict=False)]
    if isinstance(value, dict):
        properties, others = schema.get("properties", {}), schema.get("additionalProperties")
        return {key: with_integers(entry, properties.get(key, others), root) for key, entry in value.items()}
    return value
