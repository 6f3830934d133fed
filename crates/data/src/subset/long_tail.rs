//! Long-tailed subsets of a balanced training split, exactly as in published tables.
//!
//! Class c keeps n_c = trunc(n_max IF^(-c / (C - 1))) images; class 0 is the largest (Cui et al., CVPR 2019). The images are
//! those that the code of LDAM chooses with NumPy: one MT19937 stream over all classes shuffles the indices of each class, and
//! the first n_c are kept. A subset with a larger imbalance is therefore part of one with a smaller imbalance.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::mt19937::Mt19937;
use crate::dataset::{class_counts, indices_by_class};
use crate::error::DataError;

/// How class sizes decrease. As text: `exp` or `step`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Profile {
    /// Exponentially, from the first class to the last.
    #[default]
    Exp,
    /// In one step: the first half of the classes keeps all images, the second half keeps 1 / IF of them.
    Step,
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Exp => "exp",
            Self::Step => "step",
        })
    }
}

impl FromStr for Profile {
    type Err = DataError;

    fn from_str(name: &str) -> Result<Self, DataError> {
        let known = [Self::Exp, Self::Step].into_iter().find(|profile| profile.to_string() == name);
        known.ok_or_else(|| DataError::Name { what: "profile", name: name.to_owned(), known: "exp, step" })
    }
}

/// A long-tailed subset.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LongTail {
    /// Imbalance factor IF: size of the largest class over that of the smallest, at least 1.
    pub imbalance: f64,
    /// How class sizes decrease.
    pub profile: Profile,
    /// Seed of the choice of images; published tables use 0.
    pub seed: u32,
}

impl LongTail {
    /// The usual subset: exponential, with seed 0.
    #[must_use]
    pub fn new(imbalance: f64) -> Self {
        Self { imbalance, profile: Profile::Exp, seed: 0 }
    }

    /// Images per class of a dataset with `images` images in `classes` classes of equal size.
    ///
    /// # Errors
    /// For an imbalance below 1 or not finite.
    pub fn quotas(&self, images: u64, classes: usize) -> Result<Vec<u64>, DataError> {
        if !(self.imbalance >= 1.0 && self.imbalance.is_finite()) {
            return Err(DataError::Imbalance { imbalance: self.imbalance });
        }
        let largest = images as f64 / classes as f64;
        let quota = |c: usize| match self.profile {
            // the ends are exact: a power could be just below an integer there
            _ if c == 0 => largest,
            Profile::Exp if c + 1 == classes => largest / self.imbalance,
            Profile::Exp => largest * self.imbalance.powf(-(c as f64) / (classes - 1) as f64),
            Profile::Step if c < classes / 2 => largest,
            Profile::Step => largest / self.imbalance,
        };
        Ok((0..classes).map(|c| quota(c) as u64).collect())
    }

    /// Draws the subset of a training split with these labels: indices class by class, in the order they were drawn.
    ///
    /// A class with fewer images than its quota keeps all of them; [`LongTail::shortfalls`] lists such classes.
    ///
    /// # Errors
    /// For an imbalance below 1, a label out of range, or more than 2^32 images.
    pub fn draw(&self, labels: &[u32], classes: usize) -> Result<Vec<u32>, DataError> {
        let quotas = self.quotas(labels.len() as u64, classes)?;
        let mut stream = Mt19937::new(self.seed);
        let mut kept = Vec::new();
        for (mut indices, quota) in indices_by_class(labels, classes)?.into_iter().zip(quotas) {
            stream.shuffle(&mut indices);
            indices.truncate(usize::try_from(quota).unwrap_or(usize::MAX));
            kept.append(&mut indices);
        }
        Ok(kept)
    }

