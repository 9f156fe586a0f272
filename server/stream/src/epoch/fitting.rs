//! Parameters with which a refused stream would fit the memory budget: a search over the arithmetic of `memory`.

use std::iter;

use forebay_order::{Share, Shuffle};
use forebay_runtime::budget::BudgetError;

use super::{
    in_order,
    memory::{self, RowGroupSizes},
};
use crate::{
    advice::{of_pass, raise},
    prepare::{
        dataset::PreparedDataset,
        ordered::Ordered,
        prepared::{Prepared, PreparedRows},
    },
};

/// A search for smaller parameters.
struct Search<'a> {
    prepared: &'a PreparedDataset,
    sizes: RowGroupSizes,
    /// Bytes for reading rows in file order, which no parameter changes.
    in_order_bytes: u64,
    /// Bytes that the stream may need.
    available: u64,
}

/// Returns what to change so that a rank's stream fits the budget that refused it.
///
/// If all ranks of the epoch together exceed the limit, a change with which all of them fit comes first: a change for
/// one rank would only let the next one be refused.
pub(crate) fn of_stream(prepared: &Prepared, share: &Share, source: &BudgetError) -> String {
    let prepared = match prepared.rows() {
        PreparedRows::Dataset(dataset) => dataset,
        PreparedRows::Mixture(mixture) => return of_parts(mixture.as_ref(), source),
        PreparedRows::Buckets(buckets) => return of_parts(buckets.as_ref(), source),
    };
    let ranks = prepared.request.world_size;
    let all_bytes = source.bytes().saturating_mul(ranks);
    let limit = source.limit();
    if all_bytes <= limit {
        let changes = Search::new(prepared, share, limit - source.reserved()).changes();
        let change = if changes.is_empty() { String::new() } else { format!("request {changes} to fit the rest, ") };
        let raised = all_bytes.max(source.reserved().saturating_add(source.bytes()));
        return format!("wait for them to end, {change}or {}", raise(raised, 1));
    }
    let mut search = Search::new(prepared, share, limit / ranks);
    let mut changes = search.changes();
    let mut fitting = if ranks > 1 { format!(", with which all {ranks} ranks fit") } else { String::new() };
    if changes.is_empty() && source.bytes() > limit && ranks > 1 {
        search.available = limit;
        changes = search.changes();
        ", with which one rank fits".clone_into(&mut fitting);
    }
    let raise = raise(all_bytes, ranks);
    if changes.is_empty() { raise } else { format!("request {changes}{fitting}, or {raise}") }
}

/// Returns what to change so that a rank's stream of a mixture or of buckets, whose parts each have their own lanes, fits.
fn of_parts(prepared: &dyn Ordered, source: &BudgetError) -> String {
    let changes = match prepared.epoch().shuffle() {
        Some(_) => "fewer lanes or smaller window_rows",
        None => "a smaller batch_size",
    };
    format!("request {changes}, or {}", of_pass(source))
}

/// Returns the powers of two below a number, largest first.
fn halvings(number: u64) -> impl Iterator<Item = u64> {
    iter::successors(Some(number.next_power_of_two() / 2), |half| Some(half / 2)).take_while(|half| *half > 0)
}

// === impl Search ===

impl<'a> Search<'a> {
    fn new(prepared: &'a PreparedDataset, share: &Share, available: u64) -> Self {
        let in_order_bytes = match prepared.epoch.shuffle() {
            Some(_) => 0,
            None => memory::in_order_bytes(prepared, &in_order::pieces(prepared, &prepared.epoch.sequence(), share)),
        };
        Self { prepared, sizes: RowGroupSizes::of(prepared), in_order_bytes, available }
    }

    /// Returns the changes that each suffice, the one that keeps most of the request first; empty if there is none.
    fn changes(&self) -> String {
        // Another order or batch size would repeat or skip rows of a resumed epoch.
        if self.prepared.request.start_position > 0 {
            return String::new();
        }
        let (batch_size, shuffle) = (self.prepared.request.batch_size, self.prepared.epoch.shuffle().copied());
        let world_size = self.prepared.request.world_size;
        let mut changes: Vec<String> = Vec::new();
        if let Some(shuffle) = shuffle {
            changes.extend(self.window(shuffle).map(|rows| format!("window_rows {rows}")));
            let mut fewer = halvings(shuffle.lanes / world_size).map(|lanes| lanes * world_size);
            let lanes = fewer.find(|lanes| self.fits(batch_size, Some(Shuffle { lanes: *lanes, ..shuffle })));
            changes.extend(lanes.map(|lanes| format!("lanes {lanes}")));
        }
        if changes.is_empty() {
            let rows = halvings(batch_size).find(|rows| self.fits(*rows, shuffle));
            changes.extend(rows.map(|rows| format!("batch_size {rows}")));
        }
        if let (true, Some(shuffle)) = (changes.is_empty(), shuffle) {
            let rows = self.window(Shuffle { lanes: world_size, ..shuffle });
            changes.extend(rows.map(|rows| format!("lanes {world_size} with window_rows {rows}")));
        }
        changes.join(" or ")
    }

    /// The largest power of two of rows in a window with which the stream fits.
    fn window(&self, shuffle: Shuffle) -> Option<u64> {
        let batch_size = self.prepared.request.batch_size;
        halvings(shuffle.window_rows)
            .find(|rows| self.fits(batch_size, Some(Shuffle { window_rows: *rows, ..shuffle })))
    }

    fn fits(&self, batch_size: u64, shuffle: Option<Shuffle>) -> bool {
        let mut changed = self.prepared.clone();
        changed.request.batch_size = batch_size;
        changed.epoch = self.prepared.epoch.with(batch_size, shuffle);
        let reading = match &shuffle {
            // The lanes of rank 0 are the longest.
            Some(shuffle) => memory::lanes_bytes(&changed, &self.sizes, shuffle, 0),
            None => self.in_order_bytes,
        };
        memory::with_batches(&changed, reading) <= self.available
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_to_one() {
        let all = |number| halvings(number).collect::<Vec<_>>();
        assert_eq!((all(1), all(2), all(5), all(8)), (vec![], vec![1], vec![4, 2, 1], vec![4, 2, 1]));
    }
}
