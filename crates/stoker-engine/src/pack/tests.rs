use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::sample::{
    EncodedImage, EncodedText, Grid, ImageFormat, ImageHeader, ImagePlan, SampleId, Size, Standing,
};

const ROW: PatchRow = PatchRow { dtype: Dtype::F32, columns: 1536 };

fn sample(tokens: usize, grids: &[(u32, u32)]) -> Measured {
    let text = EncodedText {
        tokens: (0..tokens as u32).map(|i| 1000 + i).collect(),
        trained: (0..tokens).map(|i| i % 2 == 1).collect(),
        kinds: (0..tokens).map(|i| u8::from(i == 0)).collect(),
        positions: [0, 1, 2].map(|axis| (0..tokens as u32).map(|i| 10 * axis + i).collect()),
        images: grids.len(),
    };
    let size = Size { width: 1, height: 1 };
    let image = |&(h, w): &(u32, u32)| EncodedImage {
        name: String::new(),
        bytes: Bytes::new(),
        header: ImageHeader { format: ImageFormat::Png, stored: size, orientation: 1 },
        plan: ImagePlan { resized: size, grid: Grid { t: 1, h, w } },
    };
    let id = SampleId { dataset: 0, row: 0 };
    let images = grids.iter().map(image).collect();
    Measured { id, text, images, origin: String::new(), standing: Standing::Sample }
}

fn packer(config: &recipe::Pack) -> Result<Packer> {
    let lone = sample(3, &[(2, 2)]);
    let neutral = NeutralImage { text: lone.text, grid: lone.images[0].plan.grid };
    Packer::open(config, ROW, 7, neutral)
}

fn written(packer: &Packer, samples: &[Measured], learned: &[bool], name: &str) -> Vec<i64> {
    let layout = packer.layout(samples);
    let mut arena = vec![0x55; layout.bytes];
    packer.write_text(&layout, samples, learned, &mut arena[layout.rest()]);
    let (values, []) = arena[layout.tensor(name).unwrap().range()].as_chunks() else {
        panic!("whole elements")
    };
    values.iter().map(|&value| i64::from_ne_bytes(value)).collect()
}

