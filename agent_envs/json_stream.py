"""Reads JSON files of any size, one row, or one entry of their array or object, at a time.

The buffer holds little more than one entry, which the standard library's C scanner decodes: a file of several GB takes
as much memory as its longest entry, which is limited.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from agent_envs.errors import DataError
from agent_envs.files import MAX_ROW_BYTES, open_data

T = TypeVar("T")

_CHUNK = 1 << 20
_WORD_AT_END = re.compile(r"-?[A-Za-z]{0,8}\s*\Z")  # perhaps the beginning of true, false, null, NaN or Infinity
_SPACE = re.compile(r"[ \t\r\n]*")


class JSONStream:
    """Reads one file from beginning to end.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "a.json")
    ...     _ = path.write_text('[{"a": 1}, "b"]')
    ...     list(JSONStream(path).rows())
    [{'a': 1}, 'b']

    ``read`` is called with the number of bytes after each read, for a progress bar.
    """

    def __init__(self, path: str | Path, read: Callable[[int], object] | None = None) -> None:
        self.path = Path(path)
        self.number = 0
        """How many entries have been yielded."""
        self._report = read
        self._file: BinaryIO
        self._decoder = json.JSONDecoder()
        self._buffer, self._at = "", 0
        self._ended = False
        self._rows = False  # whether errors name lines
        self._line, self._counted = 1, 0  # the line of the buffer's position `_counted`

    @property
    def where(self) -> str:
        """The entry that was yielded last, for error messages."""
        return f"{self.path}, line {self._line}" if self._rows else f"{self.path}, entry {self.number}"

    def rows(self) -> Iterator[Any]:
        """Yield the elements of an array, or values that follow one another, on a line each or on several.

        Raises:
            DataError: The file cannot be read, is not JSON or is cut off; the message says where.
        """
        with self._opened() as self._file:
            if self._next() == "[":
                yield from self._entries("]", self._value)
                return
            self._rows = True
            while self._next():
                self._line += self._buffer.count("\n", self._counted, self._at)
                self._counted = self._at
                value = self._value()
                self.number += 1
                yield value

    def pairs(self) -> Iterator[tuple[str, Any]]:
        """Yield the members of an object; a name that occurs twice is yielded twice.

        Raises:
            DataError: The file cannot be read, is not an object or is cut off; the message says where.
        """
        with self._opened() as self._file:
            if self._next() != "{":
                raise DataError(f"{self.path}: expected a JSON object {{...}}, found {self._buffer[:40]!r}")
            yield from self._entries("}", self._pair)

    def _opened(self) -> BinaryIO:
        self._decode = codecs.getincrementaldecoder("utf-8-sig")().decode
        try:
            return open_data(self.path)
        except OSError as e:
            raise DataError(f"{self.path} cannot be read: {e.strerror}") from e

    def _entries(self, last: str, read: Callable[[], T]) -> Iterator[T]:
        """Yield what stands between the opening bracket, which comes next, and the `last` one."""
        self._at += 1
        while self._next() != last:
            if self.number:
                self._expect(",")
            entry = read()
            self.number += 1
            yield entry
        self._at += 1
        if self._next():
            raise self._error(f"expected the end of the file, found {self._buffer[self._at : self._at + 20]!r}")

    def _pair(self) -> tuple[str, Any]:
        name = self._value()
        if not isinstance(name, str):
            raise self._error(f"expected a string as name, found {name!r:.40}")
        self._expect(":")
        return name, self._value()

    def _value(self) -> Any:
        self._next()
        while True:
            try:
                value, end = self._decoder.raw_decode(self._buffer, self._at)
            except json.JSONDecodeError as e:
                cut = e.msg.startswith("Unterminated") or _WORD_AT_END.match(self._buffer, e.pos)
                if self._ended or not (cut or len(self._buffer) < e.pos + 10):
                    raise self._error("" if cut else e.msg) from e
            except (ValueError, RecursionError) as e:  # a number of over 4,300 digits, a thousand brackets
                raise self._error(str(e)) from e
            else:
                if end + 3 <= len(self._buffer) or self._ended:  # a number may go on, as after 2 in 2.5 or 2e-5
                    self._at = end
                    return value
            self._more()

    def _next(self) -> str:
        """Skip whitespace and return the next character without consuming it, or "" at the end of the file."""
        while True:
            self._at = _SPACE.match(self._buffer, self._at).end()  # type: ignore[union-attr]
            if self._at < len(self._buffer) or self._ended:
                return self._buffer[self._at : self._at + 1]
            self._more()

    def _expect(self, character: str) -> None:
        following = self._next()
        if following != character:
            rest = self._buffer[self._at : self._at + 20]
            raise self._error(f"expected {character!r}, found {rest!r}" if following else "")
        self._at += 1

    def _more(self) -> None:
        """Read more. What is read doubles each time, so that a long entry is not scanned again and again."""
        size = max(_CHUNK, len(self._buffer) - self._at)
        if size > MAX_ROW_BYTES:
            raise DataError(f"{self._place}: longer than {MAX_ROW_BYTES >> 20} MiB; expected a row or an entry")
        try:
            data = self._file.read(size)
            text = self._decode(data, not data)
        except UnicodeDecodeError as e:
            line = self._line + self._buffer.count("\n", self._counted) + e.object.count(b"\n", 0, e.start)
            raise DataError(f"{self.path}, line {line}: not UTF-8 ({e.reason})") from e
        except OSError as e:
            raise DataError(f"{self.path}, after entry {self.number}: cannot be read: {e.strerror}") from e
        self._ended = not data
        if self._report and data:
            self._report(len(data))
        self._line += self._buffer.count("\n", self._counted, self._at)
        self._buffer, self._at, self._counted = self._buffer[self._at :] + text, 0, 0

    @property
    def _place(self) -> str:
        return self.where if self._rows else f"{self.path}, after entry {self.number}, before byte {self._file.tell()}"

    def _error(self, problem: str) -> DataError:
        """Return the error for this position; without a `problem` the file ends too early."""
        problem = problem or "the file ends in the middle of an entry; was a download interrupted?"
        if self._rows:
            problem = f"not valid JSON ({problem}): {self._buffer[self._at : self._at + 80]!r}"
        return DataError(f"{self._place}: {problem}")
