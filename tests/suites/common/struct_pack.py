"""A generic struct_pack codec driven by type literals.

The wire format writes no field names: a message is fully described by its
*type literal*, the byte string whose MD5 names the type. This module parses a
literal into a tree of small type objects, each of which can encode, decode and
produce a zero value. Nothing in here knows a single Mooncake type.

Python values: integers for every integer and enum, ``bool``, ``float``, ``str``
for strings (bytes that are not UTF-8 survive as surrogate escapes), ``list``
for containers, a list of pairs for maps, ``tuple`` for structs, ``(index,
value)`` for variants, ``None`` or the value for optionals, and ``Ok``/``Err``
for ``expected``.
"""

import hashlib
import struct
from dataclasses import dataclass


class CodecError(Exception):
    """The bytes or the value do not fit the type."""


@dataclass(frozen=True)
class Ok:
    """The success alternative of an ``expected``."""

    value: object = None

    def __repr__(self):
        return f"Ok({self.value!r})"


@dataclass(frozen=True)
class Err:
    """The error alternative of an ``expected``: the error code."""

    code: int

    def __repr__(self):
        return f"Err({self.code})"


_SCALARS = {
    0x01: "<i",
    0x02: "<I",
    0x03: "<q",
    0x04: "<Q",
    0x05: "<b",
    0x06: "<B",
    0x07: "<h",
    0x08: "<H",
    0x0B: "<?",
    0x0C: "<c",
    0x11: "<f",
    0x12: "<d",
}
_SIZE_FORMATS = ["<B", "<H", "<I", "<Q"]
_END = 0xFF
# Alignment marks of trivially serialisable structs are 129 + alignment. Only
# eight-byte alignment occurs in this protocol, and 0x89 is no type byte, so it
# can be told from a member.
_ALIGN_8 = 0x89


class Reader:
    """A cursor over received bytes that refuses to read past the end."""

    def __init__(self, data, position=0, size_type=0):
        self.data = data
        self.position = position
        self.size_type = size_type

    def take(self, count):
        end = self.position + count
        if end > len(self.data):
            raise CodecError(f"need {count} bytes at {self.position} of {len(self.data)}")
        piece = self.data[self.position : end]
        self.position = end
        return piece

    def unpack(self, fmt):
        return struct.unpack(fmt, self.take(struct.calcsize(fmt)))[0]

    def length(self):
        return self.unpack(_SIZE_FORMATS[self.size_type])


class Scalar:
    def __init__(self, fmt):
        self.fmt = fmt

    def zero(self):
        return {"<?": False, "<c": b"\0", "<f": 0.0, "<d": 0.0}.get(self.fmt, 0)

    def encode(self, value, out, size_type):
        out.append(struct.pack(self.fmt, value))

    def decode(self, reader):
        return reader.unpack(self.fmt)

    def longest(self, value):
        return 0


class Monostate:
    def zero(self):
        return None

    def encode(self, value, out, size_type):
        pass

    def decode(self, reader):
        return None

    def longest(self, value):
        return 0


class String:
    def zero(self):
        return ""

    @staticmethod
    def raw(value):
        return value if isinstance(value, bytes) else value.encode("utf-8", "surrogateescape")

    def encode(self, value, out, size_type):
        raw = self.raw(value)
        out.append(struct.pack(_SIZE_FORMATS[size_type], len(raw)))
        out.append(raw)

    def decode(self, reader):
        return reader.take(reader.length()).decode("utf-8", "surrogateescape")

    def longest(self, value):
        return len(self.raw(value))


class Container:
    def __init__(self, element):
        self.element = element

    def zero(self):
        return []

    def encode(self, value, out, size_type):
        out.append(struct.pack(_SIZE_FORMATS[size_type], len(value)))
        for item in value:
            self.element.encode(item, out, size_type)

    def decode(self, reader):
        return [self.element.decode(reader) for _ in range(reader.length())]

    def longest(self, value):
        return max([len(value), *(self.element.longest(item) for item in value)])


class Optional:
    def __init__(self, inner):
        self.inner = inner

    def zero(self):
        return None

    def encode(self, value, out, size_type):
        out.append(b"\0" if value is None else b"\1")
        if value is not None:
            self.inner.encode(value, out, size_type)

    def decode(self, reader):
        return self.inner.decode(reader) if reader.unpack("<?") else None

    def longest(self, value):
        return 0 if value is None else self.inner.longest(value)


