//! An ordered set of pairs of `u64`, packed into `u128`, as a tree with wide nodes.
//!
//! The standard library's B-tree spends most of its time here on cache misses between its narrow nodes and on keys
//! that it cannot change in place; this one has up to 64 entries in a node and can [`Tree::replace`] a key by a near
//! one. It has no invariant on how full a node is beyond "none is empty, small neighbours are joined".

/// Most entries of a leaf and most children of an inner node.
const CAP: usize = 64;
/// A node with fewer entries than this is joined with a neighbour if both fit well into one.
const LOW: usize = CAP / 4;
/// How full a joined or bulk-loaded node may be, so that the next insert does not split it again.
const WELL: usize = CAP * 3 / 4;

/// Capacity for this many entries is kept when a small tree becomes empty, because it soon will not be.
const KEPT: usize = 8;

/// Packs a pair so that numbers order as pairs do.
pub(super) const fn pack(high: u64, low: u64) -> u128 {
    (high as u128) << 64 | low as u128
}

/// Returns the pair that [`pack`] packed.
pub(super) const fn unpack(key: u128) -> (u64, u64) {
    ((key >> 64) as u64, key as u64)
}

/// Returns how many of the sorted `keys` are below `key`, without branches: the standard library's search branches on
/// every comparison, and half of them are mispredicted here.
fn rank(keys: &[u128], key: u128) -> usize {
    let (mut base, mut len) = (0, keys.len());
    while len > 1 {
        let half = len / 2;
        base += half & usize::from(keys[base + half - 1] < key).wrapping_neg();
        len -= half;
    }
    base + usize::from(keys.get(base).is_some_and(|k| *k < key))
}

/// An ordered set of packed pairs.
#[derive(Debug, Clone, Default)]
pub(super) struct Tree {
    root: Node,
}

#[derive(Debug, Clone)]
enum Node {
    Leaf(Vec<u128>),
    Inner(Box<Inner>),
}

/// `bounds[i]` lies above every key of `kids[i]` and not above any key of `kids[i + 1]`.
#[derive(Debug, Clone)]
struct Inner {
    bounds: Vec<u128>,
    kids: Vec<Node>,
}

impl Default for Node {
    fn default() -> Self {
        Node::Leaf(Vec::new())
    }
}

impl Tree {
    /// Most entries of a set that is built as one leaf.
    pub(super) const LEAF: usize = WELL;

    /// Creates the set of `keys`, which are sorted and without duplicates, in linear time.
    pub(super) fn from_sorted(keys: &[u128]) -> Self {
        let mut level: Vec<(u128, Node)> =
            keys.chunks(WELL).map(|chunk| (chunk[0], Node::Leaf(chunk.to_vec()))).collect();
        while level.len() > 1 {
            let mut above = Vec::with_capacity(level.len().div_ceil(WELL));
            let mut below = level.into_iter();
            while let Some((first, kid)) = below.next() {
                let (mut bounds, mut kids) = (Vec::new(), vec![kid]);
                for (bound, kid) in below.by_ref().take(WELL - 1) {
                    bounds.push(bound);
                    kids.push(kid);
                }
                above.push((first, Node::Inner(Box::new(Inner { bounds, kids }))));
            }
            level = above;
        }
        Self { root: level.pop().map(|(_, node)| node).unwrap_or_default() }
    }

    /// Returns whether the set has no entry.
    pub(super) fn is_empty(&self) -> bool {
        self.root.len() == 0
    }

    /// Returns whether it is one leaf.
    pub(super) fn is_leaf(&self) -> bool {
        matches!(&self.root, Node::Leaf(_))
    }

    /// Returns whether the set has just one entry.
    pub(super) fn is_single(&self) -> bool {
        matches!(&self.root, Node::Leaf(keys) if keys.len() == 1)
    }

    /// Returns the last entry below `key` and the first one not below it.
    pub(super) fn around(&self, key: u128) -> (Option<u128>, Option<u128>) {
        let (mut node, mut left, mut right) = (&self.root, None, None);
        loop {
            match node {
                Node::Inner(inner) => {
                    let i = inner.slot(key);
                    if i > 0 {
                        left = inner.kids.get(i - 1);
                    }
                    right = inner.kids.get(i + 1).or(right);
                    node = &inner.kids[i];
                }
                Node::Leaf(keys) => {
                    let i = rank(keys, key);
                    let below = if i > 0 { keys.get(i - 1).copied() } else { left.and_then(Node::last) };
                    return (below, keys.get(i).copied().or_else(|| right.and_then(Node::first)));
                }
            }
        }
    }

    /// Returns the smallest entry; `None` if there is none.
    pub(super) fn first(&self) -> Option<u128> {
        self.root.first()
    }

    /// Returns the largest entry; `None` if there is none.
    pub(super) fn last(&self) -> Option<u128> {
        self.root.last()
    }

    /// Adds `key`, which is not in the set.
    pub(super) fn insert(&mut self, key: u128) {
        if let Some((bound, right)) = self.root.insert(key) {
            let left = std::mem::take(&mut self.root);
            self.root = Node::Inner(Box::new(Inner { bounds: vec![bound], kids: vec![left, right] }));
        }
    }

