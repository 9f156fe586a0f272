//! The live view on a terminal: keys, figures and sizes as they come, and the terminal given back however it ends.

use std::io;
use std::time::Duration;

use crossterm::event::{Event, EventStream};
use futures::StreamExt;
use ratatui::DefaultTerminal;

use super::screen::{Screen, Step};
use super::view;
use crate::cli::failure::Failure;
use crate::top::Watch;

/// The terminal while it is the view's: raw, its other screen shown. Dropping it gives it back; a panic does so before its
/// message.
struct Stage(DefaultTerminal);

/// Shows the servers until a key ends it.
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
                // A new size, most likely: drawing asks for it.
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(Failure::Terminal(error)),
                // The terminal has gone.
                None => return Ok(()),
            },
        }
    }
}

// === impl Stage ===

impl Stage {
    fn enter() -> io::Result<Self> {
        // One that fails halfway may have begun.
        ratatui::try_init().map(Self).inspect_err(|_| ratatui::restore())
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // The cursor comes back with the terminal's own end, right after this.
        let _ = ratatui::try_restore();
    }
}
