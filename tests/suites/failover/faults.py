"""What goes wrong. Each fault is a generator: it does the harm, yields the moment at which it struck, and is resumed to
repair what does not repair itself. It yields when the cluster has all it needs to serve again. Its `expects` says what it
may do to the masters; what no master should notice, and what only a dead process or a hand-over explains, is judged in
deployments with a long lease (see expectations.py)."""

import time

from expectations import DIED, EITHER, HANDED_OVER, LEASE_ENDED, NEW, UNNOTICED, Expects, expects

# Less than any lease.
SHORT_SECONDS = 1.5
# For so long a standby falls behind.
BEHIND_SECONDS = 7.5
# A process has died; another serves long before its lease could end.
PROCESS_DIED = Expects(NEW, (DIED,), elections=1, before_lease_ends=True)
PLANNED = Expects(NEW, (HANDED_OVER,), elections=1, before_lease_ends=True)
# A primary that others take for gone may have applied what is not durable.
DEPOSED = Expects(NEW, (LEASE_ENDED,), elections=1, rebuilds=1)
# The primary is quiet from before the end of its lease until etcd is back, which may renew it or call it ended.
OUTLASTED = Expects(EITHER, (LEASE_ENDED,), rebuilds=1)
# It depends on moments whether the primary goes on; it may win the election once more itself.
PERHAPS_DEPOSED = Expects(EITHER, (LEASE_ENDED, DIED), rebuilds=1)


@expects(PROCESS_DIED)
def kill(world):
    """SIGKILL of the primary."""
    victim = world.masters.wait_until_serving()
    struck = time.monotonic()
    victim.kill()
    yield struck
    victim.start()


@expects(PLANNED)
def terminate(world):
    """SIGTERM of the primary, as in an orderly restart."""
    victim = world.masters.wait_until_serving()
    struck = time.monotonic()
    victim.terminate()
    yield struck
    victim.start()


@expects(PLANNED)
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


@expects(UNNOTICED)
def short_pause(world):
    """SIGSTOP of the primary for less than its lease."""
    yield from _pause(world, SHORT_SECONDS)


@expects(DEPOSED)
def long_pause(world):
    """SIGSTOP of the primary until another has taken over, then it wakes up and finds itself deposed."""
    victim = world.masters.wait_until_serving()
    struck = time.monotonic()
    victim.pause()
    world.wait_for_another(victim)
    yield struck
    victim.resume()


@expects(PERHAPS_DEPOSED)
def pause_around_the_lease(world):
    """SIGSTOP of the primary for about as long as its lease: either may lead after it."""
    yield from _pause(world, world.lease_seconds * world.random.uniform(0.8, 1.3))


@expects(UNNOTICED)
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


@expects(UNNOTICED)
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


@expects(UNNOTICED)
def etcd_away_2s(world):
    """All of etcd stopped for two seconds: less than the lease."""
    yield from _etcd_paused(world, 2)


@expects(OUTLASTED)
def etcd_away_20s(world):
    """All of etcd stopped for twenty seconds: every lease would have run out."""
    yield from _etcd_paused(world, 20)


def _etcd_killed(world, seconds):
    struck = time.monotonic()
    world.etcd.kill()
    time.sleep(seconds)
    world.etcd.restart()
    yield struck


@expects(UNNOTICED)
def etcd_killed_2s(world):
    """All of etcd killed and started again after two seconds."""
    yield from _etcd_killed(world, 2)


@expects(OUTLASTED)
def etcd_killed_20s(world):
    """All of etcd killed and started again after twenty seconds."""
    yield from _etcd_killed(world, 20)


@expects(UNNOTICED)
def standby_killed(world):
    """SIGKILL of a standby: no client should notice."""
    primary = world.masters.wait_until_serving()
    victim = world.random.choice([each for each in world.masters.all if each is not primary])
    struck = time.monotonic()
    victim.kill()
    yield struck
    victim.start()


@expects(NEW, (DIED, LEASE_ENDED), elections=2)
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


@expects(NEW, (DIED, LEASE_ENDED), elections=1)
def all_killed(world):
    """SIGKILL of all masters at once, which are then started again."""
    struck = time.monotonic()
    world.masters.kill()
    for each in world.masters.all:
        each.start()
    yield struck


@expects(DEPOSED)
def cut_from_etcd(world):
    """The primary loses its network to etcd, and nothing else: its clients still reach it."""
    victim = world.masters.all.index(world.masters.wait_until_serving())
    struck = time.monotonic()
    world.network.cut(victim)
    # Until another serves: the clients are not to be fooled by the old one meanwhile.
    world.wait_for_another(world.masters.all[victim])
    yield struck
    world.network.mend(victim)


@expects(UNNOTICED)
def short_cut_from_etcd(world):
    """The primary's network to etcd is away for less than its lease."""
    victim = world.masters.all.index(world.masters.wait_until_serving())
    struck = time.monotonic()
    world.network.cut(victim)
    time.sleep(SHORT_SECONDS)
    world.network.mend(victim)
    yield struck


@expects(PERHAPS_DEPOSED)
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


@expects(PROCESS_DIED)
def standby_cut_from_etcd(world):
    """A standby loses etcd, and falls behind; it must not stand before it has caught up."""
    primary = world.masters.wait_until_serving()
    victim = next(n for n, each in enumerate(world.masters.all) if each is not primary)
    struck = time.monotonic()
    world.network.cut(victim)
    time.sleep(BEHIND_SECONDS)
    world.network.mend(victim)
    primary.kill()
    yield struck
    primary.start()
