"""What the document says in words and a schema cannot express: how to generate valid values, and
that created records are found again."""

import re
from datetime import datetime
from decimal import ROUND_DOWN, ROUND_HALF_UP, Decimal
from hashlib import sha256
from itertools import count

import schemathesis
from hypothesis import strategies as st

# The decimals of amounts in these currencies. All others have two (ISO 4217).
DECIMALS = {
    0: "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF".split(),
    3: "BHD IQD JOD KWD LYD OMR TND".split(),
    4: "CLF UYW".split(),
}

# Every reference and session that the API returned, and the references of charges that need a code.
known, awaiting_code = set(), []
turn = count()

# A place in a list of anything but customers.
UUID = "7f8e3a52-30d1-4c0a-9d7e-0a1b2c3d4e5f"

# The seconds that a request may wait.
WAITS = {str(seconds) for seconds in range(1, 31)}
waits = count()


def digits(number):
    return st.text("0123456789", min_size=number, max_size=number)


# The last three digits choose what the simulated network does (README).
story = st.integers(1, 15).map("{:03}".format) | st.just("002") | digits(3)
ghana = st.builds(
    lambda *parts: "".join(parts),
    st.sampled_from(["0", "233", "+233", "00233", "+233 "]),
    st.sampled_from("24567"),
    digits(5),
    story,
)
abroad = digits(10).map("+44{}".format)
word = st.from_regex(r"[a-z]([a-z0-9]{0,20}[a-z0-9])?", fullmatch=True)
path = st.from_regex(r"[a-z0-9/_-]{0,40}(\?[a-z]=[a-z0-9]{0,10})?", fullmatch=True)
address = st.builds("{}://{}.example/{}".format, st.sampled_from(["http", "https"]), word, path)

schemathesis.openapi.format("ghana-mobile-number", ghana)
schemathesis.openapi.format("phone-number", ghana | abroad)
schemathesis.openapi.format("uri", address)


@schemathesis.hook
def before_call(context, case, **kwargs):
    # Generated keys are short and collide often. Most should only ever meet the same request.
    key = (case.headers or {}).get("Idempotency-Key")
    if isinstance(key, str) and re.fullmatch("[!-~]{1,200}", key):
        request = sha256(repr(case.body).encode()).hexdigest()
        if request[0] < "c":
            case.headers["Idempotency-Key"] = key + request[:16]
    # A valid wait is kept for a second, and only by every twentieth that has one.
    if str((case.query or {}).get("wait")) in WAITS:
        if next(waits) % 20:
            del case.query["wait"]
        else:
            case.query["wait"] = 1
    # A cursor means nothing to callers, so the document does not say what it looks like.
    if isinstance((case.query or {}).get("cursor"), str):
        place = "CUS-0000000000" if "/customers" in case.operation.path else UUID
        case.query["cursor"] = f"4102444800000.{place}"
    # No time is before the one that a list begins with.
    if is_time((case.query or {}).get("from")) and is_time(case.query.get("to")):
        case.query["from"], case.query["to"] = sorted((case.query["from"], case.query["to"]), key=moment)
    if not isinstance(case.body, dict):
        return
    amount = case.body.get("amount")
    if type(amount) in (int, float) and 0 < amount < 10**10:
        case.body = {**case.body, "amount": exact(amount, case.body.get("currency"))}
    # Every other code is for a charge that may need one: a generated reference never exists.
    if case.operation.path.endswith("/submit-otp") and awaiting_code and next(turn) % 2:
        if str(case.body.get("reference")).startswith("TX-"):
            case.body = {**case.body, "reference": awaiting_code[-1]}


def moment(text):
    return datetime.fromisoformat(text.upper().replace("Z", "+00:00"))


def is_time(text):
    """Whether both sides can read it. Others stay as they were generated."""
    try:
        return moment(text).tzinfo is not None
    except (AttributeError, TypeError, ValueError):
        return False


def exact(amount, currency):
    """Rounds to the currency's decimals, because a binary fraction has more than any currency."""
    places = next((n for n, codes in DECIMALS.items() if currency in codes), 2)
    unit = Decimal(1).scaleb(-places)
    most = Decimal("9999999999.99").quantize(unit, ROUND_DOWN)
    amount = min(max(Decimal(repr(amount)).quantize(unit, ROUND_HALF_UP), unit), most)
    return float(amount) if places else int(amount)


@schemathesis.check
def created_records_are_found(ctx, response, case):
    """A reference or session that the API returned never gets a 404."""
    if response.status_code in (201, 202, 422):
        told = response.json()
        known.update(value for name, value in told.items() if name in ("reference", "session_id"))
        if told.get("status") == "OTP_REQUIRED":
            awaiting_code.append(told["reference"])
    body = case.body if isinstance(case.body, dict) else {}
    asked = [*(case.path_parameters or {}).values(), body.get("reference")]
    lost = [name for name in asked if isinstance(name, str) and name in known]
    assert response.status_code != 404 or not lost, f"not found again: {lost}"
