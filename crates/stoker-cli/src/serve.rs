//! `stoker s3`: a folder as an S3 store on this machine, for trying things out.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::thread;
use std::time::Duration;

use stoker_engine::error::Bytes;
use stoker_s3::{Backend, Config, Credentials, Faults, Server};

use crate::args::ServeArguments;
use crate::interrupt;
use crate::outcome::{self, Failure, Outcome};

#[expect(clippy::print_stderr, reason = "stderr is where a command talks")]
pub(crate) fn serve(arguments: &ServeArguments, out: &mut dyn Write) -> Outcome {
    let failure = |code, message| Failure::Other { code, message };
    if !arguments.root.is_dir() {
        let message = format!("there is no folder to serve: {}", arguments.root.display());
        return Err(failure(outcome::NOT_FOUND, message));
    }
    let config = Config {
        address: arguments.address,
        profile: arguments.profile,
        seed: arguments.seed,
        total_bandwidth: arguments.bandwidth.map(|mbit| (mbit * 1e6 / 8.0).max(1.0) as u64),
        credentials: credentials()?,
        faults: arguments.faults.as_deref().map(faults).transpose()?.unwrap_or_default(),
        ..Config::default()
    };
    let server = Server::start(&config, Backend::folder(&arguments.root))
        .map_err(|error| failure(outcome::FAILED, error.to_string()))?;
    let interrupt = interrupt::is_noted();
    writeln!(out, "{}", server.endpoint())?;
    out.flush()?;
    let key = &config.credentials.access_key_id;
    eprintln!("serving {} (key {key:?}) until Ctrl-C", arguments.root.display());
    while !interrupt.heard() {
        thread::sleep(Duration::from_millis(50));
    }
    let stats = server.stats();
    eprintln!("served {} requests, {}", stats.requests, Bytes(stats.bytes));
    if arguments.faults.is_some() {
        let injected = server.injected().into_iter().map(|(name, times)| format!("{name} {times}"));
        let injected = injected.collect::<Vec<_>>().join(", ");
        eprintln!("faults: {}", if injected.is_empty() { "none" } else { &injected });
    }
    server.close();
    Ok(outcome::OK)
}

/// The faults of a file.
fn faults(path: &Path) -> Result<Faults, Failure> {
    let failure = |code, reason: &dyn std::fmt::Display| Failure::Other {
        code,
        message: format!("{}: {reason}", path.display()),
    };
    let text = fs::read_to_string(path).map_err(|error| failure(outcome::NOT_FOUND, &error))?;
    let read = match path.extension().and_then(|extension| extension.to_str()) {
        Some("toml") => Faults::from_toml(&text),
        Some("json") => Faults::from_json(&text),
        _ => return Err(failure(outcome::USAGE, &"faults are a .toml or a .json file")),
    };
    read.map_err(|error| failure(outcome::USAGE, &error))
}

/// The key pair in the environment, or the public one.
fn credentials() -> Result<Credentials, Failure> {
    let [id, secret] = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"].map(|name| {
        let value = std::env::var_os(name).and_then(|value| value.into_string().ok());
        value.filter(|value| !value.is_empty())
    });
    match (id, secret) {
        (Some(access_key_id), Some(secret_access_key)) => {
            Ok(Credentials { access_key_id, secret_access_key })
        }
        (None, None) => Ok(Credentials::default()),
        _ => Err(Failure::Other {
            code: outcome::USAGE,
            message:
                "only one of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY is set; set both, or \
                      neither"
                    .to_owned(),
        }),
    }
}
