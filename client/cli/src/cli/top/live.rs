//! Live view on a terminal: handles keys, new figures and resizes, and restores the terminal on exit.

use std::{io, time::Duration};

use crossterm::event::{Event, EventStream};
use futures::StreamExt;
use ratatui::DefaultTerminal;

use super::{
    screen::{Screen, Step},
    view,
};
use crate::{cli::failure::Failure, top::Watch};

/// Terminal in raw mode, on the alternate screen. Dropping it restores the terminal; a panic restores it before its
/// message.
struct Stage(DefaultTerminal);

/// Shows the servers until a key quits.
pub(super) async fn run(mut watch: Watch, interval: Duration) -> Result<(), Failure> {
    let mut stage = Stage::enter().map_err(Failure::Terminal)?;
    let mut events = EventStream::new();
    let mut screen = Screen { snapshot: watch.snapshot(), ..Screen::default() };
    loop {
        stage.0.draw(|frame| view::draw(frame, &screen, interval)).map_err(Failure::Terminal)?;
        tokio::select! {
            () = watch.round() => screen.update(watch.snapshot()),
            event = events.next() => match event {
                Some(Ok(Event::Key(key))) => if screen.press(key) == Step::Quit { return Ok(()) },
                // Most likely a resize, which drawing handles.
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(Failure::Terminal(error)),
                // The terminal was closed.
                None => return Ok(()),
            },
        }
    }
}

// === impl Stage ===

impl Stage {
    fn enter() -> io::Result<Self> {
        // A failed initialization may have changed the terminal.
        ratatui::try_init().map(Self).inspect_err(|_| ratatui::restore())
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // Dropping the inner terminal shows the cursor.
        let _ = ratatui::try_restore();
    }
}
