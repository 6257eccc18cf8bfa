//! The master as a process, and what it says and does at its edges: few open files, clients of another generation.

use moonkeeper::wire::client_version::StartRequest0312;
use moonkeeper::wire::frame::{RESPONSE_HEADER, append_request};
use moonkeeper::wire::functions::Function;
use moonkeeper::wire::struct_pack::Wire;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStderr, Command, Stdio};

/// A master that runs. It ends when this is dropped.
struct Master {
    child: Child,
    log: BufReader<ChildStderr>,
    rpc: String,
    http: String,
}

impl Master {
    /// Starts one with these limits of open files.
    fn start(soft: u32, hard: u32) -> Self {
        let mut child = Command::new("sh")
            .args(["-c", &format!("ulimit -Sn {soft} && ulimit -Hn {hard} && exec \"$0\" \"$@\"")])
            .arg(env!("CARGO_BIN_EXE_moonkeeper"))
            .args(["master", "--rpc_address=127.0.0.1", "--port=0", "--metrics_host=127.0.0.1"])
            .args(["--metrics_port=0", "--log_format=json"])
            .env_remove("RUST_LOG")
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = BufReader::new(child.stderr.take().unwrap());
        let mut master = Self { child, log, rpc: String::new(), http: String::new() };
        let address = |line: &str| {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            line["fields"]["address"].as_str().unwrap().to_owned()
        };
        master.rpc = address(&master.line("serving mooncake clients"));
        master.http = address(&master.line("serving metrics"));
        master
    }

    /// The next line of its log that says this.
    fn line(&mut self, said: &str) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert!(self.log.read_line(&mut line).unwrap() > 0, "the master ended without saying '{said}'");
            if line.contains(said) {
                return line;
            }
        }
    }

    fn metric(&self, name: &str) -> u64 {
        let mut stream = TcpStream::connect(&self.http).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: m\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let value = answer.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.unwrap_or_else(|| panic!("{name} is not in {answer}")).parse().unwrap()
    }
}

impl Drop for Master {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether a client is served on this connection.
fn is_served(stream: &mut TcpStream) -> bool {
    let mut bytes = Vec::new();
    append_request(&mut bytes, 1, Function::ServiceReady.id(), |_| {});
    let mut reply = [0; RESPONSE_HEADER];
    stream.write_all(&bytes).and_then(|()| stream.read_exact(&mut reply)).is_ok() && reply[2] == 0
}

#[test]
fn the_limit_of_open_files_is_raised_and_clients_leave_some_to_others() {
    let mut master = Master::start(64, 400);
    let mut connections = Vec::new();
    // Half of so few is reserved.
    for _ in 0..200 {
        let mut stream = TcpStream::connect(&master.rpc).unwrap();
        assert!(is_served(&mut stream), "after {} connections", connections.len());
        connections.push(stream);
    }
    assert!(!is_served(&mut TcpStream::connect(&master.rpc).unwrap()), "one more is turned away");
    master.line("refused a connection");
    assert_eq!(master.metric("moonkeeper_connections"), 200);
    assert_eq!(master.metric("moonkeeper_accepted_connections_total"), 200);
}

#[test]
fn a_client_of_another_generation_is_named_in_the_log_beside_one_that_sends_nonsense() {
    let mut master = Master::start(1024, 1024);
    let mut nonsense = TcpStream::connect(&master.rpc).unwrap();
    let mut old = TcpStream::connect(&master.rpc).unwrap();
    let peer = old.local_addr().unwrap().to_string();
    let mut bytes = Vec::new();
    (0..100).for_each(|sequence| append_request(&mut bytes, sequence, Function::ExistKey.id(), |_| {}));
    append_request(&mut bytes, 100, 0x1234_5678, |_| {});
    let mut request = Vec::new();
    append_request(&mut request, 7, Function::PutStart.id(), |out| {
        // As the published packages send it: with the bit that announces more about the type.
        out.extend_from_slice(&(StartRequest0312::SHAPE.code | 1).to_le_bytes());
        out.extend_from_slice(&[0; 60]);
    });
    nonsense.write_all(&bytes).unwrap();
    nonsense.read_exact(&mut [0; RESPONSE_HEADER]).unwrap();
    old.write_all(&request).unwrap();
    let mut reply = [0; RESPONSE_HEADER];
    old.read_exact(&mut reply).unwrap();
    assert_eq!((reply[2], &reply[4..8]), (4, &[7, 0, 0, 0][..]));
    let line = master.line("generation");
    assert!(line.contains("the client is of generation 0.3.12, this master speaks 0.3.13"), "{line}");
    assert!(line.contains("PutStart") && line.contains(&peer), "{line}");
    assert_eq!(master.metric("moonkeeper_malformed_requests_total"), 102);
}
