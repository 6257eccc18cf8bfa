"""Which file of src uses which, for scripts/house. A room is a folder of src, or a file directly in it.

What a file uses is read from its paths: those of `use`, and those in code that begin with `crate`, `super`, `self`, a
module of its own or a name that it imports. What is compiled for tests only does not count. A name that a module hands
on (`pub use`) counts as use of the file that defines it, but for what it hands on with `*`."""

import collections
import re

from house_source import Source

USE = re.compile(r"\b(pub(?:\([^)]*\))?\s+)?use\s+([^;]+);")
PATH = re.compile(r"(?<![\w:])(?:[a-z_]\w*)(?:::\w+)+")
# Its expansion is the one path that code does not show.
PLANTED = re.compile(r"\bplanted!")
# Re-exports of re-exports are followed this far.
DEPTH = 8


def expand(tree):
    """(path, name) of what a `use` tree imports: a::{b, c as d} is a::b as b and a::c as d."""
    tree = " ".join(tree.split())
    if "{" not in tree:
        path, _, alias = tree.partition(" as ")
        path = path.removesuffix("::self")
        return [(path, alias or path.split("::")[-1])]
    head, _, rest = tree.partition("{")
    rest, found, depth, start = rest.rsplit("}", 1)[0], [], 0, 0
    for at, letter in enumerate(rest + ","):
        depth += (letter == "{") - (letter == "}")
        if letter == "," and depth == 0:
            if rest[start:at].strip():
                found += expand(head + rest[start:at].strip())
            start = at + 1
    return found


class Rooms:
    """All files of a src folder, and what leads from one to another."""

    def __init__(self, root):
        source = root / "src"
        self.files = [Source(path, root) for path in sorted(source.rglob("*.rs")) if path.name != "tests.rs"]
        for file in self.files:
            parts = file.path.relative_to(source).with_suffix("").parts
            file.module = parts[:-1] if parts[-1] in ("mod", "lib", "main") else parts
            file.room = file.module[0] if file.module else ""
        self.by_module = {file.module: file for file in self.files}
        self.imports = {file: self._imports(file) for file in self.files}
        # What a name in a module stands for. Also private imports: the modules below see them.
        self.names = {}
        for file, found in self.imports.items():
            for _, path, name, _ in found:
                self.names[(*file.module, name)] = self._absolute(file, path)
        self.uses = [use for file in self.files for use in self._uses(file)]

    def _imports(self, file):
        """(position, path, name, whether it is only handed on) of what `use` imports."""
        rest = set(re.findall(r"\w+", USE.sub("", file.code)))
        return [
            (match.start(2), path, name, bool(match[1]) and name not in rest)
            for match in USE.finditer(file.code)
            for path, name in expand(match[2])
        ]

    def _absolute(self, file, path):
        """The words of a path from the root of the crate; none for a path into another crate."""
        words, base = path.split("::"), list(file.module)
        if words[0] == "crate":
            return tuple(words[1:])
        if words[0] not in ("super", "self"):
            return (*base, *words) if (*base, words[0]) in self.by_module else ()
        while words and words[0] in ("super", "self"):
            base = base[:-1] if words.pop(0) == "super" else base
        return (*base, *words)

    def _target(self, words, depth=0):
        """The file that defines what these words name."""
        for length in range(len(words), 0, -1):
            # A module that is imported by its own name is itself.
            meant = self.names.get(words[:length])
            if meant and meant != words[:length] and depth < DEPTH:
                return self._target(meant + words[length:], depth + 1)
            if words[:length] in self.by_module:
                return self.by_module[words[:length]]
        return None

    def _paths(self, file):
        """(position, path, words, whether it is only handed on) of every path in a file."""
        for position, path, _, handed_on in self.imports[file]:
            yield position, path, self._absolute(file, path), handed_on
        rest = USE.sub(lambda match: " " * len(match[0]), file.code)
        for match in PATH.finditer(rest):
            words = self._absolute(file, match[0])
            first, *others = match[0].split("::")
            if not words and self.names.get((*file.module, first)):
                words = (*self.names[(*file.module, first)], *others)
            yield match.start(), match[0], words, False
        for match in PLANTED.finditer(rest):
            yield match.start(), match[0], ("planted",), False

    def _uses(self, file):
        """(file, line, path, other file, whether it is only handed on), the first of each kind."""
        seen = set()
        for position, path, words, handed_on in sorted(self._paths(file)):
            other = self._target(words)
            if other and other is not file and other.module and (other, handed_on) not in seen:
                seen.add((other, handed_on))
                yield file, file.line(position), path, other, handed_on

    def edges(self):
        """{(room, room): [(file, line, path)]} between different rooms."""
        found = collections.defaultdict(list)
        for file, line, path, other, _ in self.uses:
            if file.room and file.room != other.room:
                found[file.room, other.room].append((file.name, line, path))
        return dict(sorted(found.items()))

    def cycles(self, below=True):
        """Groups of files of one room that use each other in a cycle, each as [(file, line, path, file)]. To hand a
        name on is not to use it. Without `below`, what a module uses of the modules inside it does not count either."""
        graph, why = collections.defaultdict(set), {}
        for file, line, path, other, handed_on in self.uses:
            inside = other.module[: len(file.module)] == file.module
            if file.room == other.room and not handed_on and (below or not inside):
                graph[file.name].add(other.name)
                why.setdefault((file.name, other.name), (file.name, line, path, other.name))
        return [[why[edge] for edge in sorted(why) if set(edge) <= set(group)] for group in strongly_connected(graph)]


def shortest(cycle):
    """The edges of a shortest cycle in a group of `Rooms.cycles`, in order."""
    edges = collections.defaultdict(list)
    for edge in cycle:
        edges[edge[0]].append(edge)
    found = [way_back(edges, name) for name in sorted(edges)]
    return min((way for way in found if way), key=len)


def way_back(edges, start):
    """The edges of a shortest way from a file to itself; none if there is no way."""
    ways, seen = collections.deque([[edge] for edge in edges[start]]), set()
    while ways:
        way = ways.popleft()
        last = way[-1][3]
        if last == start:
            return way
        if last not in seen:
            seen.add(last)
            ways.extend([*way, edge] for edge in edges.get(last, []))
    return []


def strongly_connected(graph):
    """The largest groups of nodes in which every one leads to every other; a node alone is none."""
    reached = {node: reachable(graph, node) for node in graph}
    groups = {frozenset(other for other in reached[node] if node in reached.get(other, ())) for node in graph}
    return sorted(sorted(group) for group in groups if len(group) > 1)


def reachable(graph, node):
    found, waiting = set(), [node]
    while waiting:
        new = graph.get(waiting.pop(), set()) - found
        found |= new
        waiting += new
    return found
