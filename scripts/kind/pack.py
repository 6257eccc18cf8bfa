#!/usr/bin/env python3
"""Packs the files and symbolic links of a folder as a container image without a container engine.

usage: pack.py NAME:TAG OUT.tar FOLDER ENTRYPOINT"""

import pathlib
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "image"))
import archive  # noqa: E402


def main(name, out, folder, entrypoint):
    files, links = {}, {}
    for each in pathlib.Path(folder).rglob("*"):
        inside = f"/{each.relative_to(folder)}"
        if each.is_symlink():
            links[inside] = str(each.readlink())
        elif each.is_file():
            files[inside] = each.read_bytes()
    print(*archive.write(name, out, files, links, [entrypoint]))


if __name__ == "__main__":
    main(*sys.argv[1:])
