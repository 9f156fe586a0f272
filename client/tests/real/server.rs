//! Starting the real server on free ports, and ending it with the test.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::{env, thread};

use tempfile::TempDir;

use crate::data;

/// A running `forebay-server` with the dataset `numbers` and the unreadable dataset `broken`.
pub(crate) struct Server {
    process: Child,
    pub(crate) url: String,
    /// Holds the data and the state; `forebay` runs here.
    pub(crate) folder: TempDir,
}

impl Server {
    /// Starts a server on a free loopback port.
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
        let mut process = Command::new(binary())
            .current_dir(path)
            .args(["--dataset", "numbers=numbers", "--dataset", "broken=broken", "--state", "state"])
            .args(["--listen", &address(path), "--metrics-listen", "127.0.0.1:0"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines().map_while(Result::ok);
        let mut said = Vec::new();
        let url = lines.by_ref().find_map(|line| {
            let url = line.split_once("listening on ").map(|(_, url)| url.trim().to_owned());
            said.push(line);
            url
        });
        let Some(url) = url else { panic!("the server ended before it listened: {said:#?}") };
        // A pipe that nobody reads would stop the server once it is full.
        thread::spawn(move || lines.for_each(drop));
        Self { process, url, folder }
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
