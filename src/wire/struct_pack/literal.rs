//! Type literals: the byte strings that describe a type's shape on the wire, built while compiling.

use super::md5;

/// The literal of a type. Held by value in an array so that literals of parts can be joined in a constant.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Literal {
    bytes: [u8; Self::CAPACITY],
    length: usize,
}

impl Literal {
    /// Room for the longest literal of the protocol (106 bytes) with a margin; a longer one does not compile.
    const CAPACITY: usize = 192;

    /// The literal of a message that has no body at all: a call without arguments.
    pub const NONE: Self = Self { bytes: [0; Self::CAPACITY], length: 0 };

    /// A literal of exactly these bytes.
    pub const fn of(bytes: &[u8]) -> Self {
        Self::NONE.bytes(bytes)
    }

    /// This literal followed by raw bytes.
    pub const fn bytes(mut self, more: &[u8]) -> Self {
        let mut index = 0;
        while index < more.len() {
            self.bytes[self.length] = more[index];
            self.length += 1;
            index += 1;
        }
        self
    }

    /// This literal followed by another one.
    pub const fn then(self, next: Self) -> Self {
        self.bytes(next.as_bytes())
    }

    /// The bytes as they stand on the wire, without the closing NUL.
    pub const fn as_bytes(&self) -> &[u8] {
        self.bytes.split_at(self.length).0
    }
}

impl std::fmt::Debug for Literal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.as_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// What identifies a type on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// The type literal.
    pub literal: Literal,
    /// The type code with bit 0 clear.
    pub code: u32,
}

impl Shape {
    /// The shape that a literal describes.
    pub const fn of(literal: Literal) -> Self {
        // Bit 0 of a code on the wire says "a metainfo byte follows", so it is not part of the code.
        Self { literal, code: md5::head(literal.as_bytes()) & !1 }
    }
}

#[cfg(test)]
mod tests {
    use super::{Literal, Shape};

    #[test]
    fn parts_join_in_order() {
        let literal = Literal::of(&[0xfd]).then(Literal::of(&[0x80, 0x0c])).bytes(&[0xff]);
        assert_eq!(literal.as_bytes(), [0xfd, 0x80, 0x0c, 0xff]);
        assert_eq!(format!("{literal:?}"), "fd800cff");
    }

    #[test]
    fn the_code_of_a_string_is_the_one_that_clients_send() {
        assert_eq!(Shape::of(Literal::of(&[0x80, 0x0c])).code, 0x9dcf_fa76);
    }
}
