//! Augmentation operations allocate nothing after the first.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use equipoise_data::batch::ops::{AugmentOp, ImageOps};

/// The system's allocator; it counts the allocations of each thread.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call is passed on to the system's allocator, which fulfills the contract.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: `layout` is what our caller passed, under the same contract.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the system's allocator returned `at` for `layout`, because every allocation is passed on to it.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn warm_ops_allocate_nothing() {
    let (mut ops, mut image) = (ImageOps::new(16, 20), vec![100; 3 * 16 * 20]);
    ops.apply(AugmentOp::Rotate(10.0), &mut image);
    let before = ALLOCATIONS.get();
    for op in [
        AugmentOp::Brightness(0.5),
        AugmentOp::Contrast(1.5),
        AugmentOp::Saturation(0.5),
        AugmentOp::Hue(0.1),
        AugmentOp::Sharpness(1.5),
        AugmentOp::Posterize(5),
        AugmentOp::Solarize(100),
        AugmentOp::AutoContrast,
        AugmentOp::Equalize,
        AugmentOp::Rotate(-10.0),
        AugmentOp::ShearX(0.2),
        AugmentOp::ShearY(0.2),
        AugmentOp::TranslateX(3),
        AugmentOp::TranslateY(3),
    ] {
        ops.apply(op, &mut image);
    }
    assert_eq!(ALLOCATIONS.get() - before, 0);
}
