//! From a level to a kernel compiled for it.

/// Compiles a generic kernel once per level.
///
/// `dispatch!(fn name<S: Shape>(arg: Type) -> Out = kernel)` makes a function that takes a
/// [`SimdLevel`](crate::SimdLevel) first and calls `kernel(token, arg)` inside a function that has the level's
/// instructions. The kernel must be `#[inline(always)]`, with everything it calls on vectors. An `unsafe fn` has the
/// contract of its kernel. `kernel with Wide` gets vectors of sixteen lanes at every level; `kernel with bf16` is also
/// compiled with the instructions for bf16, which other kernels do not need, and `kernel with bf16 if S::CONSTANT` only for
/// types that have it.
#[macro_export]
macro_rules! dispatch {
    ($(#[$meta:meta])* $vis:vis unsafe fn $($rest:tt)*) => {
        $crate::dispatch! { @ [$(#[$meta])* $vis] [unsafe] $($rest)* }
    };
    ($(#[$meta:meta])* $vis:vis fn $($rest:tt)*) => {
        $crate::dispatch! { @ [$(#[$meta])* $vis] [] $($rest)* }
    };
    (
        @ [$($head:tt)*] [$($unsafe:tt)?]
        $name:ident $(<$($generic:ident : $bound:path),*>)? ($($arg:ident : $type:ty),* $(,)?) $(-> $out:ty)?
        = $kernel:ident with bf16 $(if $condition:expr)?
    ) => {
        #[inline(always)]
        $($head)* $($unsafe)? fn $name $(<$($generic: $bound),*>)? (level: $crate::SimdLevel, $($arg: $type),*) $(-> $out)? {
            // SAFETY: the caller of an unsafe function keeps the contract of its kernel, at every level.
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512bf16,avx512f,avx512dq,avx512bw,avx512vl,avx2,fma")]
            $($unsafe)? fn avx512bf16 $(<$($generic: $bound),*>)? (simd: $crate::Avx512Bf16, $($arg: $type),*) $(-> $out)? {
                $($unsafe)? { $kernel(simd, $($arg),*) }
            }
            $crate::dispatch! {
                @ [] [$($unsafe)?] others $(<$($generic: $bound),*>)? ($($arg: $type),*) $(-> $out)? = $kernel
            }
            match level {
                // SAFETY: the token proves the instructions; the caller of an unsafe function keeps the kernel's
                // contract.
                #[cfg(target_arch = "x86_64")]
                $crate::SimdLevel::Avx512Bf16(simd) $(if const { $condition })? => unsafe { avx512bf16(simd, $($arg),*) },
                // SAFETY: the caller of an unsafe function keeps the contract of the kernel.
                _ => $($unsafe)? { others(level, $($arg),*) },
            }
        }
    };
    (
        @ [$($head:tt)*] [$($unsafe:tt)?]
        $name:ident $(<$($generic:ident : $bound:path),*>)? ($($arg:ident : $type:ty),* $(,)?) $(-> $out:ty)?
        = $kernel:ident $(with $wide:ident)?
    ) => {
        #[inline(always)]
        $($head)* $($unsafe)? fn $name $(<$($generic: $bound),*>)? (level: $crate::SimdLevel, $($arg: $type),*) $(-> $out)? {
            // SAFETY: the caller of an unsafe function keeps the contract of its kernel, at every level.
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512dq,avx512bw,avx512vl,avx2,fma")]
            $($unsafe)? fn avx512 $(<$($generic: $bound),*>)? (simd: $crate::Avx512, $($arg: $type),*) $(-> $out)? {
                $($unsafe)? { $kernel(simd, $($arg),*) }
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            $($unsafe)? fn avx2 $(<$($generic: $bound),*>)? (simd: $crate::Avx2, $($arg: $type),*) $(-> $out)? {
                $($unsafe)? { $kernel($($crate::$wide)?(simd), $($arg),*) }
            }
            $($unsafe)? fn portable $(<$($generic: $bound),*>)? (simd: $crate::Portable, $($arg: $type),*) $(-> $out)? {
                $($unsafe)? { $kernel($($crate::$wide)?($($crate::$wide)?(simd)), $($arg),*) }
            }
            match level {
                // SAFETY: the token proves the instructions; the caller of an unsafe function keeps the kernel's
                // contract.
                #[cfg(target_arch = "x86_64")]
                $crate::SimdLevel::Avx512(simd) => unsafe { avx512(simd, $($arg),*) },
                // SAFETY: as above.
                #[cfg(target_arch = "x86_64")]
                $crate::SimdLevel::Avx512Bf16(simd) => unsafe { avx512(simd.avx512(), $($arg),*) },
                // SAFETY: the token proves the instructions; the caller of an unsafe function keeps the kernel's
                // contract.
                #[cfg(target_arch = "x86_64")]
                $crate::SimdLevel::Avx2(simd) => unsafe { avx2(simd, $($arg),*) },
                // SAFETY: the caller of an unsafe function keeps the contract of the kernel.
                _ => $($unsafe)? { portable($crate::Portable, $($arg),*) },
            }
        }
    };
}
