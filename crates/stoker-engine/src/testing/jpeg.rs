//! JPEG files for tests and the demo, by the encoder of the library that the engine decodes with.
#![expect(unsafe_code, reason = "libjpeg-turbo is a C library")]

use std::ptr;

use turbojpeg_sys as tj;

/// Encodes `width * height * 3` bytes of RGB with 4:2:0 chroma at that quality (1 to 100).
pub fn encode_jpeg(rgb: &[u8], width: usize, height: usize, quality: u8) -> Vec<u8> {
    assert_eq!(rgb.len(), width * height * 3, "the buffer fits the image");
    assert!((1..=100).contains(&quality) && width > 0 && height > 0, "such images can be encoded");
    // SAFETY: the handle is checked before it is used and destroyed after; `rgb` is as long as
    // width, height and format say (pitch 0: rows follow one another); the library allocates the
    // file, sets its size, and gets it back after it was copied.
    unsafe {
        let handle = tj::tj3Init(tj::TJINIT_TJINIT_COMPRESS as i32);
        assert!(!handle.is_null(), "libjpeg-turbo has memory for an encoder");
        tj::tj3Set(handle, tj::TJPARAM_TJPARAM_QUALITY as i32, quality.into());
        tj::tj3Set(handle, tj::TJPARAM_TJPARAM_SUBSAMP as i32, tj::TJSAMP_TJSAMP_420);
        let (mut file, mut size) = (ptr::null_mut(), 0);
        let failed = tj::tj3Compress8(
            handle,
            rgb.as_ptr(),
            width as i32,
            0,
            height as i32,
            tj::TJPF_TJPF_RGB,
            &raw mut file,
            &raw mut size,
        );
        assert_eq!(failed, 0, "any RGB image can be encoded");
        let copy = std::slice::from_raw_parts(file, size as usize).to_vec();
        tj::tj3Free(file.cast());
        tj::tj3Destroy(handle);
        copy
    }
}
