"""The local cluster of tests/suites/cluster: nodes are network namespaces on this machine."""

import os
import pathlib
import shutil

import clusters
import daemons
import local
import network
import nodes
from layout import Layout


class LocalCluster(clusters.Cluster):
    stable_node = "n1"

    def __init__(self, folder, name):
        self.layout = Layout(name, folder)
        path = f"/run/netns/{self.layout.namespace(1)}"
        host = clusters.NodeHost(self.layout.address(1), path, self.layout.resolv_conf)
        super().__init__(self.layout.folder, self.layout.kubeconfig, host)

    @staticmethod
    def missing():
        return local.missing()

    def up(self):
        local.down(self.layout)
        local.up(self.layout, clusters.NODES)

    def is_up(self):
        return self.kubeconfig.exists()

    def down(self):
        local.down(self.layout)

    def load(self, archive):
        local.load(self.layout, [archive])

    def find_process(self, node, container):
        process = self.container_process(node, container)
        return lambda which: os.kill(process, which)

    def read_container_file(self, node, container, path):
        return pathlib.Path(f"/proc/{self.container_process(node, container)}/root{path}").read_text()

    def container_process(self, node, container):
        process = nodes.container_process(self.layout, _number(node), container)
        assert process, f"container {container} does not run on {node}"
        return process

    def in_node(self, node, *command):
        return clusters.output(*map(str, self.layout.inside(_number(node), *command)))

    def cut(self, node):
        network.cut(self.layout, _number(node))

    def heal(self, node):
        network.heal(self.layout, _number(node))

    def stop_api(self):
        daemons.hold(self.layout, 1, "kube-apiserver")

    def start_api(self):
        daemons.release(self.layout, 1, "kube-apiserver")

    def keep_logs(self, folder):
        for number in self.layout.nodes():
            log = self.layout.home(number) / "log"
            if log.is_dir():
                shutil.copytree(log, pathlib.Path(folder) / f"n{number}", dirs_exist_ok=True)


def _number(node):
    return int(node.removeprefix("n"))
