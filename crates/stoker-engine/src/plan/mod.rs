//! stub

/// Where to go on.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Cursor {
    /// Seed of the plan.
    pub seed: u64,
    /// Steps done.
    pub step: u64,
}

impl Cursor {
    /// From JSON.
    pub fn from_json(json: &str) -> crate::error::Result<Self> {
        serde_json::from_str(json).map_err(|error| {
            crate::error::Error::Cursor(crate::error::CursorError {
                field: "the document".into(),
                expected: "a cursor".into(),
                found: error.to_string(),
                hint: "it is damaged".into(),
            })
        })
    }
}
