//! Steps of writing a store's files, at which tests end the process in thought or make the disk fail.

use std::io;

/// A step that is about to be taken, or was just taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Entries are about to be appended to the file.
    Appending,
    /// They are in the file, and not synced yet.
    Appended,
    /// A new file is about to be created beside it.
    Creating,
    /// A part of the new file is about to be written.
    Writing,
    /// What was written of the new file is about to be synced.
    Syncing,
    /// The new file is complete and synced, and is about to be renamed over the old one.
    Renaming,
    /// It was renamed; the folder is not synced yet.
    Renamed,
    /// The new file has replaced the old one.
    Replaced,
}

/// Tells a test that a step was reached; an error is what the disk answers.
#[cfg(not(test))]
#[allow(clippy::unnecessary_wraps, clippy::missing_const_for_fn)]
pub(super) fn reach(_: Step) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
pub(super) use hook::{during, reach};

#[cfg(test)]
mod hook {
    use std::cell::RefCell;

    use super::{Step, io};

    type Hook = Box<dyn FnMut(Step) -> io::Result<()>>;

    thread_local! {
        static HOOK: RefCell<Option<Hook>> = const { RefCell::new(None) };
    }

    pub(crate) fn reach(step: Step) -> io::Result<()> {
        HOOK.with_borrow_mut(|hook| hook.as_mut().map_or(Ok(()), |hook| hook(step)))
    }

    /// Calls `hook` at each step that this thread reaches until the returned guard is dropped.
    pub(crate) fn during(hook: impl FnMut(Step) -> io::Result<()> + 'static) -> impl Drop {
        HOOK.set(Some(Box::new(hook)));
        Guard
    }

    struct Guard;

    impl Drop for Guard {
        fn drop(&mut self) {
            HOOK.set(None);
        }
    }
}
