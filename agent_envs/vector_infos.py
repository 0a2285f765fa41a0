"""The infos of many environments as one mapping of arrays, without the losses of filling it one by one.

Gymnasium's ``VectorEnv`` decides an array's type by the first value: after 1, a 0.75 is stored as 0, a None raises.
Here all values of a key are looked at before the array is made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

__all__ = ["batch_infos", "split_infos"]


def batch_infos(infos: Sequence[Mapping[str, Any] | None]) -> dict[str, Any]:
    """One info for all environments in Gymnasium's form: for each key an array and a mask ``_key`` of who has it.

    Booleans, integers and floats (also mixed ones) make arrays of their type, arrays of one shape and type are stacked,
    and mappings are batched in turn. Everything else makes an array of objects. Who lacks a key has 0, False or None.

    Args:
        infos: The info of each environment (environments); None where there is none.

    >>> batch_infos([{"score": 1, "note": None}, None, {"score": 0.75, "found": ["a"]}])["score"].tolist()
    [1.0, 0.0, 0.75]
    """
    n = len(infos)
    keys = dict.fromkeys(key for info in infos if info is not None for key in info)
    batched: dict[str, Any] = {}
    for key in keys:
        has = np.fromiter((info is not None and key in info for info in infos), np.bool_, n)
        batched[key] = _batch([info[key] if info is not None and key in info else None for info in infos], has)
        batched[f"_{key}"] = has
    return batched


def split_infos(infos: Mapping[str, Any], n: int) -> list[dict[str, Any]]:
    """The info of each environment again, with Python's own numbers.

    >>> split_infos(batch_infos([{"score": 1.0}, None, {"parts": {"a": 2}}]), 3)
    [{'score': 1.0}, {}, {'parts': {'a': 2}}]
    """
    rows: list[dict[str, Any]] = [{} for _ in range(n)]
    for key, has in infos.items():
        values = infos.get(key[1:]) if key.startswith("_") else None
        if values is None or not isinstance(has, np.ndarray):
            continue
        name = key[1:]
        parts = split_infos(values, n) if isinstance(values, Mapping) else values
        for i in np.flatnonzero(has):
            value = parts[i]
            rows[i][name] = value.item() if isinstance(value, np.generic) else value
    return rows


def _batch(values: Sequence[Any], has: np.ndarray) -> Any:
    """The values of one key, None where there is none."""
    n = len(values)
    present = [value for value, there in zip(values, has, strict=True) if there]
    kinds = {type(value) for value in present}
    if all(isinstance(value, dict) for value in present):
        return batch_infos([value if there else None for value, there in zip(values, has, strict=True)])
    dtype: Any = object
    if kinds == {bool}:
        dtype = np.bool_
    elif kinds == {int} and all(-(1 << 63) <= value < 1 << 63 for value in present):
        dtype = np.int64
    elif kinds == {float} or (kinds == {int, float} and all(abs(value) <= 1 << 53 for value in present)):
        dtype = np.float64
    elif kinds == {np.ndarray} and len({(value.shape, value.dtype) for value in present}) == 1:
        stacked = np.zeros((n, *present[0].shape), present[0].dtype)
        stacked[has] = present
        return stacked
    elif len(kinds) == 1 and issubclass(next(iter(kinds)), np.number):
        dtype = next(iter(kinds))
    if dtype is not object:
        return np.array([value if there else 0 for value, there in zip(values, has, strict=True)], dtype)
    objects = np.full(n, None, object)
    for i, value in enumerate(values):
        objects[i] = value
    return objects
