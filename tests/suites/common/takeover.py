"""What a client may be answered right after a takeover."""

from waiting import wait_until

# Clients have not rejoined yet, so there is no memory (docs/high-availability.md, "Puts right after a takeover").
NO_MEMORY = -200
# The old primary is gone, or answers nothing that can be relied on.
NO_ANSWER = (-900, -901)
# Bounds a hang.
TAKEN_SECONDS = 60


def put_until_taken(put):
    """Calls `put` as a user does who tries again; returns what was answered before it succeeded. Fails on an answer that
    the documentation does not name for the time after a takeover."""
    refused = []

    def taken():
        answer = put()
        assert answer in (0, NO_MEMORY, *NO_ANSWER), f"a put after the takeover is answered with {answer}, after {refused}"
        if answer != 0:
            refused.append(answer)
        return answer == 0

    wait_until(taken, "a put after the takeover to succeed", TAKEN_SECONDS)
    return refused
