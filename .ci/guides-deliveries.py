"""Runs the receivers of docs/merchants/webhooks against deliveries of the running stack.

Each receiver gets real deliveries, byte for byte as captured, which it must accept, and forged or
damaged ones, which it must refuse. Then the stack itself delivers to it.

    guides-deliveries.py READY_FILE PAYCTL
"""

import hashlib
import hmac
import http.client
import json
import os
import pathlib
import queue
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

# No verdict depends on how long anything takes. This only ends what is stuck.
PATIENCE_SECONDS = 120

RECEIVERS = pathlib.Path(__file__).resolve().parent.parent / "docs" / "merchants" / "webhooks"
ACCEPTED, REFUSED = 204, 400

READY = json.loads(pathlib.Path(sys.argv[1]).read_text())
PAYCTL = sys.argv[2]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def commands(port):
    """The command that starts each receiver."""
    return {
        "python": ["python3", "receiver.py"],
        "node": ["node", "receiver.mjs"],
        "php": ["php", "-S", f"127.0.0.1:{port}", "receiver.php"],
        "go": ["go", "run", "receiver.go"],
    }


def payctl(*words):
    operated = ["merchants", "charges", "webhooks"]
    addresses = {f"{name.upper()}_GRPC_URL": READY["grpc"][f"{name}_operators"] for name in operated}
    answer = subprocess.run(
        [PAYCTL, *words], env=os.environ | addresses, capture_output=True, text=True
    )
    if answer.returncode != 0:
        sys.exit(f"payctl {' '.join(words)}: {answer.stderr}")
    return json.loads(answer.stdout)


class Capture:
    """A webhook endpoint that stores what arrives, byte for byte."""

    def __init__(self):
        arrived = self.arrived = queue.Queue()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                arrived.put((self.headers["X-Service-Signature"], body))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_):
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{server.server_port}/webhooks"

    def next(self):
        try:
            return self.arrived.get(timeout=PATIENCE_SECONDS)
        except queue.Empty:
            sys.exit("no delivery came")


class Merchant:
    """A new merchant with a key and an endpoint."""

    def __init__(self, name, url):
        created = payctl(
            "merchant", "create", "--name", name, "--email", "dev@example.com",
            "--email-verified", "--kyc", "APPROVED",
        )
        self.id = created["merchant_id"]
        self.key = payctl("key", "create", self.id)["api_key"]
        self.secret = payctl("webhook", "set", self.id, "--url", url)["signing_secret"]

    def charge(self, number):
        debit = {"amount": 25.50, "mobile_number": number, "provider": "MTN"}
        request = urllib.request.Request(
            f"{READY['api']}/api/v1/payments/charge",
            json.dumps(debit).encode(),
            {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:
            return json.load(answer)


class Receiver:
    """A running program of the guide."""

    def __init__(self, language, secret, scratch):
        self.port = free_port()
        self.output = pathlib.Path(scratch) / f"{language}.out"
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(
                commands(self.port)[language],
                cwd=RECEIVERS,
                env=os.environ | {"WEBHOOK_SECRET": secret, "PORT": str(self.port)},
                stdout=output,
                stderr=subprocess.STDOUT,
                # `go run` starts another process, so the whole group is killed.
                start_new_session=True,
            )
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=5).close()
                return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    self.stop()
                    sys.exit(f"the {language} receiver did not start:\n{self.output.read_text()}")
                time.sleep(0.1)

    def stop(self):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def answers(self, header, body):
        """The status of its answer to this delivery, or 0 if it does not answer.

        If the header is None, none is sent.
        """
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_SECONDS)
        connection.putrequest("POST", "/webhooks")
        connection.putheader("Content-Type", "application/json")
        connection.putheader("Content-Length", str(len(body)))
        if header is not None:
            connection.putheader("X-Service-Signature", header)
        try:
            connection.endheaders(body)
            return connection.getresponse().status
        except (OSError, http.client.HTTPException):
            return 0
        finally:
            connection.close()


def sign(secret, seconds, body):
    """Makes a signature header, as the specification describes it."""
    mac = hmac.new(secret.encode(), f"{seconds}.".encode() + body, hashlib.sha256)
    return f"t={seconds},v1={mac.hexdigest()}"


def flip(body, at):
    return body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :]


