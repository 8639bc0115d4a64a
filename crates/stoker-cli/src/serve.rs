//! `stoker s3`: a folder as an S3 store on this machine, for trying things out.

use std::io::Write;
use std::thread;
use std::time::Duration;

use stoker_engine::error::Bytes;
use stoker_s3::{Backend, Config, Credentials, Server};

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
        credentials: credentials()?,
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
    server.close();
    Ok(outcome::OK)
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
