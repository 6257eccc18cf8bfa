"""The load generator of `moonkeeper bench` beside a test: objects by the hundred thousand, and readers of them."""

import contextlib
import os
import subprocess

# Bounds a hang: a debug build puts some ten thousand objects a second on a busy machine.
FILL_SECONDS = 600


def bench(*arguments):
    return [os.environ["MOONKEEPER_BIN"], "bench", *map(str, arguments)]


def fill(world, objects):
    """Puts objects into the primary and returns it. Their memory is that of a client that ends with this: the
    deployment has a `client_ttl` beyond the test."""
    primary = world.masters.wait_until_serving()
    command = bench("fill", "--address", primary.address, "--objects", objects, "--clients", 1)
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=FILL_SECONDS, check=False
    )
    assert done.returncode == 0, f"no {objects:,} objects: {done.stderr}"
    return primary


@contextlib.contextmanager
def reading(world, objects):
    """Reads the objects of `fill` at random from the primary, which is returned, until it is left or the primary goes."""
    primary = world.masters.wait_until_serving()
    shape = ["--connections", 4, "--outstanding", 1, "--keys", objects, "--seconds", 3600]
    command = bench("load", "--filled", "--scenario", "batch-get-replica-list", "--address", primary.address, *shape)
    with open(world.folder / "bench.log", "ab") as output:
        load = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        yield primary
    finally:
        load.kill()
        load.wait()
