//! The table of ops: the messages of a plan, and the options of those that are ops.

use prost_reflect::{
    Cardinality, DescriptorPool, DynamicMessage, ExtensionDescriptor, FieldDescriptor, Kind, MessageDescriptor,
    ReflectMessage as _, Value,
};

/// The messages that a plan consists of.
pub(super) struct Table {
    /// All messages, each after the one that first names it.
    pub(super) messages: Vec<MessageDescriptor>,
    /// The ops, by their numbers.
    pub(super) ops: Vec<Op>,
}

/// An op of a plan.
pub(super) struct Op {
    /// Its name in a plan, such as `box_cox`.
    pub(super) name: String,
    /// The name of its message, such as `BoxCox`.
    pub(super) message: String,
    pub(super) meaning: String,
    /// The values that it takes, by their number and in words.
    pub(super) takes: (i32, String),
    pub(super) is_indices: bool,
    pub(super) reference: String,
    pub(super) agreement: String,
    /// Its fields, by their numbers.
    pub(super) parameters: Vec<Parameter>,
}

/// A field of an op.
#[expect(clippy::struct_excessive_bools, reason = "the options of a field")]
pub(super) struct Parameter {
    pub(super) name: String,
    pub(super) presence: Presence,
    pub(super) kind: Kind,
    /// The oneof that it is a case of.
    pub(super) choice: Option<String>,
    /// Bounds of an integer.
    pub(super) least: Option<i64>,
    pub(super) most: Option<i64>,
    /// Bounds of a number.
    pub(super) low: Option<f64>,
    pub(super) high: Option<f64>,
    pub(super) is_required: bool,
    pub(super) is_learned: bool,
    pub(super) learns: bool,
    pub(super) is_internal: bool,
    pub(super) default: String,
    /// The name in Python.
    pub(super) python: String,
    pub(super) is_keyword: bool,
    pub(super) index: Index,
    pub(super) instead: String,
}

/// Whether a field may be absent or repeated.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Presence {
    /// Absent is the type's zero.
    Implicit,
    Explicit,
    Repeated,
}

/// What a number says about indices.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Index {
    Nothing,
    Bound,
    Added,
}

impl Table {
    pub(super) fn read(pool: &DescriptorPool) -> Self {
        let option = |name: &str| pool.get_extension_by_name(name).unwrap();
        let options = (option("forebay.op"), option("forebay.parameter"));
        let chain = pool.get_message_by_name("forebay.v1.Op").unwrap();
        let mut cases: Vec<FieldDescriptor> = chain.fields().collect();
        cases.sort_by_key(FieldDescriptor::number);
        let ops = cases.iter().map(|case| Op::read(case, &options)).collect();
        let mut messages = Vec::new();
        collect(&pool.get_message_by_name("forebay.v1.Plan").unwrap(), &mut messages);
        Self { messages, ops }
    }
}

fn collect(message: &MessageDescriptor, found: &mut Vec<MessageDescriptor>) {
    if found.contains(message) {
        return;
    }
    found.push(message.clone());
    for field in sorted(message) {
        if let Kind::Message(inner) = field.kind() {
            collect(&inner, found);
        }
    }
}

/// The fields of a message by their numbers.
pub(super) fn sorted(message: &MessageDescriptor) -> Vec<FieldDescriptor> {
    let mut fields: Vec<FieldDescriptor> = message.fields().collect();
    fields.sort_by_key(FieldDescriptor::number);
    fields
}

pub(super) fn presence(field: &FieldDescriptor) -> Presence {
    match field.cardinality() {
        Cardinality::Repeated => Presence::Repeated,
        _ if field.supports_presence() => Presence::Explicit,
        _ => Presence::Implicit,
    }
}

