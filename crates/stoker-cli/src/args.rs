//! What can be said on the command line. Its help is its documentation.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand};
use stoker_s3::Profile;

/// Whose turn it is after each exit code.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0    done
  1    the store, the disk or stoker itself failed
  2    the command line, the recipe or its memory limit is wrong
  3    the data is wrong
  4    the store refused us, or there are no credentials
  5    a file, object or folder was not found
  130  interrupted (Ctrl-C)

Data goes to stdout, everything else to stderr. NO_COLOR turns colours off.";

/// Feeds vision-language trainers from object storage.
#[derive(Debug, Parser)]
#[command(name = "stoker", version, after_help = EXIT_CODES)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Drain a recipe as a trainer would, and report who waited for whom
    Run(RunArguments),
    /// Show one sample as the model sees it: turns, tokens (learned ones marked) and images
    Peek(PeekArguments),
    /// Build the indexes of a recipe's datasets, where there are none, and show what they hold
    Index(IndexArguments),
    /// Show what a run will see of each dataset, and warn of what is seen too little or too often
    Plan(PlanArguments),
    /// Check every sample of a recipe's datasets as a run would, and list those that can't be used
    Verify(VerifyArguments),
    /// Watch the loaders that run on this machine: who waits for whom, how fast, and what limits them
    Top(TopArguments),
    /// Check what a run depends on (store, credentials, machine, model, data), and say what will go wrong
    Doctor(DoctorArguments),
    /// Say how long a trainer will wait on other machines, and what it needs, from a short measurement
    Size(SizeArguments),
    /// Show a recipe with all its defaults, as TOML
    Recipe(RecipeArguments),
    /// Serve a folder over the S3 protocol, if asked with the latency of a distant store
    S3(ServeArguments),
    /// Compare a hand-written Python loader with stoker (in the Python package)
    #[command(disable_help_flag = true)]
    Demo {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
        arguments: Vec<std::ffi::OsString>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct RecipeArguments {
    /// The recipe: a .toml or .json file
    #[arg(value_name = "RECIPE")]
    pub(crate) recipe: PathBuf,
    /// Override one key, such as pack.batch-size=4; may be given often
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct IndexArguments {
    #[command(flatten)]
    pub(crate) recipe: RecipeArguments,
    /// Measure all samples too, so that packing to pack.max-tokens has nothing to fetch
    #[arg(long)]
    pub(crate) sizes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RunArguments {
    #[command(flatten)]
    pub(crate) recipe: RecipeArguments,
    /// Which rank of the data-parallel group to be
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    pub(crate) rank: u32,
    /// How many ranks there are
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) world_size: u32,
    /// Stop after this many batches; without it, an endless recipe is drained for one epoch
    #[arg(long, allow_negative_numbers = true)]
    pub(crate) batches: Option<u64>,
    /// Print the report and the settings as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Write the report as a page with plots
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Record what happens when, for Perfetto; compressed if the name ends in .gz
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// How many batches to record
    #[arg(long, value_name = "N", requires = "trace", default_value_t = 20)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) trace_steps: u64,
}

#[derive(Debug, Args)]
pub(crate) struct PlanArguments {
    #[command(flatten)]
    pub(crate) recipe: RecipeArguments,
    /// How many batches each rank takes; without it, all that the recipe asks for, or one epoch of an
    /// endless one
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) batches: Option<u64>,
    /// How many ranks there are
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) world_size: u32,
    /// Warn of datasets that are seen more often than this
    #[arg(long, value_name = "EPOCHS", default_value_t = 4.0)]
    pub(crate) most_epochs: f64,
    /// Print it as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Exit code 0: no bad samples. 3: there are some. Others as for all commands: it did not get to the end.")]
pub(crate) struct VerifyArguments {
    #[command(flatten)]
    pub(crate) recipe: RecipeArguments,
    /// Print JSON, one object a line: each bad sample, and at the end a summary
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
A loader answers its own user and root, on Linux, with nothing set. On a terminal the picture changes
once a second, elsewhere a line for each loader is printed once a second; Ctrl-C ends it.
Exit code 4: the process is another user's. 5: no loader runs.")]
pub(crate) struct TopArguments {
    /// Show the loaders of this process alone, and end with them
    #[arg(value_name = "PID")]
    pub(crate) pid: Option<u32>,
    /// Look for a second, print what was seen, and end
    #[arg(long)]
    pub(crate) once: bool,
    /// Print a JSON object for each loader at each look
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Exit code 0: nothing will fail, though there may be warnings. Others as for all commands, by the first
check that failed. No check stops those after it.")]
pub(crate) struct DoctorArguments {
    #[command(flatten)]
    pub(crate) recipe: RecipeArguments,
    /// Print it as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
A batch is measured with the recipe's own data, store and model, on this machine. What is said of the
machines is said of each node; without it they are like this one.")]
pub(crate) struct SizeArguments {
    #[command(flatten)]
    pub(crate) recipe: RecipeArguments,
    /// GPUs of the job, each with a rank of its own
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(crate) gpus: u64,
    /// How long the trainer takes for a batch of one rank: seconds, or 350ms
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub(crate) step_time: f64,
    /// Samples in a batch of one rank, in place of the recipe's pack.batch-size
    #[arg(long, value_name = "SAMPLES", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) batch: Option<u32>,
    /// GPUs of a node, at most
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) gpus_per_node: u64,
    /// Cores of a node that its loaders may have; without it, those of this machine
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) cores: Option<u32>,
    /// Gbit/s of a node's network card; without it, it limits only if the one here does
    #[arg(long, value_name = "GBIT", value_parser = positive)]
    pub(crate) network: Option<f64>,
    /// How long to measure, about
    #[arg(long, value_name = "TIME", default_value = "10", value_parser = seconds)]
    pub(crate) measure: f64,
    /// Print it as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct PeekArguments {
    #[command(flatten)]
    pub(crate) recipe: RecipeArguments,
    /// Position of the sample in the plan, from 0
    #[arg(long, value_name = "POSITION", default_value_t = 0, allow_negative_numbers = true)]
    pub(crate) sample: u64,
    /// Folder to write each image to, as the model sees it
    #[arg(long, value_name = "FOLDER")]
    pub(crate) png: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Requests are signed with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY as this process has them in its
environment; without them, with the public pair stoker and stoker-secret.")]
pub(crate) struct ServeArguments {
    /// Folder to serve; its subfolders are the buckets
    #[arg(long, value_name = "FOLDER")]
    pub(crate) root: PathBuf,
    /// Which store to be as slow as
    #[arg(long, default_value = "none", value_parser = profiles())]
    pub(crate) profile: Profile,
    /// Address to listen on; port 0 takes a free one
    #[arg(long, default_value = "127.0.0.1:0")]
    pub(crate) address: SocketAddr,
    /// Chooses the draws of the profile
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,
    /// Mbit/s of all answers together, as a network card has them
    #[arg(long, value_name = "MBIT", value_parser = positive)]
    pub(crate) bandwidth: Option<f64>,
    /// What goes wrong: a .toml or .json file of faults (docs/guides/faults.md)
    #[arg(long, value_name = "FILE")]
    pub(crate) faults: Option<PathBuf>,
}

fn profiles() -> impl TypedValueParser<Value = Profile> {
    PossibleValuesParser::new(Profile::ALL.map(Profile::as_str)).map(|name| {
        let profile = Profile::ALL.into_iter().find(|profile| profile.as_str() == name);
        profile.expect("the parser lets only names of profiles through")
    })
}

/// A time above zero: a number of seconds, or one with `s` or `ms` behind it.
fn seconds(text: &str) -> Result<f64, String> {
    let (number, in_a_second) = match text.strip_suffix("ms") {
        Some(number) => (number, 1000.0),
        None => (text.strip_suffix('s').unwrap_or(text), 1.0),
    };
    Ok(positive(number.trim()).map_err(|_| "write it as 0.35, 0.35s or 350ms".to_owned())?
        / in_a_second)
}

/// A number above zero.
fn positive(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| "a number above 0 is needed".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_seconds_or_say_what_they_are() {
        assert_eq!(["0.5", "0.5s", "350ms", "2 s"].map(seconds), [0.5, 0.5, 0.35, 2.0].map(Ok));
        for wrong in ["0", "-1", "soon", "inf", "nan", "5m", ""] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
