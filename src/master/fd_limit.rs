//! Limit of open files of this process. Every client connection is one, and many systems start a process with a limit
//! of a thousand.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Files that are not for Mooncake clients: HTTP and metadata connections (256 each by default), etcd, peers,
/// snapshots.
const RESERVE: u64 = 1024;

/// Returns the limit of open files; `None` if there is no limit.
#[must_use]
pub fn limit() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// Raises the limit as far as the system lets this process.
pub fn raise() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
        match setrlimit(Resource::Nofile, raised) {
            Ok(()) => {
                tracing::debug!(from = limit.current, to = limit.maximum, "raised the limit of open files")
            }
            Err(error) => tracing::warn!(%error, "cannot raise the limit of open files"),
        }
    }
}

/// Returns how many of at most `most` clients may be connected at once under this limit of open files; the rest is
/// reserved for other connections.
#[must_use]
pub fn connections(files: Option<u64>, most: usize) -> usize {
    files.map_or(most, |files| {
        let left = files - RESERVE.min(files / 2);
        usize::try_from(left).unwrap_or(most).min(most)
    })
}

#[cfg(test)]
mod tests {
    use super::connections;

    #[test]
    fn clients_never_take_all_files() {
        assert_eq!(connections(None, 20_000), 20_000);
        assert_eq!(connections(Some(1 << 20), 20_000), 20_000);
        assert_eq!(connections(Some(21_000), 20_000), 19_976);
        assert_eq!(connections(Some(4096), 20_000), 3072);
        assert_eq!(connections(Some(1024), 20_000), 512);
        assert_eq!(connections(Some(0), 20_000), 0);
    }
}
