//! Conversations as one packed row, against the form that was tried on transformers.

use bytes::Bytes;
use stoker_engine::pack::{Layout, NeutralImage, Packer, PatchRow, ScalarValue};
use stoker_engine::recipe::BatchLayout;
use stoker_engine::sample::{
    Dtype, EncodedImage, ImageFormat, ImageHeader, ImagePlan, Measured, SampleId, Size, Standing,
};

use super::*;

fn packer(encoder: &Encoder, layout: BatchLayout, pad_to_multiple: u32) -> Packer {
    let config = recipe::Pack { layout, pad_to_multiple, ..Default::default() };
    let row = PatchRow { dtype: Dtype::U8, columns: 1 };
    let neutral = NeutralImage { text: encoder.lone_image(square(2), 2), grid: square(2) };
    Packer::open(&config, row, encoder.pad_token(), neutral).unwrap()
}

/// A conversation of the golden file, measured.
fn measured(encoder: &Encoder, case: &Value) -> Measured {
    let grids = grids(&case["image_grid_thw"]);
    let conversation = conversation(&case["messages"], &case["kwargs"]["tools"]);
    let size = Size { width: 1, height: 1 };
    let image = |&grid: &Grid| EncodedImage {
        name: String::new(),
        bytes: Bytes::new(),
        header: ImageHeader { format: ImageFormat::Png, stored: size, orientation: 1 },
        plan: ImagePlan { resized: size, grid },
    };
    Measured {
        id: SampleId { dataset: 0, row: 0 },
        text: encoder.encode(&conversation, &grids, 2).unwrap(),
        images: grids.iter().map(image).collect(),
        origin: String::new(),
        standing: Standing::Sample,
    }
}

/// The golden members of one model, laid out and written.
fn batch(kind: &str, layout: BatchLayout, pad_to_multiple: u32) -> (Layout, Vec<u8>) {
    let encoder = encoder(kind, &Value::Null);
    let members = golden("packed.json")[kind]["members"].as_array().unwrap().clone();
    let chats = golden("chats.json");
    let is_member = |case: &&Value| case["kind"] == kind && members.contains(&case["note"]);
    let samples: Vec<_> =
        chats.as_array().unwrap().iter().filter(is_member).map(|c| measured(encoder, c)).collect();
    assert_eq!(samples.len(), members.len());
    let packer = packer(encoder, layout, pad_to_multiple);
    let layout = packer.layout(&samples);
    let mut arena = vec![0x55; layout.bytes];
    packer.write_text(&layout, &samples, &vec![true; samples.len()], &mut arena);
    (layout, arena)
}

/// A tensor of whole numbers, as JSON has it.
fn tensor((layout, arena): &(Layout, Vec<u8>), name: &str) -> Value {
    let tensor = layout.tensor(name).unwrap();
    let bytes = &arena[tensor.range()];
    match tensor.dtype {
        Dtype::I64 => {
            bytes.as_chunks().0.iter().map(|b| Value::from(i64::from_ne_bytes(*b))).collect()
        }
        Dtype::I32 => {
            bytes.as_chunks().0.iter().map(|b| Value::from(i32::from_ne_bytes(*b))).collect()
        }
        other => panic!("{name} is {other:?}"),
    }
}

fn shape(batch: &(Layout, Vec<u8>), name: &str) -> Vec<usize> {
    batch.0.tensor(name).unwrap().shape.clone()
}

fn flat(rows: &Value) -> Value {
    rows.as_array().unwrap().iter().flat_map(|row| row.as_array().unwrap().clone()).collect()
}

