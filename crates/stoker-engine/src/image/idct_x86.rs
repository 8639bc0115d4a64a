//! The inverse DCT on AVX2 and AVX-512: the same integers as the scalar code, two and four blocks at a time.
//!
//! A register holds the same row of each block, in lanes of 128 bits, and no instruction crosses them: so
//! the code is the same for both widths, and is written once.
#![expect(unsafe_code, reason = "SIMD loads and stores take pointers")]

use super::idct::{Coefficients, Samples, Transform, factors, scalar};
use crate::simd::{Avx2, Avx512};

/// The transform for machines that have AVX2.
pub(super) fn avx2(_: Avx2) -> Transform {
    wide256::transform
}

/// The one for machines that have AVX-512.
pub(super) fn avx512(_: Avx512) -> Transform {
    wide512::transform
}

/// The order that puts eight bytes between eight others.
const BETWEEN: [u8; 16] = [0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15];

/// Two factors, for each pair of values.
const fn pair(by: [i16; 2]) -> i32 {
    (by[0] as u16 as u32 | (by[1] as u16 as u32) << 16) as i32
}

/// All of it, for registers whose instructions are in scope by these names.
macro_rules! transform {
    ($features:literal, $Bits:ty) => {
        /// Values of a register.
        const VALUES: usize = size_of::<Register>() / size_of::<i16>();
        /// Registers that a row of all blocks takes.
        const PARTS: usize = BLOCKS * SIDE / VALUES;

        /// As [`scalar`].
        pub(super) extern "C" fn transform(
            coefficients: &mut Coefficients,
            by: &Coefficients,
            samples: &mut Samples,
        ) {
            // SAFETY: this is given out for machines that have what it takes.
            if unsafe { !transform_tame(coefficients, by, samples) } {
                scalar(coefficients, by, samples);
            }
        }

        /// Says whether it did: not if the first row may exceed 16 bits after the first pass.
        #[target_feature(enable = $features)]
        fn transform_tame(
            coefficients: &mut Coefficients,
            by: &Coefficients,
            samples: &mut Samples,
        ) -> bool {
            let coefficients = coefficients.0.as_flattened_mut().as_flattened_mut();
            let by = by.0.as_flattened().as_flattened();
            let samples = samples.0.as_flattened_mut().as_flattened_mut().as_flattened_mut();
            let row = BLOCKS * SIDE;
            for part in 0..PARTS {
                let first = multiplied(coefficients, by, part * VALUES);
                if exceeds(add16(first, set16(factors::TAME)), !(2 * factors::TAME - 1)) {
                    return false;
                }
            }
            for part in 0..PARTS {
                let mut rows = [zero(); SIDE];
                for (at, values) in rows.iter_mut().enumerate() {
                    *values = multiplied(coefficients, by, at * row + part * VALUES);
                    store(&mut coefficients[at * row + part * VALUES..], zero());
                }
                let columns = transposed(pass::<{ factors::FIRST as $Bits }>(rows));
                let columns = pass::<{ factors::SECOND as $Bits }>(columns);
                for (at, rows) in packed(columns).into_iter().enumerate() {
                    store_bytes(&mut samples[(at * PARTS + part) * VALUES * 2..], rows);
                }
            }
            true
        }

        #[inline]
        #[target_feature(enable = $features)]
        fn multiplied(coefficients: &[i16], by: &[i16], at: usize) -> Register {
            mul16(load(&coefficients[at..]), load(&by[at..]))
        }

        #[inline]
        #[target_feature(enable = $features)]
        fn load(values: &[i16]) -> Register {
            assert!(values.len() >= VALUES, "a register is loaded from where one lies");
            // SAFETY: so many values lie there.
            unsafe { loadu(values.as_ptr().cast()) }
        }

        #[inline]
        #[target_feature(enable = $features)]
        fn store(values: &mut [i16], register: Register) {
            assert!(values.len() >= VALUES, "a register is stored where there is room for one");
            // SAFETY: there is room for so many.
            unsafe { storeu(values.as_mut_ptr().cast(), register) }
        }

        #[inline]
        #[target_feature(enable = $features)]
        fn store_bytes(bytes: &mut [u8], register: Register) {
            assert!(bytes.len() >= VALUES * 2, "a register is stored where there is room for one");
            // SAFETY: there is room for so many.
            unsafe { storeu(bytes.as_mut_ptr().cast(), register) }
        }

        /// Sums of two products each, of the lower values of each lane and of the upper ones.
        #[inline]
        #[target_feature(enable = $features)]
        fn both(first: Register, second: Register, by: [i16; 2]) -> [Register; 2] {
            let by = set32(pair(by));
            [madd(low16(first, second), by), madd(high16(first, second), by)]
        }

        /// In steps of 2⁻¹³, and half of what is rounded away.
        #[inline]
        #[target_feature(enable = $features)]
        fn scaled<const BITS: $Bits>(sum: Register) -> [Register; 2] {
            let half = set32(1 << (BITS - 1));
            let low = shift_right::<{ 16 - factors::BITS as $Bits }>(low16(zero(), sum));
            let high = shift_right::<{ 16 - factors::BITS as $Bits }>(high16(zero(), sum));
            [add32(low, half), add32(high, half)]
        }

        #[inline]
        #[target_feature(enable = $features)]
        fn sum(a: [Register; 2], b: [Register; 2]) -> [Register; 2] {
            [add32(a[0], b[0]), add32(a[1], b[1])]
        }

        #[inline]
        #[target_feature(enable = $features)]
        fn difference(a: [Register; 2], b: [Register; 2]) -> [Register; 2] {
            [sub32(a[0], b[0]), sub32(a[1], b[1])]
        }

        #[inline]
        #[target_feature(enable = $features)]
        fn rounded<const BITS: $Bits>(it: [Register; 2]) -> Register {
            pack32(shift_right::<BITS>(it[0]), shift_right::<BITS>(it[1]))
        }

        /// Down the columns.
        #[inline]
        #[target_feature(enable = $features)]
        fn pass<const BITS: $Bits>(rows: [Register; SIDE]) -> [Register; SIDE] {
            let [v0, v1, v2, v3, v4, v5, v6, v7] = rows;
            let [even_two, even_six] = factors::EVEN;
            let (two, six) = (both(v2, v6, even_two), both(v2, v6, even_six));
            let (plus, minus) = (scaled::<BITS>(add16(v0, v4)), scaled::<BITS>(sub16(v0, v4)));
            let (e0, e3) = (sum(plus, two), difference(plus, two));
            let (e1, e2) = (sum(minus, six), difference(minus, six));
            let [odd_three, odd_one] = factors::ODD;
            let (sum73, sum51) = (add16(v3, v7), add16(v1, v5));
            let (three, one) = (both(sum73, sum51, odd_three), both(sum73, sum51, odd_one));
            let ([outer, far_outer], [inner, far_inner]) = (factors::OUTER, factors::INNER);
            let o0 = sum(both(v7, v1, far_outer), one);
            let o1 = sum(both(v5, v3, far_inner), three);
            let o2 = sum(both(v5, v3, inner), one);
            let o3 = sum(both(v7, v1, outer), three);
            [
                rounded::<BITS>(sum(e0, o0)),
                rounded::<BITS>(sum(e1, o1)),
                rounded::<BITS>(sum(e2, o2)),
                rounded::<BITS>(sum(e3, o3)),
                rounded::<BITS>(difference(e3, o3)),
                rounded::<BITS>(difference(e2, o2)),
                rounded::<BITS>(difference(e1, o1)),
                rounded::<BITS>(difference(e0, o0)),
            ]
        }

        /// Columns of rows, in each lane.
        #[inline]
        #[target_feature(enable = $features)]
        fn transposed(rows: [Register; SIDE]) -> [Register; SIDE] {
            let [r0, r1, r2, r3, r4, r5, r6, r7] = rows;
            let (a0, a1) = (low16(r0, r1), high16(r0, r1));
            let (a2, a3) = (low16(r2, r3), high16(r2, r3));
            let (a4, a5) = (low16(r4, r5), high16(r4, r5));
            let (a6, a7) = (low16(r6, r7), high16(r6, r7));
            let (b0, b1) = (low32(a0, a2), high32(a0, a2));
            let (b2, b3) = (low32(a1, a3), high32(a1, a3));
            let (b4, b5) = (low32(a4, a6), high32(a4, a6));
            let (b6, b7) = (low32(a5, a7), high32(a5, a7));
            [
                low64(b0, b4),
                high64(b0, b4),
                low64(b1, b5),
                high64(b1, b5),
                low64(b2, b6),
                high64(b2, b6),
                low64(b3, b7),
                high64(b3, b7),
            ]
        }

        /// Rows of samples, of columns: two to a lane.
        #[inline]
        #[target_feature(enable = $features)]
        fn packed(columns: [Register; SIDE]) -> [Register; SIDE / 2] {
            let [c0, c1, c2, c3, c4, c5, c6, c7] = columns;
            let (p0, p1) = (interleaved(c0, c1), interleaved(c2, c3));
            let (p2, p3) = (interleaved(c4, c5), interleaved(c6, c7));
            let (a0, a1) = (low16(p0, p1), high16(p0, p1));
            let (b0, b1) = (low16(p2, p3), high16(p2, p3));
            [low32(a0, b0), high32(a0, b0), low32(a1, b1), high32(a1, b1)]
        }

        /// Bytes around 128, of two columns in turns.
        #[inline]
        #[target_feature(enable = $features)]
        fn interleaved(first: Register, second: Register) -> Register {
            // SAFETY: these are 16 bytes.
            let order = broadcast(unsafe { _mm_loadu_si128(BETWEEN.as_ptr().cast()) });
            xor(shuffle8(pack16(first, second), order), set8(-128))
        }
    };
}

