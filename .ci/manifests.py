"""Checks that the image, the compose file, the Kubernetes manifests and their guide agree with the binaries.

Usage: manifests.py ROOT DEV PRODUCTION, with the repository's root and the overlays as kubectl renders them. The binaries are taken
from BINARIES (default: target/debug of this repository). Prints every disagreement, and exits with 1 if there are any.
"""

import base64
import functools
import ipaddress
import json
import os
import pathlib
import re
import secrets
import subprocess
import sys
import tempfile
from urllib.parse import urlsplit

import kubernetes_validate
import yaml

ROOT = pathlib.Path(sys.argv[1])
BINARIES = pathlib.Path(os.environ.get("BINARIES", pathlib.Path(__file__).parent.parent / "target/debug"))
SERVICES = ["gateway", "merchants-svc", "sessions-svc", "charges-svc", "webhooks-svc", "ratelimit-svc"]
ALL = SERVICES + ["railsim", "payctl"]
LISTENS = ["LISTEN", "OPERATORS_LISTEN", "ADMIN_LISTEN", "API_LISTEN", "CHECKOUT_LISTEN", "DASHBOARD_LISTEN", "RAILSIM_LISTEN", "RAILSIM_MAIL_LISTEN"]
# Addresses of our own, for people: no process connects to them.
PUBLIC_URLS = ["API_URL", "CHECKOUT_URL", "DASHBOARD_URL"]
# Where services listen to others, and where to operators.
GRPC_PORTS = [50051, 50052]
KUBERNETES = "1.37"
# Connections to reserve for people, backups and migrations.
SPARE_CONNECTIONS = 10

# Otherwise each of a hundred objects would read the same few schemas again.
kubernetes_validate.utils.schema_contents = functools.cache(kubernetes_validate.utils.schema_contents)

faults = []


def expect(is_good, where, what):
    if not is_good:
        faults.append(f"{where}: {what}")


# The binaries.


@functools.cache
def help_of(binary):
    done = subprocess.run([BINARIES / binary, "--help"], env={}, capture_output=True, text=True, check=True)
    commands = re.search(r"^Commands:\n((?:  .*\n)+)", done.stdout, re.MULTILINE)
    commands = re.findall(r"^  (\w+)", commands[1], re.MULTILINE) if commands else []
    return set(re.findall(r"\[env: (\w+)", done.stdout)), set(commands)


def takes(binary, environment, where):
    """Checks that the binary knows every variable, misses none that it requires, and accepts their values."""
    known, commands = help_of(binary)
    for name in environment.keys() - known:
        faults.append(f"{where}: {binary} knows no variable {name}")
    if "config" in commands:
        environment = {name: value.replace("/tls/", f"{certificates(binary)}/") for name, value in environment.items()}
        done = subprocess.run([BINARIES / binary, "config"], env=environment, capture_output=True, text=True)
        expect(done.returncode == 0, where, f"`{binary} config` ends with {done.returncode}: {done.stderr.strip()}")


@functools.cache
def certificates(binary):
    """A folder with certificates, like the one that production mounts for this process."""
    folder = tempfile.mkdtemp(dir=os.environ.get("SCRATCH"))
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc", "-subj", "/CN=test"]
    for name in ["ca", "tls"]:
        files = ["-keyout", f"{folder}/{name}.key", "-out", f"{folder}/{name}.crt"]
        name = ["-addext", f"subjectAltName=DNS:{binary}"]
        subprocess.run(["openssl", "req", "-x509", *key, *name, *files], check=True, capture_output=True)
    return folder


def drain_max(service):
    """Most seconds that a process takes from SIGTERM to its end, by the code's own constants."""

    def seconds(file, name):
        found = re.search(rf"const {name}: Duration = Duration::from_secs\((\d+)\)", (ROOT / file).read_text())
        return int(found[1])

    total = seconds("chassis/src/http.rs", "DRAIN_MAX") + seconds("chassis/src/admin.rs", "DRAIN_MAX")
    if "Frame::open" in (ROOT / service / "src/lib.rs").read_text():
        # Works and tasks drain by one deadline, then the database is closed.
        total += seconds("db/src/frame.rs", "DRAIN_MAX") + seconds("db/src/postgres.rs", "STATEMENT_AT_MOST")
    return total


def listening_ports(environment):
    return {int(environment[name].rsplit(":", 1)[1]) for name in LISTENS if name in environment}