#[test]
fn a_padded_batch_is_what_the_models_take() {
    let samples = [sample(3, &[(4, 6), (2, 2)]), sample(5, &[])];
    let packer = packer(&recipe::Pack { pad_to_multiple: 4, ..recipe::Pack::default() }).unwrap();
    let layout = packer.layout(&samples);

    let shape = |name| layout.tensor(name).unwrap().shape.clone();
    assert_eq!(shape("pixel_values"), [28, 1536]);
    assert_eq!(shape("image_grid_thw"), [2, 3]);
    assert_eq!(shape("input_ids"), [2, 8]);
    assert_eq!(shape("position_ids"), [3, 2, 8]);
    let patch = 1536 * 4;
    assert_eq!(layout.slots, [vec![0..24 * patch, 24 * patch..28 * patch], vec![]]);

    let get = |name| written(&packer, &samples, &[true, false], name);
    assert_eq!(get("image_grid_thw"), [1, 4, 6, 1, 2, 2]);
    assert_eq!(
        get("input_ids"),
        [1000, 1001, 1002, 7, 7, 7, 7, 7, 1000, 1001, 1002, 1003, 1004, 7, 7, 7]
    );
    assert_eq!(get("attention_mask"), [1, 1, 1, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 0, 0, 0]);
    let ignored = [IGNORED; 8];
    assert_eq!(get("labels")[..3], [IGNORED, 1001, IGNORED]);
    assert_eq!(get("labels")[8..], ignored, "a neutralised sample teaches nothing");
    assert_eq!(get("mm_token_type_ids"), [1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(get("position_ids")[16..21], [10, 11, 12, 0, 0]);
}

#[test]
fn a_batch_without_images_has_no_image_tensors() {
    let samples = [sample(3, &[])];
    let packer = packer(&recipe::Pack::default()).unwrap();
    let layout = packer.layout(&samples);
    assert!(layout.tensor("pixel_values").is_none() && layout.tensor("image_grid_thw").is_none());
    assert_eq!(written(&packer, &samples, &[true], "input_ids"), [1000, 1001, 1002]);
}

#[test]
fn missing_images_are_made_up_behind_the_samples() {
    let samples = [sample(4, &[(4, 4)]), sample(2, &[])];
    let config = |layout| recipe::Pack { min_images_per_batch: 3, layout, ..Default::default() };
    let padded = packer(&config(BatchLayout::Padded)).unwrap();
    let layout = padded.layout(&samples);
    let shape = |name| layout.tensor(name).unwrap().shape.clone();
    assert_eq!(shape("pixel_values"), [16 + 2 * 4, 1536]);
    assert_eq!(shape("input_ids"), [4, 4]);
    let patch = 1536 * 4;
    assert_eq!(layout.neutral, [16 * patch..20 * patch, 20 * patch..24 * patch]);
    assert_eq!(layout.rest(), 16 * patch..layout.bytes);

    let packed = packer(&config(BatchLayout::Packed)).unwrap();
    for packer in [&padded, &packed] {
        let get = |name| written(packer, &samples, &[true, true], name);
        assert_eq!(get("image_grid_thw"), [1, 4, 4, 1, 2, 2, 1, 2, 2]);
        let labels = get("labels");
        assert!(labels[labels.len() - 6..].iter().all(|label| *label == IGNORED));
    }
    let get = |name| written(&packed, &samples, &[true, true], name);
    assert_eq!(get("input_ids")[6..], [1000, 1001, 1002, 1000, 1001, 1002]);
    assert_eq!(get("position_ids")[..12], [0, 1, 2, 3, 0, 1, 0, 1, 2, 0, 1, 2]);
}

#[test]
fn the_first_token_of_a_packed_segment_is_never_a_label() {
    let mut samples = [sample(3, &[]), sample(2, &[])];
    for sample in &mut samples {
        sample.text.trained.fill(true);
    }
    let config = recipe::Pack { layout: BatchLayout::Packed, ..Default::default() };
    let labels = written(&packer(&config).unwrap(), &samples, &[true, true], "labels");
    assert_eq!(labels, [IGNORED, 1001, 1002, IGNORED, 1001]);
}

fn by_tokens(max_tokens: u32) -> recipe::Pack {
    recipe::Pack { max_tokens: Some(max_tokens), batch_size: None, ..recipe::Pack::default() }
}

#[test]
fn a_sample_that_fits_into_no_batch_is_refused_by_the_limit_that_it_breaks() {
    let config = recipe::Pack {
        max_images: Some(2),
        max_patches: Some(40),
        pad_to_multiple: 64,
        ..by_tokens(200)
    };
    assert_eq!(room_for_a_sample(&config), Some(192));
    let packer = packer(&config).unwrap();
    let code = |sample| packer.admit(&sample).err().map(|flaw| (flaw.code, flaw.to_string()));
    assert_eq!(code(sample(192, &[(4, 4), (4, 6)])), None);
    for (sample, code_there, words) in [
        (sample(193, &[]), "too-long", "it has 193 tokens, and a batch holds 192"),
        (sample(9, &[(2, 2); 3]), "too-many-images", "3 images, and `pack.max-images` is 2"),
        (sample(9, &[(6, 8)]), "too-many-patches", "48 patches, and `pack.max-patches` is 40"),
    ] {
        let (code, shown) = code(sample).unwrap();
        assert_eq!(code, code_there);
        assert!(shown.contains(words) && shown.contains("; "), "{shown}");
    }
}

#[test]
fn neutral_images_that_leave_no_room_are_a_problem_of_the_recipe() {
    let config = recipe::Pack { min_images_per_batch: 4, ..by_tokens(12) };
    assert_eq!(room_for_a_sample(&config), Some(0));
    let error = packer(&config).unwrap_err().to_string();
    assert!(error.contains("pack.min-images-per-batch: so many neutral images"), "{error}");
    assert!(error.contains("; lower it, or raise pack.max-tokens"), "{error}");
    assert!(packer(&recipe::Pack { min_images_per_batch: 4, ..by_tokens(13) }).is_ok());
}

proptest! {
    #[test]
    fn tensors_are_aligned_and_never_overlap(
        sizes in prop::collection::vec((1_usize..40, prop::collection::vec((1_u32..9, 1_u32..9), 0..4)), 1..6),
        (pad_to_multiple, min_images_per_batch) in (1_u32..70, 0_u32..3),
        layout in prop::sample::select(vec![
            BatchLayout::Padded, BatchLayout::Packed, BatchLayout::OfficialFinetune,
        ]),
    ) {
        let samples: Vec<_> = sizes.iter().map(|(n, grids)| sample(*n, grids)).collect();
        let config =
            recipe::Pack { min_images_per_batch, layout, pad_to_multiple, ..Default::default() };
        let layout = packer(&config).unwrap().layout(&samples);
        let mut end = 0;
        for tensor in &layout.tensors {
            prop_assert_eq!(tensor.offset % ALIGNMENT, 0);
            prop_assert!(tensor.offset >= end);
            end = tensor.range().end;
        }
        prop_assert!(layout.bytes >= end);
        let slots: Vec<_> = layout.slots.iter().flatten().chain(&layout.neutral).collect();
        prop_assert!(slots.windows(2).all(|pair| pair[0].end == pair[1].start));
        let filled = slots.last().map_or(0, |slot| slot.end);
        prop_assert_eq!(filled, layout.tensor("pixel_values").map_or(0, |t| t.range().end));
    }
}
