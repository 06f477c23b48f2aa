"""Plants one mistake after another in a copy of the repository. manifests.py must refuse each for the reason given here.

Usage: manifests-mistakes.py ROOT KUBECTL.
"""

import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT, KUBECTL = pathlib.Path(sys.argv[1]), sys.argv[2]
COPIED = ["Cargo.toml", "Dockerfile", ".dockerignore", ".gitignore", "docker-compose.yml", "docs/operators/deploy.md", "k8s"]
SOURCES = ["chassis", "db", "rails", "gateway", "merchants-svc", "sessions-svc", "charges-svc", "webhooks-svc", "ratelimit-svc"]
BASE, DEV, PRODUCTION = "k8s/base", "k8s/overlays/dev", "k8s/overlays/production"

OWNER = """            - name: MIGRATE_DATABASE_URL
              valueFrom: {secretKeyRef: {name: charges-svc-owner, key: MIGRATE_DATABASE_URL}}
"""

GATEWAY = """        - podSelector: {matchLabels: {app.kubernetes.io/name: gateway}}
      ports:
        - {protocol: TCP, port: 50051}
"""

# The file, the replaced text, its replacement, and the expected complaint.
MISTAKES = [
    # Variables.
    (f"{BASE}/gateway.yaml", "name: API_LISTEN", "name: API_ADDRESS", "knows no variable API_ADDRESS"),
    (f"{PRODUCTION}/charges-svc.env", "PAYSTACK_EMAIL_DOMAIN=", "#", "PAYSTACK_EMAIL_DOMAIN"),
    (f"{PRODUCTION}/gateway.env", "CHECKOUT_URL=https", "CHECKOUT_URL=http", "CHECKOUT_URL"),
    (f"{PRODUCTION}/gateway.env", "TRUSTED_PROXIES=", "#", "TRUSTED_PROXIES"),
    (f"{PRODUCTION}/gateway.env", "CHECKOUT_RATES=USD", "CHECKOUT_RATES=EUR", "CHECKOUT_RATES"),
    ("docker-compose.yml", "RAILSIM_DATA:", "RAILSIM_FOLDER:", "knows no variable RAILSIM_FOLDER"),
    # Ports, probes, names.
    (f"{BASE}/charges-svc.yaml", "grpc: {port: 50051}", "grpc: {port: 50055}", "asks port 50055"),
    (f"{BASE}/gateway.yaml", "httpGet: {path: /healthz, port: admin}", "httpGet: {path: /readyz, port: admin}", "asks {'path': '/readyz'"),
    (f"{PRODUCTION}/mtls.yaml", "            grpc: null\n", "", "speaks no TLS"),
    (f"{PRODUCTION}/ingress.yaml", "port: {name: checkout}", "port: {name: page}", "leads nowhere"),
    (f"{DEV}/charges-svc.env", "http://sessions-svc:50051", "http://session-svc:50051", "there is no Service session-svc"),
    # Violations of the schema.
    (f"{BASE}/merchants-svc.yaml", "periodSeconds: 10", "periodSecond: 10", "periodSecond"),
    # Security.
    (f"{BASE}/every-pod.yaml", "capabilities: {drop: [ALL]}", "capabilities: {drop: [NET_RAW]}", "capabilities are not dropped"),
    (f"{BASE}/merchants-svc.yaml", "app.kubernetes.io/name: gateway}}", "app.kubernetes.io/name: gate}}", "but must"),
    # The ports for operators.
    (f"{BASE}/charges-svc.yaml", GATEWAY, f"{GATEWAY}        - {{protocol: TCP, port: 50052}}\n", "is let in where only operators may be, by charges-svc"),
    (f"{BASE}/network.yaml", "port: 50052", "port: 50051", "payctl: may not call"),
    (f"{BASE}/webhooks-svc.yaml", '            - {name: OPERATORS_LISTEN, value: "0.0.0.0:50052"}\n', "", "but it listens on"),
    (f"{PRODUCTION}/payctl.env", "https://merchants-svc-operators:50052", "https://merchants-svc:50051", "may not call MERCHANTS_GRPC_URL"),
    (f"{DEV}/network.yaml", "payments/database: client", "app.kubernetes.io/part-of: payments", "but need not"),
    (f"{BASE}/webhooks-svc.yaml", "              - 169.254.0.0/16\n", "", "lets 169.254.0.0/16 be called"),
    (f"{PRODUCTION}/namespace.yaml", "enforce: restricted", "enforce: baseline", "enforces baseline"),
    ("docker-compose.yml", "networks: [services, redis]", "networks: [services, redis, postgres]", "is in postgres"),
    ("docker-compose.yml", "    networks: [redis]\n", '    networks: [redis]\n    ports: ["6379:6379"]\n', "publishes"),
    (f"{BASE}/migrations.yaml", "name: charges-svc-owner, key: MIGRATE_DATABASE_URL", "name: charges-svc, key: DATABASE_URL", "as one role"),
    (f"{BASE}/charges-svc.yaml", "          env:\n", "          env:\n" + OWNER, "has the role that owns"),
    ("docker-compose.yml", "postgres://charges_svc:", "postgres://charges:", "as one role"),
    # Running.
    (f"{BASE}/every-deployment.yaml", "terminationGracePeriodSeconds: 75", "terminationGracePeriodSeconds: 30", "is killed after 30 s"),
    (f"{BASE}/every-deployment.yaml", "preStop: {sleep: {seconds: 8}}", "preStop: {sleep: {seconds: 1}}", "preStop sleep"),
    (f"{BASE}/every-deployment.yaml", "minReadySeconds: 75", "minReadySeconds: 5", "still stops"),
    (f"{PRODUCTION}/kustomization.yaml", "minReplicas, value: 2", "minReplicas, value: 3", "more replicas than it allows"),
    (f"{BASE}/webhooks-svc.yaml", "maxReplicas: 6", "maxReplicas: 16", "max_connections is 400"),
    ("docker-compose.yml", "stop_grace_period: 60s", "stop_grace_period: 10s", "is killed after 10 s"),
    # The image and the guide.
    ("Dockerfile", "FROM rust:1.94", "FROM rust:1.80", "builds with"),
    ("docs/operators/deploy.md", "--from-literal=MOMO_API_KEY=", "--from-literal=MOMO_KEY=", "knows no variable MOMO_KEY"),
    ("docs/operators/deploy.md", "--from-literal=REDIS_URL=", "--from-literal=REDIS=", "the Secrets made and those needed"),
]


