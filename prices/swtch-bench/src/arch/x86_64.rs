//! x86-64: XSAVE state, CPUID, TSC. Sources: Intel SDM vol. 1 chapter 13 (XSAVE) and 18 (AMX), vol.
//! 2 (CPUID); AMD APM vol. 2 section 11.5.

use std::arch::asm;
use std::arch::x86_64::{__cpuid, __cpuid_count, _rdtsc, CpuidResult};
use std::sync::OnceLock;

use super::{ExtendedRegisters, SaveArea};
use crate::error::{Error, checked};

/// State components (SDM vol. 1, 13.1) that [`clear`] resets: SSE, AVX, opmask, the upper halves of
/// zmm0 to 15, zmm16 to 31. Not x87, and not PKRU, which holds access rights and no data.
const VECTORS: u32 = 0xe6;

/// XCR0 bits of the tile configuration and the tiles.
const TILES: u64 = 3 << 17;

/// Returns true if CPU and kernel have these registers, and user mode can reset them.
pub fn is_supported(registers: ExtendedRegisters) -> bool {
    // Without XSAVE nothing can be reset, so even the plain state cannot be produced.
    let Some(enabled) = enabled_components() else {
        return false;
    };
    match registers {
        ExtendedRegisters::Init | ExtendedRegisters::Sse => true,
        ExtendedRegisters::Avx2 => std::arch::is_x86_feature_detected!("avx2"),
        ExtendedRegisters::Avx512 => std::arch::is_x86_feature_detected!("avx512f"),
        // CPUID.7.0:EDX[24] is AMX-TILE.
        ExtendedRegisters::Amx => {
            enabled & TILES == TILES && leaf(7, 0).is_some_and(|l| l.edx >> 24 & 1 == 1)
        }
    }
}

/// Requests permission to use tiles (`Documentation/arch/x86/xstate.rst`); other states need none.
pub(crate) fn permit(registers: ExtendedRegisters) -> Result<(), Error> {
    const ARCH_REQ_XCOMP_PERM: libc::c_int = 0x1023;
    const XFEATURE_XTILEDATA: libc::c_ulong = 18;
    if registers != ExtendedRegisters::Amx {
        return Ok(());
    }
    // SAFETY: the request carries two numbers and no memory.
    let result = unsafe {
        libc::syscall(
            libc::SYS_arch_prctl,
            ARCH_REQ_XCOMP_PERM,
            XFEATURE_XTILEDATA,
        )
    };
    checked("arch_prctl", result).map(drop)
}

/// Resets all vectors (and tiles), then writes `registers`, and leaves them live. The caller has
/// checked that they exist ([`is_supported`]) and are permitted ([`permit`]).
pub(crate) fn leave_live(registers: ExtendedRegisters) {
    clear(registers);
    touch(registers);
}

/// The same instructions as [`leave_live`], with the reset last.
pub(crate) fn leave_cleared(registers: ExtendedRegisters) {
    touch(registers);
    clear(registers);
}

/// XINUSE: a bit for each state component that is not in its initial state, so that the kernel has
/// to save it. `None` if the CPU does not report it.
#[inline]
pub fn live_components() -> Option<u64> {
    static CAN_TELL: OnceLock<bool> = OnceLock::new();
    // CPUID.0xD.1:EAX[2]: XGETBV with ECX = 1.
    let can_tell = CAN_TELL.get_or_init(|| {
        enabled_components().is_some() && leaf(0xd, 1).is_some_and(|l| l.eax >> 2 & 1 == 1)
    });
    can_tell.then(|| {
        // SAFETY: the CPU has this form of XGETBV, and the kernel has enabled XSAVE.
        unsafe { extended_control(1) }
    })
}

/// Size of the XSAVE area: CPUID.0xD.0:EBX, and CPUID.0xD.1:EBX, which also counts supervisor
/// state.
pub fn save_area_bytes() -> Option<SaveArea> {
    enabled_components()?;
    let (standard, extensions) = (leaf(0xd, 0)?, leaf(0xd, 1)?);
    // EAX[1] is XSAVEC, EAX[3] XSAVES.
    let has_compact = extensions.eax & 0b1010 != 0;
    Some(SaveArea {
        standard_bytes: standard.ebx,
        compact_bytes: has_compact.then_some(extensions.ebx),
    })
}

