//! Imports among the source files of one crate, their circles, and the names of the crate's types.
//!
//! A file imports another if one of its paths, in a `use` or in an expression, names an item that the other file
//! defines; re-exports are followed to the definition. Re-exporting an item of a child is not an import unless the file
//! also uses the name, so a parent that only declares and re-exports its children is in no circle with them.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fs,
    path::Path,
};

use super::code::code;

/// The path of a module within its crate; empty for its root.
type Module = Vec<String>;

/// The source files of a crate by module, without tests, generated code and the binaries of libraries.
pub(crate) struct Crate(BTreeMap<Module, SourceFile>);

struct SourceFile {
    name: String,
    uses: Vec<Use>,
    /// The trees of private `use` declarations outside functions and inline modules.
    declarations: Vec<String>,
    /// Everything outside `use` declarations.
    body: String,
}

/// One name that a `use` declaration brings into scope.
struct Use {
    is_public: bool,
    path: Vec<String>,
    name: String,
}

impl Crate {
    pub(crate) fn read(root: &Path) -> Self {
        let has_library = root.join("lib.rs").exists();
        let mut texts = Vec::new();
        let mut folders = vec![root.to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
                let is_skipped = |part: &str| {
                    matches!(part, "tests" | "tests.rs" | "gen" | "bin") || (part == "main.rs" && has_library)
                };
                if name.split('/').any(is_skipped) {
                    continue;
                }
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|ending| ending == "rs") {
                    texts.push((name, fs::read_to_string(&path).unwrap()));
                }
            }
        }
        Self::parse(texts)
    }

    /// Reads the texts of files, each with its path below the root.
    fn parse(texts: Vec<(String, String)>) -> Self {
        Self(texts.into_iter().map(|(name, text)| (module_of(&name), SourceFile::parse(name, &text))).collect())
    }

    /// Returns one circle for each group of files that import each other, as a line of text.
    pub(crate) fn circles(&self) -> Vec<String> {
        let imports: BTreeMap<&Module, BTreeMap<&Module, String>> =
            self.0.iter().map(|(module, file)| (module, self.imports_of(module, file))).collect();
        let mut seen: BTreeSet<&Module> = BTreeSet::new();
        let mut circles = Vec::new();
        for module in self.0.keys() {
            let Some(circle) = shortest_circle(module, &imports) else { continue };
            if circle.iter().all(|step| !seen.contains(step)) {
                let steps = circle.iter().zip(circle.iter().cycle().skip(1)).map(|(from, to)| {
                    format!("{} imports {} ({})", self.0[*from].name, self.0[*to].name, imports[from][to])
                });
                circles.push(steps.collect::<Vec<_>>().join(", "));
            }
            seen.extend(circle);
        }
        circles
    }

    /// Returns the imports of modules that come earlier in a list of modules, which goes from the top down.
    pub(crate) fn upward_imports(&self, parts: &[&str]) -> Vec<String> {
        let place = |module: &Module| parts.iter().position(|part| module.join("::").starts_with(part));
        let mut found = Vec::new();
        for (module, file) in &self.0 {
            let Some(own) = place(module) else { continue };
            let imports = self.imports_of(module, file).into_iter();
            let upward = imports.filter(|(target, _)| place(target).is_some_and(|theirs| theirs < own));
            found.extend(upward.map(|(_, path)| format!("{} imports {path}", file.name)));
        }
        found
    }

    /// Returns the types of each name, with the files that define them. Types within functions are left out, and so are
    /// modules under `#[cfg(not(…))]`, which are alternatives to others.
    pub(crate) fn types(&self) -> BTreeMap<&str, Vec<&str>> {
        let alternatives: BTreeSet<Module> =
            self.0.iter().flat_map(|(module, file)| file.alternatives().map(move |name| child(module, name))).collect();
        let mut types: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (_, file) in self.0.iter().filter(|(module, _)| !alternatives.contains(*module)) {
            // rustfmt indents what is inside a function or an inline module.
            for line in file.body.lines().filter(|line| !line.starts_with(char::is_whitespace)) {
                let mut words = line.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
                if words.any(|word| matches!(word, "struct" | "enum" | "union" | "trait" | "type"))
                    && let Some(name) = words.next()
                {
                    types.entry(name).or_default().push(&file.name);
                }
            }
        }
        types
    }

    /// Returns the files whose imports are not in the order of std, other crates and this crate, or not one `use` for
    /// std.
    pub(crate) fn ungrouped_imports(&self) -> Vec<String> {
        let group = |module: &Module, import: &str| {
            let path: Vec<String> = paths(import).into_iter().next().unwrap_or_default();
            match path.first().map(String::as_str) {
                Some("std") => 0,
                _ if self.absolute(module, &path).is_some() => 2,
                _ => 1,
            }
        };
        let is_ungrouped = |(module, file): &(&Module, &SourceFile)| {
            let groups: Vec<i32> = file.declarations.iter().map(|import| group(module, import)).collect();
            !groups.is_sorted() || groups.iter().filter(|group| **group == 0).count() > 1
        };
        self.0.iter().filter(is_ungrouped).map(|(_, file)| file.name.clone()).collect()
    }

    /// Returns the modules that a file imports, each with the first path that names it.
    fn imports_of(&self, module: &Module, file: &SourceFile) -> BTreeMap<&Module, String> {
        let words: Vec<Vec<String>> = paths(&file.body);
        let is_used = |name: &str| words.iter().any(|path| path[0] == name);
        let declared = file.uses.iter().filter(|import| {
            let is_child = self.absolute(module, &import.path).is_some_and(|path| path.starts_with(module));
            !(import.is_public && is_child) || is_used(&import.name)
        });
        let named = declared.map(|import| &import.path).chain(words.iter().filter(|path| path.len() > 1));
        let mut imports = BTreeMap::new();
        for path in named {
            let Some(absolute) = self.absolute(module, path) else { continue };
            let target = self.definition(absolute);
            if target != module {
                imports.entry(target).or_insert_with(|| path.join("::"));
            }
        }
        imports
    }

    /// Returns a path from the root of the crate; none for a path of another crate or of a local name.
    fn absolute(&self, module: &Module, path: &[String]) -> Option<Vec<String>> {
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => Some(rest.to_vec()),
            "self" => Some([module.as_slice(), rest].concat()),
            "super" => {
                let supers = path.iter().take_while(|part| *part == "super").count();
                let parent = &module[..module.len().checked_sub(supers)?];
                Some([parent, &path[supers..]].concat())
            }
            _ if self.0.contains_key(&child(module, first)) => Some([module.as_slice(), path].concat()),
            _ => None,
        }
    }

    /// Returns the module that defines the item at an absolute path.
    fn definition(&self, mut path: Vec<String>) -> &Module {
        loop {
            let depth = (0..=path.len()).rev().find(|depth| self.0.contains_key(&path[..*depth])).unwrap();
            let (module, file) = self.0.get_key_value(&path[..depth]).unwrap();
            let exported = path.get(depth).and_then(|name| {
                let import = file.uses.iter().find(|import| import.is_public && import.name == *name)?;
                self.absolute(module, &import.path)
            });
            match exported {
                Some(exported) => path = exported,
                None => return module,
            }
        }
    }
}

