"""Runs the programs of docs/merchants/charges over a network that loses answers.

The program's first request reaches the stack, but its answer is lost. The next three get bad
answers from the network, and the fifth gets through. The payer must have been charged once.

    guides-charges.py READY_FILE
"""

import http.client
import json
import os
import pathlib
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PATIENCE_SECONDS = 120
PROGRAMS = pathlib.Path(__file__).resolve().parent.parent / "docs" / "merchants" / "charges"
READY = json.loads(pathlib.Path(sys.argv[1]).read_text())

COMMANDS = {
    "python": ["python3", "charge.py"],
    "node": ["node", "charge.mjs"],
    "php": ["php", "charge.php"],
    "go": ["go", "run", "charge.go"],
}

# Answers of the network, not of the stack. A proxy's page is not JSON.
BAD = {
    2: (503, {"Retry-After": "1"}, b'{"error": "unavailable", "code": "UNAVAILABLE"}'),
    3: (502, {"Content-Type": "text/html"}, b"<html>Bad gateway</html>"),
    4: (429, {"Retry-After": "1"}, b'{"error": "too many", "code": "RATE_LIMITED"}'),
}


class BadNetwork:
    """Stands between a program and the API."""

    def __init__(self):
        # The requests so far, and the stack's answers to those that reached it.
        seen, answers = self.seen, self.answers = [], []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                seen.append((self.headers["Idempotency-Key"], body))
                if len(seen) in BAD:
                    return self.answer(*BAD[len(seen)])
                status, headers, answer = forward(self.path, self.headers, body)
                answers.append((status, headers, json.loads(answer)))
                if len(seen) == 1:
                    self.close_connection = True
                    return
                self.answer(status, {"Content-Type": "application/json"}, answer)

            def answer(self, status, headers, body):
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{server.server_port}"


def forward(path, headers, body):
    api = http.client.HTTPConnection(READY["api"].removeprefix("http://"), timeout=PATIENCE_SECONDS)
    passed = ("Authorization", "Content-Type", "Idempotency-Key")
    api.request("POST", path, body, {name: headers[name] for name in passed})
    answer = api.getresponse()
    return answer.status, dict(answer.getheaders()), answer.read()


def run(language, api, number, order):
    """Runs the program. Returns its exit code and its output, parsed."""
    program = subprocess.run(
        [*COMMANDS[language], number, "MTN", "2550", order],
        cwd=PROGRAMS,
        env=os.environ | {"API": api, "KEY": READY["demo"]["api_key"]},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    try:
        return program.returncode, json.loads(program.stdout)
    except json.JSONDecodeError:
        sys.exit(f"{language} printed {program.stdout!r}\n{program.stderr}")


def expect(language, what, is_so):
    if not is_so:
        sys.exit(f"{language}: {what}: not so")


def check(language):
    network = BadNetwork()
    code, printed = run(language, network.url, "0240000001", f"guides-{language}")
    expect(language, "five requests, all the same", len(network.seen) == 5 and len(set(network.seen)) == 1)
    (_, _, first), (_, headers, second) = network.answers
    expect(language, "one charge", first["reference"] == second["reference"] == printed["reference"])
    expect(language, "the second was a replay", headers.get("idempotent-replayed") == "true")
    expect(language, "an amount that is exact", json.loads(network.seen[0][1])["amount"] == 25.5)
    expect(language, "success", code == 0 and printed["status"] == "INITIATED")

    # A refusal is an answer, so the program does not retry.
    code, printed = run(language, READY["api"], "0240000006", f"guides-{language}-refused")
    expect(language, "a refusal", code == 1 and printed["status"] == "FAILED")
    print(f"{language}: charged once over a network that loses answers", flush=True)


for language in COMMANDS:
    check(language)