def addresses(environment):
    """Every address of another process that is set: (variable, parts)."""
    for name, value in environment.items():
        if name.endswith("_URL") and name not in PUBLIC_URLS:
            yield name, urlsplit(value)


# Kubernetes.


class Overlay:
    def __init__(self, name, file):
        self.name = name
        self.objects = list(yaml.load_all(pathlib.Path(file).read_text(), yaml.CSafeLoader))
        for item in self.objects:
            self.validate(item)

    def validate(self, item):
        try:
            kubernetes_validate.validate(item, KUBERNETES, strict=True)
        except kubernetes_validate.ValidationError as error:
            faults.append(f"{self.where(item)}: {error.message}")

    def where(self, item):
        return f"{self.name} {item['kind']}/{item['metadata']['name']}"

    def of(self, *kinds):
        return [item for item in self.objects if item["kind"] in kinds]

    def get(self, kind, name):
        return next((item for item in self.of(kind) if item["metadata"]["name"] == name), None)

    def behind(self, name):
        """The workload that a Service leads to."""
        service = self.get("Service", name)
        if service is None:
            return None
        return next((item for item in self.workloads() if service["spec"]["selector"].items() <= labels_of(item).items()), None)

    def workloads(self):
        return self.of("Deployment", "StatefulSet", "Job")

    def environment(self, item):
        """Its container's environment, with plausible values for Secrets that are created elsewhere."""
        where, container = self.where(item), container_of(item)
        values = {}
        for source in container.get("envFrom", []):
            if "secretRef" in source:
                # What a Secret holds beyond the guide's keys must not override the reviewed settings.
                expect(not values, where, "the Secret must come before the settings")
                values |= self.whole_secret(source["secretRef"]["name"], where)
                continue
            name = source["configMapRef"]["name"]
            found = self.get("ConfigMap", name)
            expect(found, where, f"no ConfigMap {name}")
            values |= data_of(found or {})
        for variable in container.get("env", []):
            if "value" in variable:
                values[variable["name"]] = variable["value"]
                continue
            reference = variable["valueFrom"]["secretKeyRef"]
            values[variable["name"]] = self.secret(reference["name"], reference["key"], where)
        return values

    def whole_secret(self, name, where):
        """A Secret's keys are variables. One that is created elsewhere has those that the guide gives it."""
        found = self.get("Secret", name)
        if found:
            return data_of(found)
        keys = [key for secret, key in guide_secrets() if secret == name]
        expect(keys, where, f"docs/operators/deploy.md makes no Secret {name}")
        return {key: self.secret(name, key, where) for key in keys}

    def secret(self, name, key, where):
        found = self.get("Secret", name)
        if found:
            expect(key in data_of(found), where, f"Secret {name} has no {key}")
            return data_of(found).get(key, "")
        expect(self.name == "production", where, f"no Secret {name}")
        NEEDED_SECRETS.add((name, key))
        return plausible(name, key)


NEEDED_SECRETS = set()


def guide_secrets():
    """The Secrets that the guide has operators make: (name, key)."""
    guide = (ROOT / "docs/operators/deploy.md").read_text()
    made = set()
    for command in re.findall(r"create secret generic ([\w-]+) \\\n((?: +--from-literal.*\n)+)", guide):
        made |= {(command[0], key) for key in re.findall(r"--from-literal=(\w+)=", command[1])}
    return made


def plausible(service, key):
    database, word = service.removesuffix("-owner").removesuffix("-svc"), secrets.token_hex(24)
    return {
        "DATABASE_URL": f"postgres://{database}_svc:{word}@db.example.com/{database}?sslmode=verify-full",
        "MIGRATE_DATABASE_URL": f"postgres://{database}:{word}@db.example.com/{database}?sslmode=verify-full",
        "REDIS_URL": f"redis://:{word}@10.20.1.5:6379/",
        "WEBHOOK_SECRET_KEY": base64.b64encode(secrets.token_bytes(32)).decode(),
        "TOTP_SECRET_KEY": base64.b64encode(secrets.token_bytes(32)).decode(),
        "SMTP_URL": f"smtps://payments:{word}@mail.example.com",
        "STATEMENT_KEY": base64.b64encode(secrets.token_bytes(32)).decode(),
        "PAYSTACK_SECRET_KEY": f"sk_live_{word}",
        "MOMO_API_USER": "0b9d4b5e-31a7-4f2c-8d8e-6f1f0c2a9e77",
    }.get(key, word)