impl SourceFile {
    fn parse(name: String, text: &str) -> Self {
        // A visibility is not an import.
        let code = code(text).replace("pub(in crate::", "pub(");
        let (mut uses, mut declarations) = (Vec::new(), Vec::new());
        let mut body = String::new();
        let mut rest = code.as_str();
        while let Some(start) = use_start(rest) {
            let (before, declaration) = rest.split_at(start);
            let (tree, after) = declaration["use ".len()..].split_once(';').unwrap();
            let is_public = before.trim_end().rsplit([';', '}', '{', ']']).next().unwrap().trim().starts_with("pub");
            if !is_public && (before.is_empty() || before.ends_with('\n')) {
                declarations.push(tree.to_owned());
            }
            expand(tree, &[], &mut |path, name| uses.push(Use { is_public, path, name }));
            body.push_str(before);
            rest = after;
        }
        body.push_str(rest);
        Self { name, uses, declarations, body }
    }

    /// Returns the names of the child modules under `#[cfg(not(…))]`.
    fn alternatives(&self) -> impl Iterator<Item = &str> {
        let after_attribute = self.body.split("#[cfg(not(").skip(1).filter_map(|rest| rest.split_once(")]"));
        after_attribute
            .filter_map(|(_, item)| item.trim_start().strip_prefix("mod ")?.split_once(';'))
            .map(|(name, _)| name)
    }
}

