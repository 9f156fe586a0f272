//! The program `forebay-prepare`: where it is, its version, and one run of it as a child process.
//!
//! The child gets the server's environment, with its credentials of stores, but no setting of the server. It stops when
//! its standard input closes, so that it ends with this process, however that ends.

use std::{
    env,
    ffi::OsString,
    io,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt},
    process::{Child, ChildStdin, Command},
    time,
};

use super::error::ViewError;

/// The program.
const PREPARE: &str = "forebay-prepare";

/// Settings of programs of this project: both would read them.
const SETTINGS_PREFIX: &str = "FOREBAY_";

/// Longest line of the child that is kept.
const LINE_BYTES_MAX: usize = 4096;

/// Time in which the program must print its version.
const VERSION_TIME: Duration = Duration::from_secs(10);

/// Time in which a child must remove its files and exit.
const STOP_TIME: Duration = Duration::from_millis(800);

/// An installed program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PrepareProgram {
    path: PathBuf,
    /// Its name and version.
    pub version: String,
}

/// A running child.
#[derive(Debug)]
pub(super) struct PrepareRun {
    program: String,
    child: Child,
    /// Closing it stops the child.
    stdin: Option<ChildStdin>,
}

// === impl PrepareProgram ===

impl PrepareProgram {
    /// Finds the program next to this one, or else on PATH, and reads its version.
    pub(super) async fn find() -> Result<Self, ViewError> {
        let path = beside_this_program().unwrap_or_else(|| PathBuf::from(PREPARE));
        let run = PrepareRun::start(&path, &["--version".into()])?;
        let version = run.output(|_| {}, time::sleep(VERSION_TIME)).await.map_err(|error| match error {
            ViewError::Stopped => {
                let reason = format!("--version did not end within {} s", VERSION_TIME.as_secs());
                ViewError::Program { program: path.display().to_string(), reason }
            }
            other => other,
        })?;
        Ok(Self { path, version })
    }

    #[cfg(test)]
    pub(super) fn of_version(version: &str) -> Self {
        Self { path: PathBuf::from(PREPARE), version: version.to_owned() }
    }

    /// Starts the program.
    pub(super) fn start(&self, arguments: &[OsString]) -> Result<PrepareRun, ViewError> {
        PrepareRun::start(&self.path, arguments)
    }
}

fn beside_this_program() -> Option<PathBuf> {
    let path = env::current_exe().ok()?.parent()?.join(PREPARE);
    path.is_file().then_some(path)
}

// === impl PrepareRun ===

impl PrepareRun {
    fn start(path: &Path, arguments: &[OsString]) -> Result<Self, ViewError> {
        let mut command = Command::new(path);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        // An interrupt at the terminal is the server's: it stops the child when its calls have ended.
        command.process_group(0);
        let settings = env::vars_os().map(|(name, _)| name);
        settings.filter(|name| name.as_encoded_bytes().starts_with(SETTINGS_PREFIX.as_bytes())).for_each(|name| {
            command.env_remove(name);
        });
        let program = path.display().to_string();
        let mut child = command.spawn().map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => ViewError::NotInstalled,
            _ => ViewError::Program { program: program.clone(), reason: source.to_string() },
        })?;
        let stdin = child.stdin.take();
        Ok(Self { program, child, stdin })
    }

    /// Waits for the end, and returns the last line that the child printed. `progress` gets its lines of progress; its
    /// error is the error of the run. Stops the child when `stop` completes.
    pub(super) async fn output(
        mut self,
        progress: impl Fn(&str),
        stop: impl Future<Output = ()>,
    ) -> Result<String, ViewError> {
        // Kept here: the library closes it when it waits, which would stop the child.
        let stdin = self.stdin.take();
        let outcome = tokio::select! {
            outcome = self.finish(progress) => Some(outcome),
            () = stop => None,
        };
        drop(stdin);
        if let Some(outcome) = outcome {
            return outcome;
        }
        // One that does not stop in time is killed when it is dropped.
        let _ = time::timeout(STOP_TIME, self.child.wait()).await;
        Err(ViewError::Stopped)
    }

    async fn finish(&mut self, progress: impl Fn(&str)) -> Result<String, ViewError> {
        let (stdout, stderr) = (self.child.stdout.take(), self.child.stderr.take());
        let (mut printed, mut error) = (String::new(), None);
        let of_stderr = |line: &str| match line.split_once(": ") {
            Some(("progress", text)) => progress(text),
            Some(("error", text)) => _ = error.get_or_insert_with(|| text.to_owned()),
            _ => {}
        };
        tokio::join!(lines(stdout, |line| line.clone_into(&mut printed)), lines(stderr, of_stderr));
        let status = self.child.wait().await.map_err(|source| self.failed(&source.to_string()))?;
        if status.success() {
            return Ok(printed);
        }
        // "exit status: 1", or "signal: 9 (SIGKILL)" of a process that took too much memory.
        Err(error.map_or_else(|| self.failed(&format!("it ended with {status}")), ViewError::Failed))
    }

    fn failed(&self, reason: &str) -> ViewError {
        ViewError::Program { program: self.program.clone(), reason: reason.to_owned() }
    }
}

/// Reads a stream to its end.
async fn lines(stream: Option<impl AsyncRead + Unpin>, mut each: impl FnMut(&str)) {
    let Some(mut stream) = stream else { return };
    let (mut buffer, mut line) = ([0; 4096], Vec::new());
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        for byte in &buffer[..count] {
            match byte {
                b'\n' => each(&String::from_utf8_lossy(&std::mem::take(&mut line))),
                byte if line.len() < LINE_BYTES_MAX => line.push(*byte),
                _ => {}
            }
        }
    }
}
