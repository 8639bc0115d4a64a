//! The profiles of `~/.aws/config` and `~/.aws/credentials`: what they say, and the way that one
//! of them takes to its keys.
//!
//! A profile takes on a role with the keys of another, and so on: the way is found from the files
//! alone, before anyone is asked.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::PathBuf;

use crate::error::too_many_files;
use crate::recipe;

use super::super::environment::Environment;
use super::super::failure::Failure;
use super::ini::{self, Section};
use super::sso::Sso;
use super::sts::Role;
use super::unconfigured;

/// The profile that is meant where none is named.
const DEFAULT: &str = "default";

/// Both files.
#[derive(Default)]
pub(in crate::fetch) struct Profiles {
    by_name: BTreeMap<String, Section>,
    /// `[sso-session NAME]` and `[services NAME]`.
    others: BTreeMap<String, Section>,
    files: [PathBuf; 2],
}

/// What a profile says about the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::fetch) struct Settings {
    pub(in crate::fetch) region: Option<String>,
    pub(in crate::fetch) endpoint: Option<String>,
    /// Whether buckets are part of the host's name.
    pub(in crate::fetch) virtual_host: Option<bool>,
}

/// The way to a profile's keys.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Way {
    pub(super) start: Start,
    /// Roles to take on, one after the other.
    pub(super) roles: Vec<Role>,
}

/// Whose keys the way starts with.
#[derive(PartialEq, Eq)]
pub(super) enum Start {
    Keys { id: String, secret: String, token: Option<String> },
    Process { profile: String, command: String },
    Sso(Sso),
    Token { role: Role, file: String },
    Environment,
    Container,
    Instance,
}

/// The kind only.
impl std::fmt::Debug for Start {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Keys { .. } => "Keys",
            Self::Process { .. } => "Process",
            Self::Sso(_) => "Sso",
            Self::Token { .. } => "Token",
            Self::Environment => "Environment",
            Self::Container => "Container",
            Self::Instance => "Instance",
        })
    }
}

/// The profile that the environment names.
pub(in crate::fetch) fn named(environment: &Environment) -> Option<&str> {
    environment.first(&["AWS_PROFILE", "AWS_DEFAULT_PROFILE"])
}

impl Profiles {
    /// Reads both files; one that does not exist says nothing.
    pub(in crate::fetch) fn read(environment: &Environment) -> Result<Self, Failure> {
        let path = |variable, usual| environment.path(environment.get(variable).unwrap_or(usual));
        let config = path("AWS_CONFIG_FILE", "~/.aws/config");
        let credentials = path("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials");
        let mut read = Self::default();
        let sections = |path| text_of(path).map(|text| ini::parse(&text));
        let mut plain = None;
        for (title, section) in sections(&config)? {
            match title.split_once(' ') {
                Some(("profile", name)) => {
                    read.by_name.insert(name.to_owned(), section);
                }
                Some(_) => {
                    read.others.insert(title, section);
                }
                None if title == DEFAULT => plain = Some(section),
                None => {}
            }
        }
        // `[profile default]` goes before `[default]`.
        if let Some(section) = plain {
            read.by_name.entry(DEFAULT.to_owned()).or_insert(section);
        }
        // What stands in both files is taken from the one that is made for it.
        for (name, section) in sections(&credentials)? {
            read.by_name.entry(name).or_default().extend(section);
        }
        read.files = [config, credentials];
        Ok(read)
    }

    /// What the profile in use says about the store.
    pub(in crate::fetch) fn settings(&self, environment: &Environment) -> Settings {
        let Some(profile) = self.by_name.get(named(environment).unwrap_or(DEFAULT)) else {
            return Settings::default();
        };
        let own = |name| get(profile, name).map(str::to_owned);
        let services = get(profile, "services").map(|name| format!("services {name}"));
        let services = services.and_then(|title| self.others.get(&title));
        let of_s3 = services.and_then(|services| get(services, "s3.endpoint_url"));
        Settings {
            region: own("region"),
            endpoint: of_s3.map(str::to_owned).or_else(|| own("endpoint_url")),
            virtual_host: match get(profile, "s3.addressing_style") {
                Some("virtual") => Some(true),
                Some("path") => Some(false),
                _ => None,
            },
        }
    }

