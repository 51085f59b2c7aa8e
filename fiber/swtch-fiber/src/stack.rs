//! Stacks of workers: always guarded, pooled, and using memory only as far as they are used.
//!
//! The kernel allocates memory a page at a time, when it is touched. So a stack of 64 KiB that a
//! suspended worker has used only at its top costs one page. The first resource to run out is
//! therefore not memory but *mappings*. A guard made with `mprotect` splits its mapping, and at
//! `vm.max_map_count` (65530) the kernel refuses: 32,750 stacks and no more. So stacks are cut from
//! large slabs, and their guards are markers in the page table (`MADV_GUARD_INSTALL`, Linux 6.13),
//! which split nothing.
//!
//! ```text
//!  slab: one mapping, grown when the pool is empty, never unmapped
//!  ├ slot 0 ─────────────────────┬ slot 1 ─────────────────────┬ …
//!  │ guard │ usable    ◀── stack │ guard │ usable    ◀── stack │
//!  └───────┴─────────────────────┴───────┴─────────────────────┴ …
//!    16 KiB  stack_size   base ──┘ less a colour of 0 … 960 bytes
//! ```
//!
//! [`StackPool`] hands stacks out, `geometry` computes where each lies, `slab` allocates them,
//! [`overflow`] names the worker whose stack ran over, and `shadow` detects when the processor
//! would not let us switch stacks at all.
//!
//! **Memory is never unmapped**, like everything that other threads may still point at: a fault
//! handler and an observer of high-water marks may look at any stack at any time, without a lock.
//! Pages are given back to the kernel, addresses are not; there are plenty.
//!
//! What this does *not* handle: signal handlers that run on these stacks. A handler without
//! `SA_ONSTACK` that interrupts a worker runs on the worker's stack, and the kernel's frame alone
//! takes 3.4 kB with AVX-512, and 8 kB more for tiles where AMX is in use. The monitor warns of
//! such handlers.

mod alternate;
mod geometry;
mod guards;
mod memory;
pub mod overflow;
mod pool;
mod pooled;
mod shadow;
mod slab;
mod threads;

pub use geometry::{DEFAULT_STACK_SIZE, LARGEST_STACK_SIZE, SMALLEST_STACK_SIZE};
pub use guards::Guards;
pub(crate) use memory::bytes_used;
pub use pool::StackPool;
pub use pooled::{PooledStack, StackHandle};
