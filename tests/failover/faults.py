"""What goes wrong. Each fault is a generator: it does the harm, yields the moment at which it struck, and is resumed to
repair what does not repair itself. It yields when the cluster has all it needs to serve again."""

import time

# The leader's lease, of ours and of the reference.
TTL_SECONDS = 5


def kill(world):
    """SIGKILL of the primary."""
    victim = world.masters.wait_until_serving()
    struck = time.monotonic()
    victim.kill()
    yield struck
    victim.start()


def terminate(world):
    """SIGTERM of the primary, as in an orderly restart."""
    victim = world.masters.wait_until_serving()
    struck = time.monotonic()
    victim.terminate()
    yield struck
    victim.start()


def switchover(world):
    """The primary is asked to hand over to another."""
    victim = world.masters.wait_until_serving()
    struck = time.monotonic()
    victim.switchover()
    yield struck


def _pause(world, seconds):
    victim = world.masters.wait_until_serving()
    struck = time.monotonic()
    victim.pause()
    time.sleep(seconds)
    victim.resume()
    yield struck


def short_pause(world):
    """SIGSTOP of the primary for less than its lease."""
    yield from _pause(world, TTL_SECONDS * 0.3)


def long_pause(world):
    """SIGSTOP of the primary until another has taken over, then it wakes up and finds itself deposed."""
    victim = world.masters.wait_until_serving()
    struck = time.monotonic()
    victim.pause()
    yield struck
    victim.resume()


def pause_around_the_lease(world):
    """SIGSTOP of the primary for about as long as its lease: nobody knows who wins."""
    yield from _pause(world, TTL_SECONDS * world.random.uniform(0.8, 1.3))


def etcd_leader_killed(world):
    """SIGKILL of the etcd member that leads; of the only one, if it is alone."""
    victim = world.etcd.leader()
    struck = time.monotonic()
    victim.kill()
    if len(world.etcd.members) == 1:
        world.etcd.start(victim)
    yield struck
    if not victim.running():
        world.etcd.start(victim)
    world.etcd.wait_until_healthy()


def etcd_leader_paused(world):
    """SIGSTOP of the etcd member that leads, for two seconds."""
    victim = world.etcd.leader()
    struck = time.monotonic()
    victim.pause()
    time.sleep(2)
    victim.resume()
    yield struck


def _etcd_paused(world, seconds):
    struck = time.monotonic()
    world.etcd.pause()
    time.sleep(seconds)
    world.etcd.resume()
    yield struck


def etcd_away_2s(world):
    """All of etcd stopped for two seconds: less than the lease."""
    yield from _etcd_paused(world, 2)


def etcd_away_20s(world):
    """All of etcd stopped for twenty seconds: every lease would have run out."""
    yield from _etcd_paused(world, 20)


def _etcd_killed(world, seconds):
    struck = time.monotonic()
    world.etcd.kill()
    time.sleep(seconds)
    world.etcd.restart()
    yield struck


def etcd_killed_2s(world):
    """All of etcd killed and started again after two seconds."""
    yield from _etcd_killed(world, 2)


def etcd_killed_20s(world):
    """All of etcd killed and started again after twenty seconds."""
    yield from _etcd_killed(world, 20)


def standby_killed(world):
    """SIGKILL of a standby: nobody should notice."""
    primary = world.masters.wait_until_serving()
    victim = world.random.choice([each for each in world.masters.all if each is not primary])
    struck = time.monotonic()
    victim.kill()
    yield struck
    victim.start()


def kill_twice(world):
    """SIGKILL of the primary, and of the one that follows it as soon as it serves."""
    first = world.masters.wait_until_serving()
    first.kill()
    second = world.masters.wait_until_serving()
    struck = time.monotonic()
    second.kill()
    yield struck
    first.start()
    second.start()


def all_killed(world):
    """SIGKILL of all masters at once, which are then started again."""
    struck = time.monotonic()
    world.masters.kill()
    for each in world.masters.all:
        each.start()
    yield struck


def cut_from_etcd(world):
    """The primary loses its network to etcd, and nothing else: its clients still reach it."""
    victim = world.masters.all.index(world.masters.wait_until_serving())
    struck = time.monotonic()
    world.network.cut(victim)
    # Until another serves: the clients are not to be fooled by the old one meanwhile.
    world.wait_for_another(world.masters.all[victim])
    yield struck
    world.network.mend(victim)


def short_cut_from_etcd(world):
    """The primary's network to etcd is away for less than its lease."""
    victim = world.masters.all.index(world.masters.wait_until_serving())
    struck = time.monotonic()
    world.network.cut(victim)
    time.sleep(TTL_SECONDS * 0.3)
    world.network.mend(victim)
    yield struck


def flapping_link(world):
    """The primary's network to etcd comes and goes."""
    victim = world.masters.all.index(world.masters.wait_until_serving())
    struck = time.monotonic()
    for _ in range(4):
        world.network.cut(victim)
        time.sleep(world.random.uniform(0.2, 2.5))
        world.network.mend(victim)
        time.sleep(world.random.uniform(0.2, 1.0))
    yield struck


def standby_cut_from_etcd(world):
    """A standby loses etcd, and falls behind; it must not stand before it has caught up."""
    primary = world.masters.wait_until_serving()
    victim = next(n for n, each in enumerate(world.masters.all) if each is not primary)
    struck = time.monotonic()
    world.network.cut(victim)
    time.sleep(TTL_SECONDS * 1.5)
    world.network.mend(victim)
    primary.kill()
    yield struck
    primary.start()
