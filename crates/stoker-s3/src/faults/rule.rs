//! The words of a script: a fault, and which requests meet it.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use glob::Pattern;
use hyper::header::HeaderName;
use serde::Deserialize;

use super::seconds;

/// What goes wrong. Where a byte `at` may be given, it counts from 0 in the body, not in the
/// object; without it, it is the body's middle, and beyond the body its last byte.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", rename_all_fields = "kebab-case")]
#[serde(deny_unknown_fields)]
pub enum Fault {
    /// The connection is closed without an answer, and nobody listens for so long: connections are
    /// refused. Half a second if it is not said.
    Refuse {
        /// How long.
        #[serde(default, rename = "seconds", deserialize_with = "seconds")]
        lasts: Option<Duration>,
    },
    /// The connection is reset (RST): before the answer, or behind the bytes of the body up to `at`.
    Reset {
        /// The first byte that does not come.
        at: Option<u64>,
    },
    /// The connection is closed in order (FIN): before the answer, or behind the bytes of the body
    /// up to `at`, so that the body is shorter than its head said.
    HangUp {
        /// The first byte that does not come.
        at: Option<u64>,
    },
    /// The store answers with an error of its own, such as 500, 503 or 429.
    Status {
        /// The status.
        status: u16,
        /// The seconds that `Retry-After` says. S3 itself never says it.
        retry_after: Option<u64>,
        /// Whether it says them as a date.
        #[serde(default)]
        as_date: bool,
    },
    /// The answer is good, 200, and its body is an `<Error>`.
    ErrorBody {},
    /// The token has expired: 400 as S3 says it, or 403 as others do.
    Expired {
        /// The status; 400 if it is not said.
        status: Option<u16>,
    },
    /// The object is elsewhere.
    Redirect {
        /// The status, 301 (S3's word for another region) or 307; 301 if it is not said.
        status: Option<u16>,
        /// Where the bucket is: `x-amz-bucket-region`.
        region: Option<String>,
        /// The address of the other endpoint, such as `http://127.0.0.1:9000`: `Location`.
        endpoint: Option<String>,
    },
    /// `Content-Range` says other bytes than were asked for.
    WrongRange {},
    /// A part comes without `Content-Range`.
    NoRange {},
    /// The range is ignored: all of the object comes, with 200.
    WholeObject {},
    /// The body ends before `at`, and the head says that this is all of it, or says no length.
    Short {
        /// The first byte that does not come.
        at: Option<u64>,
        /// Whether the head says the length that the body has; otherwise it says none, and the end
        /// of the connection is the end of the body.
        told: bool,
    },
    /// Nothing comes for a time behind the bytes up to `at`.
    Stall {
        /// The first byte that is late.
        at: Option<u64>,
        /// For how long; for ever if it is not said.
        #[serde(default, rename = "seconds", deserialize_with = "seconds")]
        lasts: Option<Duration>,
    },
    /// The body comes slowly.
    Drip {
        /// Bytes a second.
        rate: u64,
    },
    /// One byte of the body is another one.
    Flip {
        /// Which.
        at: Option<u64>,
    },
    /// The first half of the body comes twice, in place of the second.
    RepeatHalf {},
    /// The object was replaced: its ETag is another one from now on, and the old one is not met.
    Replaced {},
    /// A page of a listing is the one before it once more.
    RepeatPage {},
}

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Operation {
    /// An object, or a part of it.
    Get,
    /// What is known of an object.
    Head,
    /// A page of a listing.
    List,
    /// That an object be stored.
    Put,
    /// Anything else.
    Other,
}

/// Which requests meet a fault: those of which all is true that is said here.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Rule {
    /// What they meet.
    pub fault: Fault,
    /// Pattern of `bucket/key` (of a listing: `bucket/prefix`); `*` goes across slashes.
    pub keys: Option<String>,
    /// What is asked for. Without it: everything that this can happen to.
    #[serde(default)]
    pub operations: Vec<Operation>,
    /// First and last of the requests for the same thing, counted from 1. The same thing is the
    /// same operation, key, and range or page.
    pub requests: Option<(u64, u64)>,
    /// First and last of the bytes that the range begins with; a whole object begins with 0.
    pub bytes: Option<(u64, u64)>,
    /// A header of the request and its value.
    pub header: Option<(String, String)>,
    /// Only pages of a listing behind the first.
    #[serde(default)]
    pub later_pages: bool,
    /// The share of these requests that is hit, drawn for each; 1 if it is not said.
    #[serde(default = "all")]
    pub share: f64,
}

