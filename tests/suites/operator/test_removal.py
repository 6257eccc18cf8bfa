"""Before the operator is removed it can be asked whether a cluster needs it; the chart asks before it is uninstalled."""

import os
import re
import subprocess


def ask(config, *flags):
    command = [os.environ["MOONKEEPER_BIN"], "operator", "--check-removal", *flags]
    environment = os.environ | {"KUBECONFIG": str(config)}
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)


def has_finalizer(space, name):
    return bool(space.get("mcl", name)["metadata"].get("finalizers"))


def test_a_cluster_with_delete_needs_the_operator(server, operator, space):
    space.make("kept")
    space.make("doomed", deletionPolicy="Delete")
    space.wait(lambda: has_finalizer(space, "doomed"), "the finalizer to be set")
    for flags in ([f"--namespace={space.name}"], []):
        done = ask(server.kubeconfig, *flags)
        assert (done.returncode, done.stdout) == (1, ""), done
        assert f"{space.name}/doomed" in done.stderr and f"{space.name}/kept" not in done.stderr
    assert ask(server.kubeconfig, "--namespace=default").returncode == 0
    space.patch({"deletionPolicy": "Retain"}, "doomed")
    space.wait(lambda: not has_finalizer(space, "doomed"), "the finalizer to be taken off")
    done = ask(server.kubeconfig, f"--namespace={space.name}")
    assert (done.returncode, done.stderr) == (0, ""), done


def test_without_a_definition_no_cluster_needs_it(server, space):
    try:
        server.kubectl("delete", "crd", "masterclusters.moonkeeper.dev", "--timeout=20s")
        assert ask(server.kubeconfig, f"--namespace={space.name}").returncode == 0
    finally:
        server.install_definition()


def test_what_cannot_be_asked_is_no_yes(server, space, tmp_path):
    nowhere = tmp_path / "nowhere"
    nowhere.write_text(re.sub(r"https://[^\"/\s]+", "https://127.0.0.1:1", server.kubeconfig.read_text()))
    server.kubectl("create", "serviceaccount", "rightless", "-n", space.name)
    for config in (nowhere, server.account_kubeconfig(space.name, "rightless")):
        done = ask(config)
        assert (done.returncode, done.stdout) == (1, ""), done
        assert "cannot list MasterClusters" in done.stderr