def data_of(item):
    secret = {name: base64.b64decode(value).decode() for name, value in item.get("data", {}).items() if item["kind"] == "Secret"}
    return secret or item.get("data", {})


def template_of(item):
    return item["spec"]["template"]


def container_of(item):
    return template_of(item)["spec"]["containers"][0]


def binary_of(item):
    name = container_of(item)["image"].rsplit("/", 1)[-1].rsplit(":", 1)[0]
    return name if name in ALL else None


def labels_of(item):
    return template_of(item)["metadata"]["labels"]


def selects(selector, labels):
    """Whether a label selector matches these labels."""
    wanted = selector.get("matchLabels", {}).items() <= labels.items()
    return wanted and all(
        labels.get(rule["key"]) in rule["values"] for rule in selector.get("matchExpressions", []) if rule["operator"] == "In"
    )


def check_pod(where, spec):
    """Checks the restricted Pod Security Standard and our own rules for every pod."""
    context = spec.get("securityContext", {})
    expect(spec.get("automountServiceAccountToken") is False, where, "gets a token for the API server")
    expect(context.get("runAsNonRoot") is True, where, "runAsNonRoot is not set")
    expect(context.get("runAsUser"), where, "runAsUser is not set")
    expect(context.get("seccompProfile") == {"type": "RuntimeDefault"}, where, "no seccompProfile")
    for name in ["hostNetwork", "hostPID", "hostIPC"]:
        expect(name not in spec, where, f"uses {name}")
    volumes = {volume["name"]: volume for volume in spec.get("volumes", [])}
    for volume in volumes.values():
        allowed = {"configMap", "emptyDir", "persistentVolumeClaim", "projected", "secret"}
        expect(volume.keys() - {"name"} <= allowed, where, f"the volume {volume['name']} is of another kind than {allowed}")
    expect(len(spec["containers"]) == 1 and "initContainers" not in spec, where, "has not one container")
    container = spec["containers"][0]
    context = container.get("securityContext", {})
    expect(context.get("allowPrivilegeEscalation") is False, where, "allowPrivilegeEscalation is not false")
    expect(context.get("readOnlyRootFilesystem") is True, where, "the root file system is writable")
    expect(context.get("capabilities") == {"drop": ["ALL"]}, where, "capabilities are not dropped")
    resources = container.get("resources", {})
    for kind in ["requests", "limits"]:
        expect(resources.get(kind, {}).keys() == {"cpu", "memory"}, where, f"no {kind} of cpu and memory")
    for mount in container.get("volumeMounts", []):
        is_known = mount["name"] in volumes or mount["name"] == "data"
        expect(is_known, where, f"mounts {mount['name']}, which is no volume")


DATABASES = ["DATABASE_URL", "MIGRATE_DATABASE_URL"]


def check_roles(where, is_migration, environment):
    """Checks that migrations have the role that owns the tables, and services only another one."""
    if "DATABASE_URL" not in environment:
        return
    expect(("MIGRATE_DATABASE_URL" in environment) == is_migration, where, "has the role that owns the tables, or lacks it")
    if is_migration:
        running, owner = (urlsplit(environment.get(name, "")) for name in DATABASES)
        expect(running.username != owner.username, where, "serves and migrates as one role")
        expect((running.hostname, running.path) == (owner.hostname, owner.path), where, "migrates another database than the one served")


def check_ports(where, item, environment):
    container = container_of(item)
    ports = {port["name"]: port["containerPort"] for port in container.get("ports", [])}
    if item["kind"] == "Job":
        expect(not ports, where, "a job listens to nobody")
        return
    expect(
        set(ports.values()) == listening_ports(environment),
        where,
        f"ports {sorted(ports.values())}, but it listens on {sorted(listening_ports(environment))}",
    )
    for name in ["startupProbe", "livenessProbe", "readinessProbe"]:
        probe = container.get(name, {})
        if "grpc" in probe:
            expect(probe["grpc"]["port"] == ports.get("grpc"), where, f"{name} asks port {probe['grpc']['port']}")
            expect("TLS_CERT" not in environment, where, f"{name} speaks no TLS, but the service does")
        elif "httpGet" in probe:
            wanted = {"startupProbe": "/healthz", "livenessProbe": "/healthz", "readinessProbe": "/readyz"}[name]
            is_good = probe["httpGet"] == {"path": wanted, "port": "admin"} and "admin" in ports
            expect(is_good or binary_of(item) == "railsim", where, f"{name} asks {probe['httpGet']}")
        else:
            expect(binary_of(item) == "railsim", where, f"no {name}")


