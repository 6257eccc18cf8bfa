//! Retries the puts that wait for clients to rejoin after a takeover, and passes their answers to their connections.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::watch;

use crate::master::admission::LEADERSHIP_CHECK;
use crate::master::metrics::Counters;
use crate::master::parking::{ParkedCall, Parking};
use crate::master::rpc_failures::{FAILED, NOT_LEADING, refused};
use crate::master::rpc_service::{LogContext, MasterService, record_bytes};
use crate::replication::admission::Admission;
use crate::replication::parked_puts::PutTicket;
use crate::replication::queue_space::Ticket;
use crate::replication::time::Monotonic;
use crate::wire::server::{DeferredReply, Outcome};

impl MasterService {
    /// Retries parked puts in order, whenever segments have opened, until parking is over or `stop` turns true. No put
    /// is parked after that. No guard of the term is held between tries.
    pub async fn try_parked_puts<T>(self: Arc<Self>, mut stop: watch::Receiver<bool>) -> Option<T> {
        let (replication, parking) = (self.replication.as_ref()?, self.parking.as_ref()?);
        tokio::select! {
            biased;
            // A dropped sender also means stop.
            _ = stop.wait_for(|stop| *stop) => {}
            () = self.try_until_over(replication, parking) => {}
        }
        parking.close();
        None
    }

    async fn try_until_over(&self, replication: &LogContext, parking: &Parking) {
        let until = parking.until();
        loop {
            while let Some((ticket, call)) = parking.next_due(replication.clock.now()) {
                self.try_again(replication, parking, ticket, call).await;
            }
            let now = replication.clock.now();
            if parking.is_over(now) {
                return;
            }
            let _ = tokio::time::timeout(until.since(now), parking.due()).await;
        }
    }

    /// Waits until a parked put is admitted, as any change (R2), and retries it.
    async fn try_again(
        &self,
        replication: &LogContext,
        parking: &Parking,
        ticket: PutTicket,
        call: ParkedCall,
    ) {
        let (incarnation, clock) = (&replication.incarnation, replication.clock);
        let (mut place, since): (Option<Ticket>, _) = (None, Instant::now());
        let refusal = loop {
            if call.reply.is_closed() {
                break NOT_LEADING;
            }
            let granted = {
                let Some(_guard) = incarnation.guards.guard() else { break NOT_LEADING };
                match incarnation.admit(clock.now(), record_bytes(&call.body), &mut place, since.elapsed()) {
                    Admission::Admitted(_permit) => return self.try_now(clock.now(), parking, ticket, call),
                    Admission::Refused(refusal) => {
                        Counters::add(&self.metrics.counters.refused_changes, 1);
                        self.metrics.rpc.call(call.function, false);
                        break refused(refusal);
                    }
                    Admission::Waiting => place.as_ref().map(Ticket::granted),
                }
            };
            if let Some(granted) = granted {
                let _ = tokio::time::timeout(LEADERSHIP_CHECK, granted).await;
            }
        };
        parking.leave(ticket);
        let _ = call.reply.send(Err(refusal));
    }

    /// Retries an admitted put, and sends its reply or parks it again.
    fn try_now(&self, now: Monotonic, parking: &Parking, ticket: PutTicket, call: ParkedCall) {
        let mut body = Vec::new();
        let handled = self.handlers.handle(call.function, &call.body, &mut body);
        let counters = &self.metrics.counters;
        let (call, counter) = if handled.starved > 0 {
            let are_closed = || self.handlers.engine.has_closed_segments();
            let Some(call) = parking.put_back(ticket, call, now, are_closed) else { return };
            (call, &counters.parked_puts_starved)
        } else {
            parking.leave(ticket);
            (call, &counters.parked_puts_resumed)
        };
        Counters::add(counter, 1);
        let reply = match self.count(call.function, handled) {
            Outcome::Ready { depends_on } => Ok(DeferredReply { body, depends_on }),
            Outcome::Error(failure) => Err(failure),
            // A Start that was decoded once is always answered at once.
            Outcome::Busy(_) | Outcome::Offload(_) | Outcome::Deferred(_) | Outcome::Refused(_) => {
                Err(FAILED)
            }
        };
        // The connection may be closed by now.
        let _ = call.reply.send(reply);
    }
}
