"""The network of a local cluster: a namespace for each node, all on one bridge that lives in n1's.

No namespace has a way to the machine's own network: nothing in the cluster reaches it, or is reached from it.
"""

from layout import SERVICES, run


def make(layout, count):
    """The namespaces, their links, and the routes to the pods of the other nodes."""
    numbers = range(1, count + 1)
    for number in numbers:
        run(["ip", "netns", "add", layout.namespace(number)])
        run(layout.inside(number, "ip", "link", "set", "lo", "up"))
        run(layout.inside(number, "sysctl", "-qw", "net.ipv4.ip_forward=1"))
        device = _make_bridge(layout) if number == 1 else _make_link(layout, number)
        run(layout.inside(number, "ip", "address", "add", f"{layout.address(number)}/24", "dev", device))
        run(layout.inside(number, "ip", "link", "set", device, "up"))
        # A packet to a Service is sent to a pod instead before it leaves; but first there must be a way for it at all.
        run(layout.inside(number, "ip", "route", "add", SERVICES, "dev", device))
    for here in numbers:
        for there in numbers:
            if here != there:
                way = ["ip", "route", "add", layout.pods(there), "via", layout.address(there)]
                run(layout.inside(here, *way))


def _make_bridge(layout):
    run(layout.inside(1, "ip", "link", "add", "nodes", "type", "bridge"))
    return "nodes"


def _make_link(layout, number):
    port = f"n{number}"
    link = ["link", "add", "node", "type", "veth", "peer", "name", port, "netns", layout.namespace(1)]
    run(["ip", "-n", layout.namespace(number), *link])
    run(layout.inside(1, "ip", "link", "set", port, "master", "nodes", "up"))
    return "node"


def cut(layout, number):
    """Takes a node off the network: packets vanish in both directions. Not n1, which has the control plane."""
    run(layout.inside(1, "ip", "link", "set", f"n{number}", "down"))


def heal(layout, number):
    run(layout.inside(1, "ip", "link", "set", f"n{number}", "up"))


def remove(layout):
    """Removes the namespaces that are there; what was in them must have ended."""
    listed = run(["ip", "netns", "list"]).stdout.splitlines()
    for name in (line.split()[0] for line in listed if line):
        if name.startswith(f"{layout.name}-n"):
            run(["ip", "netns", "delete", name])