/// Tells whether the CPU has PCID, with which the TLB keeps the entries of several address spaces apart. Without it
/// every change of the address space flushes the TLB.
pub fn has_address_space_ids() -> Option<bool> {
    Some(leaf(1, 0)?.ecx >> 17 & 1 == 1)
}

/// Tells whether CPUID reports a hypervisor (bit 31 of leaf 1, ECX).
pub fn is_guest() -> Option<bool> {
    Some(leaf(1, 0)?.ecx >> 31 == 1)
}

/// Reads the time stamp counter (RDTSC).
#[inline]
pub fn ticks() -> u64 {
    // SAFETY: Linux leaves RDTSC to user mode unless a task asks otherwise (PR_SET_TSC).
    unsafe { _rdtsc() }
}

/// Rate of the time stamp counter in Hz, from CPUID.0x15: crystal clock times a ratio. Often `None`
/// on AMD and in guests.
pub fn ticks_per_second() -> Option<u64> {
    let CpuidResult { eax, ebx, ecx, .. } = leaf(0x15, 0)?;
    (u64::from(ecx) * u64::from(ebx))
        .checked_div(u64::from(eax))
        .filter(|rate| *rate > 0)
}

/// A leaf of CPUID; `None` if the CPU has fewer leaves.
fn leaf(number: u32, part: u32) -> Option<CpuidResult> {
    (__cpuid(0).eax >= number).then(|| __cpuid_count(number, part))
}

/// XCR0; `None` when the kernel has not enabled XSAVE (CPUID.1:ECX[27]).
fn enabled_components() -> Option<u64> {
    (leaf(1, 0)?.ecx >> 27 & 1 == 1).then(|| {
        // SAFETY: XCR0 may be read when OSXSAVE is set.
        unsafe { extended_control(0) }
    })
}

/// Reads an extended control register by XGETBV.
///
/// # Safety
///
/// The CPU must have the register `number`, and the kernel must have set OSXSAVE.
unsafe fn extended_control(number: u32) -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: kept by the caller; the instruction reads a register and nothing else.
    unsafe {
        asm!("xgetbv", in("ecx") number, out("eax") low, out("edx") high,
             options(nomem, nostack, preserves_flags));
    }
    u64::from(high) << 32 | u64::from(low)
}

/// The image that XRSTOR reads: the legacy area and the header. `XSTATE_BV` of 0 means that every
/// requested component returns to its initial state; MXCSR is loaded even then.
#[repr(C, align(64))]
struct InitialState {
    legacy: [u32; 128],
    header: [u64; 8],
}

static INITIAL: InitialState = {
    let mut legacy = [0; 128];
    // MXCSR at byte 24: its value after a reset.
    legacy[6] = 0x1f80;
    InitialState {
        legacy,
        header: [0; 8],
    }
};

/// Resets the vectors to INIT, and the tiles when they are measured. `vzeroupper` would not do: it
/// leaves zmm16 to 31 and the masks, and XINUSE need not follow it.
#[inline(always)]
fn clear(registers: ExtendedRegisters) {
    if registers == ExtendedRegisters::Amx {
        // SAFETY: AMX is there; the tiles hold nothing that anyone needs.
        unsafe { asm!("tilerelease", options(nomem, nostack, preserves_flags)) };
    }
    // SAFETY: reads 576 bytes at an address aligned to 64; the vectors that it overwrites are
    // declared as clobbered.
    unsafe {
        asm!("xrstor64 [{area}]", area = in(reg) &raw const INITIAL,
             in("eax") VECTORS, in("edx") 0, clobber_abi("sysv64"), options(nostack, readonly));
    }
}

