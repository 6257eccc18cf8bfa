//! What masters do not ask and others may: the same random questions to a real etcd and to the embedded store, with
//! everything that reads and transactions can say, give the same answers.

use etcd_client::{
    Client, Compare, CompareOp, DeleteOptions, Error, GetOptions, PutOptions, SortOrder, SortTarget, Txn,
    TxnOp,
};
use moonkeeper::coordination::embedded::{Store, serve};
use tokio::net::TcpListener;

use crate::differential::Random;
use crate::process::{EtcdProcess, binary};

fn key(random: &mut Random) -> String {
    format!("k/{}", random.below(8))
}

fn get(random: &mut Random) -> (String, GetOptions) {
    let mut options = GetOptions::new();
    match random.below(5) {
        0 => options = options.with_range(key(random)),
        1 => options = options.with_from_key(),
        2 => {}
        _ => options = options.with_range("l"),
    }
    if random.below(2) == 0 {
        let order = [SortOrder::None, SortOrder::Ascend, SortOrder::Descend][random.below(3) as usize];
        // Of everything else several keys can have the same, and their order is then left open.
        options = options.with_sort(SortTarget::Key, order);
    }
    if random.below(3) == 0 {
        options = options.with_limit(random.below(4) as i64);
    }
    let bound = |random: &mut Random| random.below(60) as i64;
    match random.below(8) {
        0 => options = options.with_min_mod_revision(bound(random)),
        1 => options = options.with_max_mod_revision(bound(random)),
        2 => options = options.with_min_create_revision(bound(random)),
        3 => options = options.with_max_create_revision(bound(random)),
        4 => options = options.with_count_only(),
        5 => options = options.with_keys_only(),
        _ => {}
    }
    (key(random), options)
}

fn compare(random: &mut Random) -> Compare {
    let relation = [CompareOp::Equal, CompareOp::NotEqual, CompareOp::Greater, CompareOp::Less]
        [random.below(4) as usize];
    let revision = random.below(60) as i64;
    let compare = match random.below(5) {
        0 => Compare::version(key(random), relation, random.below(4) as i64),
        1 => Compare::create_revision(key(random), relation, revision),
        2 => Compare::mod_revision(key(random), relation, revision),
        3 => Compare::value(key(random), relation, random.below(4).to_string()),
        _ => Compare::lease(key(random), relation, random.below(2) as i64),
    };
    if random.below(4) == 0 { compare.with_range("l") } else { compare }
}

fn put_options(random: &mut Random) -> PutOptions {
    match random.below(6) {
        0 => PutOptions::new().with_prev_key(),
        1 => PutOptions::new().with_ignore_lease(),
        _ => PutOptions::new(),
    }
}

fn op(random: &mut Random, depth: u64) -> TxnOp {
    match random.below(8) {
        0..=3 => TxnOp::put(key(random), random.below(4).to_string(), Some(put_options(random))),
        4 => TxnOp::delete(key(random), Some(DeleteOptions::new().with_prev_key())),
        5 => TxnOp::delete(key(random), Some(DeleteOptions::new().with_range(key(random)))),
        6 if depth < 3 => TxnOp::txn(txn(random, depth + 1)),
        _ => {
            let (key, options) = get(random);
            TxnOp::get(key, Some(options))
        }
    }
}

fn txn(random: &mut Random, depth: u64) -> Txn {
    let compares = (0..random.below(3)).map(|_| compare(random)).collect::<Vec<_>>();
    let ops = |random: &mut Random| (0..random.below(4)).map(|_| op(random, depth)).collect::<Vec<_>>();
    Txn::new().when(compares).and_then(ops(random)).or_else(ops(random))
}

/// An answer as text, without who gave it.
fn text(answer: Result<String, Error>) -> String {
    match answer {
        Ok(text) => text,
        Err(Error::GRpcStatus(status)) => format!("{:?} {}", status.code(), status.message()),
        Err(other) => panic!("{other}"),
    }
}

/// The first header's revision, and everything else but headers: those say who answered, and those of steps how far the
/// transaction had come, which nobody asks for.
fn without_headers(text: &str) -> String {
    let mut parts = text.split("ResponseHeader { ");
    let mut all = parts.next().unwrap_or_default().to_owned();
    for (index, part) in parts.enumerate() {
        let (header, rest) = part.split_once(" }").unwrap();
        if index == 0 {
            all.push_str(header.split_once("revision: ").unwrap().1.split(',').next().unwrap());
        }
        all.push_str(rest);
    }
    all
}

async fn ask(client: &mut Client, seed: u64) -> String {
    // The same seed for both, so the same question.
    let mut random = Random::new(seed);
    let answer = match random.below(10) {
        0..=5 => client.txn(txn(&mut random, 0)).await.map(|answer| format!("{:?}", answer.0)),
        6 => {
            let options = Some(put_options(&mut random));
            client.put(key(&mut random), "x", options).await.map(|answer| format!("{:?}", answer.0))
        }
        7 => {
            let options = Some(DeleteOptions::new().with_prev_key());
            client.delete(key(&mut random), options).await.map(|answer| format!("{:?}", answer.0))
        }
        _ => {
            let (key, options) = get(&mut random);
            client.get(key, Some(options)).await.map(|answer| format!("{:?}", answer.0))
        }
    };
    without_headers(&text(answer))
}

#[tokio::test]
async fn the_embedded_store_answers_as_etcd_does() {
    let process = EtcdProcess::start(binary("ETCD_BIN")).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let served = tokio::spawn(serve(listener, Store::open(None).unwrap(), std::future::pending()));
    let mut etcd = Client::connect([process.url()], None).await.unwrap();
    let mut embedded = Client::connect([address], None).await.unwrap();
    for seed in 0..2000 {
        assert_eq!(ask(&mut embedded, seed).await, ask(&mut etcd, seed).await, "seed {seed}");
    }
    served.abort();
}
