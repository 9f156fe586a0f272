//! A real server on free ports that ends with the test.

use std::{
    env,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;

use crate::data;

/// Running `forebay-server`.
pub(crate) struct Server {
    process: Child,
    pub(crate) url: String,
    /// URL of the metrics page.
    pub(crate) metrics: String,
    /// Data and state; working directory of `forebay`.
    pub(crate) folder: Arc<TempDir>,
}

impl Server {
    /// Starts a server on a free loopback port, with the dataset `numbers` and the unreadable dataset `broken`.
    pub(crate) fn start() -> Self {
        Self::listen(|_| "127.0.0.1:0".to_owned())
    }

    /// Starts a server that listens at the address derived from its folder.
    pub(crate) fn listen(address: impl FnOnce(&Path) -> String) -> Self {
        let folder = TempDir::new().unwrap();
        let path = folder.path();
        data::write(&path.join("numbers"));
        std::fs::create_dir(path.join("broken")).unwrap();
        std::fs::write(path.join("broken/part.parquet"), "PAR1 this is not a Parquet file PAR1").unwrap();
        let address = address(path);
        Self::over(Arc::new(folder), &["numbers", "broken"], &["--state", "state", "--listen", &address])
    }

    /// Starts servers on free loopback ports over one folder of one dataset, each with its own state.
    pub(crate) fn replicas<const COUNT: usize>(dataset: &str, write: impl FnOnce(&Path)) -> [Self; COUNT] {
        let folder = Arc::new(TempDir::new().unwrap());
        write(&folder.path().join(dataset));
        std::array::from_fn(|replica| {
            let state = format!("state-{replica}");
            Self::over(Arc::clone(&folder), &[dataset], &["--state", &state, "--listen", "127.0.0.1:0"])
        })
    }

    /// Starts a server over datasets in folders of the same names.
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
        let mut log = Vec::new();
        // The Flight address is logged before that of the metrics.
        let mut after = |words: &str| {
            lines.by_ref().find_map(|line| {
                let url = line.split_once(words).map(|(_, url)| url.trim().to_owned());
                log.push(line);
                url
            })
        };
        let urls = after("listening on ").zip(after("metrics on "));
        let Some((url, metrics)) = urls else { panic!("the server ended before it listened: {log:#?}") };
        // A full pipe would block the server.
        thread::spawn(move || lines.for_each(drop));
        Self { process, url, metrics, folder }
    }

    /// Returns the process id.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Waits until the server has exited by itself with code 0. The connections of the caller's runtime go on meanwhile:
    /// a server that drains waits for their clients' answers.
    pub(crate) async fn wait_for_end(mut self, within: Duration) {
        let deadline = Instant::now() + within;
        while Instant::now() < deadline {
            if let Some(status) = self.process.try_wait().unwrap() {
                return assert!(status.success(), "{status}");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("the server did not end");
    }

    /// Kills the server with SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Returns `forebay --server URL` with these arguments, to run in the server's folder.
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

/// Returns `forebay` with these arguments and without the test's FOREBAY_ variables.
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

/// Returns the server program in cargo's target folder, and builds it if it is missing.
pub(crate) fn binary() -> PathBuf {
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
