//! The program that a profile names in `credential_process`.
//!
//! Neither its command line nor what it prints is shown: either may hold secrets.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use object_store::aws::AwsCredential;
use serde::Deserialize;

use super::super::failure::Failure;
use super::{Obtained, Remedy, key, time_until, unconfigured};

/// A program may wait for a network of its own, or for a key to be touched.
const LIMIT: Duration = Duration::from_mins(1);
/// How long to wait until a program that has said all is asked again whether it has ended.
const PAUSE: Duration = Duration::from_millis(5);
/// Most that it may print.
const MOST: u64 = 1 << 20;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Printed {
    version: u32,
    access_key_id: String,
    secret_access_key: String,
    session_token: Option<String>,
    expiration: Option<String>,
}

/// Runs the program and takes what it prints.
pub(super) async fn run(profile: &str, command: &str) -> Result<Obtained<AwsCredential>, Failure> {
    let failed = |what: &str| {
        unconfigured(format!("the credential_process of profile {profile:?} {what}"))
            .hint("run the command by hand to see why")
    };
    let child =
        shell(command).spawn().map_err(|error| failed(&format!("can't be run ({error})")))?;
    let child = Arc::new(Mutex::new(child));
    let reading = tokio::task::spawn_blocking({
        let child = Arc::clone(&child);
        move || read(&child)
    });
    let Ok(read) = tokio::time::timeout(LIMIT, reading).await else {
        // Whether it ended in this very moment does not matter.
        drop(lock(&child).kill());
        return Err(failed("takes too long"));
    };
    let printed = match read {
        Ok(Ok((printed, true))) => printed,
        Ok(Ok((_, false))) => return Err(failed("ends with an error")),
        Ok(Err(error)) => return Err(failed(&format!("can't be read ({error})"))),
        Err(_) => return Err(failed("was not heard out")),
    };
    let printed: Printed = serde_json::from_slice(&printed)
        .map_err(|_| failed("does not print what it should (version 1 of AWS's JSON)"))?;
    if printed.version != 1 {
        return Err(failed(&format!("prints version {}, and 1 is known", printed.version)));
    }
    let hint = format!("run the credential_process of profile {profile:?} by hand to see why");
    Ok(Obtained {
        credential: key(
            &printed.access_key_id,
            &printed.secret_access_key,
            printed.session_token.as_deref(),
        )?,
        life: printed.expiration.as_deref().and_then(time_until),
        look: None,
        remedy: Remedy { renews: true, hint },
    })
}

fn shell(command: &str) -> Command {
    let (program, flag) = if cfg!(windows) { ("cmd", "/C") } else { ("sh", "-c") };
    let mut shell = Command::new(program);
    // Nobody sits there to answer it, and its words may be secrets.
    shell.args([flag, command]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    shell
}

/// What it printed, and whether it ended well.
fn read(child: &Mutex<Child>) -> std::io::Result<(Vec<u8>, bool)> {
    let mut printed = Vec::new();
    let output = lock(child).stdout.take();
    if let Some(output) = output {
        output.take(MOST).read_to_end(&mut printed)?;
    }
    // Not waited for under the lock, which whoever ends it must have.
    loop {
        if let Some(ended) = lock(child).try_wait()? {
            return Ok((printed, ended.success()));
        }
        std::thread::sleep(PAUSE);
    }
}

fn lock(child: &Mutex<Child>) -> std::sync::MutexGuard<'_, Child> {
    child.lock().unwrap_or_else(PoisonError::into_inner)
}
