//! Vocabularies that several ops learn together: their parameters and the types of their columns agree.

use std::collections::BTreeMap;

use arrow::datatypes::DataType;
use forebay_plan::{PlanError, Question, Statistic};

use super::inputs::learned_type;

/// The first op of each shared vocabulary, and the type of its values.
#[derive(Debug, Default)]
pub(super) struct SharedVocabularies<'a>(BTreeMap<&'a str, (&'a Question, DataType)>);

impl<'a> SharedVocabularies<'a> {
    /// Checks a question about values of a type against those before it.
    pub(super) fn check(&mut self, question: &'a Question, values: &DataType) -> Result<(), PlanError> {
        let Some(name) = question.statistic.shared() else { return Ok(()) };
        let kind = learned_type(values);
        let Some((first, of_first)) = self.0.get(name) else {
            self.0.insert(name, (question, kind));
            return Ok(());
        };
        let limits = |statistic: &Statistic| match statistic {
            Statistic::Vocabulary { min_count, max_size, .. } => (*min_count, *max_size),
            _ => (0, 0),
        };
        let path = format!("{}.shared", question.path);
        if limits(&first.statistic) != limits(&question.statistic) {
            let reason = format!("{} has another min_count or max_size for the vocabulary \"{name}\"", first.path);
            return Err(PlanError::field(path, reason));
        }
        if *of_first != kind {
            let (column, other) = (&question.column, &first.column);
            let reason = format!(
                "the vocabulary \"{name}\" is of one type, and column \"{column}\" is {kind}, but \"{other}\" {of_first}: \
                 cast one of them in a derived column"
            );
            return Err(PlanError::field(path, reason));
        }
        Ok(())
    }
}
