"""Parts of the oracle that need no running cluster: sources, files, and what commands print."""

import hashlib
import json
import os
import pathlib
import re
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
CALL_SECONDS = 120

# Files that tests compare bytes with, wherever they are below tests/.
GOLDEN = ["format-*.txt", "frames/*.txt", "rpc-table.tsv", "zero-argument-answers.txt", "reference-*.tsv", "expected/*.yaml"]
GOLDEN += ["admin.tsv", "metadata.tsv", "standby.tsv"]

STRING = re.compile(r'r(#*)".*?"\1|"((?:\\.|[^"\\])*)"|\'(?:\\.|[^\'\\])\'|//[^\n]*|/\*.*?\*/', re.DOTALL)
WORD = re.compile(r"[A-Za-z][A-Za-z0-9_./:-]+")
# Names of source files and of functions in attributes move with the sources.
OF_SOURCES = re.compile(r".*\.(?:rs|txt|md)|.*::.*")

# Values for the chart besides its defaults.
CHART_VALUES = {
    "defaults": {},
    "etcd": {"etcd": {"enabled": True}},
    "one-namespace": {"watchNamespace": "team-a", "replicas": 1},
    "bare": {"crds": {"install": False}, "rbac": {"create": False}, "serviceAccount": {"create": False, "name": "mine"}},
    "everything": {
        "imagePullSecrets": [{"name": "registry"}],
        "extraArgs": ["--help"],
        "logLevel": "debug",
        "crds": {"keep": False},
        "serviceAccount": {"name": "mine", "annotations": {"a": "b"}},
        "podLabels": {"team": "cache"},
        "podAnnotations": {"a": "b"},
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [{"key": "a", "operator": "Exists"}],
        "priorityClassName": "system-cluster-critical",
    },
}

# An address that refuses connections.
NOWHERE = "127.0.0.1:1"
EXITS = [
    "",
    "help",
    "--version",
    "no-such-command",
    "crd",
    "crd extra",
    "master --help",
    "master --version",
    "master --no_such_flag=1",
    "master --rpc_port=much",
    "master --enable_multi_tenants=true",
    "master --enable_ha=true --etcd_endpoints= --advertise_address=127.0.0.1",
    "master --config_path=/no/such/file",
    "status --no-such-option",
    f"status --http {NOWHERE}",
    f"status --etcd_endpoints {NOWHERE} --cluster_id UPPER",
    "switchover --no-such-option",
    f"switchover --admin {NOWHERE}",
    "snapshot",
    "snapshot verify",
    "snapshot verify /no/such/file",
    f"snapshot create --admin {NOWHERE}",
    f"snapshot list --http {NOWHERE}",
    "oplog",
    "oplog dump",
    f"oplog dump --etcd_endpoints {NOWHERE} --from 5 --to 1",
    f"oplog dump --etcd_endpoints {NOWHERE} --cluster_id demo",
    "up --masters 0",
    "up --cluster_id UPPER",
    f"up --etcd-endpoints {NOWHERE} --etcd-port 1",
    "bench",
    f"bench load --scenario put --address {NOWHERE}",
    "operator --no-such-option",
    "mooncake_master: --help",
    "mooncake_master: --no_such_flag=1",
    "kubectl-moonkeeper: status",
    "kubectl-moonkeeper: status demo --kubeconfig /no/such/file",
]


