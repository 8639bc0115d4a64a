//! What becomes of samples over `max-tokens`.

use super::*;

fn limited(max_tokens: usize, on_too_long: OnTooLong) -> Encoder {
    let max_tokens = Some(max_tokens as u32);
    open("qwen3_vl", &recipe::Text { max_tokens, on_too_long, ..Default::default() })
}

/// Three rounds with an image each.
fn rounds() -> (Conversation, Vec<Grid>) {
    let turns = (0..3).flat_map(|round| {
        [with_image(turn("user", "what is this?"), round), turn("assistant", "a thing")]
    });
    (chat(turns), vec![square(8), square(4), square(6)])
}

#[test]
fn too_long_samples_are_refused_at_one_token_over_the_limit() {
    let (conversation, grids) = rounds();
    let length = qwen3().encode(&conversation, &grids, 2).unwrap().tokens.len();
    assert!(limited(length, OnTooLong::Refuse).encode(&conversation, &grids, 2).is_ok());
    let encoder = limited(length - 1, OnTooLong::Refuse);
    let flaw = encoder.encode(&conversation, &grids, 2).unwrap_err();
    assert_eq!(flaw.code, "too-long");
    assert!(flaw.reason.contains(&length.to_string()), "{}", flaw.reason);
}

#[test]
fn dropped_turns_leave_the_longest_conversation_that_fits_with_its_images() {
    let (conversation, grids) = rounds();
    let beginning = |rounds: usize| {
        let turns = conversation.turns[..2 * rounds].to_vec();
        qwen3().encode(&chat(turns), &grids[..rounds], 2).unwrap()
    };
    let lengths = [1, 2, 3].map(|rounds| beginning(rounds).tokens.len());
    for (max_tokens, rounds) in
        [(lengths[2], 3), (lengths[2] - 1, 2), (lengths[1], 2), (lengths[1] - 1, 1)]
    {
        let encoder = limited(max_tokens, OnTooLong::DropTurns);
        let text = encoder.encode(&conversation, &grids, 2).unwrap();
        assert_eq!(text, beginning(rounds), "{max_tokens}");
        assert_eq!(text.images, rounds);
    }
    let encoder = limited(lengths[0] - 1, OnTooLong::DropTurns);
    let flaw = encoder.encode(&conversation, &grids, 2).unwrap_err();
    assert_eq!(flaw.code, "nothing-to-learn");
}

#[test]
fn dropped_images_leave_all_text_and_the_first_images() {
    let (conversation, grids) = rounds();
    let first_images = |kept: usize| {
        let mut conversation = conversation.clone();
        for turn in &mut conversation.turns {
            if let Content::Parts(parts) = &mut turn.content {
                parts.retain(|part| !matches!(part, Part::Image(number) if *number >= kept));
            }
        }
        qwen3().encode(&conversation, &grids[..kept], 2).unwrap()
    };
    for (more, kept) in [(0, 0), (0, 1), (1, 1), (0, 2)] {
        let expected = first_images(kept);
        let encoder = limited(expected.tokens.len() + more, OnTooLong::DropImages);
        let text = encoder.encode(&conversation, &grids, 2).unwrap();
        assert_eq!(text, expected);
        check_agreement(&text, &grids[..kept]);
    }
    let encoder = limited(first_images(0).tokens.len() - 1, OnTooLong::DropImages);
    assert_eq!(encoder.encode(&conversation, &grids, 2).unwrap_err().code, "too-long");
}
