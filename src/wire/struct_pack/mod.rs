//! The struct_pack codec, written generically: a type's literal and code are derived from its Rust definition.
//!
//! A type takes part by three traits. [`Wire`] gives its literal, [`Encode`] writes it, [`Decode`] reads it.
//! Primitives, byte strings, lists, optionals, maps and `expected` implement them here; structs, variants and numeric
//! enums get them from the macros `wire_struct!`, `wire_variant!` and `wire_enum!`. Strings are bytes: keys may be
//! binary. Decoding borrows from the input and allocates nothing but the lists of a batch.

mod io;
mod literal;
mod macros;
mod md5;
mod values;

pub use io::{MAX_ELEMENTS, Reader, Width, Writer};
pub use literal::{Literal, Shape};
pub(crate) use macros::{wire_enum, wire_struct, wire_variant};
pub use md5::head as md5_head;
pub use values::{List, Map};

/// Bit 0 of the code on the wire: a metainfo byte follows.
const HAS_METAINFO: u32 = 1;
/// Bits 0 and 1 of the metainfo byte: the width of a total length that "compatible" types have.
const METAINFO_COMPATIBLE: u8 = 3;
/// Bit 2 of the metainfo byte: the type literal and a NUL follow.
const METAINFO_LITERAL: u8 = 4;

/// Why a body could not be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The body ends before the value does, or a length is larger than the rest of the body.
    #[error("the body is truncated")]
    Truncated,
    /// The type code is not the one of the expected type.
    #[error("the type code is {found:#010x}, expected {expected:#010x}")]
    WrongCode {
        /// The code that was received, bit 0 clear.
        found: u32,
        /// The code of the expected type.
        expected: u32,
    },
    /// The code fits and the literal does not: a hash collision.
    #[error("the type literal does not fit the type code")]
    WrongLiteral,
    /// The index of a variant is out of range.
    #[error("a variant has no alternative {0}")]
    UnknownAlternative(u8),
    /// The containers of the message have more than [`MAX_ELEMENTS`] elements together.
    #[error("the message has more than {MAX_ELEMENTS} elements")]
    TooManyElements,
}

/// A type with a shape on the wire.
pub trait Wire {
    /// The type literal, from which the type code is computed.
    const LITERAL: Literal;
    /// Fewest bytes that a value can take, which bounds the length of a list before anything is allocated.
    const MIN_SIZE: usize;
    /// Literal and code in one place, computed at compile time.
    const SHAPE: &'static Shape = &Shape::of(Self::LITERAL);
}

/// A type that can be encoded.
pub trait Encode: Wire {
    /// Returns the largest container length inside the value. It decides the width of all lengths of a message.
    fn largest(&self) -> usize;
    /// Appends the payload, which follows the type code.
    fn encode(&self, writer: &mut Writer<'_>);
}

/// A type that can be decoded from input that lives for `'a`.
pub trait Decode<'a>: Wire + Sized {
    /// Decodes the payload, which follows the type code.
    fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError>;
}

/// How much a body contains about its type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Form {
    /// The type code only. Release builds send this, and the master replies with it.
    #[default]
    Short,
    /// The type code and the type literal. The published packages send this.
    Long,
}

/// Appends `value` with its header to `out`. A value without a body (a call without arguments) appends nothing.
#[inline]
pub fn encode<T: Encode + ?Sized>(value: &T, form: Form, out: &mut Vec<u8>) {
    if T::LITERAL.as_bytes().is_empty() {
        return;
    }
    let width = Width::for_length(value.largest());
    append_head(T::SHAPE, form, width, out);
    value.encode(&mut Writer::new(out, width));
}

/// Appends the header of a payload: the code, and the metainfo byte and literal where they are needed.
#[inline]
pub(super) fn append_head(shape: &Shape, form: Form, width: Width, out: &mut Vec<u8>) {
    match form {
        Form::Short if width == Width::One => out.extend_from_slice(&shape.code.to_le_bytes()),
        Form::Short => {
            out.extend_from_slice(&(shape.code | HAS_METAINFO).to_le_bytes());
            out.push(width.metainfo());
        }
        Form::Long => {
            out.extend_from_slice(&(shape.code | HAS_METAINFO).to_le_bytes());
            out.push(width.metainfo() | METAINFO_LITERAL);
            out.extend_from_slice(shape.literal.as_bytes());
            out.push(0);
        }
    }
}

/// Decodes one value in either form and any width. Bytes after the value are ignored, as in the reference.
#[inline]
pub fn decode<'a, T: Decode<'a>>(body: &'a [u8]) -> Result<T, DecodeError> {
    let mut reader = Reader::new(body, Width::One, MAX_ELEMENTS);
    if T::LITERAL.as_bytes().is_empty() {
        return T::decode(&mut reader);
    }
    let code = u32::from_le_bytes(reader.array()?);
    let expected = T::SHAPE.code;
    if code & !HAS_METAINFO != expected {
        return Err(DecodeError::WrongCode { found: code & !HAS_METAINFO, expected });
    }
    if code & HAS_METAINFO != 0 {
        let metainfo = reader.byte()?;
        reader.set_width(Width::from_metainfo(metainfo));
        if metainfo & METAINFO_COMPATIBLE != 0 {
            // The total length helps only readers of an older version of a type; this one reads to the end anyway.
            reader.take(1 << (metainfo & METAINFO_COMPATIBLE))?;
        }
        if metainfo & METAINFO_LITERAL != 0 {
            let literal = T::SHAPE.literal.as_bytes();
            if reader.take(literal.len())? != literal || reader.byte()? != 0 {
                return Err(DecodeError::WrongLiteral);
            }
        }
    }
    T::decode(&mut reader)
}

/// Returns the type code at the start of a body, bit 0 clear, whatever its type.
pub fn code_of(body: &[u8]) -> Option<u32> {
    Some(u32::from_le_bytes(*body.first_chunk()?) & !HAS_METAINFO)
}

#[cfg(test)]
mod tests;
