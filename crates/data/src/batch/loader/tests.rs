//! Batches from files do not depend on the cache or the number of threads.

use std::fs;

use equipoise_testing::TempFolder;
use image::RgbImage;

use super::super::random_ops::{ColorJitter, RandAugment};
use super::*;

/// Images of different sizes and colors.
fn files(here: &Path, number: u32) -> Vec<PathBuf> {
    let file = |i: u32| {
        let pixel = |x: u32, y: u32| image::Rgb([(40 * i + 5 * x) as u8, (9 * y) as u8, (7 * i + x * y) as u8]);
        let path = here.join(format!("{i}.png"));
        RgbImage::from_fn(20 + 3 * i, 31 - i, pixel).save(&path).expect("writes");
        path
    };
    (0..number).map(file).collect()
}

fn transforms() -> [Transform; 4] {
    let normalize = Normalize::imagenet();
    let augmentation = Augmentation {
        randaugment: RandAugment::new(2, 9).ok(),
        color_jitter: ColorJitter::new(0.4, 0.4, 0.4, 0.1).ok(),
        ..Augmentation::default()
    };
    let photo = |crop| Transform::Photo { image_size: 16, crop, augmentation, normalize: normalize.clone() };
    let usual = SmallTransform::train(normalize.clone());
    let with_ops = SmallTransform { augmentation, normalize: normalize.clone() };
    [
        Transform::Small { image_size: 16, transform: usual },
        Transform::Small { image_size: 16, transform: with_ops },
        photo(PhotoCrop::RandomResizedCrop),
        photo(PhotoCrop::CenterCrop { resize: 18 }),
    ]
}

fn loader(files: &[PathBuf], transform: &Transform, cache_bytes: u64, threads: usize) -> Result<Loader, DataError> {
    let pool = Pool::new(threads).expect("threads");
    Loader::new(Images::Files(files.to_vec()), transform.clone(), cache_bytes, &pool, &|_, _| {})
}

/// Bytes of decoded images in the cache.
fn cached_bytes(loader: &Loader) -> u64 {
    match &loader.cache {
        Cache::Pixels(pixels) => pixels.bytes.len() as u64,
        Cache::Photos(photos) => photos.iter().flatten().map(|image| image.bytes.len() as u64).sum(),
        Cache::Nothing | Cache::Features(_) => 0,
    }
}

fn batch(loader: &Loader, indices: &[u32], epoch: u64, threads: usize) -> Vec<f32> {
    let mut out = vec![f32::NAN; indices.len() * 3 * 16 * 16];
    loader.batch(indices, 5, epoch, &mut out, &Pool::new(threads).expect("threads")).expect("readable");
    out
}

#[test]
fn the_cache_does_not_change_batches() {
    let here = TempFolder::new("loader");
    let files = files(here.path(), 10);
    let indices = [3, 9, 0, 3, 7];
    for transform in transforms() {
        let streamed = loader(&files, &transform, 0, 1).expect("readable");
        assert_eq!((cached_bytes(&streamed), streamed.shape()), (0, (3, 16, 16)));
        let base = batch(&streamed, &indices, 2, 1);
        assert!(base.iter().all(|x| x.is_finite()));
        assert_eq!(base[..768], base[3 * 768..4 * 768], "the same example twice");
        // some of the photographs fit, and all of them
        for (limit, threads) in [(6000, 2), (u64::MAX, 1), (u64::MAX, 3)] {
            let cached = loader(&files, &transform, limit, threads).expect("readable");
            assert!(cached_bytes(&cached) <= limit && (limit == 6000 || cached_bytes(&cached) > 0));
            assert_eq!(batch(&cached, &indices, 2, threads), base);
        }
        if !matches!(transform, Transform::Photo { crop: PhotoCrop::CenterCrop { .. }, .. }) {
            assert_ne!(batch(&streamed, &indices, 3, 1), base, "another epoch");
        }
    }
}

/// A file of the right size is neither resized nor cropped.
#[test]
fn files_give_the_same_batches_as_memory() {
    let here = TempFolder::new("loader");
    let path = here.path().join("x.png");
    let image = RgbImage::from_fn(16, 16, |x, y| image::Rgb([(16 * x) as u8, (16 * y) as u8, (x * y) as u8]));
    image.save(&path).expect("writes");
    let planes = (0..3).flat_map(|c| image.pixels().map(move |pixel| pixel.0[c])).collect::<Vec<u8>>();
    let pixels = Pixels { channels: 3, height: 16, width: 16, bytes: planes.into() };
    let transform = &transforms()[0];
    let memory = Loader::new(Images::Memory(pixels.clone()), transform.clone(), 0, &Pool::single(), &|_, _| {});
    let memory = memory.expect("nothing to read");
    for limit in [0, 1000] {
        let file = loader(std::slice::from_ref(&path), transform, limit, 1).expect("readable");
        assert_eq!(batch(&file, &[0], 1, 1), batch(&memory, &[0], 1, 1));
    }
    let photo = Loader::new(Images::Memory(pixels), transforms()[2].clone(), 0, &Pool::single(), &|_, _| {});
    assert!(matches!(photo, Err(DataError::NoPhotographs)));
}

