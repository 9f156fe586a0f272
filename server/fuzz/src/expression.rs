//! SQL expressions, compiled and run as a filter and as a derived column.

use forebay_proto::v1;

use crate::{
    repeated::written_out,
    server::{Server, with_tables},
};

/// The bytes are an expression over the columns of the table `t`. Repetitions are expanded.
pub fn expression(data: &[u8]) {
    let written = written_out(data);
    let text = String::from_utf8_lossy(&written);
    with_tables(|server| {
        run(server, v1::Plan { filter: text.to_string(), outputs: vec![as_stored("id")], ..v1::Plan::default() });
        let derive = vec![v1::Derive { name: "derived".to_owned(), expr: text.into_owned() }];
        run(server, v1::Plan { derive, outputs: vec![as_stored("derived")], ..v1::Plan::default() });
    });
}

fn run(server: &Server, plan: v1::Plan) {
    let request =
        v1::StreamRequest { dataset: "t".to_owned(), plan: Some(plan), batch_size: Some(64), ..Default::default() };
    if let Ok(info) = server.stream_info(&request) {
        server.get_first_and_last(&info);
    }
}

/// An output of a column as stored.
fn as_stored(column: &str) -> v1::Output {
    v1::Output {
        name: column.to_owned(),
        dtype: Some(v1::DType::AsStored.into()),
        parts: vec![v1::Part { columns: vec![column.to_owned()], ops: Vec::new() }],
        ..v1::Output::default()
    }
}
