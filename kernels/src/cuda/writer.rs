//! The body of a device function, which a chain's ops write one after another: each assigns the value to a new name.
//!
//! Constants are arguments of the function rather than part of its text, so that chains of the same ops share it.

use std::sync::Arc;

use super::tables::Tables;
use crate::{domain::Number, ops::vocab_index::VocabIndex};

/// A function being written.
#[derive(Debug)]
pub(crate) struct Writer<'a> {
    body: String,
    constants: Vec<u64>,
    number: Number,
    names: usize,
    tables: &'a mut Tables,
    is_left_to_cpu: bool,
}

/// The C type of a kind of number.
pub(super) fn c_type(number: Number) -> &'static str {
    match number {
        Number::Int => "i64",
        Number::UInt => "u64",
        Number::F32 => "f32",
        Number::F64 => "f64",
    }
}

impl<'a> Writer<'a> {
    /// Starts a function of one number.
    pub(super) fn new(number: Number, tables: &'a mut Tables) -> Self {
        Self { body: String::new(), constants: Vec::new(), number, names: 0, tables, is_left_to_cpu: false }
    }

    /// The function's body and its constants; `None` if the device cannot run an op.
    pub(super) fn finish(self) -> Option<(String, Vec<u64>)> {
        (!self.is_left_to_cpu).then_some((self.body, self.constants))
    }

    pub(super) fn line(&mut self, line: &str) {
        self.body.push_str("    ");
        self.body.push_str(line);
        self.body.push('\n');
    }

    /// The value's kind of number.
    pub(crate) fn number(&self) -> Number {
        self.number
    }

    /// The value's C type.
    pub(crate) fn c_type(&self) -> &'static str {
        c_type(self.number)
    }

    /// The current name of the value.
    pub(crate) fn value(&self) -> String {
        format!("x{}", self.names)
    }

    /// Assigns an expression of the value's kind of number to a new name for the value.
    pub(crate) fn assign(&mut self, expression: &str) {
        self.names += 1;
        self.line(&format!("{} {} = {expression};", self.c_type(), self.value()));
    }

    /// Assigns an i64.
    pub(crate) fn assign_int(&mut self, expression: &str) {
        self.number = Number::Int;
        self.assign(expression);
    }

    /// Applies a function of one floating-point number.
    pub(crate) fn call(&mut self, function: &str) {
        self.make_floats();
        self.assign(&format!("{function}({})", self.value()));
    }

    /// Converts integers to f64.
    pub(crate) fn make_floats(&mut self) {
        if !self.number.is_float() {
            self.number = Number::F64;
            self.assign(&format!("(f64){}", self.value()));
        }
    }

    /// Makes a null value valid.
    pub(crate) fn set_valid(&mut self) {
        self.line("valid = true;");
    }

    /// Leaves the chain to the CPU.
    pub(crate) fn leave_to_cpu(&mut self) {
        self.is_left_to_cpu = true;
    }

    /// Adds a constant of 64 bits and returns its expression.
    pub(crate) fn bits(&mut self, bits: u64) -> String {
        self.constants.push(bits);
        format!("constants[{}]", self.constants.len() - 1)
    }

    pub(crate) fn int(&mut self, value: i64) -> String {
        format!("(i64){}", self.bits(value as u64))
    }

    pub(crate) fn double(&mut self, value: f64) -> String {
        format!("as_f64({})", self.bits(value.to_bits()))
    }

    /// A constant in the value's floating-point type, rounded to f32 as on the CPU.
    pub(crate) fn float(&mut self, value: f64) -> String {
        if self.number == Number::F32 {
            format!("as_f32({})", self.bits(u64::from((value as f32).to_bits())))
        } else {
            self.double(value)
        }
    }

    /// Adds consecutive constants and returns the expression of their address.
    pub(crate) fn group(&mut self, bits: &[u64]) -> String {
        let first = self.constants.len();
        self.constants.extend_from_slice(bits);
        format!("constants + {first}")
    }

    /// Adds a table of numbers, by their bits, and returns its offset.
    pub(crate) fn numbers(&mut self, bits: impl Iterator<Item = u64>) -> u64 {
        self.tables.numbers(bits)
    }

    /// Adds a vocabulary's table, and its constants as a group.
    pub(crate) fn vocabulary(&mut self, index: &Arc<VocabIndex>) -> String {
        let table = self.tables.vocabulary(index);
        self.group(&table)
    }
}