def check_deployment(overlay, item):
    """Checks what each of our services needs so that it can be rolled out and drained without losing a call."""
    where, spec = overlay.where(item), item["spec"]
    name, labels = item["metadata"]["name"], labels_of(item)
    pod = template_of(item)["spec"]
    account = overlay.get("ServiceAccount", pod.get("serviceAccountName"))
    expect(account and account["automountServiceAccountToken"] is False, where, "no ServiceAccount of its own without a token")
    expect("replicas" not in spec, where, "sets replicas, which are the autoscaler's")
    expect(spec["strategy"].get("rollingUpdate", {}).get("maxUnavailable") == 0, where, "a rollout may take replicas away first")
    spread = [rule["topologyKey"] for rule in pod.get("topologySpreadConstraints", []) if selects(rule["labelSelector"], labels)]
    expect(set(spread) == {"topology.kubernetes.io/zone", "kubernetes.io/hostname"}, where, "is not spread over zones and nodes")
    budgets = [budget for budget in overlay.of("PodDisruptionBudget") if selects(budget["spec"]["selector"], labels)]
    expect(len(budgets) == 1, where, "has not one PodDisruptionBudget")
    scalers = [scaler for scaler in overlay.of("HorizontalPodAutoscaler") if scaler["spec"]["scaleTargetRef"]["name"] == name]
    expect(len(scalers) == 1, where, "has not one HorizontalPodAutoscaler")
    for scaler in scalers:
        replicas = scaler["spec"]
        expect(replicas["minReplicas"] <= replicas["maxReplicas"], overlay.where(scaler), "wants more replicas than it allows")
    policies = [policy for policy in overlay.of("NetworkPolicy") if policy["metadata"]["name"] == name]
    expect(len(policies) == 1, where, "has no NetworkPolicy")
    sleep = container_of(item).get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
    expect(sleep > 5, where, "callers, who look names up every 5 s, need longer than its preStop sleep")
    needed, grace = sleep + drain_max(name), pod.get("terminationGracePeriodSeconds", 30)
    expect(grace >= needed, where, f"is killed after {grace} s; sleep and drain may take {needed} s")
    wait = spec.get("minReadySeconds", 0)
    expect(wait >= grace, where, f"a rollout goes on after {wait} s, when one that may take {grace} s still stops")


def check_workload(overlay, item):
    where = overlay.where(item)
    pod, binary = template_of(item)["spec"], binary_of(item)
    check_pod(where, pod)
    for volume in pod.get("volumes", []):
        if "configMap" in volume:
            name = volume["configMap"]["name"]
            expect(overlay.get("ConfigMap", name), where, f"no ConfigMap {name}")
        if "secret" in volume:
            is_own = volume["secret"]["secretName"] == f"{binary}-tls"
            expect(is_own, where, f"mounts the Secret {volume['secret']['secretName']}")
    if item["kind"] != "Job":
        expect(selects(item["spec"]["selector"], labels_of(item)), where, "does not select its own pods")
    if not binary:
        return
    environment = overlay.environment(item)
    takes(binary, environment, where)
    check_ports(where, item, environment)
    check_roles(where, item["kind"] == "Job", environment)
    arguments = container_of(item).get("args", [])
    expect(set(arguments) <= help_of(binary)[1], where, f"{binary} has no command {arguments}")
    if binary in SERVICES:
        wanted = "production" if overlay.name == "production" else "development"
        expect(environment.get("MODE") == wanted, where, f"MODE is not {wanted}")
    if overlay.name == "production":
        tag = container_of(item)["image"].rsplit(":", 1)[-1]
        version = re.search(r'^version = "(.*)"', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)[1]
        expect(tag == version, where, f"the image's tag is {tag}, the workspace's version {version}")
    if item["kind"] == "Deployment" and binary in SERVICES:
        check_deployment(overlay, item)


def check_services(overlay):
    for service in overlay.of("Service"):
        where, selector = overlay.where(service), service["spec"]["selector"]
        expect(service["spec"].get("clusterIP") == "None", where, "is not headless")
        backends = [item for item in overlay.workloads() if selector.items() <= labels_of(item).items()]
        expect(len(backends) == 1, where, f"selects {len(backends)} workloads")
        for port in service["spec"]["ports"]:
            for backend in backends:
                ports = {p["name"]: p["containerPort"] for p in container_of(backend)["ports"]}
                expect(ports.get(port["targetPort"]) == port["port"], where, f"port {port['name']} leads to no such port")


