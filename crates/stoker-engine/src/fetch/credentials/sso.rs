//! AWS IAM Identity Center (SSO): the token that `aws sso login` left behind, and the keys of a role
//! that it buys.
//!
//! A token that came with a refresh token is renewed as AWS's own tools do it, and written back for
//! them: the old refresh token may be worth nothing afterwards. Without one, a run outlives its
//! keys only as long as the login lasts.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use chrono::{SecondsFormat, TimeDelta, Utc};
use object_store::aws::AwsCredential;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::{Method, StatusCode};
use ring::digest;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::error::FetchErrorKind;

use super::super::failure::Failure;
use super::ask::{self, LIMIT, ask, request, with_body};
use super::{Means, Obtained, Remedy, key, time_until, until};

/// Whose keys a profile asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sso {
    /// The profile, for what the operator is told.
    pub(super) profile: String,
    /// What the token is filed under: the name of the session, or the address of the portal.
    pub(super) filed: String,
    pub(super) region: String,
    pub(super) account: String,
    pub(super) role: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Bought {
    role_credentials: Keys,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Keys {
    access_key_id: String,
    secret_access_key: String,
    session_token: Option<String>,
    /// In milliseconds since 1970.
    expiration: i64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Renewed {
    access_token: String,
    expires_in: u32,
    refresh_token: Option<String>,
}

impl Sso {
    /// The keys of the role.
    pub(super) async fn keys(&self, means: &Means) -> Result<Obtained<AwsCredential>, Failure> {
        const WHO: &str = "AWS's sign-on service (SSO)";
        let token = self.token(means).await?;
        let host = means.service("SSO", &self.region, "portal.sso");
        let encoded = |text| utf8_percent_encode(text, NON_ALPHANUMERIC);
        let url = format!(
            "{host}/federation/credentials?role_name={}&account_id={}",
            encoded(&self.role),
            encoded(&self.account)
        );
        let question = request(Method::GET, &url, &[("x-amz-sso_bearer_token", &token)])?;
        let answer = ask(&means.remote, question, LIMIT).await;
        let answer = answer.map_err(|failure| ask::of(WHO, failure))?;
        if answer.status == StatusCode::UNAUTHORIZED {
            return Err(self.logged_out("has ended"));
        }
        if !answer.status.is_success() {
            let hint = format!(
                "check sso_account_id and sso_role_name of profile {:?}, and who may use them",
                self.profile
            );
            return Err(answer.failure(WHO).hint(hint));
        }
        let keys = answer.json::<Bought>(WHO)?.role_credentials;
        Ok(Obtained {
            credential: key(
                &keys.access_key_id,
                &keys.secret_access_key,
                keys.session_token.as_deref(),
            )?,
            life: Some(until(keys.expiration)),
            look: None,
            remedy: Remedy { renews: true, hint: self.login() },
        })
    }

    /// The token, renewed if it must be and can.
    async fn token(&self, means: &Means) -> Result<String, Failure> {
        let path = self.file(means);
        let Ok(text) = fs::read(&path) else { return Err(self.logged_out("was never begun")) };
        let Ok(mut cached) = serde_json::from_slice::<Map<String, Value>>(&text) else {
            return Err(self.logged_out("can't be read"));
        };
        let text_of = |name| cached.get(name).and_then(Value::as_str).unwrap_or_default();
        let token = text_of("accessToken").to_owned();
        if !token.is_empty() && time_until(text_of("expiresAt")).is_some_and(|left| !left.is_zero())
        {
            return Ok(token);
        }
        let of_client = ["refreshToken", "clientId", "clientSecret"].map(text_of);
        if of_client.iter().any(|text| text.is_empty()) {
            return Err(self.logged_out("has expired"));
        }
        let renewed = self.renew(means, of_client).await?;
        let end = Utc::now() + TimeDelta::seconds(i64::from(renewed.expires_in));
        let end = end.to_rfc3339_opts(SecondsFormat::Secs, true);
        cached.insert("accessToken".to_owned(), json!(renewed.access_token));
        cached.insert("expiresAt".to_owned(), json!(end));
        if let Some(refresh) = renewed.refresh_token {
            cached.insert("refreshToken".to_owned(), json!(refresh));
        }
        // Where the file can't be written, the token is good all the same.
        write_back(&path, &Value::Object(cached)).unwrap_or_default();
        Ok(renewed.access_token)
    }

    async fn renew(&self, means: &Means, of_client: [&str; 3]) -> Result<Renewed, Failure> {
        const WHO: &str = "AWS's sign-on service (SSO OIDC)";
        let [refresh, id, secret] = of_client;
        let body = json!({
            "grantType": "refresh_token",
            "clientId": id,
            "clientSecret": secret,
            "refreshToken": refresh,
        });
        let url = format!("{}/token", means.service("SSO_OIDC", &self.region, "oidc"));
        let headers = [("content-type", "application/json")];
        let question = with_body(Method::POST, &url, &headers, body.to_string())?;
        let answer = ask(&means.remote, question, LIMIT).await;
        let answer = answer.map_err(|failure| ask::of(WHO, failure))?;
        if answer.status.is_client_error() && answer.status != StatusCode::TOO_MANY_REQUESTS {
            return Err(self.logged_out("has expired"));
        }
        if !answer.status.is_success() {
            return Err(answer.failure(WHO));
        }
        answer.json(WHO)
    }

    /// Where `aws sso login` writes.
    fn file(&self, means: &Means) -> PathBuf {
        let name = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, self.filed.as_bytes());
        let digits = name.as_ref().iter().flat_map(|byte| [byte >> 4, byte & 15]);
        let name: String = digits.filter_map(|digit| char::from_digit(digit.into(), 16)).collect();
        means.environment.path(&format!("~/.aws/sso/cache/{name}.json"))
    }

    fn logged_out(&self, how: &str) -> Failure {
        let reason = format!("the SSO session of profile {:?} {how}", self.profile);
        Failure::permanent(FetchErrorKind::Unconfigured, reason).hint(self.login())
    }

    fn login(&self) -> String {
        format!("run aws sso login --profile {}", self.profile)
    }
}

/// In one step, for nobody else's eyes.
fn write_back(path: &Path, cached: &Value) -> io::Result<()> {
    let new = path.with_extension(format!("json.{}", std::process::id()));
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let written = options
        .open(&new)
        .and_then(|mut file| file.write_all(cached.to_string().as_bytes()))
        .and_then(|()| fs::rename(&new, path));
    if written.is_err() {
        fs::remove_file(&new).unwrap_or_default();
    }
    written
}
