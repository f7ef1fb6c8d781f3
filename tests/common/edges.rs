//! Numbers at limits and next to them, where a comparison may be off by one.

/// 0, 1, each limit with both neighbours, and the two largest numbers; sorted, each once.
pub(crate) fn edges(limits: &[usize]) -> Vec<usize> {
    let around = |limit: &usize| [limit.saturating_sub(1), *limit, limit.saturating_add(1)];
    let ends = [0, 1, usize::MAX - 1, usize::MAX];
    let mut edges: Vec<usize> = limits.iter().flat_map(around).chain(ends).collect();
    edges.sort_unstable();
    edges.dedup();
    edges
}
