//! Computes a matrix tile by tile: each tile runs through every chain, whose result is written to the tile's rows.
//!
//! Tiles of four-byte elements are staged first, up to [`COLUMNS`] of them, and then written side by side.

use std::ops::Range;

use arrow::datatypes::Field;

use crate::{
    compile::{chain::RowShape, outputs::PlacedChain},
    error::KernelError,
    execute::{
        explain::TileContext,
        matrix::Matrix,
        row_run::{ChainFeed, RowRun},
        transpose::COLUMNS,
        workspace::Workspace,
    },
    spec::DType,
    vector::{tile::Tile, tiling::tiles_of},
};

/// A tile being computed, and its values as elements of four bytes.
#[derive(Debug)]
struct StagedTile<'a> {
    tile: Tile<'a>,
    column: Vec<u32>,
    /// Whether the column has the values, and not the tile.
    is_column: bool,
}

/// The rows of one tile.
#[derive(Clone, Debug)]
struct TileRows {
    /// In the batch that was appended.
    rows: Range<usize>,
    /// The first of them, counted from the first row of the run.
    run_row: usize,
    /// The first row of the matrix that they fill.
    matrix_row: usize,
}

/// Computes a run of rows of a matrix of a dtype, this many rows at once.
pub(super) fn compute_matrix(
    matrix: &mut Matrix,
    chains: &[PlacedChain],
    run: &RowRun,
    (dtype, tile_rows): (DType, usize),
    field: &Field,
    workspace: &mut Workspace,
) -> Result<(), KernelError> {
    let lists = chains.iter().map(|chain| run.lists(&chain.chain)).collect::<Result<Vec<_>, _>>()?;
    let mut feeds = Vec::with_capacity(chains.len());
    for (chain, lists) in chains.iter().zip(&lists) {
        feeds.push(run.feed(&chain.chain, lists.as_ref(), &mut workspace.mapped)?);
    }
    let mut memory = std::mem::take(&mut workspace.staging);
    memory.resize_with(COLUMNS, Default::default);
    let mut staging: Vec<StagedTile> = memory
        .into_iter()
        .map(|(scratch, column)| StagedTile { tile: Tile::new(scratch), column, is_column: false })
        .collect();
    let mut result = Ok(());
    for rows in tiles_of(run.rows.clone(), tile_rows) {
        let (run_row, row_count) = (rows.start - run.rows.start, rows.len());
        // Scattered rows are computed in the scratch rows and then copied to their places.
        let matrix_row = if run.places.is_some() { matrix.scratch_row() } else { run.output_row + run_row };
        matrix.extend_to(matrix_row + row_count);
        let context = TileContext { program: run.program, dtype, field, first_row: rows.start };
        let tile_rows = TileRows { rows, run_row, matrix_row };
        result = compute_tile(matrix, chains, &feeds, &mut staging, &tile_rows, context);
        if result.is_err() {
            break;
        }
        if let Some(places) = run.places {
            matrix.place(&places[run_row..run_row + row_count]);
        }
    }
    workspace.staging = staging.into_iter().map(|staged| (staged.tile.into_scratch(), staged.column)).collect();
    result
}

/// Computes a tile of rows of a matrix.
fn compute_tile<'a>(
    matrix: &mut Matrix,
    chains: &[PlacedChain],
    feeds: &'a [ChainFeed<'a>],
    staging: &mut [StagedTile<'a>],
    tile_rows: &TileRows,
    context: TileContext,
) -> Result<(), KernelError> {
    let row = tile_rows.matrix_row;
    let (mut staged, mut first, kind) = (0, 0, matrix.staged_kind());
    for (PlacedChain { at, chain }, feed) in chains.iter().zip(feeds) {
        let at = *at;
        if staged == COLUMNS || kind.is_none() || chain.shape != RowShape::Single {
            write_staged(matrix, &staging[..staged], row, first);
            staged = 0;
        }
        match feed {
            ChainFeed::Single(feed) => {
                let StagedTile { tile, column, is_column } = &mut staging[staged];
                *is_column = chain.shape == RowShape::Single
                    && kind.is_some_and(|kind| feed.load_words(tile_rows.rows.clone(), kind, column));
                if *is_column {
                    first = if staged == 0 { at } else { first };
                    staged += 1;
                    continue;
                }
                feed.load(tile_rows.rows.clone(), tile);
                let written = match chain.shape {
                    RowShape::OneHot(size) => matrix.write_one_hot(tile, row, at, size),
                    _ if kind.is_some() => {
                        first = if staged == 0 { at } else { first };
                        staged += 1;
                        matrix.convert(tile, column, chain.rounding)
                    }
                    _ => matrix.write(tile, row, at, chain.rounding),
                };
                written.map_err(|error| context.row_error(&error, tile, chain))?;
            }
            ChainFeed::Lists(feed) => {
                let rows = tile_rows.run_row..tile_rows.run_row + tile_rows.rows.len();
                if let RowShape::Columns(n) = chain.shape
                    && let Some(elements) = feed.unchanged(rows, n)
                    && matrix.copy_columns(&elements, row, at, n)
                {
                    continue;
                }
                let tile = feed.load(tile_rows.run_row..tile_rows.run_row + tile_rows.rows.len());
                let written = match chain.shape {
                    RowShape::MultiHot(size) => matrix.write_multi_hot(&tile, row, at, size, None),
                    RowShape::OneHots { n, size } => matrix.write_multi_hot(&tile, row, at, size, Some(n)),
                    RowShape::Columns(n) => matrix.write_columns(&tile, row, at, n, (context.dtype, chain.rounding)),
                    RowShape::Single | RowShape::List | RowShape::OneHot(_) => Ok(()),
                };
                written.map_err(|error| context.list_error(error, &tile, chain))?;
            }
        }
    }
    write_staged(matrix, &staging[..staged], row, first);
    Ok(())
}

/// Writes the staged tiles side by side.
fn write_staged(matrix: &mut Matrix, staging: &[StagedTile], row: usize, at: usize) {
    let mut columns: [&[u32]; COLUMNS] = [&[]; COLUMNS];
    for (column, staged) in columns.iter_mut().zip(staging) {
        let of_tile = if staged.is_column { None } else { matrix.words(&staged.tile) };
        *column = of_tile.unwrap_or(&staged.column);
    }
    matrix.write_words(&columns[..staging.len()], row, at);
}