fn child(module: &Module, name: &str) -> Module {
    [module.as_slice(), &[name.to_owned()]].concat()
}

fn module_of(name: &str) -> Module {
    let name = name.strip_suffix(".rs").unwrap_or(name);
    let name = name.strip_suffix("/mod").unwrap_or(name);
    if matches!(name, "lib" | "main") { Vec::new() } else { name.split('/').map(ToOwned::to_owned).collect() }
}

fn use_start(code: &str) -> Option<usize> {
    let is_start = |at: usize| code[..at].chars().next_back().is_none_or(char::is_whitespace);
    code.match_indices("use ").map(|(at, _)| at).find(|at| is_start(*at))
}

/// Calls `found` with each path of a tree such as `a::{b, c::{self, d as e}}`, and with the name that it declares.
fn expand(tree: &str, prefix: &[String], found: &mut impl FnMut(Vec<String>, String)) {
    if let Some((head, list)) = tree.split_once('{') {
        let prefix = [prefix, &parts(head)].concat();
        let list = list.rsplit_once('}').unwrap().0;
        let mut depth = 0;
        for item in list.split(|letter| {
            depth += i32::from(letter == '{') - i32::from(letter == '}');
            letter == ',' && depth == 0
        }) {
            if !item.trim().is_empty() {
                expand(item, &prefix, found);
            }
        }
        return;
    }
    let (path, alias) = tree.split_once(" as ").map_or((tree, None), |(path, alias)| (path, Some(alias.trim())));
    let mut path = [prefix, &parts(path)].concat();
    if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
        path.pop();
    }
    let name = alias.map_or_else(|| path.last().cloned().unwrap_or_default(), ToOwned::to_owned);
    found(path, name);
}

fn parts(path: &str) -> Vec<String> {
    path.split("::").map(str::trim).filter(|part| !part.is_empty()).map(ToOwned::to_owned).collect()
}

/// Returns the paths in code, including single names.
fn paths(code: &str) -> Vec<Vec<String>> {
    let is_letter = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == ':';
    let words = code.split(|letter| !is_letter(letter)).filter(|word| !word.is_empty());
    let parts = |word: &str| word.split(':').filter(|part| !part.is_empty()).map(ToOwned::to_owned).collect();
    words.map(parts).filter(|path: &Vec<String>| !path.is_empty()).collect()
}

fn shortest_circle<'a>(
    start: &'a Module,
    imports: &BTreeMap<&'a Module, BTreeMap<&'a Module, String>>,
) -> Option<Vec<&'a Module>> {
    let mut queue = VecDeque::from([vec![start]]);
    let mut seen = BTreeSet::new();
    while let Some(path) = queue.pop_front() {
        for next in imports[path.last()?].keys() {
            if *next == start {
                return Some(path);
            }
            if seen.insert(*next) {
                queue.push_back([path.as_slice(), &[next]].concat());
            }
        }
    }
    None
}

#[test]
fn a_parent_that_uses_its_child_is_in_a_circle_and_one_that_re_exports_it_is_not() {
    let circles = |parent: &str| {
        let texts = [("a/mod.rs", parent), ("a/b.rs", "use crate::a::A;\npub struct B(A);")];
        Crate::parse(texts.map(|(name, text)| (name.to_owned(), text.to_owned())).into()).circles()
    };
    assert!(circles("mod b;\npub use b::B;\npub struct A;").is_empty());
    let expected = ["a/mod.rs imports a/b.rs (b::B), a/b.rs imports a/mod.rs (crate::a::A)"];
    assert_eq!(circles("mod b;\npub use b::B;\npub struct A(Box<B>);"), expected);
    assert_eq!(circles("mod b;\npub struct A(Box<b::B>);"), expected);
}
