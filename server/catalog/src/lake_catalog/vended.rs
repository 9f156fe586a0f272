//! Credentials of an S3 bucket that a catalog hands out for a table, for a limited time.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use async_trait::async_trait;
use object_store::{Error, Result, aws::AwsCredential, client::CredentialProvider};
use tokio::sync::Mutex;

use super::{renewal, storage_credentials::Handed, table::CatalogTable};
use crate::store::StoreError;

/// Credentials are replaced when less than this is left.
const RENEWED_BEFORE: Duration = Duration::from_mins(5);

/// The time of credentials that name none.
const TIME: Duration = Duration::from_mins(10);

/// The credentials of a table, which its catalog hands out.
pub(crate) struct VendedCredentials {
    table: CatalogTable,
    known: Mutex<Option<Known>>,
}

struct Known {
    credential: Arc<AwsCredential>,
    renewed_at: Instant,
}

// === impl VendedCredentials ===

impl VendedCredentials {
    pub(crate) fn new(table: CatalogTable) -> Self {
        Self { table, known: Mutex::default() }
    }
}

impl fmt::Debug for VendedCredentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("VendedCredentials").field(&self.table).finish()
    }
}

#[async_trait]
impl CredentialProvider for VendedCredentials {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> Result<Arc<AwsCredential>> {
        // Held while the catalog answers: concurrent reads wait for one answer.
        let mut known = self.known.lock().await;
        if let Some(known) = known.as_ref().filter(|known| Instant::now() < known.renewed_at) {
            return Ok(Arc::clone(&known.credential));
        }
        let Handed { credential, ends } = self.table.credentials().await.map_err(unavailable)?;
        let time = ends.map_or(TIME, |ends| ends.duration_since(SystemTime::now()).unwrap_or_default());
        let (renewed_at, credential) = (renewal::after(time, RENEWED_BEFORE), Arc::new(credential));
        *known = Some(Known { credential: Arc::clone(&credential), renewed_at });
        Ok(credential)
    }
}

/// The error of a store whose credentials are not to be had.
fn unavailable(error: StoreError) -> Error {
    if error.is_denied() || error.is_missing() {
        return Error::Unauthenticated { path: String::new(), source: error.into() };
    }
    Error::Generic { store: "catalog", source: error.into() }
}
