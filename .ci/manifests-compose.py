"""Follows the guide's chapter on Compose word for word on a machine without a container engine.

Usage: manifests-compose.py ROOT. Runs the chapter's commands with our own `docker`, which reads the actual compose file and starts
its services as processes of this machine: our binaries from target/debug, Debian's PostgreSQL and Redis. Every service gets a
loopback address in place of a container, which replaces its name in the settings. This cannot test the containers themselves:
images, networks, volumes, limits.
"""

import contextlib
import hashlib
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import yaml

HERE = pathlib.Path(__file__).resolve()
BINARIES = pathlib.Path(os.environ.get("BINARIES", HERE.parent.parent / "target/debug"))
# In seconds, long enough for a loaded machine.
GUIDE_MAX = 600
HEALTHY_MAX = 120


def as_postgres(*command):
    """The command as PostgreSQL's user, because PostgreSQL refuses to run as root."""
    if os.getuid() == 0:
        command = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", *command]
    return [str(word) for word in command]


def postgres_programs():
    return max(pathlib.Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name))


class Project:
    """The parts of `docker compose` that the guide uses, for the file in a folder."""

    def __init__(self, folder):
        self.folder = folder
        self.state = folder / "state"
        self.compose = yaml.safe_load((folder / "docker-compose.yml").read_text())
        self.services = self.compose["services"]
        # Those that others wait for until they have completed successfully.
        self.completed = {
            other
            for service in self.services.values()
            for other, condition in service.get("depends_on", {}).items()
            if condition["condition"] == "service_completed_successfully"
        }
        dotenv = folder / ".env"
        lines = dotenv.read_text().splitlines() if dotenv.exists() else []
        self.dotenv = dict(line.split("=", 1) for line in lines)
        number = int((folder / "number").read_text())
        self.network = f"127.{100 + number // 250 % 100}.{number % 250 + 1}"

    def address(self, name):
        return f"{self.network}.{10 + list(self.services).index(name)}"

    def here(self, text, own="gateway"):
        """The text with addresses of this machine in place of service names and published ports."""
        for name in self.services:
            text = re.sub(rf"(?<=[/@]){name}(?=:\d)", self.address(name), text)
        text = text.replace("host.docker.internal", f"{self.network}.1").replace("172.16.0.0/12", "127.0.0.0/8")
        text = re.sub(r"127\.0\.0\.1(?=:80\d\d)", self.address("gateway"), text)
        return text.replace("0.0.0.0:", f"{self.address(own)}:")

    def environment(self, name):
        service, values = self.services[name], {}
        for variable, value in service.get("environment", {}).items():
            if value is not None:
                values[variable] = re.sub(r"\$\{(\w+):\?([^}]*)\}", self.required, str(value))
            elif variable in self.dotenv:
                values[variable] = self.dotenv[variable]
        for volume in service.get("volumes", []):
            source, target = volume.split(":")
            values = {key: value.replace(target, str(self.state / source)) for key, value in values.items()}
        return {key: self.here(value, name) for key, value in values.items()}

    def required(self, match):
        if match[1] not in self.dotenv:
            sys.exit(f"required variable {match[1]} is missing a value: {match[2]}")
        return self.dotenv[match[1]]

    def up(self):
        # Check the required variables first, as Compose does.
        for name in self.services:
            self.environment(name)
        for name, service in self.services.items():
            if "profiles" not in service:
                self.start(name)
        for name, service in self.services.items():
            if "profiles" not in service:
                self.wait(name)

    def start(self, name):
        """Starts a service after its dependencies, unless it already runs with the same settings."""
        environment = self.environment(name)
        mark = hashlib.sha256(json.dumps(environment).encode()).hexdigest()
        kept = self.state / f"{name}.json"
        if kept.exists():
            running = json.loads(kept.read_text())
            if running["mark"] == mark:
                return
            end(running["pid"])
        for other, condition in self.services[name].get("depends_on", {}).items():
            self.start(other)
            if condition["condition"] == "service_healthy":
                self.wait(other)
        print(f"starting {name}", file=sys.stderr)
        log = (self.state / f"{name}.log").open("a")
        pid = getattr(self, f"start_{name}", self.start_ours)(name, environment, log)
        kept.write_text(json.dumps({"mark": mark, "pid": pid}))

    def start_ours(self, name, environment, log):
        for volume in self.services[name].get("volumes", []):
            (self.state / volume.split(":")[0]).mkdir(exist_ok=True)
        service = self.services[name]
        command = [BINARIES / service["build"]["args"]["SERVICE"], *service.get("command", [])]
        process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        if name in self.completed and process.wait() != 0:
            sys.exit(f"{name} did not complete:\n{(self.state / f'{name}.log').read_text()}")
        return process.pid

    def start_redis(self, name, _environment, log):
        command = [*self.services[name]["command"], "--bind", self.address(name), "--dir", str(self.state)]
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log).pid

    def start_postgres(self, name, environment, log):
        programs, data = postgres_programs(), self.state / "postgres"
        data.mkdir()
        password = data.parent / "password"
        password.write_text(environment["POSTGRES_PASSWORD"])
        if os.getuid() == 0:
            shutil.chown(data, "postgres")
            shutil.chown(password, "postgres")
        initdb = [programs / "initdb", "-D", data, "-U", "postgres", "-A", "scram-sha-256", f"--pwfile={password}"]
        subprocess.run(as_postgres(*initdb), stdout=log, stderr=log, check=True)
        limits = ["-c", f"listen_addresses={self.address(name)}", "-c", f"unix_socket_directories={data}", "-c", "fsync=off"]
        command = as_postgres(programs / "postgres", "-D", data, *self.services[name]["command"][1:], *limits)
        pid = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log).pid
        self.wait(name, pid)
        (script,) = self.services[name]["configs"]
        file = self.folder / self.compose["configs"][script["source"]]["file"]
        client = {"PGPASSWORD": environment["POSTGRES_PASSWORD"], "PATH": os.environ["PATH"], **environment}
        psql = ["psql", "-h", self.address(name), "-U", "postgres", "-v", "ON_ERROR_STOP=1", "--quiet", "--file", file]
        subprocess.run(psql, env=client, check=True)
        return pid

    def wait(self, name, pid=None):
        """Waits until its own health check passes."""
        test = self.services[name]["healthcheck"].get("test")
        if not test:
            return
        command = [BINARIES / name if word == "/app" else word for word in test[1:]]
        command = [str(word).replace("127.0.0.1", self.address(name)) for word in command]
        if name == "redis":
            command[1:1] = ["-h", self.address(name)]
        pid = pid or json.loads((self.state / f"{name}.json").read_text())["pid"]
        environment = self.environment(name) | {"PATH": f"{postgres_programs()}:{os.environ['PATH']}"}
        deadline = time.monotonic() + HEALTHY_MAX
        while subprocess.run(command, env=environment, capture_output=True).returncode != 0:
            if time.monotonic() > deadline or not lives(pid):
                sys.exit(f"{name} is not healthy:\n{(self.state / f'{name}.log').read_text()}")
            time.sleep(0.1)

    def run(self, name, arguments):
        return subprocess.run([BINARIES / name, *arguments], env=self.environment(name)).returncode

    def down(self):
        """Ends everything, each service before those that it depends on."""
        for kept in sorted(self.state.glob("*.json"), key=lambda kept: kept.stat().st_mtime_ns, reverse=True):
            # The stop signal of PostgreSQL's image: it does not wait for clients to disconnect.
            end(json.loads(kept.read_text())["pid"], signal.SIGINT if kept.stem == "postgres" else signal.SIGTERM)
            kept.unlink()


