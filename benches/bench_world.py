"""A deployment of etcd and masters for a benchmark."""

from companions import Companions
from deployment import World


class BenchWorld(World):
    """A deployment whose companions end with it."""

    def __init__(self, *args, **kwargs):
        self.companions = Companions()
        super().__init__(*args, **kwargs)

    def note_companions(self):
        """To be called while masters run: from a master that has ended it is no longer seen which companion was its own."""
        for each in self.masters.all:
            self.companions.of(each)

    def end(self):
        masters = self.masters.all if self.masters else []
        if masters:
            self.note_companions()
            self.masters.kill()
        self.companions.end(masters)
        super().end()
