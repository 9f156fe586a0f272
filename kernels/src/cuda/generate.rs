//! A program → its CUDA C source, and the bytes that are the same for all runs.

use std::{collections::HashMap, fmt::Write as _};

use super::{
    layout::{DeviceChain, Group, TILE_ROW_BYTES},
    shape::{ChainFunction, shape},
    tables::Tables,
};
use crate::{
    compile::{
        chain::{CompiledChain, Head, RowShape},
        outputs::{CompiledOutput, PlacedChain},
        program::Program,
    },
    domain::Domain,
    spec::DType,
};

/// The beginning of every program, the functions that are more than an instruction, and the kernel.
const PRELUDE: &str = include_str!("prelude.cu");
const MATH: &str = include_str!("math.cu");
const ENTRY: &str = include_str!("entry.cu");

/// The kernel's name in the source.
pub(super) const KERNEL: &str = "forebay_program";

/// A program prepared for a device.
#[derive(Debug)]
pub(crate) struct Generated {
    /// The complete source: one kernel, which reads only its arguments.
    pub(crate) source: String,
    /// Tables, constants, groups and chains.
    pub(crate) fixed: Vec<u8>,
    /// The offset of the groups in `fixed`, and their number.
    pub(crate) groups: u64,
    pub(crate) group_count: u32,
    /// The offset of the chains in `fixed`, and their number.
    pub(crate) chains: u64,
    pub(crate) chain_count: usize,
    /// The columns that each run copies to the device.
    pub(crate) feeds: Vec<ColumnFeed>,
    /// The outputs that the device computes, in the program's order.
    pub(crate) outputs: Vec<DeviceOutput>,
}

/// A column that the device reads.
#[derive(Debug)]
pub(crate) struct ColumnFeed {
    pub(crate) input: usize,
    /// The chain without its steps: the CPU uses it to convert rows of types that the device does not read.
    pub(crate) front: CompiledChain,
}

/// An output on the device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeviceOutput {
    /// Its position in the program.
    pub(crate) output: usize,
    pub(crate) row_bytes: usize,
    /// The position of its first chain among all chains on the device, and their number.
    pub(crate) first_chain: usize,
    pub(crate) chains: usize,
}

/// State of the generation.
#[derive(Debug, Default)]
struct Generator {
    tables: Tables,
    /// The number of each function body, so that equal bodies are generated once.
    shapes: HashMap<String, u32>,
    bodies: Vec<String>,
    groups: Vec<Group>,
    chains: Vec<DeviceChain>,
    feeds: Vec<ColumnFeed>,
    /// The feeds of numeric inputs, which chains share.
    number_feeds: HashMap<usize, u32>,
    outputs: Vec<DeviceOutput>,
}

/// Generates the outputs of a program that can run on a device. An output with any chain that cannot stays on the CPU.
pub(crate) fn generate(program: &Program) -> Generated {
    let mut generator = Generator::default();
    for (place, output) in program.outputs.iter().enumerate() {
        if let CompiledOutput::Matrix { dtype, width, chains } = output {
            generator.output(program, place, *dtype, *width, chains);
        }
    }
    generator.finish()
}

impl Generator {
    fn output(&mut self, program: &Program, place: usize, dtype: DType, width: usize, chains: &[PlacedChain]) {
        let Some(element_bytes) = dtype.bytes() else { return };
        let shaped = chains
            .iter()
            .map(|placed| shape(&placed.chain, &program.input_types[placed.chain.input], dtype, &mut self.tables));
        let Some(shapes) = shaped.collect::<Option<Vec<_>>>() else { return };
        let output = self.outputs.len() as u32;
        self.outputs.push(DeviceOutput {
            output: place,
            row_bytes: width * element_bytes,
            first_chain: self.chains.len(),
            chains: chains.len(),
        });
        let columns_max = (TILE_ROW_BYTES / element_bytes) as u32;
        let mut open: Option<Group> = None;
        for (PlacedChain { at, chain }, shape) in chains.iter().zip(shapes) {
            let first_chain = self.chains.len() as u32;
            let feed = self.feed(chain, &shape);
            self.chain(feed, shape);
            let one_hot = if let RowShape::OneHot(size) = chain.shape { size } else { 0 };
            let alone = Group {
                output,
                first_chain,
                chains: 1,
                at: *at as u32,
                width: width as u32,
                columns: one_hot.max(1) as u32,
                element_bytes: element_bytes as u32,
                one_hot: one_hot as u32,
                one: one(dtype),
            };
            open = Some(match open.take() {
                Some(group) if group.one_hot == 0 && alone.one_hot == 0 && group.columns < columns_max => {
                    Group { chains: group.chains + 1, columns: group.columns + 1, ..group }
                }
                full => {
                    self.groups.extend(full);
                    alone
                }
            });
        }
        self.groups.extend(open);
    }

