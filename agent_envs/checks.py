"""Check arguments: each function returns the value, or raises a ConfigError that says what was expected.

>>> integer("n", 3, minimum=1)
3
>>> choice("layout", "mergd", ("merged", "steps"))
Traceback (most recent call last):
    ...
agent_envs.errors.ConfigError: layout must be one of 'merged', 'steps', got 'mergd'. Did you mean 'merged'?
"""

from __future__ import annotations

import difflib
import functools
import importlib
import inspect
import json
import math
import numbers
import operator
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from agent_envs.errors import ConfigError, did_you_mean

T = TypeVar("T")

_REFUSAL = re.compile(r"(?:got (?:an unexpected|multiple values for) keyword argument|(missing) \d+ .*?:) '([^']*)'")

_SHOWN = 100  # characters of a rejected value in an error


def shown(value: object) -> str:
    """Return a value as an error shows it: its `repr`, shortened.

    >>> shown("a" * 1000)[-8:]
    'aaaaa...'
    >>> shown(10**5000)  # which Python refuses to write
    'a very long int'
    """
    try:
        text = repr(value)
    except ValueError:
        text = f"a very long {type(value).__name__}"
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 4]}..."


def choice(name: str, value: T, choices: Iterable[T]) -> T:
    """Return `value`, which must be one of `choices`.

    >>> choice("split", "train", ["train", "test"])
    'train'
    """
    known = list(choices)
    for one in known:
        if isinstance(value, bool) == isinstance(one, bool) and value == one:  # True is not 1 here; 1.0 becomes 1
            return one
    word = value if isinstance(value, str) else ""
    close = difflib.get_close_matches(word, [k for k in known if k and isinstance(k, str)], n=1)
    hint = f". Did you mean {close[0]!r}?" if close else ""
    expected = f"one of {', '.join(map(repr, known))}" if len(known) != 1 else repr(known[0])
    raise ConfigError(f"{name} must be {expected}, got {shown(value)}{hint}")


def integer(name: str, value: Any, *, minimum: int | None = None, maximum: int | None = None) -> int:
    """Return `value` as an int, within its bounds (both included). Booleans and floats are rejected.

    >>> integer("k", 0, minimum=1)
    Traceback (most recent call last):
        ...
    agent_envs.errors.ConfigError: k must be an integer of at least 1, got 0
    """
    try:
        index = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        index = None
    if index is not None and (minimum is None or index >= minimum) and (maximum is None or index <= maximum):
        return index
    raise ConfigError(f"{name} must be an integer{_range(minimum, maximum)}, got {shown(value)}")


def number(
    name: str, value: object, *, minimum: float | None = None, maximum: float | None = None, above: float | None = None
) -> float:
    """Return `value` as a float: finite, at least `minimum`, at most `maximum`, larger than `above`.

    >>> number("temperature", 1, minimum=0)
    1.0
    >>> number("timeout", float("nan"), above=0)
    Traceback (most recent call last):
        ...
    agent_envs.errors.ConfigError: timeout must be a number above 0, got nan
    """
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        with suppress(OverflowError):  # an integer of hundreds of digits
            real = float(value)
            enough = (minimum is None or real >= minimum) and (above is None or real > above)
            if math.isfinite(real) and enough and (maximum is None or real <= maximum):
                return real
    bounds = f" above {above:g}" if above is not None else ""
    if above is not None and maximum is not None:
        bounds += f" and at most {maximum:g}"
    raise ConfigError(f"{name} must be a number{bounds or _range(minimum, maximum)}, got {shown(value)}")


def finite(name: str, value: object) -> float:
    """Return a reward or a score as a float: it must be finite, and may be a boolean or NumPy's."""
    real = value
    if type(value) is not float and not isinstance(value, str):
        with suppress(TypeError, ValueError, OverflowError):
            real = float(value)  # type: ignore[arg-type]
    if isinstance(real, float) and -math.inf < real < math.inf:
        return real
    raise ConfigError(f"{name} must be a finite number, got {shown(value)}")


def boolean(name: str, value: object) -> bool:
    """Return `value`, which must be True or False."""
    if isinstance(value, bool):
        return value
    raise ConfigError(f"{name} must be True or False, got {shown(value)}")


def string(name: str, value: object, *, empty: bool = True) -> str:
    """Return `value`, which must be a string, and with `empty=False` not an empty one."""
    if isinstance(value, str) and (value or empty):
        return value
    raise ConfigError(f"{name} must be a {'string' if empty else 'non-empty string'}, got {shown(value)}")


def json_object(name: str, text: str | None) -> dict[str, Any]:
    """Return the JSON object that a command-line option holds; an empty one for None.

    >>> json_object("--env-kwargs", '{"data": "official"}')
    {'data': 'official'}
    """
    if text is None:
        return {}
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as e:
        raise ConfigError(f"{name} is not valid JSON such as '{{\"key\": 1}}': {e}: {shown(text)}") from e
    if not isinstance(data, dict):
        raise ConfigError(f"{name} must be a JSON object, got {shown(text)}")
    return data


def argument_names(taker: Callable[..., Any]) -> list[str]:
    """Return the names of the keyword arguments that a class or a function takes, without the environment to wrap.

    >>> argument_names(load_function)
    ['name', 'what']
    """
    return sorted(argument_defaults(taker))


