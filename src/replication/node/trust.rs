//! Whether this replica's state can be trusted to be what the log says (INV-8).
//!
//! A `Digest` that does not match, or a record that does not follow the last one, puts the state in doubt: this master
//! is not a candidate until it has rebuilt the state from the log. The result is what the log says, so the master is a
//! candidate again, whatever signs the log itself shows: then the primary that wrote them was wrong, and more of the
//! same kind in its term mean nothing. A sign of a kind that the rebuild has not met in that term is about this state
//! again, however often it was rebuilt.

use std::time::Duration;

use super::{Node, Phase};
use crate::cluster::member::DigestAt;
use crate::cluster::role::Role;
use crate::engine::divergence::Divergence;
use crate::engine::types::{Digest, SequenceId, Term};
use crate::replication::time::Monotonic;

/// Earliest time from one rebuild to the next one in the same term while a primary leads: signs that come back after
/// each rebuild, by a defect, must not make a standby read the whole log in a loop.
const REBUILD_PAUSE: Duration = Duration::from_secs(10);

/// Whether the state can be trusted, and the evidence.
#[derive(Debug)]
pub(super) struct Trust {
    /// Why the state is in doubt, so that it has to be rebuilt.
    doubt: Option<String>,
    /// The state is being built from the beginning of the log, or from a snapshot that the log has confirmed: the result
    /// is what the log says.
    building: bool,
    /// It is being built because it was in doubt.
    rebuilding: bool,
    /// The last record of the snapshot that the state comes from, until a later `Digest` has matched.
    unconfirmed: Option<SequenceId>,
    /// The doubt arose from the log before the snapshot was confirmed.
    doubted_unconfirmed: bool,
    /// The term of the log in which the state was last rebuilt because it was in doubt, and when that ended.
    rebuilt: Option<(Term, Monotonic)>,
    /// Evidence that a primary's state was not what the log says: a `Digest` that a state built from the log contradicts.
    against: Option<DigestAt>,
    /// The term in which the log itself has a record that does not follow the last one about its object.
    chain_broken_in: Option<Term>,
    /// All signs of divergence that were seen.
    pub seen: Divergence,
}

impl Default for Trust {
    fn default() -> Self {
        Self {
            doubt: None,
            building: true,
            rebuilding: false,
            unconfirmed: None,
            doubted_unconfirmed: false,
            rebuilt: None,
            against: None,
            chain_broken_in: None,
            seen: Divergence::default(),
        }
    }
}

impl Trust {
    /// Returns the trust in a state that was read from a snapshot whose last record is `last`.
    pub(super) fn from_snapshot(last: SequenceId) -> Self {
        Self { unconfirmed: Some(last), ..Self::default() }
    }

    /// Returns whether the state comes from a snapshot that no later `Digest` has confirmed yet. Until then it is not
    /// known to be what the log says.
    pub(super) fn is_unconfirmed(&self) -> bool {
        planted!(TrustSnapshot => return false);
        self.unconfirmed.is_some()
    }

    /// Records the last `Digest` that has matched.
    fn matched(&mut self, digest: SequenceId) {
        if self.unconfirmed.is_some_and(|last| digest > last) {
            self.unconfirmed = None;
            // A state from a wrong snapshot matches no later digest: what it was doubted for is the log's own fault.
            self.doubt.take_if(|_| std::mem::take(&mut self.doubted_unconfirmed));
        }
    }

    /// Returns why the state is in doubt; `None` if it is not.
    pub(super) fn doubt(&self) -> Option<&str> {
        self.doubt.as_deref()
    }

    /// Returns the evidence against the primary of this term.
    pub(super) fn against(&self, term: Term) -> Option<&DigestAt> {
        self.against.as_ref().filter(|against| against.term == term.0)
    }

    /// Returns whether the state is being rebuilt because it was in doubt.
    pub(super) fn is_rebuilding(&self) -> bool {
        self.rebuilding
    }

