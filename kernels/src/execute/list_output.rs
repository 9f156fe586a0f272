//! Outputs that are not matrices: lists, and columns assembled from pieces.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, ListArray, new_empty_array},
    buffer::{OffsetBuffer, ScalarBuffer},
    compute::{concat, interleave},
    datatypes::{DataType, Field},
    error::ArrowError,
};

use crate::{
    compile::chain::CompiledChain,
    error::KernelError,
    execute::{
        explain::TileContext,
        lists::{ListElementError, ListTile},
        mapped::MappedDictionary,
        matrix::Matrix,
        row_run::{ChainFeed, RowRun},
    },
    spec::DType,
    vector::{cast::Rounding, tiling::tiles},
};

/// Computes the lists of a run of rows.
pub(super) fn compute_lists(
    chain: &CompiledChain,
    run: &RowRun,
    dtype: DType,
    field: &Field,
    mapped: &mut [Option<MappedDictionary>],
) -> Result<ArrayRef, KernelError> {
    let lists = run.lists(chain)?;
    let feed = run.feed(chain, lists.as_ref(), mapped)?;
    let ChainFeed::Lists(feed) = &feed else { return Ok(new_empty_array(field.data_type())) };
    let mut pieces = Vec::new();
    for rows in tiles(0..run.rows.len()) {
        let context = TileContext { program: run.program, dtype, field, first_row: run.rows.start + rows.start };
        let tile = feed.load(rows);
        let lists = list_array(&tile, (dtype, chain.rounding), field.data_type());
        pieces.push(lists.map_err(|error| context.list_error(error, &tile, chain))?);
    }
    concat_pieces(&pieces, &[], field.data_type()).map_err(|source| KernelError::Arrow {
        what: "assemble output",
        name: field.name().clone(),
        source,
    })
}

/// A tile of lists as an array of the output's type.
fn list_array(
    tile: &ListTile,
    (dtype, rounding): (DType, Rounding),
    data_type: &DataType,
) -> Result<ArrayRef, ListElementError> {
    if let Some(null) = tile.first_null() {
        return Err(null);
    }
    let flat = Matrix::flat(dtype, rounding, &tile.elements).map_err(ListElementError::Lossy)?;
    let (Some(flat), DataType::List(item)) = (flat, data_type) else { return Ok(new_empty_array(data_type)) };
    let overflow = |end| ListElementError::Arrow(ArrowError::OffsetOverflowError(end));
    let ends = tile.ends.iter().map(|end| i32::try_from(*end).map_err(|_| overflow(*end)));
    let offsets = std::iter::once(Ok(0)).chain(ends).collect::<Result<Vec<i32>, _>>()?;
    let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
    let values = flat.into_values(tile.elements.len());
    let lists = ListArray::try_new(Arc::clone(item), offsets, values, None).map_err(ListElementError::Arrow)?;
    Ok(Arc::new(lists))
}

/// The column made of pieces: in order, or with each row taken from the piece and row that `scattered` names.
pub(super) fn concat_pieces(
    pieces: &[ArrayRef],
    scattered: &[(usize, usize)],
    data_type: &DataType,
) -> Result<ArrayRef, ArrowError> {
    let arrays = || pieces.iter().map(AsRef::as_ref).collect::<Vec<&dyn Array>>();
    match pieces {
        [] => Ok(new_empty_array(data_type)),
        _ if !scattered.is_empty() => interleave(&arrays(), scattered),
        [piece] => Ok(Arc::clone(piece)),
        _ => concat(&arrays()),
    }
}
