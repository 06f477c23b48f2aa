"""Receives webhooks. Start it with WEBHOOK_SECRET set, and PORT if 9000 is taken."""

import hashlib
import hmac
import os
import re
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SECRET = os.environ["WEBHOOK_SECRET"].encode()
TOLERANCE_SECONDS = 300
BODY_BYTES_MAX = 64 * 1024


def is_genuine(header, body):
    """Whether the service signed this body, with this secret, within the last five minutes."""
    parts = header.split(",")
    sent_at = next((part[2:] for part in parts if part.startswith("t=")), "")
    if not re.fullmatch("[0-9]{1,12}", sent_at):
        return False
    if abs(time.time() - int(sent_at)) > TOLERANCE_SECONDS:
        return False
    mac = hmac.new(SECRET, sent_at.encode() + b"." + body, hashlib.sha256)
    expected = f"v1={mac.hexdigest()}".encode()
    # During a rotation there are two v1. One that matches is enough.
    return any(hmac.compare_digest(expected, part.encode()) for part in parts)


class Webhooks(BaseHTTPRequestHandler):
    def do_POST(self):
        length = int(self.headers.get("Content-Length", 0))
        if not 0 <= length <= BODY_BYTES_MAX:
            return self.answer(413)
        # The raw bytes: parsed and written again, they would not be what was signed.
        body = self.rfile.read(length)
        if not is_genuine(self.headers.get("X-Service-Signature", ""), body):
            return self.answer(400)
        # Keep the event under its id, once, and answer. Work on it afterwards.
        print(body.decode(), flush=True)
        self.answer(204)

    def answer(self, status):
        self.send_response(status)
        self.end_headers()


address = ("127.0.0.1", int(os.environ.get("PORT", 9000)))
ThreadingHTTPServer(address, Webhooks).serve_forever()