impl Op {
    fn read(case: &FieldDescriptor, (op, parameter): &(ExtensionDescriptor, ExtensionDescriptor)) -> Self {
        let kind = case.kind();
        let message = kind.as_message().unwrap();
        let options = options(&message.options(), op);
        let text = |name: &str| options.get_field_by_name(name).unwrap().as_str().unwrap().to_owned();
        assert!(!text("meaning").is_empty(), "{} has no option (forebay.op)", message.name());
        Self {
            name: case.name().to_owned(),
            message: message.name().to_owned(),
            meaning: text("meaning"),
            takes: takes(&options),
            is_indices: options.get_field_by_name("indices").unwrap().as_bool().unwrap(),
            reference: text("reference"),
            agreement: text("agreement"),
            parameters: sorted(message).iter().map(|field| Parameter::read(field, parameter)).collect(),
        }
    }

    /// The numbers that a fit learns, all of them or none.
    pub(super) fn learned_numbers(&self) -> Vec<&Parameter> {
        let is_number = |one: &&Parameter| one.presence == Presence::Explicit && one.kind == Kind::Double;
        self.parameters.iter().filter(|one| one.is_learned).filter(is_number).collect()
    }

    /// The parameters that a client chooses.
    pub(super) fn chosen(&self) -> impl Iterator<Item = &Parameter> {
        self.parameters.iter().filter(|parameter| !parameter.is_internal)
    }
}

impl Parameter {
    fn read(field: &FieldDescriptor, option: &ExtensionDescriptor) -> Self {
        let options = options(&field.options(), option);
        let value = |name: &str| options.get_field_by_name(name).unwrap();
        let given = |name: &str| options.has_field_by_name(name).then(|| value(name));
        let text = |name: &str| value(name).as_str().unwrap().to_owned();
        let is = |name: &str| value(name).as_bool().unwrap();
        let is_choice = |oneof: &prost_reflect::OneofDescriptor| !oneof.is_synthetic();
        Self {
            name: field.name().to_owned(),
            presence: presence(field),
            kind: field.kind(),
            choice: field.containing_oneof().filter(is_choice).map(|oneof| oneof.name().to_owned()),
            least: given("least").and_then(|value| value.as_i64()),
            most: given("most").and_then(|value| value.as_i64()),
            low: given("low").and_then(|value| value.as_f64()),
            high: given("high").and_then(|value| value.as_f64()),
            is_required: is("required"),
            is_learned: is("learned"),
            learns: is("learns"),
            is_internal: is("internal"),
            default: text("default"),
            python: if text("python").is_empty() { field.name().to_owned() } else { text("python") },
            is_keyword: is("keyword"),
            index: match value("index").as_enum_number().unwrap() {
                0 => Index::Nothing,
                1 => Index::Bound,
                _ => Index::Added,
            },
            instead: text("instead"),
        }
    }

    pub(super) fn is_integer(&self) -> bool {
        matches!(self.kind, Kind::Int32 | Kind::Int64 | Kind::Uint32 | Kind::Uint64)
    }

    /// The bounds of an integer, those of its type where the table has none.
    pub(super) fn bounds(&self) -> (i128, i128) {
        let (least, most) = match self.kind {
            Kind::Uint32 => (0, u32::MAX.into()),
            Kind::Uint64 => (0, u64::MAX.into()),
            Kind::Int32 => (i32::MIN.into(), i32::MAX.into()),
            _ => (i64::MIN.into(), i128::from(i64::MAX)),
        };
        (self.least.map_or(least, i128::from), self.most.map_or(most, i128::from))
    }
}

fn takes(options: &DynamicMessage) -> (i32, String) {
    let field = options.descriptor().get_field_by_name("takes").unwrap();
    let number = options.get_field(&field).as_enum_number().unwrap();
    let kind = field.kind();
    let name = kind.as_enum().unwrap().get_value(number).unwrap().name().to_owned();
    (number, name.to_lowercase().replace('_', " "))
}

/// The value of an option; empty if it is not set.
fn options(options: &DynamicMessage, option: &ExtensionDescriptor) -> DynamicMessage {
    match options.get_extension(option).as_ref() {
        Value::Message(message) => message.clone(),
        other => panic!("{option:?} is no message: {other:?}"),
    }
}