class Variant:
    def __init__(self, alternatives):
        self.alternatives = alternatives

    def zero(self):
        return (0, self.alternatives[0].zero())

    def encode(self, value, out, size_type):
        out.append(bytes([value[0]]))
        self.alternatives[value[0]].encode(value[1], out, size_type)

    def decode(self, reader):
        index = reader.unpack("<B")
        if index >= len(self.alternatives):
            raise CodecError(f"variant index {index}")
        return (index, self.alternatives[index].decode(reader))

    def longest(self, value):
        return self.alternatives[value[0]].longest(value[1])


class Expected:
    def __init__(self, value, error):
        self.value = value
        self.error = error

    def zero(self):
        return Ok(self.value.zero())

    def encode(self, value, out, size_type):
        if isinstance(value, Ok):
            out.append(b"\1")
            self.value.encode(value.value, out, size_type)
        else:
            out.append(b"\0")
            self.error.encode(value.code, out, size_type)

    def decode(self, reader):
        if reader.unpack("<?"):
            return Ok(self.value.decode(reader))
        return Err(self.error.decode(reader))

    def longest(self, value):
        return self.value.longest(value.value) if isinstance(value, Ok) else 0


class Struct:
    def __init__(self, members):
        self.members = members

    def zero(self):
        return tuple(member.zero() for member in self.members)

    def encode(self, value, out, size_type):
        if len(value) != len(self.members):
            raise CodecError(f"{len(self.members)} members wanted, got {len(value)}: {value!r}")
        for member, item in zip(self.members, value):
            member.encode(item, out, size_type)

    def decode(self, reader):
        return tuple(member.decode(reader) for member in self.members)

    def longest(self, value):
        return max((m.longest(v) for m, v in zip(self.members, value)), default=0)


def parse_literal(literal):
    """Turn the bytes of a type literal into a type object."""
    parsed, rest = _parse(literal, 0)
    if rest != len(literal):
        raise CodecError(f"literal {literal.hex()} has trailing bytes")
    return parsed


def _parse(literal, at):
    tag = literal[at]
    if tag in _SCALARS:
        return Scalar(_SCALARS[tag]), at + 1
    if tag == 0xFA:
        return Monostate(), at + 1
    if tag == 0x80:
        return String(), at + 2
    if tag == 0x82:
        key, at = _parse(literal, at + 1)
        value, at = _parse(literal, at)
        return Container(Struct([key, value])), at
    if tag == 0x84:
        inner, at = _parse(literal, at + 1)
        return Container(inner), at
    if tag == 0x85:
        inner, at = _parse(literal, at + 1)
        return Optional(inner), at
    if tag == 0x86:
        members, at = _parse_members(literal, at + 1)
        return Variant(members), at
    if tag == 0x87:
        value, at = _parse(literal, at + 1)
        error, at = _parse(literal, at)
        return Expected(value, error), at
    if tag == 0xFD:
        members, at = _parse_members(literal, at + 1)
        return Struct(members), at
    raise CodecError(f"unknown type byte {tag:#x} in {literal.hex()}")


def _parse_members(literal, at):
    members = []
    while literal[at] != _END:
        if literal[at] == _ALIGN_8:
            at += 1
            continue
        member, at = _parse(literal, at)
        members.append(member)
    return members, at + 1


class Message:
    """One top-level type: its literal, its code, its encoding with header."""

    def __init__(self, literal):
        self.literal = literal
        self.type = parse_literal(literal)
        self.code = int.from_bytes(hashlib.md5(literal).digest()[:4], "big") & ~1

    def encode(self, value, with_literal=False):
        longest = self.type.longest(value)
        size_type = next(n for n, limit in enumerate((1 << 8, 1 << 16, 1 << 32, 1 << 64)) if longest < limit)
        out = []
        if with_literal or size_type:
            out.append(struct.pack("<I", self.code | 1))
            out.append(bytes([(4 if with_literal else 0) | size_type << 3]))
            if with_literal:
                out.append(self.literal + b"\0")
        else:
            out.append(struct.pack("<I", self.code))
        self.type.encode(value, out, size_type)
        return b"".join(out)

    def decode(self, body):
        reader = Reader(body)
        code = reader.unpack("<I")
        if code >> 1 != self.code >> 1:
            raise CodecError(f"type code {code:#x}, wanted {self.code:#x}")
        if code & 1:
            info = reader.unpack("<B")
            if info & 3:
                raise CodecError("compatible members are not used by this protocol")
            if info & 4:
                if reader.take(len(self.literal) + 1) != self.literal + b"\0":
                    raise CodecError("type literal differs")
            reader.size_type = info >> 3 & 3
        value = self.type.decode(reader)
        if reader.position != len(body):
            raise CodecError(f"{len(body) - reader.position} bytes left over")
        return value
