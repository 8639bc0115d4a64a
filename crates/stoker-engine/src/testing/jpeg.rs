//! Makes JPEGs for tests and demo data, with the same libjpeg-turbo that the engine decodes with.
#![expect(unsafe_code, reason = "libjpeg-turbo is a C library")]

use std::ffi::c_int;
use std::ptr;

use turbojpeg_sys::{
    TJINIT_TJINIT_COMPRESS, TJPARAM, TJPARAM_TJPARAM_PROGRESSIVE, TJPARAM_TJPARAM_QUALITY,
    TJPARAM_TJPARAM_SUBSAMP, TJPF_TJPF_RGB, TJSAMP_TJSAMP_420, tj3Compress8, tj3Destroy, tj3Free,
    tj3Init, tj3Set,
};

/// A baseline JPEG with 4:2:0 subsampling of `height` rows of `width` RGB pixels.
///
/// # Panics
/// If `rgb` does not have `width * height * 3` bytes, a side is 0 or over 65,500, or `quality` is
/// not 1 to 100.
pub fn encode_jpeg(rgb: &[u8], width: usize, height: usize, quality: u8) -> Vec<u8> {
    encode(rgb, width, height, quality, false)
}

/// The same as a progressive JPEG.
///
/// # Panics
/// As [`encode_jpeg`].
pub fn encode_progressive_jpeg(rgb: &[u8], width: usize, height: usize, quality: u8) -> Vec<u8> {
    encode(rgb, width, height, quality, true)
}

fn encode(rgb: &[u8], width: usize, height: usize, quality: u8, progressive: bool) -> Vec<u8> {
    const SIDES: std::ops::RangeInclusive<usize> = 1..=65_500;
    assert!(SIDES.contains(&width) && SIDES.contains(&height), "JPEG has no such size");
    assert_eq!(rgb.len(), width * height * 3, "three bytes a pixel");
    let (mut data, mut length) = (ptr::null_mut(), 0);
    // SAFETY: `rgb` has as many bytes as width, height and format imply (asserted above; a pitch
    // of 0 means packed rows). The library allocates `data`, of which it reports the length; it is
    // copied before it is freed. The handle is used by this call only.
    unsafe {
        let handle = tj3Init(TJINIT_TJINIT_COMPRESS as c_int);
        assert!(!handle.is_null(), "there is memory for an encoder");
        let set = |parameter: TJPARAM, value: c_int| tj3Set(handle, parameter as c_int, value);
        let done = set(TJPARAM_TJPARAM_QUALITY, quality.into()) == 0
            && set(TJPARAM_TJPARAM_SUBSAMP, TJSAMP_TJSAMP_420 as c_int) == 0
            && set(TJPARAM_TJPARAM_PROGRESSIVE, progressive.into()) == 0
            && tj3Compress8(
                handle,
                rgb.as_ptr(),
                width as c_int,
                0,
                height as c_int,
                TJPF_TJPF_RGB as c_int,
                &raw mut data,
                &raw mut length,
            ) == 0;
        assert!(done, "the quality is 1 to 100");
        let bytes = std::slice::from_raw_parts(data, length as usize).to_vec();
        tj3Free(data.cast());
        tj3Destroy(handle);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::encode_jpeg;
    use crate::image::{Decoder, inspect};
    use crate::recipe::{self, Compat};

    #[test]
    fn an_encoded_image_decodes_to_nearly_the_same_pixels() {
        let (width, height) = (61, 35);
        let rgb: Vec<u8> = (0..width * height)
            .flat_map(|i| [i % width * 4, i / width * 7, 128].map(|value| value as u8))
            .collect();
        let bytes = encode_jpeg(&rgb, width, height, 95);
        let (limits, rules) = (recipe::Image::default(), Compat::AsDisplayed.rgb());
        let header = inspect(&bytes, &limits, rules).unwrap();
        let mut decoder = Decoder::default();
        let image = decoder.decode(&bytes, &header, &limits, rules).unwrap();
        assert_eq!((image.width, image.height), (width, height));
        let worst = rgb.iter().zip(&image.pixels).map(|(a, b)| a.abs_diff(*b)).max();
        assert!(worst < Some(24), "{worst:?}");
    }
}
