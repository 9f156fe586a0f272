//! The schema of a dataset: the union of the schemas of its files, or the one that is pinned; and where each file has
//! its columns.
//!
//! Columns are matched by name. One that a file lacks, or that has no type there, is null for the file's rows. A
//! partition column replaces one of that name in the files. This module decides schemas only; `scan` converts the
//! values.

use std::{collections::HashMap, sync::Arc};

use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};

use super::{
    common_type::{can_hold, common_type},
    error::CatalogError,
    pinned_schema::PinnedSchema,
};

/// Where a file has the columns of its dataset.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct FileColumns {
    /// By column of the dataset; `None` where the file has no values.
    roots: Vec<Option<usize>>,
    /// By column of the file; `None` if the dataset does not have it.
    columns: Vec<Option<usize>>,
}

/// The schema of a dataset, and how its files differ from it.
#[derive(Debug)]
pub(super) struct Union {
    /// The columns of the dataset.
    pub schema: SchemaRef,
    /// The columns of each file, in order. Files of the same schema share them.
    pub columns: Vec<Arc<FileColumns>>,
    /// Files whose columns differ from the dataset's in order, number or type.
    pub adapted: usize,
    /// The index of each column among the partition columns; `None` if files have it.
    pub partitions: Vec<Option<usize>>,
}

/// A file's name for errors, and its schema.
pub(super) type NamedSchema<'a> = (&'a str, &'a Schema);

/// A schema that files share.
struct FileShape<'a> {
    schema: &'a Schema,
    /// The first file of it.
    file: &'a str,
}

/// A column, as some files have it.
struct UnionColumn<'a> {
    /// The first field of its name; in a pinned schema, the field there.
    field: &'a Field,
    /// Its field in each shape that has it.
    found: Vec<(usize, &'a Field)>,
    roots: Vec<Option<usize>>,
    /// Its index among the partition columns, if it is one.
    partition: Option<usize>,
}

/// The distinct schemas of files, and the one of each file.
fn shapes<'a>(files: impl Iterator<Item = NamedSchema<'a>>) -> (Vec<FileShape<'a>>, Vec<usize>) {
    let mut shapes: Vec<FileShape<'a>> = Vec::new();
    let mut known: HashMap<Vec<(&str, &DataType, bool)>, usize> = HashMap::new();
    let mut of_files: Vec<usize> = Vec::new();
    for (file, schema) in files {
        // Most files have the schema of the file before.
        if let Some(last) = of_files.last().filter(|last| has_same_fields(shapes[**last].schema, schema)) {
            of_files.push(*last);
            continue;
        }
        let key = |field: &'a FieldRef| (field.name().as_str(), field.data_type(), field.is_nullable());
        let index = *known.entry(schema.fields().iter().map(key).collect()).or_insert_with(|| {
            shapes.push(FileShape { schema, file });
            shapes.len() - 1
        });
        of_files.push(index);
    }
    (shapes, of_files)
}

fn has_same_fields(a: &Schema, b: &Schema) -> bool {
    let is_same = |(a, b): (&FieldRef, &FieldRef)| {
        a.name() == b.name() && a.data_type() == b.data_type() && a.is_nullable() == b.is_nullable()
    };
    a.fields().len() == b.fields().len() && a.fields().iter().zip(b.fields()).all(is_same)
}

// === impl FileColumns ===

impl FileColumns {
    /// The column of the file that has the values of a column of the dataset; `None` if the file has none.
    pub fn root(&self, column: usize) -> Option<usize> {
        self.roots.get(column).copied().flatten()
    }

    /// The column of the dataset of a column of the file; `None` if it is not read.
    pub fn column(&self, root: usize) -> Option<usize> {
        self.columns.get(root).copied().flatten()
    }

    fn new(roots: Vec<Option<usize>>, width: usize) -> Self {
        let mut columns = vec![None; width];
        for (column, root) in roots.iter().enumerate() {
            if let Some(place) = root.and_then(|root| columns.get_mut(root)) {
                *place = Some(column);
            }
        }
        Self { roots, columns }
    }
}

// === impl Union ===