    /// The classes with fewer images than their quota.
    ///
    /// # Errors
    /// For an imbalance below 1, or a label out of range.
    pub fn shortfalls(&self, labels: &[u32], classes: usize) -> Result<Vec<QuotaShortfall>, DataError> {
        let quotas = self.quotas(labels.len() as u64, classes)?;
        let each = class_counts(labels, classes)?.into_iter().zip(quotas).enumerate();
        let each = each.map(|(class, (images, quota))| QuotaShortfall { class, quota, images });
        Ok(each.filter(|class| class.images < class.quota).collect())
    }
}

/// A class with fewer images than its quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaShortfall {
    /// The class.
    pub class: usize,
    /// Number of images it should have.
    pub quota: u64,
    /// Number of images it has.
    pub images: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Totals of the published subsets: images, classes, then the total at imbalance 1, 10, 50, 100, 200, 500.
    #[test]
    fn published_totals() {
        let table: [(u64, usize, [u64; 6]); 5] = [
            (50_000, 10, [50_000, 20_431, 13_996, 12_406, 11_203, 10_011]),
            (50_000, 100, [50_000, 19_573, 12_608, 10_847, 9_502, 8_155]),
            (100_000, 200, [100_000, 39_072, 25_082, 21_549, 18_836, 16_132]),
            (100_000, 100, [100_000, 39_202, 25_263, 21_746, 19_051, 16_360]),
            (1_281_167, 1000, [1_281_000, 500_464, 320_796, 275_288, 240_498, 205_678]),
        ];
        for (images, classes, totals) in table {
            for (imbalance, want) in [1.0, 10.0, 50.0, 100.0, 200.0, 500.0].into_iter().zip(totals) {
                let total: u64 = LongTail::new(imbalance).quotas(images, classes).expect("valid").iter().sum();
                assert_eq!(total, want, "{images} images, {classes} classes, imbalance {imbalance}");
            }
        }
    }

    #[test]
    fn published_counts_of_cifar_10() {
        let quotas = |imbalance: f64| LongTail::new(imbalance).quotas(50_000, 10).expect("valid");
        assert_eq!(quotas(100.0), [5000, 2997, 1796, 1077, 645, 387, 232, 139, 83, 50]);
        assert_eq!(quotas(10.0), [5000, 3871, 2997, 2320, 1796, 1391, 1077, 834, 645, 500]);
        assert_eq!(quotas(500.0), [5000, 2506, 1256, 629, 315, 158, 79, 39, 19, 10]);
        let step = LongTail { profile: Profile::Step, ..LongTail::new(100.0) }.quotas(50_000, 10).expect("valid");
        assert_eq!(step, [5000, 5000, 5000, 5000, 5000, 50, 50, 50, 50, 50]);
    }

    /// Labels 0 1 2 0 1 2 ...: class c has the indices c, c + 3, ...
    fn striped(images: u32, classes: u32) -> Vec<u32> {
        (0..images).map(|i| i % classes).collect()
    }

    /// One stream over all classes: NumPy's seed 0 shuffles the ten indices of class 0 to [2, 8, 4, 9, ...] of them.
    #[test]
    fn the_first_class_is_numpys_first_permutation() {
        let labels = striped(30, 3);
        let kept = LongTail::new(5.0).draw(&labels, 3).expect("valid");
        let want: Vec<u32> = [2, 8, 4, 9, 1, 6, 7, 3, 0, 5].iter().map(|i| 3 * i).collect();
        assert_eq!(kept[..10], want);
        assert_eq!(
            class_counts(&kept.iter().map(|i| labels[*i as usize]).collect::<Vec<_>>(), 3).expect("valid"),
            [10, 4, 2]
        );
    }

    /// Exactly these images: hashes of all indices as `tools/make_subsets.py` prints them, made by NumPy.
    #[test]
    fn numpys_images_of_every_class() {
        let hash = |indices: Vec<u32>| {
            crate::hash::fnv1a(&indices.into_iter().flat_map(u32::to_le_bytes).collect::<Vec<u8>>())
        };
        let mixed: Vec<u32> = (0..50_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 16) % 10).collect();
        let (exp, step) = (Profile::Exp, Profile::Step);
        // labels, then profile, imbalance and the hashes for seeds 0 and 1
        let table = [
            (striped(50_000, 10), exp, 10.0, [0xca24_319c_526f_2493, 0xf583_a7a3_32d8_4fc7]),
            (striped(50_000, 10), exp, 100.0, [0xb0d4_92d8_cf69_90e7, 0x470c_d843_c3c1_0514]),
            (striped(50_000, 10), step, 10.0, [0x196a_846e_9cae_05dd, 0xc9a1_b173_09d6_ea2a]),
            (striped(50_000, 10), step, 100.0, [0xad08_c7c8_ccb8_79ad, 0xa107_3e65_31fa_35c9]),
            (mixed.clone(), exp, 10.0, [0x429c_0e0e_40bc_8695, 0x5c2a_4e97_59f0_aa5f]),
            (mixed.clone(), exp, 100.0, [0x5b16_26fb_62fc_79b6, 0x62e7_b717_2663_bec6]),
            (mixed.clone(), step, 10.0, [0x58c8_7718_3b4f_8ccf, 0xbde1_6b9f_9ea5_3820]),
            (mixed, step, 100.0, [0x2d10_9de6_5123_c016, 0x9eec_c9b8_14a1_ea3c]),
        ];
        for (labels, profile, imbalance, want) in table {
            let draw = |seed| LongTail { imbalance, profile, seed }.draw(&labels, 10).expect("valid");
            assert_eq!([0, 1].map(|seed| hash(draw(seed))), want, "{profile:?}, imbalance {imbalance}");
        }
    }

    #[test]
    fn a_steeper_subset_is_part_of_a_flatter_one() {
        let labels = striped(1000, 10);
        let draw = |imbalance: f64| LongTail::new(imbalance).draw(&labels, 10).expect("valid");
        let (flat, steep) = (draw(10.0), draw(50.0));
        assert!(steep.len() < flat.len() && steep.iter().all(|i| flat.contains(i)));
        assert_ne!(steep, LongTail { seed: 1, ..LongTail::new(50.0) }.draw(&labels, 10).expect("valid"));
        let mut all = draw(1.0);
        all.sort_unstable();
        assert_eq!(all, (0..1000).collect::<Vec<u32>>());
    }

    #[test]
    fn a_class_below_its_quota_keeps_all_its_images() {
        // 8 of class 0, 2 of class 1, so 5 each were expected
        let labels = [0, 0, 0, 0, 0, 0, 0, 0, 1, 1];
        assert_eq!(LongTail::new(1.0).draw(&labels, 2).expect("valid").len(), 5 + 2);
        let shortfalls = LongTail::new(1.0).shortfalls(&labels, 2).expect("valid");
        assert_eq!(shortfalls, [QuotaShortfall { class: 1, quota: 5, images: 2 }]);
        assert_eq!(LongTail::new(5.0).shortfalls(&labels, 2).expect("valid"), []);
    }

    #[test]
    fn profiles_are_parsed_and_printed() {
        for profile in [Profile::Exp, Profile::Step] {
            assert_eq!(profile.to_string().parse::<Profile>().expect("known"), profile);
            let json = serde_json::to_string(&profile).expect("serializes");
            assert_eq!(json, format!("\"{profile}\""));
        }
        let error = "linear".parse::<Profile>().expect_err("unknown").to_string();
        assert_eq!(error, "unknown profile `linear`: must be one of exp, step");
    }

    #[test]
    fn invalid_input() {
        for bad in [0.5, -1.0, f64::NAN, f64::INFINITY] {
            assert!(matches!(LongTail::new(bad).draw(&[0, 1], 2), Err(DataError::Imbalance { .. })));
        }
        assert!(matches!(
            LongTail::new(2.0).draw(&[0, 7], 2),
            Err(DataError::LabelRange { index: 1, label: 7, classes: 2 })
        ));
    }
}
