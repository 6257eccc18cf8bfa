//! Reading and writing payloads: bounds, container lengths, and the limits that protect against lengths that lie.

use super::DecodeError;

/// Most elements that all containers of one received message may have together.
///
/// An empty key takes one byte on the wire and sixteen in memory, so without a limit a frame of 64 MiB could make the
/// decoder allocate a gigabyte. Real batches have some thousands of keys.
pub const MAX_ELEMENTS: usize = 1 << 20;

/// The width of container lengths, one for a whole message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Width {
    /// Lengths below 256.
    One,
    /// Lengths below 65,536.
    Two,
    /// Lengths below 2^32.
    Four,
    Eight,
}

impl Width {
    /// Returns the narrowest width that can hold `length`.
    #[inline]
    pub fn for_length(length: usize) -> Self {
        match length {
            0..=0xff => Self::One,
            0x100..=0xffff => Self::Two,
            0x1_0000..=0xffff_ffff => Self::Four,
            _ => Self::Eight,
        }
    }

    /// Returns the width that bits 3 and 4 of a metainfo byte encode.
    #[inline]
    pub fn from_metainfo(metainfo: u8) -> Self {
        match (metainfo >> 3) & 3 {
            0 => Self::One,
            1 => Self::Two,
            2 => Self::Four,
            _ => Self::Eight,
        }
    }

    /// Returns the bits of a metainfo byte that encode this width.
    #[inline]
    pub fn metainfo(self) -> u8 {
        (self as u8) << 3
    }
}

/// A cursor over a received payload. Everything that it returns is borrowed from the input.
#[derive(Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
    width: Width,
    elements_left: usize,
}

impl<'a> Reader<'a> {
    /// Starts at the beginning of `input`, which may have `max_elements` elements in all its containers.
    pub fn new(input: &'a [u8], width: Width, max_elements: usize) -> Self {
        Self { rest: input, width, elements_left: max_elements }
    }

    /// Sets the width of container lengths, known once the metainfo byte is read.
    pub fn set_width(&mut self, width: Width) {
        self.width = width;
    }

    /// Returns the next `count` bytes.
    #[inline]
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    /// Returns the next `N` bytes as an array.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (taken, rest) = self.rest.split_first_chunk::<N>().ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(*taken)
    }

    /// Returns the next byte; fails at the end of the input.
    #[inline]
    pub fn byte(&mut self) -> Result<u8, DecodeError> {
        Ok(self.array::<1>()?[0])
    }

    /// Reads a container length, which is not yet compared with what is left of the input.
    #[inline]
    pub fn length(&mut self) -> Result<usize, DecodeError> {
        let length = match self.width {
            Width::One => u64::from(self.byte()?),
            Width::Two => u64::from(u16::from_le_bytes(self.array()?)),
            Width::Four => u64::from(u32::from_le_bytes(self.array()?)),
            Width::Eight => u64::from_le_bytes(self.array()?),
        };
        usize::try_from(length).map_err(|_| DecodeError::Truncated)
    }

    /// Reads the number of elements of a container. Rejects one for which the input is too short, at `smallest_element`
    /// bytes each: nothing is allocated for a length that lies.
    #[inline]
    pub fn count(&mut self, smallest_element: usize) -> Result<usize, DecodeError> {
        let count = self.length()?;
        if count > self.rest.len() / smallest_element.max(1) {
            return Err(DecodeError::Truncated);
        }
        self.elements_left = self.elements_left.checked_sub(count).ok_or(DecodeError::TooManyElements)?;
        Ok(count)
    }
}

/// A cursor that appends a payload to a caller's buffer.
#[derive(Debug)]
pub struct Writer<'o> {
    out: &'o mut Vec<u8>,
    width: Width,
}

impl<'o> Writer<'o> {
    /// Appends to `out` with container lengths of `width`.
    pub fn new(out: &'o mut Vec<u8>, width: Width) -> Self {
        Self { out, width }
    }

    /// Appends raw bytes, without their length.
    #[inline]
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// Appends a container length, which fits the width because the message was measured first.
    #[inline]
    pub fn length(&mut self, length: usize) {
        match self.width {
            Width::One => self.out.push(length as u8),
            Width::Two => self.bytes(&(length as u16).to_le_bytes()),
            Width::Four => self.bytes(&(length as u32).to_le_bytes()),
            Width::Eight => self.bytes(&(length as u64).to_le_bytes()),
        }
    }
}
