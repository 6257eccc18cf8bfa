//! Finds where the items of one kind differ between masters. Pure functions.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::cluster::digests::{ItemDigest, ItemRange, KindDigests, RangeDigest};
use crate::engine::snapshot::{BITS, MAX_BITS};

/// What a comparison has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Finding {
    /// All masters have the same items.
    Equal,
    /// The first difference is in this part of the range, which has to be looked at more closely.
    Narrower(ItemRange),
    /// The first item that differs.
    Item(Difference),
    /// There is a difference, but no item shows it.
    Unclear,
}

/// An item that differs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Difference {
    pub(super) kind: String,
    pub(super) name: String,
    /// Names of the fields that differ between masters that have the item.
    pub(super) fields: Vec<String>,
    /// What each master has: the item's fields, or `None`.
    pub(super) members: BTreeMap<String, Option<BTreeMap<String, String>>>,
}

/// Compares what the members have of a kind in a range; without one in all of it.
pub(super) fn compare(kind: &str, range: Option<&ItemRange>, views: &BTreeMap<&str, KindDigests>) -> Finding {
    if all_equal(views.values().map(|view| &view.sum)) {
        return Finding::Equal;
    }
    if views.values().all(|view| view.items.is_some()) {
        return first_item(kind, views).map_or(Finding::Unclear, Finding::Item);
    }
    let parts: BTreeSet<u8> = views.values().flat_map(|view| view.parts.keys().copied()).collect();
    let differs = |part: &u8| !all_equal(views.values().map(|view| view.parts.get(part)));
    let Some(part) = parts.into_iter().find(differs) else { return Finding::Unclear };
    narrower(kind, range, part).map_or(Finding::Unclear, Finding::Narrower)
}

fn all_equal<T: PartialEq>(mut values: impl Iterator<Item = T>) -> bool {
    let first = values.next();
    values.all(|value| Some(value) == first)
}

/// Returns a part of a range; `None` if that is too small.
fn narrower(kind: &str, range: Option<&ItemRange>, part: u8) -> Option<ItemRange> {
    let (prefix, bits) = match range {
        Some(range) => (u64::from_str_radix(&range.prefix, 16).ok()?, range.bits),
        None => (0, 0),
    };
    let shift = MAX_BITS.checked_sub(bits)?;
    let prefix = prefix | u64::from(part) << shift;
    let narrower = ItemRange { kind: kind.to_owned(), prefix: format!("{prefix:016x}"), bits: bits + BITS };
    narrower.parse().map(|_| narrower)
}

/// Returns the first item that is not the same on all members.
fn first_item(kind: &str, views: &BTreeMap<&str, KindDigests>) -> Option<Difference> {
    let mut items: BTreeMap<(&str, &str), BTreeMap<&str, Vec<&ItemDigest>>> = BTreeMap::new();
    for (member, view) in views {
        for item in view.items.iter().flatten() {
            let found = items.entry((&item.position, &item.name)).or_default();
            found.entry(member).or_default().push(item);
        }
    }
    let digests = |found: Option<&Vec<&ItemDigest>>| -> Vec<String> {
        found.into_iter().flatten().map(|item| item.digest.clone()).collect()
    };
    let differs = |found: &BTreeMap<&str, Vec<&ItemDigest>>| {
        !all_equal(views.keys().map(|member| digests(found.get(member))))
    };
    let ((_, name), found) = items.into_iter().find(|(_, found)| differs(found))?;
    let fields_of = |member: &str| Some(found.get(member)?.first()?.fields.clone());
    let members: BTreeMap<String, Option<BTreeMap<String, String>>> =
        views.keys().map(|member| ((*member).to_owned(), fields_of(member))).collect();
    let names: BTreeSet<&String> = members.values().flatten().flat_map(BTreeMap::keys).collect();
    let differs = |field: &&String| !all_equal(members.values().flatten().map(|fields| fields.get(*field)));
    let fields = names.into_iter().filter(differs).cloned().collect();
    Some(Difference { kind: kind.to_owned(), name: name.to_owned(), fields, members })
}

