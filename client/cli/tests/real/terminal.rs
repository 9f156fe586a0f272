//! `forebay` on a pseudo terminal that records its output.

use std::{
    fs::{File, OpenOptions},
    io::{Read, Write},
    os::unix::ffi::OsStrExt,
    path::Path,
    process::{Child, Command},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{LocalModes, OutputModes, Winsize, tcgetattr, tcsetwinsize},
};

/// Generous time limit.
const PATIENCE: Duration = Duration::from_mins(2);

/// Program on a pseudo terminal.
pub(crate) struct Terminal {
    pub(crate) program: Child,
    keyboard: File,
    /// The program's side, kept open to inspect its modes.
    line: File,
    written: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    /// Runs a command on a new terminal of 120 columns and 30 lines.
    pub(crate) fn run(mut command: Command) -> Self {
        let keyboard = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&keyboard).unwrap();
        unlockpt(&keyboard).unwrap();
        let name = ptsname(&keyboard, Vec::new()).unwrap();
        let path = Path::new(std::ffi::OsStr::from_bytes(name.to_bytes()));
        let line = OpenOptions::new().read(true).write(true).open(path).unwrap();
        tcsetwinsize(&line, Winsize { ws_row: 30, ws_col: 120, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        let end = || line.try_clone().unwrap();
        let program = command.env("TERM", "xterm-256color").stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
        let keyboard = File::from(keyboard);
        let written = Arc::new(Mutex::new(Vec::new()));
        let (mut screen, seen) = (keyboard.try_clone().unwrap(), Arc::clone(&written));
        // Ends when both sides are closed.
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = screen.read(&mut bytes) {
                seen.lock().unwrap().extend_from_slice(&bytes[..count]);
            }
        });
        Self { program, keyboard, line, written }
    }

    /// Waits until the program has written this text.
    pub(crate) fn wait_for(&self, text: &str) {
        let start = Instant::now();
        while !self.written().contains(text) {
            assert!(start.elapsed() < PATIENCE, "{text:?} is not in {:?}", self.written());
            thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn written(&self) -> String {
        String::from_utf8_lossy(&self.written.lock().unwrap()).into_owned()
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Whether the terminal is in raw mode.
    pub(crate) fn is_raw(&self) -> bool {
        let modes = tcgetattr(&self.line).unwrap();
        let cooked = LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG;
        assert_eq!(modes.local_modes.intersects(cooked), modes.output_modes.contains(OutputModes::OPOST), "halfway");
        !modes.local_modes.intersects(cooked)
    }

    /// Waits for the program to exit and returns its exit code.
    pub(crate) fn end(&mut self) -> Option<i32> {
        let start = Instant::now();
        loop {
            if let Some(status) = self.program.try_wait().unwrap() {
                return status.code();
            }
            assert!(start.elapsed() < PATIENCE, "still running: {:?}", self.written());
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}
