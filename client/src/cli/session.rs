//! The connection of a verb that calls a server over Flight.

use forebay_client::{Client, Credentials};

/// What a verb works with that asks a server over Flight.
pub(crate) struct Session {
    /// URL of the server, for further connections.
    pub(crate) server: String,
    pub(crate) credentials: Credentials,
    pub(crate) client: Client,
    pub(crate) json: bool,
}