def passes(overlay, direction, own, other, port):
    """Whether the policies of one workload let it call another (egress) or be called by it (ingress)."""
    peers = {"Egress": "to", "Ingress": "from"}[direction]
    for policy in overlay.of("NetworkPolicy"):
        spec = policy["spec"]
        if direction not in spec["policyTypes"] or not selects(spec["podSelector"], labels_of(own)):
            continue
        for rule in spec.get(direction.lower(), []):
            if any(entry.get("port", port) == port for entry in rule["ports"]):
                for peer in rule[peers]:
                    is_inside = peer.keys() == {"podSelector"}
                    if is_inside and selects(peer["podSelector"], labels_of(other)):
                        return True
    return False


def may_call(overlay, caller, callee, port):
    return passes(overlay, "Egress", caller, callee, port) and passes(overlay, "Ingress", callee, caller, port)


def check_network(overlay):
    """Checks that the policies allow exactly the calls that the settings require."""
    deny = overlay.get("NetworkPolicy", "default-deny")
    expect(deny and deny["spec"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}, overlay.name, "nothing is denied by default")
    needed = set()
    workloads = {overlay.where(item): item for item in overlay.workloads()}
    for where, caller in workloads.items():
        if not binary_of(caller):
            continue
        for variable, address in addresses(overlay.environment(caller)):
            service = overlay.get("Service", address.hostname)
            if not service:
                is_outside = "." in address.hostname
                expect(is_outside, where, f"{variable}: there is no Service {address.hostname}")
                continue
            callee = next(item for item in overlay.workloads() if service["spec"]["selector"].items() <= labels_of(item).items())
            ports = [port["port"] for port in service["spec"]["ports"]]
            expect((address.port or 5432) in ports, where, f"{variable}: {address.hostname} has no port {address.port}")
            if binary_of(callee) in SERVICES and address.scheme.startswith("http") and address.port in GRPC_PORTS:
                is_tls = "TLS_CERT" in overlay.environment(callee)
                expect((address.scheme == "https") == is_tls, where, f"{variable}: {address.scheme} is not what {address.hostname} speaks")
            # A migration only calls its database. The simulated networks call CALLBACK_BASE_URL, not charges-svc, which sets it.
            if caller["kind"] == "Job" and variable not in DATABASES or variable == "CALLBACK_BASE_URL":
                continue
            needed.add((where, overlay.where(callee), address.port or 5432))
    for where, caller in workloads.items():
        for to, callee in workloads.items():
            for port in {p["containerPort"] for p in container_of(callee).get("ports", [])}:
                call, allowed = (where, to, port), may_call(overlay, caller, callee, port)
                expect(allowed or call not in needed, where, f"may not call {to} on {port}, but must")
                expect(not allowed or call in needed, where, f"may call {to} on {port}, but need not")
    check_outside(overlay)


def check_outside(overlay):
    """Checks that what may call any public address may call no private one."""
    private = ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16", "127.0.0.0/8", "100.64.0.0/10"]
    for policy in overlay.of("NetworkPolicy"):
        for rule in policy["spec"].get("egress", []):
            for peer in rule["to"]:
                block = peer.get("ipBlock", {})
                network = ipaddress.ip_network(block.get("cidr", "192.0.2.0/32"))
                if network.prefixlen < 8 and network.version == 4:
                    kept = [ipaddress.ip_network(cidr) for cidr in block.get("except", [])]
                    for cidr in private:
                        is_kept = any(ipaddress.ip_network(cidr).subnet_of(other) for other in kept)
                        expect(is_kept, overlay.where(policy), f"lets {cidr} be called")
                expect("namespaceSelector" in peer or "podSelector" in peer or block, overlay.where(policy), "lets all be called")


def check_connections(overlay, server_max):
    """Checks that the database allows all connections that may be open at the same time."""
    total = SPARE_CONNECTIONS
    for item in overlay.workloads():
        environment = overlay.environment(item) if binary_of(item) else {}
        if "DATABASE_URL" not in environment:
            continue
        if item["kind"] == "Job":
            total += 2
            continue
        scaler = overlay.get("HorizontalPodAutoscaler", item["metadata"]["name"])
        # One that stops is not counted as a replica, and still serves.
        during_rollout = item["spec"]["strategy"]["rollingUpdate"]["maxSurge"] + 1
        total += (scaler["spec"]["maxReplicas"] + during_rollout) * int(environment["DATABASE_MAX_CONNECTIONS"])
    expect(total <= server_max, overlay.name, f"up to {total} connections, but max_connections is {server_max}")
    return total


