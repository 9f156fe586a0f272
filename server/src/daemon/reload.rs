//! SIGHUP: reads the configuration again and applies its datasets, functions, tokenizers, principals and certificates to the running
//! server.
//!
//! A new configuration is validated as a whole before anything changes; an invalid one is logged and counted. Running
//! streams keep their snapshots and their callers.

use std::{collections::BTreeSet, convert::Infallible, env, future, sync::Arc};

use forebay_catalog::{CatalogError, Dataset, LocationError, view::Views};
use forebay_runtime::{cpu_pool::CpuPool, metrics};
use forebay_settings::{SettingsError, Values};
use forebay_stream::Streams;
use tokio::{signal::unix::Signal, task::spawn_blocking};

use super::opening;
use crate::{
    auth::{Auth, Tls},
    config::{Config, ConfigProblems, Flags},
};

/// Settings that a reload applies. Changes of all others need a restart.
const RELOADED: [&str; 10] = [
    "dataset",
    "int96-unit",
    "dataset-schema",
    "view",
    "udf",
    "tokenizer",
    "principals",
    "tls-cert",
    "tls-key",
    "tls-client-ca",
];

/// Settings of those whose presence must not change: listeners have TLS or not, and calls need credentials or not.
const FIXED_PRESENCE: [&str; 3] = ["principals", "tls-cert", "tls-client-ca"];

/// The parts of a running server that a reload changes.
#[derive(Debug)]
pub(super) struct Reloader {
    pub streams: Arc<Streams>,
    pub views: Arc<Views>,
    pub cpu: CpuPool,
    pub auth: Auth,
    pub tls: Option<Arc<Tls>>,
    /// The settings that the server was started with.
    pub values: Values,
}

/// The reason why a configuration is not applied.
#[derive(Debug, thiserror::Error)]
enum ReloadError {
    #[error("{}", .0.line())]
    Settings(#[from] SettingsError),
    #[error(transparent)]
    Config(#[from] ConfigProblems),
    #[error("--dataset: {0}")]
    Dataset(#[from] LocationError),
    #[error("--view: {0}")]
    View(#[from] CatalogError),
    #[error("the configuration could not be read: {0}")]
    Read(#[from] tokio::task::JoinError),
}

impl Reloader {
    /// Reloads at every signal, until dropped.
    pub(super) async fn serve(self, mut hangups: Signal) -> Infallible {
        while hangups.recv().await.is_some() {
            let applied = match read().await {
                Ok((config, values)) => self.apply(config, &values).await,
                Err(error) => Err(error),
            };
            if let Err(error) = &applied {
                tracing::error!(%error, "cannot reload the configuration: the previous one stays in effect");
            }
            metrics::reloaded(applied.is_ok());
            opening::open(applied.unwrap_or_default()).await;
        }
        future::pending().await
    }

    /// Applies a valid configuration; returns the datasets to open.
    async fn apply(&self, config: Config, values: &Values) -> Result<Vec<Arc<Dataset>>, ReloadError> {
        let catalog = opening::catalog(config.datasets, config.views, &self.views, &self.cpu).await?;
        catalog.check_paths()?;
        if let (Some(tls), Some(new)) = (&self.tls, config.tls)
            && tls.checks_clients() == new.checks_clients()
        {
            tls.replace(new);
        }
        if let Some(principals) = config.principals {
            self.auth.replace_principals(principals);
        }
        self.streams.udfs().replace(config.udfs);
        self.streams.tokenizers().replace(config.tokenizers);
        let changes = self.streams.catalog().replace(&catalog);
        // Left out, where there is none.
        let names = |names: &[String]| (!names.is_empty()).then(|| names.join(", "));
        let (added, removed, changed) = (names(&changes.added), names(&changes.removed), names(&changes.changed));
        tracing::info!(added, removed, changed, "configuration reloaded");
        let restart = self.need_restart(values);
        if !restart.is_empty() {
            tracing::warn!("restart to change {}", restart.join(", "));
        }
        let mut datasets = self.streams.catalog().datasets();
        datasets.retain(|dataset| changes.added.iter().chain(&changes.changed).any(|name| name == dataset.name()));
        Ok(datasets)
    }

    /// The flags of changed settings that a running server cannot change.
    fn need_restart(&self, values: &Values) -> Vec<String> {
        let all: BTreeSet<&String> = self.values.keys().chain(values.keys()).collect();
        let changed = all.into_iter().filter(|flag| {
            if RELOADED.contains(&flag.as_str()) {
                let is_fixed = FIXED_PRESENCE.contains(&flag.as_str());
                return is_fixed && self.values.contains_key(*flag) != values.contains_key(*flag);
            }
            self.values.get(*flag) != values.get(*flag)
        });
        changed.map(|flag| format!("--{flag}")).collect()
    }
}

/// Reads the settings of this process as at its start, with the current content of the files.
async fn read() -> Result<(Config, Values), ReloadError> {
    let read = || {
        let parsed = forebay_settings::try_parse_values_from::<Flags>(env::args_os())?;
        Ok((parsed.options.check()?, parsed.values))
    };
    spawn_blocking(read).await?
}
