//! Whose rules to follow where the published references disagree, as data.
//!
//! For ordinary images (8-bit RGB, no rotation, no alpha) all presets but the two that resize with
//! Pillow give the same pixels. For odd ones the references disagree among themselves and between
//! versions; the default shows the model what a person sees, the other presets reproduce one
//! reference each. Source of the table: running transformers 5.24.0, torchvision 0.29.2, Pillow
//! 13.0.0 and qwen-vl-utils 0.0.14 on the same files.

/// How encoded images become 8-bit RGB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RgbRules {
    /// Whether the EXIF orientation is applied.
    pub exif: bool,
    /// What becomes of transparency.
    pub alpha: Alpha,
    /// What becomes of 16-bit greyscale.
    pub sixteen_bit: SixteenBit,
}

/// What becomes of transparency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alpha {
    /// Composited on white, whatever carries it: an alpha channel, a transparent palette entry or a
    /// transparent colour.
    White,
    /// Composited on white only for files with red, green, blue and alpha channels; dropped for all
    /// others (qwen-vl-utils).
    WhiteIfRgba,
    /// Dropped: hidden colours appear.
    Drop,
}

/// What becomes of 16-bit greyscale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SixteenBit {
    /// The high byte is kept.
    Scale,
    /// Values over 255 become 255 (Pillow's `convert("RGB")` of mode `I;16`).
    Clip,
}

/// The resampler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResizeKernel {
    /// torchvision's uint8 antialiased bicubic: 16-bit weights, horizontal pass first.
    Torchvision,
    /// Pillow 13's bicubic: 22-bit weights, vertical pass first when it shrinks much more.
    Pillow13,
}

/// How bytes become floats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    /// `(u - mean * 255) / (std * 255)` in f32 (transformers' torchvision backend).
    Fused,
    /// `(u / 255 - mean) / std` in f32 (transformers' PIL backend).
    Stepwise,
}

/// Which `smart_resize`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeRule {
    /// transformers' `smart_resize`.
    Transformers,
    /// qwen-vl-utils' `smart_resize`: sides are rounded to at least one block before the limits are
    /// applied.
    QwenVlUtils,
}

/// The presets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Compat {
    /// What a person sees: orientation applied, alpha composited on white, 16 bit scaled; resized
    /// as transformers' default processor does.
    #[default]
    AsDisplayed,
    /// transformers 5.24, a path or URL given to the default (torchvision) processor: orientation
    /// applied, alpha dropped.
    TransformersPath,
    /// transformers 5.24, a `PIL.Image` given to the default (torchvision) processor: orientation
    /// ignored, alpha composited on white, 16-bit grey clipped.
    TransformersPil,
    /// transformers 5.24, a `PIL.Image` given to the PIL processor: as `transformers-pil`, resized
    /// by Pillow 13.
    TransformersPilBackend,
    /// qwen-vl-utils 0.0.14 `fetch_image`, then transformers with `do_resize=False`: orientation
    /// ignored, alpha of RGBA files composited on white and dropped elsewhere, resized by Pillow 13
    /// to its own size rule.
    QwenVlUtils,
}

impl Compat {
    /// All presets with the names that recipes use.
    pub const ALL: [(&'static str, Self); 5] = [
        ("as-displayed", Self::AsDisplayed),
        ("transformers-path", Self::TransformersPath),
        ("transformers-pil", Self::TransformersPil),
        ("transformers-pil-backend", Self::TransformersPilBackend),
        ("qwen-vl-utils", Self::QwenVlUtils),
    ];

    /// The name that recipes use.
    pub fn as_str(self) -> &'static str {
        let named = Self::ALL.iter().find(|(_, preset)| *preset == self);
        named.map(|(name, _)| *name).expect("all presets are in the list")
    }

    /// How encoded images become 8-bit RGB.
    pub fn rgb(self) -> RgbRules {
        let (exif, alpha, sixteen_bit) = match self {
            Self::AsDisplayed => (true, Alpha::White, SixteenBit::Scale),
            Self::TransformersPath => (true, Alpha::Drop, SixteenBit::Scale),
            Self::TransformersPil | Self::TransformersPilBackend => {
                (false, Alpha::White, SixteenBit::Clip)
            }
            Self::QwenVlUtils => (false, Alpha::WhiteIfRgba, SixteenBit::Clip),
        };
        RgbRules { exif, alpha, sixteen_bit }
    }

    /// The resampler.
    pub fn resize(self) -> ResizeKernel {
        match self {
            Self::TransformersPilBackend | Self::QwenVlUtils => ResizeKernel::Pillow13,
            _ => ResizeKernel::Torchvision,
        }
    }

    /// How bytes become floats.
    pub fn table(self) -> Table {
        if self == Self::TransformersPilBackend { Table::Stepwise } else { Table::Fused }
    }

    /// Which `smart_resize`.
    pub fn size_rule(self) -> SizeRule {
        if self == Self::QwenVlUtils { SizeRule::QwenVlUtils } else { SizeRule::Transformers }
    }
}
