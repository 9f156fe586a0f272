//! The parent process that owns a run: standard input closes when it ends, however it ends.

use std::{
    io::{self, Read},
    process, thread,
    time::Duration,
};

use rustix::process::{Signal, getpid, kill_process};

/// Time to remove the files of the run before the process exits anyway.
const CLEANUP_TIME: Duration = Duration::from_secs(5);

/// Sends SIGTERM to this process when standard input closes, and ends it if it still runs after some seconds.
pub fn stop_with_stdin() -> io::Result<()> {
    let watch = || {
        let mut stdin = io::stdin().lock();
        let mut buffer = [0; 64];
        while stdin.read(&mut buffer).is_ok_and(|count| count > 0) {}
        // Before there are files, the signal ends the process at once.
        let _ = kill_process(getpid(), Signal::TERM);
        thread::sleep(CLEANUP_TIME);
        process::exit(1);
    };
    thread::Builder::new().name("stdin".to_owned()).spawn(watch).map(|_| ())
}
