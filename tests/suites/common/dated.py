"""The day, from which random tests draw seeds beside the fixed ones: those show what they once showed, these look further."""

import os
import time

#: In days since 1970; MOONKEEPER_TEST_DAY brings one back.
DAY = int(os.environ.get("MOONKEEPER_TEST_DAY") or time.time() // 86_400)
