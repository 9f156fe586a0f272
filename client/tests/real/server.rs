//! Starting the real server on free ports, and ending it with the test.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{env, thread};

use tempfile::TempDir;

use crate::data;

/// A running `forebay-server`.
pub(crate) struct Server {
    process: Child,
    pub(crate) url: String,
    /// URL of its metrics page.
    pub(crate) metrics: String,
    /// Holds the data and the state; `forebay` runs here.
    pub(crate) folder: Arc<TempDir>,
}

impl Server {
    /// Starts a server on a free loopback port, with the dataset `numbers` and the unreadable dataset `broken`.
    pub(crate) fn start() -> Self {
        Self::listen(|_| "127.0.0.1:0".to_owned())
    }

    /// Starts a server at the address that is made from its folder.
    pub(crate) fn listen(address: impl FnOnce(&Path) -> String) -> Self {
        let folder = TempDir::new().unwrap();
        let path = folder.path();
        data::write(&path.join("numbers"));
        std::fs::create_dir(path.join("broken")).unwrap();
        std::fs::write(path.join("broken/part.parquet"), "PAR1 this is no Parquet file PAR1").unwrap();
        let address = address(path);
        Self::over(Arc::new(folder), &["numbers", "broken"], &["--state", "state", "--listen", &address])
    }

    /// Starts servers on free loopback ports over one folder of one dataset, each with a state of its own.
    pub(crate) fn replicas<const COUNT: usize>(dataset: &str, write: impl FnOnce(&Path)) -> [Self; COUNT] {
        let folder = Arc::new(TempDir::new().unwrap());
        write(&folder.path().join(dataset));
        std::array::from_fn(|replica| {
            let state = format!("state-{replica}");
            Self::over(Arc::clone(&folder), &[dataset], &["--state", &state, "--listen", "127.0.0.1:0"])
        })
    }

    /// Starts a server over datasets that lie in folders of their names.
    pub(crate) fn over(folder: Arc<TempDir>, datasets: &[&str], arguments: &[&str]) -> Self {
        let datasets = datasets.iter().flat_map(|name| ["--dataset".to_owned(), format!("{name}={name}")]);
        let mut process = Command::new(binary())
            .current_dir(folder.path())
            .args(datasets)
            .args(["--metrics-listen", "127.0.0.1:0"])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines().map_while(Result::ok);
        let mut said = Vec::new();
        // The address of the data is said before that of the metrics.
        let mut after = |words: &str| {
            lines.by_ref().find_map(|line| {
                let url = line.split_once(words).map(|(_, url)| url.trim().to_owned());
                said.push(line);
                url
            })
        };
        let urls = after("listening on ").zip(after("metrics on "));
        let Some((url, metrics)) = urls else { panic!("the server ended before it listened: {said:#?}") };
        // A pipe that nobody reads would stop the server once it is full.
        thread::spawn(move || lines.for_each(drop));
        Self { process, url, metrics, folder }
    }

    /// Its process.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Waits until it has ended of itself, with the exit code 0.
    pub(crate) fn wait_for_end(mut self, within: Duration) {
        let deadline = Instant::now() + within;
        while Instant::now() < deadline {
            if let Some(status) = self.process.try_wait().unwrap() {
                return assert!(status.success(), "{status}");
            }
            thread::sleep(Duration::from_millis(20));
        }
        panic!("the server did not end");
    }

    /// Kills the server as `kill -9` does.
    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// `forebay --server URL` with the given arguments, ready to run in the server's folder.
    pub(crate) fn forebay(&self, arguments: &[&str]) -> Command {
        let mut command = forebay(arguments);
        command.env("FOREBAY_SERVER", &self.url).current_dir(self.folder.path());
        command
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// `forebay` with the given arguments and nothing of this test's environment that it would read.
pub(crate) fn forebay(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.args(arguments).stdin(Stdio::null());
    for (name, _) in env::vars_os() {
        if name.to_string_lossy().starts_with("FOREBAY_") {
            command.env_remove(name);
        }
    }
    command
}

/// The server beside this test in cargo's target folder, built when it is not there yet.
fn binary() -> PathBuf {
    // target/<profile>/deps/<this test>
    let test = env::current_exe().unwrap();
    let profile = test.ancestors().nth(2).unwrap();
    let binary = profile.join("forebay-server").with_extension(env::consts::EXE_EXTENSION);
    if !binary.exists() {
        let mut build = Command::new(env!("CARGO"));
        build
            .args(["build", "-p", "forebay-server", "--bin", "forebay-server", "--target-dir"])
            .arg(profile.parent().unwrap());
        if profile.ends_with("release") {
            build.arg("--release");
        }
        assert!(build.status().unwrap().success(), "forebay-server does not build");
    }
    binary
}
