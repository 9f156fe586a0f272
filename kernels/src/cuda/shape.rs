//! One chain → the body of a device function.
//!
//! Chains of the same shape (stored type, ops, dtype) share a function and differ in its constants, so a program that
//! standardizes a thousand columns compiles as quickly as one that standardizes two.

use arrow::datatypes::{DataType, TimeUnit};

use super::tables::Tables;
use crate::{
    compile::chain::{CompiledChain, Head, RowShape},
    domain::{Domain, Number},
    ops::{clip::Clip, fill_null::FillNull, step::Step},
    spec::DType,
    vector::cast::Rounding,
};

/// A chain as a device function and its constants.
#[derive(Debug)]
pub(super) struct ChainFunction {
    /// The function's body.
    pub(super) body: String,
    /// The values of its `constants`.
    pub(super) constants: Vec<u64>,
    /// The kind of number that the CPU converts rows to if the device does not read them as stored.
    pub(super) number: Number,
}

/// A function being written: each op assigns the value to a new name.
#[derive(Debug)]
struct Writer<'a> {
    body: String,
    constants: Vec<u64>,
    number: Number,
    names: usize,
    tables: &'a mut Tables,
}

/// The function of a chain; `None` if the device cannot run one of its ops.
pub(super) fn shape(
    chain: &CompiledChain,
    stored: &DataType,
    dtype: DType,
    tables: &mut Tables,
) -> Option<ChainFunction> {
    let number = match (&chain.head, Domain::of(stored)?) {
        (Head::Numbers, Domain::Number(number)) => number,
        (Head::Encoded(_), _) => Number::Int,
        _ => return None,
    };
    let read = reader(&chain.head, stored).unwrap_or(c_type(number));
    let mut writer = Writer { body: String::new(), constants: Vec::new(), number, names: 0, tables };
    writer.line("bool valid;");
    writer.line(&format!("{0} x0 = load<{read}, {0}>(run, chain, row, valid);", c_type(number)));
    for step in &chain.steps {
        writer.step(step)?;
    }
    writer.line("if (!valid) {");
    writer.line("    fault = IS_NULL;");
    writer.line("    return 0;");
    writer.line("}");
    match chain.shape {
        // The device's 1 has four bytes.
        RowShape::OneHot(_) if dtype == DType::Float64 => return None,
        RowShape::OneHot(size) => {
            let size = writer.bits(size as u64);
            writer.line(&format!("return one_hot({}, {size}, fault);", writer.value()));
        }
        RowShape::Single => {
            let value = writer.output_value(chain.rounding, dtype);
            writer.line(&format!("return {}({value}, fault);", cast(dtype)?));
        }
        RowShape::List | RowShape::Columns(_) | RowShape::OneHots { .. } | RowShape::MultiHot(_) => return None,
    }
    Some(ChainFunction { body: writer.body, constants: writer.constants, number })
}

/// The C type of a stored type that the device reads; `None` if the CPU converts it to numbers first.
pub(super) fn reader(head: &Head, stored: &DataType) -> Option<&'static str> {
    use DataType as T;
    if !matches!(head, Head::Numbers) {
        return None;
    }
    Some(match stored {
        T::Boolean => "Bit",
        T::Int8 => "i8",
        T::Int16 => "i16",
        T::Int32 | T::Date32 | T::Time32(TimeUnit::Second | TimeUnit::Millisecond) => "i32",
        T::Int64 | T::Date64 | T::Time64(_) | T::Timestamp(..) | T::Duration(_) => "i64",
        T::UInt8 => "u8",
        T::UInt16 => "u16",
        T::UInt32 => "u32",
        T::UInt64 => "u64",
        T::Float16 => "Half",
        T::Float32 => "f32",
        T::Float64 => "f64",
        _ => return None,
    })
}

fn c_type(number: Number) -> &'static str {
    match number {
        Number::Int => "i64",
        Number::UInt => "u64",
        Number::F32 => "f32",
        Number::F64 => "f64",
    }
}

