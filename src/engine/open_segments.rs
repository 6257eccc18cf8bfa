//! The segments that take new objects, and which of them have a free range of some length.
//!
//! Above the segments is a tree of maxima: each node has the longest free range of the segments below it. So it takes
//! one comparison to find that no segment has enough memory for a write, and a few steps to find the next segment that
//! has, however many are full.

use super::types::SegmentNumber;

/// Segments that take new objects, in no order.
#[derive(Debug, Default)]
pub struct OpenSegments {
    numbers: Vec<SegmentNumber>,
    /// The tree: the children of node `n` are `2 n` and `2 n + 1`, and its second half are the leaves, one for each
    /// place and zero for those that are not used.
    longest: Vec<u64>,
}

impl OpenSegments {
    /// Returns how many open segments there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Returns whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    /// Returns all of them. The place of a segment is its index here.
    #[must_use]
    pub fn numbers(&self) -> &[SegmentNumber] {
        &self.numbers
    }

    /// Returns the longest free range of all.
    #[must_use]
    pub fn longest(&self) -> u64 {
        self.longest.get(1).copied().unwrap_or(0)
    }

    fn leaves(&self) -> usize {
        self.longest.len() / 2
    }

    /// Adds a segment and returns its place.
    pub fn push(&mut self, number: SegmentNumber, longest: u64) -> u32 {
        let place = self.numbers.len();
        self.numbers.push(number);
        if place >= self.leaves() {
            self.grow();
        }
        self.set(place as u32, longest);
        place as u32
    }

    /// Doubles the number of leaves.
    fn grow(&mut self) {
        let leaves = self.leaves();
        let mut tree = vec![0; (leaves * 4).max(2)];
        let half = tree.len() / 2;
        tree[half..half + leaves].copy_from_slice(&self.longest[leaves..]);
        for node in (1..half).rev() {
            tree[node] = tree[2 * node].max(tree[2 * node + 1]);
        }
        self.longest = tree;
    }

    /// Sets the longest free range of the segment at this place.
    pub fn set(&mut self, place: u32, longest: u64) {
        let mut node = self.leaves() + place as usize;
        let Some(leaf) = self.longest.get_mut(node) else { return };
        *leaf = longest;
        while node > 1 {
            node /= 2;
            let above = self.longest[2 * node].max(self.longest[2 * node + 1]);
            if std::mem::replace(&mut self.longest[node], above) == above {
                return;
            }
        }
    }

    /// Removes the segment at this place. If another segment moves there, returns that one.
    pub fn remove(&mut self, place: u32) -> Option<SegmentNumber> {
        let last = self.numbers.len().checked_sub(1)?;
        let longest = self.longest.get(self.leaves() + last).copied()?;
        self.numbers.swap_remove(place as usize);
        self.set(last as u32, 0);
        let moved = self.numbers.get(place as usize).copied()?;
        self.set(place, longest);
        Some(moved)
    }

    /// Removes all segments.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Returns the first place from this one on whose segment has a free range of that length.
    #[must_use]
    pub fn next_with(&self, from: usize, length: u64) -> Option<usize> {
        if from >= self.numbers.len() || length == 0 {
            return None;
        }
        let mut node = self.leaves() + from;
        // Up, until a subtree to the right has one; the place itself counts as that.
        while self.longest[node] < length {
            while node % 2 == 1 {
                node /= 2;
            }
            if node == 0 {
                return None;
            }
            node += 1;
        }
        while node < self.leaves() {
            node *= 2;
            if self.longest[node] < length {
                node += 1;
            }
        }
        Some(node - self.leaves())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn finds_what_a_search_over_all_finds(
            steps in proptest::collection::vec((0..4_u8, any::<u16>(), 0..100_u64), 0..300),
        ) {
            let mut open = OpenSegments::default();
            let mut model: Vec<(SegmentNumber, u64)> = Vec::new();
            for (nth, (kind, place, longest)) in steps.into_iter().enumerate() {
                let number = SegmentNumber(nth as u32);
                if kind < 2 || model.is_empty() {
                    prop_assert_eq!(open.push(number, longest), model.len() as u32);
                    model.push((number, longest));
                } else {
                    let place = usize::from(place) % model.len();
                    if kind == 2 {
                        open.set(place as u32, longest);
                        model[place].1 = longest;
                    } else {
                        model.swap_remove(place);
                        let moved = model.get(place).map(|(number, _)| *number);
                        prop_assert_eq!(open.remove(place as u32), moved);
                    }
                }
                prop_assert!(open.numbers().iter().eq(model.iter().map(|(number, _)| number)));
                prop_assert_eq!(open.longest(), model.iter().map(|(_, longest)| *longest).max().unwrap_or(0));
                for from in 0..=model.len() {
                    for length in [1, 10, 50, 99, 100] {
                        let found = (from..model.len()).find(|place| model[*place].1 >= length);
                        prop_assert_eq!(open.next_with(from, length), found, "{} {}", from, length);
                    }
                }
            }
        }
    }
}
