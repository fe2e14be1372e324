//! An allocator that counts what is in use.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

static IN_USE: AtomicUsize = AtomicUsize::new(0);

pub struct Counting;

// SAFETY: every call is handed to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        IN_USE.fetch_add(rounded(layout), Ordering::Relaxed);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(rounded(layout), Ordering::Relaxed);
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// What the system's allocator really takes: sixteen bytes at a time, and eight for itself.
fn rounded(layout: Layout) -> usize {
    (layout.size() + 8).next_multiple_of(16).max(32)
}

pub fn in_use() -> usize {
    IN_USE.load(Ordering::Relaxed)
}
