"""Connections to a master's peer port, as the kernel counts them. No status tells them: the primary alone knows which
standbys have reported to it in this term."""

_ESTABLISHED = "01"


def connections(master):
    """Established connections to the peer port of a master; 0 if its process is gone."""
    found = 0
    for table in ("tcp", "tcp6"):
        try:
            # In the network namespace of the process.
            with open(f"/proc/{master.process.pid}/net/{table}") as lines:
                rows = [line.split() for line in lines][1:]
        except OSError:
            continue
        port = f"{master.peer_port:04X}"
        found += sum(row[1].rsplit(":", 1)[1] == port and row[3] == _ESTABLISHED for row in rows)
    return found
