//! `--view` → names, SQL and the datasets that it reads, each view after those that it reads.

use forebay_catalog::{
    ViewDefinition,
    view::{VIEW_MEMORY_BYTES_MIN, VIEW_SQL_BYTES_MAX},
};
use forebay_expr::{QueryError, query_tables};
use forebay_runtime::error::near_names;

use super::{
    datasets::check_name,
    error::{ConfigError, ConfigProblems, wrong},
    flags::Flags,
};

/// What separates views in the environment.
const SEPARATOR: &str = ";\n";

/// Returns every valid view, and the problems of the others. `datasets` are the names of the other datasets.
pub(super) fn open(flags: &Flags, datasets: &[&str]) -> (Vec<ViewDefinition>, ConfigProblems) {
    let mut problems = ConfigProblems::default();
    let mut parsed: Vec<(&str, &str)> = Vec::new();
    let values = flags.view.iter().flat_map(|value| value.split(SEPARATOR)).map(str::trim);
    for value in values.filter(|value| !value.is_empty()) {
        let Some((name, sql)) = problems.one(split(value)) else { continue };
        if datasets.contains(&name) || parsed.iter().any(|(known, _)| *known == name) {
            problems.one::<()>(Err(wrong("view", name, format!("the name \"{name}\" is set twice"))));
        } else {
            parsed.push((name, sql));
        }
    }
    // clap checks `requires` on the command line, but not for values of the configuration file.
    if let (Some((name, _)), None) = (parsed.first(), &flags.state) {
        problems.one::<()>(Err(wrong("view", name, "requires --state, where the result is written")));
    }
    let names: Vec<&str> = datasets.iter().copied().chain(parsed.iter().map(|(name, _)| *name)).collect();
    let defined = parsed.into_iter().map(|(name, sql)| definition(name, sql, &names));
    let views = problems.each(defined);
    let views = problems.one(in_order(views, datasets)).unwrap_or_default();
    (views, problems)
}

/// Returns the memory of a run.
pub(super) fn memory_bytes(flags: &Flags, limit_bytes: u64) -> Result<u64, ConfigError> {
    let bytes = flags.view_memory_bytes.0;
    let wrong = |reason| wrong("view-memory-bytes", &flags.view_memory_bytes.to_string(), reason);
    match bytes {
        0 => Ok((limit_bytes / 4).max(VIEW_MEMORY_BYTES_MIN)),
        bytes if bytes < VIEW_MEMORY_BYTES_MIN => {
            Err(wrong("at least 16MiB, or 0 for a quarter of the limit".to_owned()))
        }
        bytes if bytes > limit_bytes => Err(wrong(format!("more than the {limit_bytes} of --memory-limit-bytes"))),
        bytes => Ok(bytes),
    }
}

fn split(value: &str) -> Result<(&str, &str), ConfigError> {
    let allowed = "expected NAME=SQL, such as late=SELECT * FROM flights WHERE arr_delay > 60";
    let (name, sql) = value.split_once('=').ok_or_else(|| wrong("view", value, allowed))?;
    let (name, sql) = (name.trim(), sql.trim());
    check_name(name).map_err(|reason| wrong("view", name, format!("{reason}; {allowed}")))?;
    if sql.len() > VIEW_SQL_BYTES_MAX {
        return Err(wrong("view", name, format!("it has {} bytes, the limit is {VIEW_SQL_BYTES_MAX}", sql.len())));
    }
    Ok((name, sql))
}

fn definition(name: &str, sql: &str, names: &[&str]) -> Result<ViewDefinition, ConfigError> {
    let invalid = |error: QueryError| wrong("view", name, error.to_string());
    let mut inputs = Vec::new();
    for table in query_tables(sql).map_err(invalid)? {
        // As forebay-prepare matches names: as written or, if that fails, in lower case.
        let lower = table.to_lowercase();
        let known = names.iter().find(|known| **known == table).or_else(|| names.iter().find(|known| **known == lower));
        let known = known.ok_or_else(|| {
            let near = near_names(&table, names.iter().copied().filter(|other| *other != name));
            let reason = format!("no --dataset or --view is named \"{table}\": {near}");
            invalid(QueryError::at_name(sql, &table, reason))
        })?;
        if !inputs.iter().any(|input| input == known) {
            inputs.push((*known).to_owned());
        }
    }
    Ok(ViewDefinition { name: name.to_owned(), sql: sql.to_owned(), inputs })
}