def run(command, name="moonkeeper", check=True):
    """Runs the binary under a name, in an environment without settings of ours."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("MOONKEEPER_", "KUBE"))}
    with tempfile.TemporaryDirectory() as folder:
        link = pathlib.Path(folder) / name
        link.symlink_to(os.environ["MOONKEEPER_BIN"])
        environment["HOME"] = folder
        done = subprocess.run([link, *command], capture_output=True, text=True, env=environment, timeout=CALL_SECONDS)
    if check and done.returncode:
        raise SystemExit(f"{command} ended with {done.returncode}: {done.stderr}")
    return done


def golden(_arguments):
    """Files by name and content, not by folder: tests may move."""
    found = {path for pattern in GOLDEN for path in (ROOT / "tests").rglob(pattern)}
    return sorted(f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()[:16]}" for path in found)


def sources():
    """The production code: inline tests stand at the end of a file, or in one called tests.rs."""
    for path in sorted((ROOT / "src").rglob("*.rs")):
        if path.name != "tests.rs":
            yield re.split(r"^#\[cfg\(test\)\]\s*mod \w+ \{", path.read_text(), flags=re.MULTILINE)[0]


def words(_arguments):
    literals = {literal[2] for text in sources() for literal in STRING.finditer(text) if literal[2]}
    return sorted(word for word in literals if WORD.fullmatch(word) and not OF_SOURCES.fullmatch(word))


def codes(_arguments):
    """`NAME = -704, "..."` of the table of error codes, whichever file has it."""
    table = re.compile(r'^\s*([A-Z][A-Z0-9_]+) = (-?\d+), "', re.MULTILINE)
    return sorted({f"{name} {number}" for text in sources() for name, number in table.findall(text)})


def without_prose(text, keys=("description",)):
    """YAML without comments and without the texts of these keys. A key with a mapping below it is a field: it stays."""
    prose = re.compile(rf"^(\s*)(- )?(?:{'|'.join(keys)}): *\S")
    lines, inside = [], None
    for line in text.splitlines():
        indent = len(line) - len(line.lstrip())
        if inside is not None and (not line.strip() or indent > inside):
            continue
        inside = None
        if found := prose.match(line):
            inside = indent + len(found[2] or "")
            lines += [f"{found[1]}-"] if found[2] else []
        elif line.strip() and not line.lstrip().startswith("#"):
            lines.append(line)
    return lines


def crd(_arguments):
    return without_prose(run(["crd"]).stdout, ("description", "message"))


def charts(_arguments):
    helm = pathlib.Path(os.environ["CLUSTER_BIN"]) / "helm"
    chart = ROOT / "charts" / "moonkeeper"
    lines = []
    for name, values in CHART_VALUES.items():
        command = [helm, "template", "moonkeeper", chart, "--namespace", "moonkeeper-system", "--kube-version", "1.30.0"]
        command += ["--values", "-"]
        done = subprocess.run(command, input=json.dumps(values), capture_output=True, text=True, timeout=CALL_SECONDS)
        if done.returncode:
            raise SystemExit(f"helm: {done.stderr}")
        lines += [f"== chart, {name}", *without_prose(done.stdout, ("description", "message"))]
    schema = json.loads((chart / "values.schema.json").read_text(), object_pairs_hook=undescribed)
    lines += ["== schema of values", *json.dumps(schema, indent=1, sort_keys=True).splitlines()]
    for file in [chart / "values.yaml", *sorted((ROOT / "manifests").rglob("*.yaml"))]:
        lines += [f"== {file.relative_to(ROOT)}", *without_prose(file.read_text(), ("description", "message"))]
    return lines


def undescribed(pairs):
    return {key: value for key, value in pairs if not (key == "description" and isinstance(value, str))}


def flags(_arguments):
    lines = []
    for entry in re.findall(r"^  --(\S+) \((.*), default (.*)\)$", run(["master", "--helpfull"]).stdout, re.MULTILINE):
        lines.append("master --{} {} default {}".format(*entry))
    top = re.search(r"^Commands:\n(.*?)\n\n", run(["help"]).stdout, re.MULTILINE | re.DOTALL)[1]
    for command in re.findall(r"^  (\w+)", top, re.MULTILINE):
        lines.append(f"command {command}")
        if command not in ("help", "master"):
            lines += options([command])
    # Hidden, but benchmarks use it.
    lines += options(["bench", "floor"])
    lines += options([], "kubectl-moonkeeper")
    return lines


def options(path, name="moonkeeper"):
    """Options, arguments and commands in the help of clap, and of all commands below."""
    section, entries, below = None, [], []
    for line in run([*path, "--help"], name).stdout.splitlines():
        if heading := re.match(r"(\w+):$", line):
            section = heading[1]
        elif section == "Commands" and (command := re.match(r"  (\w+)", line)):
            below.append(command[1])
        elif section in ("Options", "Arguments") and re.match(r"\s{2,6}(-|<|\[)", line):
            entries.append(line)
        elif section in ("Options", "Arguments") and entries:
            entries[-1] += " " + line.strip()
    place = " ".join([name, *path])
    lines = []
    for entry in entries:
        option = re.match(r"\s*((?:-\w, )?(?:--[\w-]+)?(?: ?(?:\[[^\]]*\]|<[^>]*>)(?:\.\.\.)?)?)", entry)[1].strip()
        told = re.findall(r"\[(?:default|env|possible values|aliases): (?:\[[^\]]*\]|[^\]])*\]", entry)
        values = re.findall(r" - ([\w-]+)", entry.partition("Possible values:")[2])
        lines.append(" ".join([place, option, *told, *values]))
    for command in below:
        lines.append(f"{place} command {command}")
        if command != "help":
            lines += options([*path, command], name)
    return lines


def exits(_arguments):
    lines = []
    for line in EXITS:
        name, _, rest = line.partition(": ") if ": " in line else ("moonkeeper", "", line)
        lines.append(f"{run(rest.split(), name, check=False).returncode} {name} {rest}".rstrip())
    return lines
