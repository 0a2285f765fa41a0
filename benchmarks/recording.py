"""What recording costs a call: the same calls to a server directly and through `agentr1 record`, turn by turn.

The server answers at once, in vLLM's form, and runs in a process of its own, as the proxy does; both are asked by one
client over kept connections. Asked directly for tokens and log-probabilities too ("with tokens"), the server sends what
it sends to the proxy. The ways take turns within a repeat, so that all see the same machine. Beside a model that takes
seconds, what a call takes more through the proxy is what an agent notices.

    python benchmarks/recording.py [--calls 400] [--repeats 3] [--prompt 2000] [--response 200]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

import aiohttp

_SERVER = """
import asyncio, json, sys
from aiohttp import web
prompt, response = int(sys.argv[1]), int(sys.argv[2])
entries = [{"token": "word", "logprob": -0.25, "bytes": [119], "top_logprobs": []}] * response
def choice(body, first, last, text):
    told = {"token_ids": list(range(first, last))} if body.get("return_token_ids") else {}
    logged = {"content": entries[first:last]} if body.get("logprobs") else None
    ended = "stop" if last == response else None
    return {"index": 0, **text, "finish_reason": ended, "logprobs": logged, **told}
def ids(body):
    return {"prompt_token_ids": list(range(prompt))} if body.get("return_token_ids") else {}
async def chat(request):
    body, base = await request.json(), {"id": "c", "created": 1, "model": "m"}
    if not body.get("stream"):
        said = choice(body, 0, response, {"message": {"role": "assistant", "content": "word" * response}})
        return web.json_response({**base, "object": "chat.completion", "choices": [said], **ids(body)})
    reply = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await reply.prepare(request)
    for i in range(response):
        said = choice(body, i, i + 1, {"delta": {"content": "word"}})
        chunk = {**base, "object": "chat.completion.chunk", "choices": [said]}
        await reply.write(("data: " + json.dumps({**chunk, **(ids(body) if i == 0 else {})}) + "\\n\\n").encode())
    await reply.write(b"data: [DONE]\\n\\n")
    return reply
async def main():
    app = web.Application()
    app.router.add_post("/v1/chat/completions", chat)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(f"at http://127.0.0.1:{runner.addresses[0][1]}/v1 into", flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""


def _start(*command: str) -> tuple[subprocess.Popen[str], str]:
    process = subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, process.stdout.readline().split("at ")[-1].split(" into")[0]


async def _calls(
    url: str, total: int, concurrency: int, words: int, stream: bool, tokens: bool, name: str
) -> list[float]:
    """Seconds that each call took."""
    taken: list[float] = []
    left = iter(range(total))
    messages = [{"role": "user", "content": "word " * words}]
    asked = {"logprobs": True, "return_token_ids": True} if tokens else {}
    data = json.dumps({"model": "m", "messages": messages, "stream": stream, **asked}).encode()

    async def agent(http: aiohttp.ClientSession, number: int) -> None:
        headers = {"Content-Type": "application/json", "X-Episode-Id": f"{name}-{number}"}
        for _ in left:
            begun = time.perf_counter()
            async with http.post(f"{url}/chat/completions", data=data, headers=headers) as reply:
                reply.raise_for_status()
                async for _part in reply.content.iter_any():
                    pass
            taken.append(time.perf_counter() - begun)

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
        await asyncio.gather(*(agent(http, i) for i in range(concurrency)))
    return taken


def _measure(urls: dict[str, str], options: argparse.Namespace, concurrency: int, stream: bool) -> dict[str, Any]:
    found: dict[str, list[tuple[float, float]]] = {way: [] for way in urls}
    total = max(options.calls // (4 if stream else 1), concurrency)
    for repeat in range(options.repeats + 1):
        for way, url in urls.items():
            name = f"{repeat}-{concurrency}-{stream}"
            begun = time.perf_counter()
            tokens = way == "with tokens"
            taken = asyncio.run(_calls(url, total, concurrency, options.prompt, stream, tokens, name))
            seconds = time.perf_counter() - begun
            if repeat:  # the first one warms up
                found[way].append((statistics.median(taken), len(taken) / seconds))
    return {way: [statistics.median(column) for column in zip(*rows, strict=True)] for way, rows in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--calls", type=int, default=400, help="calls of a measurement (a quarter for streams)")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--prompt", type=int, default=2000, help="tokens of a prompt")
    parser.add_argument("--response", type=int, default=200, help="tokens of a response")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        server, direct = _start("-c", _SERVER, str(options.prompt), str(options.response))
        command = ("record", "--upstream", direct, "--out", folder, "--port", "0")
        proxy, through = _start("-m", "agent_envs", *command)
        try:
            print(f"prompts of {options.prompt} tokens, responses of {options.response}")
            urls = {"direct": direct, "with tokens": direct, "recorded": through}
            print(f"{'calls':<10} {'at once':>7}" + "".join(f"{way:>22}" for way in urls))
            for stream in (False, True):
                for concurrency in (1, 16, 64):
                    rows = _measure(urls, options, concurrency, stream)
                    shown = "".join(f"{1e3 * p50:>9.2f} ms {rate:>7.0f}/s" for p50, rate in rows.values())
                    print(f"{'streamed' if stream else 'whole':<10} {concurrency:>7}{shown}")
        finally:
            for process in (proxy, server):
                process.kill()
                process.communicate()


if __name__ == "__main__":
    main()
