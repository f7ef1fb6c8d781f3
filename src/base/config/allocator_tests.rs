//! Goal: PyTorch's keys have their meaning in PyTorch, and the parser refuses malformed settings.
//!
//! Method: tables of strings. PyTorch accepts some of the refused strings by mistake and fails on
//! others with an internal assertion; `bridges/torch/tests/test_settings.py` compares both parsers.
//! Each error names the key, the value and the allowed values.

use super::allocator::{AllocatorConfig, PolicyName, recorded_settings};
use crate::base::size::MIB;

fn parsed(text: &str) -> AllocatorConfig {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn every_key_arrives() {
    let default = AllocatorConfig::default;
    let torch = || AllocatorConfig { policy: PolicyName::Torch, ..default() };
    let cases = [
        ("policy:torch", torch()),
        ("strict:True,policy:torch", torch()),
        ("strict:False,backend:cudaMallocAsync,release_lock_on_cudamalloc:False", default()),
        ("policy:native", AllocatorConfig { policy: PolicyName::Native, ..default() }),
        (
            "exact_statistics:True",
            AllocatorConfig { policy: PolicyName::Native, exact_statistics: true, ..default() },
        ),
        (
            "deterministic:True,policy:native",
            AllocatorConfig { policy: PolicyName::Native, deterministic: true, ..default() },
        ),
        ("expandable_segments:True", AllocatorConfig { expandable_segments: true, ..torch() }),
        ("expandable_segments:False", torch()),
        (
            "large_segment_size_mb:11",
            AllocatorConfig {
                large_segment_bytes: 11 * MIB,
                max_non_split_rounding_bytes: 11 * MIB,
                ..torch()
            },
        ),
        ("max_split_size_mb:20", AllocatorConfig { max_split_bytes: Some(20 * MIB), ..torch() }),
        (
            "max_non_split_rounding_mb:40",
            AllocatorConfig { max_non_split_rounding_bytes: 40 * MIB, ..torch() },
        ),
        (
            "garbage_collection_threshold:0.5",
            AllocatorConfig { garbage_collection_threshold: Some(0.5), ..torch() },
        ),
        (
            "per_process_memory_fraction:1",
            AllocatorConfig {
                per_process_memory_fraction: Some(1.0),
                is_limit_named: true,
                ..default()
            },
        ),
        (
            "throw_on_cudamalloc_oom:True",
            AllocatorConfig { reject_above_fraction: true, ..default() },
        ),
        (
            "pinned_max_cached_size_mb:0",
            AllocatorConfig { pinned_max_cached_bytes: Some(0), ..default() },
        ),
        (
            "pinned_reserve_segment_size_mb:64",
            AllocatorConfig { pinned_segment_bytes: 64 * MIB, ..default() },
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(parsed(text), expected, "{text}");
    }
}

#[test]
fn blanks_a_trailing_comma_and_an_empty_text_are_accepted() {
    let expected = AllocatorConfig {
        policy: PolicyName::Torch,
        expandable_segments: true,
        max_split_bytes: Some(32 * MIB),
        ..AllocatorConfig::default()
    };
    for text in [
        "expandable_segments:True,max_split_size_mb:32",
        "max_split_size_mb:32,expandable_segments:True,",
        "  expandable_segments : True ,\tmax_split_size_mb : 32 , ",
    ] {
        assert_eq!(parsed(text), expected, "{text}");
    }
    for text in ["", "   "] {
        assert_eq!(parsed(text), AllocatorConfig::default(), "{text:?}");
    }
}

#[test]
fn the_size_of_large_segments_bounds_the_others_in_any_order() {
    assert_eq!(
        parsed("max_split_size_mb:11,large_segment_size_mb:11").max_split_bytes,
        Some(11 * MIB)
    );
    let config = parsed("max_non_split_rounding_mb:30,large_segment_size_mb:30");
    assert_eq!(config.max_non_split_rounding_bytes, 30 * MIB);
    let error = "max_split_size_mb:20,large_segment_size_mb:21".parse::<AllocatorConfig>();
    assert!(error.unwrap_err().to_string().contains("from 21 to"));
}

#[test]
fn repeated_keys_last_one_counts() {
    for (text, expected) in [
        ("max_split_size_mb:20,max_split_size_mb:40", "max_split_size_mb:40"),
        ("policy:native,policy:torch", "policy:torch"),
        ("strict:True,strict:False,backend:native,backend:native", ""),
        ("large_segment_size_mb:11,large_segment_size_mb:30", "large_segment_size_mb:30"),
        ("roundup_power2_divisions:4,roundup_power2_divisions:[]", "roundup_power2_divisions:4"),
    ] {
        assert_eq!(parsed(text), parsed(expected), "{text}");
    }
    assert!("max_split_size_mb:2,max_split_size_mb:40".parse::<AllocatorConfig>().is_err());
}

#[test]
fn divisions_are_one_number_or_intervals() {
    let off = [0; 16];
    let mut listed = [8; 16];
    listed[7] = 0; // The list has no interval for 128 MiB.
    listed[8] = 4;
    listed[9..].fill(1);
    let top = [2; 16];
    let mut above = [2; 16];
    above[0] = 0; // The interval before `>` begins at 1 MiB.
    let mut descending = [1; 16];
    (descending[6], descending[8]) = (8, 4);
    for (text, expected) in [
        ("4", [4; 16]),
        ("1", [1; 16]),
        ("[64:8,256:4,>:1]", listed),
        (" [ 64 : 8 , 256 : 4 , > : 1 ] ", listed),
        ("[65536:2,>:4]", top),
        ("[131072:2]", top),
        ("[1:0]", off),
        ("[]", off),
        ("[ ]", off),
        ("[>:2]", above),
        ("[64:8,256:4,>:1,]", listed),
        ("[>:1,512:1,64:8,256:4]", descending),
        ("[16:8,>:2,64:4],roundup_power2_divisions:[>:1,64:8,128:0,256:4,>:1]", listed),
    ] {
        let config = parsed(&format!("roundup_power2_divisions:{text}"));
        assert_eq!(config.roundup_power2_divisions, expected, "{text}");
    }
}

/// Refused strings, each with parts of its error: the key, the value and some allowed values.
const REFUSED: &[(&str, &str, &str, &str)] = &[
    ("expandable_segments,True", "expandable_segments", "", "pairs of a key and a value"),
    ("expandable_segments[True", "expandable_segments[True", "", "pairs of a key and a value"),
    ("a:True:b:20", "a", "", "policy, strict, expandable_segments"),
    ("expandable_segments:True:b:20", "expandable_segments", "True:b:20", "True or False"),
    ("max_split_size_mb:20,,garbage_collection_threshold:0.5", "", "", "pairs of a key"),
    ("roundup_power2_divisions:[64,8]", "roundup_power2_divisions", "[64,8]", "[64:8,256:4,>:1]"),
    ("max_split_size_mb:20.7", "max_split_size_mb", "20.7", "a whole number of MiB from 20"),
    ("max_split_size_mb:20abc", "max_split_size_mb", "20abc", "from 20"),
    ("garbage_collection_threshold:0.5x", "garbage_collection_threshold", "0.5x", "0 and 1"),
    ("max_split_size_mb: 2 0", "max_split_size_mb", "2 0", "from 20"),
    ("max_split_size_mb:-1", "max_split_size_mb", "-1", "from 20"),
    ("max_split_size_mb:+20", "max_split_size_mb", "+20", "from 20"),
    ("MAX_SPLIT_SIZE_MB:20", "MAX_SPLIT_SIZE_MB", "", "max_split_size_mb"),
    ("foo:1", "foo", "", "policy, strict, expandable_segments"),
    ("roundup_power2_divisions:[64:3]", "roundup_power2_divisions", "[64:3]", "powers of two or 0"),
    ("roundup_power2_divisions:[48:4]", "roundup_power2_divisions", "[48:4]", "intervals are"),
    ("roundup_power2_divisions:[0:4]", "roundup_power2_divisions", "[0:4]", "intervals are"),
    ("roundup_power2_divisions:[,]", "roundup_power2_divisions", "[,]", "[64:8"),
    ("roundup_power2_divisions:[64:8:2]", "roundup_power2_divisions", "[64:8:2]", "[64:8"),
    ("roundup_power2_divisions:[64:8,,]", "roundup_power2_divisions", "[64:8,,]", "[64:8"),
    ("roundup_power2_divisions:3", "roundup_power2_divisions", "3", "a power of two"),
    ("roundup_power2_divisions:0", "roundup_power2_divisions", "0", "a power of two"),
    ("max_split_size_mb:99999999999999999999999", "max_split_size_mb", "9999", "from 20"),
    ("max_split_size_mb:17592186044416", "max_split_size_mb", "17592186044416", "17592186044415"),
    ("max_split_size_mb:abc", "max_split_size_mb", "abc", "from 20"),
    ("garbage_collection_threshold:abc", "garbage_collection_threshold", "abc", "0 and 1"),
    (",,", "", "", "pairs of a key and a value"),
    (",", "", "", "pairs of a key and a value"),
    ("foo", "foo", "", "pairs of a key and a value"),
    ("max_split_size_mb", "max_split_size_mb", "", "pairs of a key and a value"),
    ("max_split_size_mb:", "max_split_size_mb", "", "from 20"),
    ("expandable_segments:True,,,", "", "", "pairs of a key and a value"),
    ("foo:[1,2", "foo", "", "policy, strict, expandable_segments"),
    ("roundup_power2_divisions:[64:8", "roundup_power2_divisions", "[64:8", "[64:8,256:4,>:1]"),
    ("roundup_power2_divisions:[64:8]]", "roundup_power2_divisions", "[64:8]]", "[64:8,256:4"),
    ("expandable_segments:true", "expandable_segments", "true", "True or False"),
    ("large_segment_size_mb:10", "large_segment_size_mb", "10", "from 11"),
    ("max_split_size_mb:19", "max_split_size_mb", "19", "from 20"),
    ("max_non_split_rounding_mb:19", "max_non_split_rounding_mb", "19", "from 20"),
    ("garbage_collection_threshold:0", "garbage_collection_threshold", "0", "0 and 1"),
    ("garbage_collection_threshold:1.0", "garbage_collection_threshold", "1.0", "0 and 1"),
    ("garbage_collection_threshold:nan", "garbage_collection_threshold", "nan", "0 and 1"),
    ("per_process_memory_fraction:-0.1", "per_process_memory_fraction", "-0.1", "0 to 1"),
    ("per_process_memory_fraction:1.01", "per_process_memory_fraction", "1.01", "0 to 1"),
    ("pinned_reserve_segment_size_mb:0", "pinned_reserve_segment_size_mb", "0", "from 1"),
    ("policy:best", "policy", "best", "torch or native"),
    ("backend:cudaMallocAsync", "backend", "", "`policy` says"),
    ("backend:native", "backend", "", "`policy` says"),
    ("release_lock_on_cudamalloc:True", "release_lock_on_cudamalloc", "", "how the allocator"),
    ("release_lock_on_hipmalloc:True", "release_lock_on_hipmalloc", "", "how the allocator"),
    ("graph_capture_record_stream_reuse:True", "graph_capture_record_stream_reuse", "", "graphs"),
    ("pinned_use_cuda_host_register:True", "pinned_use_cuda_host_register", "", "by the driver"),
    ("pinned_use_hip_host_register:True", "pinned_use_hip_host_register", "", "by the driver"),
    ("pinned_use_xpu_host_register:True", "pinned_use_xpu_host_register", "", "by the driver"),
    ("pinned_num_register_threads:8", "pinned_num_register_threads", "", "by the driver"),
    ("pinned_use_background_threads:True", "pinned_use_background_threads", "", "are counters"),
    ("pinned_max_round_threshold_mb:4", "pinned_max_round_threshold_mb", "", "powers of two"),
    ("pinned_free_catch_all:True", "pinned_free_catch_all", "", "raises nothing"),
];

#[test]
fn an_invalid_setting_is_named_with_the_allowed_values() {
    for (text, key, value, allowed) in REFUSED {
        let Err(error) = text.parse::<AllocatorConfig>() else { panic!("{text} was accepted") };
        let message = error.to_string();
        for part in [key, value, allowed] {
            assert!(message.contains(part), "{text}: {part:?} is not in {message:?}");
        }
    }
}

#[test]
fn recorded_keys_without_effect_are_dropped() {
    let text = "backend:native, roundup_power2_divisions:[64:8,>:1],\
        release_lock_on_cudamalloc:True,max_split_size_mb:128";
    let (kept, unknown) = recorded_settings(text).unwrap();
    assert!(unknown.is_empty(), "{unknown:?}");
    assert_eq!(kept, "roundup_power2_divisions:[64:8,>:1],max_split_size_mb:128");
    assert_eq!(recorded_settings("").unwrap(), (String::new(), vec![]));
    let (kept, unknown) = recorded_settings("unknown:1,policy:torch,other:[1]").unwrap();
    assert_eq!((kept.as_str(), unknown.join(" ").as_str()), ("policy:torch", "unknown other"));
    let error = recorded_settings("backend:cudaMallocAsync").unwrap_err().to_string();
    assert!(error.contains("cudaMallocAsync") && error.contains("native"), "{error}");
}

#[test]
fn the_default_policy_is_native() {
    assert_eq!(AllocatorConfig::default().policy, PolicyName::Native);
    for text in ["", "per_process_memory_fraction:0.5", "pinned_reserve_segment_size_mb:64"] {
        assert_eq!(parsed(text).policy, PolicyName::Native, "{text:?}");
    }
}

#[test]
fn a_key_of_one_policy_selects_it_and_excludes_the_other() {
    assert_eq!(parsed("max_split_size_mb:32").policy, PolicyName::Torch);
    assert_eq!(parsed("exact_statistics:False").policy, PolicyName::Native);
    for (text, key, policy) in [
        ("policy:native,max_split_size_mb:32", "max_split_size_mb", "torch"),
        ("expandable_segments:True,policy:native", "expandable_segments", "torch"),
        ("policy:torch,deterministic:True", "deterministic", "native"),
        ("exact_statistics:True,large_segment_size_mb:20", "large_segment_size_mb", "torch"),
    ] {
        let error = text.parse::<AllocatorConfig>().unwrap_err().to_string();
        assert!(error.contains(key) && error.contains(&format!("of policy {policy}")), "{error}");
    }
}

#[test]
fn under_policy_torch_a_text_resets_what_pytorch_resets_and_no_more() {
    // PyTorch's binary also resets `max_non_split_rounding_mb`, so this runtime does.
    let text = "large_segment_size_mb:24,max_split_size_mb:64,max_non_split_rounding_mb:60,\
                roundup_power2_divisions:4,\
                garbage_collection_threshold:0.5,expandable_segments:True,\
                throw_on_cudamalloc_oom:True,pinned_max_cached_size_mb:7,\
                pinned_reserve_segment_size_mb:8,per_process_memory_fraction:0.5";
    let before = parsed(text);
    let after = before.followed_by("policy:torch").unwrap();
    let expected = AllocatorConfig {
        max_split_bytes: None,
        max_non_split_rounding_bytes: 24 * MIB,
        roundup_power2_divisions: [0; 16],
        garbage_collection_threshold: None,
        is_limit_named: false,
        ..before.clone()
    };
    assert_eq!(after, expected);
    let error = after.followed_by("max_split_size_mb:20").unwrap_err();
    assert!(error.to_string().contains("from 24 to"), "{error}");
    let rounded = after.followed_by("roundup_power2_divisions:2").unwrap();
    assert_eq!((rounded.roundup_power2_divisions[3], rounded.expandable_segments), (2, true));
    for other in ["", "policy:native", "exact_statistics:True"] {
        assert_eq!(before.followed_by(other).unwrap(), parsed(other), "{other}");
    }
    assert_eq!(parsed("").followed_by(text).unwrap(), before);
    let native = parsed("per_process_memory_fraction:0.5,pinned_reserve_segment_size_mb:8");
    assert_eq!(native.followed_by("policy:torch").unwrap(), parsed("policy:torch"));
}

#[test]
fn a_text_that_is_not_strict_accepts_and_lists_keys_without_effect() {
    let text = "strict:False,backend:native,max_split_size_mb:20,pinned_free_catch_all:True";
    let ignored = AllocatorConfig::ignored_keys(text).unwrap();
    let keys: Vec<&str> = ignored.iter().map(|(key, _)| *key).collect();
    assert_eq!(keys, ["backend", "pinned_free_catch_all"]);
    assert_eq!(parsed(text).max_split_bytes, Some(20 * MIB));
    for wrong in [
        "strict:True,backend:native",
        "strict:False,foo:1",
        "strict:false",
        "strict:False,policy:native,max_split_size_mb:20",
    ] {
        assert!(wrong.parse::<AllocatorConfig>().is_err(), "{wrong}");
    }
}
