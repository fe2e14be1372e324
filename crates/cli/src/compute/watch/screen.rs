//! One screen of a terminal: taken, drawn on, and given back as it was.

use std::io::{IsTerminal as _, Read as _, Write as _, stdin, stdout};
use std::time::Duration;

use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr,
};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use crate::failure::{CliResult, Failure};
use crate::output::width::size;

/// The other screen, without a cursor; and back.
const TAKE: &str = "\x1b[?1049h\x1b[?25l";
const GIVE_BACK: &str = "\x1b[?25h\x1b[?1049l";
const HOME: &str = "\x1b[H";
const CLEAR_LINE: &str = "\x1b[K";
const CLEAR_BELOW: &str = "\x1b[J";
const CTRL_C: u8 = 3;

pub enum Event {
    /// Somebody wants to leave.
    Leave,
    Resized,
    /// Nothing happened for as long as was waited.
    Time,
}

pub struct Screen {
    /// How the terminal was, if keys come from one.
    before: Option<Termios>,
    keys: mpsc::Receiver<u8>,
    interrupt: Signal,
    terminate: Signal,
    resize: Signal,
}

impl Screen {
    pub fn take() -> CliResult<Screen> {
        let listen = |kind| {
            signal(kind).map_err(|why| Failure::error(format!("cannot listen to signals: {why}")))
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
            // It ends with the process: nothing else can end a read from a terminal.
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

    /// Draws all of it: what does not fit is left out.
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

/// Keys one by one, not shown, and Ctrl-C as a key: whoever presses it gets the old screen back first.
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

/// That the terminal is gone is seen at the next look.
fn write(text: &str) {
    let mut out = stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
