//! `stoker peek`: one sample as the model sees it. The place to find out that a template, a mask or
//! a size limit does not do what was meant, before it is trained on.
//!
//! What data says is shown with its control characters escaped: a sample must not be able to drive
//! the terminal.

use std::fs;
use std::io::{BufWriter, Write};
use std::path::Path;

use stoker_engine::loader::{self, Peek};
use stoker_engine::sample::{Content, Part, Position, RgbImage, Turn};

use crate::args::PeekArguments;
use crate::outcome::{self, Failure, Outcome};
use crate::recipe;

/// Characters of a turn that are shown in the list of turns.
const SHOWN: usize = 100;

/// What stands before and after learned tokens.
type Marks = (&'static str, &'static str);
const PLAIN: Marks = ("[[", "]]");
const GREEN: Marks = ("\x1b[1;32m", "\x1b[0m");

pub(crate) fn peek(arguments: &PeekArguments, out: &mut dyn Write, colours: bool) -> Outcome {
    let recipe = recipe(&arguments.recipe)?;
    let peek = loader::peek(recipe, Position(arguments.sample))?;
    write_sample(out, arguments.sample, &peek, if colours { GREEN } else { PLAIN })?;
    if let Some(folder) = &arguments.png {
        for (number, (_, image)) in peek.images.iter().enumerate() {
            let name = format!("sample-{}-image-{number}.png", arguments.sample);
            let path = folder.join(name);
            write_png(&path, image).map_err(|error| Failure::Other {
                code: outcome::FAILED,
                message: format!("can't write the image: {error}: {}", path.display()),
            })?;
            writeln!(out, "\nwritten: {}", path.display())?;
        }
    }
    Ok(outcome::OK)
}

fn write_sample(
    out: &mut dyn Write,
    position: u64,
    peek: &Peek,
    marks: Marks,
) -> Result<(), Failure> {
    let learned = peek.tokens.iter().filter(|(.., trained)| *trained).count();
    let (dataset, row) = (peek.id.dataset, peek.id.row);
    writeln!(out, "position {position} is sample {dataset}/{row}: {}", escaped(&peek.origin))?;
    writeln!(out, "\nturns: {}", peek.conversation.turns.len())?;
    for turn in &peek.conversation.turns {
        writeln!(out, "  {:<10} {}", escaped(&turn.role), summary(turn))?;
    }
    writeln!(out, "\nimages: {}", peek.images.len())?;
    for (number, (grid, image)) in peek.images.iter().enumerate() {
        let (width, height) = (image.width, image.height);
        let (t, h, w) = (grid.t, grid.h, grid.w);
        writeln!(out, "  {number}: {width}x{height} pixels, image_grid_thw {t} {h} {w}")?;
    }
    let tokens = peek.tokens.len();
    writeln!(
        out,
        "\ntokens: {tokens}, {learned} of them learned (marked {}so{})",
        marks.0, marks.1
    )?;
    writeln!(out, "{}", marked(&peek.tokens, marks))?;
    Ok(())
}

/// The beginning of what was said.
fn summary(turn: &Turn) -> String {
    let said = match &turn.content {
        Content::Text(text) => text.clone(),
        Content::Parts(parts) => parts
            .iter()
            .map(|part| match part {
                Part::Text(text) => text.clone(),
                Part::Image(number) => format!("<image {}>", number + 1),
            })
            .collect::<Vec<_>>()
            .join(" "),
    };
    let line: String = said.chars().take(SHOWN).collect();
    let end = if line.len() < said.len() { "…" } else { "" };
    format!("{}{end}", escaped(&line).replace('\n', "↵"))
}

/// The text of the tokens, learned stretches marked and repeated tokens counted.
fn marked(tokens: &[(u32, String, bool)], marks: Marks) -> String {
    let mut text = String::new();
    let mut open = false;
    for same in tokens.chunk_by(|a, b| (a.0, a.2) == (b.0, b.2)) {
        let (_, token, trained) = &same[0];
        if *trained != open {
            text.push_str(if *trained { marks.0 } else { marks.1 });
            open = *trained;
        }
        // Image placeholders come by the hundred; words are never repeated that often.
        if same.len() > 3 {
            text.extend([escaped(token), format!("×{}", same.len())]);
        } else {
            text.extend(same.iter().map(|(_, token, _)| escaped(token)));
        }
    }
    if open {
        text.push_str(marks.1);
    }
    text
}

fn escaped(text: &str) -> String {
    let harmless = |c: char| c == '\n' || c == '\t' || !c.is_control();
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        if harmless(c) {
            safe.push(c);
        } else {
            safe.extend(c.escape_default());
        }
    }
    safe
}

fn write_png(path: &Path, image: &RgbImage) -> Result<(), Box<dyn std::error::Error>> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let file = BufWriter::new(fs::File::create(path)?);
    let mut encoder = png::Encoder::new(file, image.width.try_into()?, image.height.try_into()?);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(&image.pixels)?;
    Ok(writer.finish()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use stoker_engine::sample::{Conversation, Grid, SampleId};

    fn example() -> Peek {
        let token = |id: u32, text: &str, trained| (id, text.to_owned(), trained);
        let mut tokens = vec![token(1, "<|im_start|>", false)];
        tokens.extend(vec![token(9, "<|image_pad|>", false); 6]);
        tokens.extend([token(2, "ask\x1b[2J", false), token(3, "A ", true), token(3, "A ", true)]);
        tokens.extend([token(4, "<|im_end|>", true), token(5, "\n", true)]);
        let content = Content::Parts(vec![Part::Image(0), Part::Text("line\nnext".into())]);
        let turn =
            Turn { role: "user".into(), content, extra: serde_json::Map::new(), train: None };
        let pixels = (0..2 * 3 * 3).collect();
        Peek {
            id: SampleId { dataset: 0, row: 41 },
            origin: "train.jsonl:42".into(),
            conversation: Conversation { turns: vec![turn], tools: Vec::new() },
            tokens,
            images: vec![(Grid { t: 1, h: 4, w: 6 }, RgbImage { width: 2, height: 3, pixels })],
        }
    }

    #[test]
    fn learned_tokens_are_marked_and_control_characters_are_harmless() {
        let mut out = Vec::new();
        write_sample(&mut out, 3, &example(), PLAIN).unwrap();
        let expected = [
            "position 3 is sample 0/41: train.jsonl:42",
            "\nturns: 1\n  user       <image 1> line↵next",
            "\nimages: 1\n  0: 2x3 pixels, image_grid_thw 1 4 6",
            "\ntokens: 12, 4 of them learned (marked [[so]])",
            "<|im_start|><|image_pad|>×6ask\\u{1b}[2J[[A A <|im_end|>\n]]\n",
        ]
        .join("\n");
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn images_are_written_pixel_by_pixel() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/sample.png");
        let (_, image) = &example().images[0];
        write_png(&path, image).unwrap();
        let file = std::io::BufReader::new(fs::File::open(path).unwrap());
        let mut reader = png::Decoder::new(file).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut pixels).unwrap();
        assert_eq!((info.width, info.height, info.color_type), (2, 3, png::ColorType::Rgb));
        assert_eq!(pixels, image.pixels);
    }
}
