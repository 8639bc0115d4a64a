//! How long a store lets one wait: profiles fitted to published measurements, and their sampler.
//!
//! The time to first byte is a mixture of two lognormals (the usual answer and the slow tail),
//! capped; the rate of a response is constant or lognormal, capped. Sources: dvassallo/s3-benchmark
//! (`hot`), AnyBlob, PVLDB 16/11 (`standard`: 16 MiB in 0.31 s at the median), the S3 team's
//! constants in aws-s3-transfer-manager-rs (`express`: 4 ms and 150 MB/s). [`Profile::draw`] is
//! pure: nothing sleeps here.

use std::f64::consts::TAU;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use xxhash_rust::xxh3::xxh3_64;

const MB: f64 = 1e6;
const MIB: f64 = 1_048_576.0;

/// The kind of store that the server behaves like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Profile {
    /// As fast as it goes.
    #[default]
    None,
    /// Hot objects read from the same region: first byte p50 10 ms, p99 56 ms, 95 MB/s.
    Hot,
    /// S3 Standard as most see it: first byte p50 29 ms, p99 0.27 s, about 58 MiB/s.
    Standard,
    /// Cold or contended: first byte p50 64 ms, p99 1 s, about 40 MiB/s.
    Cold,
    /// S3 Express One Zone: first byte p50 4 ms, p99 12 ms, 150 MB/s.
    Express,
}

/// What one request meets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Draw {
    /// Time from the request to the first byte of the answer.
    pub first_byte: Duration,
    /// Bytes per second of the body after that; `None` is unlimited.
    pub rate: Option<f64>,
}

/// There is no profile of that name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownProfile(String);

struct Table {
    /// Share of requests that meet the usual latency.
    usual_share: f64,
    /// Median in milliseconds and sigma.
    usual: (f64, f64),
    slow: (f64, f64),
    cap_ms: f64,
    rate: Rate,
}

/// Bytes per second.
enum Rate {
    Constant(f64),
    Lognormal { median: f64, sigma: f64, cap: f64 },
}

impl Profile {
    /// All profiles.
    pub const ALL: [Self; 5] = [Self::None, Self::Hot, Self::Standard, Self::Cold, Self::Express];

    /// The name that the command line uses.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Hot => "hot",
            Self::Standard => "standard",
            Self::Cold => "cold",
            Self::Express => "express",
        }
    }

    /// What the request number `number` (from 0) for `target` meets.
    pub fn draw(self, seed: u64, target: &str, number: u64) -> Draw {
        let Some(table) = self.table() else {
            return Draw { first_byte: Duration::ZERO, rate: None };
        };
        let mut random = generator(seed, target, number);
        let (median, sigma) =
            if random.random_bool(table.usual_share) { table.usual } else { table.slow };
        let first_byte = lognormal(&mut random, median, sigma).min(table.cap_ms) / 1e3;
        let rate = match table.rate {
            Rate::Constant(rate) => rate,
            Rate::Lognormal { median, sigma, cap } => {
                lognormal(&mut random, median, sigma).min(cap)
            }
        };
        Draw { first_byte: Duration::from_secs_f64(first_byte), rate: Some(rate) }
    }

    fn table(self) -> Option<Table> {
        let (usual_share, usual, slow, cap_ms, rate) = match self {
            Self::None => return None,
            Self::Hot => (0.92, (10.3, 0.13), (24.0, 0.75), 1e3, Rate::Constant(95.0 * MB)),
            Self::Standard => (0.95, (28.0, 0.50), (140.0, 0.80), 5e3, drawn(58.0, 0.45)),
            Self::Cold => (0.93, (60.0, 0.70), (400.0, 0.90), 10e3, drawn(40.0, 0.50)),
            Self::Express => (0.985, (4.2, 0.28), (15.0, 0.60), 300.0, Rate::Constant(150.0 * MB)),
        };
        Some(Table { usual_share, usual, slow, cap_ms, rate })
    }
}

/// A lognormal rate with its median in MiB/s; one connection of S3 gives at most about 95 MiB/s.
fn drawn(median: f64, sigma: f64) -> Rate {
    Rate::Lognormal { median: median * MIB, sigma, cap: 95.0 * MIB }
}

