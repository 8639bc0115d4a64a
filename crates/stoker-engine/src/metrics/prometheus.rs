//! A report in Prometheus' text form (version 0.0.4), which most monitoring systems read.

use std::fmt::Write as _;

use super::families::{Family, Kind, Point, Value, families};
use super::{HistogramReport, Report};
use crate::sample::Rank;

/// What HTTP calls this form.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// All metrics of a loader, each with its rank.
pub fn text(report: &Report, rank: Rank) -> String {
    let mut text = String::new();
    for family in families(report, rank) {
        write(&mut text, &family, rank.index);
    }
    text
}

fn write(text: &mut String, family: &Family, rank: u32) {
    let Family { name, kind, help, points } = family;
    let help = help.replace('\\', "\\\\").replace('\n', "\\n");
    let kind = match kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
        Kind::Histogram => "histogram",
    };
    line(text, format_args!("# HELP {name} {help}"));
    line(text, format_args!("# TYPE {name} {kind}"));
    for Point { labels, value } in points {
        let mut written = format!("rank=\"{rank}\"");
        for (label, value) in labels {
            write!(written, ",{label}=\"{}\"", escaped(value)).expect(STRINGS);
        }
        match value {
            Value::Number(number) => line(text, format_args!("{name}{{{written}}} {number}")),
            Value::Histogram(histogram) => write_histogram(text, name, &written, histogram),
        }
    }
}

/// Steps hold what is in those below them too.
fn write_histogram(text: &mut String, name: &str, labels: &str, histogram: &HistogramReport) {
    let ends = histogram.bounds_seconds.iter().map(ToString::to_string);
    let mut count = 0;
    for (end, more) in ends.chain(["+Inf".to_owned()]).zip(&histogram.counts) {
        count += more;
        line(text, format_args!("{name}_bucket{{{labels},le=\"{end}\"}} {count}"));
    }
    line(text, format_args!("{name}_sum{{{labels}}} {}", histogram.sum_seconds));
    line(text, format_args!("{name}_count{{{labels}}} {count}"));
}

const STRINGS: &str = "writing to a String does not fail";

fn line(text: &mut String, line: std::fmt::Arguments<'_>) {
    writeln!(text, "{line}").expect(STRINGS);
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::metrics::{Metrics, Room, Wait};

    #[test]
    fn a_report_as_text_has_each_number_once_with_its_rank() {
        let metrics = Metrics::default();
        metrics.room(Room::Image).count(Duration::from_millis(1500), 1 << 20);
        metrics.samples.add(7);
        for millis in [900, 1, 3] {
            let blocked = Duration::from_millis(millis);
            metrics.waited(Wait { blocked, wall: 2 * blocked });
        }
        let text = text(&metrics.report(), Rank { index: 3, of: 8 });
        for line in [
            "# HELP stoker_samples_total Samples delivered.",
            "# TYPE stoker_samples_total counter",
            "stoker_samples_total{rank=\"3\"} 7",
            "stoker_batches_total{rank=\"3\"} 3",
            "stoker_wait_seconds_total{rank=\"3\"} 0.004",
            "stoker_step_seconds_total{rank=\"3\"} 0.008",
            "stoker_first_batch_wait_seconds{rank=\"3\"} 0.9",
            "stoker_wait_ratio{rank=\"3\"} 0.5",
            "stoker_room_busy_seconds_total{rank=\"3\",room=\"image\"} 1.5",
            "stoker_room_bytes_total{rank=\"3\",room=\"image\"} 1048576",
            "stoker_room_bytes_total{rank=\"3\",room=\"fetch\"} 0",
            "# TYPE stoker_batch_wait_seconds histogram",
            "stoker_batch_wait_seconds_bucket{rank=\"3\",le=\"0.0005\"} 0",
            "stoker_batch_wait_seconds_bucket{rank=\"3\",le=\"0.001\"} 1",
            "stoker_batch_wait_seconds_bucket{rank=\"3\",le=\"0.005\"} 2",
            "stoker_batch_wait_seconds_bucket{rank=\"3\",le=\"+Inf\"} 2",
            "stoker_batch_wait_seconds_sum{rank=\"3\"} 0.004",
            "stoker_batch_wait_seconds_count{rank=\"3\"} 2",
        ] {
            assert_eq!(text.lines().filter(|have| *have == line).count(), 1, "{line}\n{text}");
        }
        assert!(text.ends_with('\n'));
        assert!(!text.contains("stoker_packing_ratio{"), "it is not known");
    }

    #[test]
    fn what_has_a_meaning_in_the_form_is_escaped() {
        let labels = vec![("kind", "a\\b\"c\nd".to_owned())];
        let points = vec![Point { labels, value: Value::Number(0.5) }];
        let family = Family { name: "n", kind: Kind::Gauge, help: "a\\b\n\"c\"", points };
        let mut text = String::new();
        write(&mut text, &family, 0);
        assert_eq!(
            text,
            "# HELP n a\\\\b\\n\"c\"\n# TYPE n gauge\nn{rank=\"0\",kind=\"a\\\\b\\\"c\\nd\"} 0.5\n"
        );
    }
}
