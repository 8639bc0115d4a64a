//! `stoker top`: the loaders that run on this machine, and whom their trainers wait for. Loaders
//! answer without having been asked to listen (`stoker_engine::loader::Glance`).

mod frame;
mod rates;

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};
use std::thread;
use std::time::{Duration, Instant};

use console::Term;
use serde::Serialize;
use stoker_engine::loader::{Glance, Name, running};

use crate::args::TopArguments;
use crate::interrupt;
use crate::outcome::{self, Failure, Outcome};
use rates::Rates;

/// How often loaders are looked at.
const EVERY: Duration = Duration::from_secs(1);

/// How long one may take to answer: it has a thread for it that never blocks.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long to sleep before looking for Ctrl-C again.
const NAP: Duration = Duration::from_millis(50);

/// What is seen at once.
struct Look {
    seen: Vec<Seen>,
    /// Loaders that did not answer, and why.
    unseen: Vec<(Name, io::Error)>,
}

/// A loader, and how fast it was since the last look.
#[derive(Serialize)]
struct Seen {
    #[serde(skip)]
    name: Name,
    #[serde(flatten)]
    glance: Glance,
    rates: Rates,
}

pub(crate) fn top(arguments: &TopArguments, out: &mut dyn Write) -> Outcome {
    let interrupt = interrupt::is_noted();
    let mut before = BTreeMap::new();
    let mut screen = Screen::of(arguments);
    let mut first = true;
    loop {
        let begun = Instant::now();
        let look = look(arguments.pid, &mut before)?;
        let is_last = arguments.once && !first;
        if look.seen.is_empty() {
            if first || arguments.once {
                none(arguments, &look)?;
            } else if arguments.pid.is_some() {
                return Ok(outcome::OK);
            }
        }
        if is_last || !arguments.once {
            screen.show(out, &look)?;
            out.flush()?;
        }
        if is_last {
            return Ok(outcome::OK);
        }
        first = false;
        while begun.elapsed() < EVERY {
            if interrupt.heard() {
                return Ok(outcome::OK);
            }
            thread::sleep(NAP);
        }
    }
}

/// Whether it is an error that there is no loader: it is where one was named, and for scripts.
fn none(arguments: &TopArguments, look: &Look) -> Result<(), Failure> {
    let silent = look.unseen.iter().find(|(name, _)| arguments.pid == Some(name.pid()));
    if let Some((name, error)) = silent {
        let code = match error.kind() {
            io::ErrorKind::PermissionDenied => outcome::DENIED,
            _ => outcome::FAILED,
        };
        let message = format!("loader {name} does not say what it does: {error}");
        return Err(Failure::Other { code, message });
    }
    let message = match arguments.pid {
        Some(pid) => format!(
            "no loader runs in process {pid}; without a process, `stoker top` shows all that run on \
             this machine (in this network namespace: run it in the trainer's container)"
        ),
        None if arguments.once => "no loader runs on this machine (in this network namespace: run \
             it in the trainer's container)"
            .to_owned(),
        None => return Ok(()),
    };
    Err(Failure::Other { code: outcome::NOT_FOUND, message })
}

fn look(pid: Option<u32>, before: &mut BTreeMap<Name, Glance>) -> Result<Look, Failure> {
    let names = running().map_err(|error| Failure::Other {
        code: outcome::FAILED,
        message: format!("can't look for loaders: {error}"),
    })?;
    let (mut seen, mut unseen) = (Vec::new(), Vec::new());
    for name in names.into_iter().filter(|name| pid.is_none_or(|pid| name.pid() == pid)) {
        match name.ask(PATIENCE) {
            Ok(glance) => {
                let rates = Rates::between(before.get(&name), &glance);
                before.insert(name, glance.clone());
                seen.push(Seen { name, glance, rates });
            }
            // It was closed a moment ago, or is with a child that outlived the process of its loader.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
            Err(error) => unseen.push((name, error)),
        }
    }
    before.retain(|name, _| seen.iter().any(|seen| seen.name == *name));
    Ok(Look { seen, unseen })
}

/// How it is shown.
enum Screen {
    /// In place; as many lines were written last.
    Terminal {
        lines: usize,
    },
    Lines,
    Json,
}

impl Screen {
    fn of(arguments: &TopArguments) -> Self {
        match arguments {
            TopArguments { json: true, .. } => Self::Json,
            TopArguments { once: false, .. } if io::stdout().is_terminal() => {
                Self::Terminal { lines: 0 }
            }
            _ => Self::Lines,
        }
    }

    fn show(&mut self, out: &mut dyn Write, look: &Look) -> io::Result<()> {
        match self {
            Self::Json => {
                for seen in &look.seen {
                    serde_json::to_writer(&mut *out, seen)?;
                    writeln!(out)?;
                }
                Ok(())
            }
            Self::Lines => {
                look.seen.iter().try_for_each(|seen| writeln!(out, "{}", frame::line(seen)))
            }
            Self::Terminal { lines } => {
                let (height, width) = Term::stdout().size();
                let frame = frame::frame(look, usize::from(width), usize::from(height));
                if *lines > 0 {
                    // To the beginning of that many lines up, and clear from there on.
                    write!(out, "\x1b[{lines}F\x1b[J")?;
                }
                *lines = frame.len();
                frame.iter().try_for_each(|line| writeln!(out, "{line}"))
            }
        }
    }
}
