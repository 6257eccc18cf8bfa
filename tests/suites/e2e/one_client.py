"""A real client for a moment: what it writes it finds again."""

from clients import Client
from scenario_namespace import SEGMENT_BYTES
from scene import CLIENT_ENVIRONMENT


def put_and_get(space, name, address, metadata="P2PHANDSHAKE", **environment):
    """A client that knows only `address`, and the metadata server if one is named; returns how many objects it wrote, and how
    many it did not find again."""
    client = Client(space.folder / f"client-{name}.log", CLIENT_ENVIRONMENT | environment, space.cluster.host.wrap)
    try:
        here = space.cluster.host.address
        assert client.setup(here, metadata, SEGMENT_BYTES, SEGMENT_BYTES, "tcp", "", address) == 0
        values = {f"{name}-{number}": bytes([number]) * 20_000 for number in range(50)}
        # In its own memory: clients that find each other by a metadata server cannot write to those that need none.
        own = {"preferred_segments": [client.get_hostname()]}
        for key, value in values.items():
            assert client.put(key, value, config=own) == 0, key
        lost = [key for key, value in values.items() if client.get(key) != value]
        client.close()
        return len(values), len(lost)
    finally:
        client.kill()
