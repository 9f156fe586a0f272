//! Tokens per second of the crate `tokenizers` alone, on all cores: batches of documents to token ids, no server.
//!
//! `bare TOKENIZER.json DOCUMENTS.json ROUNDS`; the documents are a JSON array of strings. Prints one line of JSON: wall and
//! CPU seconds of each round of `encode_batch` and of `encode_batch_fast`, which computes no offsets, and the tokens.

#![expect(clippy::expect_used, clippy::panic, reason = "a bench stops at the first error")]

use std::{env, fs, time::Instant};

use tokenizers::{Encoding, Result, Tokenizer};

/// As many as `datasets` gives to a function at once.
const BATCH_DOCUMENTS: usize = 1000;

type Encode = fn(&Tokenizer, Vec<&str>) -> Result<Vec<Encoding>>;

fn main() {
    let [tokenizer, documents, rounds] = &env::args().skip(1).collect::<Vec<_>>()[..] else {
        panic!("bare TOKENIZER.json DOCUMENTS.json ROUNDS")
    };
    let tokenizer = Tokenizer::from_file(tokenizer).expect("the first argument is a tokenizer");
    let documents = fs::read(documents).expect("the second argument is a file");
    let documents: Vec<String> = serde_json::from_slice(&documents).expect("the second argument is a list of strings");
    let rounds: usize = rounds.parse().expect("the third argument is a number");
    let ways: [(&str, Encode); 2] = [
        ("encode_batch", |tokenizer, batch| tokenizer.encode_batch(batch, true)),
        ("encode_batch_fast", |tokenizer, batch| tokenizer.encode_batch_fast(batch, true)),
    ];
    let measured = ways.map(|(name, encode)| {
        let (mut wall, mut cpu, mut tokens) = (Vec::new(), Vec::new(), 0);
        for _ in 0..rounds {
            let (began, cpu_began) = (Instant::now(), cpu_seconds());
            tokens = ids(&tokenizer, &documents, encode).len();
            wall.push(began.elapsed().as_secs_f64());
            cpu.push(cpu_seconds() - cpu_began);
        }
        (name.to_owned(), serde_json::json!({"wall": wall, "cpu": cpu, "tokens": tokens}))
    });
    println!("{}", serde_json::Value::Object(measured.into_iter().collect()));
}

fn ids(tokenizer: &Tokenizer, documents: &[String], encode: Encode) -> Vec<u32> {
    let mut ids = Vec::new();
    for batch in documents.chunks(BATCH_DOCUMENTS) {
        let batch = batch.iter().map(String::as_str).collect();
        for encoding in encode(tokenizer, batch).expect("the documents are text") {
            ids.extend_from_slice(encoding.get_ids());
        }
    }
    ids
}

fn cpu_seconds() -> f64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}
