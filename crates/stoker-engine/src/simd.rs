//! Which SIMD kernels this machine can run.
//!
//! The proof that a kernel takes can only be had from a machine that has what it needs, and so kernels
//! are safe to call.

/// The kernels to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Simd {
    /// The truth, on any machine.
    Scalar,
    /// 256-bit integers and floats.
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    /// 512 bits; what has no such kernel is done by those of 256.
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512),
    /// 128-bit integers and floats.
    #[cfg(target_arch = "aarch64")]
    Neon(Neon),
}

/// Proof that the machine has AVX2 and fused multiplication (every machine with AVX2 does).
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Avx2(());

/// Proof that the machine has AVX-512 as Sapphire Rapids and Zen 4 do: with VBMI (permuted bytes),
/// VNNI (dot products) and BF16.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Avx512(Avx2);

/// Proof that the machine has NEON.
#[cfg(target_arch = "aarch64")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Neon(());

#[cfg(target_arch = "x86_64")]
impl Avx2 {
    fn detect() -> Option<Self> {
        let found = std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("fma");
        found.then_some(Self(()))
    }
}

#[cfg(target_arch = "x86_64")]
impl Avx512 {
    fn detect() -> Option<Self> {
        let found = std::is_x86_feature_detected!("avx512f")
            && std::is_x86_feature_detected!("avx512bw")
            && std::is_x86_feature_detected!("avx512vl")
            && std::is_x86_feature_detected!("avx512vbmi")
            && std::is_x86_feature_detected!("avx512vnni")
            && std::is_x86_feature_detected!("avx512bf16");
        Avx2::detect().filter(|_| found).map(Self)
    }
}

#[cfg(target_arch = "aarch64")]
impl Neon {
    fn detect() -> Option<Self> {
        std::arch::is_aarch64_feature_detected!("neon").then_some(Self(()))
    }
}

impl Simd {
    /// The best that this machine has.
    pub(crate) fn detect() -> Self {
        Self::all().pop().unwrap_or(Self::Scalar)
    }

    /// All that this machine has, the best last.
    pub(crate) fn all() -> Vec<Self> {
        [
            Some(Self::Scalar),
            #[cfg(target_arch = "x86_64")]
            Avx2::detect().map(Self::Avx2),
            #[cfg(target_arch = "x86_64")]
            Avx512::detect().map(Self::Avx512),
            #[cfg(target_arch = "aarch64")]
            Neon::detect().map(Self::Neon),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// Proof of AVX2, also where there is more.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn avx2(self) -> Option<Avx2> {
        match self {
            Self::Scalar => None,
            Self::Avx2(proof) | Self::Avx512(Avx512(proof)) => Some(proof),
        }
    }

    /// Proof of AVX-512.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn avx512(self) -> Option<Avx512> {
        if let Self::Avx512(proof) = self { Some(proof) } else { None }
    }

    /// Proof of NEON.
    #[cfg(target_arch = "aarch64")]
    pub(crate) fn neon(self) -> Option<Neon> {
        if let Self::Neon(proof) = self { Some(proof) } else { None }
    }
}

#[cfg(all(test, target_arch = "aarch64"))]
mod tests {
    /// Else the tests that compare kernels would compare the scalar code with itself.
    #[test]
    fn every_arm_processor_of_64_bits_has_neon() {
        assert!(matches!(super::Simd::detect(), super::Simd::Neon(_)));
    }
}
