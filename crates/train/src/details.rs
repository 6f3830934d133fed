//! More about an evaluation than its metrics: who is taken for whom, how sure the network is, and what it finds hardest.

use std::collections::BTreeMap;

use equipoise_record::{Bin, Confused, Details, Hard, Members};

use crate::evaluate::Seen;
use crate::metrics::{BINS, Tally, bin, said};
use crate::prepare::Prepared;

/// Confusions between classes that are listed.
const CONFUSED: usize = 200;
/// Classes whose hardest images are shown, the smallest ones, and images of each.
const SHOWN: (usize, usize) = (8, 3);
/// Largest side of a picture.
const SIDE: u32 = 64;

/// Collects what an evaluation says of each image.
pub(crate) struct Inquiry {
    /// The group of each class.
    group: Vec<usize>,
    classes: usize,
    bins: Vec<[(u64, u64, f64); BINS]>,
    /// By class, the images that are hardest so far, the hardest first.
    hardest: BTreeMap<u32, Vec<Hardest>>,
}

#[derive(Clone, Copy)]
struct Hardest {
    at: u32,
    said: u32,
    confidence: f64,
    loss: f64,
}

impl Inquiry {
    pub(crate) fn new(data: &Prepared) -> Self {
        let mut group = vec![0; data.classes.len()];
        for (number, members) in data.groups.iter().enumerate() {
            members.classes.iter().for_each(|class| group[*class] = number);
        }
        let last = data.groups.iter().rev().find(|group| !group.classes.is_empty());
        let smallest = last.into_iter().flat_map(|group| group.classes.iter().rev()).take(SHOWN.0);
        let hardest = smallest.map(|class| (*class as u32, Vec::new())).collect();
        Self { group, classes: data.classes.len(), bins: vec![[(0, 0, 0.0); BINS]; data.groups.len()], hardest }
    }

    /// Looks at some images.
    pub(crate) fn add(&mut self, seen: &Seen<'_>) {
        for (row, (logits, &label)) in seen.logits.chunks_exact(self.classes).zip(seen.labels).enumerate() {
            let Some(said) = said(logits, label as usize) else { continue };
            let bin = &mut self.bins[self.group[label as usize]][bin(said.confidence)];
            bin.0 += 1;
            bin.1 += u64::from(said.prediction == label as usize);
            bin.2 += said.confidence;
            let wrong = said.prediction != label as usize;
            if let Some(hardest) = self.hardest.get_mut(&label).filter(|_| wrong) {
                let (at, prediction) = ((seen.first + row) as u32, said.prediction as u32);
                let place = hardest.partition_point(|other| other.loss >= said.loss);
                let (confidence, loss) = (said.confidence, said.loss);
                hardest.insert(place, Hardest { at, said: prediction, confidence, loss });
                hardest.truncate(SHOWN.1);
            }
        }
    }

    /// What was found, once every image has been looked at.
    pub(crate) fn details(self, epoch: u64, tally: &Tally, data: &Prepared) -> Details {
        let groups: Vec<Members> = data
            .groups
            .iter()
            .map(|group| Members { name: group.name.clone(), classes: group.classes.clone() })
            .collect();
        let mut confusion = vec![vec![0; groups.len()]; groups.len()];
        let mut confused = Vec::new();
        for (&(class, said), &images) in tally.confusion() {
            confusion[self.group[class as usize]][self.group[said as usize]] += images;
            if class != said {
                confused.push(Confused { class, said, images });
            }
        }
        // stable: equal ones stay in the order of the classes
        confused.sort_by_key(|pair| std::cmp::Reverse(pair.images));
        confused.truncate(CONFUSED);
        let mean = |(images, hits, sum): &(u64, u64, f64)| Bin {
            images: *images,
            hits: *hits,
            confidence: if *images > 0 { sum / *images as f64 } else { 0.0 },
        };
        let reliability = self.bins.iter().map(|bins| bins.iter().map(mean).collect()).collect();
        let hard = |(class, hardest): (&u32, &Hardest)| Hard {
            name: data.test.name(hardest.at),
            class: *class,
            said: hardest.said,
            confidence: hardest.confidence,
            own: (-hardest.loss).exp(),
            // a picture that cannot be made is not worth failing for
            picture: data.test.loader.thumbnail(hardest.at, SIDE).ok(),
        };
        let by_class = self.hardest.iter().flat_map(|(class, images)| images.iter().map(move |image| (class, image)));
        let hardest = by_class.map(hard).collect();
        Details { epoch, groups, confusion, confused, reliability, hardest }
    }
}
