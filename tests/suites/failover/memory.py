"""Changes bytes in the memory of a process that the test started: a bit that turns in a memory module."""

import re

WRITABLE = re.compile(r"([0-9a-f]+)-([0-9a-f]+) rw-p ")
CHUNK = 1 << 24


def replace(pid, old, new):
    """Overwrites `old` wherever the process has it in its own memory; returns in how many places that was."""
    assert len(old) == len(new) and old != new
    found = 0
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
        for low, high in (WRITABLE.match(line).groups() for line in maps if WRITABLE.match(line)):
            found += sum(_replace(memory, start, int(high, 16), old, new) for start in range(int(low, 16), int(high, 16), CHUNK))
    return found


def _replace(memory, start, high, old, new):
    """The places that begin in one chunk; what begins there may end in the next one."""
    try:
        memory.seek(start)
        content = memory.read(min(CHUNK + len(old) - 1, high - start))
    except (OSError, OverflowError, ValueError):
        # It was given back meanwhile, or is the kernel's.
        return 0
    found = [match.start() for match in re.finditer(re.escape(old), content or b"")]
    for offset in found:
        memory.seek(start + offset)
        memory.write(new)
    return len(found)