    /// Begins to build the state from the beginning of the log.
    pub(super) fn begin(&mut self) {
        self.rebuilding |= self.doubt.take().is_some();
        self.building = true;
        self.unconfirmed = None;
        self.doubted_unconfirmed = false;
    }

    /// Begins to build the state from a snapshot whose last record is `last`, for the reason that it is built anyway.
    pub(super) fn begin_from_snapshot(&mut self, last: SequenceId) {
        self.begin();
        self.unconfirmed = Some(last);
    }

    /// Records that the end of the log was reached, in this term.
    pub(super) fn reached_end(&mut self, now: Monotonic, term: Term) {
        self.building = false;
        if std::mem::take(&mut self.rebuilding) {
            self.rebuilt = Some((term, now));
        }
    }

    /// Returns whether the state was rebuilt in this term, and too little time has passed since.
    fn is_just_rebuilt(&self, now: Monotonic, term: Term) -> bool {
        self.rebuilt.is_some_and(|(of, at)| of == term && now.since(at) < REBUILD_PAUSE)
    }

    /// Evaluates the signs of divergence after a batch of this term. Returns true if the state is newly in doubt.
    fn take(&mut self, signs: &Divergence, term: Term) -> bool {
        if signs.is_empty() {
            return false;
        }
        self.seen.add(signs);
        if self.building && !self.is_unconfirmed() {
            self.note_log(signs, term);
            return false;
        }
        let mut own = *signs;
        if self.against(term).is_some() {
            own.digest_mismatch = None;
        }
        if self.chain_broken_in == Some(term) {
            own.broken_chain = None;
        }
        let Some(reason) = reason(&own) else { return false };
        let new = self.doubt.is_none();
        self.doubted_unconfirmed = self.is_unconfirmed() && (new || self.doubted_unconfirmed);
        self.doubt.get_or_insert(reason);
        new
    }

    /// Notes signs that a state shows which is built from the log alone: the records are wrong.
    fn note_log(&mut self, signs: &Divergence, term: Term) {
        if let Some(mismatch) = signs.digest_mismatch
            && self.against(term).is_none()
        {
            let (record, Digest(own)) = (mismatch.record.0, mismatch.own);
            tracing::error!(record, term = term.0, "the primary of this term logged a wrong digest");
            self.against = Some(DigestAt { term: term.0, record, digest: format!("{own:016x}") });
        }
        if let Some(broken) = signs.broken_chain
            && self.chain_broken_in != Some(term)
        {
            let record = broken.record.0;
            tracing::error!(record, term = term.0, "the log has a record that does not follow the last one");
            self.chain_broken_in = Some(term);
        }
    }
}

/// Returns why these signs put a state in doubt; `None` if they do not.
fn reason(signs: &Divergence) -> Option<String> {
    match (signs.digest_mismatch, signs.broken_chain, signs.out_of_order) {
        (Some(mismatch), ..) => Some(format!("the digest of record {} differs", mismatch.record.0)),
        (None, Some(broken), _) => {
            Some(format!("record {} does not fit the last change of its object", broken.record.0))
        }
        (None, None, Some(wrong)) => {
            Some(format!("record {} came where {} was due", wrong.found.0, wrong.expected.0))
        }
        (None, None, None) => None,
    }
}

impl Node {
    /// Checks for signs that the state is not what the log says, after a batch was applied.
    pub(super) fn check_trust(&mut self) {
        let signs = self.incarnation.engine.take_divergence();
        let matched = self.incarnation.engine.digest_matched();
        planted!(IgnoreDoubt => return self.following.trust.matched(matched));
        if !signs.is_empty() {
            self.cancel_snapshot("a record has put the state in doubt");
        }
        let term = self.following.position.term;
        if self.following.trust.take(&signs, term) {
            let reason = self.following.trust.doubt().unwrap_or_default();
            tracing::error!(reason, "the state differs from the log, so this master rebuilds it");
        }
        self.following.trust.matched(matched);
    }