def refusal(copy):
    """The complaints about the copy, or nothing if it is accepted."""
    files = []
    for name in ["dev", "production"]:
        rendered = subprocess.run([KUBECTL, "kustomize", copy / f"k8s/overlays/{name}"], capture_output=True, check=True)
        files.append(copy / f"{name}.yaml")
        files[-1].write_bytes(rendered.stdout)
    check = pathlib.Path(__file__).with_name("manifests.py")
    done = subprocess.run([sys.executable, check, copy, *files], capture_output=True, text=True)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def main():
    missed = []
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder)
        for name in COPIED + [f"{crate}/src" for crate in SOURCES]:
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            take = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            take(ROOT / name, copy / name)
        for name, old, new, reason in MISTAKES:
            file = copy / name
            right = file.read_text()
            assert old in right, f"{name} has no {old!r}"
            file.write_text(right.replace(old, new))
            said = refusal(copy)
            if reason not in said or "Traceback" in said:
                missed.append(f"{name}: {old!r} as {new!r} should be refused with {reason!r}, not with:\n{said}")
            file.write_text(right)
        assert not refusal(copy), "the copy without a mistake is refused"
    if missed:
        sys.exit("\n".join(missed))
    print(f"{len(MISTAKES)} planted mistakes were refused")


main()
