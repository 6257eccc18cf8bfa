//! What the commands print, into a pipe that somebody has closed.

use std::process::{Command, Stdio};

/// As in `moonkeeper master --helpfull | head -1`.
#[test]
fn a_reader_that_left_is_nothing_to_complain_about() {
    for args in [&["help"][..], &["--version"], &["master", "--help"], &["master", "--helpfull"], &["crd"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let command = env!("CARGO_BIN_EXE_moonkeeper");
        let output = Command::new(command).args(args).stdout(writer).stderr(Stdio::piped()).output().unwrap();
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && complaint.is_empty(), "{args:?}: {} {complaint}", output.status);
    }
}