/// Two blocks at a time.
mod wide256 {
    use std::arch::x86_64::{
        __m256i as Register, _mm_loadu_si128, _mm256_add_epi16 as add16, _mm256_add_epi32 as add32,
        _mm256_broadcastsi128_si256 as broadcast, _mm256_loadu_si256 as loadu,
        _mm256_madd_epi16 as madd, _mm256_mullo_epi16 as mul16, _mm256_packs_epi16 as pack16,
        _mm256_packs_epi32 as pack32, _mm256_set1_epi8 as set8, _mm256_set1_epi16 as set16,
        _mm256_set1_epi32 as set32, _mm256_setzero_si256 as zero, _mm256_shuffle_epi8 as shuffle8,
        _mm256_srai_epi32 as shift_right, _mm256_storeu_si256 as storeu, _mm256_sub_epi16 as sub16,
        _mm256_sub_epi32 as sub32, _mm256_testz_si256, _mm256_unpackhi_epi16 as high16,
        _mm256_unpackhi_epi32 as high32, _mm256_unpackhi_epi64 as high64,
        _mm256_unpacklo_epi16 as low16, _mm256_unpacklo_epi32 as low32,
        _mm256_unpacklo_epi64 as low64, _mm256_xor_si256 as xor,
    };

    use super::super::idct::{BLOCKS, SIDE};
    use super::{BETWEEN, Coefficients, Samples, factors, pair, scalar};

