//! A made-up data set of the most common layout: a JSONL of chat samples, and their images as
//! objects of their own.
//!
//! Most samples are about one image, some about two, some about none; questions and answers vary in
//! length. Each object is a pure function of the seed and its number, so that several threads can
//! make them.

use std::ops::RangeInclusive;

use serde_json::{Value, json};

use super::jpeg::encode_jpeg;
use super::random::Random;
use super::{photo, words};

/// The key of the JSONL.
pub const CHAT_KEY: &str = "train.jsonl";

/// Width to height as cameras, telephones and screens have it.
const SHAPES: [(f32, f32); 8] = [
    (4.0, 3.0),
    (4.0, 3.0),
    (3.0, 2.0),
    (3.0, 4.0),
    (2.0, 3.0),
    (16.0, 9.0),
    (9.0, 16.0),
    (1.0, 1.0),
];

/// The made-up data set: `len()` objects, the JSONL first.
#[derive(Clone, Debug)]
pub struct ChatDataset {
    seed: u64,
    pixels: RangeInclusive<usize>,
    /// For each sample the number of images before it; at the end the number of all.
    first_image: Vec<usize>,
}

impl ChatDataset {
    /// A data set of that many samples over images of `pixels` pixels (small ones more often).
    pub fn new(seed: u64, samples: usize, pixels: RangeInclusive<usize>) -> Self {
        let mut random = Random::new(seed, 1);
        let mut first_image = vec![0];
        for _ in 0..samples {
            let images = *random.choose(&[0, 1, 1, 1, 1, 1, 1, 1, 1, 2]);
            first_image.push(first_image[first_image.len() - 1] + images);
        }
        Self { seed, pixels, first_image }
    }

    /// The number of samples.
    pub fn samples(&self) -> usize {
        self.first_image.len() - 1
    }

    /// The number of images.
    pub fn images(&self) -> usize {
        self.first_image[self.samples()]
    }

    /// The number of objects: the images and the JSONL.
    #[expect(clippy::len_without_is_empty, reason = "the JSONL is always there")]
    pub fn len(&self) -> usize {
        1 + self.images()
    }

    /// The key and the bytes of object `number`.
    pub fn object(&self, number: usize) -> (String, Vec<u8>) {
        match number.checked_sub(1) {
            None => (CHAT_KEY.to_owned(), self.jsonl().into_bytes()),
            Some(image) => (image_key(image), self.image(image)),
        }
    }

    /// Key and bytes of all objects.
    pub fn objects(&self) -> impl Iterator<Item = (String, Vec<u8>)> + '_ {
        (0..self.len()).map(|number| self.object(number))
    }

    /// The samples as they are meant: the values of the JSONL's lines.
    pub fn sample(&self, number: usize) -> Value {
        let mut random = Random::new(self.seed, 0x1_0000_0000 + number as u64);
        let images = self.first_image[number]..self.first_image[number + 1];
        let mut messages = Vec::new();
        for turn in 0..=usize::from(random.chance(0.3)) {
            let question = words::question(&mut random, images.len());
            let mut content: Vec<Value> = Vec::new();
            if turn == 0 {
                content.extend(
                    images.clone().map(|i| json!({"type": "image", "image": image_key(i)})),
                );
            }
            let content = if content.is_empty() {
                json!(question)
            } else {
                content.push(json!({"type": "text", "text": question}));
                json!(content)
            };
            messages.push(json!({"role": "user", "content": content}));
            messages.push(json!({"role": "assistant", "content": words::answer(&mut random)}));
        }
        json!({ "messages": messages })
    }

    fn jsonl(&self) -> String {
        let lines: Vec<String> = (0..self.samples()).map(|n| self.sample(n).to_string()).collect();
        lines.join("\n") + "\n"
    }

    /// Width and height of image `number`.
    pub fn size(&self, number: usize) -> (usize, usize) {
        let mut random = Random::new(self.seed, 0x2_0000_0000 + number as u64);
        let (least, most) = (*self.pixels.start() as f32, *self.pixels.end() as f32);
        let pixels = least * (most / least).powf(random.between(0.0, 1.0));
        let (across, down) = *random.choose(&SHAPES);
        let side = |ratio: f32| ((pixels * ratio).sqrt() as usize).max(8);
        (side(across / down), side(down / across))
    }

    fn image(&self, number: usize) -> Vec<u8> {
        let mut random = Random::new(self.seed, 0x3_0000_0000 + number as u64);
        let (width, height) = self.size(number);
        let rgb = photo(random.bits(), width, height);
        encode_jpeg(&rgb, width, height, 85 + random.below(6) as u8)
    }
}

fn image_key(number: usize) -> String {
    format!("images/{number:06}.jpg")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: RangeInclusive<usize> = 4_000..=40_000;

    #[test]
    fn a_seed_always_gives_the_same_objects_and_another_seed_others() {
        let all = |seed| ChatDataset::new(seed, 20, SMALL).objects().collect::<Vec<_>>();
        assert_eq!(all(7), all(7));
        assert!(all(7).iter().zip(all(8)).all(|(ours, theirs)| ours.1 != theirs.1));
    }

    #[test]
    fn samples_mention_each_image_once_and_in_order() {
        let data = ChatDataset::new(1, 200, SMALL);
        let mentioned: Vec<String> = (0..data.samples())
            .flat_map(|number| {
                let parts = data.sample(number)["messages"][0]["content"].as_array().cloned();
                parts.into_iter().flatten()
            })
            .filter_map(|part| part["image"].as_str().map(str::to_owned))
            .collect();
        assert_eq!(mentioned, (0..data.images()).map(image_key).collect::<Vec<_>>());
    }

    #[test]
    fn most_samples_have_one_image_some_two_some_none() {
        let data = ChatDataset::new(1, 1000, SMALL);
        let with = |count| data.first_image.windows(2).filter(|w| w[1] - w[0] == count).count();
        assert!((700..900).contains(&with(1)), "{} samples have one image", with(1));
        assert!(with(0) > 50 && with(2) > 50);
    }

    #[test]
    fn images_lie_within_the_asked_for_number_of_pixels_and_weigh_as_photographs_do() {
        let data = ChatDataset::new(3, 12, 200_000..=600_000);
        let (mut bits, mut pixels) = (0, 0);
        for number in 0..data.images() {
            let (width, height) = data.size(number);
            assert!((196_000..=600_000).contains(&(width * height)), "{width} x {height}");
            bits += data.image(number).len() * 8;
            pixels += width * height;
        }
        let entropy = bits as f32 / pixels as f32;
        assert!((1.5..3.0).contains(&entropy), "{entropy} bits per pixel");
    }
}
