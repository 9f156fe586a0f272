//! Runs every target on its corpus and on a fixed number of mutations, in seconds and without libFuzzer. `make fuzz` is
//! the long run.
//!
//! A failing input is printed as the path of its file, or as the `printf` that writes it to one.

#![expect(clippy::unwrap_used, reason = "a test stops at the first failure")]

use std::{
    env,
    fmt::Write as _,
    fs,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    path::{Path, PathBuf},
};

use forebay_fuzz::TARGETS;

/// Mutations of each target's corpus, unless `FUZZ_MUTATIONS` names another number. With the corpora they take some ten
/// seconds in an unoptimized build.
const MUTATIONS: u64 = 60;

/// The longest mutation.
const INPUT_BYTES_MAX: usize = 8192;

/// Numbers next to common bounds.
const NUMBERS: [u64; 10] = [0, 1, 0x7f, 0xff, 0x7fff, 0xffff, 0x7fff_ffff, 0xffff_ffff, 1 << 62, u64::MAX];

/// A deterministic generator (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound.max(1) as u64).unwrap()
    }
}

fn corpus(name: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
    let mut paths: Vec<PathBuf> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

/// An input with one to five changes: a flipped bit, inserted, removed or repeated bytes, an overwritten number, or the
/// end of another input.
fn mutated(input: &[u8], other: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len() + 1);
        let end = (at + 1 + random.below(16)).min(bytes.len());
        match random.below(6) {
            0 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            1 => bytes.insert(at, random.next().to_le_bytes()[0]),
            2 => drop(bytes.drain(at..end)),
            3 => bytes.extend_from_within(at..end),
            4 => {
                let number = NUMBERS[random.below(NUMBERS.len())].to_le_bytes();
                let width = (1 << random.below(4)).min(end - at);
                bytes[at..at + width].copy_from_slice(&number[..width]);
            }
            _ => {
                bytes.truncate(at);
                bytes.extend_from_slice(&other[random.below(other.len() + 1)..]);
            }
        }
    }
    bytes.truncate(INPUT_BYTES_MAX);
    bytes
}

/// Runs a target, and prints the input if it fails.
fn run(name: &str, input: &[u8], source: &str) {
    let target = TARGETS.iter().find(|(target, _)| *target == name).unwrap().1;
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| target(input))) {
        let bytes = input.iter().fold(String::new(), |mut bytes, byte| {
            write!(bytes, "\\x{byte:02x}").unwrap();
            bytes
        });
        eprintln!("{name} fails on {source}: printf '{bytes}'");
        resume_unwind(panic);
    }
}

fn smoke(name: &str) {
    let corpus = corpus(name);
    assert!(!corpus.is_empty(), "{name} has no corpus");
    for (path, input) in &corpus {
        run(name, input, &path.display().to_string());
    }
    let mutations = env::var("FUZZ_MUTATIONS").map_or(MUTATIONS, |count| count.parse().unwrap());
    let mut random = Random(7);
    for number in 0..mutations {
        let [input, other] = [random.below(corpus.len()), random.below(corpus.len())].map(|index| &corpus[index].1);
        run(name, &mutated(input, other, &mut random), &format!("mutation {number}"));
    }
}

#[test]
fn tickets() {
    smoke("ticket");
}

#[test]
fn commands_and_actions() {
    smoke("command");
}

#[test]
fn plans() {
    smoke("plan");
}

#[test]
fn expressions() {
    smoke("expression");
}

#[test]
fn locations_and_hostile_names() {
    smoke("path_resolver");
}

#[test]
fn column_chunks() {
    smoke("pages");
}

#[test]
fn parquet_files() {
    smoke("parquet");
}

#[test]
fn exchanges() {
    smoke("exchange");
}

#[test]
fn tokenizer_files() {
    smoke("tokenizer");
}

#[test]
fn archives() {
    smoke("tar");
}

#[test]
fn records_of_avro() {
    smoke("avro");
}

#[test]
fn records_of_examples() {
    smoke("tfrecord");
}

#[test]
fn folders_of_shards() {
    smoke("mds");
}

#[test]
fn rings() {
    smoke("ring");
}

#[test]
fn every_target_has_a_corpus_and_a_program() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let names: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
    for (folder, ending) in [("corpus", ""), ("fuzz_targets", ".rs")] {
        let mut found: Vec<String> = fs::read_dir(root.join(folder))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap().trim_end_matches(ending).to_owned())
            .filter(|name| Path::new(name).extension().is_none_or(|ending| ending != "dict"))
            .collect();
        found.sort();
        assert_eq!(found, names, "{folder}");
    }
}
