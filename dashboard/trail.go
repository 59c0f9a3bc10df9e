package dashboard

import (
	"context"

	"github.com/gopherqueue/gq"
)

// trailPerPage is the number of entries of the audit trail on a page.
const trailPerPage = 50

type trailView struct {
	Entries  []TrailEntry
	By, Verb string
	First    bool
	Next     string
}

// auditTrail shows who changed what.
func (d *Dashboard) auditTrail(v *visit) error {
	if d.options.Sources.Trail == nil {
		return v.notHere()
	}
	q := v.r.URL.Query()
	view := trailView{By: clean(q.Get("by"), gq.MaxNameBytes), Verb: clean(q.Get("verb"), 64), First: q.Get("cursor") == ""}
	var err error
	view.Entries, view.Next, err = d.options.Sources.Trail(v.ctx, view.By, view.Verb, q.Get("cursor"), trailPerPage)
	if err != nil {
		return err
	}
	v.watch = "clock"
	return v.show("audit", "Audit trail", view)
}

type remoteAddrKey struct{}

// RemoteAddr returns the address of the browser on whose behalf a call is made, for
// [Visitor.Context].
func RemoteAddr(ctx context.Context) string {
	from, _ := ctx.Value(remoteAddrKey{}).(string)
	return from
}
