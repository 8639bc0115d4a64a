//! The order in which sources of credentials are asked.

use std::sync::{Mutex, PoisonError};

use object_store::aws::AwsCredential;

use super::super::failure::Failure;
use super::profile::{Profiles, Start, Way, named};
use super::{Means, Obtained, Remedy, key, machine, process, sts, unconfigured};

/// What a source said.
pub(super) enum Found {
    Here(Obtained<AwsCredential>),
    /// Nothing, and why.
    Nothing(String),
}

/// One of the sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Environment,
    /// A profile that the environment names goes before what the machine happens to have.
    NamedProfile,
    WebIdentity,
    Container,
    DefaultProfile,
    Instance,
}

const ORDER: [Source; 6] = [
    Source::Environment,
    Source::NamedProfile,
    Source::WebIdentity,
    Source::Container,
    Source::DefaultProfile,
    Source::Instance,
];

/// All sources, and the one that was found to have credentials.
#[derive(Debug)]
pub(in crate::fetch) struct Chain {
    means: Means,
    found: Mutex<Option<Source>>,
}

impl Chain {
    pub(in crate::fetch) fn new(means: Means) -> Self {
        Self { means, found: Mutex::default() }
    }

    /// Credentials of the first source that has any, or of the one that had.
    pub(in crate::fetch) async fn obtain(&self) -> Result<Obtained<AwsCredential>, Failure> {
        let found = *self.found();
        if let Some(source) = found {
            return match self.ask(source).await? {
                Found::Here(obtained) => Ok(obtained),
                Found::Nothing(why) => Err(Failure::transient(format!(
                    "{} gave credentials before and gives none now: {why}",
                    self.name(source)
                ))),
            };
        }
        let mut tried = Vec::new();
        for source in ORDER {
            match self.ask(source).await? {
                Found::Here(obtained) => {
                    *self.found() = Some(source);
                    return Ok(obtained);
                }
                Found::Nothing(why) if why.is_empty() => {}
                Found::Nothing(why) => tried.push(format!("{} ({why})", self.name(source))),
            }
        }
        Err(unconfigured(format!("no credentials for AWS; asked were {}", tried.join(", "))).hint(
            "for a public bucket set fetch.anonymous = true; else set AWS_ACCESS_KEY_ID and \
             AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or give the machine a role",
        ))
    }

    /// The source that had credentials, in words.
    pub(in crate::fetch) fn found_in(&self) -> String {
        let found = *self.found();
        found.map_or_else(String::new, |source| self.name(source))
    }

    fn found(&self) -> std::sync::MutexGuard<'_, Option<Source>> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn ask(&self, source: Source) -> Result<Found, Failure> {
        let means = &self.means;
        match source {
            Source::Environment => self.environment(),
            Source::NamedProfile => match named(&means.environment) {
                // The other one says that no profile is named.
                None => Ok(Found::Nothing(String::new())),
                Some(name) => {
                    let profiles = self.profiles().await?;
                    let way = profiles.way(name)?;
                    let way = way.ok_or_else(|| {
                        unconfigured(format!("profile {name:?} names no credentials")).hint(
                            format!("write some into {}, or unset AWS_PROFILE", profiles.files()),
                        )
                    })?;
                    self.go(&way).await.map(Found::Here)
                }
            },
            Source::WebIdentity => sts::web_identity(means).await,
            Source::Container => machine::container(means).await,
            Source::DefaultProfile => self.default_profile().await,
            Source::Instance => machine::instance(means).await,
        }
    }

    fn environment(&self) -> Result<Found, Failure> {
        const ID: &str = "AWS_ACCESS_KEY_ID";
        const SECRET: &str = "AWS_SECRET_ACCESS_KEY";
        let environment = &self.means.environment;
        let token = environment.first(&["AWS_SESSION_TOKEN", "AWS_SECURITY_TOKEN"]);
        match (environment.get(ID), environment.get(SECRET)) {
            (Some(id), Some(secret)) => {
                let hint = "keys in the environment can't be renewed while a run goes on: for one \
                            that is longer than they are good, use a profile or the machine's role";
                let remedy = Remedy { renews: false, hint: hint.to_owned() };
                let credential = key(id, secret, token).map_err(|failure| Failure {
                    reason: format!("{ID}: {}", failure.reason),
                    ..failure
                })?;
                Ok(Found::Here(Obtained { credential, life: None, look: None, remedy }))
            }
            (None, None) => Ok(Found::Nothing(format!("{ID} is not set"))),
            (Some(_), None) => Err(half(ID, SECRET)),
            (None, Some(_)) => Err(half(SECRET, ID)),
        }
    }

    async fn default_profile(&self) -> Result<Found, Failure> {
        if named(&self.means.environment).is_some() {
            return Ok(Found::Nothing(String::new()));
        }
        let profiles = self.profiles().await?;
        if !profiles.has("default") {
            let why = format!("AWS_PROFILE is not set, and {} has no default", profiles.files());
            return Ok(Found::Nothing(why));
        }
        match profiles.way("default")? {
            Some(way) => self.go(&way).await.map(Found::Here),
            None => Ok(Found::Nothing(format!("that of {} names none", profiles.files()))),
        }
    }

    /// Home folders may be on a network.
    async fn profiles(&self) -> Result<Profiles, Failure> {
        let environment = self.means.environment.clone();
        let read = tokio::task::spawn_blocking(move || Profiles::read(&environment)).await;
        read.unwrap_or_else(|_| Err(Failure::transient("the profiles could not be read")))
    }

    /// Goes the way of a profile to its keys.
    async fn go(&self, way: &Way) -> Result<Obtained<AwsCredential>, Failure> {
        let means = &self.means;
        let must = |found| match found {
            Found::Here(obtained) => Ok(obtained),
            Found::Nothing(why) => {
                Err(unconfigured(format!("the profile's credential_source has none: {why}")))
            }
        };
        let mut obtained = match &way.start {
            Start::Keys { id, secret, token } => Obtained {
                credential: key(id, secret, token.as_deref())?,
                life: None,
                look: None,
                // The file is read anew: tools write new keys into it.
                remedy: Remedy {
                    renews: token.is_some(),
                    hint: "renew the keys of the profile in ~/.aws/credentials".to_owned(),
                },
            },
            Start::Process { profile, command } => process::run(profile, command).await?,
            Start::Sso(sso) => sso.keys(means).await?,
            Start::Token { role, file } => sts::with_token(means, role, file).await?,
            Start::Environment => must(self.environment()?)?,
            Start::Container => must(machine::container(means).await?)?,
            Start::Instance => must(machine::instance(means).await?)?,
        };
        for role in &way.roles {
            obtained = sts::with_keys(means, role, &obtained.credential).await?;
        }
        Ok(obtained)
    }

    fn name(&self, source: Source) -> String {
        match source {
            Source::Environment => "the environment".to_owned(),
            Source::NamedProfile => {
                format!("profile {:?}", named(&self.means.environment).unwrap_or_default())
            }
            Source::WebIdentity => "web identity".to_owned(),
            Source::Container => "the container".to_owned(),
            Source::DefaultProfile => "the default profile".to_owned(),
            Source::Instance => "the EC2 instance".to_owned(),
        }
    }
}

fn half(there: &str, missing: &str) -> Failure {
    unconfigured(format!("{there} is set, and {missing} is not")).hint("set both, or neither")
}
