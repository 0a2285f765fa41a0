"""Batch the infos of many environments into one mapping of arrays without losing values.

Gymnasium's `VectorEnv` chooses an array's type by the first value: after 1, a 0.75 is stored as 0 and None raises. Here
the type is chosen from all values of a key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


def batch_infos(infos: Sequence[Mapping[str, Any] | None]) -> dict[str, Any]:
    """Return one info in Gymnasium's form: for each key an array, and a mask `_key` of the environments that have it.

    Booleans, integers and floats (mixed ones too) become arrays of their type, arrays of one shape and type are
    stacked, and mappings are batched in turn. Everything else becomes an array of objects. Where an environment lacks a
    key, the value is 0, False or None.

    Args:
        infos: The info of each environment (environments), or None.

    >>> batch_infos([{"score": 1, "note": None}, None, {"score": 0.75, "found": ["a"]}])["score"].tolist()
    [1.0, 0.0, 0.75]
    """
    n = len(infos)
    columns: dict[str, tuple[list[int], list[Any]]] = {}  # key -> environments, values
    for i, info in enumerate(infos):
        for key, value in (info or {}).items():
            who, values = columns.setdefault(key, ([], []))
            who.append(i)
            values.append(value)
    batched: dict[str, Any] = {}
    for key, (who, values) in columns.items():
        has = np.zeros(n, np.bool_)
        has[who] = True
        batched[key], batched[f"_{key}"] = _batch(who, values, n), has
    return batched


def _batch(who: list[int], values: list[Any], n: int) -> Any:
    """Return the values of one key as a batch of n environments."""
    kinds = set(map(type, values))
    kind = kinds.pop() if len(kinds) == 1 else None
    dtype: Any = object
    shape: tuple[int, ...] = ()
    if kind is bool or kind is float:
        dtype = kind
    elif kind is int:
        dtype = np.int64 if min(values) >= -(1 << 63) and max(values) < 1 << 63 else object
    elif kinds == {int, float}:
        dtype = np.float64 if all(type(v) is float or abs(v) <= 1 << 53 for v in values) else object
    elif kind is np.ndarray and len({(value.shape, value.dtype) for value in values}) == 1:
        dtype, shape = values[0].dtype, values[0].shape
    elif kind is not None and issubclass(kind, np.number):
        dtype = kind
    if dtype is not object:
        batched = np.zeros((n, *shape), dtype)
        batched[who] = values
        return batched
    objects = np.full(n, None, object)
    for i, value in zip(who, values, strict=True):
        objects[i] = value
    return batch_infos(objects.tolist()) if kind is dict else objects
