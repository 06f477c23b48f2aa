"""Follows the README and the guides word for word, as a reader would.

Runs every `sh` block in the order of the text: what keeps running (the stack, a receiver) in its
own terminal, everything else in one that keeps its variables. A `json` or `http` block is the
answer to the commands before it, or an event that a receiver printed: the real one must have the
same fields, types and fixed values. `cargo run` runs the already built binary on free ports, which
replace the addresses in the text. Nothing else is changed.

    guides-commands.py BINARIES_FOLDER
"""

import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

# No verdict depends on how long anything takes. This only ends what is stuck.
PATIENCE_SECONDS = 180

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
GUIDES = REPOSITORY / "docs" / "merchants"
OPERATORS = REPOSITORY / "docs" / "operators"
LANGUAGES = {"python": "py", "js": "mjs", "php": "php", "go": "go"}

# .ci/run itself runs the tests.
LEFT_OUT = ("cargo test --workspace",)

# These differ between runs, so only their form is compared.
VARYING = set(
    """
    reference transaction_id tx_id_display session_id payment_url id created_at updated_at
    expires_at request_id network_reference merchant_id endpoint_id signing_secret previous_signing_secret url
    last_sequence exhausted_since delivery_id event_id started_at finished_at duration_ms now
    at last_at case_id opened_at closed_at key_id hint refund_id payout_id held_until customer_id last_payment_at available completed_at held_minor
    """.split()
)
VARYING_HEADERS = {"x-request-id", "ratelimit", "retry-after"}

PRELUDE = """
cargo() {
    local binary=stack flags=$STACK_FLAGS
    case "$*" in
        "run -p payctl -- "* | "run --quiet -p payctl -- "*) binary=payctl flags= ;;
        "run" | "run -- "*) ;;
        *) echo "cargo $* is not known here" >&2; return 1 ;;
    esac
    while [ $# -gt 0 ] && [ "$1" != -- ]; do shift; done
    [ $# -eq 0 ] || shift
    $STAYS "$BINARIES/$binary" "$@" $flags
}
"""


class Wrong(Exception):
    """The text and the product disagree."""


def quiet_port():
    """A free port below those that the system assigns by itself."""
    for port in range(20_000 + os.getpid() % 5_000, 32_000):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue
    sys.exit("no free port")


