//! Changing an image allocates nothing, once there is room.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use equipoise_data::batch::ops::{Change, Changer};

/// The system's allocator, counted by thread.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: passes everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_warm_change_allocates_nothing() {
    let (mut changer, mut image) = (Changer::new(16, 20), vec![100; 3 * 16 * 20]);
    changer.apply(Change::Rotate(10.0), &mut image);
    let before = ALLOCATIONS.get();
    for change in [
        Change::Brightness(0.5),
        Change::Contrast(1.5),
        Change::Saturation(0.5),
        Change::Hue(0.1),
        Change::Sharpness(1.5),
        Change::Posterize(5),
        Change::Solarize(100),
        Change::AutoContrast,
        Change::Equalize,
        Change::Rotate(-10.0),
        Change::ShearX(0.2),
        Change::ShearY(0.2),
        Change::TranslateX(3),
        Change::TranslateY(3),
    ] {
        changer.apply(change, &mut image);
    }
    assert_eq!(ALLOCATIONS.get() - before, 0);
}
