"""Fixtures shared by the tests."""

import importlib.util
import itertools
import json
import os
import pickle
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import pytest

# Tests run side by side, and their models are tiny: a second thread costs more than it brings. torch reads it once.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Whichever test imports verl first: it reads these once, at import
# (agent_envs.adapters.verl.run.process.process_environment).
os.environ.setdefault("VERL_PLATFORM", "cpu")
os.environ.setdefault("VERL_ENGINE_DEVICE", "cuda")
os.environ.setdefault("VERL_USE_EXTERNAL_MODULES", "agent_envs.adapters.verl.run.plugin")

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT))  # for benchmarks.pretraining, which makes small models


@pytest.fixture(scope="session")
def root():
    """The repository's root."""
    return ROOT


@pytest.fixture(scope="session")
def data_dir():
    """Real data in released formats: AGENT_ENVS_TEST_DATA, or ../shared/data beside the checkout."""
    named = os.environ.get("AGENT_ENVS_TEST_DATA")
    path = Path(named) if named else ROOT.parent / "shared" / "data"
    if not path.is_dir():
        pytest.skip(f"no real test data: {path} is not a folder; set AGENT_ENVS_TEST_DATA")
    return path


@dataclass(frozen=True)
class Asked:
    """A request as a `FakeService` got it."""

    method: str
    path: str
    params: dict[str, str]
    body: bytes
    headers: dict[str, str]
    time: float
    client: tuple[str, int]


class FakeService:
    """An HTTP server on the loopback that answers what `answer(request, number)` returns.

    An answer is (status, body) or (status, body, headers); a body is bytes, anything that JSON can hold, or an iterator
    of chunks of bytes, which breaks the connection off if it raises an error. None closes the connection without a
    word, bytes are sent as they are before it closes.
    """

    def __init__(self, answer: Callable[[Asked, int], Any]) -> None:
        self.asked: list[Asked] = []
        service, lock = self, threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                parts = urlsplit(self.path)
                params = dict(parse_qsl(parts.query, keep_blank_values=True))
                asked = Asked(self.command, unquote(parts.path), params, body, dict(self.headers), time.monotonic(),
                              self.client_address)  # fmt: skip
                with lock:
                    service.asked.append(asked)
                    number = len(service.asked)
                given = answer(asked, number)
                if given is None:
                    self.close_connection = True
                    return
                if isinstance(given, bytes):
                    self.wfile.write(given)
                    self.close_connection = True
                    return
                status, content, *more = given
                if not isinstance(content, (bytes, Iterator)):
                    content = json.dumps(content).encode()
                chunked = isinstance(content, Iterator)
                size = {"Transfer-Encoding": "chunked"} if chunked else {"Content-Length": str(len(content))}
                self.send_response(status)
                for name, value in {**size, **(more[0] if more else {})}.items():
                    self.send_header(name, value)
                self.end_headers()
                if not chunked:
                    self.wfile.write(content)
                    return
                for chunk in itertools.chain(content, [b""]):
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))

            do_CONNECT = do_POST = do_GET  # noqa: N815

            def log_message(self, *args: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            block_on_close = False

            def handle_error(self, request: object, client_address: object) -> None:
                pass  # a client that went away

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        """Close the door: from now on nothing answers."""
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def fake_service():
    """Starts `FakeService`s, which end with the test."""
    running: list[FakeService] = []

    def start(answer: Callable[[Asked, int], Any]) -> FakeService:
        running.append(FakeService(answer))
        return running[-1]

    yield start
    for service in running:
        service.stop()


@pytest.fixture(scope="session")
def settings_are_read_once():
    """Composing a run reads forty files and parses hundreds of references: here each is read and parsed once."""
    base = pytest.importorskip("omegaconf.base")
    pytest.importorskip("hydra.core.plugins").Plugins.instance()  # which loads the classes of sources a second time
    source = pytest.importorskip("hydra._internal.sources_registry").SourcesRegistry.instance().resolve("file")
    load = source.load_config

    @cache
    def read(provider, folder, name):
        return pickle.dumps(load(source(provider, folder), name))  # which is faster than copy.deepcopy

    def load_once(self, config_path):
        return pickle.loads(read(self.provider, self.path, config_path))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source, "load_config", load_once)
        patch.setattr(base, "parse", cache(base.parse))
        yield


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    """A headless Chromium (tests/browser.py), which all tests of a process share."""
    module = _loaded("tests/browser.py")
    if module.browsers() is None:
        pytest.skip("no Chromium is installed; on Debian and Ubuntu: apt-get install chromium chromium-driver")
    with module.Browser(tmp_path_factory.mktemp("browser")) as browser:
        yield browser


@pytest.fixture(scope="session")
def axe():
    """The source of axe-core, which checks a page's accessibility."""
    source = _loaded("tests/browser.py").axe_script()
    if source is None:
        pytest.skip("axe-core is not installed; npm install axe-core, or name its axe.min.js in AXE_CORE")
    return str(source)


@pytest.fixture(scope="session")
def fake_chat():
    """The module tests/fake_chat_server.py."""
    return _loaded("tests/fake_chat_server.py")


@pytest.fixture
def chat_server(fake_chat):
    """Starts `ChatServer`s, which end with the test."""
    running: list[Any] = []

    def start(*args: Any, **settings: Any) -> Any:
        running.append(fake_chat.ChatServer(*args, **settings))
        return running[-1]

    yield start
    for server in running:
        server.close()


@pytest.fixture
def agentr1(capsys):
    """Runs a command of `agentr1` in this process: what it prints, or what it says of a mistake with its status."""
    from agent_envs.cli.main import main

    def run(*words: object, status: int = 0) -> str:
        capsys.readouterr()
        assert main([str(word) for word in words]) == status
        said = capsys.readouterr()
        return str(said.err if status else said.out)

    return run


@pytest.fixture(scope="session")
def released_files():
    """The module tests/released_files.py."""
    return _loaded("tests/released_files.py")


@pytest.fixture(scope="session")
def token_conversation():
    """A class that shows observations as a rollout's actor does: the tokens of each prompt, from given responses."""
    from agent_envs.prompts.conversation import Conversation
    from agent_envs.prompts.past import TokenPast

    class TokenConversation(Conversation):
        def __init__(self, builder, instructions=""):
            super().__init__(instructions)
            self.builder, self.past = builder, TokenPast(latest_only=True)

        def observe(self, observation, info):
            super().observe(observation, info)
            self.prompt = self.past.prompt(self.builder, self.messages)
            return self.prompt.ids

        def respond(self, text, response_ids):
            super().respond(text)
            self.past.answer(self.prompt, text, response_ids)

    return TokenConversation


@pytest.fixture(scope="session")
def load_file():
    """A function that loads a file that is in no package, named from the repository's root."""
    return _loaded


def _loaded(path: str) -> Any:
    name = path.removesuffix(".py").replace("/", "_")  # other packages too install one that is called `tests`
    spec = importlib.util.spec_from_file_location(name, ROOT / path)
    assert spec is not None and spec.loader is not None
    sys.modules[name] = module = importlib.util.module_from_spec(spec)  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module
