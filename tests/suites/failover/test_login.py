"""The password of etcd's user is changed, and the user replaced by another, under masters that serve: they read the files
again and go on, and nothing is lost."""

import time

import pytest

from checker import summary
from expectations import UNNOTICED, expects

pytestmark = pytest.mark.timeout(180)
ROLE = "of-masters"


class Login:
    """The files that masters read, as a kubelet keeps them."""

    def __init__(self, folder):
        self.user, self.password = folder / "username", folder / "password"

    def write(self, user, password):
        for path, text in ((self.user, user), (self.password, password)):
            # In one step: a master that reads at this moment must not find an empty file.
            new = path.with_suffix(".new")
            new.write_text(text)
            new.replace(path)


def test_a_login_that_changes_under_load(start_world, tmp_path):
    login = Login(tmp_path)
    login.write("one", "first")

    def prepare(etcd):
        etcd.require_login(ROLE)
        etcd.add_user("one", "first", ROLE)

    flags = {"etcd_user_file": login.user, "etcd_password_file": login.password, "leader_lease_ttl": "30s"}
    world = start_world(clients=0, raw_clients=2, prepare_etcd=prepare, **flags)
    primary = world.masters.wait_until_serving()
    term = primary.status()["term"]

    @expects(UNNOTICED)
    def another_password(world):
        login.write("one", "second")
        world.etcd.call("auth/user/changepw", {"name": "one", "password": "second"})
        yield time.monotonic()

    @expects(UNNOTICED)
    def another_user(world):
        world.etcd.add_user("two", "third", ROLE)
        login.write("two", "third")
        world.etcd.call("auth/user/delete", {"name": "one"})
        yield time.monotonic()

    for change in (another_password, another_user):
        done = world.round(change)
        assert not done.violations, summary(done.violations)
        assert done.acknowledged > 0
        assert world.masters.primary() is primary and primary.status()["term"] == term
        world.masters.wait_until_redundant()
