//! The payload of a task for its client: JSON in the form that clients parse.

use std::fmt::Write;

use crate::engine::record::CopyOrMove;
use crate::engine::task::Task;

/// Returns the JSON of a task. Keys and names are UTF-8 here: others were refused when the task was created.
pub(super) fn payload(task: &Task) -> String {
    let mut json = String::with_capacity(160);
    json.push_str("{\"tenant_id\":");
    string(&mut json, &task.tenant);
    json.push_str(",\"key\":");
    string(&mut json, &task.key);
    json.push_str(",\"source\":");
    string(&mut json, &task.source);
    match task.kind {
        CopyOrMove::Copy => {
            json.push_str(",\"targets\":[");
            for (nth, target) in task.targets.iter().enumerate() {
                if nth > 0 {
                    json.push(',');
                }
                string(&mut json, target);
            }
            json.push_str(
                "],\"dynamic_replication_lease_id_high\":0,\"dynamic_replication_lease_id_low\":0,\
                 \"dynamic_replication_version_epoch\":0}",
            );
        }
        CopyOrMove::Move => {
            json.push_str(",\"target\":");
            string(&mut json, task.targets.first().map_or(&[][..], |target| target));
            json.push('}');
        }
    }
    json
}

/// Writes a JSON string in ASCII, as the reference does.
fn string(json: &mut String, text: &[u8]) {
    json.push('"');
    for unit in String::from_utf8_lossy(text).chars() {
        match unit {
            '"' => json.push_str("\\\""),
            '\\' => json.push_str("\\\\"),
            '\u{8}' => json.push_str("\\b"),
            '\u{c}' => json.push_str("\\f"),
            '\n' => json.push_str("\\n"),
            '\r' => json.push_str("\\r"),
            '\t' => json.push_str("\\t"),
            ' '..='~' | '\u{7f}' => json.push(unit),
            _ => {
                for word in unit.encode_utf16(&mut [0; 2]) {
                    // Writing to a String cannot fail.
                    let _ = write!(json, "\\u{word:04X}");
                }
            }
        }
    }
    json.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::task::TaskStatus;
    use crate::engine::types::{LogTime, SequenceId, Uuid};

    fn task(kind: CopyOrMove, key: &str, targets: &[&str]) -> Task {
        Task {
            id: Uuid::default(),
            kind,
            key: key.as_bytes().into(),
            tenant: b"default".as_slice().into(),
            source: b"seg1".as_slice().into(),
            targets: targets.iter().map(|target| target.as_bytes().into()).collect(),
            client: Uuid::default(),
            status: TaskStatus::Pending,
            created: LogTime(0),
            updated: LogTime(0),
            message: Box::default(),
            last_record: SequenceId(0),
        }
    }

    #[test]
    fn looks_as_clients_expect() {
        assert_eq!(
            payload(&task(CopyOrMove::Copy, "k", &["seg1"])),
            "{\"tenant_id\":\"default\",\"key\":\"k\",\"source\":\"seg1\",\"targets\":[\"seg1\"],\
             \"dynamic_replication_lease_id_high\":0,\"dynamic_replication_lease_id_low\":0,\
             \"dynamic_replication_version_epoch\":0}"
        );
        assert_eq!(
            payload(&task(CopyOrMove::Move, "é\"\n\u{1}/😀", &["seg2"])),
            "{\"tenant_id\":\"default\",\"key\":\"\\u00E9\\\"\\n\\u0001/\\uD83D\\uDE00\",\"source\":\"seg1\",\
             \"target\":\"seg2\"}"
        );
    }
}
