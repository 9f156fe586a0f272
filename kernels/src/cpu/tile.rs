//! A tile: the values of one column for a run of rows, small enough to stay in cache while a chain's ops pass over it.
//!
//! Validity is a bit per row, in words of 64. A tile whose rows are all valid says so once, and no op looks at the bits. The
//! value under a null is anything.

use arrow::buffer::NullBuffer;
use arrow::util::bit_chunk_iterator::BitChunks;

use crate::domain::Number;

/// Rows of a tile: 1,024 × 8 bytes are 8 KiB, a quarter of the smallest L1 data cache about, and 16 words of validity.
pub(crate) const TILE_ROWS: usize = 1024;
const WORDS: usize = TILE_ROWS / u64::BITS as usize;

/// The values of a tile.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Values<'a> {
    Int(&'a [i64]),
    UInt(&'a [u64]),
    F32(&'a [f32]),
    F64(&'a [f64]),
}

/// The values of a tile, to be changed in place.
#[derive(Debug)]
pub(crate) enum ValuesMut<'a> {
    Int(&'a mut [i64]),
    UInt(&'a mut [u64]),
    F32(&'a mut [f32]),
    F64(&'a mut [f64]),
}

/// One tile, used again for every column and run of rows. A buffer is allocated when its kind of number first comes by.
#[derive(Debug)]
pub(crate) struct Tile {
    number: Number,
    rows: usize,
    ints: Vec<i64>,
    uints: Vec<u64>,
    singles: Vec<f32>,
    doubles: Vec<f64>,
    valid: [u64; WORDS],
    has_nulls: bool,
}

impl Tile {
    pub(crate) fn new() -> Self {
        Self {
            number: Number::Int,
            rows: 0,
            ints: Vec::new(),
            uints: Vec::new(),
            singles: Vec::new(),
            doubles: Vec::new(),
            valid: [u64::MAX; WORDS],
            has_nulls: false,
        }
    }

    /// Makes this a tile of `rows` (at most [`TILE_ROWS`]) valid rows of `number`, for the caller to write.
    pub(crate) fn start(&mut self, number: Number, rows: usize) {
        debug_assert!(rows <= TILE_ROWS, "a tile has at most {TILE_ROWS} rows");
        self.rows = rows;
        self.has_nulls = false;
        self.turn(number);
    }

    /// From here on the tile holds `number`; its values are written by the caller, its validity stays.
    fn turn(&mut self, number: Number) {
        fn grow<T: Clone + Default>(values: &mut Vec<T>) {
            if values.is_empty() {
                values.resize(TILE_ROWS, T::default());
            }
        }
        self.number = number;
        match number {
            Number::Int => grow(&mut self.ints),
            Number::UInt => grow(&mut self.uints),
            Number::F32 => grow(&mut self.singles),
            Number::F64 => grow(&mut self.doubles),
        }
    }

    pub(crate) fn number(&self) -> Number {
        self.number
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    pub(crate) fn values(&self) -> Values<'_> {
        match self.number {
            Number::Int => Values::Int(&self.ints[..self.rows]),
            Number::UInt => Values::UInt(&self.uints[..self.rows]),
            Number::F32 => Values::F32(&self.singles[..self.rows]),
            Number::F64 => Values::F64(&self.doubles[..self.rows]),
        }
    }

    pub(crate) fn values_mut(&mut self) -> ValuesMut<'_> {
        match self.number {
            Number::Int => ValuesMut::Int(&mut self.ints[..self.rows]),
            Number::UInt => ValuesMut::UInt(&mut self.uints[..self.rows]),
            Number::F32 => ValuesMut::F32(&mut self.singles[..self.rows]),
            Number::F64 => ValuesMut::F64(&mut self.doubles[..self.rows]),
        }
    }

    /// Turns each number into an integer by the function of its kind; an f32 is widened, exactly. Validity stays.
    pub(crate) fn map_to_ints(
        &mut self,
        int: impl Fn(i64) -> i64,
        uint: impl Fn(u64) -> i64,
        float: impl Fn(f64) -> i64,
    ) {
        let (number, rows) = (self.number, self.rows);
        self.turn(Number::Int);
        match number {
            Number::Int => map(&mut self.ints[..rows], int),
            Number::UInt => convert(&self.uints[..rows], &mut self.ints, uint),
            Number::F32 => convert(&self.singles[..rows], &mut self.ints, |value| float(f64::from(value))),
            Number::F64 => convert(&self.doubles[..rows], &mut self.ints, float),
        }
    }

    /// Lets `write` write a tile that was started as integers.
    pub(crate) fn write_ints(&mut self, write: impl FnOnce(&mut [i64])) {
        if let ValuesMut::Int(values) = self.values_mut() {
            write(values);
        }
    }

    /// Takes integers to f64 (each rounded to nearest); floats stay as they are.
    pub(crate) fn make_floats(&mut self) {
        let rows = self.rows;
        match self.number {
            Number::Int => {
                self.turn(Number::F64);
                convert(&self.ints[..rows], &mut self.doubles, |value| value as f64);
            }
            Number::UInt => {
                self.turn(Number::F64);
                convert(&self.uints[..rows], &mut self.doubles, |value| value as f64);
            }
            Number::F32 | Number::F64 => {}
        }
    }

    /// Takes the validity of the rows from `start` on of an array's nulls. Free when the array has none.
    pub(crate) fn set_nulls(&mut self, nulls: Option<&NullBuffer>, start: usize) {
        self.has_nulls = false;
        let Some(nulls) = nulls.filter(|nulls| nulls.null_count() > 0) else { return };
        let bits = nulls.inner();
        let chunks = BitChunks::new(bits.values(), bits.offset() + start, self.rows);
        let mut count = 0;
        for (word, bits) in self.valid.iter_mut().zip(chunks.iter_padded()) {
            *word = bits;
            count += bits.count_ones() as usize;
        }
        self.has_nulls = count < self.rows;
    }

    /// Makes every row null.
    pub(crate) fn set_all_null(&mut self) {
        self.valid = [0; WORDS];
        self.has_nulls = self.rows > 0;
    }

    /// Makes the rows null for which `is_null` says so; the others stay what they are.
    pub(crate) fn clear_where(&mut self, is_null: impl Fn(usize) -> bool) {
        if !self.has_nulls {
            self.valid = [u64::MAX; WORDS];
        }
        for row in (0..self.rows).filter(|row| is_null(*row)) {
            self.valid[row / 64] &= !(1 << (row % 64));
            self.has_nulls = true;
        }
    }

    /// The validity words, one bit a row; none when every row is valid.
    pub(crate) fn valid_words(&self) -> Option<&[u64]> {
        self.has_nulls.then(|| &self.valid[..self.rows.div_ceil(64)])
    }

    pub(crate) fn is_valid(&self, row: usize) -> bool {
        !self.has_nulls || (self.valid[row / 64] >> (row % 64)) & 1 == 1
    }

    /// The first null row.
    pub(crate) fn first_null(&self) -> Option<usize> {
        if !self.has_nulls {
            return None;
        }
        (0..self.rows).find(|row| !self.is_valid(*row))
    }

    /// Writes the fill of the tile's kind of number under every null and makes all rows valid.
    pub(crate) fn fill(&mut self, int: i64, uint: u64, single: f32, double: f64) {
        self.write_under_nulls(int, uint, single, double);
        self.has_nulls = false;
    }

    /// Writes zeros under the nulls, so that what leaves does not depend on what lay there.
    pub(crate) fn zero_nulls(&mut self) {
        self.write_under_nulls(0, 0, 0.0, 0.0);
    }

    fn write_under_nulls(&mut self, int: i64, uint: u64, single: f32, double: f64) {
        if !self.has_nulls {
            return;
        }
        let valid = self.valid;
        match self.values_mut() {
            ValuesMut::Int(values) => write_under_nulls(values, &valid, int),
            ValuesMut::UInt(values) => write_under_nulls(values, &valid, uint),
            ValuesMut::F32(values) => write_under_nulls(values, &valid, single),
            ValuesMut::F64(values) => write_under_nulls(values, &valid, double),
        }
    }
}

/// Changes every value in place.
pub(crate) fn map<T: Copy>(values: &mut [T], change: impl Fn(T) -> T) {
    for value in values {
        *value = change(*value);
    }
}

/// Writes every source value, cast, to the target.
pub(crate) fn convert<S: Copy, T>(source: &[S], target: &mut [T], cast: impl Fn(S) -> T) {
    for (target, value) in target.iter_mut().zip(source) {
        *target = cast(*value);
    }
}

/// Whole words of valid rows are skipped; within a word the choice is a select, which vectorizes.
fn write_under_nulls<T: Copy>(values: &mut [T], valid: &[u64], fill: T) {
    for (chunk, &word) in values.chunks_mut(64).zip(valid) {
        if word == u64::MAX {
            continue;
        }
        for (bit, value) in chunk.iter_mut().enumerate() {
            *value = if (word >> bit) & 1 == 1 { *value } else { fill };
        }
    }
}
