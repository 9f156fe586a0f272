//! A tile: the values of one column for a run of rows, small enough to stay in cache while a chain's steps pass over
//! it.
//!
//! A tile may borrow the column's values until the first step changes them: that step reads the column and writes the
//! tile's own memory, so a column is read once and never copied. Validity is in `tile/validity.rs`. The value under a
//! null is arbitrary.

mod validity;

use pulp::bytemuck::{cast_slice, cast_slice_mut};

use crate::{
    domain::Number,
    vector::{select, simd, tiling::TILE_ROWS},
};

const WORDS: usize = TILE_ROWS / u64::BITS as usize;

/// Values of one kind of number.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Values<'a> {
    Int(&'a [i64]),
    UInt(&'a [u64]),
    F32(&'a [f32]),
    F64(&'a [f64]),
}

/// Mutable values of one kind of number.
#[derive(Debug)]
pub(crate) enum ValuesMut<'a> {
    Int(&'a mut [i64]),
    UInt(&'a mut [u64]),
    F32(&'a mut [f32]),
    F64(&'a mut [f64]),
}

/// The memory of a tile, reused for every column and run of rows. The buffer of each kind of number is allocated on
/// first use.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    ints: Vec<i64>,
    uints: Vec<u64>,
    singles: Vec<f32>,
    doubles: Vec<f64>,
}

/// A tile of columns that live for `'a`.
#[derive(Debug)]
pub(crate) struct Tile<'a> {
    number: Number,
    rows: usize,
    /// The borrowed values, unless they are in the scratch.
    lent: Option<Values<'a>>,
    scratch: Scratch,
    valid: [u64; WORDS],
    has_nulls: bool,
}

impl Values<'_> {
    pub(crate) fn number(&self) -> Number {
        match self {
            Self::Int(_) => Number::Int,
            Self::UInt(_) => Number::UInt,
            Self::F32(_) => Number::F32,
            Self::F64(_) => Number::F64,
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Int(values) => values.len(),
            Self::UInt(values) => values.len(),
            Self::F32(values) => values.len(),
            Self::F64(values) => values.len(),
        }
    }
}

impl<'a> Tile<'a> {
    pub(crate) fn new(scratch: Scratch) -> Self {
        Self { number: Number::Int, rows: 0, lent: None, scratch, valid: [u64::MAX; WORDS], has_nulls: false }
    }

    /// The memory, for the next tile.
    pub(crate) fn into_scratch(self) -> Scratch {
        self.scratch
    }

    /// Starts a tile of `rows` (at most [`TILE_ROWS`]) valid rows of `number`; the caller writes the values.
    pub(crate) fn start(&mut self, number: Number, rows: usize) {
        debug_assert!(rows <= TILE_ROWS, "a tile has at most {TILE_ROWS} rows");
        self.rows = rows;
        self.has_nulls = false;
        self.switch_to(number);
    }

    /// Starts a tile of valid rows that borrows a column's values.
    pub(crate) fn lend(&mut self, values: Values<'a>) {
        debug_assert!(values.len() <= TILE_ROWS, "a tile has at most {TILE_ROWS} rows");
        self.rows = values.len();
        self.number = values.number();
        self.has_nulls = false;
        self.lent = Some(values);
    }

    /// Switches the tile to `number` in its own memory. The caller writes the values; validity is kept.
    fn switch_to(&mut self, number: Number) {
        self.number = number;
        self.lent = None;
        match number {
            Number::Int => grow(&mut self.scratch.ints),
            Number::UInt => grow(&mut self.scratch.uints),
            Number::F32 => grow(&mut self.scratch.singles),
            Number::F64 => grow(&mut self.scratch.doubles),
        }
    }

    pub(crate) fn number(&self) -> Number {
        self.number
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    pub(crate) fn values(&self) -> Values<'_> {
        if let Some(values) = self.lent {
            return values;
        }
        match self.number {
            Number::Int => Values::Int(&self.scratch.ints[..self.rows]),
            Number::UInt => Values::UInt(&self.scratch.uints[..self.rows]),
            Number::F32 => Values::F32(&self.scratch.singles[..self.rows]),
            Number::F64 => Values::F64(&self.scratch.doubles[..self.rows]),
        }
    }

    /// The values in the tile's own memory.
    pub(crate) fn values_mut(&mut self) -> ValuesMut<'_> {
        if let Some(values) = self.lent {
            self.switch_to(values.number());
            match values {
                Values::Int(values) => self.scratch.ints[..values.len()].copy_from_slice(values),
                Values::UInt(values) => self.scratch.uints[..values.len()].copy_from_slice(values),
                Values::F32(values) => self.scratch.singles[..values.len()].copy_from_slice(values),
                Values::F64(values) => self.scratch.doubles[..values.len()].copy_from_slice(values),
            }
        }
        match self.number {
            Number::Int => ValuesMut::Int(&mut self.scratch.ints[..self.rows]),
            Number::UInt => ValuesMut::UInt(&mut self.scratch.uints[..self.rows]),
            Number::F32 => ValuesMut::F32(&mut self.scratch.singles[..self.rows]),
            Number::F64 => ValuesMut::F64(&mut self.scratch.doubles[..self.rows]),
        }
    }

    /// Applies a function to integers, one for each kind; floats are unchanged.
    #[inline(always)]
    pub(crate) fn map_ints(&mut self, int: impl Fn(i64) -> i64, uint: impl Fn(u64) -> u64) {
        let rows = self.rows;
        match self.lent {
            Some(Values::Int(values)) => {
                self.switch_to(Number::Int);
                convert(values, &mut self.scratch.ints, int);
            }
            Some(Values::UInt(values)) => {
                self.switch_to(Number::UInt);
                convert(values, &mut self.scratch.uints, uint);
            }
            Some(Values::F32(_) | Values::F64(_)) => {}
            None => match self.number {
                Number::Int => map(&mut self.scratch.ints[..rows], int),
                Number::UInt => map(&mut self.scratch.uints[..rows], uint),
                Number::F32 | Number::F64 => {}
            },
        }
    }

    /// Applies a function to floats, one for each precision; integers convert to f64 first, rounded to nearest.
    #[inline(always)]
    pub(crate) fn map_floats(&mut self, single: impl Fn(f32) -> f32, double: impl Fn(f64) -> f64) {
        let rows = self.rows;
        match self.lent {
            Some(Values::F32(values)) => {
                self.switch_to(Number::F32);
                convert(values, &mut self.scratch.singles, single);
            }
            Some(Values::F64(values)) => {
                self.switch_to(Number::F64);
                convert(values, &mut self.scratch.doubles, double);
            }
            Some(Values::Int(_) | Values::UInt(_)) => {
                self.make_floats();
                map(&mut self.scratch.doubles[..rows], double);
            }
            None => match self.number {
                Number::F32 => map(&mut self.scratch.singles[..rows], single),
                Number::F64 => map(&mut self.scratch.doubles[..rows], double),
                Number::Int | Number::UInt => {
                    self.make_floats();
                    map(&mut self.scratch.doubles[..rows], double);
                }
            },
        }
    }

    /// Applies two functions to a tile of f32 in one pass, which also fills its nulls if there is a fill; other tiles
    /// are unchanged.
    #[inline(always)]
    pub(crate) fn map_singles(
        &mut self,
        fill: Option<f32>,
        first: impl Fn(f32) -> f32 + Copy,
        second: impl Fn(f32) -> f32 + Copy,
    ) {
        match self.lent {
            Some(Values::F32(values)) => {
                let is_filled = fill.is_some() && self.has_nulls;
                let valid = if is_filled { self.valid } else { [u64::MAX; WORDS] };
                self.switch_to(Number::F32);
                select::map_singles(values, &mut self.scratch.singles, &valid, fill.unwrap_or(0.0), first, second);
                self.has_nulls = self.has_nulls && !is_filled;
            }
            None if self.number == Number::F32 => {
                if let Some(fill) = fill {
                    self.fill(0, 0, fill, 0.0);
                }
                map(&mut self.scratch.singles[..self.rows], |value| second(first(value)));
            }
            _ => {}
        }
    }

    /// Turns each number into an integer by the function of its kind; an f32 is widened, exactly. Validity is kept.
    #[inline(always)]
    pub(crate) fn map_to_ints(
        &mut self,
        int: impl Fn(i64) -> i64,
        uint: impl Fn(u64) -> i64,
        float: impl Fn(f64) -> i64,
    ) {
        let (number, rows) = (self.number, self.rows);
        if let Some(values) = self.lent {
            self.switch_to(Number::Int);
            let target = &mut self.scratch.ints;
            return match values {
                Values::Int(values) => convert(values, target, int),
                Values::UInt(values) => convert(values, target, uint),
                Values::F32(values) => convert(values, target, |value| float(f64::from(value))),
                Values::F64(values) => convert(values, target, float),
            };
        }
        self.switch_to(Number::Int);
        let Scratch { ints, uints, singles, doubles } = &mut self.scratch;
        match number {
            Number::Int => map(&mut ints[..rows], int),
            Number::UInt => convert(&uints[..rows], ints, uint),
            Number::F32 => convert(&singles[..rows], ints, |value| float(f64::from(value))),
            Number::F64 => convert(&doubles[..rows], ints, float),
        }
    }

    /// Calls `write` with the values of a tile of integers.
    pub(crate) fn write_ints(&mut self, write: impl FnOnce(&mut [i64])) {
        if let ValuesMut::Int(values) = self.values_mut() {
            write(values);
        }
    }

    /// Converts integers to f64, rounded to nearest; floats are unchanged.
    pub(crate) fn make_floats(&mut self) {
        let (number, rows, lent) = (self.number, self.rows, self.lent);
        if let Number::F32 | Number::F64 = number {
            return;
        }
        self.switch_to(Number::F64);
        let Scratch { ints, uints, doubles, .. } = &mut self.scratch;
        match (lent, number) {
            (Some(Values::Int(values)), _) => convert(values, doubles, |value| value as f64),
            (Some(Values::UInt(values)), _) => convert(values, doubles, |value| value as f64),
            (_, Number::Int) => convert(&ints[..rows], doubles, |value| value as f64),
            (_, _) => convert(&uints[..rows], doubles, |value| value as f64),
        }
    }

    /// Writes the fill of the tile's kind of number under every null, and makes all rows valid.
    pub(crate) fn fill(&mut self, int: i64, uint: u64, single: f32, double: f64) {
        self.write_under_nulls(int, uint, single, double);
        self.has_nulls = false;
    }

    /// Writes zeros under the nulls, so that results do not depend on the arbitrary values there.
    pub(crate) fn zero_nulls(&mut self) {
        self.write_under_nulls(0, 0, 0.0, 0.0);
    }

    fn write_under_nulls(&mut self, int: i64, uint: u64, single: f32, double: f64) {
        if !self.has_nulls {
            return;
        }
        let (lent, rows, number, valid) = (self.lent, self.rows, self.number, self.valid);
        if let Some(values) = lent {
            self.switch_to(number);
            let Scratch { ints, uints, singles, doubles } = &mut self.scratch;
            return match values {
                Values::Int(values) => {
                    select::from_words64(cast_slice(values), cast_slice_mut(ints), &valid, int as u64);
                }
                Values::UInt(values) => select::from_words64(values, uints, &valid, uint),
                Values::F32(values) => {
                    select::from_words32(cast_slice(values), cast_slice_mut(singles), &valid, single.to_bits());
                }
                Values::F64(values) => {
                    select::from_words64(cast_slice(values), cast_slice_mut(doubles), &valid, double.to_bits());
                }
            };
        }
        let Scratch { ints, uints, singles, doubles } = &mut self.scratch;
        match number {
            Number::Int => select::within_words64(cast_slice_mut(&mut ints[..rows]), &valid, int as u64),
            Number::UInt => select::within_words64(&mut uints[..rows], &valid, uint),
            Number::F32 => select::within_words32(cast_slice_mut(&mut singles[..rows]), &valid, single.to_bits()),
            Number::F64 => select::within_words64(cast_slice_mut(&mut doubles[..rows]), &valid, double.to_bits()),
        }
    }
}

fn grow<T: Clone + Default>(values: &mut Vec<T>) {
    if values.is_empty() {
        values.resize(TILE_ROWS, T::default());
    }
}

/// Applies a function to every value in place.
#[inline(always)]
pub(crate) fn map<T: Copy>(values: &mut [T], change: impl Fn(T) -> T) {
    simd::run(
        #[inline(always)]
        move || {
            for value in values {
                *value = change(*value);
            }
        },
    );
}

/// Writes every source value to the target, converted.
#[inline(always)]
pub(crate) fn convert<S: Copy, T>(source: &[S], target: &mut [T], cast: impl Fn(S) -> T) {
    simd::run(
        #[inline(always)]
        move || {
            for (target, value) in target.iter_mut().zip(source) {
                *target = cast(*value);
            }
        },
    );
}
