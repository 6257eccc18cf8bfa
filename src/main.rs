//! Arguments and wiring, nothing else.

fn main() {}