class Reader:
    """Someone at two terminals, in an empty folder with nothing but the documentation."""

    def __init__(self, folder, binaries):
        self.folder = folder
        self.binaries = binaries
        (folder / "docs").symlink_to(REPOSITORY / "docs")
        scratch = folder / ".reader"
        scratch.mkdir()
        self.scratch = scratch
        # Every answer's status goes to stderr.
        (scratch / ".curlrc").write_text('write-out = "%{stderr}HTTP %{http_code}\\n"\n')
        self.receiver_port = quiet_port()
        self.addresses = {
            "127.0.0.1:9000": f"127.0.0.1:{self.receiver_port}",
            # Nothing listens there.
            "127.0.0.1:9009": "127.0.0.1:9",
        }
        flags = [f"--{door} 127.0.0.1:0" for door in ("api", "checkout", "dashboard", "handset")]
        self.environment = os.environ | {
            "BINARIES": str(binaries),
            "CURL_HOME": str(scratch),
            "PORT": str(self.receiver_port),
            "STACK_FLAGS": " ".join(flags),
            "STAYS": "",
        }
        self.stack = None
        self.receiver = None
        self.listener = None
        self.printed = []
        self.count = 0
        self.terminal = subprocess.Popen(
            ["bash"], cwd=folder, env=self.environment, stdin=subprocess.PIPE, text=True
        )
        self.terminal.stdin.write(f"{PRELUDE}\nset -e -o pipefail\n")

    def rewritten(self, text):
        for address, real in self.addresses.items():
            text = text.replace(address, real)
        return text

    def run(self, block, said):
        """Runs a block. `said` is the prose before it. Returns its output and HTTP statuses."""
        self.count += 1
        last = block.splitlines()[-1]
        starts_stack = last.startswith("cargo run") and "-p payctl" not in last
        if starts_stack and self.stack:
            if "stop" not in said.lower():
                raise Wrong("the stack runs already, and nobody said to stop it")
            self.stop_stack()
        if starts_stack and "--demo" not in last:
            self.start_stack(block)
            return "", []
        if re.match(r"(python3|node|php|go run) .*docs/merchants/webhooks/receiver\.", last):
            self.start_receiver(block)
            return "", []
        if " -p payctl -- listen " in last:
            self.start_listener(block)
            return "", []
        return self.run_here(block)

    def run_here(self, block):
        base = self.scratch / str(self.count)
        base.with_suffix(".sh").write_text(self.rewritten(block) + "\n")
        self.terminal.stdin.write(
            f"source {base}.sh < /dev/null > {base}.out 2> {base}.err\n: > {base}.done\n"
        )
        self.terminal.stdin.flush()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not base.with_suffix(".done").exists():
            if self.terminal.poll() is not None or time.monotonic() > deadline:
                raise Wrong(f"it failed, or did not end\n{self.output(base)}")
            time.sleep(0.02)
        statuses = re.findall(r"^HTTP (\d+)$", base.with_suffix(".err").read_text(), re.M)
        return base.with_suffix(".out").read_text(), [int(status) for status in statuses]

    def output(self, base):
        return "\n".join(
            path.read_text() for path in (base.with_suffix(".out"), base.with_suffix(".err"))
            if path.exists()
        )

    def start(self, block, name, exec_word):
        """Runs a block in its own terminal."""
        output = self.scratch / f"{self.count}-{name}"
        with output.open("wb") as file:
            process = subprocess.Popen(
                ["bash", "-c", f"{PRELUDE}\nset -e\n{self.rewritten(block)}"],
                cwd=self.folder,
                env=self.environment | {"STAYS": exec_word},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return process, output

    def wait_until(self, is_so, process, output, what):
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not is_so():
            if process.poll() is not None or time.monotonic() > deadline:
                raise Wrong(f"{what} did not start\n{output.read_text()[-2000:]}")
            time.sleep(0.05)

    def start_stack(self, block):
        asked = re.search(r"--ready-file (\S+)", block)
        ready = self.folder / asked[1] if asked else self.scratch / "ready.json"
        ready.unlink(missing_ok=True)
        if not asked:
            # Only to learn the addresses that `cargo run` prints.
            block += f" -- --ready-file {ready}"
        self.stack, output = self.start(block, "stack", "exec")
        self.wait_until(ready.exists, self.stack, output, "the stack")
        doors = json.loads(ready.read_text())
        for door, port in (("api", 8080), ("checkout", 8081), ("handset", 8083)):
            self.addresses[f"127.0.0.1:{port}"] = doors[door].removeprefix("http://")

    def stop_stack(self):
        self.stack.send_signal(signal.SIGTERM)
        self.stack.wait(PATIENCE_SECONDS)
        self.stack = None

    def start_receiver(self, block):
        self.stop_receiver()
        self.receiver, output = self.start(block, "receiver", "")
        self.printed.append(output)
        self.wait_until(self.receiver_answers, self.receiver, output, "the receiver")

    def start_listener(self, block):
        self.listener, output = self.start(block, "listener", "exec")
        begun = lambda: output.read_text().startswith("Events after ")
        self.wait_until(begun, self.listener, output, "the listener")

    def receiver_answers(self):
        try:
            socket.create_connection(("127.0.0.1", self.receiver_port), timeout=5).close()
            return True
        except OSError:
            return False

    def stop_receiver(self):
        if self.receiver:
            os.killpg(self.receiver.pid, signal.SIGKILL)
            self.receiver.wait()
            self.receiver = None
            while self.receiver_answers():
                time.sleep(0.05)

    def expect_event(self, documented):
        """Waits until a receiver has printed an event like the documented one."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            lines = "".join(path.read_text() for path in self.printed).splitlines()
            events = [parsed(line) for line in lines if line.startswith('{"id"')]
            if any(not differences(documented, event) for event in events):
                return
            if time.monotonic() > deadline:
                raise Wrong(f"no receiver got an event like that; of {len(events)}:\n{events}")
            time.sleep(0.1)

    def close(self):
        if self.listener:
            self.listener.send_signal(signal.SIGTERM)
            self.listener.wait(PATIENCE_SECONDS)
        self.stop_receiver()
        if self.stack:
            self.stop_stack()
        self.terminal.kill()
        self.terminal.wait()


class Digits(str):
    """A JSON number as it is written."""


def parsed(text):
    return json.loads(text, parse_float=Digits, parse_int=Digits)


def last_json(output):
    """The last JSON object or array in an output."""
    decoder = json.JSONDecoder(parse_float=Digits, parse_int=Digits)
    found, at = None, 0
    while opening := re.compile(r"[{\[]").search(output, at):
        try:
            found, at = decoder.raw_decode(output, opening.start())
        except json.JSONDecodeError:
            at = opening.end()
    if found is None:
        raise Wrong(f"no JSON in the output:\n{output}")
    return found


def form(value):
    """The form of a varying value: its punctuation, without its letters and digits."""
    return re.sub(r"[0-9A-Za-z+/=]+", "x", value)


def differences(documented, real, path=""):
    """Where the real answer differs from the documented one."""
    if type(documented) is not type(real):
        return [f"{path}: documented {documented!r}, real {real!r}"]
    if isinstance(documented, dict):
        wrong = [f"{path}.{key} is documented only" for key in documented.keys() - real.keys()]
        wrong += [f"{path}.{key} is not documented" for key in real.keys() - documented.keys()]
        for key in documented.keys() & real.keys():
            wrong += differences(documented[key], real[key], f"{path}.{key}")
        return wrong
    if isinstance(documented, list):
        goes_on = documented[-1:] == ["…"]
        shown = documented[:-1] if goes_on else documented
        if len(real) < len(shown) or (len(real) > len(shown) and not goes_on):
            return [f"{path}: {len(shown)} are documented, there are {len(real)}"]
        return [
            wrong
            for at, (one, other) in enumerate(zip(shown, real))
            for wrong in differences(one, other, f"{path}[{at}]")
        ]
    if path.rpartition(".")[2] in VARYING and isinstance(documented, str):
        documented, real = form(documented), form(real)
    return [] if documented == real else [f"{path}: documented {documented!r}, real {real!r}"]


def check_json(documented, output):
    wrong = differences(parsed(documented), last_json(output))
    if wrong:
        raise Wrong("\n".join(wrong) + f"\nreal: {output}")


def check_http(documented, output):
    head, _, body = documented.partition("\n\n")
    status, *headers = head.splitlines()
    lines = [line.rstrip() for line in output.splitlines()]
    if status not in lines:
        raise Wrong(f"{status} is not in the output:\n{output}")
    real = dict(line.split(": ", 1) for line in lines if re.match(r"[a-z-]+: ", line))
    for header in headers:
        name, value = header.split(": ", 1)
        is_varying = name in VARYING_HEADERS
        like = (lambda text: re.sub("[0-9a-f]+", "0", text)) if is_varying else str
        if name not in real or like(real[name]) != like(value):
            raise Wrong(f"{header} is documented, real: {real.get(name)}")
    if body:
        check_json(body, output)


def blocks(path):
    """Each fenced block: its line, its language, its text, and the prose before it."""
    said, block, language, indent, began = [], None, "", 0, 0
    for number, line in enumerate(path.read_text().splitlines(), 1):
        fence = re.match(r"( *)```(\w*)$", line)
        if fence and block is None:
            indent, language, block, began = len(fence[1]), fence[2], [], number
        elif fence:
            yield began, language, "\n".join(block), "\n".join(said)
            said, block = [], None
        elif block is None:
            said.append(line)
        else:
            block.append(line[indent:])


def follow(reader, paths, ran_before):
    for path in paths:
        listed = list(blocks(path))
        output = ""
        for at, (line, language, text, said) in enumerate(listed):
            try:
                if language == "sh":
                    # Long demonstrations run only once.
                    if text in LEFT_OUT or text in ran_before:
                        continue
                    if "--demo" in text:
                        ran_before.add(text)
                    output, statuses = reader.run(text, said)
                    answer = listed[at + 1][1] if at + 1 < len(listed) else ""
                    if max(statuses, default=0) >= 400 and answer not in ("json", "http"):
                        raise Wrong(f"HTTP {statuses}, and no such answer is documented\n{output}")
                elif language == "json" and '\n  "type": "payment.' in text:
                    reader.expect_event(parsed(text))
                elif language == "json":
                    check_json(text, output)
                elif language == "http":
                    check_http(text, output)
            except Wrong as wrong:
                name = path.relative_to(REPOSITORY)
                sys.exit(f"{name}, line {line}:\n\n{text}\n\n{wrong}")
    print(f"{', '.join(path.name for path in paths)}: {reader.count} blocks of commands run")


def guides():
    """The merchants' guides in the order in which their index lists them."""
    index = GUIDES / "README.md"
    listed = re.findall(r"^\d+\. \[.*?\]\((.*?)\)", index.read_text(), re.M)
    missing = {path.name for path in GUIDES.glob("*.md")} - set(listed) - {index.name}
    if missing:
        sys.exit(f"{index} does not list {missing}")
    return [GUIDES / name for name in listed]


def check_programs_are_shown(guide, programs):
    shown = {language: text for _, language, text, _ in blocks(GUIDES / guide)}
    for language, ending in LANGUAGES.items():
        program = GUIDES / f"{programs}.{ending}"
        if shown.get(language) != program.read_text().rstrip("\n"):
            sys.exit(f"{guide} does not show {program.name} as it is")


def check_nothing_is_missing():
    """Every code that merchants can see, and every story of the simulated networks, is explained."""
    def part(path, begin, end):
        text = (REPOSITORY / path).read_text()
        found = re.search(f"{begin}(.*?){end}", text, re.S)
        return found[1] if found else sys.exit(f"{path} has no {begin!r} that ends with {end!r}")

    kinds = part("gateway/src/error.rs", "fn kind", "fn ")
    fields = part("gateway/src/field_error.rs", "enum FieldCode", "}")
    reasons = part("chassis/src/failure.rs", "\nreasons! {", "\n}")
    stories = part("railsim/src/story.rs", "fn of", "fn ") + part("railsim/src/credit/story.rs", "fn of", "fn ")
    wanted = {
        "errors.md": re.findall(r'"([A-Z_]+)"', kinds)
        + re.findall(r'= "([A-Z_]+)"', fields),
        "charges.md": re.findall(r'= "([A-Z_]+)" {', reasons),
        "sandbox.md": re.findall(r'"(\d{3})"', stories),
    }
    for name, words in wanted.items():
        text = (GUIDES / name).read_text()
        missing = [word for word in words if not re.search(rf"(?<!\w){word}(?!\w)", text)]
        if missing or len(words) < 10:
            sys.exit(f"{name} does not explain {missing} of {len(words)}")


def check_links(paths):
    def anchors(path):
        headings = re.findall(r"^#+ (.*)$", path.read_text(), re.M)
        plain = [re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings]
        return {heading.replace(" ", "-") for heading in plain}

    for path in paths:
        for link in re.findall(r"\]\((?!https?:)(.*?)\)", path.read_text()):
            name, _, anchor = link.partition("#")
            target = (path.parent / name).resolve() if name else path
            if not target.exists() or (anchor and anchor not in anchors(target)):
                sys.exit(f"{path.relative_to(REPOSITORY)} links to {link}, which is not there")


def main():
    binaries = pathlib.Path(sys.argv[1]).resolve()
    readme, index = REPOSITORY / "README.md", GUIDES / "README.md"
    check_programs_are_shown("webhooks.md", "webhooks/receiver")
    check_programs_are_shown("in-your-language.md", "charges/charge")
    check_nothing_is_missing()
    # Each of these starts with starting a stack.
    operators = [[OPERATORS / name] for name in ("cases.md", "payouts.md", "reconciliation.md", "statements.md", "keys-and-secrets.md", "kyc.md")]
    check_links([*REPOSITORY.glob("*.md"), index, *guides(), *OPERATORS.glob("*.md")])
    ran_before = set()
    for paths in ([readme], guides(), *operators):
        folder = pathlib.Path(tempfile.mkdtemp())
        reader = Reader(folder, binaries)
        try:
            follow(reader, paths, ran_before)
        finally:
            reader.close()
            shutil.rmtree(folder)


main()
