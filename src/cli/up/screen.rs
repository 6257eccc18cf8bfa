//! What a user sees while the masters run: a status line that is updated in place, and a line for every important
//! change.

use std::fmt::Write;

use crate::cluster::role::Role;
use crate::cluster::status::Status;

/// The last observation of one master.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct MasterSeen {
    pub(super) name: String,
    pub(super) pid: Option<u32>,
    /// Its status; `None` if it does not answer.
    pub(super) status: Option<Status>,
}

/// Renders the status line: roles, ids and lag.
pub(super) fn line(masters: &[MasterSeen]) -> String {
    let mut parts = Vec::new();
    for master in masters {
        let mut part = master.name.clone();
        match &master.status {
            Some(status) => {
                let _ = write!(part, " {} {}", status.role.as_str(), status.applied);
                if status.role != Role::Primary {
                    let lag = status.lag.map_or("unknown".to_owned(), |lag| lag.to_string());
                    let _ = write!(part, " (lag {lag})");
                }
            }
            None if master.pid.is_some() => part.push_str(" starting"),
            None => part.push_str(" down"),
        }
        parts.push(part);
    }
    parts.join("  |  ")
}

/// Returns a line for each change of role, and for each standby that has become ready or is no longer.
pub(super) fn changes(before: &[MasterSeen], now: &[MasterSeen]) -> Vec<String> {
    let mut lines = Vec::new();
    for master in now {
        let Some(status) = &master.status else { continue };
        let old = before.iter().find(|old| old.name == master.name).and_then(|old| old.status.as_ref());
        let old = old.filter(|old| old.boot_id == status.boot_id);
        match (old.and_then(settled), settled(status)) {
            (old, new) if old == new => {}
            (_, Some(Role::Primary)) => {
                let how = status.promotion.as_ref().map(|report| {
                    format!(
                        ", {}, {} objects, took {} ms",
                        report.reason.as_str(),
                        report.objects,
                        report.total_ms
                    )
                });
                let how = how.unwrap_or_default();
                lines.push(format!("{} is primary (term {}{how})", status.name, status.term));
            }
            (_, Some(_)) => lines.push(format!("{} is standby, at record {}", status.name, status.applied)),
            // A master that is about to lead, or has just ceased to, is reported when that is done.
            (Some(Role::Standby), None) if status.role == Role::Standby => {
                let why = status.why_not_ready.as_deref().or(status.waits_for.as_deref());
                lines.push(format!("{} is not ready: {}", status.name, why.unwrap_or(&status.phase)));
            }
            (_, None) => {}
        }
    }
    lines
}

/// Returns the role of a master if it is ready in it.
fn settled(status: &Status) -> Option<Role> {
    status.ready.then_some(status.role)
}

/// Prints lines, and keeps the status line below them on a terminal.
#[derive(Debug)]
pub(super) struct Screen {
    terminal: bool,
    shown: bool,
}

impl Screen {
    /// Creates a screen for a terminal, or for output that is read later.
    pub(super) fn new(terminal: bool) -> Self {
        Self { terminal, shown: false }
    }

    /// Prints a line that stays.
    pub(super) fn say(&mut self, text: &str) {
        let clear = if self.shown { "\r\x1b[K" } else { "" };
        self.shown = false;
        crate::cli::print(&format!("{clear}{text}\n"));
    }

    /// Prints the status line, on terminals only.
    pub(super) fn show(&mut self, line: &str) {
        if self.terminal {
            self.shown = true;
            // Without wrapping at the edge: a line that is cut off is better than one that scrolls.
            crate::cli::print(&format!("\r\x1b[?7l{line}\x1b[K\x1b[?7h"));
        }
    }

    /// Removes the status line, if one is shown.
    pub(super) fn clear(&mut self) {
        if std::mem::take(&mut self.shown) {
            crate::cli::print("\r\x1b[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::promotion::{PromotionReason, PromotionReport};

    fn master(name: &str, role: Role) -> MasterSeen {
        let status = Status {
            name: name.into(),
            boot_id: "1".into(),
            role,
            applied: 7,
            lag: Some(2),
            ready: true,
            ..Status::default()
        };
        MasterSeen { name: name.into(), pid: Some(1), status: Some(status) }
    }

    #[test]
    fn the_line_has_roles_ids_and_lag() {
        let mut down = master("c", Role::Standby);
        down.status = None;
        let mut gone = down.clone();
        gone.pid = None;
        let masters = [master("a", Role::Primary), master("b", Role::Standby), down, gone];
        assert_eq!(line(&masters), "a primary 7  |  b standby 7 (lag 2)  |  c starting  |  c down");
    }

    #[test]
    fn a_change_is_told_once() {
        let (a, b) = (master("a", Role::Standby), master("b", Role::Primary));
        assert_eq!(changes(&[a.clone(), b.clone()], &[a.clone(), b.clone()]), Vec::<String>::new());
        let mut promoted = a.clone();
        let status = promoted.status.as_mut().unwrap();
        status.role = Role::Primary;
        status.term = 9;
        status.promotion = Some(PromotionReport {
            reason: PromotionReason::ProcessDied,
            objects: 5,
            total_ms: 61,
            ..PromotionReport::default()
        });
        let lines = changes(std::slice::from_ref(&a), &[promoted]);
        assert_eq!(lines, ["a is primary (term 9, the primary died, 5 objects, took 61 ms)"]);
        assert_eq!(changes(&[], std::slice::from_ref(&a)), ["a is standby, at record 7"]);
        // The same role in another process is reported again.
        let mut again = a.clone();
        again.status.as_mut().unwrap().boot_id = "2".into();
        assert_eq!(changes(std::slice::from_ref(&a), &[again]).len(), 1);
        let mut behind = a.clone();
        behind.status.as_mut().unwrap().ready = false;
        behind.status.as_mut().unwrap().why_not_ready = Some("rebuilding".into());
        let lines = changes(std::slice::from_ref(&a), std::slice::from_ref(&behind));
        assert_eq!(lines, ["a is not ready: rebuilding"]);
        assert_eq!(changes(&[behind], std::slice::from_ref(&a)), ["a is standby, at record 7"]);
        // A standby that takes over is reported when it serves.
        let mut between = b.clone();
        between.status.as_mut().unwrap().ready = false;
        let was = MasterSeen { name: "b".into(), ..a };
        assert_eq!(changes(&[was], std::slice::from_ref(&between)), Vec::<String>::new());
        assert_eq!(changes(&[between], &[b]), ["b is primary (term 0)"]);
    }
}
