package main

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/gopherqueue/gq"
	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
)

// When backups and certificates are a problem.
const (
	backupOld        = 48 * time.Hour
	certificateSoon  = 14 * 24 * time.Hour
	certificateClose = 3 * 24 * time.Hour
)

// server tells about the backups and the certificate of the server that answered.
func (f *findings) server(s *gq.ServerState) {
	if s == nil {
		return
	}
	switch {
	case !s.Backups:
	case s.LastBackup.IsZero():
		f.add("fail", "backup", "there is none in the server's directory for backups; gq backup now")
	case time.Since(s.LastBackup) > backupOld:
		f.add("fail", "backup", "the newest is of %s; gq backup now", ago(s.LastBackup))
	default:
		f.add("ok", "backup", "the newest is of %s", ago(s.LastBackup))
	}
	if s.CertificateProblem != "" {
		f.add("fail", "tls", "the certificate files of the server cannot be used, and the old ones stay in use until %s: %s", s.CertificateExpires.UTC().Format(time.RFC3339), clean(s.CertificateProblem))
	}
	left := time.Until(s.CertificateExpires)
	switch {
	case s.CertificateExpires.IsZero():
	case left < 0:
		f.add("fail", "tls", "the certificate of the server expired %s", ago(s.CertificateExpires))
	case left < certificateClose:
		f.add("fail", "tls", "the certificate of the server expires %s", ago(s.CertificateExpires))
	case left < certificateSoon:
		f.add("note", "tls", "the certificate of the server expires %s", ago(s.CertificateExpires))
	default:
		f.add("ok", "tls", "the certificate of the server expires %s", ago(s.CertificateExpires))
	}
}

// Webhook deliveries that are looked at, and how often an endpoint must have refused one.
const (
	deliverySample = 1000
	refusedOften   = 3
)

// endpoint is where deliveries go that failed so far.
type endpoint struct {
	url        string
	deliveries int
	attempts   int64 // of the delivery with the most
	reason     string
}

// webhooks tells about endpoints that refuse deliveries, long before these are given up.
func (f *findings) webhooks(ctx context.Context, q queue) error {
	a, err := adminOf(q)
	if err != nil {
		return nil //nolint:nilerr // an embedded queue delivers nothing
	}
	page, err := a.ListDeliveries(ctx, &pb.ListDeliveriesRequest{State: pb.DeliveryState_DELIVERY_STATE_PENDING, Limit: deliverySample})
	if err != nil {
		return err
	}
	f.endpoints(page.GetDeliveries())
	return nil
}

func (f *findings) endpoints(pending []*pb.Delivery) {
	by := map[string]*endpoint{}
	for _, d := range pending {
		if d.GetAttempts() == 0 || d.GetReason() == "" {
			continue
		}
		e := by[d.GetUrl()]
		if e == nil {
			e = &endpoint{url: d.GetUrl()}
			by[d.GetUrl()] = e
		}
		if e.deliveries++; d.GetAttempts() > e.attempts {
			e.attempts, e.reason = d.GetAttempts(), d.GetReason()
		}
	}
	all := make([]*endpoint, 0, len(by))
	for _, e := range by {
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b *endpoint) int {
		return cmp.Or(cmp.Compare(b.attempts, a.attempts), cmp.Compare(b.deliveries, a.deliveries), cmp.Compare(a.url, b.url))
	})
	var often, some group
	for _, e := range all {
		g := &some
		if e.attempts >= refusedOften {
			g = &often
		}
		g.add(e.attempts, "%s refuses deliveries: %d wait, and attempt %d of one failed: %s; gq webhook list --state pending", clean(e.url), e.deliveries, e.attempts, clean(e.reason))
	}
	f.group("fail", "webhook", "endpoints", often)
	f.group("note", "webhook", "endpoints", some)
}
