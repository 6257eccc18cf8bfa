//! Makes child processes end with their parent, however the parent ends.

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

/// Environment variable with the pid of the process that this one must not outlive.
pub(super) const VARIABLE: &str = crate::master::companion::DIES_WITH;

/// Why a process cannot be made to end with another one.
#[derive(Debug, thiserror::Error)]
pub(super) enum ParentError {
    /// The variable is not a process id.
    #[error("{VARIABLE}={0} is not a process id")]
    NotAProcess(String),
    /// The other process has ended already.
    #[error("the parent process {0} has ended already")]
    Gone(i32),
    /// The system call failed.
    #[error("cannot have the kernel end this process together with process {0}: {1}")]
    System(i32, rustix::io::Errno),
}

/// If the variable is set, makes the kernel kill this process when its parent ends. Must be called before anything else
/// is done.
pub(super) fn end_with_parent() -> Result<(), ParentError> {
    let Some(parent) = parent()? else { return Ok(()) };
    let number = parent.as_raw_nonzero().get();
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|why| ParentError::System(number, why))?;
    // The parent may have ended before the call; then another process has become the parent.
    if getppid() == Some(parent) { Ok(()) } else { Err(ParentError::Gone(number)) }
}

/// Returns the process that this one must not outlive, if the variable names one.
pub(super) fn parent() -> Result<Option<Pid>, ParentError> {
    let Some(text) = std::env::var_os(VARIABLE) else { return Ok(None) };
    let text = text.to_string_lossy();
    // A negative number would be a process group.
    let number = text.parse().ok().filter(|number| *number > 0);
    match number.and_then(Pid::from_raw) {
        Some(parent) => Ok(Some(parent)),
        None => Err(ParentError::NotAProcess(text.into_owned())),
    }
}
