//! The product's allocator with a counter of the memory in use, which can be switched on.

use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use mimalloc::MiMalloc;

static IS_COUNTING: AtomicBool = AtomicBool::new(false);
static IN_USE: AtomicUsize = AtomicUsize::new(0);

pub struct Counting;

// SAFETY: every call is passed to the allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let pointer = unsafe { MiMalloc.alloc(layout) };
        unsafe { taken(pointer) };
        pointer
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        unsafe {
            given_back(pointer);
            MiMalloc.dealloc(pointer, layout);
        }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        unsafe {
            given_back(pointer);
            let pointer = MiMalloc.realloc(pointer, layout, size);
            taken(pointer);
            pointer
        }
    }
}

/// # Safety
/// The pointer is from the allocator, or null.
unsafe fn taken(pointer: *mut u8) {
    if IS_COUNTING.load(Ordering::Relaxed) {
        IN_USE.fetch_add(unsafe { MiMalloc.usable_size(pointer) }, Ordering::Relaxed);
    }
}

/// # Safety
/// As for [`taken`].
unsafe fn given_back(pointer: *mut u8) {
    if IS_COUNTING.load(Ordering::Relaxed) {
        IN_USE.fetch_sub(unsafe { MiMalloc.usable_size(pointer) }, Ordering::Relaxed);
    }
}

/// How much more memory is in use afterwards, in bytes as the allocator counts them. Nothing else may run meanwhile.
pub fn growth(work: impl FnOnce()) -> usize {
    let before = IN_USE.load(Ordering::Relaxed);
    IS_COUNTING.store(true, Ordering::Relaxed);
    work();
    IS_COUNTING.store(false, Ordering::Relaxed);
    IN_USE.load(Ordering::Relaxed).wrapping_sub(before)
}

/// Lets the allocator acquire as much memory as decisions may need, which it then keeps (the Makefile configures this):
/// on a machine that gets its own memory lazily, the first access to a large page takes milliseconds.
pub fn warm_up() {
    const BLOCKS: usize = 128 * 1024;
    let blocks: Vec<Box<[u8; 1024]>> = (0..BLOCKS).map(|_| Box::new([1; 1024])).collect();
    std::hint::black_box(blocks);
}