def forgeries(header, body, secret):
    """Faults, each with a delivery that has only that fault."""
    t, v1 = header.split(",")
    digest = v1.removeprefix("v1=")
    now = int(time.time())
    event = json.loads(body)
    yield "first byte changed", header, flip(body, 0)
    yield "a byte in the middle changed", header, flip(body, len(body) // 2)
    yield "last byte changed", header, flip(body, len(body) - 1)
    yield "body cut", header, body[:-1]
    yield "body empty", header, b""
    yield "a line's end after the body", header, body + b"\n"
    yield "body parsed and written again", header, json.dumps(event).encode()
    yield "t changed", f"t={int(t[2:]) + 1},{v1}", body
    yield "t one digit longer", f"{t}0,{v1}", body
    yield "signed with another secret", sign(secret[:-2] + "x=", now, body), body
    yield "signed with an empty secret", sign("", now, body), body
    yield "too old", sign(secret, now - 310, body), body
    yield "a day old", sign(secret, now - 86_400, body), body
    yield "from the future", sign(secret, now + 400, body), body
    yield "no header", None, body
    yield "empty header", "", body
    yield "garbage", "garbage", body
    yield "only commas", ",,,,", body
    yield "bytes that are no text", b"\xff\xfe\x80t=\xc3\xa9,v1=\xf0\x9f", body
    yield "no t", v1, body
    yield "no v1", t, body
    yield "t empty", f"t=,{v1}", body
    yield "t no number", f"t=now,{v1}", body
    yield "t negative", f"t=-{t[2:]},{v1}", body
    yield "t without end", f"t={'9' * 400},{v1}", body
    yield "v1 empty", f"{t},v1=", body
    yield "v1 too short", f"{t},v1={digest[:-1]}", body
    yield "v1 too long", f"{t},v1={digest}0", body
    yield "v1 twice in one", f"{t},v1={digest}{digest}", body
    yield "v1 in capitals", f"{t},v1={digest.upper()}", body
    yield "v1 of another length and script", f"{t},v1={'é' * 64}".encode(), body
    yield "the signature under another name", f"{t},v0={digest}", body
    yield "a part of the signature only", f"{t},v1={digest[:32]},v1={digest[32:]}", body


class Checks:
    def __init__(self, language):
        self.language = language
        self.count = 0

    def expect(self, receiver, status, what, header, body):
        answered = receiver.answers(header, body)
        if answered != status:
            sys.exit(
                f"{self.language}: {what}: answered {answered}, expected {status}\n"
                f"header: {header!r}\nbody: {body!r}"
            )
        self.count += 1


def check(language, capture, scratch):
    merchant = Merchant(f"Shop in {language}", capture.url)
    checks = Checks(language)

    with Receiver(language, merchant.secret, scratch) as receiver:
        # 001 settles, 003 fails.
        for number in ("0240000001", "0240000003"):
            merchant.charge(number)
            header, body = capture.next()
            checks.expect(receiver, ACCEPTED, "a real delivery", header, body)
        for what, forged_header, forged_body in forgeries(header, body, merchant.secret):
            checks.expect(receiver, REFUSED, what, forged_header, forged_body)
        for seconds in (-240, 240):
            within = sign(merchant.secret, int(time.time()) + seconds, body)
            checks.expect(receiver, ACCEPTED, f"{seconds} s from now", within, body)
        more = f"{header},v2=later"
        checks.expect(receiver, ACCEPTED, "a part that is not known yet", more, body)

        # The stack itself delivers to the receiver.
        url = f"http://127.0.0.1:{receiver.port}/webhooks"
        payctl("webhook", "set", merchant.id, "--url", url)
        merchant.charge("0240000001")
        event_id = wait_for_event(merchant, receiver)
        if event_id not in receiver.output.read_text():
            sys.exit(f"{language}: the receiver did not print {event_id}")
        checks.count += 1

        # Rotation: two signatures, and either secret verifies the delivery.
        payctl("webhook", "set", merchant.id, "--url", capture.url)
        rotated = payctl("webhook", "rotate", merchant.id)["signing_secret"]
        merchant.charge("0240000001")
        header, body = capture.next()
        t, *signatures = header.split(",")
        if len(signatures) != 2:
            sys.exit(f"a rotation's delivery is not signed twice: {header}")
        turned = ",".join([t, *reversed(signatures)])
        checks.expect(receiver, ACCEPTED, "rotation, the old secret", header, body)
        checks.expect(receiver, ACCEPTED, "rotation, the other way round", turned, body)
        checks.expect(receiver, REFUSED, "rotation, a byte changed", header, flip(body, 9))
        new_alone = sign(rotated, int(time.time()), body)
        checks.expect(receiver, REFUSED, "signed with the new secret only", new_alone, body)

    with Receiver(language, rotated, scratch) as receiver:
        merchant.charge("0240000001")
        header, body = capture.next()
        checks.expect(receiver, ACCEPTED, "rotation, the new secret", header, body)
        old_alone = sign(merchant.secret, int(time.time()), body)
        checks.expect(receiver, REFUSED, "signed with the old secret only", old_alone, body)
    print(f"{language}: {checks.count} deliveries answered as they must be", flush=True)


def wait_for_event(merchant, receiver):
    """Waits for the stack's first delivery to the receiver. Returns the event's id."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        # The first two of three deliveries went to the capturing endpoint.
        listed = payctl("webhook", "deliveries", merchant.id)
        if len(listed) == 3 and listed[0]["status"] == "DELIVERED":
            return listed[0]["event_id"]
        time.sleep(0.2)
    sys.exit(f"not delivered: {listed}")


def main():
    capture = Capture()
    with tempfile.TemporaryDirectory() as scratch:
        for language in commands(0):
            check(language, capture, scratch)


main()
