//! Frames that were captured between the real client and the reference master, as test data.

use moonkeeper::wire::functions::Function;

/// One captured frame.
#[allow(dead_code, reason = "not every test looks at all of it")]
pub struct Captured {
    /// The function of the file that it is in.
    pub function: Function,
    /// Client to master.
    pub is_request: bool,
    /// Header bytes.
    pub header: Vec<u8>,
    /// Body bytes.
    pub body: Vec<u8>,
}

fn unhex(text: &str) -> Vec<u8> {
    assert!(text.len().is_multiple_of(2), "{text}");
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

/// All captured frames.
pub fn captured() -> Vec<Captured> {
    // Cargo runs tests in the folder of their package. Its name at build time may be that of another checkout, whose
    // build output this one shares.
    let directory = "tests/protocol/frames";
    let mut frames = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let function = *Function::ALL.iter().find(|function| function.name() == name).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let mut is_request = false;
        let mut header = Vec::new();
        for line in text.lines() {
            if line.starts_with("REQUEST") || line.starts_with("RESPONSE") {
                is_request = line.starts_with("REQUEST");
            } else if let Some(rest) = line.strip_prefix("  header ") {
                header = unhex(rest.split_whitespace().next().unwrap());
            } else if let Some(rest) = line.strip_prefix("  body ") {
                let body = unhex(rest.trim());
                frames.push(Captured { function, is_request, header: std::mem::take(&mut header), body });
            }
        }
    }
    frames
}