/// All unreadable files are named before the first batch.
#[test]
fn every_unreadable_file_is_named_before_the_first_batch() {
    let here = TempFolder::new("loader");
    let files = files(here.path(), 10);
    fs::write(&files[2], b"not an image").expect("writes");
    fs::write(&files[5], b"").expect("writes");
    let complete = fs::read(&files[8]).expect("there");
    fs::write(&files[8], &complete[..complete.len() / 2]).expect("writes");
    fs::remove_file(&files[9]).expect("removes");
    for transform in transforms() {
        for limit in [0, u64::MAX] {
            let Err(DataError::Unreadable { files: bad }) = loader(&files, &transform, limit, 2) else {
                panic!("four files cannot be read");
            };
            assert_eq!(bad.iter().map(|bad| bad.index).collect::<Vec<_>>(), [2, 5, 8, 9]);
            assert!(bad.iter().all(|bad| bad.path == files[bad.index as usize] && !bad.what.is_empty()));
        }
    }
}

/// An image that does not fit leaves its place to those after it.
#[test]
fn only_cached_images_count_for_the_limit() {
    let here = TempFolder::new("loader");
    let save = |name: &str, side: u32| {
        let path = here.path().join(name);
        RgbImage::new(side, side).save(&path).expect("writes");
        path
    };
    let files = [save("large.png", 100), save("small.png", 10)];
    let loader = loader(&files, &transforms()[2], 1000, 1).expect("readable");
    assert_eq!(cached_bytes(&loader), 300);
}

/// A file that disappears during training is named too.
#[test]
fn a_file_that_disappears() {
    let here = TempFolder::new("loader");
    let files = files(here.path(), 3);
    for transform in transforms() {
        let streamed = loader(&files, &transform, 0, 1).expect("readable");
        let bytes = fs::read(&files[1]).expect("there");
        fs::remove_file(&files[1]).expect("removes");
        let mut out = vec![0.0; 2 * 768];
        let error = streamed.batch(&[0, 1], 0, 0, &mut out, &Pool::single()).expect_err("gone");
        assert!(error.to_string().contains("1 image file cannot be read") && error.to_string().contains("1.png"));
        fs::write(&files[1], bytes).expect("writes");
    }
}

/// Levels are the normalized pixels before their normalization, up to the rounding of resized pixels to 8 bits.
#[test]
fn levels_are_normalized_later() {
    let folder = TempFolder::new("levels");
    let files = files(folder.path(), 9);
    let normalize = Normalize::imagenet();
    let indices: Vec<u32> = (0..9).collect();
    for (transform, rounding) in transforms().iter().zip([0.0, 0.0, 0.0, 0.5f32]) {
        let loader = loader(&files, transform, 1 << 20, 1).expect("readable");
        for epoch in 0..5 {
            let want = batch(&loader, &indices, epoch, 1);
            let levels = |threads| {
                let mut out = vec![0u8; want.len()];
                let pool = Pool::new(threads).expect("threads");
                loader.batch(&indices, 5, epoch, &mut out, &pool).expect("readable");
                out
            };
            let got = levels(1);
            assert_eq!(got, levels(3));
            for (i, (level, want)) in got.iter().zip(&want).enumerate() {
                let channel = i / 256 % 3;
                let bound = (rounding + 0.001) * normalize.scale[channel];
                assert!((normalize.value(channel, f32::from(*level)) - want).abs() <= bound, "{i}: {level}, {want}");
            }
        }
    }
}

/// Cutout has the mean color in 8 bits too, and mixtures are rounded.
#[test]
fn levels_of_cutout_and_mixtures() {
    use super::super::mixup::blend;
    let folder = TempFolder::new("levels-cutout");
    let files = files(folder.path(), 2);
    let augmentation = Augmentation { cutout: 64, ..Augmentation::NONE };
    let transform = SmallTransform { augmentation, normalize: Normalize::imagenet() };
    let loader = loader(&files, &Transform::Small { image_size: 16, transform }, 1 << 20, 1).expect("readable");
    let mut out = vec![0u8; 3 * 256];
    loader.batch(&[1], 0, 0, &mut out, &Pool::single()).expect("readable");
    // 0.485, 0.456 and 0.406 of 255
    assert!(out[..256].iter().all(|x| *x == 124) && out[256..512].iter().all(|x| *x == 116) && out[700] == 104);
    let mut own = [0u8, 255, 100, 7];
    blend(&mut own, &[255, 0, 101, 7], 0.25);
    assert_eq!(own, [191, 64, 101, 7]);
}
