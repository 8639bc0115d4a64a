//! The model folder: what is found in it, and what is said when it is not.

use super::*;

#[test]
fn tokens_have_text_and_padding_is_the_settings_pad_token() {
    assert_eq!(qwen3().pad_token(), 151_643);
    assert_eq!(qwen3().token_text(NEWLINE), "\n");
    assert_eq!(qwen3().token_text(IM_END), "<|im_end|>");
    assert_eq!(qwen3().token_text(u32::MAX), "");
}

// ── the files ────────────────────────────────────────────────

fn problems(result: Result<Encoder, Error>) -> String {
    let error = result.unwrap_err();
    assert!(matches!(&error, Error::Recipe(problems) if problems.iter().all(|p| p.hint.is_some())));
    error.to_string()
}

#[test]
fn files_that_are_missing_or_broken_are_all_named_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let default = recipe::Text::default();
    let open = || Encoder::open(Some(folder.path()), &default, None);

    let text = problems(Encoder::open(None, &default, None));
    assert!(text.contains("2 problems"), "{text}");
    let text = problems(open());
    assert!(text.contains("text.tokenizer: there is no such file"), "{text}");
    assert!(text.contains("text.chat-template: there is no chat_template.jinja"), "{text}");
    assert!(text.contains(&folder.path().display().to_string()), "{text}");

    std::fs::write(path("tokenizer.json"), "{}").unwrap();
    std::fs::write(path("tokenizer_config.json"), r#"{"chat_template": 1}"#).unwrap();
    let text = problems(open());
    assert!(text.contains("neither a string nor a list"), "{text}");
    std::fs::write(path("chat_template.jinja"), "x").unwrap();
    let text = problems(open());
    assert!(text.contains("not a tokenizer"), "{text}");
    std::fs::write(path("tokenizer_config.json"), "[").unwrap();
    let text = problems(open());
    assert!(text.contains("not a JSON object"), "{text}");
}

#[test]
fn templates_that_do_not_write_qwens_turns_are_refused_when_opened() {
    for (template, expected) in [
        ("{% for m in messages %}[{{ m.role }}] {{ m.content }}{% endfor %}", "does not write"),
        ("{% for m in messages %}", "unexpected end of input"),
        ("{{ raise_exception('not today') }}", "not today"),
    ] {
        let text = problems(with_template(template));
        assert!(text.contains("text.chat-template") && text.contains(expected), "{text}");
    }
}

#[test]
fn a_template_is_found_in_each_place_where_models_keep_it() {
    let template = std::fs::read_to_string(model("qwen3_vl").join("chat_template.jinja")).unwrap();
    let other =
        json!([{"name": "rag", "template": "x"}, {"name": "default", "template": template}]);
    for (name, value) in [("chat_template.json", json!(template)), ("tokenizer_config.json", other)]
    {
        let folder = tempfile::tempdir().unwrap();
        let settings = json!({"chat_template": value, "pad_token": {"content": "<|im_end|>"}});
        std::fs::write(folder.path().join(name), settings.to_string()).unwrap();
        let tokenizer = model("qwen3_vl").join("tokenizer.json");
        let tokenizer = Some(tokenizer.display().to_string());
        let config = recipe::Text { tokenizer, ..Default::default() };
        let encoder = Encoder::open(Some(folder.path()), &config, None).unwrap();
        let encode = |encoder: &Encoder| encoder.encode(&talk(), &[], 2).unwrap();
        assert_eq!(encode(&encoder), encode(qwen3()), "{name}");
    }
}