fn all() -> f64 {
    1.0
}

impl Fault {
    /// What it is counted as.
    pub fn name(&self) -> Cow<'static, str> {
        let name = match self {
            Self::Refuse { .. } => "refuse",
            Self::Reset { at: None } => "reset",
            Self::Reset { .. } => "reset-body",
            Self::HangUp { at: None } => "hang-up",
            Self::HangUp { .. } => "hang-up-body",
            Self::Status { status, .. } => return format!("status-{status}").into(),
            Self::ErrorBody {} => "error-body",
            Self::Expired { .. } => "expired",
            Self::Redirect { .. } => "redirect",
            Self::WrongRange {} => "wrong-range",
            Self::NoRange {} => "no-range",
            Self::WholeObject {} => "whole-object",
            Self::Short { told: true, .. } => "short-told",
            Self::Short { .. } => "short-untold",
            Self::Stall { .. } => "stall",
            Self::Drip { .. } => "drip",
            Self::Flip { .. } => "flip",
            Self::RepeatHalf {} => "repeat-half",
            Self::Replaced {} => "replaced",
            Self::RepeatPage {} => "repeat-page",
        };
        name.into()
    }

    /// Whether it can happen to such a request; `part` is whether a range of an object is asked for, or
    /// a page of a listing behind the first.
    pub(super) fn fits(&self, operation: Operation, part: bool) -> bool {
        match self {
            Self::WrongRange {} | Self::NoRange {} | Self::WholeObject {} => {
                operation == Operation::Get && part
            }
            Self::RepeatPage {} => operation == Operation::List && part,
            Self::Replaced {} => matches!(operation, Operation::Get | Operation::Head),
            Self::ErrorBody {} => matches!(operation, Operation::Get | Operation::List),
            _ if self.is_damage() => operation == Operation::Get,
            _ => true,
        }
    }

    /// Whether it is done to a good answer on its way.
    pub(super) fn is_damage(&self) -> bool {
        match self {
            Self::Reset { at } | Self::HangUp { at } => at.is_some(),
            Self::WrongRange {}
            | Self::NoRange {}
            | Self::Short { .. }
            | Self::Stall { .. }
            | Self::Drip { .. }
            | Self::Flip { .. }
            | Self::RepeatHalf {} => true,
            _ => false,
        }
    }
}

impl Rule {
    /// All requests that this can happen to.
    pub fn new(fault: Fault) -> Self {
        Self {
            fault,
            keys: None,
            operations: Vec::new(),
            requests: None,
            bytes: None,
            header: None,
            later_pages: false,
            share: all(),
        }
    }

    /// What can't be meant.
    pub(super) fn check(&self) -> Result<(), String> {
        if !(0.0..=1.0).contains(&self.share) {
            return Err(format!("the share is {}, and has to be from 0 to 1", self.share));
        }
        if let Some(keys) = &self.keys {
            Pattern::new(keys).map_err(|error| format!("the pattern {keys}: {error}"))?;
        }
        if let Some((name, _)) = &self.header
            && name.parse::<HeaderName>().is_err()
        {
            return Err(format!("{name:?} is no name of a header"));
        }
        let never = |&&operation: &&Operation| !self.fault.fits(operation, true);
        if let Some(operation) = self.operations.iter().find(never) {
            return Err(format!("{} can't happen to {operation}", self.fault.name()));
        }
        match &self.fault {
            Fault::Status { status, .. } if !(400..600).contains(status) => {
                Err(format!("{status} is no status of an error (400 to 599)"))
            }
            Fault::Expired { status: Some(status) } if ![400, 403].contains(status) => {
                Err(format!("{status} is not what stores say of an expired token (400 or 403)"))
            }
            Fault::Redirect { status: Some(status), .. } if !(300..400).contains(status) => {
                Err(format!("{status} is no redirect (300 to 399)"))
            }
            Fault::Drip { rate: 0 } => Err("the rate is 0, and has to be above 0".to_owned()),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Get => "get",
            Self::Head => "head",
            Self::List => "list",
            Self::Put => "put",
            Self::Other => "other",
        })
    }
}