    /// The position of a chain's column among a run's columns. Numbers are copied once, even if several chains read
    /// them.
    fn feed(&mut self, chain: &CompiledChain, shape: &ChainFunction) -> u32 {
        let next = self.feeds.len() as u32;
        if matches!(chain.head, Head::Numbers) {
            let known = *self.number_feeds.entry(chain.input).or_insert(next);
            if known != next {
                return known;
            }
        }
        let mut front = chain.clone();
        front.steps.clear();
        front.domain = Domain::Number(shape.number);
        self.feeds.push(ColumnFeed { input: chain.input, front });
        next
    }

    fn chain(&mut self, column: u32, shape: ChainFunction) {
        let next = self.bodies.len() as u32;
        let number = *self.shapes.entry(shape.body).or_insert_with_key(|body| {
            self.bodies.push(body.clone());
            next
        });
        let constants = self.tables.blob.push_words(shape.constants);
        self.chains.push(DeviceChain { shape: number, column, constants });
    }

    fn finish(self) -> Generated {
        let source = source(&self.bodies);
        let mut blob = self.tables.blob;
        let mut bytes = Vec::with_capacity(self.groups.len() * Group::BYTES);
        self.groups.iter().for_each(|group| group.write(&mut bytes));
        let groups = blob.push(&bytes);
        bytes.clear();
        self.chains.iter().for_each(|chain| chain.write(&mut bytes));
        let chains = blob.push(&bytes);
        Generated {
            source,
            fixed: blob.into_bytes(),
            groups,
            group_count: self.groups.len() as u32,
            chains,
            chain_count: self.chains.len(),
            feeds: self.feeds,
            outputs: self.outputs,
        }
    }
}

/// The prelude, a function per shape, the dispatch among them, and the kernel.
fn source(bodies: &[String]) -> String {
    let mut text = format!("{PRELUDE}\n{MATH}\n// === Chains, one function a shape ===\n");
    for (number, body) in bodies.iter().enumerate() {
        let _ = write!(
            text,
            "\n__device__ __forceinline__ u64 shape_{number}(const Run& run, const Chain& chain, u64 row, \
             u32& fault) {{\n    const u64* constants = at<u64>(run.fixed, chain.constants);\n    \
             (void)constants;\n{body}}}\n"
        );
    }
    text.push_str("\n__device__ __forceinline__ u64 cell(const Run& run, const Chain& chain, u64 row, u32& fault) {\n");
    text.push_str("    switch (chain.shape) {\n");
    for number in 0..bodies.len() {
        let _ = writeln!(text, "        case {number}: return shape_{number}(run, chain, row, fault);");
    }
    text.push_str("        default: return 0;\n    }\n}\n\n");
    text.push_str(ENTRY);
    text
}

/// The bits of 1 in a dtype.
fn one(dtype: DType) -> u32 {
    match dtype {
        DType::Float32 => 1.0_f32.to_bits(),
        DType::Float16 => u32::from(half::f16::ONE.to_bits()),
        DType::BFloat16 => u32::from(half::bf16::ONE.to_bits()),
        // The device computes no one_hot of FLOAT64.
        DType::Float64 | DType::Int32 | DType::Int64 | DType::UInt8 | DType::AsStored => 1,
    }
}
