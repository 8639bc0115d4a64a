//! The variables that say who we are and how the network is reached.
//!
//! Secrets and what belongs to a machine rather than to a run do not stand in a recipe. They come
//! from the variables that every tool of the clouds reads, taken once when a fetcher is made: what
//! a trainer sets later changes nothing midway. Only the names of these variables can be shown.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// What the names of the variables that are of use begin with.
const USEFUL: [&str; 4] = ["AWS_", "GOOGLE_", "AZURE_", "IDENTITY_"];
/// And those that are named in full.
const HOME: &str = "HOME";
const SERVICE_ACCOUNT: &str = "SERVICE_ACCOUNT";

/// Variables by name; clones share them.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Environment(Arc<BTreeMap<String, String>>);

impl Environment {
    /// Those of this process, as they are now.
    pub fn of_process() -> Self {
        let useful = |name: &str| {
            name == HOME
                || name == SERVICE_ACCOUNT
                || USEFUL.iter().any(|start| name.starts_with(start))
        };
        let texts = std::env::vars_os().filter_map(|(name, value)| {
            let name = name.into_string().ok().filter(|name| useful(name))?;
            Some((name, value.into_string().ok()?))
        });
        let mut variables: BTreeMap<_, _> = texts.collect();
        // Elsewhere than on Unix, and in a service, the home folder has no variable.
        if let Some(home) =
            std::env::home_dir().and_then(|home| home.into_os_string().into_string().ok())
        {
            variables.entry(HOME.to_owned()).or_insert(home);
        }
        Self(Arc::new(variables))
    }

    /// What a variable says, if it says anything.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(|value| value.trim()).filter(|value| !value.is_empty())
    }

    /// The first of these variables that says anything.
    pub(super) fn first(&self, names: &[&str]) -> Option<&str> {
        names.iter().find_map(|name| self.get(name))
    }

    /// Whether a variable says yes.
    pub(super) fn is_set(&self, name: &str) -> bool {
        self.get(name).is_some_and(|value| value.eq_ignore_ascii_case("true") || value == "1")
    }

    /// A path: where it begins with `~`, below the home folder.
    pub(super) fn path(&self, text: &str) -> PathBuf {
        match (text.strip_prefix("~/"), self.get(HOME)) {
            (Some(rest), Some(home)) => PathBuf::from(home).join(rest),
            _ => PathBuf::from(text),
        }
    }

    /// The variables whose names begin so, the names in small letters.
    pub(super) fn starting<'a>(
        &'a self,
        start: &'a str,
    ) -> impl Iterator<Item = (String, &'a str)> + 'a {
        let of_it = self.0.iter().filter(move |(name, _)| name.starts_with(start));
        of_it.map(|(name, value)| (name.to_ascii_lowercase(), value.as_str()))
    }
}

impl<N: Into<String>, V: Into<String>> FromIterator<(N, V)> for Environment {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(variables: I) -> Self {
        let owned = variables.into_iter().map(|(name, value)| (name.into(), value.into()));
        Self(Arc::new(owned.collect()))
    }
}

/// The names only: a value may be a secret.
impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Environment").field(&self.0.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_variables_say_nothing_and_values_are_not_shown() {
        let environment: Environment =
            [("AWS_PROFILE", " dev "), ("AWS_REGION", ""), ("HOME", "/home/me"), ("AWS_X", "1")]
                .into_iter()
                .collect();
        assert_eq!(environment.get("AWS_PROFILE"), Some("dev"));
        assert_eq!(environment.get("AWS_REGION"), None);
        assert_eq!(environment.first(&["AWS_REGION", "AWS_PROFILE"]), Some("dev"));
        assert!(environment.is_set("AWS_X") && !environment.is_set("AWS_PROFILE"));
        assert_eq!(environment.path("~/.aws/config"), PathBuf::from("/home/me/.aws/config"));
        assert_eq!(environment.path("/etc/aws"), PathBuf::from("/etc/aws"));
        let shown = format!("{environment:?}");
        assert!(shown.contains("AWS_PROFILE") && !shown.contains("dev"), "{shown}");
    }
}
