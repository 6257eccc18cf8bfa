#!/usr/bin/env python3
"""Writes a container image of a few files without a container engine.

The archive is an OCI image layout with Docker's manifest beside it, so that `docker load`, `podman load` and
`ctr -n k8s.io images import` all take it. The same input gives the same bytes.

usage: archive.py NAME:TAG OUT.tar --file SOURCE=/path/in/image [--link TARGET=/path/in/image]
                  [--user UID:GID] [--label KEY=VALUE] -- ENTRYPOINT [ARGUMENT...]
"""

import argparse
import gzip
import hashlib
import io
import json
import platform
import tarfile

OCI = "application/vnd.oci.image."
# What engines put into an image that says nothing about it.
PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def full_name(name):
    """The name with its registry: without one, container engines look under docker.io."""
    first, *rest = name.split("/")
    if rest and (first == "localhost" or "." in first or ":" in first):
        return name
    return f"docker.io/{name}" if rest else f"docker.io/library/{name}"


def layer(files, links):
    """A tar of the files (path in the image -> content) and symbolic links (path -> target), with their folders."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for folder in sorted({parent for path in [*files, *links] for parent in _parents(path)}):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(entry)
        for path, content in sorted(files.items()):
            entry = tarfile.TarInfo(path.lstrip("/"))
            entry.size, entry.mode = len(content), 0o755
            tar.addfile(entry, io.BytesIO(content))
        for path, target in sorted(links.items()):
            entry = tarfile.TarInfo(path.lstrip("/"))
            entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, target, 0o777
            tar.addfile(entry)
    return buffer.getvalue()


def _parents(path):
    parts = path.strip("/").split("/")[:-1]
    return ["/".join(parts[: count + 1]) for count in range(len(parts))]


def write(name, out, files, links=None, entrypoint=(), user="", labels=None):
    """Writes the archive to `out`, and returns the full name and the digest of the image."""
    name = full_name(name)
    blobs = {}

    def blob(content, kind):
        digest = hashlib.sha256(content).hexdigest()
        blobs[digest] = content
        return {"mediaType": OCI + kind, "digest": f"sha256:{digest}", "size": len(content)}

    def document(value, kind):
        return blob(json.dumps(value, sort_keys=True).encode(), kind)

    plain = layer(files, links or {})
    # A fixed time, or the same input would give other bytes.
    packed = blob(gzip.compress(plain, 6, mtime=0), "layer.v1.tar+gzip")
    settings = {"Entrypoint": list(entrypoint), "WorkingDir": "/", "User": user, "Labels": labels or {}, "Env": [PATH]}
    config = document(
        {
            "architecture": ARCHITECTURES[platform.machine()],
            "os": "linux",
            "config": {key: value for key, value in settings.items() if value},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(plain).hexdigest()}"]},
        },
        "config.v1+json",
    )
    manifest = document(
        {"schemaVersion": 2, "mediaType": OCI + "manifest.v1+json", "config": config, "layers": [packed]},
        "manifest.v1+json",
    )
    reference = manifest | {
        "annotations": {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name.rsplit(":", 1)[1]}
    }

    def path(descriptor):
        return "blobs/sha256/" + descriptor["digest"].removeprefix("sha256:")

    members = {
        "oci-layout": json.dumps({"imageLayoutVersion": "1.0.0"}),
        "index.json": json.dumps({"schemaVersion": 2, "mediaType": OCI + "index.v1+json", "manifests": [reference]}),
        # What Docker reads.
        "manifest.json": json.dumps([{"Config": path(config), "RepoTags": [name], "Layers": [path(packed)]}]),
    }
    members = {key: value.encode() for key, value in members.items()}
    members |= {f"blobs/sha256/{digest}": content for digest, content in sorted(blobs.items())}
    with tarfile.open(out, "w", format=tarfile.PAX_FORMAT) as tar:
        for member, content in members.items():
            entry = tarfile.TarInfo(member)
            entry.size, entry.mode = len(content), 0o644
            tar.addfile(entry, io.BytesIO(content))
    return name, manifest["digest"]


def pair(text):
    first, separator, second = text.partition("=")
    if not separator:
        raise argparse.ArgumentTypeError(f"{text}: = is missing")
    return first, second


def main():
    parser = argparse.ArgumentParser(usage=__doc__.partition("usage: ")[2])
    parser.add_argument("name")
    parser.add_argument("out")
    parser.add_argument("--file", type=pair, action="append", default=[], required=True)
    parser.add_argument("--link", type=pair, action="append", default=[])
    parser.add_argument("--label", type=pair, action="append", default=[])
    parser.add_argument("--user", default="")
    parser.add_argument("entrypoint", nargs="+")
    given = parser.parse_args()
    files = {}
    for source, path in given.file:
        with open(source, "rb") as file:
            files[path] = file.read()
    links = {path: target for target, path in given.link}
    print(*write(given.name, given.out, files, links, given.entrypoint, given.user, dict(given.label)))


if __name__ == "__main__":
    main()
