"""Certificates of a test, made with openssl."""

import subprocess


class Authority:
    """A certificate authority of a test."""

    def __init__(self, folder, name):
        self.folder, self.name = folder, name
        self.certificate, self.key = folder / f"{name}-ca.crt", folder / f"{name}-ca.key"
        new = ["req", "-x509", "-days", "2", "-subj", f"/CN={name}", "-addext", "keyUsage=critical,keyCertSign"]
        self._openssl(*new, *self._new_key(self.key), "-out", self.certificate)

    @staticmethod
    def _new_key(path):
        return ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", path]

    @staticmethod
    def _openssl(*arguments):
        subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, timeout=60)

    def issue(self, certificate, key, address):
        """Writes a new certificate and its key, each in one step: a program may read them at this moment."""
        request, extensions = self.folder / "request", self.folder / "extensions"
        extensions.write_text(f"subjectAltName=IP:{address}\nextendedKeyUsage=serverAuth,clientAuth\n")
        made, made_key = certificate.with_suffix(".new"), key.with_suffix(".newkey")
        self._openssl("req", "-new", "-subj", "/CN=of-a-test", *self._new_key(made_key), "-out", request)
        signed = ["x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self.key, "-CAcreateserial"]
        self._openssl(*signed, "-days", "2", "-extfile", extensions, "-out", made)
        made.replace(certificate)
        made_key.replace(key)
