//! The vector instructions of this machine, with PyTorch's names.

/// The widest vector instructions that the processor and the system support, by the names of
/// `torch.backends.cpu.get_cpu_capability`: `AVX512` (with VL, BW and DQ), `AVX2` (each with FMA),
/// `SVE` or `DEFAULT`.
///
/// ```
/// assert!(["AVX512", "AVX2", "SVE", "DEFAULT"].contains(&accelrt::cpu_capability()));
/// ```
#[must_use]
pub fn cpu_capability() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    {
        let has_fma = is_x86_feature_detected!("fma");
        let has_avx512 = is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq");
        if has_fma && has_avx512 {
            return "AVX512";
        }
        if has_fma && is_x86_feature_detected!("avx2") {
            return "AVX2";
        }
    }
    #[cfg(target_arch = "aarch64")]
    if std::arch::is_aarch64_feature_detected!("sve") {
        return "SVE";
    }
    "DEFAULT"
}
