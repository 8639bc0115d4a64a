//! Which turns are learned, and what is refused.

use super::*;

// ── what is learned ──────────────────────────────────────────

#[test]
fn train_on_and_train_newline_choose_what_is_learned() {
    for (train_on, train_newline, expected) in [
        (TrainOn::Assistant, true, "first<|im_end|>\nsecond<|im_end|>\n"),
        (TrainOn::Assistant, false, "first<|im_end|>second<|im_end|>"),
        (TrainOn::LastAssistant, true, "second<|im_end|>\n"),
        (
            TrainOn::All,
            false,
            "rules<|im_end|>one<|im_end|>first<|im_end|>two<|im_end|>second<|im_end|>",
        ),
    ] {
        let config = recipe::Text { train_on, train_newline, ..Default::default() };
        let encoder = open("qwen3_vl", &config);
        let text = encoder.encode(&talk(), &[], 2).unwrap();
        assert_eq!(learned(&encoder, &text), expected, "{train_on:?}");
    }
}

#[test]
fn the_datas_own_word_on_a_turn_wins() {
    let mut conversation = talk();
    conversation.turns[2].train = Some(false);
    conversation.turns[3].train = Some(true);
    let text = qwen3().encode(&conversation, &[], 2).unwrap();
    assert_eq!(learned(qwen3(), &text), "two<|im_end|>\nsecond<|im_end|>\n");
    // Qwen2.5-VL puts a system turn of its own in front, which is nobody's turn
    conversation.turns.remove(0);
    conversation.turns[0].train = Some(true);
    let text = qwen25().encode(&conversation, &[], 2).unwrap();
    assert_eq!(learned(qwen25(), &text), "one<|im_end|>\ntwo<|im_end|>\nsecond<|im_end|>\n");
}

#[test]
fn tool_turns_that_share_a_block_are_learned_together_or_refused() {
    let mut conversation = chat([
        turn("user", "go"),
        turn("assistant", "calls"),
        turn("tool", "sunny"),
        turn("tool", "cold"),
        turn("assistant", "done"),
    ]);
    conversation.turns[2].train = Some(true);
    assert_eq!(flaw(&conversation, &[]).code, "turns-differ");
    conversation.turns[3].train = Some(true);
    let text = qwen3().encode(&conversation, &[], 2).unwrap();
    let tools = "<tool_response>\nsunny\n</tool_response>\n<tool_response>\ncold\n</tool_response>";
    let expected = format!("calls<|im_end|>\n{tools}<|im_end|>\ndone<|im_end|>\n");
    assert_eq!(learned(qwen3(), &text), expected);
}

#[test]
fn a_system_turn_that_the_template_drops_changes_nothing() {
    let with = chat([turn("user", "a"), turn("system", "late"), turn("assistant", "b")]);
    let without = chat([turn("user", "a"), turn("assistant", "b")]);
    let encode = |conversation| qwen3().encode(conversation, &[], 2).unwrap();
    assert_eq!(encode(&with), encode(&without));
}

#[test]
fn generation_tags_of_a_training_template_say_what_is_learned() {
    let encoder = with_template(
        "{%- for message in messages %}
            {{- '<|im_start|>' + message.role + '\\n' }}
            {%- if message.role == 'assistant' %}
                {{- 'e\u{301}: ' }}
                {%- generation -%}
                    {{- message.content + '<|im_end|>' }}
                {%- endgeneration %}
                {{- '\\n' }}
            {%- else %}
                {{- message.content + '<|im_end|>\\n' }}
            {%- endif %}
        {%- endfor %}",
    )
    .unwrap();
    let text = encoder.encode(&talk(), &[], 2).unwrap();
    assert!(spell(&encoder, &text.tokens).contains("assistant\n\u{e9}: first<|im_end|>\n"));
    // the space before "first" is part of its token
    assert_eq!(learned(&encoder, &text), " first<|im_end|> second<|im_end|>");
}

// ── flaws and limits ─────────────────────────────────────────

fn flaw(conversation: &Conversation, grids: &[Grid]) -> Flaw {
    qwen3().encode(conversation, grids, 2).unwrap_err()
}

#[test]
fn unusable_conversations_are_flaws_that_say_why() {
    assert_eq!(flaw(&chat([]), &[]).code, "nothing-to-learn");
    assert_eq!(flaw(&chat([turn("user", "hi")]), &[]).code, "nothing-to-learn");
    let mut untrained = talk();
    untrained.turns.iter_mut().for_each(|turn| turn.train = Some(false));
    assert_eq!(flaw(&untrained, &[]).code, "nothing-to-learn");
    // Qwen3-VL's template drops images of assistant turns
    let answer = chat([turn("user", "draw"), with_image(turn("assistant", "here"), 0)]);
    assert_eq!(flaw(&answer, &[square(2)]).code, "image-count");
    let shown = chat([with_image(turn("user", "?"), 0), turn("assistant", "!")]);
    assert_eq!(flaw(&shown, &[]).code, "image-count");
    assert_eq!(flaw(&shown, &[square(2); 2]).code, "image-count");
    let reserved = chat([turn("user", "\u{fdd0}"), turn("assistant", "!")]);
    assert_eq!(flaw(&reserved, &[]).code, "noncharacter");
}

#[test]
fn an_image_in_an_assistant_turn_is_shown_and_never_learned_by_qwen2_5_vl() {
    let answer = chat([turn("user", "draw"), with_image(turn("assistant", "here"), 0)]);
    let text = qwen25().encode(&answer, &[square(4)], 2).unwrap();
    assert_eq!(learned(qwen25(), &text), "here<|im_end|>\n");
    check_agreement(&text, &[square(4)]);
}

#[test]
fn what_the_template_refuses_is_a_flaw_with_its_words() {
    let encoder = with_template(
        "{% for message in messages %}{% if 'two' == message.content and not tools %}\
         {{ raise_exception('no twos') }}{% endif %}<|im_start|>{{ message.role }}\n\
         {{ message.content }}<|im_end|>\n{% endfor %}",
    )
    .unwrap();
    let flaw = encoder.encode(&talk(), &[], 2).unwrap_err();
    assert_eq!(flaw.code, "chat-template");
    assert!(flaw.reason.contains("no twos"), "{}", flaw.reason);
}
