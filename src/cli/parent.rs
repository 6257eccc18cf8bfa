//! Processes that end with the one that started them, however that ends.

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

/// The variable by which a process is told whose end is its own: a process id.
pub(super) const VARIABLE: &str = crate::master::companion::DIES_WITH;

/// Why a process that should end with another cannot be sure to.
#[derive(Debug, thiserror::Error)]
pub(super) enum ParentError {
    /// The variable is not a process id.
    #[error("{VARIABLE}={0} is not a process id")]
    NotAProcess(String),
    /// It is too late.
    #[error("the process that this one belongs to, {0}, has ended")]
    Gone(i32),
    /// The system will not have it.
    #[error("cannot arrange to end with process {0}: {1}")]
    System(i32, rustix::io::Errno),
}

/// If the variable says so, makes the kernel kill this process when its parent ends. To be called before anything else
/// is done.
pub(super) fn end_with_parent() -> Result<(), ParentError> {
    let Some(parent) = parent()? else { return Ok(()) };
    let number = parent.as_raw_nonzero().get();
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|why| ParentError::System(number, why))?;
    // It may have ended before the kernel was asked; then somebody else is the parent now.
    if getppid() == Some(parent) { Ok(()) } else { Err(ParentError::Gone(number)) }
}

/// The process whose end is that of this one, if the variable names one.
pub(super) fn parent() -> Result<Option<Pid>, ParentError> {
    let Some(text) = std::env::var_os(VARIABLE) else { return Ok(None) };
    let text = text.to_string_lossy();
    // Not a negative number: that would be a group.
    let number = text.parse().ok().filter(|number| *number > 0);
    match number.and_then(Pid::from_raw) {
        Some(parent) => Ok(Some(parent)),
        None => Err(ParentError::NotAProcess(text.into_owned())),
    }
}