def check_ingress(overlay):
    ingress = overlay.of("Ingress")[0]
    where, spec = overlay.where(ingress), ingress["spec"]
    environment = {}
    for name in ["gateway", "charges-svc"]:
        environment |= overlay.environment(overlay.get("Deployment", name))
    wanted = {
        urlsplit(environment["CALLBACK_BASE_URL"]).hostname: "api",
        urlsplit(environment["API_URL"]).hostname: "api",
        urlsplit(environment["CHECKOUT_URL"]).hostname: "checkout",
        urlsplit(environment["DASHBOARD_URL"]).hostname: "dashboard",
    }
    ports = {port["name"] for port in overlay.get("Service", "gateway")["spec"]["ports"]}
    found = {}
    for rule in spec["rules"]:
        (path,) = rule["http"]["paths"]
        service = path["backend"]["service"]
        expect(service["name"] == "gateway" and service["port"]["name"] in ports, where, f"{rule['host']} leads nowhere")
        found[rule["host"]] = service["port"]["name"]
    expect(found == wanted, where, f"has {found}; the settings say {wanted}")
    covered = {host for tls in spec.get("tls", []) for host in tls["hosts"]}
    expect(covered == found.keys(), where, f"TLS for {covered} alone")


def check_payctl(overlay):
    """Checks the pod that `kubectl run` creates with k8s/payctl.json."""
    override = json.loads((ROOT / "k8s/payctl.json").read_text())
    where = f"{overlay.name} k8s/payctl.json"
    container = override["spec"]["containers"][0]
    container |= {"image": "payments/payctl", "args": ["cases"]}
    metadata = {"name": "payctl", "labels": {"app.kubernetes.io/name": "payctl"}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, **override}
    overlay.validate(pod)
    check_pod(where, pod["spec"])
    settings = overlay.get("ConfigMap", container["envFrom"][0]["configMapRef"]["name"])
    expect(settings, where, "no ConfigMap for it")
    environment = data_of(settings or {})
    takes("payctl", environment, where)
    caller = {"spec": {"template": {"metadata": metadata, "spec": pod["spec"]}}}
    for variable, address in addresses(environment):
        callee = overlay.behind(address.hostname)
        expect(callee and may_call(overlay, caller, callee, address.port), where, f"may not call {variable}")
    callees = [overlay.behind(address.hostname) for _, address in addresses(environment)]
    check_operators(overlay, caller, {callee["metadata"]["name"] for callee in callees if callee})


def check_operators(overlay, payctl, wanted):
    """Checks that the ports for operators let payctl in, and no workload of ours, whatever that one's own policy says."""
    serving = set()
    for callee in overlay.of("Deployment"):
        name = callee["metadata"]["name"]
        ports = [port["containerPort"] for port in container_of(callee).get("ports", []) if port["name"] == "operators"]
        for port in ports:
            serving.add(name)
            expect(may_call(overlay, payctl, callee, port), f"{overlay.name} payctl", f"may not call {name} on {port}")
            for caller in overlay.workloads():
                is_let_in = passes(overlay, "Ingress", callee, caller, port)
                expect(not is_let_in, overlay.where(caller), f"is let in where only operators may be, by {name} on {port}")
    expect(serving == wanted, f"{overlay.name} payctl", f"calls {sorted(wanted)}; operators are served by {sorted(serving)}")


def check_loadtest(overlay):
    """Checks the job that is applied beside the overlay with k8s/loadtest.yaml."""
    objects = list(yaml.load_all((ROOT / "k8s/loadtest.yaml").read_text(), yaml.CSafeLoader))
    for item in objects:
        overlay.validate(item)
    (job,) = [item for item in objects if item["kind"] == "Job"]
    where, container = f"{overlay.name} k8s/loadtest.yaml", container_of(job)
    check_pod(where, template_of(job)["spec"])
    command = [BINARIES / "loadtest", *container["args"], "--help"]
    done = subprocess.run(command, env={}, capture_output=True, text=True)
    expect(done.returncode == 0, where, f"loadtest refuses its arguments: {done.stderr.strip()}")
    both = Overlay.__new__(Overlay)
    both.name, both.objects = overlay.name, overlay.objects + objects
    for argument in container["args"]:
        flag, _, url = argument.partition("=")
        if flag.endswith("-url"):
            callee = overlay.behind(urlsplit(url).hostname)
            expect(callee and may_call(both, job, callee, urlsplit(url).port), where, f"may not call {url}")


