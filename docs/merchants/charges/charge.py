"""Charges a wallet, once: charge.py NUMBER PROVIDER PESEWAS ORDER. Needs API and KEY."""

import http.client
import json
import os
import sys
import time
import urllib.error
import urllib.request


def charge(number, provider, pesewas, order):
    """The answer's status and body. Repeats what got no answer, with the same key."""
    debit = {"amount": pesewas / 100, "mobile_number": number, "provider": provider}
    request = urllib.request.Request(
        f"{os.environ['API']}/api/v1/payments/charge",
        json.dumps(debit).encode(),
        {
            "Authorization": f"Bearer {os.environ['KEY']}",
            "Content-Type": "application/json",
            "Idempotency-Key": order,
        },
    )
    for _ in range(5):
        pause = 1
        try:
            with urllib.request.urlopen(request, timeout=15) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code != 429 and error.code < 500:
                body = json.load(error)
                if body.get("code") != "IDEMPOTENCY_IN_PROGRESS":
                    return error.code, body
            pause = int(error.headers.get("Retry-After", pause))
        except (OSError, http.client.HTTPException) as error:
            print(f"no answer: {error}", file=sys.stderr)
        time.sleep(pause)
    raise SystemExit("no answer; the payer may have been charged: try again with the same order")


number, provider, pesewas, order = sys.argv[1:]
status, body = charge(number, provider, int(pesewas), order)
print(json.dumps(body))
# 202: the payer has the prompt, or a code is wanted. Anything else: see "status" or "code".
sys.exit(0 if status == 202 else 1)
