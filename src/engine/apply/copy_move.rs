//! Records about copies and moves.

use crate::engine::key::Handle;
use crate::engine::object::{Replica, ReplicaStatus, Replicas};
use crate::engine::record::{CopyOrMove, DynamicLease, ObjectRef, Place};
use crate::engine::state::Sequencer;
use crate::engine::task::CopyMove;
use crate::engine::types::ReplicaId;
use crate::engine::types::{LogTime, SequenceId, Uuid};

impl Sequencer<'_> {
    #[allow(clippy::too_many_arguments)] // one for each field of the record
    pub(super) fn apply_copy_move_start(
        &mut self,
        id: SequenceId,
        at: LogTime,
        object: ObjectRef,
        kind: CopyOrMove,
        client: Uuid,
        source: ReplicaId,
        places: &[Place],
        dynamic: DynamicLease,
    ) {
        let Some(handle) = self.named(object) else { return };
        let size = {
            let objects = self.objects(handle.shard());
            let Some(object) = objects.at(handle.slot()) else { return };
            object.size
        };
        let replicas = match self.take_places(id, places, size) {
            Ok(replicas) => replicas,
            Err(reason) => return self.drop_unplaced(at, Some(handle), places, size, reason),
        };
        self.core.copy_moves.insert((at, object.id));
        self.alter(handle, Some(id), |object, _| {
            let targets = replicas.iter().map(|replica| replica.id()).collect();
            replicas.into_iter().for_each(|replica| object.push_replica(replica));
            object.extra_mut().copy_move =
                Some(CopyMove { kind, client, source, targets, started: at, dynamic });
        });
    }

    /// Marks the targets as written. Drops targets whose segment was unmounted, and all of them if that of the source
    /// was. The source of a move leaves the object, but its bytes stay reserved, because clients may still be reading
    /// them.
    pub(super) fn apply_copy_move_end(&mut self, id: SequenceId, object: ObjectRef, release_at: LogTime) {
        let Some(handle) = self.named(object) else { return };
        let engine = self.engine;
        let mut moved = None;
        let mut source_there = false;
        self.alter(handle, Some(id), |object, core| {
            let Some(task) = object.extra.as_mut().and_then(|extra| extra.copy_move.take()) else { return };
            core.end_copy_move(task.started, object.id);
            let is_source = |replica: &Replica| replica.id() == task.source && replica.is_readable();
            source_there = object.replicas().any(is_source);
            if !source_there {
                // `drop_copy_move` ends it.
                object.extra_mut().copy_move = Some(task);
                return;
            }
            // A target whose segment went away may have been swept out of the object already.
            let mut written = 0;
            for replica in object.replicas_mut().filter(|replica| task.targets.contains(&replica.id())) {
                if replica.segment.is_alive() {
                    replica.status = ReplicaStatus::Complete;
                    written += 1;
                }
            }
            let lost = object
                .take_replicas(|replica| task.targets.contains(&replica.id()) && !replica.segment.is_alive());
            lost.iter().flatten().for_each(|replica| core.free(&engine.counts, replica, object.size));
            // The source is dropped only if readers can use the object without it.
            let elsewhere = |replica: &Replica| replica.id() != task.source && replica.is_readable();
            let whole = written == task.targets.len() && object.replicas().any(elsewhere);
            if task.kind == CopyOrMove::Move && whole {
                moved =
                    object.take_replicas(|replica| replica.id() == task.source).map(|out| (object.size, out));
            }
        });
        if !source_there {
            self.drop_copy_move(handle, id);
        }
        if let Some((size, replicas)) = moved {
            let replicas: Replicas = replicas;
            self.core.discard_bytes(&self.engine.counts, id, release_at, size, replicas);
        }
    }

    pub(super) fn apply_copy_move_revoke(&mut self, id: SequenceId, object: ObjectRef) {
        if let Some(handle) = self.named(object) {
            self.drop_copy_move(handle, id);
        }
    }

    /// Cancels a copy or move: drops its targets and what lies in unmounted segments, and the object if no replica is
    /// left.
    pub(super) fn drop_copy_move(&mut self, handle: Handle, id: SequenceId) {
        let mut targets = Vec::new();
        self.alter(handle, Some(id), |object, core| {
            if let Some(task) = object.extra.as_mut().and_then(|extra| extra.copy_move.take()) {
                core.end_copy_move(task.started, object.id);
                targets = task.targets;
            }
        });
        self.drop_replicas(handle, Some(id), |replica| {
            targets.contains(&replica.id()) || !replica.segment.is_alive()
        });
    }
}