/// Writes ones, never the initial zeros, into one register of each component: the kernel saves
/// whole components. It takes the last register of each kind, because the code until the hand-over
/// zeroes xmm0, and registers that are all zero again count as initial (seen on Zen 5).
#[inline(always)]
fn touch(registers: ExtendedRegisters) {
    match registers {
        ExtendedRegisters::Init => {}
        ExtendedRegisters::Sse => {
            // SAFETY: every x86-64 has it; what is written is declared as clobbered.
            unsafe {
                asm!(
                    "pcmpeqd xmm15, xmm15",
                    clobber_abi("sysv64"),
                    options(nomem, nostack)
                );
            }
        }
        ExtendedRegisters::Avx2 => {
            // SAFETY: the CPU has it (`is_supported`); what is written is declared as clobbered.
            unsafe {
                asm!(
                    "vpcmpeqd ymm15, ymm15, ymm15",
                    clobber_abi("sysv64"),
                    options(nomem, nostack)
                );
            }
        }
        ExtendedRegisters::Avx512 => {
            // The upper half of a low register, a high register, a mask: three components.
            // SAFETY: the CPU has it (`is_supported`); what is written is declared as clobbered.
            unsafe {
                asm!(
                    "vpternlogd zmm15, zmm15, zmm15, 0xff",
                    "vpternlogd zmm31, zmm31, zmm31, 0xff",
                    "kxnorw k1, k1, k1",
                    clobber_abi("sysv64"),
                    options(nomem, nostack)
                );
            }
        }
        ExtendedRegisters::Amx => touch_tiles(),
    }
}

/// Palette 1 with eight tiles of 16 rows of 64 bytes (SDM vol. 1, table 18-2).
#[repr(C, align(64))]
struct TileConfiguration([u8; 64]);

static EIGHT_TILES: TileConfiguration = {
    let mut bytes = [0; 64];
    bytes[0] = 1;
    let mut tile = 0;
    while tile < 8 {
        bytes[16 + 2 * tile] = 64;
        bytes[48 + tile] = 16;
        tile += 1;
    }
    TileConfiguration(bytes)
};

#[repr(C, align(64))]
struct TileRow([u8; 64]);

static ROW: TileRow = TileRow([0xff; 64]);

fn touch_tiles() {
    // The rows of all tiles come from the same 64 bytes (stride 0). They are loaded with ones: a
    // tile of zeros may count as initial.
    // SAFETY: AMX is there and permitted; the configuration is valid, the row is 64 bytes.
    unsafe {
        asm!("ldtilecfg [{configuration}]",
             "tileloadd tmm0, [{row} + {stride}*1]", "tileloadd tmm1, [{row} + {stride}*1]",
             "tileloadd tmm2, [{row} + {stride}*1]", "tileloadd tmm3, [{row} + {stride}*1]",
             "tileloadd tmm4, [{row} + {stride}*1]", "tileloadd tmm5, [{row} + {stride}*1]",
             "tileloadd tmm6, [{row} + {stride}*1]", "tileloadd tmm7, [{row} + {stride}*1]",
             configuration = in(reg) &raw const EIGHT_TILES,
             row = in(reg) &raw const ROW,
             stride = in(reg) 0_u64,
             clobber_abi("sysv64"), options(nostack, readonly));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bit of the component that each state adds.
    const ADDED: [(ExtendedRegisters, u64); 3] = [
        (ExtendedRegisters::Sse, 1 << 1),
        (ExtendedRegisters::Avx2, 1 << 2),
        (ExtendedRegisters::Avx512, 0b111 << 5),
    ];

    /// XINUSE shows that the state is live after a touch, and initial after the reset.
    #[test]
    fn what_is_touched_is_live_until_it_is_cleared() {
        for (registers, bits) in ADDED {
            if !is_supported(registers) || live_components().is_none() {
                continue;
            }
            leave_live(registers);
            let live = live_components().unwrap();
            leave_cleared(registers);
            let cleared = live_components().unwrap();
            assert_eq!(live & bits, bits, "{registers:?}: {live:#x}");
            // Some CPUs never say that SSE is initial; the others must.
            assert_eq!(cleared & bits & !0b10, 0, "{registers:?}: {cleared:#x}");
        }
    }

    /// The legacy area and the header alone are 576 bytes.
    #[test]
    fn the_save_area_holds_at_least_sse() {
        assert!(save_area_bytes().is_none_or(|area| area.standard_bytes >= 576));
    }

    #[test]
    fn ticks_grow() {
        let before = ticks();
        assert!(ticks() > before);
    }
}