def check_overlay(name, file):
    overlay = Overlay(name, file)
    for item in overlay.workloads():
        check_workload(overlay, item)
    found = {binary_of(item) for item in overlay.of("Deployment")} - {None}
    expect(found >= set(SERVICES), name, f"deploys {sorted(found)} alone")
    migrated = {binary_of(item) for item in overlay.of("Job")}
    with_database = {binary_of(item) for item in overlay.of("Deployment") if binary_of(item) and "DATABASE_URL" in overlay.environment(item)}
    expect(migrated == with_database, name, f"migrates {sorted(migrated)}; databases have {sorted(with_database)}")
    for namespace in overlay.of("Namespace"):
        level = namespace["metadata"]["labels"].get("pod-security.kubernetes.io/enforce")
        expect(level == "restricted", overlay.where(namespace), f"enforces {level}")
        inside = {item["metadata"].get("namespace") for item in overlay.objects if item["kind"] != "Namespace"}
        expect(inside == {namespace["metadata"]["name"]}, name, f"is in the namespaces {inside}")
    expect(len(overlay.of("Namespace")) == 1, name, "has not one namespace")
    check_services(overlay)
    check_network(overlay)
    check_payctl(overlay)
    return overlay


# Compose.


def compose_value(text, environment):
    """Replaces `${NAME:?message}` from the environment and `$$` with a dollar sign, as Compose does."""

    def value(match):
        if match[0] == "$$":
            return "$"
        return environment[match[1]]

    return re.sub(r"\$\$|\$\{(\w+)(?::\?[^}]*)?\}", value, text)


def compose_environment(service, environment):
    """A service's variables. One without a value is passed on if it is set."""
    values = {}
    for name, value in service.get("environment", {}).items():
        if value is not None:
            values[name] = compose_value(str(value), environment)
        elif name in environment:
            values[name] = environment[name]
    return values


def check_compose():
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    services = compose["services"]
    names = ["POSTGRES", "MERCHANTS", "SESSIONS", "CHARGES", "WEBHOOKS"]
    names += [f"{name}_SVC" for name in names[1:]]
    passwords = {f"{name}_PASSWORD": secrets.token_hex(24) for name in names}
    passwords["WEBHOOK_SECRET_KEY"] = plausible("webhooks-svc", "WEBHOOK_SECRET_KEY")
    passwords["TOTP_SECRET_KEY"] = plausible("merchants-svc", "TOTP_SECRET_KEY")
    passwords["STATEMENT_KEY"] = plausible("charges-svc", "STATEMENT_KEY")
    built = {name: service["build"]["args"]["SERVICE"] for name, service in services.items() if "build" in service}
    migrations = {name: f"{name}-migrate" for name in built if f"{name}-migrate" in services}
    wanted = {name: name for name in ALL} | {migration: name for name, migration in migrations.items()}
    expect(built == wanted, "compose", f"builds {built}")
    ports = {name: service["ports"] for name, service in services.items() if "ports" in service}
    wanted = {"gateway": [f"127.0.0.1:{port}:{port}" for port in (8080, 8081, 8082)], "railsim": ["127.0.0.1:8083:8083"]}
    expect(ports == wanted, "compose", f"publishes {ports}")
    connections, server_max = SPARE_CONNECTIONS, 0
    for name, service in services.items():
        where = f"compose {name}"
        expect(service.get("read_only") is True, where, "the root file system is writable")
        expect(service.get("cap_drop") == ["ALL"], where, "capabilities are not dropped")
        expect(service.get("security_opt") == ["no-new-privileges:true"], where, "may get new privileges")
        networks = set(service["networks"])
        may_leave = any(not compose["networks"][network].get("internal") for network in networks)
        expect(may_leave == (name in ["gateway", "webhooks-svc", "railsim"]), where, f"the networks {networks} lead outside, or do not")
        for other, condition in service.get("depends_on", {}).items():
            is_migration = other in migrations.values()
            awaited = condition["condition"] == "service_completed_successfully"
            expect(is_migration == awaited, where, f"waits for {other} to be {condition['condition']}")
            has_check = not services[other]["healthcheck"].get("disable")
            expect(has_check or condition["condition"] != "service_healthy", where, f"waits for {other}, which has no health")
        if name == "postgres":
            server_max = int(service["command"][-1].partition("=")[2])
        if name not in built:
            continue
        environment = compose_environment(service, passwords)
        takes(built[name], environment, where)
        check_roles(where, name != built[name], environment)
        if name != built[name]:
            expect(service.get("command") == ["migrate"], where, "does not migrate")
            connections += 2
            continue
        if name in SERVICES:
            test = service["healthcheck"]["test"]
            expect(test == ["CMD", "/app", "healthcheck"] and "healthcheck" in help_of(name)[1], where, f"its health is asked by {test}")
            expect("ADMIN_LISTEN" in environment, where, "its health is asked at no ADMIN_LISTEN")
            grace = int(service["stop_grace_period"].removesuffix("s"))
            expect(grace >= drain_max(name), where, f"is killed after {grace} s; the drain may take {drain_max(name)} s")
        if "DATABASE_URL" in environment:
            connections += int(environment.get("DATABASE_MAX_CONNECTIONS", "16"))
            expect(migrations.get(name) in service["depends_on"], where, "does not wait for its database's migration")
        for variable, address in addresses(environment):
            other = services.get(address.hostname)
            expect(other, where, f"{variable}: there is no service {address.hostname}")
            if not other:
                continue
            # charges-svc only passes this URL on. The simulated networks call it.
            caller = services["railsim"] if variable == "CALLBACK_BASE_URL" else service
            expect(set(caller["networks"]) & set(other["networks"]), where, f"{variable}: shares no network with {address.hostname}")
            listens = listening_ports(compose_environment(other, passwords)) or {5432, 6379}
            expect(address.port in listens, where, f"{variable}: {address.hostname} does not listen on {address.port}")
        reaches = {"postgres": "DATABASE_URL", "redis": "REDIS_URL"}
        for network, variable in reaches.items():
            expect((network in networks) == (variable in environment), where, f"is in {network}, or should be")
    expect(connections <= server_max, "compose", f"up to {connections} connections, but max_connections is {server_max}")


