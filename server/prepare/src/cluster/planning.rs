//! The session that plans queries for a cluster: the inputs as tables, with the settings of Ballista.

use std::sync::Arc;

use ballista_core::{extension::SessionConfigExt, optimizer::ballista_default_optimizer_rules};
use datafusion::{
    catalog::TableProvider,
    common::TableReference,
    error::DataFusionError,
    execution::{context::SessionContext, session_state::SessionStateBuilder},
    prelude::SessionConfig,
};

use super::pins;
use crate::{
    expressions,
    inputs::Input,
    session::{self, Limits},
    table::{Reads, SnapshotTable},
};

/// Opens a session whose only tables are the inputs. Its plans have paths with pins, which only executors of Forebay read.
pub(crate) fn session(inputs: &[Input], limits: &Limits) -> Result<SessionContext, DataFusionError> {
    let mut tables = Vec::with_capacity(inputs.len());
    for input in inputs {
        let url = pins::store_url(input.snapshot.store().url())?;
        let table = SnapshotTable::new(Arc::clone(&input.snapshot), url, Reads::Elsewhere(pins::pinned_path));
        tables.push((input.name.as_str(), Arc::new(table) as Arc<dyn TableProvider>));
    }
    session_of(limits, tables)
}

/// Opens a session whose only tables are these.
pub(super) fn session_of<'a>(
    limits: &Limits,
    tables: impl IntoIterator<Item = (&'a str, Arc<dyn TableProvider>)>,
) -> Result<SessionContext, DataFusionError> {
    let builder = SessionStateBuilder::new()
        .with_default_features()
        .with_config(config(limits.threads))
        .with_runtime_env(session::runtime(limits)?);
    let context = expressions::session(builder, ballista_default_optimizer_rules());
    for (name, table) in tables {
        context.register_table(TableReference::bare(name), table)?;
    }
    Ok(context)
}

fn config(partitions: usize) -> SessionConfig {
    let mut config = SessionConfig::new().with_target_partitions(partitions).with_information_schema(false);
    session::set_sql(&mut config);
    config.upgrade_for_ballista()
}
