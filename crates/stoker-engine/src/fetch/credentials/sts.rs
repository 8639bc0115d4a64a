//! Roles: what AWS's token service (STS) gives for a token of web identity or for other keys.

use object_store::aws::{AwsAuthorizer, AwsCredential};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::Method;
use serde::Deserialize;

use crate::error::FetchErrorKind;

use super::super::failure::{Again, Failure};
use super::super::refusal::{Secrets, Told};
use super::ask::{self, LIMIT, ask, with_body};
use super::chain::Found;
use super::machine::read_token;
use super::{Means, Obtained, Remedy, key, time_until, unconfigured};

const WHO: &str = "AWS's token service (STS)";

/// A role to take on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Role {
    pub(super) arn: String,
    pub(super) session: Option<String>,
    pub(super) external_id: Option<String>,
    pub(super) seconds: Option<String>,
}

impl Role {
    fn session(&self) -> &str {
        self.session.as_deref().unwrap_or("stoker")
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Answered {
    #[serde(alias = "AssumeRoleWithWebIdentityResult", alias = "AssumeRoleResult")]
    result: Taken,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Taken {
    credentials: Keys,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Keys {
    access_key_id: String,
    secret_access_key: String,
    session_token: String,
    expiration: String,
}

/// The role that the environment names for a token of web identity (EKS, GitHub and others).
pub(super) async fn web_identity(means: &Means) -> Result<Found, Failure> {
    const FILE: &str = "AWS_WEB_IDENTITY_TOKEN_FILE";
    const ROLE: &str = "AWS_ROLE_ARN";
    let environment = &means.environment;
    let (file, arn) = match (environment.get(FILE), environment.get(ROLE)) {
        (Some(file), Some(arn)) => (file, arn),
        (None, _) => return Ok(Found::Nothing(format!("{FILE} is not set"))),
        (Some(_), None) => {
            let reason = format!("{FILE} is set, and {ROLE} is not");
            return Err(unconfigured(reason).hint("set both, or neither"));
        }
    };
    let session = environment.get("AWS_ROLE_SESSION_NAME").map(str::to_owned);
    let role = Role { arn: arn.to_owned(), session, external_id: None, seconds: None };
    with_token(means, &role, file).await.map(Found::Here)
}

/// Takes on a role with a token of web identity, which is read anew each time.
pub(super) async fn with_token(
    means: &Means,
    role: &Role,
    file: &str,
) -> Result<Obtained<AwsCredential>, Failure> {
    let token = read_token(&means.environment.path(file))?;
    let form = [
        ("Action", "AssumeRoleWithWebIdentity"),
        ("RoleSessionName", role.session()),
        ("WebIdentityToken", &token),
    ];
    take_on(means, role, &form, None).await
}

/// Takes on a role with other keys.
pub(super) async fn with_keys(
    means: &Means,
    role: &Role,
    keys: &AwsCredential,
) -> Result<Obtained<AwsCredential>, Failure> {
    let form = [("Action", "AssumeRole"), ("RoleSessionName", role.session())];
    take_on(means, role, &form, Some(keys)).await
}

async fn take_on(
    means: &Means,
    role: &Role,
    form: &[(&str, &str)],
    keys: Option<&AwsCredential>,
) -> Result<Obtained<AwsCredential>, Failure> {
    let optional =
        [("ExternalId", &role.external_id), ("DurationSeconds", &role.seconds)].into_iter();
    let optional = optional.filter_map(|(name, value)| Some((name, value.as_deref()?)));
    let fixed = [("Version", "2011-06-15"), ("RoleArn", role.arn.as_str())];
    let body: Vec<String> = fixed
        .into_iter()
        .chain(form.iter().copied())
        .chain(optional)
        .map(|(name, value)| format!("{name}={}", utf8_percent_encode(value, NON_ALPHANUMERIC)))
        .collect();
    let url = means.service("STS", &means.region, "sts");
    let headers = [("content-type", "application/x-www-form-urlencoded")];
    let mut question = with_body(Method::POST, &format!("{url}/"), &headers, body.join("&"))?;
    if let Some(keys) = keys {
        AwsAuthorizer::new(keys, "sts", &means.region)
            .try_authorize(&mut question, None)
            .map_err(|_| unconfigured("the request for a role can't be signed"))?;
    }
    let token = form.iter().filter(|(name, _)| *name == "WebIdentityToken");
    let secrets = Secrets::of(&question).and(token.map(|(_, value)| *value));
    let answer = ask(&means.remote, question, LIMIT).await;
    let answer = answer.map_err(|failure| ask::of(WHO, failure))?;
    if !answer.status.is_success() {
        let told = Told::read(&answer.body, &secrets);
        return Err(refused(role, told.as_ref(), answer.failure(WHO)));
    }
    let nothing = || Failure::transient(format!("{WHO} gave no credentials"));
    let text = str::from_utf8(&answer.body).map_err(|_| nothing())?;
    let answered: Answered = quick_xml::de::from_str(text).map_err(|_| nothing())?;
    let Keys { access_key_id, secret_access_key, session_token, expiration } =
        answered.result.credentials;
    Ok(Obtained {
        credential: key(&access_key_id, &secret_access_key, Some(&session_token))?,
        life: time_until(&expiration),
        look: None,
        remedy: Remedy { renews: true, hint: format!("check the role {}", role.arn) },
    })
}

fn refused(role: &Role, told: Option<&Told>, failure: Failure) -> Failure {
    let failure = match told {
        Some(told) => Failure { reason: format!("{} ({told})", failure.reason), ..failure },
        None => failure,
    };
    match told.map(|told| told.code.as_str()) {
        // Some tokens are written anew a moment after they end.
        Some("ExpiredTokenException") => Failure { again: Again::Later, ..failure }
            .hint("the token or the keys that the role is taken on with have expired: renew them"),
        Some("IDPCommunicationError") => {
            Failure { kind: FetchErrorKind::Transient, again: Again::Soon, ..failure }
        }
        _ if failure.again == Again::Never => {
            failure.hint(format!("check who may take on the role {}", role.arn))
        }
        _ => failure,
    }
}
