//! Encoding of the built-in kinds of values: numbers, bool, byte strings, lists, optionals, maps, `expected`.

use super::{Decode, DecodeError, Encode, Literal, Reader, Wire, Writer};

macro_rules! numbers {
    ($($number:ty = $literal:literal),*) => {$(
        impl Wire for $number {
            const LITERAL: Literal = Literal::of(&[$literal]);
            const MIN_SIZE: usize = size_of::<$number>();
        }

        impl Encode for $number {
            #[inline]
            fn largest(&self) -> usize {
                0
            }

            #[inline]
            fn encode(&self, writer: &mut Writer<'_>) {
                writer.bytes(&self.to_le_bytes());
            }
        }

        impl Decode<'_> for $number {
            #[inline]
            fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
                Ok(Self::from_le_bytes(reader.array()?))
            }
        }
    )*};
}

numbers!(i32 = 0x01, u32 = 0x02, i64 = 0x03, u64 = 0x04, u8 = 0x06);

impl Wire for bool {
    const LITERAL: Literal = Literal::of(&[0x0b]);
    const MIN_SIZE: usize = 1;
}

impl Encode for bool {
    #[inline]
    fn largest(&self) -> usize {
        0
    }

    #[inline]
    fn encode(&self, writer: &mut Writer<'_>) {
        writer.bytes(&[u8::from(*self)]);
    }
}

impl Decode<'_> for bool {
    #[inline]
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        // The reference copies the byte into a C++ bool, for which everything but zero is true.
        Ok(reader.byte()? != 0)
    }
}

/// A byte string, borrowed from where it was received.
impl Wire for &[u8] {
    const LITERAL: Literal = Literal::of(&[0x80, 0x0c]);
    const MIN_SIZE: usize = 1;
}

impl Encode for &[u8] {
    #[inline]
    fn largest(&self) -> usize {
        self.len()
    }

    #[inline]
    fn encode(&self, writer: &mut Writer<'_>) {
        writer.length(self.len());
        writer.bytes(self);
    }
}

impl<'a> Decode<'a> for &'a [u8] {
    #[inline]
    fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let length = reader.length()?;
        reader.take(length)
    }
}

#[inline]
fn largest_of_list<T: Encode>(items: &[T]) -> usize {
    items.iter().map(T::largest).fold(items.len(), usize::max)
}

#[inline]
fn encode_list<T: Encode>(items: &[T], writer: &mut Writer<'_>) {
    writer.length(items.len());
    for item in items {
        item.encode(writer);
    }
}

impl<T: Wire> Wire for Vec<T> {
    const LITERAL: Literal = Literal::of(&[0x84]).then(T::LITERAL);
    const MIN_SIZE: usize = 1;
}

impl<T: Encode> Encode for Vec<T> {
    #[inline]
    fn largest(&self) -> usize {
        largest_of_list(self)
    }

    #[inline]
    fn encode(&self, writer: &mut Writer<'_>) {
        encode_list(self, writer);
    }
}

impl<'a, T: Decode<'a>> Decode<'a> for Vec<T> {
    #[inline]
    fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let count = reader.count(T::MIN_SIZE)?;
        let mut items = Vec::with_capacity(count);
        for _ in 0..count {
            items.push(T::decode(reader)?);
        }
        Ok(items)
    }
}

/// A list that the sender need not own: a reply can borrow what the handler has on its stack.
///
/// Like a `Cow` of a slice, but covariant: a list of elements with a longer lifetime can be used as one with a shorter.
#[derive(Clone)]
pub enum List<'a, T> {
    /// A slice that the caller owns.
    Borrowed(&'a [T]),
    /// A list of its own, as decoding returns it.
    Owned(Vec<T>),
}

impl<T> std::ops::Deref for List<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match self {
            Self::Borrowed(items) => items,
            Self::Owned(items) => items,
        }
    }
}

impl<'a, T> From<&'a [T]> for List<'a, T> {
    fn from(items: &'a [T]) -> Self {
        Self::Borrowed(items)
    }
}

impl<T> From<Vec<T>> for List<'_, T> {
    fn from(items: Vec<T>) -> Self {
        Self::Owned(items)
    }
}

