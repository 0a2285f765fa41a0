"""A server of the Model Context Protocol that keeps notes, in plain Python. Its argument is a fault that it has, or a
JSON object of what it answers: "tools", and as "answers" the members of its answer to each call.
"""

import json
import os
import subprocess
import sys
import time

FAULT = sys.argv[1] if len(sys.argv) > 1 else ""
ODD = json.loads(FAULT) if FAULT.startswith("{") else {}
notes = []

TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
TOOLS = [
    {"name": "add_note", "description": "Add a note.", "inputSchema": TEXT},
    {"name": "count_notes", "description": "Count the notes.", "inputSchema": {"type": "object"}},
    {"name": "find", "inputSchema": {"type": "object", "properties": {"pattern": {"type": "string"}}}},
]
if FAULT == "outside":
    TOOLS[0] = {**TOOLS[0], "inputSchema": {"type": "object", "properties": {"text": {"$ref": "file:///etc/passwd"}}}}
if FAULT == "same names":
    TOOLS[1] = TOOLS[0]
if FAULT == "slow pattern":
    TOOLS[2]["inputSchema"] = {"type": "object", "properties": {"pattern": {"type": "string", "pattern": "^(a+)+$"}}}


def text(content, error=False):
    return {"content": [{"type": "text", "text": content}], "isError": error}


def called(name, arguments):
    if FAULT == "ends":
        sys.stderr.write("\x1b[2Jout of notes")
        sys.exit(3)
    if FAULT == "stalls":
        time.sleep(1000)
    if FAULT == "lies":
        return {"content": "no list"}
    if FAULT == "endless":
        while True:
            sys.stdout.write("a" * (1 << 20))
    if FAULT == "clock":
        return text(str(time.monotonic()))
    if FAULT == "forgetful":
        notes.clear()
    if name == "add_note":
        notes.append(arguments["text"])
        return text(f"Note {len(notes)} is kept.")
    if name == "count_notes":
        return text(str(len(notes)))
    if name == "find":
        found = [note for note in notes if arguments.get("pattern", "") in note]
        return text("\n".join(found) or "There is no such note.", not found)
    return None


def answered(method, parameters):
    if method == "initialize":
        about = {"name": "notes", "version": "1"}
        version = "1066-10-14" if FAULT == "version" else parameters["protocolVersion"]
        offered = {"tools": {}}
        return {
            "protocolVersion": version, "capabilities": offered, "serverInfo": about, "instructions": "Keep notes.",
        }  # fmt: skip
    if method == "tools/list":
        return {"tools": ODD.get("tools", TOOLS)}
    if "answers" in ODD:
        return {"content": []}
    return called(parameters["name"], parameters.get("arguments") or {})


if FAULT == "mute":
    time.sleep(1000)
if FAULT.startswith("children:"):
    left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"], start_new_session=True)
    with open(FAULT.partition(":")[2], "w") as file:
        file.write(f"{os.getpid()} {left.pid}")
sys.stdout.write("a greeting that is no message\n")
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    result = answered(message["method"], message.get("params") or {})
    reply = {"jsonrpc": "2.0", "id": message["id"], "result": result}
    if result is None:
        del reply["result"]
        reply["error"] = {"code": -32602, "message": "unknown tool"}
    if message["method"] == "tools/call" and "answers" in ODD:
        reply = {"jsonrpc": "2.0", "id": message["id"], **ODD["answers"].pop(0)}
    sys.stdout.write(json.dumps(reply) + "\n")
    sys.stdout.flush()
