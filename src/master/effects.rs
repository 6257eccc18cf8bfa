//! Properties of each RPC that matter for the log.

use crate::wire::functions::Function;

/// Returns whether a call may make a record.
#[must_use]
pub fn may_change(function: Function) -> bool {
    use Function as F;
    !matches!(
        function,
        F::ExistKey
            | F::GetReplicaList
            | F::BatchExistKey
            | F::BatchGetReplicaList
            | F::GetReplicaListByRegex
            | F::QuerySegmentStatus
            | F::QuerySegmentStatusById
            | F::BatchQueryIp
            | F::Ping
            | F::ServiceReady
            | F::GetStorageConfig
            | F::GetFsdir
            | F::QueryTask
    )
}

/// Returns whether a call asks for memory for new objects, so that it may wait for clients to rejoin.
#[must_use]
pub fn may_be_parked(function: Function) -> bool {
    use Function as F;
    matches!(function, F::PutStart | F::BatchPutStart | F::UpsertStart | F::BatchUpsertStart)
}

/// Returns whether a call may open segments to new objects.
#[must_use]
pub fn may_open_segments(function: Function) -> bool {
    matches!(function, Function::MountSegment | Function::ReMountSegment)
}

/// Returns whether a call only ends something, so that with `durability: relaxed` it is answered before its record is
/// durable. A call whose reply names a range of bytes never is (R3).
#[must_use]
pub fn may_be_answered_early(function: Function) -> bool {
    use Function as F;
    matches!(
        function,
        F::PutEnd
            | F::PutRevoke
            | F::BatchPutEnd
            | F::BatchPutRevoke
            | F::UpsertEnd
            | F::UpsertRevoke
            | F::BatchUpsertEnd
            | F::BatchUpsertRevoke
            | F::CopyEnd
            | F::CopyRevoke
            | F::MoveEnd
            | F::MoveRevoke
            | F::DynamicReplicaCopyEnd
            | F::DynamicReplicaCopyRevoke
            | F::Remove
            | F::BatchRemove
            | F::BatchReplicaClear
            | F::UnmountSegment
            | F::GracefulUnmountSegment
    )
}
