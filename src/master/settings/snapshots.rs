//! Settings of the snapshots that a standby takes of its state.

use std::time::Duration;

use super::{FlagError, Reader, Warning, none_if_zero};
use crate::cluster::snapshot::MAX_LISTED;
use crate::replication::snapshot::SharedStore;

/// Shortest time between two snapshots. A bare number counts milliseconds, so `--snapshot_interval=600` is a mistake.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

/// Most copies that can be asked for: with more, a single member that is away stops the floor in most clusters.
const MAX_COPIES: usize = 5;

/// When snapshots are taken, and how many are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotSettings {
    /// Time between two snapshots; `None` takes none.
    pub interval: Option<Duration>,
    /// How many are kept; at least one.
    pub kept: usize,
    /// The data directory outlives the machine of this master.
    pub durable: bool,
}

impl Default for SnapshotSettings {
    fn default() -> Self {
        Self { interval: Some(Duration::from_secs(600)), kept: 2, durable: true }
    }
}

impl Reader<'_> {
    /// Reads the settings of snapshots, which need a data directory.
    pub(super) fn snapshots(
        &self,
        warnings: &mut Vec<Warning>,
    ) -> Result<Option<SnapshotSettings>, FlagError> {
        let (interval, kept) = (self.snapshot_interval()?, self.snapshots_kept()?);
        let settings = SnapshotSettings { interval, kept, durable: self.bool("data_dir_durable") };
        let mut warn = |text: String| warnings.push(Warning(text));
        if self.path("data_dir").is_none() {
            for name in ["enable_snapshot", "enable_snapshot_restore"] {
                if self.bool(name) {
                    let text = format!(
                        "--{name} needs --data_dir, which is not set: snapshots are in its folder snapshots"
                    );
                    return Err(FlagError::Conflict(text));
                }
            }
            if self.values.is_set("data_dir_durable") {
                warn("--data_dir_durable has no effect without --data_dir, which it describes".to_owned());
            }
            for name in [
                "snapshot_interval",
                "snapshot_interval_seconds",
                "snapshots_kept",
                "snapshot_retention_count",
            ] {
                if self.values.is_set(name) {
                    warn(format!("--{name} has no effect without --data_dir, which snapshots are kept in"));
                }
            }
            return Ok(None);
        }
        if self.values.is_set("enable_snapshot_restore") && !self.bool("enable_snapshot_restore") {
            warn(
                "--enable_snapshot_restore=false has no effect: a master always begins with the state that the log \
                 gives, and a snapshot only makes reading it shorter"
                    .to_owned(),
            );
        }
        Ok(Some(settings))
    }

    /// Reads where the storage is that all masters share. Snapshots are copied there from the data directory.
    pub(super) fn snapshot_store(&self) -> Result<Option<SharedStore>, FlagError> {
        let Some(path) = self.path("snapshot_store") else { return Ok(None) };
        if self.values.text("snapshot_store").contains("://") {
            return Err(self
                .values
                .out_of_range("snapshot_store", "a directory that all masters have mounted is accepted"));
        }
        if self.path("data_dir").is_none() {
            let text = "--snapshot_store needs --data_dir, where snapshots are written first";
            return Err(FlagError::Conflict(text.to_owned()));
        }
        Ok(Some(SharedStore::Directory(path)))
    }

    /// Reads how many members have to hold a snapshot.
    pub(super) fn snapshot_copies(&self) -> Result<usize, FlagError> {
        usize::try_from(self.uint("snapshot_copies"))
            .ok()
            .filter(|copies| (1..=MAX_COPIES).contains(copies))
            .ok_or_else(|| {
                self.values.out_of_range("snapshot_copies", &format!("1 to {MAX_COPIES} is accepted"))
            })
    }

    fn snapshot_interval(&self) -> Result<Option<Duration>, FlagError> {
        let name = match self.values.is_set("snapshot_interval") {
            false if self.values.is_set("snapshot_interval_seconds") => "snapshot_interval_seconds",
            _ => "snapshot_interval",
        };
        let interval = match name {
            "snapshot_interval" => self.duration(name),
            _ => self.seconds(name)?,
        };
        if !interval.is_zero() && interval < MIN_INTERVAL {
            return Err(self.values.out_of_range(name, "0, or a duration of at least 1s, is accepted"));
        }
        match (self.values.is_set("enable_snapshot"), self.bool("enable_snapshot")) {
            (true, true) if interval.is_zero() => Err(FlagError::Conflict(format!(
                "--enable_snapshot and --{name}=0, which takes no snapshots, exclude each other"
            ))),
            (true, false) if self.values.is_set(name) && !interval.is_zero() => Err(FlagError::Conflict(
                format!("--enable_snapshot=false and --{name}={} exclude each other", self.values.text(name)),
            )),
            (true, false) => Ok(None),
            _ => Ok(none_if_zero(interval)),
        }
    }

    fn snapshots_kept(&self) -> Result<usize, FlagError> {
        let name = match self.values.is_set("snapshots_kept") {
            false if self.values.is_set("snapshot_retention_count") => "snapshot_retention_count",
            _ => "snapshots_kept",
        };
        usize::try_from(self.uint(name))
            .ok()
            .filter(|kept| (1..=MAX_LISTED).contains(kept))
            .ok_or_else(|| self.values.out_of_range(name, &format!("1 to {MAX_LISTED} is accepted")))
    }
}
