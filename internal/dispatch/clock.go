package dispatch

import (
	"context"
	"time"

	"github.com/gopherqueue/gq/store"
)

// moment is an instant of the store's clock and when it was here.
type moment struct{ there, here time.Time }

// clockTrust is how long our clock is trusted to go as fast as the store's.
const clockTrust = time.Second

// now is the store's time, as far as it is known here: what it said last, and
// what has passed since. Setting the clock of this machine changes nothing.
func (d *Dispatcher) now() time.Time {
	if m := d.heard.Load(); m != nil {
		return m.there.Add(time.Since(m.here))
	}
	return d.engine.Now()
}

// listen asks the store for its time.
func (d *Dispatcher) listen(ctx context.Context) error {
	keeper, ok := d.store.(store.Timekeeper)
	if m := d.heard.Load(); !ok || m != nil && time.Since(m.here) < clockTrust {
		return nil
	}
	here := time.Now()
	there, err := keeper.Now(ctx)
	if err == nil {
		d.heard.Store(&moment{there, here})
	}
	return err
}
