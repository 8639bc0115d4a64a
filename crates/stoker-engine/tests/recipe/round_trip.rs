//! For any recipe: what is written is read again. For any text: an answer and no panic.

use std::fmt::Debug;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use proptest::collection::{btree_map, vec};
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Map, Value};
use stoker_engine::recipe::{
    Addressing, BatchLayout, Cache, Compat, Component, Dataset, Document, Engine, Fetch, Fields,
    Format, Image, OnBadSample, OnTooLong, Pack, Pixels, Plan, Recipe, Remainder, Shuffle, Text,
    TrainOn, Vision,
};

/// Paths with all that needs quoting.
fn path() -> impl Strategy<Value = String> {
    "[a-zé\"'\\\\#\n]{1,4}(/[a-z .=]{1,5}){0,3}x"
}

fn millis() -> impl Strategy<Value = Duration> {
    (1_u64..=3_600_000).prop_map(Duration::from_millis)
}

fn one_of<T: Clone + Debug + 'static>(choices: &[T]) -> impl Strategy<Value = T> + use<T> {
    select(choices.to_vec())
}

fn options() -> impl Strategy<Value = Map<String, Value>> {
    let leaf = prop_oneof![
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        proptest::num::f64::NORMAL.prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    let value = leaf.prop_recursive(2, 8, 3, |inner| {
        let table = btree_map(any::<String>(), inner.clone(), 0..3);
        prop_oneof![
            vec(inner, 0..3).prop_map(Value::from),
            table.prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    });
    btree_map("[a-zA-Z_ .]{1,6}", value, 0..3).prop_map(|map| map.into_iter().collect())
}

fn fields() -> impl Strategy<Value = Fields> {
    let name = "[a-z][a-z._]{0,8}";
    let messages = name.prop_map(|messages| (Some(messages), None, None));
    let asked = (of(name), name).prop_map(|(question, answer)| (None, question, Some(answer)));
    let said = prop_oneof![Just((None, None, None)), messages, asked];
    (said, of(vec(name, 1..4))).prop_map(|((messages, question, answer), images)| Fields {
        messages,
        images,
        question,
        answer,
    })
}

prop_compose! {
    fn sources()(
        model in of(path()),
        compat in one_of(&Compat::ALL.map(|(_, compat)| compat)),
        source in vec(
            prop_oneof![path(), "(s3|gs|az|file|https)://[a-z]{1,5}/[a-z/%20?={}*,.]{0,9}"],
            1..4,
        ),
        format in of(one_of(&[Format::Jsonl, Format::WebDataset, Format::Parquet, Format::Mds])),
        fields in fields(),
        media_root in of(path()),
        allow_http in any::<bool>(),
        max_line in 1024_u64..=2 << 30,
        max_copied in 0_u64..=1 << 50,
        index_dir in of(path()),
        seed in 0..=i64::MAX as u64,
        shuffle in one_of(&[Shuffle::Full, Shuffle::Block, Shuffle::None]),
        window in of(1_u32..=65_536),
        epochs in of(1_u64..=1_000_000_000),
        remainder in one_of(&[Remainder::Fill, Remainder::Pad, Remainder::Drop]),
        lanes in 1_u32..=65_536,
    ) -> Recipe {
        let dataset = Dataset {
            source, format, fields, media_root, allow_http, max_line, max_copied, index_dir,
        };
        let window = window.filter(|_| shuffle == Shuffle::Block);
        let remainder = epochs.map_or(Remainder::Fill, |_| remainder);
        let plan = Plan { seed, shuffle, window, epochs, remainder, lanes, ..Plan::default() };
        let datasets = vec![Component { dataset, ..Component::default() }];
        Recipe { model, compat, datasets, plan, ..Recipe::default() }
    }
}

prop_compose! {
    fn fetches()(
        concurrency in 1_u32..=4096,
        attempts in 1_u32..=100,
        (connect_timeout, read_timeout, deadline) in (millis(), millis(), millis()),
        endpoint in of("https?://[a-z]{1,9}(:[1-9]{1,4})?"),
        region in of("[a-z]{1,3}-[a-z]{1,5}-[1-9]"),
        (anonymous, checksum, requester_pays) in any::<(bool, bool, bool)>(),
        addressing in of(one_of(&[Addressing::Path, Addressing::VirtualHost])),
        ca_file in of(path()),
        cache in of((path(), 1_u64 << 20..=1 << 50)),
    ) -> Fetch {
        Fetch {
            concurrency, attempts, connect_timeout, read_timeout, deadline, endpoint, region,
            anonymous, addressing, requester_pays, ca_file, checksum,
            cache: cache.map(|(path, size)| Cache { path, size }),
        }
    }
}

prop_compose! {
    fn stores()(
        fetch in fetches(),
        max_pixels in 1_u64..=4_000_000_000,
        max_side in 1_u32..=1_000_000,
        max_bytes in 1024_u64..=2 << 30,
        max_scans in 1_u32..=10_000,
        approximate in any::<bool>(),
    ) -> (Fetch, Image) {
        (fetch, Image { max_pixels, max_side, max_bytes, max_scans, approximate })
    }
}

prop_compose! {
    fn readers()(
        family in of("[a-z0-9.-]{1,9}"),
        config in of(path()),
        min_pixels in of(1_u64..=1000),
        max_pixels in of(1000_u64..=4_000_000_000),
        pixels in one_of(&[Pixels::F32, Pixels::Bf16, Pixels::U8]),
        tokenizer in of(path()),
        chat_template in of(path()),
        template_options in options(),
        train_on in one_of(&[TrainOn::Assistant, TrainOn::LastAssistant, TrainOn::All]),
        train_newline in any::<bool>(),
        max_tokens in of(1_u32..=1 << 24),
        on_too_long in one_of(&[OnTooLong::Refuse, OnTooLong::DropTurns, OnTooLong::DropImages]),
    ) -> (Vision, Text) {
        let vision = Vision { family, config, min_pixels, max_pixels, pixels };
        let text = Text {
            tokenizer, chat_template, template_options, train_on, train_newline, max_tokens,
            on_too_long,
        };
        (vision, text)
    }
}

fn addresses() -> impl Strategy<Value = SocketAddr> {
    any::<(IpAddr, u16)>().prop_map(SocketAddr::from)
}

prop_compose! {
    fn batches()(
        (by_samples, batch_size, max_tokens) in (any::<bool>(), 1_u32..=65_536, 1_u32..=1 << 24),
        (max_images, max_patches) in (of(1024_u32..=65_536), of(1_u32..=1 << 26)),
        min_images_per_batch in 0_u32..=1024,
        padded in any::<bool>(),
        rows in one_of(&[BatchLayout::Packed, BatchLayout::OfficialFinetune]),
        pad_to_multiple in 1_u32..=65_536,
    ) -> Pack {
        let pad_to_multiple = if by_samples { pad_to_multiple } else { pad_to_multiple.min(max_tokens) };
        let by_tokens = |limit: Option<u32>| limit.filter(|_| !by_samples);
        Pack {
            batch_size: by_samples.then_some(batch_size),
            max_tokens: by_tokens(Some(max_tokens)),
            max_images: by_tokens(max_images),
            max_patches: by_tokens(max_patches),
            min_images_per_batch,
            layout: if by_samples && padded { BatchLayout::Padded } else { rows },
            pad_to_multiple,
        }
    }
}

prop_compose! {
    fn recipes()(
        sources in sources(),
        (fetch, image) in stores(),
        (vision, text) in readers(),
        pack in batches(),
        memory in of(16_u64 << 20..=1 << 50),
        (workers, local_world_size) in (of(1_u32..=1024), of(1_u32..=1024)),
        prefetch in of(0_u32..=1024),
        on_bad_sample in one_of(&[OnBadSample::Replace, OnBadSample::Stop]),
        bad_sample_limit in 0.0..=1.0,
        (ledger, metrics) in (of(path()), of(addresses())),
    ) -> Recipe {
        let mut sources = sources;
        sources.plan.epochs = sources.plan.epochs.filter(|_| pack.max_tokens.is_none());
        if sources.plan.epochs.is_none() {
            sources.plan.remainder = Remainder::Fill;
        }
        let engine = Engine {
            memory,
            workers,
            local_world_size,
            prefetch,
            on_bad_sample,
            bad_sample_limit,
            ledger,
            metrics,
        };
        Recipe { fetch, image, vision, text, pack, engine, ..sources }
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read_again(recipe in recipes()) {
        let value = recipe.to_value();
        prop_assert_eq!(&Recipe::from_value(value.clone()).unwrap(), &recipe);
        prop_assert_eq!(&Recipe::from_json(&value.to_string()).unwrap(), &recipe);
        prop_assert_eq!(&Recipe::from_toml(&recipe.to_toml()).unwrap(), &recipe);
    }

    #[test]
    fn no_text_makes_the_reader_panic(text in "[\\[\\]{}\"'=.,:a-e0-9\n -]{0,60}", set in ".{0,20}") {
        for parse in [Document::from_toml, Document::from_json] {
            if let Ok(mut document) = parse(&text) {
                document.set(&set);
                prop_assert!(document.recipe().is_err());
            }
        }
    }
}