    /// Whether a value has any of these bits.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn exceeds(values: Register, bits: i16) -> bool {
        _mm256_testz_si256(values, set16(bits)) == 0
    }

    transform!("avx2", i32);
}

/// Four.
mod wide512 {
    use std::arch::x86_64::{
        __m512i as Register, _mm_loadu_si128, _mm512_add_epi16 as add16, _mm512_add_epi32 as add32,
        _mm512_broadcast_i32x4 as broadcast, _mm512_loadu_si512 as loadu,
        _mm512_madd_epi16 as madd, _mm512_mullo_epi16 as mul16, _mm512_packs_epi16 as pack16,
        _mm512_packs_epi32 as pack32, _mm512_set1_epi8 as set8, _mm512_set1_epi16 as set16,
        _mm512_set1_epi32 as set32, _mm512_setzero_si512 as zero, _mm512_shuffle_epi8 as shuffle8,
        _mm512_srai_epi32 as shift_right, _mm512_storeu_si512 as storeu, _mm512_sub_epi16 as sub16,
        _mm512_sub_epi32 as sub32, _mm512_test_epi16_mask, _mm512_unpackhi_epi16 as high16,
        _mm512_unpackhi_epi32 as high32, _mm512_unpackhi_epi64 as high64,
        _mm512_unpacklo_epi16 as low16, _mm512_unpacklo_epi32 as low32,
        _mm512_unpacklo_epi64 as low64, _mm512_xor_si512 as xor,
    };

    use super::super::idct::{BLOCKS, SIDE};
    use super::{BETWEEN, Coefficients, Samples, factors, pair, scalar};

    /// Whether a value has any of these bits.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn exceeds(values: Register, bits: i16) -> bool {
        _mm512_test_epi16_mask(values, set16(bits)) != 0
    }

    transform!("avx512f,avx512bw", u32);
}