fn generator(seed: u64, target: &str, number: u64) -> ChaCha8Rng {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    key[8..16].copy_from_slice(&xxh3_64(target.as_bytes()).to_le_bytes());
    key[16..24].copy_from_slice(&number.to_le_bytes());
    ChaCha8Rng::from_seed(key)
}

/// By Box and Muller; `1 - u` keeps the logarithm away from zero.
fn lognormal(random: &mut impl Rng, median: f64, sigma: f64) -> f64 {
    let (radius, angle): (f64, f64) = (random.random(), random.random());
    let normal = (-2.0 * (1.0 - radius).ln()).sqrt() * (TAU * angle).cos();
    median * (sigma * normal).exp()
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Profile {
    type Err = UnknownProfile;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|profile| profile.as_str() == name);
        found.ok_or_else(|| UnknownProfile(name.to_owned()))
    }
}

impl fmt::Display for UnknownProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Profile::ALL.map(Profile::as_str).join(", ");
        write!(f, "there is no profile {:?}; there are {names}", self.0)
    }
}

impl std::error::Error for UnknownProfile {}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: u64 = 100_000;

    /// Milliseconds to the first byte at these shares of all draws.
    fn percentiles(profile: Profile, shares: [f64; 4]) -> [f64; 4] {
        let mut times: Vec<f64> = (0..DRAWS)
            .map(|number| profile.draw(7, "bucket/key", number).first_byte.as_secs_f64() * 1e3)
            .collect();
        times.sort_by(f64::total_cmp);
        shares.map(|share| times[(share * DRAWS as f64) as usize])
    }

    /// The published percentiles that each profile was fitted to reproduce.
    #[test]
    fn time_to_first_byte_has_the_percentiles_of_the_table() {
        let expected = [
            (Profile::Hot, [10.0, 13.0, 19.0, 56.0]),
            (Profile::Standard, [29.0, 61.0, 84.0, 273.0]),
            (Profile::Cold, [64.0, 193.0, 320.0, 1045.0]),
            (Profile::Express, [4.0, 6.0, 7.0, 12.0]),
        ];
        for (profile, expected) in expected {
            let found = percentiles(profile, [0.50, 0.90, 0.95, 0.99]);
            for (found, expected) in found.into_iter().zip(expected) {
                // The table is rounded to whole milliseconds.
                let tolerance = 0.5 + 0.05 * expected;
                assert!((found - expected).abs() <= tolerance, "{profile}: {found} {expected}");
            }
        }
    }

    #[test]
    fn a_16_mib_object_takes_as_long_as_published() {
        let size = 16.0 * MIB;
        let mut times: Vec<f64> = (0..DRAWS)
            .map(|number| Profile::Standard.draw(1, "bucket/large", number))
            .map(|draw| draw.first_byte.as_secs_f64() + size / draw.rate.expect("it is limited"))
            .collect();
        times.sort_by(f64::total_cmp);
        let (median, slow) = (times[DRAWS as usize / 2], times[DRAWS as usize * 95 / 100]);
        assert!((median - 0.314).abs() < 0.01, "{median}");
        assert!((slow - 0.635).abs() < 0.02, "{slow}");
    }

    #[test]
    fn draws_depend_on_seed_target_and_number_and_on_nothing_else() {
        let draw = |seed, target, number| Profile::Standard.draw(seed, target, number);
        assert_eq!(draw(1, "a", 0), draw(1, "a", 0));
        assert_ne!(draw(1, "a", 0), draw(2, "a", 0));
        assert_ne!(draw(1, "a", 0), draw(1, "b", 0));
        assert_ne!(draw(1, "a", 0), draw(1, "a", 1));
    }

    #[test]
    fn names_are_parsed_and_others_are_refused_with_the_list() {
        for profile in Profile::ALL {
            assert_eq!(profile.as_str().parse(), Ok(profile));
        }
        let error = "warm".parse::<Profile>().unwrap_err().to_string();
        assert!(error.contains("warm") && error.contains("standard"), "{error}");
    }
}
