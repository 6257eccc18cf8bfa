#!/usr/bin/env python3
"""Takes the manifest of kind's default storage out of kind's sources, where it is a constant with the names of two images.

usage: storage.py const_storage.go FOLDER

Writes FOLDER/storage.yaml, and the names of the images to FOLDER/storage-images: the provisioner, then its helper."""

import pathlib
import re
import sys

IMAGES = ["storageProvisionerImage", "storageHelperImage"]


def main(source, folder):
    text, folder = pathlib.Path(source).read_text(), pathlib.Path(folder)
    names = dict(re.findall(r'const (\w+Image) = "(.*)"', text))
    # A raw string of Go, in which "` + name + `" inserts a constant.
    inserted = re.sub(r"` \+ (\w+) \+ `", lambda found: names[found[1]], text.partition("const defaultStorageManifest = `")[2])
    manifest = inserted.partition("`")[0]
    missing = [each for each in IMAGES if names.get(each, "-") not in manifest]
    if missing:
        sys.exit(f"{source}: no manifest with the images {', '.join(missing)}: kind's sources have changed")
    (folder / "storage.yaml").write_text(manifest)
    (folder / "storage-images").write_text("".join(f"{names[each]}\n" for each in IMAGES))


if __name__ == "__main__":
    main(*sys.argv[1:])