def argument_defaults(taker: Callable[..., Any]) -> dict[str, Any]:
    """Return these arguments with their defaults; `inspect.Parameter.empty` stands for none.

    `**kwargs` of a constructor are those of its base class, less what the class settles itself (its attribute
    `settled_arguments`).
    """
    settled: set[str] = {"self", "env"}
    constructors = [taker]
    if isinstance(taker, type):
        constructors = [vars(base)["__init__"] for base in taker.__mro__ if "__init__" in vars(base)]
        settled |= listed(taker, "settled_arguments")
    defaults: dict[str, Any] = {}
    for function in constructors:
        parameters = inspect.signature(function).parameters.values()
        taken = (p for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD))
        defaults = {p.name: p.default for p in taken} | defaults
        if all(p.kind is not p.VAR_KEYWORD for p in parameters):
            break
    return {name: default for name, default in defaults.items() if name not in settled}


def listed(taker: object, attribute: str) -> set[str]:
    """Return the names that a class and its base classes, or a function, list in an attribute."""
    kinds = taker.__mro__ if isinstance(taker, type) else (taker,)
    return {name for kind in kinds for name in getattr(kind, "__dict__", {}).get(attribute, ())}


@contextmanager
def naming_arguments(name: str, taker: Callable[..., Any], given: Collection[str]) -> Iterator[None]:
    """Within the block, Python's refusal of a given argument becomes an error with the names that `taker` takes.

    >>> with naming_arguments("shown", shown, {"valu": 1}):
    ...     shown(valu=1)
    Traceback (most recent call last):
        ...
    agent_envs.errors.ConfigError: shown does not take 'valu'. Did you mean 'value'? There are: 'value'.
    """
    try:
        yield
    except TypeError as e:
        refusal = _REFUSAL.search(str(e))
        taken = argument_defaults(taker) if refusal else {}
        if refusal and refusal[1] and refusal[2] not in given and taken.get(refusal[2]) is inspect.Parameter.empty:
            raise ConfigError(f"{name} needs the argument {refusal[2]!r}") from e
        if not refusal or refusal[2] not in given or refusal[2] in taken:
            raise
        names = did_you_mean(refusal[2], sorted(taken)) if taken else " It takes no arguments."
        raise ConfigError(f"{name} does not take {refusal[2]!r}.{names}") from e


class CheckedArguments:
    """Base of classes whose constructors refuse unknown keyword arguments as `naming_arguments` does."""

    settled_arguments: ClassVar[tuple[str, ...]] = ()
    """Arguments of its base classes that a subclass sets itself and does not take."""

    harmless_arguments: ClassVar[tuple[str, ...]] = ("render_mode",)
    """Arguments that change neither tasks nor scores, and so are no part of a panel; its base classes' are kept."""

    recorded_arguments: ClassVar[tuple[str, ...]]
    """Arguments that a run's record, a row of a dataset and a server's client may set; its base classes' are kept.
    They name no code, service, tokenizer or file, and grant no rights and no resources. A record cannot name a wrapper
    without this attribute."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if init := vars(cls).get("__init__"):

            @functools.wraps(init)
            def checked(self: Any, /, *args: Any, **kwargs: Any) -> None:
                with naming_arguments(type(self).__name__, type(self), kwargs):
                    init(self, *args, **kwargs)

            cls.__init__ = checked  # type: ignore[assignment,method-assign]


def option_mapping(options: object) -> dict[str, Any]:
    """Return the options of a reset; ConfigError if they are not a dictionary with strings as keys, or None."""
    if options is None:
        return {}
    if isinstance(options, Mapping) and all(isinstance(key, str) for key in options):
        return dict(options)
    raise ConfigError(f"options must be a dictionary such as {{'index': 3}}, got {shown(options)}")


def question_option(options: Mapping[str, Any]) -> str:
    """Return the question among the options of a reset; ConfigError if it is empty or an index is beside it."""
    question = options["question"]
    if not isinstance(question, str) or not question.strip():
        raise ConfigError(f"options['question'] must be a non-empty string, got {shown(question)}")
    if options.get("index") is not None:
        raise ConfigError("options can have an index or a question, not both")
    return question


def load_function(name: str | Callable[..., Any], what: str) -> Callable[..., Any]:
    """Return the function or class that `module:function` names.

    Importing runs the module, so pass only names that the user wrote, never recorded ones.

    Args:
        name: The module and the name in it; a function is returned unchanged.
        what: What it is for, in error messages.

    >>> load_function("textwrap:dedent", "the template")("  a")
    'a'
    """
    if callable(name):
        return name
    if not isinstance(name, str):
        raise ConfigError(f"{what} must be a function or its name, module:function, got {shown(name)}")
    module, separator, attribute = name.partition(":")
    if not (separator and attribute.isidentifier() and all(part.isidentifier() for part in module.split("."))):
        raise ConfigError(f"{what} must be written module:function, got {shown(name)}")
    try:
        function = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as e:
        raise ConfigError(f"{what} {name} cannot be loaded: {e}") from e
    if not callable(function):
        raise ConfigError(f"{what} {name} must be a function or a class, got {type(function).__name__}")
    return function


def path_suffix(name: str, path: str | os.PathLike[str], suffixes: Iterable[str]) -> Path:
    """Return `path`, which must end in one of `suffixes`, in upper or lower case.

    >>> path_suffix("--out", "a.txt", [".jsonl", ".parquet"])
    Traceback (most recent call last):
        ...
    agent_envs.errors.ConfigError: --out must end in .jsonl, .parquet, got 'a.txt'
    """
    if Path(path).suffix.lower() in suffixes:
        return Path(path)
    raise ConfigError(f"{name} must end in {', '.join(suffixes)}, got {shown(os.fspath(path))}")


def _range(minimum: float | None, maximum: float | None) -> str:
    """Return the words for a range: " from 1 to 5", " of at least 1", " of at most 5", or none."""
    if minimum is None:
        return "" if maximum is None else f" of at most {maximum}"
    return f" of at least {minimum}" if maximum is None else f" from {minimum} to {maximum}"
