"""Reads Rust sources for scripts/house: which text of a file is code, which is comment, which belongs to tests."""

import bisect
import functools
import re

# What may hold braces, quotes and paths that are no code. A lifetime ('a) is not among them: it has no second quote.
NOT_CODE = re.compile(
    r"""(?P<comment> //[^\n]* | /\*.*?\*/ )
        | \b b?r (?P<fence>\#*) ".*?" (?P=fence)
        | "(?:\\.|[^"\\])*"
        | '(?:\\'|\\[^\n']+|[^\\'\n])'""",
    re.DOTALL | re.VERBOSE,
)
TEST_ONLY = re.compile(r"#\[cfg\((?:all\()?test\b[^\n]*\]")
FUNCTION = re.compile(r"\bfn\s+(\w+)")
TYPE = re.compile(r"^\s*(?:pub(?:\([a-z ]+\))?\s+)?(?:struct|enum|trait|union)\s+(\w+)", re.MULTILINE)
DOC = re.compile(r"\s*//([/!])(?!/)\s?(.*)")


def blank(text):
    """As many spaces, with the line breaks left in, so that positions and lines stay what they were."""
    return re.sub(r"[^\n]", " ", text)


def item_end(code, at):
    """Where the item ends that begins at `at`: after its braces, or after its semicolon if it has none."""
    depth = 0
    for at in range(at, len(code)):
        letter = code[at]
        depth += (letter in "([{") - (letter in ")]}")
        if depth <= 0 and letter in ";}":
            return at + 1
    return len(code)


class Source:
    """One file. `code` is its text with comments, strings and what is compiled for tests only blanked out."""

    def __init__(self, path, root):
        self.path, self.name = path, str(path.relative_to(root))
        self.text = path.read_text()
        self._starts = [0, *(match.end() for match in re.finditer("\n", self.text))]
        self.comments = [(match.start(), match[0]) for match in NOT_CODE.finditer(self.text) if match["comment"]]
        self.code = NOT_CODE.sub(lambda match: blank(match[0]), self.text)
        self._test_lines = set()
        for match in TEST_ONLY.finditer(self.code):
            end = item_end(self.code, match.end())
            self.code = self.code[: match.start()] + blank(self.code[match.start() : end]) + self.code[end:]
            self._test_lines.update(range(self.line(match.start()), self.line(end - 1) + 1))

    def line(self, position):
        return bisect.bisect_right(self._starts, position)

    @functools.cached_property
    def lines(self):
        """(number, text) of the lines that do not belong to tests."""
        return [(at, line) for at, line in enumerate(self.text.splitlines(), 1) if at not in self._test_lines]

    @functools.cached_property
    def docs(self):
        """The doc comments, each as (number of its first line, "/" or for a whole module "!", its lines)."""
        found, last = [], None
        for number, line in self.lines:
            match = DOC.match(line)
            if match and last == (number - 1, match[1]):
                found[-1][2].append(match[2])
            elif match:
                found.append((number, match[1], [match[2]]))
            last = (number, match[1]) if match else None
        return found

    def other_comments(self):
        """How many lines are comments and no doc comments."""
        return sum(bool(re.match(r"\s*//", line)) and not DOC.match(line) for _, line in self.lines)

    def functions(self):
        """(name, first line, lines) of each function that has a body."""
        for match in FUNCTION.finditer(self.code):
            end = item_end(self.code, match.start())
            if self.code[end - 1] == "}":
                first = self.line(match.start())
                yield match[1], first, self.line(end - 1) - first + 1

    def types(self):
        return TYPE.findall(self.code)
