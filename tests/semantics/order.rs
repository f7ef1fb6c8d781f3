//! An order that grows: nodes, each added behind others, and all that is before each.

/// A set of nodes, one bit each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Nodes(Vec<u64>);

impl Nodes {
    pub(crate) fn contains(&self, node: usize) -> bool {
        self.0.get(node / 64).is_some_and(|word| word >> (node % 64) & 1 == 1)
    }

    pub(crate) fn insert(&mut self, node: usize) {
        self.0.resize(self.0.len().max(node / 64 + 1), 0);
        self.0[node / 64] |= 1 << (node % 64);
    }

    pub(crate) fn unite(&mut self, other: &Self) {
        self.0.resize(self.0.len().max(other.0.len()), 0);
        for (word, more) in self.0.iter_mut().zip(&other.0) {
            *word |= more;
        }
    }
}

/// A strict partial order. A new node comes behind a set that is closed: with a node it has all
/// that is before that. So the closure is never computed again.
#[derive(Debug, Default)]
pub(crate) struct Order {
    /// What is before each node, without itself.
    before: Vec<Nodes>,
}

impl Order {
    /// A new node behind a closed set.
    pub(crate) fn add(&mut self, behind: Nodes) -> usize {
        self.before.push(behind);
        self.before.len() - 1
    }

    pub(crate) fn len(&self) -> usize {
        self.before.len()
    }

    pub(crate) fn is_before(&self, first: usize, second: usize) -> bool {
        self.before[second].contains(first)
    }

    pub(crate) fn before(&self, node: usize) -> &Nodes {
        &self.before[node]
    }

    /// The smallest closed set with these nodes.
    pub(crate) fn up_to(&self, nodes: &[usize]) -> Nodes {
        let mut all = Nodes::default();
        for node in nodes {
            all.unite(&self.before[*node]);
            all.insert(*node);
        }
        all
    }
}
