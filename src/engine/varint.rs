//! Encodes numbers and byte strings, for records in the log and for snapshots.
//!
//! Numbers take seven bits a byte, the lowest bits first (LEB128); differences are zigzag-encoded, so that small ones
//! of either sign are short. Reading trusts nothing: every length is checked against what is left before it is used.

use super::types::Uuid;

/// Why bytes cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    #[error("the bytes end too early")]
    Short,
    /// There is more than there should be.
    #[error("there are bytes after the end")]
    Long,
    /// A number does not fit its type.
    #[error("a number is too large")]
    Overflow,
    /// A value that this version does not know.
    #[error("{what} has the unknown value {value}")]
    Unknown {
        /// What has the value, for the message.
        what: &'static str,
        value: u64,
    },
}

/// Appends a number of variable length.
#[inline]
pub fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Appends the difference from `from` to `to`, which is short when they are near, whichever is the larger.
#[inline]
pub fn put_difference(out: &mut Vec<u8>, from: u64, to: u64) {
    let way = to.wrapping_sub(from) as i64;
    put_number(out, (way << 1 ^ way >> 63) as u64);
}

/// Appends a byte string behind its length.
#[inline]
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_number(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Appends an id of two 64-bit words.
#[inline]
pub fn put_uuid(out: &mut Vec<u8>, id: Uuid) {
    put_word(out, id.first);
    put_word(out, id.second);
}

/// Appends a number in eight bytes, for values that are as likely large as small.
#[inline]
pub fn put_word(out: &mut Vec<u8>, word: u64) {
    out.extend_from_slice(&word.to_le_bytes());
}

/// Decoder of what the functions above wrote. After an error, further reads return nothing meaningful.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'b> {
    rest: &'b [u8],
}

impl<'b> Reader<'b> {
    /// Starts at the first byte.
    #[must_use]
    pub fn new(bytes: &'b [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Returns whether everything was read.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Returns how many bytes are left.
    #[must_use]
    pub fn left(&self) -> usize {
        self.rest.len()
    }

    /// Checks that everything was read.
    pub fn finish(&self) -> Result<(), Malformed> {
        if self.rest.is_empty() { Ok(()) } else { Err(Malformed::Long) }
    }

    /// Reads one byte; fails at the end of the input.
    #[inline]
    pub fn byte(&mut self) -> Result<u8, Malformed> {
        let (first, rest) = self.rest.split_first().ok_or(Malformed::Short)?;
        self.rest = rest;
        Ok(*first)
    }

    /// Reads a boolean; `what` names it in an error.
    pub fn flag(&mut self, what: &'static str) -> Result<bool, Malformed> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            value => Err(Malformed::Unknown { what, value: value.into() }),
        }
    }

    /// Reads a number of variable length.
    #[inline]
    pub fn number(&mut self) -> Result<u64, Malformed> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                return Err(Malformed::Overflow);
            }
            number |= bits << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(Malformed::Overflow)
    }

    /// Reads a number of a smaller type.
    #[inline]
    pub fn narrow<T: TryFrom<u64>>(&mut self) -> Result<T, Malformed> {
        T::try_from(self.number()?).map_err(|_| Malformed::Overflow)
    }

    /// Reads a difference and returns the number at that distance from `from`.
    #[inline]
    pub fn difference(&mut self, from: u64) -> Result<u64, Malformed> {
        let folded = self.number()?;
        Ok(from.wrapping_add(folded >> 1 ^ (folded & 1).wrapping_neg()))
    }

    /// Reads how many items follow, each of at least `each` bytes. Refuses more than the rest of the bytes can hold.
    pub fn count(&mut self, each: usize) -> Result<usize, Malformed> {
        let count: usize = self.narrow()?;
        if count > self.rest.len() / each.max(1) { Err(Malformed::Short) } else { Ok(count) }
    }

    /// Reads `length` bytes as they are.
    #[inline]
    pub fn raw(&mut self, length: usize) -> Result<&'b [u8], Malformed> {
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or(Malformed::Short)?;
        self.rest = rest;
        Ok(bytes)
    }

    /// Reads a byte string behind its length.
    #[inline]
    pub fn bytes(&mut self) -> Result<&'b [u8], Malformed> {
        let length = self.narrow()?;
        self.raw(length)
    }

    /// Reads a number of eight bytes.
    #[inline]
    pub fn word(&mut self) -> Result<u64, Malformed> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or(Malformed::Short)?;
        self.rest = rest;
        Ok(u64::from_le_bytes(*bytes))
    }

    /// Reads an id of two 64-bit words.
    pub fn uuid(&mut self) -> Result<Uuid, Malformed> {
        Ok(Uuid { first: self.word()?, second: self.word()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back() {
        let numbers = (0..64).flat_map(|shift| [1_u64 << shift, (1 << shift) - 1]).chain([u64::MAX]);
        for number in numbers {
            let mut bytes = Vec::new();
            put_number(&mut bytes, number);
            put_difference(&mut bytes, 1 << 40, number);
            put_difference(&mut bytes, number, 0);
            let mut reader = Reader::new(&bytes);
            assert_eq!(reader.number(), Ok(number));
            assert_eq!(reader.difference(1 << 40), Ok(number));
            assert_eq!(reader.difference(number), Ok(0));
            assert_eq!(reader.finish(), Ok(()));
        }
        let mut near = Vec::new();
        put_difference(&mut near, 1 << 50, (1 << 50) - 60);
        assert_eq!(near.len(), 1);
    }

    #[test]
    fn lies_are_refused() {
        assert_eq!(Reader::new(&[0xff; 9]).number(), Err(Malformed::Short));
        assert_eq!(Reader::new(&[0xff; 11]).number(), Err(Malformed::Overflow));
        assert_eq!(Reader::new(&[5, 1, 2]).bytes(), Err(Malformed::Short));
        assert_eq!(Reader::new(&[4, 1, 2, 3]).count(1), Err(Malformed::Short));
        assert_eq!(Reader::new(&[3, 1, 2, 3]).count(1), Ok(3));
        assert_eq!(Reader::new(&[0x80, 0x02]).narrow::<u8>(), Err(Malformed::Overflow));
        assert!(matches!(Reader::new(&[2]).flag("it"), Err(Malformed::Unknown { value: 2, .. })));
    }
}