/// Returns the number of items of a kind that each member has, and their digest.
pub(super) fn sums(views: &BTreeMap<&str, KindDigests>) -> BTreeMap<String, RangeDigest> {
    views.iter().map(|(member, view)| ((*member).to_owned(), view.sum.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(position: &str, name: &str, digest: &str, size: u64) -> ItemDigest {
        ItemDigest {
            position: position.into(),
            digest: digest.into(),
            name: name.into(),
            fields: [("size".to_owned(), size.to_string()), ("client".to_owned(), "1-2".to_owned())].into(),
        }
    }

    /// A view with these items; its sums say as much as the test needs.
    fn view(items: Option<Vec<ItemDigest>>, parts: &[(u8, &str)]) -> KindDigests {
        let part =
            |(part, digest): &(u8, &str)| (*part, RangeDigest { count: 1, digest: (*digest).to_owned() });
        let sum = format!("{items:?}{parts:?}");
        KindDigests {
            sum: RangeDigest { count: 1, digest: sum },
            parts: parts.iter().map(part).collect(),
            items,
        }
    }

    #[test]
    fn equal_views_are_equal() {
        let same = || view(None, &[(1, "a")]);
        assert_eq!(compare("object", None, &[("a", same()), ("b", same())].into()), Finding::Equal);
        assert_eq!(compare("object", None, &[("a", same())].into()), Finding::Equal);
    }

    #[test]
    fn the_first_part_that_differs_is_looked_at_more_closely() {
        let views: BTreeMap<&str, KindDigests> = [
            ("a", view(None, &[(1, "x"), (7, "y"), (9, "z")])),
            ("b", view(None, &[(1, "x"), (7, "other"), (9, "other")])),
        ]
        .into();
        let narrower = |range: Option<&ItemRange>| match compare("object", range, &views) {
            Finding::Narrower(range) => (range.prefix, range.bits),
            other => panic!("{other:?}"),
        };
        assert_eq!(narrower(None), ("0700000000000000".to_owned(), 8));
        let range = ItemRange { kind: "object".into(), prefix: "ab00000000000000".into(), bits: 8 };
        assert_eq!(narrower(Some(&range)), ("ab07000000000000".to_owned(), 16));
        // A part that only one has, and one that cannot be narrowed any more.
        let views = [("a", view(None, &[])), ("b", view(None, &[(0, "x")]))].into();
        assert!(matches!(compare("object", None, &views), Finding::Narrower(range) if range.bits == 8));
        let last = ItemRange { kind: "object".into(), prefix: "0".into(), bits: 56 };
        assert_eq!(compare("object", Some(&last), &views), Finding::Unclear);
    }

    #[test]
    fn the_first_item_that_differs_is_named_with_what_each_has() {
        let equal = || item("01", "equal", "e", 1);
        let views = [
            ("a", view(Some(vec![equal(), item("02", "key", "x", 5), item("03", "later", "y", 5)]), &[])),
            ("b", view(Some(vec![equal(), item("02", "key", "z", 6)]), &[])),
        ]
        .into();
        let Finding::Item(found) = compare("object", None, &views) else { panic!() };
        assert_eq!((found.name.as_str(), found.fields), ("key", vec!["size".to_owned()]));
        assert_eq!(found.members["b"].as_ref().unwrap()["size"], "6");
    }

    #[test]
    fn an_item_that_one_member_does_not_have_differs() {
        let views = [
            ("a", view(Some(vec![item("02", "key", "x", 5)]), &[])),
            ("b", view(Some(vec![]), &[])),
            ("c", view(Some(vec![item("02", "key", "x", 5)]), &[])),
        ]
        .into();
        let Finding::Item(found) = compare("object", None, &views) else { panic!() };
        assert_eq!(found.members.values().map(Option::is_some).collect::<Vec<_>>(), [true, false, true]);
        assert!(found.fields.is_empty());
        // Nothing is listed that explains the sums.
        let odd = || KindDigests { items: Some(Vec::new()), ..KindDigests::default() };
        let mut other = odd();
        other.sum.count = 1;
        assert_eq!(compare("object", None, &[("a", odd()), ("b", other)].into()), Finding::Unclear);
    }
}