#[test]
fn a_packed_row_is_what_transformers_keeps_apart() {
    for kind in ["qwen3_vl", "qwen2_5_vl"] {
        let expected = &golden("packed.json")[kind];
        let packed = batch(kind, BatchLayout::Packed, 1);
        let names: Vec<_> = packed.0.tensors.iter().map(|tensor| tensor.name).collect();
        assert_eq!(
            names,
            [
                "pixel_values",
                "image_grid_thw",
                "input_ids",
                "labels",
                "position_ids",
                "cu_seq_lens_q",
                "cu_seq_lens_k",
            ]
        );
        let length = expected["input_ids"].as_array().unwrap().len();
        assert_eq!(shape(&packed, "input_ids"), [1, length]);
        assert_eq!(shape(&packed, "labels"), [1, length]);
        assert_eq!(shape(&packed, "position_ids"), [4, 1, length]);
        for name in ["input_ids", "labels"] {
            assert_eq!(tensor(&packed, name), expected[name], "{kind} {name}");
        }
        assert_eq!(tensor(&packed, "position_ids"), flat(&expected["position_ids_4xL"]), "{kind}");
        assert_eq!(tensor(&packed, "image_grid_thw"), flat(&expected["image_grid_thw"]));
        for name in ["cu_seq_lens_q", "cu_seq_lens_k"] {
            assert_eq!(packed.0.tensor(name).unwrap().dtype, Dtype::I32);
            assert_eq!(tensor(&packed, name), expected["cu_seq_lens"], "{kind} {name}");
        }
        let scalars: Vec<_> =
            packed.0.scalars.iter().map(|scalar| (scalar.name, scalar.value)).collect();
        let longest = ScalarValue::Whole(expected["max_length"].as_u64().unwrap());
        let cache = ("use_cache", ScalarValue::Flag(false));
        assert_eq!(scalars, [("max_length_q", longest), ("max_length_k", longest), cache]);
    }
}

#[test]
fn padding_is_a_segment_of_its_own() {
    let expected = &golden("packed.json")["qwen3_vl"];
    let (plain, padded) =
        (batch("qwen3_vl", BatchLayout::Packed, 1), batch("qwen3_vl", BatchLayout::Packed, 64));
    let length = expected["input_ids"].as_array().unwrap().len();
    let padding = length.next_multiple_of(64) - length;
    assert_eq!(shape(&padded, "position_ids"), [4, 1, length + padding]);
    let with = |row: &[Value], padding: Vec<Value>| [row, &padding].concat();
    let row = |batch: &(Layout, Vec<u8>), name| tensor(batch, name).as_array().unwrap().clone();
    for (name, value) in [("input_ids", 151_643), ("labels", -100)] {
        let padding = vec![Value::from(value); padding];
        assert_eq!(row(&padded, name), with(&row(&plain, name), padding), "{name}");
    }
    let positions = row(&plain, "position_ids");
    let counted = || (0..padding).map(Value::from).collect::<Vec<_>>();
    let positions = positions.chunks(length).flat_map(|row| with(row, counted()));
    assert_eq!(row(&padded, "position_ids"), positions.collect::<Vec<_>>());
    let starts = with(&row(&plain, "cu_seq_lens_q"), vec![(length + padding).into()]);
    assert_eq!(row(&padded, "cu_seq_lens_q"), starts);
}

#[test]
fn the_layout_of_qwens_finetuning_code_has_its_own_positions_and_mask() {
    for kind in ["qwen3_vl", "qwen2_5_vl"] {
        let expected = &golden("packed.json")[kind];
        let official = batch(kind, BatchLayout::OfficialFinetune, 1);
        let names: Vec<_> = official.0.tensors.iter().skip(2).map(|tensor| tensor.name).collect();
        assert_eq!(names, ["input_ids", "labels", "position_ids", "attention_mask"]);
        assert!(official.0.scalars.is_empty());
        for name in ["input_ids", "labels"] {
            assert_eq!(tensor(&official, name), expected[name], "{kind} {name}");
        }
        let rows = Value::from(expected["position_ids_4xL"].as_array().unwrap()[1..].to_vec());
        assert_eq!(tensor(&official, "position_ids"), flat(&rows));
        assert_eq!(official.0.tensor("attention_mask").unwrap().dtype, Dtype::I32);
        assert_eq!(tensor(&official, "attention_mask"), expected["cu_seq_lens"]);
    }
}
