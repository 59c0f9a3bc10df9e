package matchmaker

import (
	"context"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/match"
	"github.com/gopherqueue/gq/store"
)

// Notice types.
const (
	JobAssigned     = "jobAssigned"
	JobCompleted    = "jobCompleted"
	JobExpired      = "jobExpired"
	LeaseRenewed    = "leaseRenewed"
	LeaseCancelled  = "leaseCancelled"
	ProviderSlashed = "providerSlashed"
)

// Notice is a message for subscribers. Fields that its type does not use are zero.
type Notice struct {
	Type     string
	Seq      uint64 // of the event it comes from
	Time     time.Time
	Job      gq.JobID
	Provider string
	Lease    gq.LeaseID
	Deadline time.Time
	Digest   string
	Reason   string
	Penalty  int64
}

// Notices translates an event of the queue into zero, one or two notices.
func (d *Dispatcher) Notices(ctx context.Context, e *gq.Event) (list []Notice, err error) {
	n := Notice{Seq: e.Seq, Time: e.Time, Job: e.Job, Provider: e.Worker, Lease: e.Lease}
	add := func(name string, fill func(*Notice)) {
		made := n
		made.Type = name
		fill(&made)
		list = append(list, made)
	}
	if o := match.OutcomeOf(e); o != 0 {
		status, reason := endOf(e, o)
		cancelled := status == gq.LeaseCancelled.String()
		if cancelled && (e.Type == gq.EventDeadLettered || e.Type == gq.EventCancelled) {
			// The lease may have ended earlier, with another event.
			if cancelled, err = d.endedBy(ctx, e); err != nil {
				return nil, err
			}
		}
		if cancelled {
			add(LeaseCancelled, func(n *Notice) { n.Reason = reason })
		}
	}
	switch e.Type {
	case gq.EventProviderSlashed:
		add(ProviderSlashed, func(n *Notice) { n.Job, n.Reason, n.Penalty = gq.JobID{}, e.Reason, e.CostUnits })
	case gq.EventClaimed:
		length, err := d.leaseLength(ctx, e.Job)
		if err != nil {
			return nil, err
		}
		add(JobAssigned, func(n *Notice) { n.Deadline = e.Time.Add(length) })
	case gq.EventCompleted:
		found, err := d.store.Get(ctx, []store.Ref{{Job: e.Job}}, gq.WithResult)
		if err != nil {
			return nil, err
		}
		add(JobCompleted, func(n *Notice) { n.Digest = digestOf(found[0].Result) })
	case gq.EventRenewed:
		add(LeaseRenewed, func(n *Notice) { n.Deadline = e.Until })
	case gq.EventDeadLettered:
		add(JobExpired, func(n *Notice) { n.Reason = expiryReason(e.Reason) })
	default:
	}
	return list, nil
}

// endedBy reports whether an event ended its lease: it is the first one that could have.
func (d *Dispatcher) endedBy(ctx context.Context, e *gq.Event) (bool, error) {
	history, err := d.store.History(ctx, e.Job)
	if err != nil {
		return false, err
	}
	for i := range history {
		if h := &history[i]; h.Lease == e.Lease && match.OutcomeOf(h) != 0 {
			return h.Seq == e.Seq, nil
		}
	}
	return false, nil
}

// leaseLength returns the duration of a job's lease.
func (d *Dispatcher) leaseLength(ctx context.Context, id gq.JobID) (time.Duration, error) {
	found, err := d.store.Get(ctx, []store.Ref{{Job: id}}, 0)
	if err != nil {
		return 0, err
	}
	if p := found[0].State.Policy; p != nil { // nil if the job is gone
		return p.LeaseTTL, nil
	}
	return 0, nil
}

// Subscribe sends every notice after an event until the context ends or send returns an
// error. If other is not nil, it gets the events that are not notices.
func (d *Dispatcher) Subscribe(ctx context.Context, after uint64, send func(Notice) error, other func(*gq.Event) error) error {
	return d.engine.Follow(ctx, after, func(events []gq.Event) error {
		for i := range events {
			e := &events[i]
			if e.Queue != d.queue {
				continue
			}
			notices, err := d.Notices(ctx, e)
			if err != nil {
				return err
			}
			for _, n := range notices {
				if err := send(n); err != nil {
					return err
				}
			}
			if len(notices) == 0 && other != nil {
				if err := other(e); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

func (d *Dispatcher) headNow(ctx context.Context) (h head, err error) {
	_, err = d.find(ctx, kindState, nameHead, &h)
	return h, err
}
