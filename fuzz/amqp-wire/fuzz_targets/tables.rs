//! Tables: what is checked once is walked without surprises.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use stafett_amqp_wire::table::DEPTH_MAX;
use stafett_amqp_wire::{Table, TableBuilder, Value};

/// Walks everything; the number of values.
fn walk(value: &Value, depth: usize) -> usize {
    assert!(depth <= DEPTH_MAX);
    match value {
        Value::Table(table) => table.iter().map(|(_, value)| walk(&value, depth + 1)).sum::<usize>() + 1,
        Value::Array(array) => array.iter().map(|value| walk(&value, depth + 1)).sum::<usize>() + 1,
        _ => 1,
    }
}

fuzz_target!(|data: &[u8]| {
    let Ok(table) = Table::decode(Bytes::copy_from_slice(data)) else { return };
    let mut again = TableBuilder::new();
    for (name, value) in table.iter() {
        again.push(&name, &value);
    }
    assert_eq!(again.finish().as_bytes().len(), data.len());
    assert!(walk(&Value::Table(table), 0) <= data.len() + 1);
});