impl Union {
    /// The union of the files' schemas, or the pinned schema.
    ///
    /// Columns are in the order of the first file, then those that later files add. The k-th column of a name matches
    /// the k-th column of that name in other files. A column is nullable if it is in any file, or if a file lacks it.
    /// Partition columns are the last, unless a schema is pinned, which must have all of them.
    pub(super) fn of<'a>(
        dataset: &str,
        files: impl Iterator<Item = NamedSchema<'a>>,
        pinned: Option<&'a PinnedSchema>,
        partitions: &'a [Field],
    ) -> Result<Self, CatalogError> {
        let (shapes, of_files) = shapes(files);
        let columns = columns(&shapes, pinned, partitions);
        let mut fields = Vec::with_capacity(columns.len());
        for column in &columns {
            if let Some(partition) = column.partition {
                fields.push(partitions[partition].clone());
                continue;
            }
            let data_type = match pinned {
                Some(pinned) => column.pinned_type(dataset, &shapes, pinned)?,
                None => column.common_type(dataset, &shapes)?,
            };
            let is_nullable = column.found.len() < shapes.len()
                || column.found.iter().any(|(_, field)| field.is_nullable())
                || pinned.is_some() && column.field.is_nullable();
            fields.push(column.field.clone().with_data_type(data_type).with_nullable(is_nullable));
        }
        let first = shapes.first().map(|shape| shape.schema);
        let metadata = pinned.map(|pinned| pinned.schema().as_ref()).or(first).map(|schema| schema.metadata().clone());
        let schema = Arc::new(Schema::new_with_metadata(fields, metadata.unwrap_or_default()));
        Ok(Self::placed(&shapes, &of_files, &columns, schema))
    }

    fn placed(shapes: &[FileShape<'_>], of_files: &[usize], columns: &[UnionColumn<'_>], schema: SchemaRef) -> Self {
        let of_shape = |(index, shape): (usize, &FileShape<'_>)| {
            let root = |(place, column): (usize, &UnionColumn<'_>)| {
                let root = column.roots[index]?;
                let has_values = *shape.schema.field(root).data_type() != DataType::Null
                    || *schema.field(place).data_type() == DataType::Null;
                has_values.then_some(root)
            };
            let roots = columns.iter().enumerate().map(root).collect();
            Arc::new(FileColumns::new(roots, shape.schema.fields().len()))
        };
        let of_shapes: Vec<Arc<FileColumns>> = shapes.iter().enumerate().map(of_shape).collect();
        let of_files_only = || columns.iter().zip(schema.fields()).filter(|(column, _)| column.partition.is_none());
        let agrees = |shape: &FileShape<'_>| {
            let own = shape.schema.fields();
            let is_same = |(a, (_, b)): (&FieldRef, (&UnionColumn<'_>, &FieldRef))| {
                a.name() == b.name() && a.data_type() == b.data_type()
            };
            own.len() == of_files_only().count() && own.iter().zip(of_files_only()).all(is_same)
        };
        let agreeing: Vec<bool> = shapes.iter().map(agrees).collect();
        let adapted = of_files.iter().filter(|shape| !agreeing[**shape]).count();
        let partitions = columns.iter().map(|column| column.partition).collect();
        let columns = of_files.iter().map(|shape| Arc::clone(&of_shapes[*shape])).collect();
        Self { schema, columns, adapted, partitions }
    }
}

/// The columns of all shapes by name and occurrence, and the partition columns; for a pinned schema, only those in it.
fn columns<'a>(
    shapes: &[FileShape<'a>],
    pinned: Option<&'a PinnedSchema>,
    partitions: &'a [Field],
) -> Vec<UnionColumn<'a>> {
    let mut columns: Vec<UnionColumn<'a>> = Vec::new();
    let mut places: HashMap<(&str, usize), usize> = HashMap::new();
    let partition = |name: &str| partitions.iter().position(|field| field.name() == name);
    let column = |field: &'a Field, partition: Option<usize>| UnionColumn {
        field,
        found: Vec::new(),
        roots: vec![None; shapes.len()],
        partition,
    };
    for (name, field) in pinned.into_iter().flat_map(|pinned| occurrences(pinned.schema())) {
        places.insert(name, columns.len());
        columns.push(column(field, partition(name.0)));
    }
    for (index, shape) in shapes.iter().enumerate() {
        for (root, (name, field)) in occurrences(shape.schema).enumerate() {
            let place = match places.get(&name) {
                _ if partition(name.0).is_some() => continue,
                Some(place) => *place,
                None if pinned.is_some() => continue,
                None => {
                    places.insert(name, columns.len());
                    columns.push(column(field, None));
                    columns.len() - 1
                }
            };
            columns[place].found.push((index, field));
            columns[place].roots[index] = Some(root);
        }
    }
    if pinned.is_none() {
        columns.extend(partitions.iter().enumerate().map(|(index, field)| column(field, Some(index))));
    }
    columns
}

/// The fields of a schema, each with its name and the number of earlier fields of that name.
fn occurrences(schema: &Schema) -> impl Iterator<Item = ((&str, usize), &Field)> {
    let mut counts: HashMap<&str, usize> = HashMap::new();
    schema.fields().iter().map(move |field| {
        let count = counts.entry(field.name()).or_default();
        *count += 1;
        ((field.name().as_str(), *count - 1), field.as_ref())
    })
}

// === impl UnionColumn ===

