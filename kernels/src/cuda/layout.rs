//! Structs shared by the host and generated programs; `prelude.cu` declares the same ones.

/// Rows per block of threads; each thread computes one row of one group.
pub(crate) const THREADS: usize = 256;

/// Bytes of elements per row of a block's tile: a group has as many columns as fit.
pub(super) const TILE_ROW_BYTES: usize = 128;

/// The offset of absent data.
pub(super) const NOTHING: u64 = u64::MAX;

/// Consecutive columns of one output, which a block writes together: several chains, or one `one_hot`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group {
    pub(super) output: u32,
    pub(super) first_chain: u32,
    pub(super) chains: u32,
    pub(super) at: u32,
    pub(super) width: u32,
    pub(super) columns: u32,
    pub(super) element_bytes: u32,
    pub(super) one_hot: u32,
    pub(super) one: u32,
}

/// A chain: its shape, the position of its column in the run, and the offset of its constants in the fixed part.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeviceChain {
    pub(super) shape: u32,
    pub(super) column: u32,
    pub(super) constants: u64,
}

/// The representation of a column's rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// As stored, in the type that the program was compiled for.
    Stored = 0,
    /// Keys into a table of numbers.
    Keys = 1,
    /// Numbers of the chain's first domain.
    Numbers = 2,
}

/// A column of a run. Offsets are in bytes from the start of the run's columns.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeviceColumn {
    pub(super) values: u64,
    pub(super) valid: u64,
    pub(super) keys: u64,
    pub(super) table_valid: u64,
    pub(super) form: Form,
    pub(super) first_value_bit: u32,
    pub(super) first_valid_bit: u32,
    pub(super) table_rows: u32,
}

/// The parameters of a launch, passed to the kernel by value.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Launch {
    pub(crate) rows: u64,
    pub(crate) first_row: u64,
    pub(crate) groups: u64,
    pub(crate) chains: u64,
    pub(crate) outputs: u64,
    pub(crate) places: u64,
    pub(crate) faults: u64,
    pub(crate) group_count: u32,
    pub(crate) unused: u32,
}

/// Bytes under construction; every piece starts at a multiple of 16, which satisfies the alignment of every type.
#[derive(Debug, Default)]
pub(super) struct Blob(Vec<u8>);

// === impl Group, DeviceChain, DeviceColumn, Launch ===

impl Group {
    pub(super) const BYTES: usize = 40;

    pub(super) fn write(&self, to: &mut Vec<u8>) {
        let reciprocal = (1_u64 << 32).div_ceil(u64::from(self.columns.max(1)));
        for word in [
            self.output,
            self.first_chain,
            self.chains,
            self.at,
            self.width,
            self.columns,
            self.element_bytes,
            self.one_hot,
            self.one,
            // The value for a single column, 2^32, does not fit and is not needed.
            u32::try_from(reciprocal).unwrap_or(0),
        ] {
            to.extend_from_slice(&word.to_le_bytes());
        }
    }
}

impl DeviceChain {
    pub(super) fn write(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.shape.to_le_bytes());
        to.extend_from_slice(&self.column.to_le_bytes());
        to.extend_from_slice(&self.constants.to_le_bytes());
    }
}

impl DeviceColumn {
    pub(super) const BYTES: usize = 48;

    pub(super) fn write(&self, to: &mut Vec<u8>) {
        for word in [self.values, self.valid, self.keys, self.table_valid] {
            to.extend_from_slice(&word.to_le_bytes());
        }
        for word in [self.form as u32, self.first_value_bit, self.first_valid_bit, self.table_rows] {
            to.extend_from_slice(&word.to_le_bytes());
        }
    }
}

impl Launch {
    /// The number of blocks: one per group and tile of rows.
    pub(crate) fn blocks(&self) -> u64 {
        self.rows.div_ceil(THREADS as u64) * u64::from(self.group_count)
    }
}

// === impl Blob ===

impl Blob {
    /// Adds bytes and returns their offset.
    pub(super) fn push(&mut self, bytes: &[u8]) -> u64 {
        self.0.resize(self.0.len().next_multiple_of(16), 0);
        let place = self.0.len();
        self.0.extend_from_slice(bytes);
        place as u64
    }

    /// Adds words and returns their offset.
    pub(super) fn push_words(&mut self, words: impl IntoIterator<Item = u64>) -> u64 {
        let bytes: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
        self.push(&bytes)
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}
