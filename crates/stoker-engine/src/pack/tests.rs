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

fn written(layout: &Layout, samples: &[Measured], learned: &[bool], name: &str) -> Vec<i64> {
    let pixels = layout.tensor("pixel_values").map_or(0, |t| t.range().end.next_multiple_of(64));
    let mut arena = vec![0x55; layout.bytes];
    write_text(layout, samples, learned, 7, &mut arena[pixels..]);
    let (values, []) = arena[layout.tensor(name).unwrap().range()].as_chunks() else {
        panic!("whole elements")
    };
    values.iter().map(|&value| i64::from_ne_bytes(value)).collect()
}

#[test]
fn a_padded_batch_is_what_the_models_take() {
    let samples = [sample(3, &[(4, 6), (2, 2)]), sample(5, &[])];
    let config = recipe::Pack { batch_size: 2, pad_to_multiple: 4 };
    let layout = layout(&samples, ROW, &config);

    let shape = |name| layout.tensor(name).unwrap().shape.clone();
    assert_eq!(shape("pixel_values"), [28, 1536]);
    assert_eq!(shape("image_grid_thw"), [2, 3]);
    assert_eq!(shape("input_ids"), [2, 8]);
    assert_eq!(shape("position_ids"), [3, 2, 8]);
    let patch = 1536 * 4;
    assert_eq!(layout.slots, [vec![0..24 * patch, 24 * patch..28 * patch], vec![]]);

    let get = |name| written(&layout, &samples, &[true, false], name);
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
    let layout = layout(&samples, ROW, &recipe::Pack::default());
    assert!(layout.tensor("pixel_values").is_none() && layout.tensor("image_grid_thw").is_none());
    assert_eq!(written(&layout, &samples, &[true], "input_ids"), [1000, 1001, 1002]);
}

proptest! {
    #[test]
    fn tensors_are_aligned_and_never_overlap(
        sizes in prop::collection::vec((1_usize..40, prop::collection::vec((1_u32..9, 1_u32..9), 0..4)), 1..6),
        pad_to_multiple in 1_u32..70,
    ) {
        let samples: Vec<_> = sizes.iter().map(|(n, grids)| sample(*n, grids)).collect();
        let config = recipe::Pack { batch_size: samples.len() as u32, pad_to_multiple };
        let layout = layout(&samples, ROW, &config);
        let mut end = 0;
        for tensor in &layout.tensors {
            prop_assert_eq!(tensor.offset % ALIGNMENT, 0);
            prop_assert!(tensor.offset >= end);
            end = tensor.range().end;
        }
        prop_assert!(layout.bytes >= end);
        let slots: Vec<_> = layout.slots.iter().flatten().collect();
        prop_assert!(slots.windows(2).all(|pair| pair[0].end == pair[1].start));
        let filled = slots.last().map_or(0, |slot| slot.end);
        prop_assert_eq!(filled, layout.tensor("pixel_values").map_or(0, |t| t.range().end));
    }
}
