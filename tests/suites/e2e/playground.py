"""A Kubernetes on this machine with the operator and a MasterCluster, for people to play with; see `make playground`.

usage: playground.py up | down
"""

import os
import pathlib
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "cluster"), str(HERE.parent / "common")]
import cluster_choice  # noqa: E402
import images  # noqa: E402
from installed_operator import NAMESPACE, TREE, Operator, install_plugin  # noqa: E402

SNIPPET = """\
import os
os.environ["MC_STORE_CLUSTER_ID"] = "default-demo"
os.environ["MC_RPC_CONNECT_TIMEOUT_MS"] = "1000"
from mooncake.store import MooncakeDistributedStore
store = MooncakeDistributedStore()
where = "etcd://moonkeeper-etcd.{namespace}.svc.cluster.local:2379"
assert store.setup("{address}", "P2PHANDSHAKE", 64 << 20, 16 << 20, "tcp", "", where) == 0
assert store.put("hello", b"from a real client") == 0
print(store.get("hello"))
store.close()
"""

GUIDE = """
A Kubernetes with {nodes} nodes, an operator, and three masters. It stays until `make playground-down`.

  shell      {shell}
             (kubectl, helm and kubectl-moonkeeper are on PATH there, names of Services resolve,
             and KUBECONFIG is {kubeconfig})

  look       kubectl get mastercluster demo -o wide
             kubectl moonkeeper status demo
  change     kubectl moonkeeper switchover demo
  break      kubectl delete pod -l moonkeeper.dev/role=primary
             kubectl get events --watch
  client     {python} {snippet}
"""


def start(cluster):
    cluster.up()
    with tempfile.TemporaryDirectory() as folder:
        for each in [images.build_moonkeeper(pathlib.Path(folder)), images.build_etcd(pathlib.Path(folder))]:
            cluster.load(each)
    cluster.path.append(install_plugin(cluster.folder / "plugins"))
    say("installing the operator with the chart")
    Operator(cluster).install_by_chart()
    say("kubectl apply -f manifests/examples/minimal.yaml")
    cluster.kubectl("apply", "-f", TREE / "manifests/examples/minimal.yaml")
    cluster.kubectl("wait", "--for=condition=Ready", "mastercluster/demo", "--timeout=180s")
    snippet = cluster.folder / "client.py"
    snippet.write_text(SNIPPET.format(namespace=NAMESPACE, address=cluster.host.address))
    shell = cluster.folder / "shell"
    shell.write_text(_shell(cluster))
    shell.chmod(0o755)
    print(
        GUIDE.format(
            nodes=len(cluster.node_names()),
            shell=shell,
            kubeconfig=cluster.kubeconfig,
            python=os.environ["MOONCAKE_PYTHON"],
            snippet=snippet,
        )
    )


def _shell(cluster):
    """A script that runs a shell, or the command that it is given, inside the cluster's network."""
    inside = " ".join(f"'{each}'" for each in cluster.host.wrap([]))
    path = os.pathsep.join(map(str, cluster.path))
    return f'#!/bin/sh\nexport KUBECONFIG={cluster.kubeconfig} PATH={path}:$PATH\nexec {inside} "${{@:-bash}}"\n'


def say(text):
    print(f"== {text}", file=sys.stderr, flush=True)


def main():
    home = pathlib.Path(os.environ["MOONKEEPER_PLAYGROUND"])
    kind, why = cluster_choice.choose()
    cluster = kind(home, name="mkplay")
    match sys.argv[1:]:
        case ["up"] if cluster.is_up():
            sys.exit("there is a playground already; `make playground-down` ends it")
        case ["up"]:
            say(f"cluster: {why}")
            try:
                start(cluster)
            except BaseException:
                say("it did not come up; ending it")
                cluster.down()
                raise
        case ["down"]:
            cluster.down()
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
