//! Connection of a subcommand to its server.

use forebay_client::{Client, Credentials};

/// Connection and output format of a subcommand that calls a server over Flight.
pub(crate) struct Session {
    /// URL, for further connections.
    pub(crate) server: String,
    pub(crate) credentials: Credentials,
    pub(crate) client: Client,
    pub(crate) json: bool,
}
