//! Type literals: the byte strings that describe a type's shape on the wire, built at compile time.

use super::md5;

/// The literal of a type. It is an array by value, so that literals of parts can be joined in a constant.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Literal {
    bytes: [u8; Self::CAPACITY],
    length: usize,
}

impl Literal {
    /// Capacity for the longest literal of the protocol (106 bytes) with a margin; a longer one does not compile.
    const CAPACITY: usize = 192;

    /// The literal of a message that has no body at all: a call without arguments.
    pub const NONE: Self = Self { bytes: [0; Self::CAPACITY], length: 0 };

    /// Creates a literal of exactly these bytes.
    pub const fn of(bytes: &[u8]) -> Self {
        Self::NONE.bytes(bytes)
    }

    /// Appends raw bytes to this literal.
    pub const fn bytes(mut self, more: &[u8]) -> Self {
        let mut index = 0;
        while index < more.len() {
            self.bytes[self.length] = more[index];
            self.length += 1;
            index += 1;
        }
        self
    }

    /// Appends another literal to this one.
    pub const fn then(self, next: Self) -> Self {
        self.bytes(next.as_bytes())
    }

    /// Returns the bytes as they are sent, without the closing NUL.
    pub const fn as_bytes(&self) -> &[u8] {
        self.bytes.split_at(self.length).0
    }
}

impl std::fmt::Debug for Literal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.as_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Identifies a type on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    pub literal: Literal,
    /// The type code with bit 0 clear.
    pub code: u32,
}

impl Shape {
    /// Derives the shape of a literal.
    pub const fn of(literal: Literal) -> Self {
        // Bit 0 of a code on the wire means that a metainfo byte follows, so it is not part of the code.
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
