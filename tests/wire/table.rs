//! Compares every function id, type code and literal that the code derives with the table of the protocol.

use md5::{Digest, Md5};
use moonkeeper::wire::functions::Function;
use moonkeeper::wire::messages::*;
use moonkeeper::wire::struct_pack::{Encode, Form, Shape, Wire, decode, encode};
use moonkeeper::wire::types::*;
use std::collections::{HashMap, HashSet};

const TABLE: &str = include_str!("../protocol/rpc-table.tsv");

fn shape_of(shape: &Shape) -> (String, String) {
    (format!("{:#010x}", shape.code), format!("{:?}", shape.literal))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn every_function_has_the_id_codes_and_literals_of_the_table() {
    let rows: HashMap<&str, Vec<&str>> = TABLE
        .lines()
        .filter(|line| line.starts_with("mooncake::"))
        .map(|line| (line.split('\t').next().unwrap(), line.split('\t').collect()))
        .collect();
    assert_eq!(rows.len(), 64);
    assert_eq!(Function::ALL.len(), 64);
    for &function in Function::ALL {
        let row = &rows[function.full_name()];
        assert_eq!(format!("{:#010x}", function.id()), row[1], "{function:?}: id");
        assert_eq!(Function::from_id(function.id()), Some(function));
        let sum = Md5::digest(function.full_name().as_bytes());
        assert_eq!(function.id(), u32::from_be_bytes([sum[0], sum[1], sum[2], sum[3]]), "{function:?}: md5");
        let none = ("-".to_owned(), "-".to_owned());
        let request = function.request_shape().map_or(none, shape_of);
        assert_eq!((request.0.as_str(), request.1.as_str()), (row[2], row[3]), "{function:?}: request");
        let response = shape_of(function.response_shape());
        assert_eq!((response.0.as_str(), response.1.as_str()), (row[4], row[5]), "{function:?}: response");
    }
}

#[test]
fn unknown_ids_name_no_function() {
    let known: HashSet<u32> = Function::ALL.iter().map(|function| function.id()).collect();
    assert_eq!(known.len(), 64, "no two functions share an id");
    for id in [0, 1, u32::MAX, 0x8938_5f08, 0x8938_5f0a] {
        assert_eq!(Function::from_id(id), None);
    }
}

#[test]
fn every_sample_type_has_its_code_and_literal() {
    let types: HashMap<&str, &Shape> = [
        ("std::string", <&[u8]>::SHAPE),
        ("std::monostate", <()>::SHAPE),
        ("UUID", Uuid::SHAPE),
        ("Segment", Segment::SHAPE),
        ("NoFSegment", NoFSegment::SHAPE),
        ("ReplicateConfig", ReplicateConfig::SHAPE),
        ("Replica::Descriptor", ReplicaDescriptor::SHAPE),
        ("AllocatedBuffer::Descriptor", BufferDescriptor::SHAPE),
        ("MemoryDescriptor", MemoryDescriptor::SHAPE),
        ("ObjectMeta", ObjectMeta::SHAPE),
        ("PingResponse", PingResponse::SHAPE),
        ("GetReplicaListResponse", GetReplicaListResponse::SHAPE),
        ("tl::expected<void,ErrorCode>", Expected::<()>::SHAPE),
        ("tl::expected<bool,ErrorCode>", Expected::<bool>::SHAPE),
        ("std::vector<std::string>", Vec::<&[u8]>::SHAPE),
        ("std::vector<UUID>", Vec::<Uuid>::SHAPE),
        ("StorageObjectMetadata", StorageObjectMetadata::SHAPE),
        ("OffloadTaskItem", OffloadTaskItem::SHAPE),
        ("long", i64::SHAPE),
        ("bool", bool::SHAPE),
    ]
    .into();
    let mut seen = 0;
    for line in TABLE.lines().filter(|line| line.starts_with("TYPE\t")) {
        let row: Vec<&str> = line.split('\t').collect();
        let shape = shape_of(types[row[1]]);
        assert_eq!((shape.0.as_str(), shape.1.as_str()), (row[2], row[3]), "{}", row[1]);
        seen += 1;
    }
    assert_eq!(seen, types.len());
}

fn encoded<T: Encode>(value: T) -> Vec<u8> {
    let mut out = Vec::new();
    encode(&value, Form::Short, &mut out);
    out
}

#[test]
fn every_serialised_sample_comes_out_byte_for_byte() {
    let config = ReplicateConfig { replica_num: 1, ..ReplicateConfig::default() };
    let buffer = BufferDescriptor {
        size: 1024,
        address: 0x7f00_0000_0000,
        protocol: b"tcp",
        transport_endpoint: b"127.0.0.1:1",
    };
    let replica = ReplicaDescriptor {
        id: 5,
        location: ReplicaLocation::Memory(MemoryDescriptor { buffer }),
        status: ReplicaStatus::COMPLETE,
    };
    let not_found = ErrorCode::OBJECT_NOT_FOUND;
    let key = KeyRequest { key: b"k1", tenant_id: b"default" };
    let ping = PingResponse { view_version: 7, client_status: ClientStatus::NEED_REMOUNT };
    let samples: HashMap<&str, Vec<u8>> = [
        ("uuid", encoded(Uuid { first: 0x1122_3344_5566_7788, second: 0x99aa_bbcc_ddee_ff00 })),
        ("existkey(k1,default)", encoded(key)),
        ("expected<void> ok", encoded(Expected::Ok(()))),
        ("expected<void> err", encoded(Expected::<()>::Err(not_found))),
        ("expected<Ping>", encoded(Expected::Ok(ping))),
        ("ReplicateConfig{}", encoded(config)),
        ("string(300)", encoded([b'x'; 300].as_slice())),
        ("string(70000)", encoded(vec![b'x'; 70_000].as_slice())),
        ("vector<UUID>", encoded(vec![Uuid { first: 1, second: 2 }, Uuid { first: 3, second: 4 }])),
        ("Replica::Descriptor mem", encoded(replica)),
        ("errmsg", encoded(b"the rpc function not registered".as_slice())),
        ("vector<expected<void>>", encoded(vec![Ok(()), Err(not_found)])),
        ("long(-5)", encoded(-5i64)),
        ("monostate", encoded(())),
        ("expected<bool> true", encoded(Expected::Ok(true))),
    ]
    .into();
    let mut seen = 0;
    for line in TABLE.lines().filter_map(|line| line.strip_prefix("SER ")) {
        let (line, length) = match line.split_once(" len=") {
            Some((line, length)) => (line, Some(length.parse::<usize>().unwrap())),
            None => (line, None),
        };
        let (name, expected) = line.rsplit_once(' ').unwrap();
        let bytes = &samples[name];
        match length {
            Some(length) => {
                assert_eq!(bytes.len(), length, "{name}");
                assert!(hex(bytes).starts_with(expected.trim_end_matches("...")), "{name}");
            }
            None => assert_eq!(hex(bytes), expected, "{name}"),
        }
        seen += 1;
    }
    assert_eq!(seen, samples.len());
    assert_eq!(decode(&samples["existkey(k1,default)"]), Ok(key));
    assert_eq!(decode(&samples["Replica::Descriptor mem"]), Ok(replica));
}
