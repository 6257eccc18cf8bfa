//! Checks of how an object is to be stored, in the order in which the reference makes them.

use std::collections::HashSet;

use smallvec::SmallVec;

use crate::engine::ops::{MAX_KEY, ReplicaTypes, WriteConfig};
use crate::engine::record::SoftPin;
use crate::engine::settings::EngineSettings;
use crate::wire::messages::ReplicateConfig;
use crate::wire::types::{ErrorCode, ReplicaType, SoftPinAction};

/// Names of segments that are tried first.
pub(super) type Preferred<'a> = SmallVec<[&'a [u8]; 2]>;

/// Most names of preferred segments in one request: each is looked up under the sequencer, for every item of a batch.
/// Real clients name one or two, and no more than there are replicas to place.
const MAX_PREFERRED: usize = 1024;

/// Returns the names of segments that are tried first. If the older field is set, it is the only one that counts. The
/// list is cut at [`MAX_PREFERRED`]; [`check`] rejects longer ones.
pub(super) fn preferred<'a>(config: &ReplicateConfig<'a>) -> Preferred<'a> {
    if !config.preferred_segment.is_empty() {
        return SmallVec::from_slice(&[config.preferred_segment]);
    }
    let mut names: Preferred<'a> = config.preferred_segments.iter().copied().take(MAX_PREFERRED).collect();
    if names.len() > 1 {
        let mut seen = HashSet::with_capacity(names.len());
        names.retain(|name| seen.insert(*name));
    }
    names
}

/// Returns the configuration of a batch's items, or why it is invalid. `group` is that of one item, and `None` if the
/// request names no groups.
pub(super) fn check<'a>(
    config: &ReplicateConfig<'a>,
    key: &[u8],
    length: u64,
    group: Option<&'a [u8]>,
    preferred: &'a [&'a [u8]],
    settings: &EngineSettings,
) -> Result<WriteConfig<'a>, ErrorCode> {
    let (memory, nof, dfs) = (config.replica_num, config.nof_replica_num, config.dfs_replica_num);
    if (memory == 0 && nof == 0 && dfs == 0) || key.is_empty() || length == 0 {
        return Err(ErrorCode::INVALID_PARAMS);
    }
    if dfs > 1 || (dfs > 0 && memory == 0) {
        return Err(ErrorCode::INVALID_PARAMS);
    }
    if dfs > 0 {
        return Err(DFS_NOT_CONFIGURED);
    }
    if nof > 0 {
        return Err(ErrorCode::INVALID_PARAMS);
    }
    let soft_pin = match (config.soft_pin_action, config.soft_pin_ttl_ms) {
        (SoftPinAction::PRESERVE, None) => SoftPin::Preserve,
        (SoftPinAction::DISABLE, None) => SoftPin::Disable,
        (SoftPinAction::ENABLE, ttl) => SoftPin::Enable(ttl.unwrap_or(settings.soft_pin_ttl_ms)),
        _ => return Err(ErrorCode::INVALID_PARAMS),
    };
    if matches!(soft_pin, SoftPin::Enable(ttl) if ttl > settings.max_soft_pin_ttl_ms) {
        return Err(ErrorCode::INVALID_PARAMS);
    }
    if config.preferred_segment.is_empty() && config.preferred_segments.len() > MAX_PREFERRED {
        return Err(ErrorCode::INVALID_PARAMS);
    }
    // A record contains key and group, and has to fit into a batch of the log.
    if key.len() > MAX_KEY || group.is_some_and(|group| group.len() > MAX_KEY) {
        return Err(ErrorCode::INVALID_PARAMS);
    }
    Ok(WriteConfig {
        replicas: memory,
        soft_pin,
        hard_pin: config.with_hard_pin,
        preferred,
        host_id: config.host_id,
        data_type: config.data_type.0,
        group,
    })
}

/// Error for a replica in the distributed file system, which is not supported.
const DFS_NOT_CONFIGURED: ErrorCode = ErrorCode(-1601);

/// Returns which of the kinds of replicas that exist here a type stands for.
pub(super) fn types(replica_type: ReplicaType) -> ReplicaTypes {
    match replica_type {
        ReplicaType::MEMORY | ReplicaType::ALL => ReplicaTypes::Memory,
        _ => ReplicaTypes::Others,
    }
}

#[cfg(test)]
mod tests {
    use super::{check, preferred};
    use crate::engine::settings::EngineSettings;
    use crate::wire::messages::ReplicateConfig;
    use crate::wire::types::ErrorCode;

    /// Configures one replica, in one of these segments if possible.
    fn naming<'a>(names: &[&'a [u8]]) -> ReplicateConfig<'a> {
        ReplicateConfig { replica_num: 1, preferred_segments: names.to_vec(), ..Default::default() }
    }

    /// Returns how a request for one replica with these preferred segments is answered.
    fn checked(config: &ReplicateConfig<'_>) -> Result<usize, ErrorCode> {
        let names = preferred(config);
        check(config, b"key", 64, None, &names, &EngineSettings::default()).map(|write| write.preferred.len())
    }

    #[test]
    fn segments_to_try_first_are_told_once_each_and_in_order() {
        let config = naming(&[b"b", b"a", b"b", b"c", b"a"]);
        assert_eq!(preferred(&config)[..], [b"b" as &[u8], b"a", b"c"]);
        let config = ReplicateConfig { preferred_segment: b"z", ..config };
        assert_eq!(preferred(&config)[..], [b"z" as &[u8]]);
    }

    /// Each name is looked up while other calls wait, for every item of a batch.
    #[test]
    fn more_segments_to_try_first_than_anybody_has_are_refused() {
        let names: Vec<String> = (0..1_025).map(|number| format!("segment-{number}")).collect();
        let names: Vec<&[u8]> = names.iter().map(String::as_bytes).collect();
        assert_eq!(checked(&naming(&names[..1_024])), Ok(1_024));
        assert_eq!(checked(&naming(&names)), Err(ErrorCode::INVALID_PARAMS));
        // Repetitions of one name count, since they cost as much to read.
        assert_eq!(checked(&naming(&[b"a".as_slice(); 1_025])), Err(ErrorCode::INVALID_PARAMS));
        // Where the older field is set, the list is ignored.
        let one = ReplicateConfig { preferred_segment: b"z", ..naming(&names) };
        assert_eq!(checked(&one), Ok(1));
    }
}
