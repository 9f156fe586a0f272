//! Commands and actions: the bytes of a `FlightDescriptor` and of an action's body, protobuf or JSON.

use arrow_flight::{Action, FlightDescriptor};
use bytes::Bytes;

use crate::{
    repeated::written_out,
    server::{Server, with_tables},
};

/// The first line selects the call, the rest is its bytes: `info` and `schema` of a command, `path` of a table's name;
/// any other line is the name of an action. Repetitions are expanded.
pub fn command(data: &[u8]) {
    let end = data.iter().position(|byte| *byte == b'\n').unwrap_or(data.len());
    let (name, body) = (String::from_utf8_lossy(&data[..end]), data.get(end + 1..).unwrap_or_default());
    with_tables(|server| call(server, &name, &written_out(body)));
}

fn call(server: &Server, name: &str, body: &[u8]) {
    match name {
        "info" => {
            if let Ok(info) = server.info(&FlightDescriptor::new_cmd(body.to_vec())) {
                server.get_first_and_last(&info);
            }
        }
        "schema" => {
            let _ = server.schema(&FlightDescriptor::new_cmd(body.to_vec()));
        }
        "path" => {
            let path = String::from_utf8_lossy(body).split('/').map(str::to_owned).collect();
            if let Ok(info) = server.info(&FlightDescriptor::new_path(path)) {
                server.get_first_and_last(&info);
            }
        }
        action => {
            let _ = server.act(&Action::new(action, Bytes::copy_from_slice(body)));
        }
    }
}