impl UnionColumn<'_> {
    fn common_type(&self, dataset: &str, shapes: &[FileShape<'_>]) -> Result<DataType, CatalogError> {
        let types: Vec<&DataType> = self.found.iter().map(|(_, field)| field.data_type()).collect();
        if let Some(common) = common_type(&types) {
            return Ok(common);
        }
        // The first two that have no common type; without such a pair, the first and the last.
        let pairs = (1..types.len()).flat_map(|b| (0..b).map(move |a| (a, b)));
        let differ = |(a, b): &(usize, usize)| common_type(&[types[*a], types[*b]]).is_none();
        let (a, b) = pairs.into_iter().find(differ).unwrap_or((0, types.len() - 1));
        let file = |found: usize| shapes[self.found[found].0].file.to_owned();
        Err(CatalogError::SchemaDrift {
            dataset: dataset.into(),
            column: self.field.name().as_str().into(),
            found: types[b].to_string().into(),
            file: file(b).into(),
            other: types[a].to_string().into(),
            other_file: file(a).into(),
        })
    }

    fn pinned_type(
        &self,
        dataset: &str,
        shapes: &[FileShape<'_>],
        pinned: &PinnedSchema,
    ) -> Result<DataType, CatalogError> {
        let wide = self.field.data_type();
        match self.found.iter().find(|(_, field)| !can_hold(wide, field.data_type())) {
            None => Ok(wide.clone()),
            Some((shape, field)) => Err(CatalogError::PinnedDrift {
                dataset: dataset.into(),
                column: self.field.name().as_str().into(),
                found: field.data_type().to_string().into(),
                file: shapes[*shape].file.into(),
                pinned: wide.to_string().into(),
                pinned_by: pinned.refusal().into(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::DataType as T;

    use super::*;

    fn schema(fields: &[(&str, T)]) -> Schema {
        Schema::new(fields.iter().map(|(name, kind)| Field::new(*name, kind.clone(), false)).collect::<Vec<_>>())
    }

    fn union(files: &[Schema]) -> Result<Union, CatalogError> {
        let names: Vec<String> = (0..files.len()).map(|file| format!("f{file}")).collect();
        Union::of("d", names.iter().map(String::as_str).zip(files), None, &[])
    }

    fn roots(union: &Union, file: usize) -> Vec<Option<usize>> {
        (0..union.schema.fields().len()).map(|column| union.columns[file].root(column)).collect()
    }

    #[test]
    fn files_that_agree_share_their_columns() {
        let file = schema(&[("a", T::Int64), ("b", T::Utf8)]);
        let union = union(&[file.clone(), file.clone(), file.clone()]).unwrap();
        assert_eq!((union.schema.as_ref(), union.adapted), (&file, 0));
        assert!(union.columns.iter().all(|columns| Arc::ptr_eq(columns, &union.columns[0])));
        assert_eq!(roots(&union, 2), [Some(0), Some(1)]);
    }

    #[test]
    fn columns_are_matched_by_name() {
        let files = [
            schema(&[("a", T::Int32), ("b", T::Null)]),
            schema(&[("c", T::Utf8), ("b", T::Float64), ("a", T::Int64)]),
            schema(&[]),
        ];
        let union = union(&files).unwrap();
        let names: Vec<&str> = union.schema.fields().iter().map(|field| field.name().as_str()).collect();
        assert_eq!(names, ["a", "b", "c"]);
        assert_eq!(*union.schema.field(0).data_type(), T::Int64);
        assert!(union.schema.fields().iter().all(|field| field.is_nullable()));
        assert_eq!(roots(&union, 0), [Some(0), None, None]);
        assert_eq!(roots(&union, 1), [Some(2), Some(1), Some(0)]);
        assert_eq!(union.columns[1].column(0), Some(2));
        assert_eq!((union.columns[0].column(1), union.adapted), (None, 3));
    }

    #[test]
    fn names_that_occur_twice_are_matched_in_order() {
        let files =
            [schema(&[("a", T::Int8), ("a", T::Utf8)]), schema(&[("b", T::Int8), ("a", T::Int16), ("a", T::Utf8)])];
        let union = union(&files).unwrap();
        assert_eq!(roots(&union, 1), [Some(1), Some(2), Some(0)]);
        assert_eq!(*union.schema.field(0).data_type(), T::Int16);
    }

    #[test]
    fn partition_columns_come_last_and_hide_those_of_files() {
        let files = [schema(&[("day", T::Utf8), ("a", T::Int8)]), schema(&[("a", T::Int8)])];
        let partitions = [Field::new("day", T::Date32, false)];
        let names = ["f0", "f1"];
        let union = Union::of("d", names.into_iter().zip(&files), None, &partitions).unwrap();
        assert_eq!(union.schema.fields().iter().map(|field| field.name()).collect::<Vec<_>>(), ["a", "day"]);
        assert_eq!(*union.schema.field(1), partitions[0]);
        assert_eq!((roots(&union, 0), roots(&union, 1)), (vec![Some(1), None], vec![Some(0), None]));
        assert_eq!((union.partitions, union.adapted), (vec![None, Some(0)], 1));
    }

    #[test]
    fn an_error_names_the_column_the_types_and_the_files() {
        let files = [schema(&[("a", T::Null)]), schema(&[("a", T::Int8)]), schema(&[("a", T::Utf8)])];
        let error = union(&files).unwrap_err().to_string();
        for word in ["\"a\"", "Int8", "Utf8", "\"f1\"", "\"f2\"", "--dataset-schema"] {
            assert!(error.contains(word), "{error}");
        }
    }
}