    /// Removes `key`, if it is there.
    pub(super) fn remove(&mut self, key: u128) {
        self.root.remove(key);
        if let Node::Inner(inner) = &mut self.root
            && inner.kids.len() == 1
            && let Some(only) = inner.kids.pop()
        {
            self.root = only;
        }
        // A bin that once was full and now is empty would keep a kibibyte, times 4,096 bins.
        if let Node::Leaf(keys) = &mut self.root
            && keys.is_empty()
            && keys.capacity() > KEPT
        {
            *keys = Vec::new();
        }
    }

    /// Puts `new` in the place of `old`. No other entry lies between the two.
    pub(super) fn replace(&mut self, old: u128, new: u128) {
        let (mut node, mut low, mut high) = (&mut self.root, 0, u128::MAX);
        loop {
            match node {
                Node::Inner(inner) => {
                    let i = inner.slot(old);
                    if i > 0 {
                        low = inner.bounds[i - 1];
                    }
                    high = inner.bounds.get(i).copied().unwrap_or(high);
                    node = &mut inner.kids[i];
                }
                Node::Leaf(keys) => {
                    // A bound can lie between the two when what it once separated is gone.
                    if low <= new && new < high {
                        let i = rank(keys, old);
                        if let Some(key) = keys.get_mut(i) {
                            *key = new;
                        }
                        return;
                    }
                    break;
                }
            }
        }
        self.remove(old);
        self.insert(new);
    }

    /// Calls `visit` with every entry, in order.
    pub(super) fn for_each(&self, visit: &mut impl FnMut(u128)) {
        self.root.for_each(visit);
    }
}

impl Inner {
    /// Returns the child in whose key space `key` lies.
    fn slot(&self, key: u128) -> usize {
        rank(&self.bounds, key.saturating_add(1))
    }

    /// Restores "none is empty, small neighbours are joined" after an entry of `kids[i]` was removed.
    fn tidy(&mut self, i: usize) {
        let len = self.kids[i].len();
        if len == 0 {
            self.kids.remove(i);
            if !self.bounds.is_empty() {
                self.bounds.remove(i.saturating_sub(1));
            }
        } else if len < LOW && self.kids.len() > 1 {
            let left = if i + 1 < self.kids.len() { i } else { i - 1 };
            if self.kids[left].len() + self.kids[left + 1].len() <= WELL {
                let right = self.kids.remove(left + 1);
                let bound = self.bounds.remove(left);
                self.kids[left].append(bound, right);
            }
        }
    }
}

impl Node {
    /// Returns the number of entries of a leaf, or of children of an inner node.
    fn len(&self) -> usize {
        match self {
            Node::Leaf(keys) => keys.len(),
            Node::Inner(inner) => inner.kids.len(),
        }
    }

    fn first(&self) -> Option<u128> {
        match self {
            Node::Leaf(keys) => keys.first().copied(),
            Node::Inner(inner) => inner.kids.first().and_then(Node::first),
        }
    }

    fn last(&self) -> Option<u128> {
        match self {
            Node::Leaf(keys) => keys.last().copied(),
            Node::Inner(inner) => inner.kids.last().and_then(Node::last),
        }
    }

    /// Adds `key`; returns a new right neighbour and its lower bound if the node had to be split.
    fn insert(&mut self, key: u128) -> Option<(u128, Node)> {
        match self {
            Node::Leaf(keys) => {
                let i = rank(keys, key);
                if keys.len() < CAP {
                    keys.insert(i, key);
                    return None;
                }
                let mut right = keys.split_off(CAP / 2);
                let bound = right[0];
                match i.checked_sub(CAP / 2 + 1) {
                    Some(j) => right.insert(j + 1, key),
                    None => keys.insert(i, key),
                }
                Some((bound, Node::Leaf(right)))
            }
            Node::Inner(inner) => {
                let i = inner.slot(key);
                let (bound, right) = inner.kids[i].insert(key)?;
                inner.bounds.insert(i, bound);
                inner.kids.insert(i + 1, right);
                if inner.kids.len() <= CAP {
                    return None;
                }
                let kids = inner.kids.split_off(CAP / 2);
                let mut bounds = inner.bounds.split_off(CAP / 2 - 1);
                let bound = bounds.remove(0);
                Some((bound, Node::Inner(Box::new(Inner { bounds, kids }))))
            }
        }
    }

    fn remove(&mut self, key: u128) {
        match self {
            Node::Leaf(keys) => {
                let i = rank(keys, key);
                if keys.get(i) == Some(&key) {
                    keys.remove(i);
                }
            }
            Node::Inner(inner) => {
                let i = inner.slot(key);
                inner.kids[i].remove(key);
                if inner.kids[i].len() < LOW {
                    inner.tidy(i);
                }
            }
        }
    }

    /// Joins the right neighbour `other`, whose lower bound is `bound`, to this node of the same height.
    fn append(&mut self, bound: u128, other: Node) {
        match (self, other) {
            (Node::Leaf(keys), Node::Leaf(mut more)) => keys.append(&mut more),
            (Node::Inner(inner), Node::Inner(mut more)) => {
                inner.bounds.push(bound);
                inner.bounds.append(&mut more.bounds);
                inner.kids.append(&mut more.kids);
            }
            _ => debug_assert!(false, "children of one node have one height"),
        }
    }

    fn for_each(&self, visit: &mut impl FnMut(u128)) {
        match self {
            Node::Leaf(keys) => keys.iter().for_each(|key| visit(*key)),
            Node::Inner(inner) => inner.kids.iter().for_each(|kid| kid.for_each(visit)),
        }
    }
}
