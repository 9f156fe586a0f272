//! A program → its CUDA C source and the bytes that stay the same from run to run.

use std::collections::HashMap;
use std::fmt::Write as _;

use super::layout::{DeviceChain, Group, TILE_ROW_BYTES};
use super::shape::{ChainFunction, shape};
use super::tables::Tables;
use crate::compile::chain::{CompiledChain, Head, RowShape};
use crate::compile::outputs::{CompiledOutput, PlacedChain};
use crate::compile::program::Program;
use crate::domain::Domain;
use crate::spec::DType;

/// What every program begins with, the functions that are more than an instruction, and the kernel itself.
const PRELUDE: &str = include_str!("prelude.cu");
const MATH: &str = include_str!("math.cu");
const ENTRY: &str = include_str!("entry.cu");

/// The kernel's name in the source.
pub(super) const KERNEL: &str = "forebay_program";

/// A program made ready for a device.
#[derive(Debug)]
pub(crate) struct Generated {
    /// The whole source: one kernel, which reads nothing but its arguments.
    pub(crate) source: String,
    /// Tables, constants, groups and chains.
    pub(crate) fixed: Vec<u8>,
    /// Where in `fixed` the groups are, and how many.
    pub(crate) groups: u64,
    pub(crate) group_count: u32,
    /// Where in `fixed` the chains are, and how many.
    pub(crate) chains: u64,
    pub(crate) chain_count: usize,
    /// The columns that each run brings.
    pub(crate) feeds: Vec<ColumnFeed>,
    /// The outputs that the device computes, in the program's order.
    pub(crate) outputs: Vec<DeviceOutput>,
}

/// A column that the device reads.
#[derive(Debug)]
pub(crate) struct ColumnFeed {
    pub(crate) input: usize,
    /// The chain without its steps: how the CPU makes numbers of rows that the device does not read as they are stored.
    pub(crate) front: CompiledChain,
}

/// An output on the device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeviceOutput {
    /// Its place in the program.
    pub(crate) output: usize,
    pub(crate) row_bytes: usize,
    /// Its chains among all of the device's.
    pub(crate) first_chain: usize,
    pub(crate) chains: usize,
}

/// What is gathered on the way through the outputs.
#[derive(Debug, Default)]
struct Generator {
    tables: Tables,
    /// Bodies of functions, each once, by their text.
    shapes: HashMap<String, u32>,
    bodies: Vec<String>,
    groups: Vec<Group>,
    chains: Vec<DeviceChain>,
    feeds: Vec<ColumnFeed>,
    /// The feeds of inputs that are numbers, which chains share.
    number_feeds: HashMap<usize, u32>,
    outputs: Vec<DeviceOutput>,
}

/// The program's outputs that run on a device. An output with a chain that does not stays on the CPU whole.
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

    /// The place of a chain's column among a run's columns. Numbers are brought once, however many chains read them.
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

/// Prelude, a function for each shape, the choice among them, kernel.
fn source(bodies: &[String]) -> String {
    let mut text = format!("{PRELUDE}\n{MATH}\n// === Chains, one function a shape ===\n");
    for (number, body) in bodies.iter().enumerate() {
        let _ = write!(
            text,
            "\n__device__ __forceinline__ u64 shape_{number}(const Run& run, const Chain& chain, u64 row, u32& fault) {{\n    \
             const u64* constants = at<u64>(run.fixed, chain.constants);\n    (void)constants;\n{body}}}\n"
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

/// The bits of 1.
fn one(dtype: DType) -> u32 {
    match dtype {
        DType::Float32 => 1.0_f32.to_bits(),
        DType::Float16 => u32::from(half::f16::ONE.to_bits()),
        DType::BFloat16 => u32::from(half::bf16::ONE.to_bits()),
        DType::Int32 | DType::Int64 | DType::UInt8 | DType::AsStored => 1,
    }
}