/// The function that converts a number to an element.
fn cast(dtype: DType) -> Option<&'static str> {
    Some(match dtype {
        DType::Float32 => "to_float32",
        DType::Float64 => "to_float64",
        DType::Float16 => "to_float16",
        DType::BFloat16 => "to_bfloat16",
        DType::Int32 => "to_int32",
        DType::Int64 => "to_int64",
        DType::UInt8 => "to_uint8",
        DType::AsStored => return None,
    })
}

impl Writer<'_> {
    fn line(&mut self, line: &str) {
        self.body.push_str("    ");
        self.body.push_str(line);
        self.body.push('\n');
    }

    /// The current name of the value.
    fn value(&self) -> String {
        format!("x{}", self.names)
    }

    /// The value for the output: whole numbers of a chain that keeps integers are checked.
    fn output_value(&self, rounding: Rounding, dtype: DType) -> String {
        let value = self.value();
        let limit = match dtype {
            DType::Float32 | DType::BFloat16 => "FLOAT32_DIGITS, ANY_MAGNITUDE",
            DType::Float16 => "FLOAT32_DIGITS, FLOAT16_MAX",
            _ => "FLOAT64_DIGITS, ANY_MAGNITUDE",
        };
        match (rounding, self.number) {
            (Rounding::Fractions, Number::F64) => format!("unless_whole({value}, {limit}, fault)"),
            _ => value,
        }
    }

    /// Assigns the expression to a new name for the value.
    fn assign(&mut self, number: Number, expression: &str) {
        self.names += 1;
        self.number = number;
        self.line(&format!("{} {} = {expression};", c_type(number), self.value()));
    }

    /// Adds a constant of 64 bits and returns its expression.
    fn bits(&mut self, bits: u64) -> String {
        self.constants.push(bits);
        format!("constants[{}]", self.constants.len() - 1)
    }

    fn int(&mut self, value: i64) -> String {
        format!("(i64){}", self.bits(value as u64))
    }

    fn double(&mut self, value: f64) -> String {
        format!("as_f64({})", self.bits(value.to_bits()))
    }

    /// A constant in the value's floating-point type, rounded to f32 as on the CPU.
    fn float(&mut self, value: f64) -> String {
        if self.number == Number::F32 {
            format!("as_f32({})", self.bits(u64::from((value as f32).to_bits())))
        } else {
            self.double(value)
        }
    }

    /// Converts integers to f64.
    fn make_floats(&mut self) {
        if self.number != self.number.floating() {
            let value = self.value();
            self.assign(self.number.floating(), &format!("(f64){value}"));
        }
    }

    fn step(&mut self, step: &Step) -> Option<()> {
        match step {
            Step::FillNull(fill) => self.fill_null(*fill),
            Step::Clip(clip) => self.clip(*clip),
            Step::Log1p => self.call("ln_1p"),
            Step::Scale(step) => {
                self.shift_and_divide(step.shift, step.divisor);
                if !step.is_unbounded() {
                    self.clip(Clip::Float { min: step.min, max: step.max });
                }
            }
            Step::Sqrt => self.call("square_root"),
            Step::Abs => {
                let value = self.value();
                self.assign(self.number, &format!("absolute({value})"));
            }
            Step::Logit(step) => self.logit(step.eps),
            Step::BoxCox(step) => {
                self.make_floats();
                let (lambda, value) = (self.double(step.lambda), self.value());
                self.assign(self.number, &format!("box_cox({value}, {lambda})"));
            }
            Step::Bucketize(step) => {
                let (place, len) = match self.number {
                    Number::Int => (self.tables.numbers(step.ints.iter().map(|bound| *bound as u64)), step.ints.len()),
                    Number::UInt => (self.tables.numbers(step.uints.iter().copied()), step.uints.len()),
                    Number::F32 | Number::F64 => {
                        (self.tables.numbers(step.floats.iter().map(|bound| bound.to_bits())), step.floats.len())
                    }
                };
                let first = self.group(&[place, len as u64]);
                let value = self.value();
                self.assign(Number::Int, &format!("bucketize(run, {first}, {value})"));
            }
            Step::Vocab(step) => {
                let table = self.tables.vocabulary(&step.index);
                let first = self.group(&table);
                self.group(&[step.index.len() as u64, step.oov_buckets]);
                let value = self.value();
                self.assign(Number::Int, &format!("valid ? vocab(run, {first}, value_bits({value})) : 0"));
                self.line("valid = true;");
            }
            Step::HashBucket(step) => {
                let first = self.group(&[step.cardinality(), step.seed]);
                let value = self.value();
                self.assign(Number::Int, &format!("hash_bucket(value_bits({value}), {first})"));
            }
            Step::SigridHash(step) => {
                let (salt, max_value) = (self.bits(step.salt as u64), self.int(step.max_value));
                let value = self.value();
                self.assign(Number::Int, &format!("sigrid_hash(value_bits({value}), {salt}, {max_value})"));
            }
            Step::MapId(step) => {
                let table = self.tables.vocabulary(&step.index);
                let first = self.group(&table);
                let values = self.tables.numbers(step.values.iter().map(|value| *value as u64));
                let (default, has_default) = (step.default.unwrap_or_default() as u64, step.default.is_some());
                self.group(&[values, default, u64::from(has_default)]);
                let value = self.value();
                self.assign(Number::Int, &format!("map_id(run, {first}, value_bits({value}), valid)"));
            }
            Step::PositiveMod(step) => {
                let (modulus, value) = (self.int(step.modulus), self.value());
                self.assign(self.number, &format!("positive_mod({value}, {modulus})"));
            }
            Step::ToFloat => self.make_floats(),
            Step::Component => return None,
        }
        Some(())
    }

    /// Adds consecutive constants and returns the expression of their address.
    fn group(&mut self, bits: &[u64]) -> String {
        let first = self.constants.len();
        self.constants.extend_from_slice(bits);
        format!("constants + {first}")
    }

    /// Applies a function of one floating-point number.
    fn call(&mut self, function: &str) {
        self.make_floats();
        let value = self.value();
        self.assign(self.number, &format!("{function}({value})"));
    }

    fn logit(&mut self, eps: Option<f64>) {
        self.make_floats();
        let (low, high) = match (eps, self.number) {
            // 1 − eps in the column's precision.
            (Some(eps), Number::F32) => (eps, f64::from(1.0 - eps as f32)),
            (Some(eps), _) => (eps, 1.0 - eps),
            (None, _) => (f64::NEG_INFINITY, f64::INFINITY),
        };
        let (low, high, value) = (self.float(low), self.float(high), self.value());
        self.assign(self.number, &format!("logit({value}, {low}, {high})"));
    }

    fn fill_null(&mut self, fill: FillNull) {
        let with = match fill {
            FillNull::Int(value) => self.int(value),
            FillNull::UInt(value) => self.bits(value),
            FillNull::Float(value) => {
                self.make_floats();
                self.float(value)
            }
        };
        let value = self.value();
        self.assign(self.number, &format!("valid ? {value} : {with}"));
        self.line("valid = true;");
    }

    fn clip(&mut self, clip: Clip) {
        let (min, max) = match clip {
            Clip::Int { min, max } => (self.int(min), self.int(max)),
            Clip::UInt { min, max } => (self.bits(min), self.bits(max)),
            Clip::Float { min, max } => {
                self.make_floats();
                (self.float(min), self.float(max))
            }
        };
        let value = self.value();
        self.assign(self.number, &format!("clip<{}>({value}, {min}, {max})", c_type(self.number)));
    }

    fn shift_and_divide(&mut self, shift: f64, divisor: f64) {
        self.make_floats();
        let (shift, divisor, value) = (self.double(shift), self.double(divisor), self.value());
        self.assign(self.number, &format!("shift_and_divide({value}, {shift}, {divisor})"));
    }
}