    /// The files, as they may be shown.
    pub(super) fn files(&self) -> String {
        let [config, credentials] = &self.files;
        format!("{} or {}", config.display(), credentials.display())
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// The way to the keys of a profile; `None` if it names none.
    pub(super) fn way(&self, name: &str) -> Result<Option<Way>, Failure> {
        let mut roles = Vec::new();
        let mut seen = vec![name];
        let mut name = name;
        let start = loop {
            let profile = self.profile(name)?;
            let own = |key| get(profile, key).map(str::to_owned);
            let Some(arn) = own("role_arn") else {
                break match self.start(name, profile)? {
                    Some(start) => start,
                    None if seen.len() == 1 => return Ok(None),
                    None => return Err(no_keys(name, "holds no keys for another to start from")),
                };
            };
            if get(profile, "mfa_serial").is_some() {
                return Err(no_keys(
                    name,
                    "asks for a code of an MFA device, and nobody is there to \
                                          type one",
                ));
            }
            let role = Role {
                arn,
                session: own("role_session_name"),
                external_id: own("external_id"),
                seconds: own("duration_seconds"),
            };
            if let Some(file) = own("web_identity_token_file") {
                break Start::Token { role, file };
            }
            roles.push(role);
            match (get(profile, "source_profile"), get(profile, "credential_source")) {
                (Some(source), None) if source == name => {
                    break self.start(name, profile)?.ok_or_else(|| {
                        no_keys(name, "is its own source_profile and holds no keys")
                    })?;
                }
                (Some(source), None) if seen.contains(&source) => {
                    return Err(no_keys(name, "leads back to itself by its source_profile"));
                }
                (Some(source), None) => {
                    seen.push(source);
                    name = source;
                }
                (None, Some("Environment")) => break Start::Environment,
                (None, Some("Ec2InstanceMetadata")) => break Start::Instance,
                (None, Some("EcsContainer")) => break Start::Container,
                (None, Some(_)) => {
                    return Err(no_keys(
                        name,
                        "has a credential_source that is none of \
                                              Environment, Ec2InstanceMetadata and EcsContainer",
                    ));
                }
                _ => {
                    return Err(no_keys(
                        name,
                        "has a role_arn, and must have one of source_profile \
                                              and credential_source",
                    ));
                }
            }
        };
        // The one that was found last is taken on first.
        roles.reverse();
        Ok(Some(Way { start, roles }))
    }

    fn profile(&self, name: &str) -> Result<&Section, Failure> {
        self.by_name.get(name).ok_or_else(|| {
            let failure = unconfigured(format!("there is no profile {name:?} in {}", self.files()));
            let names = self.by_name.keys().map(String::as_str);
            match recipe::nearest(name, names) {
                Some(near) => failure.hint(format!("did you mean {near:?}?")),
                None => failure.hint("check AWS_PROFILE and source_profile"),
            }
        })
    }

    fn start(&self, name: &str, profile: &Section) -> Result<Option<Start>, Failure> {
        let own = |key| get(profile, key).map(str::to_owned);
        if get(profile, "sso_account_id").is_some() || get(profile, "sso_role_name").is_some() {
            return self.sso(name, profile).map(|sso| Some(Start::Sso(sso)));
        }
        match (own("aws_access_key_id"), own("aws_secret_access_key")) {
            (Some(id), Some(secret)) => {
                return Ok(Some(Start::Keys { id, secret, token: own("aws_session_token") }));
            }
            (None, None) => {}
            _ => {
                let what = "has only one of aws_access_key_id and aws_secret_access_key";
                return Err(no_keys(name, what));
            }
        }
        if let Some(command) = own("credential_process") {
            return Ok(Some(Start::Process { profile: name.to_owned(), command }));
        }
        if get(profile, "login_session").is_some() {
            let what = "was made by aws login, which only AWS's own tools can read";
            return Err(no_keys(name, what).hint(format!(
                "give a profile this line: credential_process = aws configure export-credentials \
                 --profile {name} --format process"
            )));
        }
        Ok(None)
    }

    fn sso(&self, name: &str, profile: &Section) -> Result<Sso, Failure> {
        let session = get(profile, "sso_session");
        let title = session.map(|session| format!("sso-session {session}"));
        let place = match &title {
            Some(title) => self.others.get(title).ok_or_else(|| {
                no_keys(name, &format!("names a section [{title}], and there is none"))
            })?,
            None => profile,
        };
        let must = |section, key| {
            get(section, key)
                .map(str::to_owned)
                .ok_or_else(|| no_keys(name, &format!("needs {key} for SSO")))
        };
        Ok(Sso {
            profile: name.to_owned(),
            filed: match session {
                Some(session) => session.to_owned(),
                None => must(place, "sso_start_url")?,
            },
            region: must(place, "sso_region")?,
            account: must(profile, "sso_account_id")?,
            role: must(profile, "sso_role_name")?,
        })
    }
}

fn get<'a>(section: &'a Section, key: &str) -> Option<&'a str> {
    section.get(key).map(String::as_str).filter(|value| !value.is_empty())
}

fn no_keys(profile: &str, what: &str) -> Failure {
    unconfigured(format!("profile {profile:?} {what}"))
        .hint(format!("see whether aws sts get-caller-identity --profile {profile} works"))
}

fn text_of(path: &PathBuf) -> Result<String, Failure> {
    match fs::read(path) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(error)
            if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
        {
            Ok(String::new())
        }
        Err(error) => {
            let failure = unconfigured(format!("{} can't be read ({error})", path.display()));
            let check = || "check the permissions of the file and its folders".to_owned();
            Err(failure.hint(too_many_files(&error).unwrap_or_else(check)))
        }
    }
}
