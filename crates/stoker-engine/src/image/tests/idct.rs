//! Our inverse DCT gives the samples of libjpeg-turbo's, of all that coefficients can be.
#![expect(unsafe_code, reason = "libjpeg-turbo's kernel is called as it is")]

use proptest::prelude::*;

use crate::image::idct::{BLOCKS, Coefficients, SIDE, Samples, scalar, transform};
use crate::simd::Simd;

type Block = [[i16; SIDE]; SIDE];

unsafe extern "C" {
    /// libjpeg-turbo's, where there is AVX2.
    fn jsimd_idct_islow_avx2(by: *const i16, block: *const i16, rows: *const *mut u8, column: u32);
}

/// A block as libjpeg-turbo wants it.
#[repr(align(32))]
struct Aligned(Block);

fn theirs(block: Block, by: Block) -> [[u8; SIDE]; SIDE] {
    let mut samples = [[0; SIDE]; SIDE];
    let rows = samples.each_mut().map(|row| row.as_mut_ptr());
    let (block, by) = (Aligned(block), Aligned(by));
    // SAFETY: it reads two blocks and writes eight samples to each of eight rows; the caller has AVX2.
    unsafe {
        jsimd_idct_islow_avx2(by.0.as_ptr().cast(), block.0.as_ptr().cast(), rows.as_ptr(), 0);
    }
    samples
}

fn side_by_side(blocks: &[Block; BLOCKS]) -> Coefficients {
    Coefficients(std::array::from_fn(|row| blocks.map(|block| block[row])))
}

fn apart(samples: &Samples) -> [[[u8; SIDE]; SIDE]; BLOCKS] {
    let of = |block: usize, row: usize| samples.0[row / 2][block][row % 2];
    std::array::from_fn(|block| std::array::from_fn(|row| of(block, row)))
}

/// 64 values each, by row.
fn block(value: impl Strategy<Value = i16>) -> impl Strategy<Value = Block> {
    prop::collection::vec(value, SIDE * SIDE).prop_map(|values| {
        std::array::from_fn(|row| std::array::from_fn(|column| values[row * SIDE + column]))
    })
}

fn wild() -> BoxedStrategy<i16> {
    prop_oneof![any::<i16>(), -8200_i16..8200, Just(i16::MIN), Just(i16::MAX)].boxed()
}

/// Only the first row.
fn flat(mut block: Block) -> Block {
    block[1..].fill([0; SIDE]);
    block
}

/// A block and its factors, whose first row stays within 16 bits after the first pass, so that kernels do it: as
/// photos have them, of a few coefficients, of a first row only, and noise.
fn tame() -> BoxedStrategy<(Block, Block)> {
    let value = prop_oneof![4 => Just(0), 4 => -20_i16..20, 1 => -300_i16..300];
    let few = prop::collection::vec((1..SIDE, 0..SIDE, wild()), 0..4);
    let first = || prop::array::uniform8(-8192_i16..=8191);
    prop_oneof![
        (block(value), block(1_i16..25)),
        (few, first(), block(wild())).prop_map(|(few, first, by)| {
            let mut block = Block::default();
            for (row, column, value) in few {
                block[row][column] = value;
            }
            with_first(block, first, by)
        }),
        (first(), block(wild())).prop_map(|(first, by)| with_first(Block::default(), first, by)),
        (block(wild()), first(), block(wild()))
            .prop_map(|(block, first, by)| with_first(block, first, by)),
    ]
    .boxed()
}

fn with_first(mut block: Block, first: [i16; SIDE], mut by: Block) -> (Block, Block) {
    block[0] = first;
    by[0] = [1; SIDE];
    (block, by)
}

/// Noise, whose first row is all there is or not.
fn any_block() -> BoxedStrategy<(Block, Block)> {
    let ones = Just([[1; SIDE]; SIDE]);
    prop_oneof![
        (block(wild()), ones),
        (block(wild()), block(wild())),
        (block(wild()).prop_map(flat), block(wild())),
    ]
    .boxed()
}

fn four(of: fn() -> BoxedStrategy<(Block, Block)>) -> impl Strategy<Value = [(Block, Block); 4]> {
    [of(), of(), of(), of()]
}

/// All kernels give what the loops give, and what libjpeg-turbo's kernel gives.
fn check(blocks: &[(Block, Block); BLOCKS]) {
    let by = side_by_side(&blocks.map(|it| it.1));
    let made = |transform: &dyn Fn(&mut Coefficients, &Coefficients, &mut Samples)| {
        let mut coefficients = side_by_side(&blocks.map(|it| it.0));
        let mut samples = Samples([[[[7; SIDE]; 2]; BLOCKS]; SIDE / 2]);
        transform(&mut coefficients, &by, &mut samples);
        (apart(&samples), coefficients)
    };
    let truth = made(&scalar);
    assert!(truth.1 == side_by_side(&[Block::default(); BLOCKS]), "they are zeros after that");
    for simd in Simd::all() {
        let Some(transform) = transform(simd) else { continue };
        let found = made(&|coefficients, by, samples| transform(coefficients, by, samples));
        assert!(found == truth, "{simd:?}");
    }
    if Simd::detect().avx2().is_some() {
        for ((block, by), truth) in blocks.iter().zip(truth.0) {
            assert_eq!(theirs(*block, *by), truth);
        }
    }
}

/// Where the first pass of a first row just has 16 bits, and just not, in each of its places.
#[test]
fn a_first_row_at_the_edge_of_16_bits_gives_the_same_samples() {
    let ones = [[1; SIDE]; SIDE];
    let edges = [8191, 8192, -8192, -8193, i16::MAX, i16::MIN];
    for (edge, place) in
        edges.into_iter().flat_map(|edge| (0..BLOCKS * SIDE).map(move |at| (edge, at)))
    {
        for below in [0, 3] {
            let mut blocks = [(flat([[-2; SIDE]; SIDE]), ones); BLOCKS];
            blocks[place / SIDE].0[0][place % SIDE] = edge;
            blocks[place / SIDE].0[5][2] = below;
            check(&blocks);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn blocks_give_the_same_samples_with_any_kernel(
        blocks in prop_oneof![4 => four(tame), 1 => four(any_block)]
    ) {
        check(&blocks);
    }
}
