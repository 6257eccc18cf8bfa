"""The small decisions behind a random call: which key, whose, how large.

Most draws aim at something that exists, so that calls succeed; a fixed share
goes astray on purpose.
"""

from messages import (
    ALL,
    DFS,
    DISABLE,
    DISK,
    ENABLE,
    LOCAL_DISK,
    MEMORY,
    NOF_SSD,
    PRESERVE,
    TENANT,
    config,
)
from believed_state import CLIENTS, SEGMENT_SIZE, STRANGER

KEYS = [f"k{number:02}" for number in range(26)] + ["schlüssel", "a\0b", "x" * 300, "with space/and+signs"]
UNDECODABLE_KEY = b"\xff\xfe".decode("utf-8", "surrogateescape")
ABSENT_KEY = "never-written"
SIZES = [1, 100, 4096, 65_536, 1_000_000]


class Choices:
    """Draws from one seeded source of randomness, with the world in view."""

    def __init__(self, world, random):
        self.world = world
        self.random = random
        self._tokens = 0
        self._fresh = 0

    def _chance(self, probability):
        return self.random.random() < probability

    def _client(self, likely=None, probability=0.85):
        if likely is not None and self._chance(probability):
            return likely
        return self.random.choice([*CLIENTS, *CLIENTS, STRANGER])

    def _tenant(self):
        return self.random.choices([TENANT, "", "another", "_odd"], [90, 4, 3, 3])[0]

    def _any_key(self):
        return self.random.choices([self.random.choice(KEYS), UNDECODABLE_KEY, ABSENT_KEY], [92, 3, 5])[0]

    def _key(self, candidates, probability=0.8):
        """One of the candidates most of the time, any key otherwise."""
        if candidates and self._chance(probability):
            return self.random.choice(candidates)
        return self._any_key()

    def _new_key(self):
        return self._key([key for key in KEYS if key not in self.world.objects])

    def _keys(self, candidates, probability=0.8):
        return [self._key(candidates, probability) for _ in range(self.random.choice([0, 1, 2, 3, 3, 4, 5]))]

    def _object(self, key):
        return self.world.objects.get(key)

    def _owner(self, key):
        found = self._object(key)
        return self._client(found.owner if found else None)

    def _preference(self):
        names = [plan.name for plan in self.world.plans]
        self.random.shuffle(names)
        if self._chance(0.1):
            names.insert(0, "no-such-segment")
        return names

    def _kind(self):
        return self.random.choices([ALL, MEMORY, DISK, LOCAL_DISK, NOF_SSD, DFS, 7], [60, 25, 4, 3, 3, 3, 2])[0]

    def _config(self, groups=None, replicas=None):
        if replicas is None:
            replicas = self.random.choices([1, 2, 3, 5], [60, 25, 10, 5])[0]
        soft_pin = self.random.choices([PRESERVE, ENABLE, DISABLE], [70, 22, 8])[0]
        options = dict(
            soft_pin=soft_pin,
            soft_pin_ttl=self.random.choice([None, 60_000]) if soft_pin == ENABLE else None,
            hard_pin=self._chance(0.1),
            preferred=self._preference(),
            data_type=self.random.randrange(10),
            groups=groups,
        )
        if self._chance(0.08):
            options.update(
                self.random.choice(
                    [
                        {"soft_pin": PRESERVE, "soft_pin_ttl": 5},
                        {"soft_pin": DISABLE, "soft_pin_ttl": 5},
                        {"soft_pin": ENABLE, "soft_pin_ttl": 86_400_001},
                        {"soft_pin": 3},
                        {"dfs": 1},
                        {"dfs": 2},
                        {"nof": 1},
                        {"groups": ["one", "too many"] * 4},
                    ]
                )
            )
        if self._chance(0.03):
            replicas = 0
        return config(replicas, **options)

    def _size(self):
        return self.random.choices([self.random.choice(SIZES), 0], [97, 3])[0]

    def _groups(self, count):
        if self._chance(0.8):
            return None
        return [self.random.choice(["", "red", "blue"]) for _ in range(count)]

    def _too_large(self, client, key):
        # More replicas than segments: the refusal must not start an eviction,
        # whose moment would differ between the masters.
        return client, key, 2 * SEGMENT_SIZE, config(9, preferred=self._preference()), TENANT
