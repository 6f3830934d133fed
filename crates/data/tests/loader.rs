//! Batches from files are the same whether the files are kept, streamed, or read on more threads.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::folder;
use equipoise_data::batch::loader::{Loader, Recipe};
use equipoise_data::batch::photo::View;
use equipoise_data::batch::random_ops::{Jitter, RandAugment};
use equipoise_data::batch::small::{Normalize, Policy};
use equipoise_data::{DataError, Images, Pixels, Split};
use equipoise_pool::Pool;
use image::RgbImage;

/// Images of different sizes and colours.
fn files(here: &Path, number: u32) -> Vec<PathBuf> {
    let file = |i: u32| {
        let pixel = |x: u32, y: u32| image::Rgb([(40 * i + 5 * x) as u8, (9 * y) as u8, (7 * i + x * y) as u8]);
        let path = here.join(format!("{i}.png"));
        RgbImage::from_fn(20 + 3 * i, 31 - i, pixel).save(&path).expect("writes");
        path
    };
    (0..number).map(file).collect()
}

fn recipes() -> [Recipe; 4] {
    let normalize = Normalize::imagenet();
    let policy = Policy::train(normalize.clone());
    let (randaugment, jitter) = (RandAugment::new(2, 9).ok(), Jitter::new(0.4, 0.4, 0.4, 0.1).ok());
    let photo = |view| Recipe::Photo { side: 16, view, normalize: normalize.clone(), randaugment, jitter };
    let changed = Policy { randaugment, jitter, ..policy.clone() };
    [
        Recipe::Small { side: 16, policy },
        Recipe::Small { side: 16, policy: changed },
        photo(View::RandomResizedCrop),
        photo(View::CenterCrop { resize: 18 }),
    ]
}

fn loader(files: &[PathBuf], recipe: &Recipe, room: u64, threads: usize) -> Result<Loader, DataError> {
    let pool = Pool::new(threads).expect("threads");
    Loader::new(Images::Files(files.to_vec()), recipe.clone(), room, &pool, &|_, _| {})
}

fn batch(loader: &Loader, places: &[u32], epoch: u64, threads: usize) -> Vec<f32> {
    let mut out = vec![f32::NAN; places.len() * 3 * 16 * 16];
    loader.batch(places, 5, epoch, &mut out, &Pool::new(threads).expect("threads")).expect("readable");
    out
}

#[test]
fn what_is_kept_does_not_matter() {
    let here = folder("loader");
    let files = files(here.path(), 10);
    let places = [3, 9, 0, 3, 7];
    for recipe in recipes() {
        let streamed = loader(&files, &recipe, 0, 1).expect("readable");
        assert_eq!((streamed.kept_bytes(), streamed.shape()), (0, (3, 16, 16)));
        let base = batch(&streamed, &places, 2, 1);
        assert!(base.iter().all(|x| x.is_finite()));
        assert_eq!(base[..768], base[3 * 768..4 * 768], "the same example twice");
        // some of the photographs, and all
        for (room, threads) in [(6000, 2), (u64::MAX, 1), (u64::MAX, 3)] {
            let kept = loader(&files, &recipe, room, threads).expect("readable");
            assert!(kept.kept_bytes() <= room && (room == 6000 || kept.kept_bytes() > 0));
            assert_eq!(batch(&kept, &places, 2, threads), base);
        }
        if !matches!(recipe, Recipe::Photo { view: View::CenterCrop { .. }, .. }) {
            assert_ne!(batch(&streamed, &places, 3, 1), base, "another epoch");
        }
    }
}

/// A file of the right size is neither scaled nor cropped.
#[test]
fn files_are_what_memory_would_be() {
    let here = folder("loader");
    let path = here.path().join("x.png");
    let image = RgbImage::from_fn(16, 16, |x, y| image::Rgb([(16 * x) as u8, (16 * y) as u8, (x * y) as u8]));
    image.save(&path).expect("writes");
    let planes = (0..3).flat_map(|c| image.pixels().map(move |pixel| pixel.0[c])).collect::<Vec<u8>>();
    let pixels = Pixels { channels: 3, height: 16, width: 16, bytes: planes.into() };
    let recipe = &recipes()[0];
    let memory = Loader::new(Images::Memory(pixels.clone()), recipe.clone(), 0, &Pool::single(), &|_, _| {});
    let memory = memory.expect("nothing to read");
    for room in [0, 1000] {
        let file = loader(std::slice::from_ref(&path), recipe, room, 1).expect("readable");
        assert_eq!(batch(&file, &[0], 1, 1), batch(&memory, &[0], 1, 1));
    }
    let photo = Loader::new(Images::Memory(pixels), recipes()[2].clone(), 0, &Pool::single(), &|_, _| {});
    assert!(matches!(photo, Err(DataError::NoPhotographs)));
}

/// All bad files are named before the first batch, whatever is kept; leaving them out is the caller's choice and is counted.
#[test]
fn every_bad_file_is_named_before_the_first_batch() {
    let here = folder("loader");
    let files = files(here.path(), 10);
    fs::write(&files[2], b"no image").expect("writes");
    fs::write(&files[5], b"").expect("writes");
    let whole = fs::read(&files[8]).expect("there");
    fs::write(&files[8], &whole[..whole.len() / 2]).expect("writes");
    fs::remove_file(&files[9]).expect("removes");
    for recipe in recipes() {
        for room in [0, u64::MAX] {
            let Err(DataError::Unreadable { files: bad }) = loader(&files, &recipe, room, 2) else {
                panic!("four files cannot be read");
            };
            assert_eq!(bad.iter().map(|bad| bad.at).collect::<Vec<_>>(), [2, 5, 8, 9]);
            assert!(bad.iter().all(|bad| bad.path == files[bad.at as usize] && !bad.what.is_empty()));
            let part = Split { images: Images::Files(files.clone()), labels: vec![0, 0, 0, 1, 1, 1, 2, 2, 2, 2] };
            let (rest, left_out) = part.without(&bad, 4);
            assert_eq!(left_out, [1, 1, 2, 0]);
            assert_eq!(rest.labels, [0, 0, 1, 1, 2, 2]);
            let Images::Files(rest) = &rest.images else { panic!("still files") };
            assert!(loader(rest, &recipe, room, 2).is_ok());
        }
    }
}

/// One that does not fit leaves its room to those behind it.
#[test]
fn what_is_not_kept_takes_no_room() {
    let here = folder("loader");
    let save = |name: &str, side: u32| {
        let path = here.path().join(name);
        RgbImage::new(side, side).save(&path).expect("writes");
        path
    };
    let files = [save("large.png", 100), save("small.png", 10)];
    let loader = loader(&files, &recipes()[2], 1000, 1).expect("readable");
    assert_eq!(loader.kept_bytes(), 300);
}

/// A file that goes bad while training is named too, and is no panic.
#[test]
fn a_file_that_disappears() {
    let here = folder("loader");
    let files = files(here.path(), 3);
    for recipe in recipes() {
        let streamed = loader(&files, &recipe, 0, 1).expect("readable");
        let bytes = fs::read(&files[1]).expect("there");
        fs::remove_file(&files[1]).expect("removes");
        let mut out = vec![0.0; 2 * 768];
        let error = streamed.batch(&[0, 1], 0, 0, &mut out, &Pool::single()).expect_err("gone");
        assert!(error.to_string().contains("1 image files cannot be read") && error.to_string().contains("1.png"));
        fs::write(&files[1], bytes).expect("writes");
    }
}