    /// Puts the state in doubt for this reason.
    pub(super) fn distrust(&mut self, reason: String) {
        tracing::error!(reason, "the state cannot be trusted, so this master rebuilds it");
        self.following.trust.doubt.get_or_insert(reason);
    }

    /// Rebuilds a state that is in doubt, one standby at a time: the others stay able to take over meanwhile.
    pub(super) fn rebuild(&mut self, now: Monotonic) {
        if self.following.trust.doubt.is_none() || !self.may_rebuild(now) {
            return;
        }
        tracing::warn!("rebuilding the state from the log");
        self.start_over();
        self.read_log();
    }

    fn may_rebuild(&self, now: Monotonic) -> bool {
        let term = self.following.position.term;
        let primary_leads = self.seen_keys.gone_at().is_none();
        if primary_leads && self.following.trust.is_just_rebuilt(now, term) {
            return false;
        }
        let mine = self.settings.name.as_str();
        let others =
            self.seen_keys.members().filter(|member| member.name != mine && member.role == Role::Standby);
        let mut others = others.filter(|member| member.in_doubt);
        !others.any(|member| member.rebuilding || member.name.as_str() < mine)
    }

    /// Steps down if two standbys agree on evidence against this primary: its state is not what the log says.
    pub(super) fn heed_standbys(&mut self, now: Monotonic) {
        let Phase::Leading(leadership) = &self.phase else { return };
        let term = leadership.term.0;
        let evidence = self.seen_keys.members().filter_map(|member| member.digest_at.as_ref());
        let mut evidence: Vec<&DigestAt> = evidence.filter(|at| at.term == term).collect();
        evidence.sort_unstable_by(|one, other| (one.record, &one.digest).cmp(&(other.record, &other.digest)));
        let agreed = evidence.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0].record);
        if let Some(record) = agreed {
            self.distrust(format!("two standbys found that the digest of record {record} is wrong"));
            self.leave(now, format!("two standbys found that the digest of record {record} is wrong"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::divergence::{BrokenChain, Mismatch, OutOfOrder};
    use crate::engine::types::{ObjectId, SequenceId};

    const NOW: Monotonic = Monotonic(1_000_000);

    fn mismatch(record: u64) -> Divergence {
        let first = Mismatch { record: SequenceId(record), own: Digest(9) };
        Divergence { digest_mismatch: Some(first), digest_mismatches: 1, ..Divergence::default() }
    }

    fn broken_chain(record: u64) -> Divergence {
        let (record, after) = (SequenceId(record), SequenceId(3));
        let first = BrokenChain { object: ObjectId(3), record, after, found: None };
        Divergence { broken_chain: Some(first), broken_chains: 1, ..Divergence::default() }
    }

    fn out_of_order(found: u64) -> Divergence {
        let first = OutOfOrder { expected: SequenceId(1), found: SequenceId(found) };
        Divergence { out_of_order: Some(first), records_out_of_order: 1, ..Divergence::default() }
    }

    /// A state that was built once.
    fn built() -> Trust {
        let mut trust = Trust::default();
        trust.reached_end(NOW, Term(3));
        trust
    }

    /// The state is rebuilt in term 4, and meets these signs in the log.
    fn rebuild(trust: &mut Trust, signs: &[Divergence]) {
        trust.begin();
        assert!(trust.is_rebuilding() && trust.doubt().is_none());
        for sign in signs {
            assert!(!trust.take(sign, Term(4)));
        }
        trust.reached_end(NOW, Term(4));
    }

    #[test]
    fn a_live_mismatch_is_a_doubt_and_the_same_one_after_a_rebuild_is_the_primarys() {
        let mut trust = built();
        assert!(!trust.take(&Divergence::default(), Term(4)));
        assert!(trust.take(&mismatch(20), Term(4)));
        assert!(!trust.take(&mismatch(21), Term(4)));
        assert!(trust.doubt().is_some());
        rebuild(&mut trust, &[mismatch(20)]);
        // Every later digest of that term is wrong, too.
        assert!(!trust.take(&mismatch(25), Term(4)));
        assert_eq!(trust.doubt(), None);
        assert_eq!(trust.against(Term(4)).map(|at| at.record), Some(20));
        assert_eq!(trust.against(Term(5)), None);
        // Another primary: a mismatch is a doubt again.
        assert!(trust.take(&mismatch(40), Term(5)));
        assert_eq!(trust.seen.digest_mismatches, 5);
    }

    #[test]
    fn a_state_that_differs_again_is_in_doubt_again_and_no_primary_is_blamed() {
        for second in [mismatch(90), broken_chain(90), out_of_order(90)] {
            let mut trust = built();
            assert!(trust.take(&mismatch(20), Term(4)));
            // The log matches: this state was wrong, not the primary's.
            rebuild(&mut trust, &[]);
            assert!(trust.take(&second, Term(4)), "{second:?}");
            assert!(trust.doubt().is_some() && trust.against(Term(4)).is_none());
        }
    }

    #[test]
    fn what_the_log_itself_shows_is_no_doubt_and_other_signs_are() {
        let mut trust = built();
        assert!(trust.take(&mismatch(20), Term(4)));
        rebuild(&mut trust, &[mismatch(20)]);
        // No `Digest` of a wrong primary causes these.
        assert!(trust.take(&broken_chain(30), Term(4)));
        rebuild(&mut trust, &[mismatch(20), broken_chain(30)]);
        assert!(!trust.take(&broken_chain(35), Term(4)), "the primary goes on as it began");
        assert!(trust.take(&out_of_order(50), Term(4)));
        rebuild(&mut trust, &[mismatch(20), broken_chain(30)]);
        assert!(trust.take(&broken_chain(60), Term(5)), "another primary");
    }

    #[test]
    fn a_doubt_that_comes_back_is_no_loop_of_rebuilds() {
        let mut trust = built();
        assert!(!trust.is_just_rebuilt(NOW, Term(3)), "it was not rebuilt");
        assert!(trust.take(&mismatch(20), Term(4)));
        rebuild(&mut trust, &[]);
        assert!(trust.is_just_rebuilt(NOW.plus(REBUILD_PAUSE - Duration::from_millis(1)), Term(4)));
        assert!(!trust.is_just_rebuilt(NOW.plus(REBUILD_PAUSE), Term(4)));
        assert!(!trust.is_just_rebuilt(NOW, Term(5)));
    }

    #[test]
    fn a_snapshot_that_no_digest_has_confirmed_is_doubted_and_not_the_primary() {
        let mut trust = Trust::from_snapshot(SequenceId(10));
        assert!(trust.is_unconfirmed());
        // A digest from before the snapshot says nothing.
        trust.matched(SequenceId(10));
        assert!(trust.is_unconfirmed());
        assert!(trust.take(&mismatch(20), Term(3)));
        assert!(trust.doubt().is_some() && trust.against(Term(3)).is_none());
        // One that a later digest matches is right: the primary was wrong.
        trust.matched(SequenceId(21));
        assert!(trust.doubt().is_none() && !trust.is_unconfirmed());
        let mut trust = Trust::from_snapshot(SequenceId(10));
        assert!(trust.take(&mismatch(20), Term(3)));
        // The state that the whole log gives is beyond doubt.
        trust.begin();
        assert!(!trust.is_unconfirmed() && !trust.take(&mismatch(20), Term(3)));
        assert!(trust.doubt().is_none() && trust.against(Term(3)).is_some());
        // So is one from a snapshot that a digest has confirmed.
        let mut trust = Trust::from_snapshot(SequenceId(10));
        trust.matched(SequenceId(11));
        assert!(!trust.is_unconfirmed() && !trust.take(&mismatch(20), Term(3)));
    }

    #[test]
    fn wrong_digests_of_the_past_bar_no_master_that_starts() {
        let mut trust = Trust::default();
        for record in [5, 6, 7] {
            assert!(!trust.take(&mismatch(record), Term(1)));
        }
        trust.reached_end(NOW, Term(2));
        assert_eq!(trust.doubt(), None);
    }
}
