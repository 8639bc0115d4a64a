//! Which SIMD kernels this machine can run.
//!
//! An [`Avx2`] can only be had from a machine that has AVX2; the kernels take one, and so are safe
//! to call.

/// The kernels to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Simd {
    /// The truth, on any machine.
    Scalar,
    /// 256-bit integers and floats.
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
}

/// Proof that the machine has AVX2.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Avx2(());

impl Simd {
    /// The best that this machine has.
    pub(super) fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        if std::is_x86_feature_detected!("avx2") {
            return Self::Avx2(Avx2(()));
        }
        Self::Scalar
    }
}