/// Sorts views, so that each is after those that it reads. Leaves out those that read an invalid one.
fn in_order(mut rest: Vec<ViewDefinition>, datasets: &[&str]) -> Result<Vec<ViewDefinition>, ConfigError> {
    let is_dataset = |input: &String| datasets.contains(&input.as_str());
    loop {
        let names: Vec<String> = rest.iter().map(|view| view.name.clone()).collect();
        rest.retain(|view| view.inputs.iter().all(|input| is_dataset(input) || names.contains(input)));
        if rest.len() == names.len() {
            break;
        }
    }
    let mut sorted: Vec<ViewDefinition> = Vec::with_capacity(rest.len());
    while !rest.is_empty() {
        let is_open = |input: &String| is_dataset(input) || sorted.iter().any(|view| view.name == *input);
        let Some(index) = rest.iter().position(|view| view.inputs.iter().all(is_open)) else {
            let circle = rest.iter().map(|view| format!("\"{}\"", view.name)).collect::<Vec<_>>().join(", ");
            let reason = format!("it reads its own result: views must not read each other in a circle ({circle})");
            return Err(wrong("view", &rest[0].name, reason));
        };
        sorted.push(rest.remove(index));
    }
    Ok(sorted)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    fn opened(views: &[&str]) -> Result<Vec<ViewDefinition>, String> {
        let mut arguments = vec!["forebay-server", "--dataset", "a=/a", "--dataset", "b=/b", "--state", "/s"];
        arguments.extend(views.iter().flat_map(|view| ["--view", view]));
        let (views, problems) = open(&Flags::try_parse_from(arguments).unwrap(), &["a", "b"]);
        problems.or(views).map_err(|problems| problems.to_string())
    }

    #[test]
    fn views_follow_those_that_they_read() {
        let views = opened(&["c = SELECT * FROM d JOIN A USING (k)", "d=SELECT k,\n  1 AS x FROM b;\ne=SELECT 1 AS x"])
            .unwrap();
        let shown: Vec<String> = views.iter().map(|view| format!("{} {}", view.name, view.inputs.join(" "))).collect();
        assert_eq!(shown, ["d b", "c a d", "e "]);
    }

    #[test]
    fn errors_name_the_view_and_the_place() {
        for (views, words) in [
            (&["SELECT 1"][..], "NAME=SQL"),
            (&["=SELECT 1"], "the name must be"),
            (&["x/y=SELECT 1"], "the name must be"),
            (&["a=SELECT 1 AS x"], "\"a\" is set twice"),
            (&["v=SELECT 1 AS x", "v=SELECT 2 AS x"], "\"v\" is set twice"),
            (&["v=SELEC 1"], "--view \"v\": SQL, line 1, column 1"),
            (
                &["v=SELECT *\nFROM bb"],
                "SQL, line 2, column 6: no --dataset or --view is named \"bb\": did you mean \"b\"?",
            ),
            (&["v=SELECT * FROM '/etc/passwd'"], "is named \"/etc/passwd\""),
            (&["v=SELECT * FROM information_schema.tables"], "there is no \"information_schema.tables\""),
            (&["v=INSERT INTO a VALUES (1)"], "INSERT is not allowed"),
            (&["v=SELECT * FROM v"], "circle (\"v\")"),
            (&["v=SELECT * FROM w", "w=SELECT * FROM v"], "circle (\"v\", \"w\")"),
            (&["v="], "it is empty"),
        ] {
            let error = opened(views).unwrap_err();
            assert!(error.contains(words), "{views:?}: {error}");
        }
        let long = format!("v=SELECT 1 AS x {}", " ".repeat(VIEW_SQL_BYTES_MAX) + "-- end");
        assert!(opened(&[&long]).unwrap_err().contains("the limit is 65536"));
    }
}
