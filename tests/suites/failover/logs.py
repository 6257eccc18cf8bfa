"""What masters have written to their logs since it was last asked."""

import re
from dataclasses import dataclass

_COLOR = re.compile(r"\x1b\[[0-9;]*m")
# At level ERROR a person must act; a panic ends the process.
_BAD = re.compile(r"^\S+ +ERROR |panicked at ")
WON = "won the election"


@dataclass(frozen=True)
class News:
    """`errors` are whole lines, with the master's name before them; `elections` were won."""

    errors: tuple
    elections: int


class Logs:
    """Reads the logs of all masters, each line once."""

    def __init__(self):
        self._offsets = {}

    def take(self, masters):
        errors, elections = [], 0
        for master in masters:
            for path in master.logs:
                for line in self._lines(path):
                    elections += WON in line
                    if _BAD.search(line):
                        errors.append(f"{master.name}: {line}")
        return News(tuple(errors), elections)

    def _lines(self, path):
        with open(path, "rb") as log:
            log.seek(self._offsets.get(path, 0))
            text = log.read()
        # The last line may not be whole yet.
        text = text[: text.rfind(b"\n") + 1]
        self._offsets[path] = self._offsets.get(path, 0) + len(text)
        return _COLOR.sub("", text.decode(errors="replace")).splitlines()
