"""What came of each scenario, as a table in Markdown: printed at the end, and kept in docs/e2e.md."""

from dataclasses import dataclass

PASSED, FAILED, SKIPPED = "ok", "FAILED", "not run"


@dataclass
class Row:
    """One line. What was not measured is None."""

    scenario: str
    what: str
    result: str = FAILED
    silence: float | None = None
    client: float | None = None
    failed: int | None = None
    acknowledged: int | None = None
    lost: int | None = None
    note: str = ""

    def measured(self, done):
        """Takes over what a round found; several rounds give the worst."""
        self.silence = max(self.silence or 0, done.silence)
        if done.client is not None:
            self.client = max(self.client or 0, done.client)
            self.failed = (self.failed or 0) + done.failed
        self.acknowledged = (self.acknowledged or 0) + done.acknowledged
        self.lost = (self.lost or 0) + len(done.violations)


def table(rows):
    head = "| | scenario | result | time without answers | for the worst client | failed | acknowledged | lost |"
    return "\n".join([head, "|---|---|---|---:|---:|---:|---:|---:|", *map(_line, rows)])


def _line(row):
    seconds = (f"{each:.2f} s" if each is not None else "–" for each in (row.silence, row.client))
    counts = (str(each) if each is not None else "–" for each in (row.failed, row.acknowledged, row.lost))
    what = f"{row.what} ({row.note})" if row.note else row.what
    return "| " + " | ".join([row.scenario, what, row.result, *seconds, *counts]) + " |"