impl<T: PartialEq> PartialEq for List<'_, T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: Eq> Eq for List<'_, T> {}

impl<T: std::fmt::Debug> std::fmt::Debug for List<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: Wire> Wire for List<'_, T> {
    const LITERAL: Literal = Vec::<T>::LITERAL;
    const MIN_SIZE: usize = 1;
}

impl<T: Encode> Encode for List<'_, T> {
    #[inline]
    fn largest(&self) -> usize {
        largest_of_list(self)
    }

    #[inline]
    fn encode(&self, writer: &mut Writer<'_>) {
        encode_list(self, writer);
    }
}

impl<'a, T: Decode<'a>> Decode<'a> for List<'a, T> {
    #[inline]
    fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(Self::Owned(Vec::decode(reader)?))
    }
}

impl<T: Wire> Wire for Option<T> {
    const LITERAL: Literal = Literal::of(&[0x85]).then(T::LITERAL);
    const MIN_SIZE: usize = 1;
}

impl<T: Encode> Encode for Option<T> {
    #[inline]
    fn largest(&self) -> usize {
        self.as_ref().map_or(0, T::largest)
    }

    #[inline]
    fn encode(&self, writer: &mut Writer<'_>) {
        self.is_some().encode(writer);
        if let Some(value) = self {
            value.encode(writer);
        }
    }
}

impl<'a, T: Decode<'a>> Decode<'a> for Option<T> {
    #[inline]
    fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(if bool::decode(reader)? { Some(T::decode(reader)?) } else { None })
    }
}

/// The unit type: the value of an `expected<void>`.
impl Wire for () {
    const LITERAL: Literal = Literal::of(&[0xfa]);
    const MIN_SIZE: usize = 0;
}

impl Encode for () {
    #[inline]
    fn largest(&self) -> usize {
        0
    }

    #[inline]
    fn encode(&self, _: &mut Writer<'_>) {}
}

impl Decode<'_> for () {
    #[inline]
    fn decode(_: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(())
    }
}

/// `expected`: a value or an error.
impl<T: Wire, E: Wire> Wire for Result<T, E> {
    const LITERAL: Literal = Literal::of(&[0x87]).then(T::LITERAL).then(E::LITERAL);
    const MIN_SIZE: usize = 1;
}

impl<T: Encode, E: Encode> Encode for Result<T, E> {
    #[inline]
    fn largest(&self) -> usize {
        match self {
            Ok(value) => value.largest(),
            Err(error) => error.largest(),
        }
    }

    #[inline]
    fn encode(&self, writer: &mut Writer<'_>) {
        self.is_ok().encode(writer);
        match self {
            Ok(value) => value.encode(writer),
            Err(error) => error.encode(writer),
        }
    }
}

impl<'a, T: Decode<'a>, E: Decode<'a>> Decode<'a> for Result<T, E> {
    #[inline]
    fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(if bool::decode(reader)? { Ok(T::decode(reader)?) } else { Err(E::decode(reader)?) })
    }
}

/// A map, as pairs in the order in which they are sent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Map<K, V>(pub Vec<(K, V)>);

impl<K: Wire, V: Wire> Wire for Map<K, V> {
    const LITERAL: Literal = Literal::of(&[0x82]).then(K::LITERAL).then(V::LITERAL);
    const MIN_SIZE: usize = 1;
}

impl<K: Encode, V: Encode> Encode for Map<K, V> {
    fn largest(&self) -> usize {
        self.0.iter().map(|(key, value)| key.largest().max(value.largest())).fold(self.0.len(), usize::max)
    }

    fn encode(&self, writer: &mut Writer<'_>) {
        writer.length(self.0.len());
        for (key, value) in &self.0 {
            key.encode(writer);
            value.encode(writer);
        }
    }
}

impl<'a, K: Decode<'a>, V: Decode<'a>> Decode<'a> for Map<K, V> {
    fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let count = reader.count(K::MIN_SIZE + V::MIN_SIZE)?;
        let mut pairs = Vec::with_capacity(count);
        for _ in 0..count {
            pairs.push((K::decode(reader)?, V::decode(reader)?));
        }
        Ok(Self(pairs))
    }
}
