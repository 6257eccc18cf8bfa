//! Checking how an object is to be stored, in the order in which the reference does.

use smallvec::SmallVec;

use crate::engine::ops::{MAX_KEY, ReplicaTypes, WriteConfig};
use crate::engine::record::SoftPin;
use crate::engine::rules::Rules;
use crate::wire::messages::ReplicateConfig;
use crate::wire::types::{ErrorCode, ReplicaType, SoftPinAction};

/// Names of segments to try first.
pub(super) type Preferred<'a> = SmallVec<[&'a [u8]; 2]>;

/// The names of segments to try first: the older field, if it is set, is the only one that counts.
pub(super) fn preferred<'a>(config: &ReplicateConfig<'a>) -> Preferred<'a> {
    if config.preferred_segment.is_empty() {
        let mut names = Preferred::new();
        for name in &config.preferred_segments {
            if !names.contains(name) {
                names.push(name);
            }
        }
        names
    } else {
        SmallVec::from_slice(&[config.preferred_segment])
    }
}

/// The configuration of a batch's items, or why there is none. `group` is that of one item and `None` if the request
/// names no groups.
pub(super) fn check<'a>(
    config: &ReplicateConfig<'a>,
    key: &[u8],
    length: u64,
    group: Option<&'a [u8]>,
    preferred: &'a [&'a [u8]],
    rules: &Rules,
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
        (SoftPinAction::ENABLE, ttl) => SoftPin::Enable(ttl.unwrap_or(rules.soft_pin_ttl)),
        _ => return Err(ErrorCode::INVALID_PARAMS),
    };
    if matches!(soft_pin, SoftPin::Enable(ttl) if ttl > rules.max_soft_pin_ttl) {
        return Err(ErrorCode::INVALID_PARAMS);
    }
    // A record names key and group, and has to fit into a batch of the log.
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

/// A replica in the distributed file system was asked for, and there is none.
const DFS_NOT_CONFIGURED: ErrorCode = ErrorCode(-1601);

/// Which kinds of replicas a type stands for, of the kinds that there are here.
pub(super) fn types(replica_type: ReplicaType) -> ReplicaTypes {
    match replica_type {
        ReplicaType::MEMORY | ReplicaType::ALL => ReplicaTypes::Memory,
        _ => ReplicaTypes::Others,
    }
}
