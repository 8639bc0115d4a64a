//! What the machine itself gives: the service of a container (ECS, EKS Pod Identity and whatever
//! speaks as they do) and the one of an EC2 instance (IMDS, version 2 only).
//!
//! Elsewhere than on EC2 nothing answers at the instance's address, so it is given little time.

use std::net::IpAddr;
use std::time::Duration;

use object_store::aws::AwsCredential;
use reqwest::{Method, StatusCode, Url};
use serde::Deserialize;

use super::super::failure::Failure;
use super::ask::{self, Answer, LIMIT, ask, request};
use super::chain::Found;
use super::{Means, Obtained, Remedy, key, time_until, unconfigured};

/// How long the instance's service may take for the first answer, and how often it is tried.
const PROBE: Duration = Duration::from_millis(700);
const PROBES: u32 = 2;
const INSTANCE: &str = "http://169.254.169.254";
const INSTANCE_V6: &str = "http://[fd00:ec2::254]";
const CONTAINER: &str = "http://169.254.170.2";
/// Where containers may be told to ask without TLS, besides this machine itself: ECS, EKS.
const CONTAINERS: [&str; 3] = ["169.254.170.2", "169.254.170.23", "fd00:ec2::23"];
const TOKEN: &str = "x-aws-ec2-metadata-token";
const TOKEN_LIFE: &str = "x-aws-ec2-metadata-token-ttl-seconds";

/// Both services answer so.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Given {
    code: Option<String>,
    access_key_id: Option<String>,
    secret_access_key: Option<String>,
    token: Option<String>,
    expiration: Option<String>,
}

impl Given {
    fn obtained(self, who: &str) -> Result<Obtained<AwsCredential>, Failure> {
        let nothing = || Failure::transient(format!("{who} gave no credentials"));
        if self.code.is_some_and(|code| code != "Success") {
            return Err(nothing());
        }
        let (Some(id), Some(secret)) = (self.access_key_id, self.secret_access_key) else {
            return Err(nothing());
        };
        let remedy = Remedy { renews: true, hint: format!("ask why {who} gives old ones") };
        let life = self.expiration.as_deref().and_then(time_until);
        let credential = key(&id, &secret, self.token.as_deref())?;
        Ok(Obtained { credential, life, look: None, remedy })
    }
}

/// Asks the service of the container, where the environment names one.
pub(super) async fn container(means: &Means) -> Result<Found, Failure> {
    const WHO: &str = "the container's service for credentials";
    const RELATIVE: &str = "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI";
    const FULL: &str = "AWS_CONTAINER_CREDENTIALS_FULL_URI";
    let environment = &means.environment;
    let url = match (environment.get(RELATIVE), environment.get(FULL)) {
        (Some(path), _) => format!("{CONTAINER}{path}"),
        (None, Some(url)) => url.to_owned(),
        (None, None) => return Ok(Found::Nothing(format!("neither {RELATIVE} nor {FULL} is set"))),
    };
    let url: Url = url.parse().map_err(|_| unconfigured(format!("{FULL} is not a URL")))?;
    let is_tls = url.scheme() == "https";
    if !is_tls && !is_near(&url) {
        let reason = format!("{FULL} names another machine, without TLS");
        return Err(unconfigured(reason).hint("give it an https address"));
    }
    let token = match environment.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE") {
        // It is written anew now and then.
        Some(path) => Some(read_token(&environment.path(path))?),
        None => environment.get("AWS_CONTAINER_AUTHORIZATION_TOKEN").map(str::to_owned),
    };
    let headers: Vec<_> = token.iter().map(|token| ("authorization", token.as_str())).collect();
    let question = request(Method::GET, url.as_str(), &headers)?;
    let client = if is_tls { &means.remote } else { &means.local };
    let answer = ask(client, question, LIMIT).await.map_err(|failure| ask::of(WHO, failure))?;
    if !answer.status.is_success() {
        return Err(answer.failure(WHO).hint("check the role of the task or the pod"));
    }
    answer.json::<Given>(WHO)?.obtained(WHO).map(Found::Here)
}

/// A file with a token.
pub(super) fn read_token(path: &std::path::Path) -> Result<String, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        unconfigured(format!("the token in {} can't be read ({error})", path.display()))
    })?;
    Ok(text.trim().to_owned())
}

/// Whether an address is this machine's own or one of those that containers are given.
fn is_near(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let loopback = host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    loopback || host == "localhost" || CONTAINERS.contains(&host)
}

/// Asks the service of the EC2 instance.
pub(super) async fn instance(means: &Means) -> Result<Found, Failure> {
    const WHO: &str = "the metadata service of this machine";
    const FOLDER: &str = "/latest/meta-data/iam/security-credentials/";
    let environment = &means.environment;
    if environment.is_set("AWS_EC2_METADATA_DISABLED") {
        return Ok(Found::Nothing("AWS_EC2_METADATA_DISABLED is set".to_owned()));
    }
    let v6 = environment.get("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE");
    let usual = if v6.is_some_and(|mode| mode.eq_ignore_ascii_case("ipv6")) {
        INSTANCE_V6
    } else {
        INSTANCE
    };
    let named = ["AWS_EC2_METADATA_SERVICE_ENDPOINT", "AWS_METADATA_ENDPOINT"];
    let endpoint = environment.first(&named).unwrap_or(usual).trim_end_matches('/');
    let token = match probe(means, endpoint).await? {
        Ok(token) => token,
        Err(why) => return Ok(Found::Nothing(why)),
    };
    let get = async |url: String| -> Result<Answer, Failure> {
        let question = request(Method::GET, &url, &[(TOKEN, &token)])?;
        ask(&means.local, question, LIMIT).await.map_err(|failure| ask::of(WHO, failure))
    };
    let roles = get(format!("{endpoint}{FOLDER}")).await?;
    if roles.status == StatusCode::NOT_FOUND {
        return Ok(Found::Nothing("this machine has no role".to_owned()));
    }
    let role = str::from_utf8(&roles.body).unwrap_or_default().lines().next().unwrap_or_default();
    if !roles.status.is_success() || role.is_empty() {
        return Err(roles.failure(WHO));
    }
    let given = get(format!("{endpoint}{FOLDER}{}", role.trim())).await?;
    if !given.status.is_success() {
        return Err(given.failure(WHO));
    }
    given.json::<Given>(WHO)?.obtained(WHO).map(Found::Here)
}

/// A session of the instance's service, or why there is none.
async fn probe(means: &Means, endpoint: &str) -> Result<Result<String, String>, Failure> {
    let url = format!("{endpoint}/latest/api/token");
    for _ in 0..PROBES {
        let question =
            request(Method::PUT, &url, &[(TOKEN_LIFE, "21600"), ("content-length", "0")])?;
        let Ok(answer) = ask(&means.local, question, PROBE).await else { continue };
        return Ok(match str::from_utf8(&answer.body) {
            Ok(token) if answer.status.is_success() => Ok(token.trim().to_owned()),
            _ if answer.status.is_server_error() => continue,
            _ => Err(format!(
                "{endpoint} answers with HTTP {} when it is asked for a session",
                answer.status.as_u16()
            )),
        });
    }
    Ok(Err(format!("nothing answers at {endpoint}, so this is no EC2 machine")))
}