def lives(pid):
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def end(pid, how=signal.SIGTERM):
    """Stops a process as an engine stops a container: with a signal, then SIGKILL after a minute."""
    if lives(pid):
        os.kill(pid, how)
    deadline = time.monotonic() + 60
    while lives(pid):
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def docker(words):
    """The `docker` of the guide's commands."""
    project = Project(pathlib.Path.cwd())
    match words:
        case ["compose", "up", *flags] if {"--detach", "--wait"} <= set(flags) <= {"--build", "--detach", "--wait"}:
            project.up()
        case ["compose", "run", "--rm", "-T", "payctl", *arguments]:
            return project.run("payctl", arguments)
        case ["compose", "down"]:
            project.down()
        case _:
            sys.exit(f"docker {shlex.join(words)} is not known here")
    return 0


def chapter(guide):
    """The commands of the chapter on Compose, in order."""
    text = re.search(r"^## With Docker Compose\n(.*?)^## ", guide, re.MULTILINE | re.DOTALL)[1]
    blocks = re.findall(r"^( *)```sh\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL)
    return [re.sub(rf"^{indent}", "", block, flags=re.MULTILINE) for indent, block in blocks]


def follow(root):
    folder = pathlib.Path(tempfile.mkdtemp(dir=os.environ.get("SCRATCH")))
    # PostgreSQL's user must be able to reach its data.
    folder.chmod(0o711)
    for name in ["docker-compose.yml", "k8s"]:
        copy = shutil.copytree if (root / name).is_dir() else shutil.copy
        copy(root / name, folder / name)
    (folder / "state").mkdir()
    (folder / "number").write_text(str(os.getpid()))
    (folder / "bin").mkdir()
    (folder / "bin/docker").write_text(f'#!/bin/sh\nexec {sys.executable} {HERE} docker "$@"\n')
    (folder / "bin/docker").chmod(0o755)
    project = Project(folder)
    # Without the passwords it must refuse to start anything.
    environment = os.environ | {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "no_proxy": "*"}
    refused = subprocess.run(["docker", "compose", "up", "--detach", "--wait"], cwd=folder, env=environment, capture_output=True, text=True)
    assert refused.returncode != 0 and "docs/operators/deploy.md" in refused.stderr, refused
    commands = chapter((root / "docs/operators/deploy.md").read_text())
    assert len(commands) >= 8, commands
    script = "\n".join(["set -euo pipefail", *(project.here(block) for block in commands)])
    script = script.replace('("0.0.0.0", 9000)', f'("{project.network}.1", 9000)')
    pipe = subprocess.PIPE
    shell = subprocess.Popen(
        ["bash", "-c", script], cwd=folder, env=environment, stdout=pipe, stderr=pipe, text=True, start_new_session=True
    )
    try:
        said, noted = shell.communicate(timeout=GUIDE_MAX)
        print(noted + said)
        assert shell.returncode == 0, f"the guide's commands end with {shell.returncode}"
        assert '"status":"SETTLED"' in said, "the guide's payment did not settle"
        assert '"DELIVERED"' in said, "the guide's webhook was not delivered"
        left = list((folder / "state").glob("*.json"))
        assert not left, f"{left} run after the guide's end"
    except (AssertionError, subprocess.TimeoutExpired):
        for log in sorted((folder / "state").glob("*.log")):
            print(f"-- {log.name}\n" + "\n".join(log.read_text().splitlines()[-20:]))
        raise
    finally:
        Project(folder).down()
        # Kills what the guide's commands left in the background.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGKILL)
        shutil.rmtree(folder)
    print(f"{len(commands)} blocks of the guide were followed")


if __name__ == "__main__":
    if sys.argv[1] == "docker":
        sys.exit(docker(sys.argv[2:]))
    # So that SIGTERM also ends what was started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    follow(pathlib.Path(sys.argv[1]).resolve())
