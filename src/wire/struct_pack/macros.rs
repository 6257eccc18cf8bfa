//! The macros that derive a type's literal, size, encoder and decoder from its Rust definition.

/// Defines a struct that is encoded field by field in the order of its definition.
///
/// `wire_struct!` writes `fd members ff`, which is also the literal of a C++ tuple: the arguments of a call are such a
/// struct. With `trivial(8)` before the definition it is a plain pair of scalars, whose literal carries its alignment.
macro_rules! wire_struct {
    (
        $(#[$meta:meta])*
        pub struct $name:ident<$lifetime:lifetime> {
            $($(#[$field_meta:meta])* pub $field:ident: $type:ty),* $(,)?
        }
    ) => {
        $(#[$meta])*
        pub struct $name<$lifetime> { $($(#[$field_meta])* pub $field: $type),* }
        $crate::wire::struct_pack::wire_struct!(@implement [$lifetime] [$name<$lifetime>] [$lifetime] [$name] [] $($field: $type),*);
    };
    (
        $(trivial($alignment:literal))?
        $(#[$meta:meta])*
        pub struct $name:ident {
            $($(#[$field_meta:meta])* pub $field:ident: $type:ty),* $(,)?
        }
    ) => {
        $(#[$meta])*
        pub struct $name { $($(#[$field_meta])* pub $field: $type),* }
        $crate::wire::struct_pack::wire_struct!(@implement [] [$name] ['input] [$name] [$($alignment)?] $($field: $type),*);
    };
    (@implement [$($own:lifetime)?] [$self:ty] [$input:lifetime] [$name:ident] [$($alignment:literal)?]
     $($field:ident: $type:ty),*) => {
        impl<$($own)?> $crate::wire::struct_pack::Wire for $self {
            const LITERAL: $crate::wire::struct_pack::Literal = $crate::wire::struct_pack::Literal::of(&[0xfd])
                $(.then(<$type as $crate::wire::struct_pack::Wire>::LITERAL))*
                // Packed and natural alignment, each as a size: n + 129.
                $(.bytes(&[$alignment + 129, $alignment + 129]))?
                .bytes(&[0xff]);
            const MIN_SIZE: usize = 0 $(+ <$type as $crate::wire::struct_pack::Wire>::MIN_SIZE)*;
        }

        impl<$($own)?> $crate::wire::struct_pack::Encode for $self {
            #[inline]
            fn largest(&self) -> usize {
                let largest = 0;
                $(let largest = largest.max($crate::wire::struct_pack::Encode::largest(&self.$field));)*
                largest
            }

            #[inline]
            fn encode(&self, writer: &mut $crate::wire::struct_pack::Writer<'_>) {
                $($crate::wire::struct_pack::Encode::encode(&self.$field, writer);)*
            }
        }

        impl<$input> $crate::wire::struct_pack::Decode<$input> for $self {
            #[inline]
            fn decode(
                reader: &mut $crate::wire::struct_pack::Reader<$input>,
            ) -> Result<Self, $crate::wire::struct_pack::DecodeError> {
                // The fields are evaluated, and so decoded, in the order in which they are written here.
                Ok($name { $($field: $crate::wire::struct_pack::Decode::decode(reader)?),* })
            }
        }
    };
}

/// Defines a variant: an enum whose alternatives are numbered from 0 in the order of their definition.
macro_rules! wire_variant {
    (
        $(#[$meta:meta])*
        pub enum $name:ident<$lifetime:lifetime> {
            $($(#[$alternative_meta:meta])* $alternative:ident($type:ty) = $index:literal),* $(,)?
        }
    ) => {
        $(#[$meta])*
        pub enum $name<$lifetime> { $($(#[$alternative_meta])* $alternative($type)),* }

        impl<$lifetime> $crate::wire::struct_pack::Wire for $name<$lifetime> {
            const LITERAL: $crate::wire::struct_pack::Literal = $crate::wire::struct_pack::Literal::of(&[0x86])
                $(.then(<$type as $crate::wire::struct_pack::Wire>::LITERAL))*
                .bytes(&[0xff]);
            const MIN_SIZE: usize = 1;
        }

        impl<$lifetime> $crate::wire::struct_pack::Encode for $name<$lifetime> {
            #[inline]
            fn largest(&self) -> usize {
                match self { $(Self::$alternative(value) => $crate::wire::struct_pack::Encode::largest(value)),* }
            }

            #[inline]
            fn encode(&self, writer: &mut $crate::wire::struct_pack::Writer<'_>) {
                match self {
                    $(Self::$alternative(value) => {
                        writer.bytes(&[$index]);
                        $crate::wire::struct_pack::Encode::encode(value, writer);
                    })*
                }
            }
        }

        impl<$lifetime> $crate::wire::struct_pack::Decode<$lifetime> for $name<$lifetime> {
            #[inline]
            fn decode(
                reader: &mut $crate::wire::struct_pack::Reader<$lifetime>,
            ) -> Result<Self, $crate::wire::struct_pack::DecodeError> {
                match reader.byte()? {
                    $($index => Ok(Self::$alternative($crate::wire::struct_pack::Decode::decode(reader)?)),)*
                    other => Err($crate::wire::struct_pack::DecodeError::UnknownAlternative(other)),
                }
            }
        }
    };
}

/// Defines a numeric enum that keeps numbers it has no name for: a newtype with named constants.
macro_rules! wire_enum {
    (
        $(#[$meta:meta])*
        pub struct $name:ident($number:ty) {
            $($(#[$value_meta:meta])* $value:ident = $literal:literal),* $(,)?
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
        pub struct $name(
            /// The number as it is sent.
            pub $number,
        );

        impl $name {
            $($(#[$value_meta])* pub const $value: Self = Self($literal);)*

            /// Returns the name that the reference gives this number, if it has one.
            pub fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($literal => Some(stringify!($value)),)*
                    _ => None,
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self.name() {
                    Some(name) => f.write_str(name),
                    None => write!(f, "{}({})", stringify!($name), self.0),
                }
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{self}")
            }
        }

        $crate::wire::struct_pack::wire_enum!(@implement $name($number));
    };
    (@implement $name:ident($number:ty)) => {
        impl $crate::wire::struct_pack::Wire for $name {
            const LITERAL: $crate::wire::struct_pack::Literal =
                <$number as $crate::wire::struct_pack::Wire>::LITERAL;
            const MIN_SIZE: usize = <$number as $crate::wire::struct_pack::Wire>::MIN_SIZE;
        }

        impl $crate::wire::struct_pack::Encode for $name {
            #[inline]
            fn largest(&self) -> usize {
                0
            }

            #[inline]
            fn encode(&self, writer: &mut $crate::wire::struct_pack::Writer<'_>) {
                $crate::wire::struct_pack::Encode::encode(&self.0, writer);
            }
        }

        impl $crate::wire::struct_pack::Decode<'_> for $name {
            #[inline]
            fn decode(
                reader: &mut $crate::wire::struct_pack::Reader<'_>,
            ) -> Result<Self, $crate::wire::struct_pack::DecodeError> {
                Ok(Self($crate::wire::struct_pack::Decode::decode(reader)?))
            }
        }
    };
}

pub(crate) use {wire_enum, wire_struct, wire_variant};
