//! The calls of each scenario: requests prepared as templates, and the check of their replies.

use clap::ValueEnum;

use crate::wire::frame::append_request;
use crate::wire::functions::{Function, Rpc, rpc};
use crate::wire::messages::{
    BatchPutEndRequest, BatchStartRequest, EndRequest, KeyRequest, KeysRequest, ObjectMeta, ReplicateConfig,
    StartRequest,
};
use crate::wire::struct_pack::{Form, decode, encode};
use crate::wire::types::{ReplicaType, Uuid};

/// The tenant of all objects.
pub(super) const TENANT: &[u8] = b"default";
/// Length of a key in bytes, its number included.
const KEY: usize = 64;
/// Number of hexadecimal digits at the end of a key, which are its number.
const DIGITS: usize = 16;

/// What is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Scenario {
    ExistKey,
    GetReplicaList,
    /// PutStart, then PutEnd
    Put,
    BatchExistKey,
    BatchGetReplicaList,
    /// BatchPutStart, then BatchPutEnd
    BatchPut,
}

impl Scenario {
    /// Returns the calls that make one operation, in order.
    pub(super) fn functions(self) -> &'static [Function] {
        match self {
            Self::ExistKey => &[Function::ExistKey],
            Self::GetReplicaList => &[Function::GetReplicaList],
            Self::Put => &[Function::PutStart, Function::PutEnd],
            Self::BatchExistKey => &[Function::BatchExistKey],
            Self::BatchGetReplicaList => &[Function::BatchGetReplicaList],
            Self::BatchPut => &[Function::BatchPutStart, Function::BatchPutEnd],
        }
    }

    /// Returns whether objects have to exist before.
    pub(super) fn reads(self) -> bool {
        !matches!(self, Self::Put | Self::BatchPut)
    }

    /// Returns the number of keys in one operation.
    pub(super) fn items(self, batch: u32) -> u64 {
        match self {
            Self::ExistKey | Self::GetReplicaList | Self::Put => 1,
            Self::BatchExistKey | Self::BatchGetReplicaList | Self::BatchPut => u64::from(batch),
        }
    }
}

/// Returns the key with this number.
fn key(number: u64) -> Vec<u8> {
    let mut key = vec![b'.'; KEY - DIGITS];
    key[..17].copy_from_slice(b"moonkeeper/bench/");
    key.extend_from_slice(format!("{number:016x}").as_bytes());
    key
}

/// A request whose keys are filled in when it is sent.
#[derive(Debug)]
pub(super) struct Template {
    frame: Vec<u8>,
    /// Offset of each key's number in the frame.
    numbers: Vec<usize>,
}

impl Template {
    /// Builds the request of a function, in the long form that the published packages send.
    pub(super) fn new(function: Function, client: Uuid, items: u64, value_length: u64) -> Self {
        Self::placed(function, client, items, value_length, None)
    }

    /// Builds the same with the name of the segment that a Start prefers.
    pub(super) fn placed(
        function: Function,
        client: Uuid,
        items: u64,
        value_length: u64,
        segment: Option<&[u8]>,
    ) -> Self {
        // Numbers that occur nowhere else, so that their offsets can be found.
        let keys: Vec<Vec<u8>> = (0..items).map(|i| key(0xfedc_ba98_0000_0000 + i)).collect();
        let mut frame = Vec::new();
        append_request(&mut frame, 0, function.id(), |out| {
            append_body(function, client, &keys, value_length, segment, out);
        });
        let mut numbers: Vec<usize> = Vec::with_capacity(keys.len());
        for key in &keys {
            let from = numbers.last().map_or(0, |last| last + DIGITS);
            let found = frame[from..].windows(KEY).position(|window| window == key.as_slice());
            numbers.extend(found.map(|at| from + at + KEY - DIGITS));
        }
        Self { frame, numbers }
    }

    /// Appends the request with the keys from `first` on.
    pub(super) fn append(&self, out: &mut Vec<u8>, sequence: u32, first: u64) {
        let start = out.len();
        out.extend_from_slice(&self.frame);
        let frame = &mut out[start..];
        frame[4..8].copy_from_slice(&sequence.to_le_bytes());
        for (number, at) in (first..).zip(&self.numbers) {
            write_hex(number, &mut frame[*at..*at + DIGITS]);
        }
    }
}

fn write_hex(number: u64, digits: &mut [u8]) {
    for (i, digit) in digits.iter_mut().rev().enumerate() {
        *digit = b"0123456789abcdef"[(number >> (4 * i) & 15) as usize];
    }
}

