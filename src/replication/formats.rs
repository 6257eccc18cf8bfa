//! The format key in etcd: which format the log is written in, and whether this binary may take part.
//!
//! A master checks it before it reads the log and before it stands for election. The key is raised only when all
//! members read the newer format, so that an upgrade can be rolled back until then.

use bytes::Bytes;

use crate::engine::format::Format;

/// What the format key means for this binary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// There is no log yet: it begins in the newest format.
    New,
    /// The log is written in the newest format that this binary knows.
    Ours,
    /// The log is written in an older format, which this binary reads and, until the key is raised, writes.
    Older(Format),
}

/// Why a master must neither read the log nor stand for election.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatRefusal {
    /// The log was raised to a format that a later version introduced.
    #[error(
        "the log is written in format {found}, but this version reads up to format {newest}: upgrade this master"
    )]
    Newer {
        /// The format of the log.
        found: u32,
        /// The newest one that this binary reads.
        newest: u32,
    },
    /// The log is in a format that this version no longer reads.
    #[error(
        "the log is written in format {found}, but this version reads from format {oldest} on: run an earlier version, which raises the format, first"
    )]
    Outdated {
        /// The format of the log.
        found: u32,
        /// The oldest one that this binary reads.
        oldest: u32,
    },
    /// The key holds something that is not a format.
    #[error("the format key of the log holds {0:?}, which is not the number of a format")]
    Unreadable(String),
}

impl LogFormat {
    /// Interprets the value of the format key; `None` if there is no such key.
    ///
    /// # Errors
    ///
    /// If this binary must neither read the log nor stand for election.
    pub fn of_key(value: Option<&[u8]>) -> Result<Self, FormatRefusal> {
        let Some(value) = value else { return Ok(Self::New) };
        let found = number(value)?;
        let [oldest, newest] = bounds(Format::READABLE);
        judge(found, oldest, newest)?;
        match Format::of(found) {
            Some(format) if format == Format::NEWEST => Ok(Self::Ours),
            Some(format) => Ok(Self::Older(format)),
            None => Err(FormatRefusal::Newer { found, newest }),
        }
    }

    /// Returns the format that a primary writes under this key in a log that already exists. Without the key, which no
    /// master deletes, that is the oldest one: all masters read it.
    #[must_use]
    pub fn written_on(self) -> Format {
        match self {
            Self::New => Format::OLDEST,
            Self::Ours | Self::Older(_) => self.written(),
        }
    }

    /// Returns the format that a primary writes under this key.
    #[must_use]
    pub fn written(self) -> Format {
        match self {
            Self::New | Self::Ours => Format::NEWEST,
            Self::Older(format) => format,
        }
    }
}

/// Returns the value of the format key for a log in this format.
#[must_use]
pub fn key_value(format: Format) -> Bytes {
    format.number().to_string().into()
}

fn number(value: &[u8]) -> Result<u32, FormatRefusal> {
    let text = std::str::from_utf8(value).ok();
    let digits = text.filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    // Zero is not a format. A number that does not fit `u32` is refused here, too.
    digits
        .and_then(|text| text.parse().ok())
        .filter(|number| *number > 0)
        .ok_or_else(|| FormatRefusal::Unreadable(value.escape_ascii().to_string()))
}

fn bounds(readable: &[Format]) -> [u32; 2] {
    let numbers = || readable.iter().map(|format| format.number());
    [numbers().min().unwrap_or_default(), numbers().max().unwrap_or_default()]
}

/// Checks that a format lies within those that a binary reads.
fn judge(found: u32, oldest: u32, newest: u32) -> Result<(), FormatRefusal> {
    if found > newest {
        Err(FormatRefusal::Newer { found, newest })
    } else if found < oldest {
        Err(FormatRefusal::Outdated { found, oldest })
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_in_the_newest_format_is_ours() {
        assert_eq!(LogFormat::of_key(None), Ok(LogFormat::New));
        let ours = LogFormat::of_key(Some(&key_value(Format::NEWEST)));
        assert_eq!(ours, Ok(LogFormat::Ours));
        assert_eq!(ours.map(LogFormat::written), Ok(Format::NEWEST));
    }

    #[test]
    fn every_readable_format_is_accepted_and_written_while_the_key_says_so() {
        for format in Format::READABLE {
            let found = LogFormat::of_key(Some(&key_value(*format)));
            assert_eq!(found.map(LogFormat::written), Ok(*format));
        }
    }

    #[test]
    fn a_newer_log_is_refused() {
        let newest = Format::NEWEST.number();
        let above = (newest + 1).to_string();
        assert_eq!(
            LogFormat::of_key(Some(above.as_bytes())),
            Err(FormatRefusal::Newer { found: newest + 1, newest })
        );
    }

    #[test]
    fn the_format_before_is_read_and_the_one_before_that_is_not() {
        assert_eq!(judge(3, 2, 3), Ok(()));
        assert_eq!(judge(2, 2, 3), Ok(()));
        assert_eq!(judge(4, 2, 3), Err(FormatRefusal::Newer { found: 4, newest: 3 }));
        assert_eq!(judge(1, 2, 3), Err(FormatRefusal::Outdated { found: 1, oldest: 2 }));
    }

    #[test]
    fn what_is_no_number_is_refused() {
        for value in ["", "0", "1 ", "+1", "one", "-1", "99999999999", "\u{ff11}"] {
            let refused = LogFormat::of_key(Some(value.as_bytes()));
            assert!(matches!(refused, Err(FormatRefusal::Unreadable(_))), "{value:?}: {refused:?}");
        }
        assert!(matches!(LogFormat::of_key(Some(b"\xff")), Err(FormatRefusal::Unreadable(_))));
    }
}