# The image and the guide.


def check_image():
    dockerfile = (ROOT / "Dockerfile").read_text()
    version = re.search(r'^rust-version = "(.*)"', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)[1]
    stages = re.findall(r"^FROM (\S+)", dockerfile, re.MULTILINE)
    expect(stages[0] == f"rust:{version}-slim-bookworm", "Dockerfile", f"builds with {stages[0]}; the workspace wants {version}")
    expect(stages[-1] == "gcr.io/distroless/cc-debian12:nonroot", "Dockerfile", f"the image is of {stages[-1]}")
    expect("\nUSER 65532:65532\n" in dockerfile, "Dockerfile", "runs as another user than 65532")
    profile = re.search(r"--profile (\w+)", dockerfile)[1]
    expect(f"[profile.{profile}]" in (ROOT / "Cargo.toml").read_text(), "Dockerfile", f"there is no profile {profile}")
    ignored = (ROOT / ".dockerignore").read_text().split()
    for name in [".env", ".git", "data", "target"]:
        expect(name in ignored, ".dockerignore", f"sends {name} to the build")
    expect("/.env" in (ROOT / ".gitignore").read_text().split(), ".gitignore", "lets .env be committed")


def check_guide():
    guide = (ROOT / "docs/operators/deploy.md").read_text()
    made = guide_secrets()
    expect(made == NEEDED_SECRETS, "docs/operators/deploy.md", f"the Secrets made and those needed differ in {made ^ NEEDED_SECRETS}")
    return int(re.search(r"max_connections = (\d+)", guide)[1])


dev = check_overlay("dev", sys.argv[2])
check_loadtest(dev)
production = check_overlay("production", sys.argv[3])
expect(not production.of("Secret"), "production", "a Secret is in the repository")
check_ingress(production)
server = container_of(dev.get("StatefulSet", "postgres"))["args"][-1]
check_connections(dev, int(server.partition("=")[2]))
connections = check_connections(production, check_guide())
check_compose()
check_image()
if faults:
    print("\n".join(faults))
    sys.exit(1)
print(
    f"{len(dev.objects)} objects of dev and {len(production.objects)} of production are valid for Kubernetes {KUBERNETES} and agree"
    f" with the binaries; at most {connections} connections to production's database"
)
