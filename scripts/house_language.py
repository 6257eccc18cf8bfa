"""Counts two habits of language for scripts/house: docs that say next to nothing, and pronouns that hide the actor.

Docs of items (`///`) count where they have one line. Pronouns are counted in the comments of src, in every Markdown
page, and in what the chart tells users: comments, notes, descriptions of values. Its CRD is left out: it is made from
doc comments."""

import re
import subprocess

SHORT_DOC = 4
PRONOUN = re.compile(r"\b(?:nobody|somebody|whoever|anybody)\b", re.IGNORECASE)
WORD = re.compile(r"[A-Za-z][A-Za-z'’]*")
# The parts of a chart's file that are text, by the ending of its name.
TEXT = {
    ".md": re.compile(r".+"),
    ".txt": re.compile(r".+"),
    ".yaml": re.compile(r"(?:^|\s)#.*"),
    ".tpl": re.compile(r"(?:^|\s)#.*|/\*.*?\*/", re.DOTALL),
    ".json": re.compile(r'"description":\s*".*"'),
}


def short_docs(files):
    """([(file, line, text)], how many): of the docs with one line those that have at most SHORT_DOC words, and all."""
    docs = [(file.name, *doc) for file in files for doc in file.docs]
    docs = [(name, line, text[0]) for name, line, kind, text in docs if kind == "/" and len(text) == 1]
    return [doc for doc in docs if len(doc[2].split()) <= SHORT_DOC], len(docs)


def tracked(root):
    """The files of a tree: what git would keep, or all of an export, which has no .git."""
    if not (root / ".git").exists():
        return sorted(path for path in root.rglob("*") if path.is_file())
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout.splitlines()
    return [root / name for name in names if (root / name).is_file()]


def texts(root, files):
    """(file, first line, text) of everything that is prose."""
    for file in files:
        yield from ((file.name, file.line(position), text) for position, text in file.comments)
    for path in tracked(root):
        name = str(path.relative_to(root))
        if path.suffix == ".md" or name.startswith("charts/") and path.suffix in TEXT and path.name != "crd.yaml":
            whole = path.read_text()
            for match in re.finditer(TEXT[path.suffix].pattern, whole, TEXT[path.suffix].flags | re.MULTILINE):
                yield name, whole.count("\n", 0, match.start()) + 1, match[0]


def pronouns(root, files):
    """([(file, line, text)], words of all texts)"""
    found, words = [], 0
    for name, line, text in texts(root, files):
        words += len(WORD.findall(text))
        for match in PRONOUN.finditer(text):
            at = line + text.count("\n", 0, match.start())
            found.append((name, at, text.splitlines()[at - line].strip()))
    return found, words