fn append_body(
    function: Function,
    client_id: Uuid,
    keys: &[Vec<u8>],
    value_length: u64,
    segment: Option<&[u8]>,
    out: &mut Vec<u8>,
) {
    let config = ReplicateConfig {
        replica_num: 1,
        preferred_segments: segment.into_iter().collect(),
        ..ReplicateConfig::default()
    };
    let (tenant_id, replica_type) = (TENANT, ReplicaType::ALL);
    let key = keys.first().map_or(&[][..], Vec::as_slice);
    let all = || keys.iter().map(Vec::as_slice).collect::<Vec<_>>();
    let meta = |key| ObjectMeta { key, object_checksum: None };
    match function {
        Function::PutStart => {
            let request = StartRequest { client_id, key, slice_length: value_length, config, tenant_id };
            encode(&request, Form::Long, out);
        }
        Function::PutEnd => {
            let request = EndRequest { client_id, object_meta: meta(key), replica_type, tenant_id };
            encode(&request, Form::Long, out);
        }
        Function::BatchExistKey | Function::BatchGetReplicaList => {
            encode(&KeysRequest { keys: all(), tenant_id }, Form::Long, out);
        }
        Function::BatchPutStart => {
            let slice_lengths = vec![value_length; keys.len()];
            let request = BatchStartRequest { client_id, keys: all(), slice_lengths, config, tenant_id };
            encode(&request, Form::Long, out);
        }
        Function::BatchPutEnd => {
            let object_metas = all().into_iter().map(meta).collect();
            let request = BatchPutEndRequest { client_id, object_metas, replica_type, tenant_id };
            encode(&request, Form::Long, out);
        }
        Function::Ping => encode(&client_id, Form::Long, out),
        _ => encode(&KeyRequest { key, tenant_id }, Form::Long, out),
    }
}

/// Check of the replies to one function. The first is decoded; others with the same length and the same first bytes
/// count as equally good, so that the check costs little.
#[derive(Debug)]
pub(super) struct Check {
    function: Function,
    items: usize,
    known: Option<(usize, Vec<u8>)>,
}

impl Check {
    pub(super) fn new(function: Function, items: u64) -> Self {
        Self { function, items: items as usize, known: None }
    }

    /// Returns whether the call succeeded for every one of its keys.
    pub(super) fn is_good(&mut self, body: &[u8]) -> bool {
        if let Some((length, head)) = &self.known
            && body.len() == *length
            && body.starts_with(head)
        {
            return true;
        }
        let good = self.decodes_well(body);
        if good {
            self.known = Some((body.len(), body[..self.head(body).min(body.len())].to_vec()));
        }
        good
    }

    /// Returns how many first bytes all good replies share. Some replies are entirely equal; others contain addresses
    /// and share only what comes before those: the code, in the long form the literal, in a batch the number of items,
    /// and a flag for success.
    fn head(&self, body: &[u8]) -> usize {
        let batch = match self.function {
            Function::GetReplicaList | Function::PutStart => 0,
            Function::BatchGetReplicaList | Function::BatchPutStart => 1,
            _ => return body.len(),
        };
        let head = match body {
            [code, _, _, _, metainfo, ..] if code & 1 == 1 && metainfo & 4 != 0 => {
                6 + self.function.response_shape().literal.as_bytes().len()
            }
            [code, ..] if code & 1 == 1 => 5,
            _ => 4,
        };
        head + batch + 1
    }

    fn decodes_well(&self, body: &[u8]) -> bool {
        type Answer<'a, F> = <F as Rpc>::Response<'a>;
        match self.function {
            Function::ExistKey => matches!(decode::<Answer<rpc::ExistKey>>(body), Ok(Ok(true))),
            Function::GetReplicaList => matches!(decode::<Answer<rpc::GetReplicaList>>(body), Ok(Ok(_))),
            Function::PutStart => matches!(decode::<Answer<rpc::PutStart>>(body), Ok(Ok(_))),
            Function::PutEnd => matches!(decode::<Answer<rpc::PutEnd>>(body), Ok(Ok(_))),
            Function::BatchExistKey => {
                let all = decode::<Answer<rpc::BatchExistKey>>(body);
                all.is_ok_and(|all| all.len() == self.items && all.iter().all(|one| *one == Ok(true)))
            }
            Function::BatchGetReplicaList => {
                let all = decode::<Answer<rpc::BatchGetReplicaList>>(body);
                all.is_ok_and(|all| all.len() == self.items && all.iter().all(Result::is_ok))
            }
            Function::BatchPutStart => {
                let all = decode::<Answer<rpc::BatchPutStart>>(body);
                all.is_ok_and(|all| all.len() == self.items && all.iter().all(Result::is_ok))
            }
            Function::BatchPutEnd => {
                let all = decode::<Answer<rpc::BatchPutEnd>>(body);
                all.is_ok_and(|all| all.len() == self.items && all.iter().all(Result::is_ok))
            }
            _ => false,
        }
    }
}
