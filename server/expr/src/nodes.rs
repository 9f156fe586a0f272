//! Calls a function for each node of parsed SQL.
//!
//! The parser compiles the walk through all of its several hundred types once for each type of visitor, so that all callers
//! share these two.

use std::{cell::RefCell, collections::BTreeSet, ops::ControlFlow};

use datafusion_sql::sqlparser::ast::{
    Expr as SqlExpr, Statement as SqlStatement, TableFactor, Visit, VisitMut, Visitor, visit_expressions_mut,
};

/// Returns the first result for an expression or one of its operands, from outside to inside.
pub(super) fn first<T>(root: &SqlExpr, find: impl Fn(&SqlExpr) -> Option<T>) -> Option<T> {
    let mut found = None;
    let mut look = |node: &SqlExpr| {
        found = find(node);
        if found.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    // Whether it ended early is seen in `found`.
    let _ = root.visit(&mut Nodes { expression: &mut look, table: &mut |_| () });
    found
}

/// The names in an expression: of columns, of fields and of tables, as they are written.
pub(super) fn names(root: &SqlExpr) -> BTreeSet<String> {
    let found = RefCell::new(BTreeSet::new());
    first::<()>(root, |node| {
        let mut found = found.borrow_mut();
        match node {
            SqlExpr::Identifier(name) => drop(found.insert(name.value.clone())),
            SqlExpr::CompoundIdentifier(names) => found.extend(names.iter().map(|name| name.value.clone())),
            _ => {}
        }
        None
    });
    found.into_inner()
}

/// Calls `see` for each item of FROM, those of subqueries included.
pub(super) fn each_table(root: &SqlStatement, mut see: impl FnMut(&TableFactor)) {
    // Nothing ends it early.
    let _ = root.visit(&mut Nodes { expression: &mut |_| ControlFlow::Continue(()), table: &mut see });
}

/// Replaces an expression and its operands, from inside to outside, where `replacement` returns another one. Ends at an
/// error.
pub(super) fn replace<E>(
    root: &mut impl VisitMut,
    replacement: impl Fn(&SqlExpr) -> Result<Option<SqlExpr>, E>,
) -> Result<(), E> {
    let mut outcome = Ok(());
    let mut rewrite = |node: &mut SqlExpr| {
        match replacement(node) {
            Ok(replaced) => replaced.into_iter().for_each(|replaced| *node = replaced),
            Err(error) => {
                outcome = Err(error);
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    };
    let rewrite: &mut dyn FnMut(&mut SqlExpr) -> ControlFlow<()> = &mut rewrite;
    // Whether it ended early is seen in `outcome`.
    let _ = visit_expressions_mut(root, rewrite);
    outcome
}

struct Nodes<'a> {
    expression: &'a mut dyn FnMut(&SqlExpr) -> ControlFlow<()>,
    table: &'a mut dyn FnMut(&TableFactor),
}

impl Visitor for Nodes<'_> {
    type Break = ();

    fn pre_visit_expr(&mut self, node: &SqlExpr) -> ControlFlow<()> {
        (self.expression)(node)
    }

    fn pre_visit_table_factor(&mut self, node: &TableFactor) -> ControlFlow<()> {
        (self.table)(node);
        ControlFlow::Continue(())
    }
}
