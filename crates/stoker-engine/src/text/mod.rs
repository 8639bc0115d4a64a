//! stub
use std::path::Path;

use crate::error::{Flaw, Result};
use crate::recipe;
use crate::sample::{Conversation, EncodedText, Grid};

/// Chat template, tokenizer and rules for labels.
#[derive(Debug)]
pub struct Encoder {}

impl Encoder {
    /// From the model folder and the recipe's section.
    pub fn open(model: Option<&Path>, config: &recipe::Text) -> Result<Self> {
        let _ = (model, config);
        Ok(Self {})
    }
    /// Tokens, labels, kinds and positions of one conversation.
    pub fn encode(
        &self,
        conversation: &Conversation,
        grids: &[Grid],
        merge_size: u32,
    ) -> Result<EncodedText, Flaw> {
        let _ = (conversation, grids, merge_size);
        unimplemented!()
    }
    /// Identity.
    pub fn fingerprint(&self) -> u64 {
        unimplemented!()
    }
    /// The id that `input_ids` are padded with.
    pub fn pad_token(&self) -> u32 {
        unimplemented!()
    }
    /// Text of one token, for people.
    pub fn token_text(&self, token: u32) -> String {
        let _ = token;
        unimplemented!()
    }
}
