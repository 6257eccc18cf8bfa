//! Snapshots in memory, taken while nothing else happens.

use std::sync::Arc;

use moonkeeper::engine::Engine;
use moonkeeper::engine::settings::EngineSettings;
use moonkeeper::engine::snapshot::{Capture, Restore};

use super::assert_sound;

/// Returns the items of a state.
pub fn items(engine: &Arc<Engine>) -> Vec<u8> {
    let mut capture = Capture::begin(engine, engine.applied()).unwrap();
    let (mut items, mut chunk) = (Vec::new(), Vec::new());
    while capture.next(&mut chunk).unwrap() {
        items.append(&mut chunk);
    }
    items
}

/// Returns the state that these items make.
pub fn from_items(items: &[u8]) -> Engine {
    let mut restore = Restore::new(EngineSettings::default(), None);
    restore.chunk(items).unwrap();
    restore.finish().unwrap()
}

/// Returns a sound copy of a state.
pub fn restored(engine: &Arc<Engine>) -> Engine {
    let restored = from_items(&items(engine));
    assert_sound(&restored, "from a snapshot");
    restored
}
