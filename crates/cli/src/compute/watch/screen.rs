//! The screen of a terminal: taken over, drawn on, and restored.

use std::io::{IsTerminal as _, Read as _, Write as _, stdin, stdout};
use std::time::Duration;

use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr,
};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use crate::failure::{CliResult, Failure};
use crate::output::width::size;

/// Switches to the alternate screen without a cursor, and back.
const TAKE: &str = "\x1b[?1049h\x1b[?25l";
const GIVE_BACK: &str = "\x1b[?25h\x1b[?1049l";
const HOME: &str = "\x1b[H";
const CLEAR_LINE: &str = "\x1b[K";
const CLEAR_BELOW: &str = "\x1b[J";
const CTRL_C: u8 = 3;

pub enum Event {
    /// The user wants to quit.
    Leave,
    Resized,
    /// Nothing happened within the given time.
    Time,
}

pub struct Screen {
    /// The previous settings of the terminal, if keys come from one.
    before: Option<Termios>,
    keys: mpsc::Receiver<u8>,
    interrupt: Signal,
    terminate: Signal,
    resize: Signal,
}

impl Screen {
    pub fn take() -> CliResult<Screen> {
        let listen = |kind| {
            signal(kind).map_err(|why| Failure::error(format!("cannot listen for signals: {why}")))
        };
        let (sender, keys) = mpsc::channel(16);
        let mut screen = Screen {
            before: None,
            keys,
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            resize: listen(SignalKind::window_change())?,
        };
        if stdin().is_terminal() {
            screen.before = Some(raw_keys()?);
            // The thread ends with the process: a read from a terminal cannot be interrupted.
            std::thread::spawn(move || {
                for key in stdin().lock().bytes().map_while(Result::ok) {
                    if sender.blocking_send(key).is_err() {
                        return;
                    }
                }
            });
        }
        write(TAKE);
        Ok(screen)
    }

    /// Draws the lines, and leaves out what does not fit.
    pub fn draw(&self, lines: &[String]) {
        let (columns, rows) = size();
        let mut text = String::from(HOME);
        for (index, line) in lines.iter().take(rows).enumerate() {
            if index > 0 {
                text.push_str("\r\n");
            }
            text.extend(line.chars().take(columns));
            text.push_str(CLEAR_LINE);
        }
        text.push_str(CLEAR_BELOW);
        write(&text);
    }

    pub async fn wait(&mut self, patience: Duration) -> Event {
        let has_keys = self.before.is_some();
        let deadline = tokio::time::Instant::now() + patience;
        loop {
            tokio::select! {
                key = self.keys.recv(), if has_keys => match key {
                    Some(b'q' | b'Q' | CTRL_C) | None => return Event::Leave,
                    Some(_) => {}
                },
                _ = self.interrupt.recv() => return Event::Leave,
                _ = self.terminate.recv() => return Event::Leave,
                _ = self.resize.recv() => return Event::Resized,
                () = tokio::time::sleep_until(deadline) => return Event::Time,
            }
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        write(GIVE_BACK);
        if let Some(before) = &self.before {
            let _ = tcsetattr(stdin(), OptionalActions::Flush, before);
        }
    }
}

/// Reads keys one by one without echo, and Ctrl-C as a key, so that the old screen is restored first.
fn raw_keys() -> CliResult<Termios> {
    let failed =
        |why: rustix::io::Errno| Failure::error(format!("cannot set up the terminal: {why}"));
    let before = tcgetattr(stdin()).map_err(failed)?;
    let mut raw = before.clone();
    raw.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG);
    raw.special_codes[SpecialCodeIndex::VMIN] = 1;
    raw.special_codes[SpecialCodeIndex::VTIME] = 0;
    tcsetattr(stdin(), OptionalActions::Now, &raw).map_err(failed)?;
    Ok(before)
}

/// If the terminal has been closed, the next update will notice.
fn write(text: &str) {
    let mut out = stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
