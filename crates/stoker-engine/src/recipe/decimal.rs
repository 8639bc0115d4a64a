//! Decimals as people write weights: held exactly, to nine places.
//!
//! A weight of 0.3 is three tenths and not the nearest binary fraction, so that the shares of a
//! mixture are what was written.

/// A number that is not negative, in billionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Decimal(u64);

const BILLION: u64 = 1_000_000_000;

impl Decimal {
    /// Nothing.
    pub const ZERO: Self = Self(0);
    /// One.
    pub const ONE: Self = Self(BILLION);

    /// The decimal nearest to a number that is not negative and at most a billion.
    pub fn new(number: f64) -> Option<Self> {
        (0.0..=1e9).contains(&number).then(|| Self((number * 1e9).round() as u64))
    }

    /// How many billionths it is.
    pub fn billionths(self) -> u64 {
        self.0
    }

    /// The nearest number.
    pub fn to_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// As many times a number, to the nearest whole one; `u64::MAX` if that is too large.
    pub fn times(self, number: u64) -> u64 {
        let billion = u128::from(BILLION);
        let product = (u128::from(self.0) * u128::from(number) + billion / 2) / billion;
        u64::try_from(product).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_what_was_written() {
        for (number, billionths) in [(0.3, 300_000_000), (0.0, 0), (1e-9, 1), (2.5, 2_500_000_000)]
        {
            let decimal = Decimal::new(number).unwrap();
            assert_eq!(decimal.billionths(), billionths);
            assert_eq!(decimal.to_f64().to_bits(), number.to_bits());
        }
        assert_eq!(Decimal::new(1.0 / 3.0).unwrap().billionths(), 333_333_333);
        for number in [-1e-9, f64::NAN, f64::INFINITY, 1.1e9] {
            assert_eq!(Decimal::new(number), None);
        }
    }

    #[test]
    fn a_product_is_the_nearest_whole_number() {
        let times = |decimal, number| Decimal::new(decimal).unwrap().times(number);
        assert_eq!([times(1.5, 3), times(0.1, 4), times(0.1, 5), times(0.0, 9)], [5, 0, 1, 0]);
        assert_eq!(times(1e9, u64::MAX), u64::MAX);
    }
}
