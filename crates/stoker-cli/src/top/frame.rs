//! What is drawn of a look.

use stoker_engine::error::Bytes;

use super::rates::{RoomRates, batches};
use super::{Look, Seen};

/// A loader in a line.
pub(super) fn line(seen: &Seen) -> String {
    let limit = seen.glance.report.advice.as_ref().map_or_else(String::new, |advice| {
        let words = advice.words.split(';').next().unwrap_or_default();
        format!("; {words}")
    });
    plain(&format!("{}: {}{limit}", title(seen), speed(seen)))
}

/// All loaders, in lines that fit into a terminal.
pub(super) fn frame(look: &Look, width: usize, height: usize) -> Vec<String> {
    let count = look.seen.len();
    let mut lines = vec![format!(
        "stoker top: {count} loader{}; Ctrl-C ends it",
        if count == 1 { "" } else { "s" }
    )];
    for seen in &look.seen {
        lines.push(String::new());
        lines.extend(block(seen, width));
    }
    for (name, error) in &look.unseen {
        lines.push(format!("loader {name}: {error}"));
    }
    // The line below the last one is where the cursor is.
    let most = height.saturating_sub(1).max(1);
    if lines.len() > most {
        let hidden = lines.len() - most + 1;
        lines.truncate(most - 1);
        lines.push(format!(
            "… and {hidden} lines more: make the terminal higher, or name a process"
        ));
    }
    lines.iter().map(|line| plain(line).chars().take(width).collect()).collect()
}

fn block(seen: &Seen, width: usize) -> Vec<String> {
    let mut lines = vec![title(seen), format!("  {}", about(seen)), format!("  {}", speed(seen))];
    lines.push(format!("  {:<8} {:>8} {:>10} {:>14}", "room", "busy", "items/s", "bytes/s"));
    for RoomRates { room, busy, items_per_second, bytes_per_second } in &seen.rates.rooms {
        let bytes = per_second(*bytes_per_second);
        lines.push(format!("  {room:<8} {busy:>8.2} {items_per_second:>10.1} {bytes:>14}"));
    }
    if let Some(advice) = &seen.glance.report.advice {
        lines.extend(wrapped(&plain(&advice.words), width.saturating_sub(2)));
    }
    lines
}

fn title(seen: &Seen) -> String {
    let glance = &seen.glance;
    format!("loader {} rank {} of {}", seen.name, glance.rank, glance.world_size)
}

fn about(seen: &Seen) -> String {
    let glance = &seen.glance;
    let age = glance.age_seconds as u64;
    let (hours, minutes, seconds) = (age / 3600, age / 60 % 60, age % 60);
    let at = glance.metrics.map_or_else(String::new, |at| format!("  http://{at}/metrics"));
    let memory = Bytes(glance.report.memory.arena_bytes + glance.report.memory.compressed_bytes);
    let batches = batches(&glance.report);
    format!(
        "{hours}:{minutes:02}:{seconds:02}  {batches} batches  {memory} held  {}{at}",
        glance.source
    )
}

fn speed(seen: &Seen) -> String {
    let rates = &seen.rates;
    let percent = |ratio: Option<f64>| {
        ratio.map_or_else(|| "?".to_owned(), |ratio| format!("{:.1} %", ratio * 100.0))
    };
    format!(
        "wait {} (now {})  {:.1} samples/s  {:.1} images/s  {:.0} tokens/s  {}",
        percent(seen.glance.report.wait.window_ratio),
        percent(rates.wait_ratio),
        rates.samples_per_second,
        rates.images_per_second,
        rates.tokens_per_second,
        per_second(rates.bytes_per_second),
    )
}

fn per_second(bytes: f64) -> String {
    format!("{}/s", Bytes(bytes as u64))
}

/// Words in lines of a width, each set in.
fn wrapped(words: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in words.split_whitespace() {
        let last = lines.last_mut().expect("there is one from the beginning");
        let length = last.chars().count();
        if length > 0 && length + 1 + word.chars().count() > width {
            lines.push(word.to_owned());
        } else {
            last.push_str(if length > 0 { " " } else { "" });
            last.push_str(word);
        }
    }
    lines.into_iter().map(|line| format!("  {line}")).collect()
}

/// What another process says must not move the cursor.
fn plain(text: &str) -> String {
    text.chars().map(|char| if char.is_control() { ' ' } else { char }).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use stoker_engine::loader::{Glance, Name};
    use stoker_engine::metrics::{Metrics, Room, Wait};

    use super::super::rates::Rates;
    use super::*;

    fn glance(metrics: &Metrics, age_seconds: f64) -> Glance {
        Glance {
            pid: 12,
            rank: 3,
            world_size: 8,
            age_seconds,
            source: "s3://bucket/\x1b[2Jtrain.jsonl".to_owned(),
            metrics: Some("127.0.0.1:9464".parse().unwrap()),
            report: metrics.report(),
        }
    }

    /// Two seconds with 4 steps of half a second, half of which was waited.
    fn seen() -> Seen {
        let metrics = Metrics::default();
        let step = |millis| {
            let wall = Duration::from_millis(millis);
            metrics.waited(Wait { blocked: wall / 2, wall });
        };
        step(3000);
        metrics.samples.add(100);
        metrics.room(Room::Fetch).count(Duration::from_secs(1), 5 << 20);
        let before = glance(&metrics, 10.0);
        (0..4).for_each(|_| step(500));
        metrics.samples.add(50);
        metrics.tokens.add(9000);
        metrics.room(Room::Fetch).count(Duration::from_secs(6), 3 << 20);
        let now = glance(&metrics, 12.0);
        let rates = Rates::between(Some(&before), &now);
        Seen { name: Name::new(12, 0), glance: now, rates }
    }

    #[test]
    fn rates_are_those_between_two_looks() {
        let line = line(&seen());
        for words in [
            "loader 12/0 rank 3 of 8: wait 50.0 % (now 50.0 %)",
            "25.0 samples/s",
            "0.0 images/s",
            "4500 tokens/s",
            "1.5 MiB/s",
        ] {
            assert!(line.contains(words), "{words} is not in {line}");
        }
        let seen = seen();
        let first = Rates::between(None, &seen.glance);
        assert!((first.samples_per_second - 12.5).abs() < 1e-9);
        let none = Rates::between(Some(&seen.glance), &seen.glance);
        assert_eq!((none.samples_per_second, none.wait_ratio), (0.0, None));
    }

    #[test]
    fn a_frame_fits_into_the_terminal_and_has_no_control_characters() {
        let look = Look { seen: vec![seen(), seen()], unseen: Vec::new() };
        let whole = frame(&look, 200, 100);
        let text = whole.join("\n");
        assert!(text.starts_with("stoker top: 2 loaders"));
        assert!(text.contains("0:00:12  5 batches"), "{text}");
        assert!(text.contains("http://127.0.0.1:9464/metrics"));
        assert!(text.contains("  fetch        3.00        0.5      1.5 MiB/s"), "{text}");
        assert!(!text.contains('\x1b'));
        for (width, height) in [(40, 6), (10, 2), (1, 1), (0, 0)] {
            let cut = frame(&look, width, height);
            assert!(cut.len() < height.max(2), "{height}: {cut:?}");
            assert!(cut.iter().all(|line| line.chars().count() <= width));
        }
    }

    #[test]
    fn words_are_wrapped_between_words() {
        assert_eq!(wrapped("one two three", 7), ["  one two", "  three"]);
        assert_eq!(wrapped("long-word", 3), ["  long-word"]);
    }
}
